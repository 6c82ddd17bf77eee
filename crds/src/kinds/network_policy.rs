//! NetworkPolicy: policy for the pods of one namespace.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PerformanceHint, PolicyType, Rule};

/// Specification of a policy for the pods of its namespace.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "NetworkPolicy",
    plural = "networkpolicies",
    shortname = "cnp",
    shortname = "caliconetworkpolicy",
    shortname = "caliconetworkpolicies",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicySpec {
    /// Rules for outgoing traffic, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub egress: Option<Vec<Rule>>,
    /// Rules for incoming traffic, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub ingress: Option<Vec<Rule>>,
    /// Position among the policies of the tier; lower comes first, absent comes last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// AssumeNeededOnEveryNode: the policy is programmed on every node even if it selects nothing
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "set"))]
    pub performance_hints: Option<Vec<PerformanceHint>>,
    /// Pods the policy applies to, by label; all pods of the namespace when empty.
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

impl NetworkPolicySpec {
    /// Directions in force: the written ones, else those inferred from the rules.
    pub fn effective_types(&self) -> Vec<PolicyType> {
        PolicyType::effective(
            self.types.as_deref(),
            self.ingress.as_deref(),
            self.egress.as_deref(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_types_are_inferred_from_the_number_of_rules() {
        let policy = |ingress: usize, egress: usize| {
            let rules = |count| Some(vec![Rule::default(); count]);
            NetworkPolicySpec {
                ingress: rules(ingress),
                egress: rules(egress),
                ..NetworkPolicySpec::default()
            }
        };
        let both = [PolicyType::Ingress, PolicyType::Egress];
        assert_eq!(
            NetworkPolicySpec::default().effective_types(),
            [PolicyType::Ingress]
        );
        assert_eq!(policy(0, 0).effective_types(), [PolicyType::Ingress]);
        assert_eq!(policy(1, 0).effective_types(), [PolicyType::Ingress]);
        assert_eq!(policy(0, 1).effective_types(), [PolicyType::Egress]);
        assert_eq!(policy(1, 1).effective_types(), both);
    }
}
