//! IPReservation: addresses automatic assignment never chooses.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reserved addresses.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "IPReservation",
    plural = "ipreservations",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPReservationSpec {
    /// Ranges in CIDR notation that are never assigned automatically. Existing assignments stay, and an address may
    /// still be asked for by name.
    #[serde(
        rename = "reservedCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(
        length(max = 500),
        inner(length(max = 48)),
        extend("x-kubernetes-list-type" = "set")
    )]
    pub reserved_cidrs: Option<Vec<String>>,
}
