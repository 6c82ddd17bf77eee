//! Clusters in network namespaces on one machine, for learning and for tests.
