//! The order in which tiers, and policies of one tier, are evaluated.

use std::cmp::Ordering;

/// Rank of a tier. Smaller is evaluated earlier.
#[derive(Debug, Clone, PartialEq)]
pub struct TierRank {
    /// Name of the tier.
    pub name: String,
    /// Order of the tier; absent for a tier that does not exist, which comes after all that do.
    pub order: Option<f64>,
}

/// Rank of a policy within its tier. Smaller is evaluated earlier.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRank {
    /// Order of the policy; absent comes after every number.
    pub order: Option<f64>,
    /// Kind of the policy.
    pub kind: String,
    /// Namespace, empty for a policy without one.
    pub namespace: String,
    /// Name of the policy.
    pub name: String,
}

impl TierRank {
    /// Order of evaluation: by order, then by name.
    pub fn compare(&self, other: &TierRank) -> Ordering {
        by_order(self.order, other.order).then_with(|| self.name.cmp(&other.name))
    }
}

impl PolicyRank {
    /// Order of evaluation: by order, then by the text `name/namespace/kind`, byte by byte.
    pub fn compare(&self, other: &PolicyRank) -> Ordering {
        by_order(self.order, other.order).then_with(|| self.text().cmp(&other.text()))
    }

    fn text(&self) -> String {
        format!("{}/{}/{}", self.name, self.namespace, self.kind)
    }
}

fn by_order(first: Option<f64>, second: Option<f64>) -> Ordering {
    match (first, second) {
        (Some(first), Some(second)) => first.total_cmp(&second),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(order: Option<f64>, kind: &str, namespace: &str, name: &str) -> PolicyRank {
        PolicyRank {
            order,
            kind: kind.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    #[test]
    fn equal_orders_are_decided_by_name_namespace_and_kind() {
        let mut policies = [
            policy(None, "NetworkPolicy", "a", "a"),
            policy(Some(10.0), "NetworkPolicy", "a", "p"),
            policy(Some(10.0), "GlobalNetworkPolicy", "", "p"),
            policy(Some(-0.5), "NetworkPolicy", "z", "z"),
        ];
        policies.sort_by(PolicyRank::compare);
        let texts: Vec<_> = policies.iter().map(PolicyRank::text).collect();
        assert_eq!(
            texts,
            [
                "z/z/NetworkPolicy",
                "p//GlobalNetworkPolicy",
                "p/a/NetworkPolicy",
                "a/a/NetworkPolicy"
            ]
        );
    }

    #[test]
    fn an_unknown_tier_comes_last() {
        let tier = |name: &str, order| TierRank {
            name: name.into(),
            order,
        };
        let mut tiers = [
            tier("a", None),
            tier("kube-baseline", Some(1e7)),
            tier("z", Some(1.0)),
            tier("b", Some(1.0)),
        ];
        tiers.sort_by(TierRank::compare);
        let names: Vec<_> = tiers.iter().map(|tier| tier.name.as_str()).collect();
        assert_eq!(names, ["b", "z", "kube-baseline", "a"]);
    }
}
