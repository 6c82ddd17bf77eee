//! Resources in, desired state out: pure functions of the cluster's objects and the name of this node.

pub mod sessions;
