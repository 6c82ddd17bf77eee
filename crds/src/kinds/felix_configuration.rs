//! FelixConfiguration: settings of the node agent, for all nodes (`default`), for one (`node.<name>`), or for the nodes
//! a selector matches.
//!
//! Settings of parts that do not exist here (eBPF, iptables, OpenStack, Windows, ...) are declared by the manifest and
//! kept in [`FelixConfigurationSpec::extra`], so that existing objects apply without complaint and survive.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ProgramClusterRoutes;
use crate::values::{DURATION_PATTERN, IntOrString, Switch, open_enum};

/// Pattern of log levels, in any case, possibly empty.
const SEVERITY_PATTERN: &str = r"^(?i)(Trace|Debug|Info|Warning|Error|Fatal)?$";

/// Settings of the node agent.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "projectcalico.org",
    version = "v3",
    kind = "FelixConfiguration",
    plural = "felixconfigurations",
    shortname = "felixconfig",
    shortname = "felixconfigs",
    derive = "PartialEq",
    derive = "Default",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct FelixConfigurationSpec {
    /// How often the kernel's routes are compared in full with the desired ones, 90s when absent, 0
    /// never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub route_refresh_interval: Option<String>,
    /// How often the interfaces are listed again, 90s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub interface_refresh_interval: Option<String>,
    /// Protocol number of the routes the agent owns, 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub device_route_protocol: Option<i32>,
    /// Preferred source address of IPv4 routes to pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub device_route_source_address: Option<String>,
    /// Preferred source address of IPv6 routes to pods.
    #[serde(
        rename = "deviceRouteSourceAddressIPv6",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 45))]
    pub device_route_source_address_ipv6: Option<String>,
    /// False: routes of other programs on pod interfaces are left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_external_routes: Option<bool>,
    /// Which routes to pools on other nodes the agent itself writes, EnabledIPIPOnly when absent.
    /// The complement of the setting of the same name in BGPConfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_cluster_routes: Option<ProgramClusterRoutes>,
    /// Disabled: the agent does not switch on IP forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_forwarding: Option<Switch>,
    /// Whether routes to other nodes come from IPAM blocks (CalicoIPAM) or from endpoints
    /// (WorkloadIPs).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(WorkloadIPs|CalicoIPAM)?$"))]
    pub route_source: Option<String>,
    /// Indices of the additional routing tables the agent may use. Tables 253-255 are never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub route_table_ranges: Option<Vec<RouteTableRange>>,
    /// Deprecated, use routeTableRanges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_table_range: Option<RouteTableRange>,
    /// True: the agent writes no routes at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_sync_disabled: Option<bool>,
    /// Kernel metric of ordinary IPv4 routes, 1024 when absent. Must equal the setting of
    /// BGPConfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483646))]
    pub ipv4_normal_route_priority: Option<i32>,
    /// Kernel metric of ordinary IPv6 routes, 1024 when absent. Must equal the setting of
    /// BGPConfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483646))]
    pub ipv6_normal_route_priority: Option<i32>,
    /// Kernel metric of IPv4 routes to a virtual machine that has just moved, 512 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483646))]
    pub ipv4_elevated_route_priority: Option<i32>,
    /// Kernel metric of IPv6 routes to a virtual machine that has just moved, 512 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 2147483646))]
    pub ipv6_elevated_route_priority: Option<i32>,
    /// How long routes to a virtual machine that has moved keep the elevated metric, 30s when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub live_migration_route_convergence_time: Option<String>,
    /// PodsAndLoadBalancers: the node answers ARP and neighbour solicitations for pod and
    /// load-balancer addresses that lie in the subnet of one of its interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_subnet_l2_reachability: Option<LocalSubnetL2Reachability>,
    /// How often those addresses are announced again, 120s when absent, 0 never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub local_subnet_l2_reachability_refresh_interval: Option<String>,
    /// Addresses outside the cluster that may send encapsulated packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), inner(length(max = 64)))]
    pub external_nodes_list: Option<Vec<String>>,
    /// Forces the IPIP device on or off; absent means on when a pool needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipip_enabled: Option<bool>,
    /// Forces the VXLAN device on or off; absent means on when a pool needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vxlan_enabled: Option<bool>,
    /// MTU of the IPIP device, 0 means that of the uplink minus 20.
    #[serde(rename = "ipipMTU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub ipip_mtu: Option<i32>,
    /// MTU of the IPv4 VXLAN device, 0 means that of the uplink minus 50.
    #[serde(rename = "vxlanMTU", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub vxlan_mtu: Option<i32>,
    /// MTU of the IPv6 VXLAN device, 0 means that of the uplink minus 70.
    #[serde(
        rename = "vxlanMTUV6",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 65535))]
    pub vxlan_mtu_v6: Option<i32>,
    /// UDP port of VXLAN, 4789 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub vxlan_port: Option<i32>,
    /// VXLAN network identifier, 4096 when absent.
    #[serde(rename = "vxlanVNI", default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 16777215))]
    pub vxlan_vni: Option<i32>,
    /// Regular expression of the interfaces whose smallest MTU is the base of automatic MTUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub mtu_iface_pattern: Option<String>,
    /// True: pods are not started before the MTU is known.
    #[serde(
        rename = "requireMTUFile",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub require_mtu_file: Option<bool>,
    /// True: pods may send VXLAN packets.
    #[serde(
        rename = "allowVXLANPacketsFromWorkloads",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub allow_vxlan_packets_from_workloads: Option<bool>,
    /// True: pods may send IPIP packets.
    #[serde(
        rename = "allowIPIPPacketsFromWorkloads",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub allow_ipip_packets_from_workloads: Option<bool>,
    /// True: IPv4 traffic between nodes is encrypted by WireGuard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wireguard_enabled: Option<bool>,
    /// True: IPv6 traffic between nodes is encrypted by WireGuard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wireguard_enabled_v6: Option<bool>,
    /// UDP port of WireGuard over IPv4, 51820 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub wireguard_listening_port: Option<i32>,
    /// UDP port of WireGuard over IPv6, 51821 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub wireguard_listening_port_v6: Option<i32>,
    /// Priority of the routing rule of WireGuard, 99 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 32765))]
    pub wireguard_routing_rule_priority: Option<i32>,
    /// Name of the IPv4 WireGuard device, wireguard.cali when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub wireguard_interface_name: Option<String>,
    /// Name of the IPv6 WireGuard device, wg-v6.cali when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub wireguard_interface_name_v6: Option<String>,
    /// MTU of the IPv4 WireGuard device, 0 means that of the uplink minus 60.
    #[serde(
        rename = "wireguardMTU",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 65535))]
    pub wireguard_mtu: Option<i32>,
    /// MTU of the IPv6 WireGuard device, 0 means that of the uplink minus 80.
    #[serde(
        rename = "wireguardMTUV6",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(range(min = 0, max = 65535))]
    pub wireguard_mtu_v6: Option<i32>,
    /// True: traffic of the nodes themselves is encrypted too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wireguard_host_encryption_enabled: Option<bool>,
    /// Interval of WireGuard keepalive packets, 0 or absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub wireguard_keep_alive: Option<String>,
    /// True: the WireGuard device polls in a thread of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wireguard_threading_enabled: Option<bool>,
    /// IPv4 address put on traffic that leaves pools with natOutgoing; absent means the address of
    /// the outgoing interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub nat_outgoing_address: Option<String>,
    /// Source ports put on traffic that leaves pools with natOutgoing, a number or `min:max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_port_range: Option<IntOrString>,
    /// Destinations exempt from natOutgoing: IPPoolsOnly (also when absent) or IPPoolsAndHostIPs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat_outgoing_exclusions: Option<NatOutgoingExclusions>,
    /// natOutgoing applies only to traffic leaving by this interface; a trailing + matches any
    /// suffix.
    #[serde(
        rename = "iptablesNATOutgoingInterfaceFilter",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 15))]
    pub iptables_nat_outgoing_interface_filter: Option<String>,
    /// Enabled: the floatingIPs annotation of pods is honoured.
    #[serde(
        rename = "floatingIPs",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub floating_ips: Option<Switch>,
    /// What happens to packets for unknown addresses of the advertised Service ranges, Drop when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Drop|Reject|Disabled)?$"))]
    pub service_loop_prevention: Option<String>,
    /// Port ranges of Services of type NodePort, 30000:32767 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 7))]
    pub kube_node_port_ranges: Option<Vec<IntOrString>>,
    /// Whether rules are written with nf_tables. Margay always does; the value Disabled is ignored
    /// with a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nftables_mode: Option<NftablesMode>,
    /// How often the kernel's rules are compared in full with the desired ones, 180s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub nftables_refresh_interval: Option<String>,
    /// What happens to packets policy allows, Accept when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Accept|Return)?$"))]
    pub nftables_filter_allow_action: Option<String>,
    /// What happens to packets pre-DNAT policy allows, Accept when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Accept|Return)?$"))]
    pub nftables_mangle_allow_action: Option<String>,
    /// What happens to packets policy denies, Drop when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Drop|Reject)?$"))]
    pub nftables_filter_deny_action: Option<String>,
    /// Packet-mark bits the agent may use, 0xffff0000 when absent. At least two bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 4294967295i64))]
    pub nftables_mark_mask: Option<i64>,
    /// All: established flows take the kernel's flow table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nftables_flow_table_offload: Option<FlowTableOffload>,
    /// Regular expression of the devices in the flow table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub nftables_flow_table_data_iface_pattern: Option<String>,
    /// Whether the agent's rules come before or after those of other programs, Insert when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Insert|Append)?$"))]
    pub chain_insert_mode: Option<String>,
    /// What happens to packets from a pod to its own node after its egress policy allowed them,
    /// Drop when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Drop|Accept|Return)?$"))]
    pub default_endpoint_to_host_action: Option<String>,
    /// True: packets connection tracking calls invalid are not dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_conntrack_invalid_check: Option<bool>,
    /// Ports of the node that are always reachable. An empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub failsafe_inbound_host_ports: Option<Vec<ProtoPort>>,
    /// Ports the node can always reach. An empty list means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub failsafe_outbound_host_ports: Option<Vec<ProtoPort>>,
    /// Prefix of the kernel log lines of Log rules: %t tier, %k kind, %n name, %p namespace and
    /// name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = r"^([a-zA-Z0-9%: /_-])*$"))]
    pub log_prefix: Option<String>,
    /// Greatest rate of log lines of Log rules, such as 10/second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        regex(pattern = r"^[1-9]\d{0,3}/(?:second|minute|hour|day)$")
    )]
    pub log_action_rate_limit: Option<String>,
    /// Burst allowed by logActionRateLimit, 5 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9999))]
    pub log_action_rate_limit_burst: Option<i32>,
    /// How often the kernel's address sets are compared in full with the desired ones, 90s when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub ipsets_refresh_interval: Option<String>,
    /// Accepted for compatibility; nf_tables sets have no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2147483647))]
    pub max_ipset_size: Option<i32>,
    /// Comma-separated prefixes of the names of pod interfaces, cali when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub interface_prefix: Option<String>,
    /// Comma-separated interface names or `/regular expressions/` that are not host endpoints,
    /// kube-ipvs0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub interface_exclude: Option<String>,
    /// Any: the allowedSourcePrefixes annotation of pods is honoured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(?i)(Disabled|Any)?$"))]
    pub workload_source_spoofing: Option<String>,
    /// False: IPv6 is not handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_support: Option<bool>,
    /// Enabled: the agent works together with Istio's ambient mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub istio_ambient_mode: Option<Switch>,
    /// DSCP value reserved for Istio, 23 when absent.
    #[serde(
        rename = "istioDSCPMark",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub istio_dscp_mark: Option<IntOrString>,
    /// Path of the cgroup hierarchy when it is not at the usual place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub cgroup_v2_path: Option<String>,
    /// Least severe messages that are printed, Info when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SEVERITY_PATTERN))]
    pub log_severity_screen: Option<String>,
    /// Least severe messages that are written to logFilePath, Info when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SEVERITY_PATTERN))]
    pub log_severity_file: Option<String>,
    /// Least severe messages that are sent to syslog, Info when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SEVERITY_PATTERN))]
    pub log_severity_sys: Option<String>,
    /// Path of the log file; `none` means no log file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub log_file_path: Option<String>,
    /// Debug messages come only from source files whose name matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub log_debug_filename_regex: Option<String>,
    /// Accepted for compatibility; health is always served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_enabled: Option<bool>,
    /// Address the health port is bound to, localhost when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub health_host: Option<String>,
    /// Port of the health endpoints, 9099 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub health_port: Option<i32>,
    /// Other watchdog times for parts of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub health_timeout_overrides: Option<Vec<HealthTimeoutOverride>>,
    /// True: metrics are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus_metrics_enabled: Option<bool>,
    /// Address the metrics port is bound to, all addresses when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub prometheus_metrics_host: Option<String>,
    /// Port of the metrics, 9091 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub prometheus_metrics_port: Option<i32>,
    /// False: metrics of the language runtime are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus_go_metrics_enabled: Option<bool>,
    /// False: metrics of the process are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus_process_metrics_enabled: Option<bool>,
    /// False: metrics of WireGuard are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus_wire_guard_metrics_enabled: Option<bool>,
    /// CA certificates that clients of the metrics port are checked against.
    #[serde(
        rename = "prometheusMetricsCAFile",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 4096))]
    pub prometheus_metrics_ca_file: Option<String>,
    /// Certificate of the metrics port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub prometheus_metrics_cert_file: Option<String>,
    /// Private key of the metrics port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub prometheus_metrics_key_file: Option<String>,
    /// How clients of the metrics port are checked: RequireAndVerifyClientCert,
    /// RequireAnyClientCert, VerifyClientCertIfGiven or NoClientCert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub prometheus_metrics_client_auth: Option<String>,
    /// Time the kernel has to answer a request, 10s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub netlink_timeout: Option<String>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub reporting_interval: Option<String>,
    /// Accepted for compatibility.
    #[serde(
        rename = "reportingTTL",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub reporting_ttl: Option<String>,
    /// Directory of the per-endpoint readiness files, /var/run/calico when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub endpoint_status_path_prefix: Option<String>,
    /// Accepted for compatibility.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub policy_sync_path_prefix: Option<String>,
    /// How often flow logs are exported, 300s when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub flow_logs_flush_interval: Option<String>,
    /// Server flow logs are sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub flow_logs_goldmane_server: Option<String>,
    /// Enabled: flow logs are offered on a local socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_logs_local_reporter: Option<Switch>,
    /// Continuous (also when absent): pending policies of flows are evaluated again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_logs_policy_evaluation_mode: Option<PolicyEvaluationMode>,
    /// True: flow logs are printed in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow_logs_collector_debug_trace: Option<bool>,
    /// Time after which a part of the agent that makes no progress is reported unhealthy, 90s when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub dataplane_watchdog_timeout: Option<String>,
    /// Address the debug port is bound to, localhost when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub debug_host: Option<String>,
    /// Port of the debug endpoints; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 65535))]
    pub debug_port: Option<i32>,
    /// Comma-separated kernel features that are taken as present (=true) or missing (=false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 4096),
        regex(pattern = r"^([a-zA-Z0-9-_]+=(true|false|),)*([a-zA-Z0-9-_]+=(true|false|))?$")
    )]
    pub feature_detect_override: Option<String>,
    /// Comma-separated previews that are switched on or off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 4096),
        regex(pattern = r"^([a-zA-Z0-9-_]+=([^=]+),)*([a-zA-Z0-9-_]+=([^=]+))?$")
    )]
    pub feature_gates: Option<String>,
    /// Nodes this object applies to, by label. Not in `default` and `node.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub node_selector: Option<String>,
    /// Settings this version does not act on, kept when the object is written back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: BTreeMap<String, Value>,
}

