//! KubeControllersConfiguration: settings of the cluster-wide controller. Only the object `default` has an effect.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{DURATION_PATTERN, Switch, open_enum};

/// Settings of the controller.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "KubeControllersConfiguration",
    plural = "kubecontrollersconfigurations",
    shortname = "kcc",
    shortname = "kccs",
    shortname = "kcconfig",
    status = "KubeControllersConfigurationStatus",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct KubeControllersConfigurationSpec {
    /// Which controllers run. One that is absent does not.
    #[serde(default)]
    pub controllers: Controllers,
    /// Port of the debug endpoints; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub debug_profile_port: Option<i32>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub etcd_v3_compaction_period: Option<String>,
    /// Disabled: health is not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_checks: Option<Switch>,
    /// Least severe messages that are printed, Info when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic"]))]
    pub log_severity_screen: Option<String>,
    /// Port of the metrics, 9094 when absent, 0 switches them off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub prometheus_metrics_port: Option<i32>,
}

/// What is in effect.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeControllersConfigurationStatus {
    /// Environment variables that override settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_vars: Option<BTreeMap<String, String>>,
    /// The settings in effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_config: Option<KubeControllersConfigurationSpec>,
}

/// Settings per controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Controllers {
    /// Addresses of Services of type LoadBalancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerController>,
    /// Moves of stored objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationController>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<PeriodicController>,
    /// Nodes: leaked addresses, host endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeController>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PeriodicController>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<PeriodicController>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_endpoint: Option<PeriodicController>,
}

/// A controller without settings of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeriodicController {
    /// How often everything is looked at again, 5m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub reconciler_period: Option<String>,
}

/// Settings of the node controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeController {
    /// Host endpoints made for nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_endpoint: Option<AutoHostEndpoint>,
    /// Age at which an address that nobody uses is freed, 15m when absent, 0 never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub leak_grace_period: Option<String>,
    /// How often everything is looked at again, 5m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub reconciler_period: Option<String>,
    /// Enabled: labels of Nodes are copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_labels: Option<Switch>,
}

/// Host endpoints made for nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoHostEndpoint {
    /// Enabled: host endpoints are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_create: Option<Switch>,
    /// Enabled (also when absent): one for all interfaces of each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create_default_host_endpoint: Option<Switch>,
    /// Further host endpoints per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub templates: Option<Vec<HostEndpointTemplate>>,
}

/// Form of a host endpoint made per node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostEndpointTemplate {
    /// Annotations put on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Part of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub generate_name: Option<String>,
    /// Only addresses inside these ranges become expectedIPs.
    #[serde(
        rename = "interfaceCIDRs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 256), inner(length(max = 48)), extend("x-kubernetes-list-type" = "set"))]
    pub interface_cidrs: Option<Vec<String>>,
    /// Regular expression of interface names; one host endpoint per matching interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub interface_pattern: Option<String>,
    /// Labels put on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Nodes it is made for, by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub node_selector: Option<String>,
}

/// Settings of load-balancer addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerController {
    /// Which Services get an address.
    #[serde(rename = "assignIPs", default, skip_serializing_if = "Option::is_none")]
    pub assign_ips: Option<AssignIps>,
}

/// Settings of moves of stored objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigrationController {
    /// Enabled: stored names of policies are rewritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_name_migrator: Option<Switch>,
}

open_enum! {
    /// Which Services of type LoadBalancer get an address.
    AssignIps {
        /// All.
        AllServices = "AllServices", is_all_services;
        /// Those that ask for one.
        RequestedServicesOnly = "RequestedServicesOnly", is_requested_services_only;
    }
}
