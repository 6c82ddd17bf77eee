//! BGPFilter: ordered rules that accept, reject or change routes of a session.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::open_enum;

/// Specification of a filter. A route no rule matches goes on to the next filter, then to the speaker's own policy.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "BGPFilter",
    plural = "bgpfilters",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct BGPFilterSpec {
    /// Rules for IPv4 routes sent to the peer.
    #[serde(rename = "exportV4", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub export_v4: Option<Vec<BGPFilterRuleV4>>,
    /// Rules for IPv6 routes sent to the peer.
    #[serde(rename = "exportV6", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub export_v6: Option<Vec<BGPFilterRuleV6>>,
    /// Rules for IPv4 routes received from the peer.
    #[serde(rename = "importV4", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub import_v4: Option<Vec<BGPFilterRuleV4>>,
    /// Rules for IPv6 routes received from the peer.
    #[serde(rename = "importV6", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub import_v6: Option<Vec<BGPFilterRuleV6>>,
}

/// Declares the rule type of one family; the two differ in the bounds of their schemas only.
macro_rules! rule {
    ($(#[$meta:meta])* $rule:ident, $lengths:ident, $cidr_length:literal, $bits:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $rule {
            /// What happens to a route that matches all fields of the rule: Accept or Reject.
            pub action: BGPFilterAction,
            /// The AS path begins with this sequence.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(length(max = 10), inner(range(min = 0, max = 4294967295u32)))]
            pub as_path_prefix: Option<Vec<u32>>,
            /// Prefix the route is compared with, by matchOperator.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(length(max = $cidr_length), extend("format" = "cidr"))]
            pub cidr: Option<String>,
            /// The route carries this community.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub communities: Option<CommunityMatch>,
            /// Outgoing interface of the route; `*` matches any characters.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(length(max = 15))]
            pub interface: Option<String>,
            /// How the route is compared with cidr: Equal, NotEqual, In (equal or inside) or NotIn.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub match_operator: Option<BGPFilterMatchOperator>,
            /// Changes made to an accepted route, in order.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(length(min = 1, max = 10))]
            pub operations: Option<Vec<BGPFilterOperation>>,
            /// The rule applies only on sessions of this type: eBGP or iBGP.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub peer_type: Option<BGPFilterPeerType>,
            /// Bounds of the length of the route's own prefix. Requires cidr.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub prefix_length: Option<$lengths>,
            /// The kernel metric of the route equals this.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(range(min = 1, max = 2147483646))]
            pub priority: Option<i32>,
            /// RemotePeers: the route was learned from a peer.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub source: Option<BGPFilterSource>,
        }

        /// Bounds of a prefix length, both inclusive.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub struct $lengths {
            /// Greatest length.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(range(min = 0, max = $bits))]
            pub max: Option<i32>,
            /// Least length.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(range(min = 0, max = $bits))]
            pub min: Option<i32>,
        }
    };
}

rule!(
    /// A rule for IPv4 routes. Fields that are present must all match; a rule without match fields matches every route.
    BGPFilterRuleV4, PrefixLengthV4, 18, 32
);
rule!(
    /// A rule for IPv6 routes. Fields that are present must all match; a rule without match fields matches every route.
    BGPFilterRuleV6, PrefixLengthV6, 43, 128
);

/// Communities a route must carry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommunityMatch {
    /// The community, `aa:nn` (RFC 1997) or `aa:nn:mm` (RFC 8092).
    #[serde(default)]
    #[schemars(
        length(min = 1, max = 1),
        inner(length(max = 32), regex(pattern = COMMUNITY_PATTERN)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub values: Vec<String>,
}

/// A change made to an accepted route; exactly one field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BGPFilterOperation {
    /// Adds a community.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_community: Option<AddCommunity>,
    /// Puts AS numbers in front of the AS path.
    #[serde(
        rename = "prependASPath",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub prepend_as_path: Option<PrependAsPath>,
    /// Sets the kernel metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_priority: Option<SetPriority>,
}

/// Adds a community.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddCommunity {
    /// The community, `aa:nn` (RFC 1997) or `aa:nn:mm` (RFC 8092).
    #[schemars(length(max = 32), regex(pattern = COMMUNITY_PATTERN))]
    pub value: String,
}

/// Puts AS numbers in front of the AS path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrependAsPath {
    /// The AS numbers, the first becomes the leftmost.
    #[schemars(length(min = 1, max = 10), inner(range(min = 0, max = 4294967295u32)))]
    pub prefix: Vec<u32>,
}

/// Sets the kernel metric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetPriority {
    /// The metric.
    #[schemars(range(min = 1, max = 2147483646))]
    pub value: i32,
}

/// Pattern of community values in filters: two parts of 16 bits or three of 32 bits, without leading zeros.
pub const COMMUNITY_PATTERN: &str = concat!(
    r"^((0|[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])",
    r":(0|[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5]))$",
    r"|^((0|[1-9]\d{0,8}|[1-3]\d{9}|4[0-1]\d{8}|42[0-8]\d{7}|429[0-3]\d{6}|4294[0-8]\d{5}|42949[0-5]\d{4}|429496[0-6]\d{3}|4294967[0-1]\d{2}|42949672[0-8]\d|429496729[0-5])",
    r"(:(0|[1-9]\d{0,8}|[1-3]\d{9}|4[0-1]\d{8}|42[0-8]\d{7}|429[0-3]\d{6}|4294[0-8]\d{5}|42949[0-5]\d{4}|429496[0-6]\d{3}|4294967[0-1]\d{2}|42949672[0-8]\d|429496729[0-5])){2})$",
);

open_enum! {
    /// Outcome of a filter rule.
    BGPFilterAction {
        /// The route is accepted.
        Accept = "Accept", is_accept;
        /// The route is rejected.
        Reject = "Reject", is_reject;
    }
}

impl Default for BGPFilterAction {
    fn default() -> Self {
        BGPFilterAction::Other(String::new())
    }
}

open_enum! {
    /// How a route is compared with a prefix.
    BGPFilterMatchOperator {
        /// The same prefix.
        Equal = "Equal", is_equal;
        /// Another prefix.
        NotEqual = "NotEqual", is_not_equal;
        /// The same prefix or inside it.
        In = "In", is_in;
        /// Neither the same prefix nor inside it.
        NotIn = "NotIn", is_not_in;
    }
}

open_enum! {
    /// Origin of a route.
    BGPFilterSource {
        /// Learned from a peer.
        RemotePeers = "RemotePeers", is_remote_peers;
    }
}

open_enum! {
    /// Type of a session.
    BGPFilterPeerType {
        /// Between different ASes.
        Ebgp = "eBGP", is_ebgp;
        /// Inside one AS.
        Ibgp = "iBGP", is_ibgp;
    }
}
