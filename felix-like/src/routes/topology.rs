//! The node's links, addresses and the routes that are not ours: what next hops are resolved with.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

use crate::desired::BgpNextHop;
use crate::kernel::rtnl::{Address, Hop, Link, RouteKey, RouteSpec, RouteType};
use crate::map::HashMap;

/// Links and foreign routes of one namespace, as last heard from the kernel.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    links: HashMap<u32, Link>,
    by_name: HashMap<String, u32>,
    addresses: BTreeMap<u32, BTreeSet<IpNet>>,
    foreign_v4: PrefixMap<Ipv4Net, BTreeMap<u32, RouteSpec>>,
    foreign_v6: PrefixMap<Ipv6Net, BTreeMap<u32, RouteSpec>>,
    /// This node's own addresses, by which the uplink of each family is found.
    local: Vec<IpAddr>,
}

impl Topology {
    /// Forgets all addresses, before a new dump.
    pub(crate) fn clear_addresses(&mut self) {
        self.addresses.clear();
    }

    /// Takes note of a link; returns its former state.
    pub(crate) fn set_link(&mut self, link: Link) -> Option<Link> {
        let old = self.links.get(&link.index).cloned();
        if let Some(old) = &old
            && old.name != link.name
            && self.by_name.get(&old.name) == Some(&link.index)
        {
            self.by_name.remove(&old.name);
        }
        self.by_name.insert(link.name.clone(), link.index);
        self.links.insert(link.index, link);
        old
    }

    /// Forgets a link; returns its last state.
    pub(crate) fn remove_link(&mut self, index: u32) -> Option<Link> {
        let link = self.links.remove(&index)?;
        if self.by_name.get(&link.name) == Some(&index) {
            self.by_name.remove(&link.name);
        }
        self.addresses.remove(&index);
        Some(link)
    }

    /// The link of an index.
    pub(crate) fn link(&self, index: u32) -> Option<&Link> {
        self.links.get(&index)
    }

    /// The link of a name.
    pub(crate) fn named(&self, name: &str) -> Option<&Link> {
        self.links.get(self.by_name.get(name)?)
    }

    /// All links.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    /// Index of a link that can carry traffic.
    pub(crate) fn running(&self, name: &str) -> Option<u32> {
        self.named(name).filter(|l| l.is_running()).map(|l| l.index)
    }

    /// Takes note of an address.
    pub(crate) fn set_address(&mut self, address: &Address) {
        self.addresses
            .entry(address.link)
            .or_default()
            .insert(address.address);
    }

    /// Forgets an address.
    pub(crate) fn remove_address(&mut self, address: &Address) {
        if let Some(addresses) = self.addresses.get_mut(&address.link) {
            addresses.remove(&address.address);
        }
    }

