//! Rules of policies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EntityRule;
use crate::values::{Protocol, open_enum};

/// A rule. All fields that are present must match; a rule without match fields matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// What happens to matching traffic: Allow, Deny, Log (and go on) or Pass (on to the next tier).
    #[serde(default)]
    pub action: RuleAction,
    /// Where the traffic goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<EntityRule>,
    /// Matches HTTP requests. Not supported: such a rule never matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpMatch>,
    /// Matches ICMP messages. Requires protocol ICMP or ICMPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<IcmpFields>,
    /// Restricts the rule to one IP version, 4 or 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = [4, 6]))]
    pub ip_version: Option<i32>,
    /// Notes carried to logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RuleMetadata>,
    /// Matches ICMP messages other than this.
    #[serde(rename = "notICMP", default, skip_serializing_if = "Option::is_none")]
    pub not_icmp: Option<IcmpFields>,
    /// Matches protocols other than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_protocol: Option<Protocol>,
    /// IP protocol: a number 1-255 or TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Where the traffic comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<EntityRule>,
}

/// Type and code of ICMP messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IcmpFields {
    /// Code. Requires type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub code: Option<i32>,
    /// Type; any when absent.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 254))]
    pub kind: Option<i32>,
}

/// Requests of HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpMatch {
    /// Methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), inner(length(max = 64)))]
    pub methods: Option<Vec<String>>,
    /// Paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub paths: Option<Vec<HttpPath>>,
}

/// A path of HTTP requests; exactly one field is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpPath {
    /// The whole path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub exact: Option<String>,
    /// The beginning of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub prefix: Option<String>,
}

/// Notes on a rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleMetadata {
    /// Keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

open_enum! {
    /// What happens to matching traffic.
    RuleAction {
        /// Accepted for this direction.
        Allow = "Allow", is_allow;
        /// Dropped.
        Deny = "Deny", is_deny;
        /// Logged, the next rule decides.
        Log = "Log", is_log;
        /// The next tier decides.
        Pass = "Pass", is_pass;
    }
}

impl Default for RuleAction {
    /// Not an action: a rule without one is invalid.
    fn default() -> Self {
        RuleAction::Other(String::new())
    }
}

open_enum! {
    /// Direction a policy governs.
    PolicyType {
        /// Traffic to the endpoint.
        Ingress = "Ingress", is_ingress;
        /// Traffic from the endpoint.
        Egress = "Egress", is_egress;
    }
}

impl PolicyType {
    /// Directions a policy governs: the written ones; else both when it has rules for both, Egress when it has egress
    /// rules only, Ingress otherwise. An empty list of rules counts like an absent one.
    pub(super) fn effective(
        written: Option<&[PolicyType]>,
        ingress: Option<&[Rule]>,
        egress: Option<&[Rule]>,
    ) -> Vec<PolicyType> {
        let any = |rules: Option<&[Rule]>| rules.is_some_and(|rules| !rules.is_empty());
        match written {
            Some(types) if !types.is_empty() => types.to_vec(),
            _ => match (any(ingress), any(egress)) {
                (true, true) => vec![PolicyType::Ingress, PolicyType::Egress],
                (false, true) => vec![PolicyType::Egress],
                _ => vec![PolicyType::Ingress],
            },
        }
    }
}

open_enum! {
    /// Advice on how a policy is used.
    PerformanceHint {
        /// Programmed on every node.
        AssumeNeededOnEveryNode = "AssumeNeededOnEveryNode", is_assume_needed_on_every_node;
    }
}
