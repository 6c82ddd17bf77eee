//! Tier: a group of policies evaluated together.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{Condition, open_enum};

/// Order of a tier that has none.
pub const DEFAULT_TIER_ORDER: f64 = 1_000_000.0;
/// Finalizer that keeps a tier until its last policy is gone.
pub const TIER_FINALIZER: &str = "projectcalico.org/tier-controller";

/// Specification of a tier.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "Tier",
    plural = "tiers",
    status = "TierStatus",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct TierSpec {
    /// What happens to traffic that policies of the tier apply to and none decided: Deny or Pass
    /// (on to the next tier).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<TierAction>,
    /// Position among the tiers; lower comes first, 1000000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
}

/// Observed state of a tier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TierStatus {
    /// Conditions of the tier; type Ready says whether it is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

open_enum! {
    /// What happens at the end of a tier.
    TierAction {
        /// The traffic is dropped.
        Deny = "Deny", is_deny;
        /// The next tier decides.
        Pass = "Pass", is_pass;
    }
}

/// A tier every cluster has: its name, order and action. It cannot be deleted.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltInTier {
    /// Name.
    pub name: &'static str,
    /// Order.
    pub order: f64,
    /// Action at its end.
    pub default_action: TierAction,
}

/// The tiers every cluster has.
pub const BUILT_IN_TIERS: [BuiltInTier; 3] = [
    BuiltInTier {
        name: "kube-admin",
        order: 1000.0,
        default_action: TierAction::Pass,
    },
    BuiltInTier {
        name: "default",
        order: DEFAULT_TIER_ORDER,
        default_action: TierAction::Deny,
    },
    BuiltInTier {
        name: "kube-baseline",
        order: 10_000_000.0,
        default_action: TierAction::Pass,
    },
];

impl TierSpec {
    /// Order in force.
    pub fn effective_order(&self) -> f64 {
        self.order.unwrap_or(DEFAULT_TIER_ORDER)
    }

    /// Action in force: everything but Pass denies.
    pub fn effective_action(&self) -> TierAction {
        match &self.default_action {
            Some(TierAction::Pass) => TierAction::Pass,
            _ => TierAction::Deny,
        }
    }
}
