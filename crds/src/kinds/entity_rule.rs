//! One side of the traffic a rule matches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Port;

/// One side of the traffic. All fields that are present must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntityRule {
    /// Endpoints and network sets of namespaces with these labels. `global()` means those without a
    /// namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub namespace_selector: Option<String>,
    /// Addresses in CIDR notation; the address is in one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 48)), extend("x-kubernetes-list-type" = "set"))]
    pub nets: Option<Vec<String>>,
    /// Addresses in CIDR notation; the address is in none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 48)), extend("x-kubernetes-list-type" = "set"))]
    pub not_nets: Option<Vec<String>>,
    /// Ports: numbers, ranges min:max, names; the port is none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50))]
    pub not_ports: Option<Vec<Port>>,
    /// Endpoints and network sets that do not have these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub not_selector: Option<String>,
    /// Ports: numbers, ranges min:max, names; the port is one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50))]
    pub ports: Option<Vec<Port>>,
    /// Endpoints and network sets with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
    /// Pods of these ServiceAccounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_accounts: Option<ServiceAccountMatch>,
    /// Endpoints of a Service. Excludes all other fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceMatch>,
}

/// ServiceAccounts of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountMatch {
    /// Names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub names: Option<Vec<String>>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub selector: Option<String>,
}

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMatch {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Its namespace; that of the policy when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub namespace: Option<String>,
}
