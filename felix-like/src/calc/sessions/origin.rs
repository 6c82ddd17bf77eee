//! What a node originates: a route for each of its blocks and for each address of its pods.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use margay_bgp::LocalRoute;

use super::{MAX_METRIC, NORMAL_PRIORITY};

/// Kernel metric of the route to a pod that has just moved here.
const ELEVATED_PRIORITY: u32 = 512;

/// State of a block's affinity to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockState {
    /// Being claimed; not this node's yet.
    Pending,
    /// Owned.
    Confirmed,
    /// Being given back; still routed here.
    PendingDeletion,
}

/// A block of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeldBlock {
    /// Range.
    pub cidr: IpNet,
    /// State.
    pub state: BlockState,
}

/// Blocks that are aggregated on export.
pub fn confirmed(blocks: &[HeldBlock]) -> Vec<IpNet> {
    blocks
        .iter()
        .filter(|block| block.state == BlockState::Confirmed)
        .map(|block| block.cidr)
        .collect()
}

/// Blocks that get a blackhole route: all that are or were this node's.
pub fn routed(blocks: &[HeldBlock]) -> Vec<IpNet> {
    blocks
        .iter()
        .filter(|block| block.state != BlockState::Pending)
        .map(|block| block.cidr)
        .collect()
}

/// Local routes: blocks wider than one address, and every pod address (true: elevated). LOCAL_PREF carries the kernel
/// metric, 2147483647 minus it.
pub fn local_routes(
    blocks: &[HeldBlock],
    pods: impl Iterator<Item = (IpAddr, bool)>,
) -> Vec<LocalRoute> {
    let mut routes: BTreeMap<IpNet, u32> = BTreeMap::new();
    for block in routed(blocks) {
        if block.prefix_len() < block.max_prefix_len() {
            routes.insert(block, NORMAL_PRIORITY);
        }
    }
    for (address, elevated) in pods {
        let priority = if elevated {
            ELEVATED_PRIORITY
        } else {
            NORMAL_PRIORITY
        };
        let known = routes.entry(IpNet::from(address)).or_insert(priority);
        *known = priority.min(*known);
    }
    routes
        .into_iter()
        .map(|(prefix, priority)| LocalRoute::new(prefix, MAX_METRIC - priority))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cidr: &str, state: BlockState) -> HeldBlock {
        HeldBlock {
            cidr: cidr.parse().expect("net"),
            state,
        }
    }

    #[test]
    fn blocks_and_pods_are_originated_with_their_priority() {
        let blocks = [
            block("10.0.0.0/26", BlockState::Confirmed),
            block("10.0.0.64/26", BlockState::Pending),
            block("10.0.0.128/26", BlockState::PendingDeletion),
            block("10.0.1.7/32", BlockState::Confirmed),
        ];
        let pods = [("10.0.0.5", false), ("10.0.0.6", true), ("10.0.1.7", false)];
        let routes = local_routes(
            &blocks,
            pods.iter().map(|(ip, up)| (ip.parse().expect("ip"), *up)),
        );
        let shown: Vec<(String, u32)> = routes
            .iter()
            .map(|r| (r.prefix.to_string(), r.local_pref))
            .collect();
        assert_eq!(
            shown,
            [
                ("10.0.0.0/26".to_owned(), 2_147_482_623),
                ("10.0.0.5/32".to_owned(), 2_147_482_623),
                ("10.0.0.6/32".to_owned(), 2_147_483_135),
                ("10.0.0.128/26".to_owned(), 2_147_482_623),
                ("10.0.1.7/32".to_owned(), 2_147_482_623),
            ]
        );
        assert_eq!(
            confirmed(&blocks).len(),
            2,
            "neither pending nor pendingDeletion is aggregated"
        );
        assert_eq!(routed(&blocks).len(), 3);
    }
}
