//! NodeReport: what one node says about itself.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A report has no specification; its status is written by the agent of the node.
#[derive(
    CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "margay.io",
    version = "v1",
    kind = "NodeReport",
    plural = "nodereports",
    shortname = "nrep",
    status = "NodeReportStatus",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct NodeReportSpec {}

/// State of a node as its agent sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReportStatus {
    /// BGP addresses of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<ReportAddresses>,
    /// Level of the Calico API the agent follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_level: Option<String>,
    /// AS number in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub as_number: Option<u32>,
    /// Kernel drift since the agent started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<ReportDrift>,
    /// Addresses and blocks of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipam: Option<ReportIpam>,
    /// When the report was made, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub observed_at: Option<String>,
    /// What keeps objects from taking effect on this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub problems: Vec<ReportProblem>,
    /// True when the agent does its work.
    pub ready: bool,
    /// BGP identifier.
    #[serde(rename = "routerID", skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// BGP sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<ReportSessions>,
    /// True when the agent works from its last snapshot because the API does not answer.
    pub stale: bool,
    /// True when lists of the report were cut.
    pub truncated: bool,
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Addresses with prefix length.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportAddresses {
    /// IPv4 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v4: Option<String>,
    /// IPv6 address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v6: Option<String>,
}

/// BGP sessions in numbers, and the ones worth a look.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportSessions {
    /// Sessions with peers outside the cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub external: Vec<ReportSession>,
    /// Sessions that are not up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub not_established: Vec<ReportSession>,
    /// Configured sessions.
    pub total: i64,
    /// Sessions in state Established.
    pub up: i64,
}

/// One BGP session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportSession {
    /// Last error in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Name of the node or of the BGPPeer.
    pub name: String,
    /// Address of the peer.
    pub peer: String,
    /// Port of the peer.
    pub port: i32,
    /// When the state was entered, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// State of the session (RFC 4271 section 8.2.2).
    pub state: String,
    /// mesh, global, node, reverse or workload.
    #[serde(rename = "type")]
    pub kind: String,
}

/// Blocks and addresses of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportIpam {
    /// Blocks owned.
    pub blocks: i64,
    /// Addresses taken from blocks of other nodes.
    pub borrowed: i64,
    /// Addresses kept ready.
    pub reserved: i64,
    /// Addresses in use.
    pub used: i64,
}

/// Kernel drift since the agent started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportDrift {
    /// Objects another program keeps changing.
    pub contended: i64,
    /// Changes of other programs that were undone.
    pub repaired: i64,
    /// When desired and actual state were last compared and equal, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub verified_at: Option<String>,
}

/// Something that keeps an object from taking effect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportProblem {
    /// Field at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// What is wrong and what to do.
    pub message: String,
    /// Name of the object.
    pub name: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// CamelCase reason.
    pub reason: String,
    /// Since when, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Type of the problem.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub problem_type: Option<String>,
}
