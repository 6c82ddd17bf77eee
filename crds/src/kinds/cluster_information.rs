//! ClusterInformation: facts about the cluster, written by the agents. Only the object `default` is used.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Facts about the cluster.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "ClusterInformation",
    plural = "clusterinformations",
    shortname = "clusterinfo",
    shortname = "clusterinfos",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInformationSpec {
    /// Level of the Calico API the cluster follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calico_version: Option<String>,
    /// Identity of the cluster, 32 hexadecimal digits, created once.
    #[serde(
        rename = "clusterGUID",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_guid: Option<String>,
    /// Comma-separated list of what the cluster is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_type: Option<String>,
    /// False: agents keep what they have and apply no changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datastore_ready: Option<bool>,
    /// Edition of the software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}
