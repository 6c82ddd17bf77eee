//! What an agent answers on its admin API: HTTP/1.1 with JSON on `/run/margay/admin.sock` (everything) and on
//! 127.0.0.1:9097 (reads only).
//!
//! | Request | Answer |
//! |---|---|
//! | `GET /v1/status` | [`Status`] |
//! | `GET /v1/bgp/peers` | [`PeerList`] |
//! | `GET /v1/bgp/routes?prefix=P&peer=IP&family=ipv4\|ipv6&longer=true&for=IP` | [`RouteList`] |
//! | `GET /v1/ipam` | [`Ipam`] |
//! | `GET /v1/endpoints` | [`EndpointList`] |
//! | `GET /v1/drift` | [`Drift`] |
//! | `GET /v1/problems` | [`ProblemList`] |
//!
//! Anything else is answered with status 404 or 405 and an [`Error`] body. Times are RFC 3339 in UTC. A reader ignores
//! fields it does not know, so a newer agent can be asked by an older tool; fields that may be absent are optional.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

/// Path of the agent's admin socket on the host.
pub const SOCKET: &str = "/run/margay/admin.sock";
/// Port of the read-only half, on the loopback address.
pub const READ_ONLY_PORT: u16 = 9097;

/// Body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Error {
    /// What was wrong and what to do about it.
    pub error: String,
}

/// The agent at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Kubernetes node name.
    pub node: String,
    /// Version of the agent.
    pub version: String,
    /// When this process started.
    pub started_at: String,
    /// True when `/readiness` answers 200.
    pub ready: bool,
    /// Why it is not ready, one sentence each.
    pub not_ready: Vec<String>,
    /// Set while the agent works from its last snapshot because the API server does not answer: since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_since: Option<String>,
    /// BGP addresses of the node with their prefix length, `10.0.0.5/24`.
    pub addresses: Addresses,
    /// Effective AS number of this node.
    pub as_number: u32,
    /// BGP identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_id: Option<Ipv4Addr>,
    /// BGP session counts.
    pub sessions: SessionCounts,
    /// Address counts over the blocks of this node.
    pub ipam: IpamCounts,
    /// Pods wired on this node.
    pub endpoints: u64,
    /// Kernel drift counts since start.
    pub drift: DriftCounts,
    /// Number of open problems.
    pub problems: u64,
    /// Parts of the health report, sorted by name.
    pub health: Vec<HealthPart>,
}

/// The node's BGP addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Addresses {
    /// IPv4 address with prefix length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v4: Option<String>,
    /// IPv6 address with prefix length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v6: Option<String>,
}

/// How many BGP sessions are configured and up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionCounts {
    /// Established.
    pub up: u64,
    /// Configured.
    pub total: u64,
}

/// Address counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpamCounts {
    /// Blocks with an affinity to this node.
    pub blocks: u64,
    /// Addresses in use.
    pub used: u64,
    /// Addresses reserved for quick hand-out, not in use.
    pub reserved: u64,
    /// Addresses in use by this node out of blocks of other nodes.
    pub borrowed: u64,
}

/// Kernel drift counts since the agent started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DriftCounts {
    /// Foreign changes repaired.
    pub repaired: u64,
    /// Objects another program keeps changing.
    pub contended: u64,
    /// When desired and actual state were last compared in full and equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<String>,
}

/// One part of the health report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthPart {
    /// Name of the part.
    pub name: String,
    /// Its loop runs.
    pub live: bool,
    /// It does its work.
    pub ready: bool,
    /// Cause in words when not live or not ready.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// BGP sessions of this node, ordered by peer address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PeerList {
    /// Kubernetes node name.
    pub node: String,
    /// One entry per configured session.
    pub peers: Vec<Peer>,
}

/// Where a session's configuration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerType {
    /// Node-to-node mesh.
    Mesh,
    /// BGPPeer that names no node.
    Global,
    /// BGPPeer with `node` or `nodeSelector`.
    Node,
    /// The other end of a BGPPeer of another node.
    Reverse,
    /// A pod selected by `localWorkloadSelector`.
    Workload,
}

impl PeerType {
    /// The word shown in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            PeerType::Mesh => "mesh",
            PeerType::Global => "global",
            PeerType::Node => "node",
            PeerType::Reverse => "reverse",
            PeerType::Workload => "workload",
        }
    }
}

