//! Who wants which route, and who gets it.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

use super::topology::Topology;
use crate::desired::{BgpNextHop, EndpointId, Provenance};
use crate::kernel::rtnl::{Hop, RouteKey, RouteSpec, Scope};
use crate::map::{HashMap, HashSet};

/// Preference among those who want the same key, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RouteClass {
    /// A pod of this node.
    LocalWorkload,
    /// A block behind a VXLAN pool, node in our subnet.
    VxlanSameSubnet,
    /// A block behind a VXLAN pool, through the tunnel.
    VxlanTunnel,
    /// A block of an IPIP pool, node in our subnet.
    IpipSameSubnet,
    /// A block of an IPIP pool, through the tunnel.
    IpipTunnel,
    /// A block without encapsulation.
    NoEncap,
    /// A block of our own.
    Blackhole,
    /// Learned over BGP.
    Bgp,
}

/// Part of the desired state that a candidate comes from; a later candidate of the same owner replaces the earlier.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Endpoint(EndpointId),
    OwnBlocks,
    RemoteBlocks,
    Bgp,
}

/// A route in terms that do not change when interfaces come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Straight onto a named interface.
    Interface(String),
    /// Dropped.
    Blackhole,
    /// To another node in our own subnet, through the interface that has our own address.
    Direct(IpAddr),
    /// Through a tunnel device.
    Tunnel {
        /// Device name.
        device: &'static str,
        /// Address at the far end.
        gateway: IpAddr,
    },
    /// To a tunnel address itself.
    TunnelAddress(&'static str),
    /// To BGP next hops.
    NextHops(Vec<BgpNextHop>),
}

/// One who wants a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) class: RouteClass,
    pub(crate) owner: Owner,
    pub(crate) intent: Intent,
    pub(crate) protocol: u8,
    pub(crate) source: Option<IpAddr>,
    pub(crate) mtu: Option<u32>,
    pub(crate) provenance: Arc<Provenance>,
}

impl Candidate {
    /// The route in this kernel's terms; `None` when an interface or next hop is not there.
    fn resolve(&self, key: &RouteKey, topology: &Topology) -> Option<RouteSpec> {
        let unicast = |scope, hops| Some(RouteSpec::unicast(self.protocol, scope, hops));
        let mut spec = match &self.intent {
            Intent::Interface(name) => {
                let link = topology.running(name)?;
                unicast(Scope::Link, vec![Hop::link(link)])
            }
            Intent::Blackhole => Some(RouteSpec::blackhole(self.protocol)),
            Intent::Direct(node) => {
                let link = topology.uplink(node.is_ipv6())?;
                unicast(Scope::Universe, vec![Hop::via(link, *node, true)])
            }
            Intent::Tunnel { device, gateway } => {
                let link = topology.running(device)?;
                unicast(Scope::Universe, vec![Hop::via(link, *gateway, true)])
            }
            Intent::TunnelAddress(device) => {
                let link = topology.running(device)?;
                unicast(Scope::Link, vec![Hop::link(link)])
            }
            Intent::NextHops(next_hops) => {
                let mut hops = Vec::new();
                for next_hop in next_hops {
                    hops.extend(topology.next_hop(next_hop, key.prefix));
                }
                if hops.is_empty() {
                    None
                } else {
                    unicast(Scope::Universe, hops)
                }
            }
        }?;
        spec.source = self.source;
        spec.mtu = self.mtu;
        Some(spec.normalised(key))
    }

    /// Index of the interface, to prefer the newest one.
    fn newest(&self, topology: &Topology) -> Option<u32> {
        match &self.intent {
            Intent::Interface(name) => topology.running(name),
            _ => None,
        }
    }

    fn watches(&self) -> Vec<Watch> {
        match &self.intent {
            Intent::Interface(name) => vec![Watch::Interface(name.clone())],
            Intent::Blackhole => Vec::new(),
            Intent::Direct(node) => vec![Watch::Uplink(node.is_ipv6())],
            Intent::Tunnel { device, .. } | Intent::TunnelAddress(device) => {
                vec![Watch::Interface((*device).to_owned())]
            }
            Intent::NextHops(hops) => hops.iter().cloned().map(Watch::NextHop).collect(),
        }
    }
}

/// What a candidate's resolution depends on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Watch {
    Interface(String),
    Uplink(bool),
    NextHop(BgpNextHop),
}

/// Outcome for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nobody wants it.
    None,
    /// Wanted, but no candidate can be realised now.
    NotNow,
    /// This route, on behalf of this object.
    Route(RouteSpec),
}

/// All candidates by key.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    by_key: HashMap<RouteKey, Vec<Candidate>>,
    watchers: HashMap<Watch, HashSet<RouteKey>>,
}

impl Candidates {
    /// Adds a candidate, or replaces the one of the same owner.
    pub(crate) fn put(&mut self, key: RouteKey, candidate: Candidate) {
        self.take(&key, &candidate.owner);
        for watch in candidate.watches() {
            self.watchers.entry(watch).or_default().insert(key);
        }
        self.by_key.entry(key).or_default().push(candidate);
    }

