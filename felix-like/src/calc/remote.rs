//! Where the addresses of other nodes are: blocks by owner, single addresses used outside their block's node, and the
//! ends of other nodes' tunnels.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use margay_crds::IPAMBlockSpec;

use super::sessions::BgpNode;
use crate::desired::{Provenance, RemoteBlock, RemoteNode};
use crate::kernel::MacAddr;

const PREFIX: &str = "projectcalico.org/";

/// Ends of a node's tunnels, from the annotations of the Node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TunnelEnds {
    /// `IPv4IPIPTunnelAddr`.
    pub ipip: Option<IpAddr>,
    /// `IPv4VXLANTunnelAddr`.
    pub vxlan_v4: Option<IpAddr>,
    /// `IPv6VXLANTunnelAddr`.
    pub vxlan_v6: Option<IpAddr>,
    /// `VXLANTunnelMACAddr`; the derived address when absent.
    pub vxlan_mac_v4: Option<MacAddr>,
    /// `VXLANTunnelMACAddrV6`.
    pub vxlan_mac_v6: Option<MacAddr>,
}

impl TunnelEnds {
    /// Reads the annotations; a value that does not parse, or is of the wrong family, counts as absent.
    pub fn read(annotations: &BTreeMap<String, String>) -> Self {
        let get = |key: &str| {
            annotations
                .get(&format!("{PREFIX}{key}"))
                .map(|value| value.trim())
        };
        let address = |key: &str, v4: bool| {
            get(key)
                .and_then(|text| text.parse::<IpAddr>().ok())
                .filter(|ip| ip.is_ipv4() == v4)
        };
        TunnelEnds {
            ipip: address("IPv4IPIPTunnelAddr", true),
            vxlan_v4: address("IPv4VXLANTunnelAddr", true),
            vxlan_v6: address("IPv6VXLANTunnelAddr", false),
            vxlan_mac_v4: get("VXLANTunnelMACAddr").and_then(|text| text.parse().ok()),
            vxlan_mac_v6: get("VXLANTunnelMACAddrV6").and_then(|text| text.parse().ok()),
        }
    }
}

/// What the routes of other nodes need of an IPAMBlock. Equal values mean that a new assignment on the owner changes no
/// route here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockView {
    cidr: IpNet,
    owner: Option<String>,
    /// Addresses used on another node than the owner's.
    elsewhere: BTreeMap<IpAddr, String>,
}

impl BlockView {
    /// Reads a block; `None` when its CIDR does not parse or it is being deleted.
    pub fn read(spec: &IPAMBlockSpec) -> Option<Self> {
        let cidr = spec.cidr.parse::<IpNet>().ok()?;
        if spec.deleted == Some(true) {
            return None;
        }
        let owner = spec
            .affinity
            .as_deref()
            .and_then(|text| text.strip_prefix("host:"))
            .map(str::to_owned);
        let mut elsewhere = BTreeMap::new();
        for (ordinal, index) in spec.allocations.iter().enumerate() {
            let attribute =
                index.and_then(|index| spec.attributes.get(usize::try_from(index).ok()?));
            let node = attribute.and_then(|attribute| attribute.secondary.as_ref()?.get("node"));
            if let Some(node) = node
                && owner.as_ref() != Some(node)
                && let Some(address) = nth_address(&cidr, ordinal)
            {
                elsewhere.insert(address, node.clone());
            }
        }
        Some(BlockView {
            cidr,
            owner,
            elsewhere,
        })
    }
}

/// The address at a position of a range.
fn nth_address(net: &IpNet, ordinal: usize) -> Option<IpAddr> {
    let ordinal = u32::try_from(ordinal).ok()?;
    let address = match net.network() {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).checked_add(ordinal)?.into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).checked_add(u128::from(ordinal))?.into()),
    };
    net.contains(&address).then_some(address)
}

