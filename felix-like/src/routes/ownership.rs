//! Which routes of the shared main table are ours, and whose picture must be complete before one may go.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

use super::BGP_METRIC_FLOOR;
use super::topology::Topology;
use crate::desired::{EncapMode, PoolView, Source};
use crate::kernel::rtnl::{Link, RouteKey, RouteSpec, RouteType};
use crate::map::HashSet;

/// Protocol of addresses' own routes, written by the kernel.
const PROTOCOL_KERNEL: u8 = 2;
/// `boot`: routes set by hand, and pods' host routes.
const PROTOCOL_BOOT: u8 = 3;
/// Agent routes other than pods' and VXLAN's.
const PROTOCOL_AGENT: u8 = 80;
/// IPIP's device.
pub(crate) const IPIP_DEVICE: &str = "tunl0";
/// VXLAN's devices.
pub(crate) const VXLAN_DEVICES: [&str; 2] = ["vxlan.calico", "vxlan-v6.calico"];

/// Pools by prefix.
#[derive(Debug, Default)]
pub(crate) struct PoolTable {
    v4: PrefixMap<Ipv4Net, PoolView>,
    v6: PrefixMap<Ipv6Net, PoolView>,
}

impl PoolTable {
    pub(crate) fn new(pools: &[PoolView]) -> Self {
        let mut table = Self::default();
        for pool in pools.iter().filter(|p| p.workload) {
            match pool.cidr {
                IpNet::V4(net) => drop(table.v4.insert(net.trunc(), pool.clone())),
                IpNet::V6(net) => drop(table.v6.insert(net.trunc(), pool.clone())),
            }
        }
        table
    }

    /// The pool that a prefix lies in.
    pub(crate) fn of(&self, prefix: &IpNet) -> Option<&PoolView> {
        match prefix {
            IpNet::V4(net) => self.v4.get_lpm(net).map(|(_, pool)| pool),
            IpNet::V6(net) => self.v6.get_lpm(net).map(|(_, pool)| pool),
        }
    }
}

/// Whose a route in the kernel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteOwner {
    /// Somebody else's: never touched.
    Foreign,
    /// Ours; may be removed once this source is complete and does not want it.
    Ours(Source),
    /// On a workload interface, perhaps written by a CNI plugin for a pod we shall hear of: ours after a grace period.
    OursAfterGrace,
}

/// The rules.
#[derive(Debug)]
pub(crate) struct Ownership {
    /// Beginnings of workload interfaces' names.
    pub(crate) interface_prefixes: Vec<String>,
    /// Protocol of pods' and VXLAN routes.
    pub(crate) device_protocol: u8,
    /// Protocol of BGP routes.
    pub(crate) bgp_protocol: u8,
    /// Foreign routes on workload interfaces are removed.
    pub(crate) remove_external: bool,
    /// BGP prefixes outside pools that an earlier run wrote.
    pub(crate) restart_prefixes: HashSet<IpNet>,
}

impl Ownership {
    /// Protocol of the agent's routes that are neither pods' nor VXLAN's.
    pub(crate) fn agent_protocol(&self) -> u8 {
        if self.device_protocol == PROTOCOL_BOOT {
            PROTOCOL_AGENT
        } else {
            self.device_protocol
        }
    }

    /// True for the host end of a pod.
    pub(crate) fn is_workload(&self, link: &Link) -> bool {
        self.interface_prefixes
            .iter()
            .any(|p| link.name.starts_with(p.as_str()))
    }

    /// Whose a route is. Routes whose interface is not known (yet) are foreign.
    pub(crate) fn of(
        &self,
        key: &RouteKey,
        spec: &RouteSpec,
        topology: &Topology,
        pools: &PoolTable,
    ) -> RouteOwner {
        if is_link_local(&key.prefix) || spec.protocol == PROTOCOL_KERNEL {
            return RouteOwner::Foreign;
        }
        let link = match spec.hops.as_slice() {
            [hop] => match topology.link(hop.link) {
                Some(link) => Some(link),
                None => return RouteOwner::Foreign,
            },
            _ => None,
        };
        let workload = link.filter(|l| self.is_workload(l));
        let tunnel = link.is_some_and(|l| l.name == IPIP_DEVICE);
        let vxlan = link.is_some_and(|l| VXLAN_DEVICES.contains(&l.name.as_str()));
        if spec.protocol == self.bgp_protocol {
            let ours = pools.of(&key.prefix).is_some()
                || tunnel
                || vxlan
                || workload.is_some()
                || key.metric >= BGP_METRIC_FLOOR
                || self.restart_prefixes.contains(&key.prefix);
            return if ours {
                RouteOwner::Ours(Source::Bgp)
            } else {
                RouteOwner::Foreign
            };
        }
        if workload.is_some() {
            let own_protocol = spec.protocol == self.device_protocol
                || (self.device_protocol == PROTOCOL_BOOT && spec.protocol == PROTOCOL_AGENT);
            return if own_protocol || self.remove_external {
                RouteOwner::OursAfterGrace
            } else {
                RouteOwner::Foreign
            };
        }
        if vxlan {
            return RouteOwner::Ours(Source::RemoteBlocks);
        }
        if spec.protocol == self.agent_protocol() {
            return RouteOwner::Ours(if spec.kind == RouteType::Blackhole {
                Source::OwnBlocks
            } else {
                Source::RemoteBlocks
            });
        }
        RouteOwner::Foreign
    }
}

