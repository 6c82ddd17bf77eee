//! From desired routes in the cluster's words to routes in this kernel's terms.
//!
//! Several parts of the desired state may ask for the same kernel key. Each asks with an [`Intent`] of a
//! [`RouteClass`]; the best class whose interface is there and up wins, the others stay recorded and take over when it
//! goes ([`Candidates`]). Turning an intent into a route needs the node's links and the routes that are not ours
//! ([`Topology`]). Whether a route found in the kernel is ours is decided in one place ([`Ownership`]).

mod candidates;
mod ownership;
mod topology;

pub(crate) use candidates::{Candidate, Candidates, Choice, Intent, Owner, RouteClass};
pub(crate) use ownership::{
    IPIP_DEVICE, Ownership, PoolTable, RouteOwner, VXLAN_DEVICES, written_from_blocks,
};
pub(crate) use topology::Topology;

/// Metric of a pod's host route.
pub(crate) const WORKLOAD_METRIC: u32 = 1024;
/// Metric of a pod's host route while a live migration ends on this node.
pub(crate) const ELEVATED_METRIC: u32 = 512;
/// Metric of everything else the agent originates.
pub(crate) const AGENT_METRIC: u32 = 0;
/// Lowest metric that marks a BGP route outside all pools as ours: local preferences below 65536 give higher ones.
pub(crate) const BGP_METRIC_FLOOR: u32 = 2_147_418_112;

/// Kernel metric of a BGP route: a higher LOCAL_PREF is a lower metric.
pub(crate) fn bgp_metric(local_pref: u32) -> u32 {
    2_147_483_647u32.saturating_sub(local_pref).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metric_of_a_bgp_route_falls_as_its_preference_rises() {
        assert_eq!(bgp_metric(100), 2_147_483_547);
        assert_eq!(bgp_metric(2_147_482_623), 1024);
        assert_eq!(bgp_metric(u32::MAX), 1);
        assert!(bgp_metric(65_535) >= BGP_METRIC_FLOOR);
    }
}
