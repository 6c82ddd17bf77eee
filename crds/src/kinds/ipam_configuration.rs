//! IPAMConfiguration: cluster-wide settings of address assignment. Only the object `default` has an effect.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Switch;

/// Settings of address assignment.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "IPAMConfiguration",
    plural = "ipamconfigurations",
    shortname = "ipamconfig",
    shortname = "ipamconfigs",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct IPAMConfigurationSpec {
    /// True: nodes may claim new blocks.
    #[serde(default = "yes")]
    pub auto_allocate_blocks: bool,
    /// For this many seconds a released address is not assigned again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1200))]
    pub ip_cooldown_seconds: Option<i32>,
    /// Enabled (also when absent): a KubeVirt virtual machine keeps its address when its pod changes.
    #[serde(
        rename = "kubeVirtVMAddressPersistence",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub kube_virt_vm_address_persistence: Option<Switch>,
    /// Greatest number of blocks a node may own; 0 means 20 for automatic assignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000))]
    pub max_blocks_per_host: Option<i32>,
    /// True: a node never takes addresses from blocks of other nodes.
    #[serde(default)]
    pub strict_affinity: bool,
}

fn yes() -> bool {
    true
}

impl Default for IPAMConfigurationSpec {
    /// The settings in force when the object is absent.
    fn default() -> Self {
        IPAMConfigurationSpec {
            auto_allocate_blocks: true,
            ip_cooldown_seconds: None,
            kube_virt_vm_address_persistence: None,
            max_blocks_per_host: None,
            strict_affinity: false,
        }
    }
}