/// A range of routing table indices, both ends inclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteTableRange {
    /// Last index.
    pub max: i64,
    /// First index.
    pub min: i64,
}

/// A port that is always open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProtoPort {
    /// Remote addresses it is open for, in CIDR notation; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 48))]
    pub net: Option<String>,
    /// The port.
    #[schemars(range(min = 0, max = 65535))]
    pub port: i32,
    /// TCP (also when absent), UDP or SCTP, in any case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub protocol: Option<String>,
}

/// Another watchdog time for one part of the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthTimeoutOverride {
    /// Name of the part, as the health report prints it.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The time.
    #[schemars(length(max = 64), regex(pattern = DURATION_PATTERN))]
    pub timeout: String,
}

open_enum! {
    /// Whether the node answers for pod addresses of its own subnet.
    LocalSubnetL2Reachability {
        /// It does not.
        Disabled = "Disabled", is_disabled;
        /// It does, for pods and load-balancer addresses.
        PodsAndLoadBalancers = "PodsAndLoadBalancers", is_pods_and_load_balancers;
    }
}

open_enum! {
    /// Destinations exempt from natOutgoing.
    NatOutgoingExclusions {
        /// Addresses of pools.
        IpPoolsOnly = "IPPoolsOnly", is_ip_pools_only;
        /// Addresses of pools and of nodes.
        IpPoolsAndHostIps = "IPPoolsAndHostIPs", is_ip_pools_and_host_ips;
    }
}

open_enum! {
    /// Whether rules are written with nf_tables.
    NftablesMode {
        /// The agent decides.
        Auto = "Auto", is_auto;
        /// Always.
        Enabled = "Enabled", is_enabled;
        /// Never.
        Disabled = "Disabled", is_disabled;
    }
}

open_enum! {
    /// Which flows take the kernel's flow table.
    FlowTableOffload {
        /// All established flows.
        All = "All", is_all;
        /// None.
        Disabled = "Disabled", is_disabled;
    }
}

open_enum! {
    /// When pending policies of a flow are evaluated.
    PolicyEvaluationMode {
        /// Again and again.
        Continuous = "Continuous", is_continuous;
        /// Once.
        None = "None", is_none;
    }
}
