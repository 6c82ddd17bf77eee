//! GlobalNetworkPolicy: policy for pods of any namespace and for host endpoints.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PerformanceHint, PolicyType, Rule};

/// Specification of a policy for the whole cluster.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "GlobalNetworkPolicy",
    plural = "globalnetworkpolicies",
    shortname = "gnp",
    shortname = "cgnp",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct GlobalNetworkPolicySpec {
    /// True: the policy also governs traffic that is routed through a host endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_on_forward: Option<bool>,
    /// True: the policy acts before connection tracking. Host endpoints only; requires
    /// applyOnForward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub do_not_track: Option<bool>,
    /// Rules for outgoing traffic, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub egress: Option<Vec<Rule>>,
    /// Rules for incoming traffic, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub ingress: Option<Vec<Rule>>,
    /// Restricts the policy to pods of namespaces with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub namespace_selector: Option<String>,
    /// Position among the policies of the tier; lower comes first, absent comes last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// AssumeNeededOnEveryNode: the policy is programmed on every node even if it selects nothing
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "set"))]
    pub performance_hints: Option<Vec<PerformanceHint>>,
    /// True: the policy acts before destination NAT. Host endpoints only; requires applyOnForward;
    /// no egress rules.
    #[serde(rename = "preDNAT", default, skip_serializing_if = "Option::is_none")]
    pub pre_dnat: Option<bool>,
    /// Endpoints the policy applies to, by label; all endpoints when empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// Restricts the policy to pods whose ServiceAccount has these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub service_account_selector: Option<String>,
    /// Tier of the policy, default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub tier: Option<String>,
    /// Directions the policy governs. When absent: Ingress, or Egress when there are egress rules
    /// only, or both when there are rules for both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub types: Option<Vec<PolicyType>>,
}

impl GlobalNetworkPolicySpec {
    /// Directions in force: the written ones, else those inferred from the rules.
    pub fn effective_types(&self) -> Vec<PolicyType> {
        PolicyType::effective(
            self.types.as_deref(),
            self.ingress.as_deref(),
            self.egress.as_deref(),
        )
    }
}
