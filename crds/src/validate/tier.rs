//! Tier.

use kube::ResourceExt;

use super::{FieldError, Findings, Validate, name};
use crate::{BUILT_IN_TIERS, Tier, TierAction};

impl Validate for Tier {
    fn validate(&self) -> Vec<FieldError> {
        let mut findings = Findings::default();
        let name = self.name_any();
        if !name::is_label(&name) {
            findings.add(
                "metadata.name",
                &name,
                "must be 1-63 lower-case letters, digits and -",
            );
        }
        if let Some(TierAction::Other(text)) = &self.spec.default_action {
            findings.add("spec.defaultAction", text, "must be Deny or Pass");
        }
        if let Some(built_in) = BUILT_IN_TIERS.iter().find(|built_in| built_in.name == name) {
            if self.spec.order != Some(built_in.order) {
                let order = self
                    .spec
                    .order
                    .map(|order| order.to_string())
                    .unwrap_or_default();
                findings.add(
                    "spec.order",
                    order,
                    format!("{name} tier order must be {}", built_in.order),
                );
            }
            if self.spec.effective_action() != built_in.default_action {
                let reason = format!(
                    "The '{name}' tier must have default action '{}'",
                    built_in.default_action
                );
                findings.add("spec.defaultAction", self.spec.effective_action(), reason);
            }
        }
        findings.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TierSpec;

    #[test]
    fn built_in_tiers_keep_order_and_action() {
        let tier = |name: &str, order: Option<f64>, default_action: Option<TierAction>| {
            let tier = Tier::new(
                name,
                TierSpec {
                    order,
                    default_action,
                },
            );
            tier.validate()
                .into_iter()
                .map(|error| error.reason)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            tier("kube-baseline", Some(1e7), None),
            ["The 'kube-baseline' tier must have default action 'Pass'"]
        );
        assert!(tier("kube-baseline", Some(1e7), Some(TierAction::Pass)).is_empty());
        assert_eq!(
            tier("default", Some(999.0), Some(TierAction::Pass)),
            [
                "default tier order must be 1000000",
                "The 'default' tier must have default action 'Deny'"
            ]
        );
        assert!(tier("security", None, None).is_empty());
        assert_eq!(tier("a.b", None, None).len(), 1);
    }
}
