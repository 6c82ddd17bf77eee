//! IPAMHandle: which blocks hold addresses of one handle.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Addresses held under one handle.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "IPAMHandle",
    plural = "ipamhandles",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAMHandleSpec {
    /// Number of addresses per block, by the CIDR of the block.
    #[serde(default, deserialize_with = "crate::kinds::null_as_default")]
    pub block: BTreeMap<String, i64>,
    /// True while the handle is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
    /// The handle as the owner wrote it; the name of the object is its lower-case form.
    #[serde(rename = "handleID")]
    pub handle_id: String,
    /// Fields this version does not know, kept when the handle is written back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: BTreeMap<String, Value>,
}
