//! What the dataplane is told once at start, and what may change while it runs.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::kernel::Netns;

/// Fixed for the life of a dataplane.
#[derive(Debug, Clone)]
pub struct DataplaneConfig {
    /// Namespace whose links, routes and tables are programmed; the agent's own in production.
    pub netns: Netns,
    /// Kubernetes name of this node; tunnel MAC addresses are derived from it.
    pub node_name: String,
    /// Beginnings of the names of workload interfaces. Default `cali`.
    pub interface_prefixes: Vec<String>,
    /// Protocol of workload and VXLAN routes (3, `boot`, unless changed). A value other than 3 also replaces 80.
    pub device_route_protocol: u8,
    /// Protocol of routes learned over BGP. Default 12; not 2, 3 or 80.
    pub bgp_route_protocol: u8,
    /// BGP prefixes outside all pools that an earlier run of this node wrote: they are swept like our own when the
    /// BGP source is in sync and does not have them.
    pub restart_prefixes: Vec<IpNet>,
    /// How long a route of another program on a workload interface that has just appeared is left alone.
    pub foreign_route_grace: Duration,
    /// Interval of the full comparison of kernel and desired state (a safety net: changes are noticed by event).
    pub full_check: Duration,
    /// Receive buffer of the kernel event sockets in bytes.
    pub monitor_buffer: usize,
    /// File that drift records are appended to, one JSON object a line; kept below 10 000 lines.
    pub drift_log: Option<PathBuf>,
    /// What may also change later.
    pub settings: Settings,
}

impl DataplaneConfig {
    /// Defaults for a node in the given namespace.
    pub fn new(node_name: &str, netns: Netns) -> Self {
        Self {
            netns,
            node_name: node_name.to_owned(),
            interface_prefixes: vec!["cali".to_owned()],
            device_route_protocol: 3,
            bgp_route_protocol: 12,
            restart_prefixes: Vec::new(),
            foreign_route_grace: Duration::from_secs(10),
            full_check: Duration::from_secs(90),
            monitor_buffer: 16 << 20,
            drift_log: None,
            settings: Settings::default(),
        }
    }
}

/// May be changed at any time with [`crate::Dataplane::configure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// IPv4 is in use.
    pub ipv4: bool,
    /// IPv6 is in use.
    pub ipv6: bool,
    /// Turn forwarding on (`net.ipv4.ip_forward`, `net.ipv6.conf.all.forwarding`) once the tables are in place.
    pub ip_forwarding: bool,
    /// Own the tables (`owner` and `persist` flags), so that other programs can neither change nor flush them. Plain
    /// tables are used where the kernel knows no such flags.
    pub table_owner: bool,
    /// Remove routes of other programs on workload interfaces.
    pub remove_external_routes: bool,
    /// Preferred source address of the routes we write, per family.
    pub route_source: Vec<IpAddr>,
    /// Source NAT of traffic that leaves the pools.
    pub nat_outgoing: NatOutgoing,
    /// Routes of IPIP pools are written from the blocks of other nodes (true), or from BGP (false).
    pub program_ipip_routes: bool,
    /// Routes of pools without encapsulation are written from the blocks of other nodes (true), or from BGP (false).
    pub program_no_encap_routes: bool,
    /// MTU of IPIP tunnels and routes, `None` for 20 less than the uplink's.
    pub ipip_mtu: Option<u32>,
    /// MTU of `vxlan.calico`, `None` for 50 less than the uplink's.
    pub vxlan_mtu: Option<u32>,
    /// MTU of `vxlan-v6.calico`, `None` for 70 less than the uplink's.
    pub vxlan_mtu_v6: Option<u32>,
    /// VXLAN network identifier.
    pub vxlan_vni: u32,
    /// VXLAN UDP port.
    pub vxlan_port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ipv4: true,
            ipv6: true,
            ip_forwarding: true,
            table_owner: true,
            remove_external_routes: true,
            route_source: Vec::new(),
            nat_outgoing: NatOutgoing::default(),
            program_ipip_routes: true,
            program_no_encap_routes: false,
            ipip_mtu: None,
            vxlan_mtu: None,
            vxlan_mtu_v6: None,
            vxlan_vni: 4096,
            vxlan_port: 4789,
        }
    }
}

/// How traffic from a pool with `natOutgoing` is translated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NatOutgoing {
    /// Destinations that are never translated, besides all pools: the addresses of the cluster's nodes
    /// (`natOutgoingExclusions: IPPoolsAndHostIPs`).
    pub exclude_hosts: bool,
    /// Source ports to use, inclusive.
    pub port_range: Option<(u16, u16)>,
    /// Address to translate to instead of the outgoing interface's, at most one per family.
    pub addresses: Vec<IpAddr>,
    /// Translate only what leaves through this interface; a final `+` stands for any ending.
    pub interface: Option<String>,
}