fn is_link_local(prefix: &IpNet) -> bool {
    match prefix {
        IpNet::V4(_) => false,
        IpNet::V6(net) => net.addr().segments()[0] & 0xffc0 == 0xfe80 || net.addr().is_multicast(),
    }
}

/// Whether BGP routes of a prefix are left to the agent's own block routes.
pub(crate) fn written_from_blocks(pool: Option<&PoolView>, ipip: bool, no_encap: bool) -> bool {
    match pool {
        None => false,
        Some(pool) if pool.vxlan != EncapMode::Never => true,
        Some(pool) if pool.ipip != EncapMode::Never => ipip,
        Some(_) => no_encap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::rtnl::{Hop, Scope};

    fn rules(remove_external: bool, device_protocol: u8) -> Ownership {
        Ownership {
            interface_prefixes: vec!["cali".into()],
            device_protocol,
            bgp_protocol: 12,
            remove_external,
            restart_prefixes: HashSet::from_iter(["198.51.100.0/24".parse().unwrap()]),
        }
    }

    fn owner(rules: &Ownership, prefix: &str, metric: u32, protocol: u8, link: u32) -> RouteOwner {
        let mut topology = Topology::default();
        for (index, name) in [(2, "eth0"), (3, "caliA"), (4, "vxlan.calico"), (5, "tunl0")] {
            topology.set_link(Link {
                index,
                name: name.into(),
                ..Link::default()
            });
        }
        let pool = PoolView {
            name: "p".into(),
            cidr: "10.65.0.0/16".parse().unwrap(),
            nat_outgoing: false,
            ipip: EncapMode::Never,
            vxlan: EncapMode::Never,
            workload: true,
        };
        let spec = if link == 0 {
            RouteSpec::blackhole(protocol)
        } else {
            RouteSpec::unicast(protocol, Scope::Link, vec![Hop::link(link)])
        };
        let key = RouteKey::new(prefix.parse().unwrap(), metric);
        rules.of(&key, &spec, &topology, &PoolTable::new(&[pool]))
    }

    #[test]
    fn each_class_of_route_is_told_apart() {
        use RouteOwner::{Foreign, Ours, OursAfterGrace};
        let r = rules(true, 3);
        let cases = [
            ("10.65.5.0/26", 0, 80, 2, Ours(Source::RemoteBlocks)),
            ("10.65.6.0/26", 0, 4, 2, Foreign),
            ("10.65.0.0/26", 0, 80, 0, Ours(Source::OwnBlocks)),
            ("10.65.0.0/26", 0, 4, 0, Foreign),
            ("10.65.0.8/32", 0, 4, 3, OursAfterGrace),
            ("10.65.0.8/32", 1024, 3, 3, OursAfterGrace),
            ("10.65.0.8/32", 0, 2, 3, Foreign),
            ("fe80::/64", 256, 3, 3, Foreign),
            ("10.65.1.0/26", 0, 3, 4, Ours(Source::RemoteBlocks)),
            ("10.65.1.0/26", 32, 12, 2, Ours(Source::Bgp)),
            ("192.0.2.0/24", 32, 12, 2, Foreign),
            ("192.0.2.0/24", 2_147_483_547, 12, 2, Ours(Source::Bgp)),
            ("198.51.100.0/24", 32, 12, 2, Ours(Source::Bgp)),
            ("192.0.2.0/24", 32, 12, 5, Ours(Source::Bgp)),
            ("192.0.2.0/24", 0, 3, 2, Foreign),
            ("10.65.1.0/26", 0, 80, 99, Foreign),
        ];
        for (prefix, metric, protocol, link, expected) in cases {
            let found = owner(&r, prefix, metric, protocol, link);
            assert_eq!(
                found, expected,
                "{prefix} metric {metric} proto {protocol} link {link}"
            );
        }
    }

    #[test]
    fn external_routes_on_pods_stay_when_told_so() {
        let r = rules(false, 3);
        assert_eq!(owner(&r, "10.65.0.8/32", 0, 4, 3), RouteOwner::Foreign);
        assert_eq!(
            owner(&r, "10.65.0.8/32", 0, 3, 3),
            RouteOwner::OursAfterGrace
        );
    }

    #[test]
    fn with_another_device_protocol_eighty_is_no_longer_ours() {
        let r = rules(true, 99);
        assert_eq!(r.agent_protocol(), 99);
        assert_eq!(owner(&r, "10.65.7.0/26", 0, 80, 0), RouteOwner::Foreign);
        assert_eq!(
            owner(&r, "10.65.7.0/26", 0, 99, 0),
            RouteOwner::Ours(Source::OwnBlocks)
        );
    }
}
