//! Resources in, desired state out: pure functions of the cluster's objects and this node's name.

pub mod remote;
pub mod sessions;
