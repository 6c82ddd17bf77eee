//! Staged policies: evaluated for reports, never enforced.

use k8s_openapi::api::networking::v1::{NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GlobalNetworkPolicySpec, NetworkPolicySpec, PolicyType};
use crate::values::open_enum;

/// Specification of a staged NetworkPolicy.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "StagedNetworkPolicy",
    plural = "stagednetworkpolicies",
    shortname = "scnp",
    shortname = "snp",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct StagedNetworkPolicySpec {
    /// What would be done with the policy: Set (also when absent), Delete, Learn or Ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged_action: Option<StagedAction>,
    /// The policy.
    #[serde(flatten)]
    pub policy: NetworkPolicySpec,
}

/// Specification of a staged GlobalNetworkPolicy.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "StagedGlobalNetworkPolicy",
    plural = "stagedglobalnetworkpolicies",
    shortname = "sgnp",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct StagedGlobalNetworkPolicySpec {
    /// What would be done with the policy: Set (also when absent), Delete, Learn or Ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged_action: Option<StagedAction>,
    /// The policy.
    #[serde(flatten)]
    pub policy: GlobalNetworkPolicySpec,
}

/// Specification of a staged Kubernetes NetworkPolicy.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "StagedKubernetesNetworkPolicy",
    plural = "stagedkubernetesnetworkpolicies",
    shortname = "sknp",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct StagedKubernetesNetworkPolicySpec {
    /// Rules for outgoing traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub egress: Option<Vec<NetworkPolicyEgressRule>>,
    /// Rules for incoming traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub ingress: Option<Vec<NetworkPolicyIngressRule>>,
    /// Pods the policy applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub pod_selector: Option<LabelSelector>,
    /// Directions the policy governs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 2), extend("x-kubernetes-list-type" = "set"))]
    pub policy_types: Option<Vec<PolicyType>>,
    /// What would be done with the policy: Set (also when absent), Delete, Learn or Ignore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged_action: Option<StagedAction>,
}

open_enum! {
    /// What would be done with a staged policy.
    StagedAction {
        /// Created or replaced.
        Set = "Set", is_set;
        /// Deleted.
        Delete = "Delete", is_delete;
        /// Learned from traffic.
        Learn = "Learn", is_learn;
        /// Nothing.
        Ignore = "Ignore", is_ignore;
    }
}
