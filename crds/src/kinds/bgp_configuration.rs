//! BGPConfiguration: settings of the BGP speaker of all nodes (`default`) or of one node (`node.<name>`).

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{BGPPassword, DURATION_PATTERN, Switch, open_enum};

/// Specification of BGP settings.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "BGPConfiguration",
    plural = "bgpconfigurations",
    shortname = "bgpconfig",
    shortname = "bgpconfigs",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct BGPConfigurationSpec {
    /// AS number of nodes that have none of their own, 64512 when absent. Only in `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295u32))]
    pub as_number: Option<u32>,
    /// None: the speaker listens on all addresses. NodeIP: only on the BGP addresses of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_mode: Option<BindMode>,
    /// Names for community values, to be used in prefixAdvertisements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub communities: Option<Vec<Community>>,
    /// Interfaces whose addresses are not learned as routes; `*` matches any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "set"))]
    pub ignored_interfaces: Option<Vec<String>>,
    /// Kernel metric of ordinary IPv4 routes, 1024 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483646))]
    pub ipv4_normal_route_priority: Option<i32>,
    /// Kernel metric of ordinary IPv6 routes, 1024 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483646))]
    pub ipv6_normal_route_priority: Option<i32>,
    /// Port the speaker listens on, 179 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub listen_port: Option<i32>,
    /// IPv4 address local pods use to reach the speaker of their node. Only in `default`.
    #[serde(
        rename = "localWorkloadPeeringIPV4",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64))]
    pub local_workload_peering_ipv4: Option<String>,
    /// IPv6 address local pods use to reach the speaker of their node. Only in `default`.
    #[serde(
        rename = "localWorkloadPeeringIPV6",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64))]
    pub local_workload_peering_ipv6: Option<String>,
    /// Least severe log messages that are printed, in any case; Info when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Trace|Debug|Info|Warning|Error|Fatal)?$"))]
    pub log_severity_screen: Option<String>,
    /// Graceful-restart time announced on mesh sessions, 120s when absent. Only in `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub node_mesh_max_restart_time: Option<String>,
    /// TCP MD5 key of the mesh sessions (RFC 2385). Only in `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_mesh_password: Option<BGPPassword>,
    /// False: nodes have no sessions with each other but those of BGPPeers. Only in `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_to_node_mesh_enabled: Option<bool>,
    /// Prefixes whose routes are sent with communities. The list of a node replaces the one of `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 500))]
    pub prefix_advertisements: Option<Vec<PrefixAdvertisement>>,
    /// Which routes to pools on other nodes the BGP speaker writes to the kernel, EnabledNoEncapOnly when absent. Only
    /// in `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_cluster_routes: Option<ProgramClusterRoutes>,
    /// Ranges of Service cluster addresses that are advertised. Only in `default`.
    #[serde(
        rename = "serviceClusterIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 500))]
    pub service_cluster_ips: Option<Vec<ServiceRange>>,
    /// Ranges of Service external addresses that are advertised. Only in `default`.
    #[serde(
        rename = "serviceExternalIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 500))]
    pub service_external_ips: Option<Vec<ServiceRange>>,
    /// Disabled: load-balancer addresses are advertised one by one, not as the ranges of serviceLoadBalancerIPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_load_balancer_aggregation: Option<Switch>,
    /// Ranges of Service load-balancer addresses that are advertised. Only in `default`.
    #[serde(
        rename = "serviceLoadBalancerIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 500))]
    pub service_load_balancer_ips: Option<Vec<ServiceRange>>,
}

/// A range of Service addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRange {
    /// The range in CIDR notation.
    #[serde(default)]
    #[schemars(length(max = 48), extend("format" = "cidr"))]
    pub cidr: String,
}

/// A name for a community value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Community {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// The value: `aa:nn` (RFC 1997) or `aa:nn:mm` (RFC 8092).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 40),
        regex(pattern = r"^(\d+):(\d+)$|^(\d+):(\d+):(\d+)$")
    )]
    pub value: Option<String>,
}

/// Communities for the routes of one prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrefixAdvertisement {
    /// Routes inside this CIDR are tagged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 48), extend("format" = "cidr"))]
    pub cidr: Option<String>,
    /// Names out of communities of the same object, or values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50))]
    pub communities: Option<Vec<String>>,
}

open_enum! {
    /// Addresses the speaker listens on.
    BindMode {
        /// All addresses.
        None = "None", is_none;
        /// The BGP addresses of the node.
        NodeIp = "NodeIP", is_node_ip;
    }
}

open_enum! {
    /// Which routes to pools on other nodes one part writes to the kernel.
    ProgramClusterRoutes {
        /// All of them.
        Enabled = "Enabled", is_enabled;
        /// None.
        Disabled = "Disabled", is_disabled;
        /// Those of IPIP pools.
        EnabledIpipOnly = "EnabledIPIPOnly", is_enabled_ipip_only;
        /// Those of pools without encapsulation.
        EnabledNoEncapOnly = "EnabledNoEncapOnly", is_enabled_no_encap_only;
    }
}
