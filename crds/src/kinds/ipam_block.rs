//! IPAMBlock: the state of every address of one block.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Allocation state of one block.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "IPAMBlock",
    plural = "ipamblocks",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAMBlockSpec {
    /// Owner of the block: `host:<node>` or `virtual:load-balancer`. Absent when nobody owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(host|virtual):[a-zA-Z0-9\.\-_]+$"))]
    pub affinity: Option<String>,
    /// When the owner claimed the block, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub affinity_claim_time: Option<String>,
    /// One entry per address of the block: an index into attributes, or null when the address is free.
    #[serde(default, deserialize_with = "crate::kinds::null_as_default")]
    #[schemars(extend("x-keep-nullable-items" = true))]
    pub allocations: Vec<Option<i64>>,
    /// Who holds the addresses.
    #[serde(default, deserialize_with = "crate::kinds::null_as_default")]
    pub attributes: Vec<AllocationAttribute>,
    /// The block in CIDR notation.
    #[schemars(extend("format" = "cidr"))]
    pub cidr: String,
    /// True while the block is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted: Option<bool>,
    /// Incremented by each write of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "int64"))]
    pub sequence_number: Option<i64>,
    /// For each allocated address, the sequenceNumber at the time of allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number_for_allocation: Option<BTreeMap<String, i64>>,
    /// Deprecated, written as false.
    #[serde(default)]
    pub strict_affinity: bool,
    /// Free addresses by ordinal, in the order in which they are used next.
    #[serde(default, deserialize_with = "crate::kinds::null_as_default")]
    pub unallocated: Vec<i64>,
    /// Fields this version does not know, kept when the block is written back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: BTreeMap<String, Value>,
}

/// Who holds one or more addresses of a block.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocationAttribute {
    /// Attributes of a second owner, while a virtual machine moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternate_owner_attrs: Option<BTreeMap<String, String>>,
    /// Handle the address is released by.
    #[serde(rename = "handle_id", default, skip_serializing_if = "Option::is_none")]
    pub handle_id: Option<String>,
    /// When the address was released; present while it is kept from being used again, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub released_at: Option<String>,
    /// Attributes of the owner: `node`, `pod`, `namespace`, `timestamp`, `type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary: Option<BTreeMap<String, String>>,
    /// Fields this version does not know, kept when the block is written back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: BTreeMap<String, Value>,
}