/// One BGP session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Remote address.
    pub peer: IpAddr,
    /// Remote port.
    pub port: u16,
    /// Name of the remote node, or of the BGPPeer for peers outside the cluster.
    pub name: String,
    /// Kind of configuration.
    #[serde(rename = "type")]
    pub kind: PeerType,
    /// BGPPeer object the session comes from; absent for the mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Remote AS number.
    pub peer_as: u32,
    /// Local AS number used on the session.
    pub local_as: u32,
    /// Local address of the connection, or the configured source address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_address: Option<IpAddr>,
    /// BGP identifier of the remote, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<Ipv4Addr>,
    /// `Idle`, `Connect`, `Active`, `OpenSent`, `OpenConfirm` or `Established` (RFC 4271 section 8.2.2).
    pub state: String,
    /// When the session entered Established, or left it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// True when this side only waits for the connection.
    #[serde(default)]
    pub passive: bool,
    /// Address families: `ipv4`, `ipv6`.
    #[serde(default)]
    pub families: Vec<String>,
    /// Prefixes received, before filters.
    #[serde(default)]
    pub received: u64,
    /// Prefixes accepted.
    #[serde(default)]
    pub accepted: u64,
    /// Prefixes advertised.
    #[serde(default)]
    pub advertised: u64,
    /// Times the session left Established.
    #[serde(default)]
    pub flaps: u64,
    /// Last error in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Negotiated hold time in seconds, 0 when not established or off.
    #[serde(default)]
    pub hold_time: u16,
    /// Keepalive interval in seconds.
    #[serde(default)]
    pub keepalive_time: u16,
    /// Negotiated capabilities: `GR`, `4B`, `AP`, `RR`, `ENH`, ...
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// `helper`, `restarting` or absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<String>,
    /// A TCP-MD5 key is in use (RFC 2385); the key itself is never shown.
    #[serde(default)]
    pub md5: bool,
    /// Hop limit of GTSM (RFC 5082), when on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_security: Option<u8>,
}

impl Peer {
    /// True when the session is up.
    pub fn is_established(&self) -> bool {
        self.state == "Established"
    }
}

/// Routes of the BGP table, ordered by prefix, best path first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteList {
    /// Kubernetes node name.
    pub node: String,
    /// One entry per path.
    pub routes: Vec<Route>,
}

/// One path to one prefix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// Destination.
    pub prefix: String,
    /// Next hop; absent for routes this node originates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// Address of the peer it was learned from; absent for local routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
    /// Name and type of that peer, `edge-b mesh`, or `local`.
    #[serde(default)]
    pub from_name: String,
    /// AS path as text, empty for iBGP-local routes.
    #[serde(default)]
    pub as_path: String,
    /// LOCAL_PREF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Communities as text.
    #[serde(default)]
    pub communities: Vec<String>,
    /// Best path of its prefix.
    #[serde(default)]
    pub best: bool,
    /// Used together with the best path.
    #[serde(default)]
    pub multipath: bool,
    /// Kept over a restart of the peer (RFC 4724).
    #[serde(default)]
    pub stale: bool,
    /// Since when this path is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Kernel route made from it, `proto 12 metric 1024`, or why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fib: Option<String>,
}

/// Address management as this node sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ipam {
    /// Kubernetes node name.
    pub node: String,
    /// Totals.
    pub counts: IpamCounts,
    /// Blocks of this node, ordered by CIDR.
    pub blocks: Vec<Block>,
}

/// One block of this node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Block {
    /// CIDR.
    pub cidr: String,
    /// Pool it belongs to, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Affinity state: `confirmed`, `pending` or `pendingDeletion`.
    pub state: String,
    /// Size in addresses.
    pub size: u64,
    /// In use.
    pub used: u64,
    /// Reserved for quick hand-out.
    pub reserved: u64,
}

/// Pod interfaces wired on this node, ordered by namespace, name and interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointList {
    /// Kubernetes node name.
    pub node: String,
    /// The interfaces.
    pub endpoints: Vec<Endpoint>,
}

/// One pod interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub pod: String,
    /// Sandbox id of the runtime.
    pub container_id: String,
    /// Interface name inside the pod.
    pub interface: String,
    /// Interface name on the host.
    pub host_interface: String,
    /// Addresses without prefix length.
    pub addresses: Vec<IpAddr>,
}

/// Kernel drift: what others changed and what was done about it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Drift {
    /// Kubernetes node name.
    pub node: String,
    /// Totals since start.
    pub counts: DriftCounts,
    /// Repairs by kind of kernel object.
    pub repaired_by_kind: BTreeMap<String, u64>,
    /// Desired items the kernel refuses or another program keeps changing, in words.
    pub open: Vec<String>,
}

/// Open problems of this node, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProblemList {
    /// Kubernetes node name.
    pub node: String,
    /// The problems.
    pub problems: Vec<Problem>,
}

/// Something that keeps an object from taking effect on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// Kind of the object.
    pub kind: String,
    /// Namespace, empty for cluster-wide objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// CamelCase reason, the same word as in the Event: `BGPPeerRejected`, `PoolInvalid`, `DataplaneFeatureMissing`...
    pub reason: String,
    /// Field at fault, `spec.peerIP`, when one is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_from_a_newer_agent_with_unknown_and_missing_fields_still_parses() {
        let text = r#"{"peer":"10.0.0.2","port":179,"name":"b","type":"mesh","peerAs":64512,"localAs":64512,
            "state":"Established","somethingNew":{"a":1}}"#;
        let peer: Peer = serde_json::from_str(text).expect("parses");
        assert!(peer.is_established());
        assert_eq!(peer.kind.as_str(), "mesh");
        assert_eq!(peer.received, 0);
    }

    #[test]
    fn keys_are_camel_case_and_absent_values_are_left_out() {
        let status = Status {
            node: "a".into(),
            as_number: 64512,
            ..Status::default()
        };
        let text = serde_json::to_string(&status).expect("serialises");
        assert!(text.contains("\"asNumber\":64512"), "{text}");
        assert!(!text.contains("staleSince"), "{text}");
    }
}
