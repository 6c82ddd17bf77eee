//! Cluster-wide control loops: pool status and finalizers, dead-node IPAM, leader election.