    /// Removes an owner's candidate; true when there was one.
    pub(crate) fn take(&mut self, key: &RouteKey, owner: &Owner) -> bool {
        let Some(candidates) = self.by_key.get_mut(key) else {
            return false;
        };
        let Some(index) = candidates.iter().position(|c| c.owner == *owner) else {
            return false;
        };
        let gone = candidates.swap_remove(index);
        for watch in gone.watches() {
            if candidates.iter().any(|c| c.watches().contains(&watch)) {
                continue;
            }
            if let Some(keys) = self.watchers.get_mut(&watch) {
                keys.remove(key);
                if keys.is_empty() {
                    self.watchers.remove(&watch);
                }
            }
        }
        if candidates.is_empty() {
            self.by_key.remove(key);
        }
        true
    }

    /// Who gets the key as things are.
    pub(crate) fn choose(&self, key: &RouteKey, topology: &Topology) -> Choice {
        let Some(candidates) = self.by_key.get(key) else {
            return Choice::None;
        };
        candidates
            .iter()
            .filter_map(|c| {
                Some((
                    c.class,
                    Reverse(c.newest(topology)),
                    c.resolve(key, topology)?,
                ))
            })
            .min_by_key(|(class, newest, _)| (*class, *newest))
            .map_or(Choice::NotNow, |(_, _, spec)| Choice::Route(spec))
    }

    /// The object behind the best candidate of a key.
    pub(crate) fn provenance(&self, key: &RouteKey) -> Option<Arc<Provenance>> {
        let best = self.by_key.get(key)?.iter().min_by_key(|c| c.class)?;
        Some(Arc::clone(&best.provenance))
    }

    /// Keys that depend on an interface by name.
    pub(crate) fn on_interface(&self, name: &str) -> Vec<RouteKey> {
        self.watching(&Watch::Interface(name.to_owned()))
    }

    /// Keys that depend on the interface of our own address.
    pub(crate) fn on_uplink(&self, ipv6: bool) -> Vec<RouteKey> {
        self.watching(&Watch::Uplink(ipv6))
    }

    /// Keys that depend on a BGP next hop.
    pub(crate) fn on_next_hop(&self, next_hop: &BgpNextHop) -> Vec<RouteKey> {
        self.watching(&Watch::NextHop(next_hop.clone()))
    }

    /// All BGP next hops in use.
    pub(crate) fn next_hops(&self) -> impl Iterator<Item = &BgpNextHop> {
        self.watchers.keys().filter_map(|w| match w {
            Watch::NextHop(hop) => Some(hop),
            _ => None,
        })
    }

    fn watching(&self, watch: &Watch) -> Vec<RouteKey> {
        self.watchers
            .get(watch)
            .map(|keys| keys.iter().copied().collect())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::rtnl::Link;

    const UP: u32 = (libc::IFF_UP | libc::IFF_RUNNING) as u32;

    fn topology(up: &[bool]) -> Topology {
        let mut topology = Topology::default();
        for (index, up) in (2u32..).zip(up) {
            let flags = if *up { UP } else { 0 };
            let name = format!("cali{index}");
            topology.set_link(Link {
                index,
                name,
                flags,
                ..Link::default()
            });
        }
        topology
    }

    fn candidate(owner: u8, link: u32, blackhole: bool) -> Candidate {
        Candidate {
            class: if blackhole {
                RouteClass::Blackhole
            } else {
                RouteClass::LocalWorkload
            },
            owner: Owner::Endpoint(EndpointId(owner.to_string())),
            intent: if blackhole {
                Intent::Blackhole
            } else {
                Intent::Interface(format!("cali{link}"))
            },
            protocol: 3,
            source: None,
            mtu: None,
            provenance: Arc::default(),
        }
    }

    proptest! {
        /// Only the last word of each owner counts, in whatever order they speak, and speaking twice changes nothing.
        #[test]
        fn the_choice_depends_on_the_last_word_of_each_owner_alone(
            words in prop::collection::vec((0u8..4, prop::option::of((2u32..6, any::<bool>()))), 0..30),
            up in prop::collection::vec(any::<bool>(), 4),
            repeat in any::<bool>(),
        ) {
            let topology = topology(&up);
            let key = RouteKey::new("10.65.0.2/32".parse().unwrap(), 1024);
            let mut candidates = Candidates::default();
            let mut last: std::collections::BTreeMap<u8, (u32, bool)> = Default::default();
            for (owner, word) in words {
                for _ in 0..=u8::from(repeat) {
                    match word {
                        Some((link, blackhole)) => {
                            candidates.put(key, candidate(owner, link, blackhole));
                        }
                        None => {
                            candidates.take(&key, &Owner::Endpoint(EndpointId(owner.to_string())));
                        }
                    }
                }
                match word {
                    Some(word) => drop(last.insert(owner, word)),
                    None => drop(last.remove(&owner)),
                }
            }
            let newest = last.values().filter(|(_, blackhole)| !blackhole).map(|(link, _)| *link);
            let newest = newest.filter(|link| up[*link as usize - 2]).max();
            let expected = match newest {
                Some(link) => {
                    Choice::Route(RouteSpec::unicast(3, Scope::Link, vec![Hop::link(link)]))
                }
                None if last.values().any(|(_, blackhole)| *blackhole) => {
                    Choice::Route(RouteSpec::blackhole(3))
                }
                None if last.is_empty() => Choice::None,
                None => Choice::NotNow,
            };
            prop_assert_eq!(candidates.choose(&key, &topology), expected);
            // Nothing is left behind of those who took their word back.
            for link in 2..6 {
                let wanted = last.values().any(|(l, blackhole)| *l == link && !blackhole);
                let watched = !candidates.on_interface(&format!("cali{link}")).is_empty();
                prop_assert_eq!(watched, wanted);
            }
        }
    }
}
