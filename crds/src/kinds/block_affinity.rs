//! BlockAffinity: the claim of a node on a block.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::values::open_enum;

/// Claim of a node on a block.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "BlockAffinity",
    plural = "blockaffinities",
    shortname = "affinity",
    shortname = "affinities",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct BlockAffinitySpec {
    /// The block in CIDR notation.
    #[schemars(extend("format" = "cidr"))]
    pub cidr: String,
    /// True while the claim is being deleted.
    #[serde(default)]
    pub deleted: bool,
    /// Name of the node, or `load-balancer` for type virtual.
    pub node: String,
    /// pending while the block is being written, confirmed, or pendingDeletion.
    #[serde(default)]
    pub state: AffinityState,
    /// host (also when absent) or virtual.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Fields this version does not know, kept when the claim is written back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: BTreeMap<String, Value>,
}

open_enum! {
    /// Progress of a claim.
    #[derive(Default)]
    AffinityState {
        /// The block is being written.
        Pending = "pending", is_pending;
        /// The block belongs to the node.
        Confirmed = "confirmed", is_confirmed;
        /// The claim is being given up.
        PendingDeletion = "pendingDeletion", is_pending_deletion;
        /// Not stated.
        #[default]
        Unset = "", is_unset;
    }
}
