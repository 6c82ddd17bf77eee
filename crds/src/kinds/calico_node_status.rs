//! CalicoNodeStatus: a request for a report of one node, answered in its status.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::open_enum;

/// What is asked for.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "CalicoNodeStatus",
    plural = "caliconodestatuses",
    status = "CalicoNodeStatusStatus",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct CalicoNodeStatusSpec {
    /// Parts of the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "set"))]
    pub classes: Option<Vec<NodeStatusClass>>,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// How often the report is made again; 0 means once. Without it the request is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub update_period_seconds: Option<i32>,
}

/// The report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CalicoNodeStatusStatus {
    /// State of the BGP speaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<NodeStatusAgent>,
    /// BGP sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bgp: Option<NodeStatusBgp>,
    /// When the report was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time", "nullable" = true))]
    pub last_updated: Option<String>,
    /// Routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<NodeStatusRoutes>,
}

/// State of the BGP speaker, per IP version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusAgent {
    /// IPv4.
    #[serde(rename = "birdV4", default, skip_serializing_if = "Option::is_none")]
    pub bird_v4: Option<SpeakerStatus>,
    /// IPv6.
    #[serde(rename = "birdV6", default, skip_serializing_if = "Option::is_none")]
    pub bird_v6: Option<SpeakerStatus>,
}

/// State of the BGP speaker for one IP version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpeakerStatus {
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_boot_time: Option<String>,
    /// When its configuration last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reconfiguration_time: Option<String>,
    /// BGP identifier.
    #[serde(rename = "routerID", default, skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// Ready or NotReady.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Ready", "NotReady"]))]
    pub state: Option<String>,
    /// Version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// BGP sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusBgp {
    /// IPv4 sessions that are up.
    #[serde(rename = "numberEstablishedV4", default)]
    pub number_established_v4: i32,
    /// IPv6 sessions that are up.
    #[serde(rename = "numberEstablishedV6", default)]
    pub number_established_v6: i32,
    /// IPv4 sessions that are not up.
    #[serde(rename = "numberNotEstablishedV4", default)]
    pub number_not_established_v4: i32,
    /// IPv6 sessions that are not up.
    #[serde(rename = "numberNotEstablishedV6", default)]
    pub number_not_established_v6: i32,
    /// IPv4 peers.
    #[serde(rename = "peersV4", default, skip_serializing_if = "Option::is_none")]
    pub peers_v4: Option<Vec<NodeStatusPeer>>,
    /// IPv6 peers.
    #[serde(rename = "peersV6", default, skip_serializing_if = "Option::is_none")]
    pub peers_v6: Option<Vec<NodeStatusPeer>>,
}

/// One BGP session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusPeer {
    /// Address of the peer.
    #[serde(rename = "peerIP", default, skip_serializing_if = "Option::is_none")]
    pub peer_ip: Option<String>,
    /// Since when it is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// State of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Idle", "Connect", "Active", "OpenSent", "OpenConfirm", "Established", "Close"]))]
    pub state: Option<String>,
    /// Where its configuration comes from.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["NodeMesh", "NodePeer", "GlobalPeer"]))]
    pub kind: Option<String>,
}

/// Routes of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusRoutes {
    /// IPv4 routes.
    #[serde(rename = "routesV4", default, skip_serializing_if = "Option::is_none")]
    pub routes_v4: Option<Vec<NodeStatusRoute>>,
    /// IPv6 routes.
    #[serde(rename = "routesV6", default, skip_serializing_if = "Option::is_none")]
    pub routes_v6: Option<Vec<NodeStatusRoute>>,
}

/// One route.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatusRoute {
    /// Destination in CIDR notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Next hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Outgoing interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Where it was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned_from: Option<RouteOrigin>,
    /// FIB: in the kernel. RIB: known to the speaker only.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["FIB", "RIB"]))]
    pub kind: Option<String>,
}

/// Where a route was learned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteOrigin {
    /// Address of the peer it was learned from.
    #[serde(rename = "peerIP", default, skip_serializing_if = "Option::is_none")]
    pub peer_ip: Option<String>,
    /// Kind of source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["Kernel", "Static", "Direct", "NodeMesh", "BGPPeer"]))]
    pub source_type: Option<String>,
}

open_enum! {
    /// A part of the report.
    NodeStatusClass {
        /// The BGP speaker.
        Agent = "Agent", is_agent;
        /// BGP sessions.
        Bgp = "BGP", is_bgp;
        /// Routes.
        Routes = "Routes", is_routes;
    }
}
