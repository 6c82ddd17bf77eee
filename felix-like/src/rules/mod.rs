//! Desired nf_tables content, built from desired state; pure.
//!
//! One table per family, `ip margay` and `ip6 margay`. Chains carry the name of the iptables table they stand for as a
//! prefix (`nat-`), sets are shared. So far: source NAT of traffic that leaves the pools. Packets of workload
//! interfaces that no endpoint explains are not dropped yet; that comes with policy.

mod nat;

pub(crate) use nat::{NatInput, table};