/// Blocks of other nodes, and single addresses other nodes use, by range.
pub fn remote_blocks(blocks: &BTreeMap<String, BlockView>, node: &str) -> Vec<RemoteBlock> {
    let mut remote = Vec::new();
    for (name, block) in blocks {
        let provenance = Provenance::cluster("IPAMBlock", name);
        let mut add = |cidr: IpNet, owner: &str| {
            if owner != node {
                let (node, provenance) = (owner.to_owned(), provenance.clone());
                remote.push(RemoteBlock {
                    cidr,
                    node,
                    provenance,
                });
            }
        };
        if let Some(owner) = &block.owner {
            add(block.cidr, owner);
        }
        for (address, user) in &block.elsewhere {
            add(IpNet::from(*address), user);
        }
    }
    remote.sort_by_key(|block| block.cidr);
    remote
}

/// Other nodes with their addresses and tunnel ends.
pub fn remote_nodes(nodes: &BTreeMap<String, BgpNode>, node: &str) -> Vec<RemoteNode> {
    let others = nodes.iter().filter(|(name, _)| name.as_str() != node);
    others
        .map(|(name, node)| RemoteNode {
            name: name.clone(),
            addresses: [node.addresses.v4, node.addresses.v6]
                .into_iter()
                .flatten()
                .map(|own| own.ip())
                .collect(),
            vxlan_addresses: [node.tunnels.vxlan_v4, node.tunnels.vxlan_v6]
                .into_iter()
                .flatten()
                .collect(),
            vxlan_mac_v4: node.tunnels.vxlan_mac_v4,
            vxlan_mac_v6: node.tunnels.vxlan_mac_v6,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn block(value: Value) -> BlockView {
        BlockView::read(&serde_json::from_value(value).expect("a block")).expect("usable")
    }

    #[test]
    fn blocks_and_borrowed_addresses_of_others_are_remote() {
        let borrowed = json!({"cidr": "10.0.0.0/30", "affinity": "host:a", "allocations": [0, 1, null, 2],
            "unallocated": [2], "attributes": [
                {"handle_id": "x", "secondary": {"node": "a"}},
                {"handle_id": "y", "secondary": {"node": "b"}},
                {"handle_id": "z", "secondary": {"node": "c"}}]});
        let free = json!({"cidr": "10.0.1.0/30", "allocations": [null, null, null, null], "unallocated": [0, 1, 2, 3],
            "attributes": []});
        let own = json!({"cidr": "10.0.2.0/30", "affinity": "host:b", "allocations": [null, null, null, null],
            "unallocated": [0, 1, 2, 3], "attributes": []});
        let blocks = BTreeMap::from([
            ("1".to_owned(), block(borrowed)),
            ("2".into(), block(free)),
            ("3".into(), block(own)),
        ]);
        let shown = |node: &str| -> Vec<String> {
            remote_blocks(&blocks, node)
                .iter()
                .map(|remote| format!("{} {}", remote.cidr, remote.node))
                .collect()
        };
        assert_eq!(shown("b"), ["10.0.0.0/30 a", "10.0.0.3/32 c"]);
        assert_eq!(
            shown("a"),
            ["10.0.0.1/32 b", "10.0.0.3/32 c", "10.0.2.0/30 b"]
        );
    }

    #[test]
    fn an_assignment_on_the_owner_is_no_change() {
        let with = |allocations: Value| {
            block(
                json!({"cidr": "10.0.0.0/30", "affinity": "host:a", "allocations": allocations, "unallocated": [],
                "attributes": [{"handle_id": "x", "secondary": {"node": "a"}}]}),
            )
        };
        assert_eq!(
            with(json!([null, null, null, null])),
            with(json!([0, 0, null, null]))
        );
    }

    #[test]
    fn tunnel_ends_of_the_wrong_family_are_absent() {
        let annotations = BTreeMap::from([
            (
                "projectcalico.org/IPv4VXLANTunnelAddr".to_owned(),
                "10.0.0.1".to_owned(),
            ),
            (
                "projectcalico.org/IPv6VXLANTunnelAddr".to_owned(),
                "10.0.0.1".to_owned(),
            ),
            (
                "projectcalico.org/VXLANTunnelMACAddr".to_owned(),
                "66:00:00:00:00:01".to_owned(),
            ),
        ]);
        let ends = TunnelEnds::read(&annotations);
        assert!(ends.vxlan_v4.is_some() && ends.vxlan_v6.is_none() && ends.vxlan_mac_v4.is_some());
    }
}
