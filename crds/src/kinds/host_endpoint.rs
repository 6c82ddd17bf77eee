//! HostEndpoint: interfaces of a node that policy governs.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::Protocol;

/// Specification of a host endpoint.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "HostEndpoint",
    plural = "hostendpoints",
    shortname = "hep",
    shortname = "heps",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct HostEndpointSpec {
    /// Addresses of the interface: they find it when interfaceName is absent, and they are the
    /// addresses selectors of rules see.
    #[serde(
        rename = "expectedIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 256), inner(length(max = 64)), extend("x-kubernetes-list-type" = "set"))]
    pub expected_ips: Option<Vec<String>>,
    /// Name of the interface, or * for all interfaces of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub interface_name: Option<String>,
    /// Name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub node: Option<String>,
    /// Names for ports, usable in rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub ports: Option<Vec<EndpointPort>>,
    /// Profiles whose rules decide after all tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 253)), extend("x-kubernetes-list-type" = "set"))]
    pub profiles: Option<Vec<String>>,
}

/// A named port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndpointPort {
    /// The name.
    #[schemars(length(max = 128))]
    pub name: String,
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Protocol of the port.
    pub protocol: Protocol,
}
