//! A cluster node as BGP sees it: read from labels and annotations of the Kubernetes Node.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use sha2::{Digest, Sha256};

use super::Family;
use crate::calc::remote::TunnelEnds;

const PREFIX: &str = "projectcalico.org/";

/// Address of a node and the subnet it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAddress {
    /// Address with prefix length; a bare address counts as a host prefix.
    pub net: IpNet,
}

impl NodeAddress {
    /// The address alone.
    pub fn ip(&self) -> IpAddr {
        self.net.addr()
    }

    /// Parses `10.0.0.5/24` or `10.0.0.5`, of the given family only.
    pub fn parse(text: &str, family: Family) -> Option<Self> {
        let net = text
            .parse::<IpNet>()
            .ok()
            .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))?;
        (Family::of(net.addr()) == family).then_some(NodeAddress { net })
    }
}

/// The addresses of one node by family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Networks {
    /// IPv4.
    pub v4: Option<NodeAddress>,
    /// IPv6.
    pub v6: Option<NodeAddress>,
}

impl Networks {
    /// Address of one family.
    pub fn get(&self, family: Family) -> Option<NodeAddress> {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
}

/// What BGP needs to know of a node. Two equal values mean that a Node update changes no session, whatever else moved
/// (heartbeats, images, conditions).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BgpNode {
    /// Labels selectors see: Kubernetes labels over the ones kept in the `projectcalico.org/labels` annotation.
    pub labels: BTreeMap<String, String>,
    /// BGP addresses.
    pub addresses: Networks,
    /// AS number of this node alone.
    pub as_number: Option<u32>,
    /// Cluster id; a node that has one is a route reflector (RFC 4456) and not in the mesh.
    pub cluster_id: Option<Ipv4Addr>,
    /// Ends of its tunnels; no session depends on them, routes do.
    pub tunnels: TunnelEnds,
}

impl BgpNode {
    /// Reads labels and annotations. Values that do not parse count as absent.
    pub fn read(labels: &BTreeMap<String, String>, annotations: &BTreeMap<String, String>) -> Self {
        let get = |key: &str| {
            annotations
                .get(&format!("{PREFIX}{key}"))
                .map(|value| value.trim())
        };
        let mut merged: BTreeMap<String, String> = get("labels")
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        merged.extend(
            labels
                .iter()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        BgpNode {
            labels: merged,
            addresses: Networks {
                v4: get("IPv4Address").and_then(|text| NodeAddress::parse(text, Family::V4)),
                v6: get("IPv6Address").and_then(|text| NodeAddress::parse(text, Family::V6)),
            },
            as_number: get("ASNumber").and_then(parse_as),
            cluster_id: get("RouteReflectorClusterID").and_then(|text| text.parse().ok()),
            tunnels: TunnelEnds::read(annotations),
        }
    }
}

/// Parses an AS number, decimal or dotted `1.10` (RFC 5396 asplain and asdot).
pub fn parse_as(text: &str) -> Option<u32> {
    match text.split_once('.') {
        Some((high, low)) => {
            Some(u32::from(high.parse::<u16>().ok()?) << 16 | u32::from(low.parse::<u16>().ok()?))
        }
        None => text.parse().ok(),
    }
}

/// BGP identifier from the node name: the first four octets of its SHA-256, with the first octet brought below 224 so
/// that the result is a unicast address.
pub fn hashed_router_id(node: &str) -> Ipv4Addr {
    let digest = Sha256::digest(node.as_bytes());
    let first = if digest[0] > 223 {
        digest[0] - 32
    } else {
        digest[0]
    };
    Ipv4Addr::new(first, digest[1], digest[2], digest[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn annotations_are_read_and_invalid_values_count_as_absent() {
        let node = BgpNode::read(
            &map(&[("rack", "2")]),
            &map(&[
                ("projectcalico.org/IPv4Address", "10.0.0.5/24"),
                ("projectcalico.org/IPv6Address", "10.0.0.5/24"),
                ("projectcalico.org/ASNumber", "1.10"),
                ("projectcalico.org/RouteReflectorClusterID", "244.0.0.300"),
                ("projectcalico.org/labels", r#"{"rack":"1","row":"b"}"#),
            ]),
        );
        assert_eq!(
            node.addresses.v4.map(|a| a.net.to_string()).as_deref(),
            Some("10.0.0.5/24")
        );
        assert_eq!(node.addresses.v6, None);
        assert_eq!(node.as_number, Some(65546));
        assert_eq!(node.cluster_id, None);
        assert_eq!(
            node.labels,
            map(&[("rack", "2"), ("row", "b")]),
            "Kubernetes labels win"
        );
    }

    #[test]
    fn a_bare_address_is_a_host_prefix() {
        let address = NodeAddress::parse("fd00::5", Family::V6).expect("parses");
        assert_eq!(address.net.to_string(), "fd00::5/128");
    }

    #[test]
    fn router_id_by_hash_of_the_node_name() {
        assert_eq!(
            hashed_router_id("kube-master"),
            Ipv4Addr::new(25, 79, 212, 8)
        );
    }
}
