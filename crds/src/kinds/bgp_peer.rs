//! BGPPeer: BGP sessions of some nodes with routers, with other nodes or with local pods.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{BGPPassword, DURATION_PATTERN, open_enum};

/// Specification of BGP sessions.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "BGPPeer",
    plural = "bgppeers",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct BGPPeerSpec {
    /// AS number of the peer. Required with localWorkloadSelector, not allowed with peerSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub as_number: Option<u32>,
    /// Names of BGPFilters applied to the sessions, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub filters: Option<Vec<String>>,
    /// True: routes are sent to an eBGP peer with the next hop they came with. Deprecated, use nextHopMode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_original_next_hop: Option<bool>,
    /// Interval between KEEPALIVE messages, at most a third of the hold time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub keepalive_time: Option<String>,
    /// AS number this node presents to the peer instead of its own.
    #[serde(
        rename = "localASNumber",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub local_as_number: Option<u32>,
    /// Peers are the local pods matched by this selector. Excludes peerIP and peerSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub local_workload_selector: Option<String>,
    /// Graceful-restart time announced to the peer, 120s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub max_restart_time: Option<String>,
    /// Next hop of routes sent to the peer: Auto (ordinary BGP behaviour), Self or Keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop_mode: Option<NextHopMode>,
    /// The node that has the sessions. Without node and nodeSelector every node has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// The nodes that have the sessions, by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub node_selector: Option<String>,
    /// How often the own AS number may occur in the path of a received route.
    #[serde(
        rename = "numAllowedLocalASNumbers",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 2147483647))]
    pub num_allowed_local_as_numbers: Option<i32>,
    /// TCP MD5 key of the sessions (RFC 2385).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<BGPPassword>,
    /// Address of the peer, with a port when it is not 179: `192.0.2.1`, `192.0.2.1:1179`, `[2001:db8::1]:179`.
    #[serde(rename = "peerIP", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub peer_ip: Option<String>,
    /// Peers are the nodes matched by this selector, with their addresses and AS numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub peer_selector: Option<String>,
    /// Gateway through which peerIP is reached; a host route to peerIP is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub reachable_by: Option<String>,
    /// Auto: a session between two nodes is configured on both ends. Manual: only on the selected nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_peering: Option<ReversePeering>,
    /// UseNodeIP: the connection comes from the BGP address of the node. None: the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_address: Option<SourceAddress>,
    /// Distance of the peer in hops for GTSM (RFC 5082); absent or 0 switches it off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub ttl_security: Option<u8>,
}

open_enum! {
    /// Next hop of routes sent to a peer.
    NextHopMode {
        /// Ordinary BGP behaviour (RFC 4271 section 5.1.3).
        Auto = "Auto", is_auto;
        /// Always the own address.
        SelfAddress = "Self", is_self;
        /// The next hop the route came with.
        Keep = "Keep", is_keep;
    }
}

open_enum! {
    /// Whether the other node of a node-to-node session is configured too.
    ReversePeering {
        /// Both ends.
        Auto = "Auto", is_auto;
        /// Only the selected end.
        Manual = "Manual", is_manual;
    }
}

open_enum! {
    /// Source address of the connection to a peer.
    SourceAddress {
        /// BGP address of the node.
        UseNodeIp = "UseNodeIP", is_use_node_ip;
        /// The kernel's choice.
        None = "None", is_none;
    }
}