    /// True when the address is on one of our links.
    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        self.addresses.values().flatten().any(|a| a.addr() == ip)
    }

    /// Sets this node's own addresses.
    pub(crate) fn set_local(&mut self, local: Vec<IpAddr>) {
        self.local = local;
    }

    /// Index of the running link that has this node's address of a family.
    pub(crate) fn uplink(&self, ipv6: bool) -> Option<u32> {
        let local = self.local.iter().find(|a| a.is_ipv6() == ipv6)?;
        let has = |addresses: &BTreeSet<IpNet>| addresses.iter().any(|a| a.addr() == *local);
        self.addresses
            .iter()
            .filter(|(_, addresses)| has(addresses))
            .map(|(link, _)| *link)
            .find(|link| self.links.get(link).is_some_and(Link::is_running))
    }

    /// Takes note of a route that is not ours.
    pub(crate) fn set_foreign(&mut self, key: &RouteKey, spec: RouteSpec) {
        match key.prefix {
            IpNet::V4(net) => self
                .foreign_v4
                .entry(net)
                .or_default()
                .insert(key.metric, spec),
            IpNet::V6(net) => self
                .foreign_v6
                .entry(net)
                .or_default()
                .insert(key.metric, spec),
        };
    }

    /// Forgets a route that is not ours; true when it was known.
    pub(crate) fn remove_foreign(&mut self, key: &RouteKey) -> bool {
        fn remove<P: prefix_trie::Prefix>(
            map: &mut PrefixMap<P, BTreeMap<u32, RouteSpec>>,
            net: P,
            metric: u32,
        ) -> bool {
            let Some(metrics) = map.get_mut(&net) else {
                return false;
            };
            let known = metrics.remove(&metric).is_some();
            if metrics.is_empty() {
                map.remove(&net);
            }
            known
        }
        match key.prefix {
            IpNet::V4(net) => remove(&mut self.foreign_v4, net, key.metric),
            IpNet::V6(net) => remove(&mut self.foreign_v6, net, key.metric),
        }
    }

    /// How to send to a BGP next hop for `prefix`: over the most specific route that is not ours. Empty when there is
    /// none, when the next hop is an address of this node, or when a route says to drop.
    pub(crate) fn next_hop(&self, next_hop: &BgpNextHop, prefix: IpNet) -> Vec<Hop> {
        let gateway = next_hop.address;
        if self.is_local(gateway) || prefix.addr().is_ipv6() && gateway.is_ipv4() {
            return Vec::new();
        }
        if let Some(name) = &next_hop.interface {
            let mixed = prefix.addr().is_ipv4() && gateway.is_ipv6();
            return self
                .running(name)
                .map(|l| Hop::via(l, gateway, mixed))
                .into_iter()
                .collect();
        }
        if is_link_local(gateway) {
            // Every interface has such a subnet: without one named it leads nowhere (RFC 2545 section 3).
            return Vec::new();
        }
        let Some(route) = self.lookup(gateway) else {
            return Vec::new();
        };
        let usable = route.hops.iter().filter(|hop| {
            self.links
                .get(&hop.link)
                .is_some_and(|link| link.is_running() && !link.is_loopback())
        });
        usable
            .map(|hop| Hop {
                link: hop.link,
                gateway: Some(hop.gateway.unwrap_or(gateway)),
                onlink: hop.onlink,
                weight: hop.weight,
            })
            .collect()
    }

    /// The foreign route to an address: longest prefix, then lowest metric, whose links are up.
    fn lookup(&self, ip: IpAddr) -> Option<&RouteSpec> {
        let alive = |spec: &&RouteSpec| {
            spec.kind != RouteType::Unicast
                || spec
                    .hops
                    .iter()
                    .any(|h| self.links.get(&h.link).is_some_and(Link::is_running))
        };
        let best = |metrics: &'_ BTreeMap<u32, RouteSpec>| metrics.values().any(|s| alive(&s));
        // Shorter prefixes count only when the longer ones have no link that is up.
        match ip {
            IpAddr::V4(ip) => {
                let cover = self.foreign_v4.cover(&Ipv4Net::from(ip));
                let mut found = None;
                for (_, metrics) in cover {
                    if best(metrics) {
                        found = Some(metrics);
                    }
                }
                found?.values().find(alive)
            }
            IpAddr::V6(ip) => {
                let cover = self.foreign_v6.cover(&Ipv6Net::from(ip));
                let mut found = None;
                for (_, metrics) in cover {
                    if best(metrics) {
                        found = Some(metrics);
                    }
                }
                found?.values().find(alive)
            }
        }
        .filter(|spec| spec.kind == RouteType::Unicast)
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.segments()[0] & 0xffc0 == 0xfe80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::rtnl::Scope;

    const UP: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;

    fn link(index: u32, name: &str, flags: u32) -> Link {
        Link {
            index,
            name: name.into(),
            flags,
            ..Link::default()
        }
    }

    fn node() -> Topology {
        let mut topology = Topology::default();
        topology.set_link(link(2, "eth0", UP));
        topology.set_link(link(3, "eth1", UP));
        let own = Address {
            link: 2,
            address: "172.17.0.5/16".parse().unwrap(),
            tentative: false,
        };
        topology.set_address(&own);
        let connected = RouteSpec::unicast(2, Scope::Link, vec![Hop::link(2)]);
        topology.set_foreign(
            &RouteKey::new("172.17.0.0/16".parse().unwrap(), 0),
            connected,
        );
        let default = Hop::via(3, "192.0.2.1".parse().unwrap(), false);
        let default = RouteSpec::unicast(4, Scope::Universe, vec![default]);
        topology.set_foreign(&RouteKey::new("0.0.0.0/0".parse().unwrap(), 0), default);
        topology
    }

    fn via(topology: &Topology, address: &str) -> Vec<Hop> {
        let next_hop = BgpNextHop {
            address: address.parse().unwrap(),
            interface: None,
        };
        topology.next_hop(&next_hop, "10.65.1.0/26".parse().unwrap())
    }

    #[test]
    fn a_next_hop_on_a_connected_subnet_is_the_gateway_itself() {
        let hop = Hop::via(2, "172.17.0.6".parse().unwrap(), false);
        assert_eq!(via(&node(), "172.17.0.6"), [hop]);
    }

    #[test]
    fn a_next_hop_behind_a_router_is_reached_through_that_router() {
        let hop = Hop::via(3, "192.0.2.1".parse().unwrap(), false);
        assert_eq!(via(&node(), "10.9.0.3"), [hop]);
    }

    #[test]
    fn our_own_address_and_unreachable_ones_are_no_next_hops() {
        let mut topology = node();
        assert!(via(&topology, "172.17.0.5").is_empty());
        topology.set_link(link(3, "eth1", 0));
        assert!(via(&topology, "10.9.0.3").is_empty());
        let key = RouteKey::new("10.9.0.0/24".parse().unwrap(), 0);
        topology.set_foreign(&key, RouteSpec::blackhole(4));
        topology.set_link(link(3, "eth1", UP));
        assert!(
            via(&topology, "10.9.0.3").is_empty(),
            "a more specific blackhole wins"
        );
        topology.remove_foreign(&key);
        assert!(!via(&topology, "10.9.0.3").is_empty());
    }

    #[test]
    fn the_uplink_is_the_running_link_with_our_own_address() {
        let mut topology = node();
        topology.set_local(vec!["172.17.0.5".parse().unwrap()]);
        assert_eq!(topology.uplink(false), Some(2));
        assert_eq!(topology.uplink(true), None);
        topology.set_link(link(2, "eth0", 0));
        assert_eq!(topology.uplink(false), None);
    }

    #[test]
    fn a_renamed_link_is_known_by_its_new_name_only() {
        let mut topology = node();
        topology.set_link(link(2, "up0", UP));
        assert_eq!(topology.running("eth0"), None);
        assert_eq!(topology.running("up0"), Some(2));
    }

    #[test]
    fn a_link_local_next_hop_needs_its_interface() {
        let topology = node();
        let next_hop = |interface: Option<&str>| BgpNextHop {
            address: "fe80::1".parse().unwrap(),
            interface: interface.map(str::to_owned),
        };
        let (v4, v6) = (
            "10.65.1.0/26".parse().unwrap(),
            "fd00::/64".parse().unwrap(),
        );
        assert!(topology.next_hop(&next_hop(None), v6).is_empty());
        let gateway = "fe80::1".parse().unwrap();
        assert_eq!(
            topology.next_hop(&next_hop(Some("eth1")), v6),
            [Hop::via(3, gateway, false)]
        );
        assert_eq!(
            topology.next_hop(&next_hop(Some("eth1")), v4),
            [Hop::via(3, gateway, true)]
        );
        assert!(topology.next_hop(&next_hop(Some("eth9")), v6).is_empty());
    }
}
