//! The node dataplane: desired kernel state, reconcilers, netlink and nf_tables.
