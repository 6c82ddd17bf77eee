//! NetworkSet and GlobalNetworkSet: addresses that rules select by the labels of the set.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses usable by policies of the namespace.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "NetworkSet",
    plural = "networksets",
    shortname = "netsets",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct NetworkSetSpec {
    /// The addresses, in CIDR notation or bare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100000), inner(length(max = 48)), extend("x-kubernetes-list-type" = "set"))]
    pub nets: Option<Vec<String>>,
}

/// Addresses usable by policies of the cluster.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "GlobalNetworkSet",
    plural = "globalnetworksets",
    shortname = "gns",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct GlobalNetworkSetSpec {
    /// The addresses, in CIDR notation or bare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100000), inner(length(max = 48)), extend("x-kubernetes-list-type" = "set"))]
    pub nets: Option<Vec<String>>,
}
