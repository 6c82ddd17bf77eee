//! Routes learned over BGP.

use std::sync::Arc;

use ipnet::IpNet;

use super::State;
use crate::desired::{BgpRoute, EncapMode, PoolView, Source};
use crate::kernel::rtnl::RouteKey;
use crate::map::HashMap;
use crate::routes::{
    AGENT_METRIC, Candidate, IPIP_DEVICE, Intent, Owner, RouteClass, bgp_metric,
    written_from_blocks,
};

impl State {
    pub(in crate::dataplane) fn apply_bgp(&mut self, routes: Vec<BgpRoute>) {
        for route in routes {
            let prefix = route.prefix.trunc();
            if route.next_hops.is_empty() {
                self.bgp.remove(&prefix);
            } else {
                self.bgp.insert(prefix, BgpRoute { prefix, ..route });
            }
            self.plan_bgp(prefix);
        }
    }

    /// Plans all BGP routes anew, after pools or settings changed.
    pub(super) fn replan_bgp(&mut self) {
        let prefixes: Vec<_> = self.bgp.keys().copied().collect();
        for prefix in prefixes {
            self.plan_bgp(prefix);
        }
    }

    fn plan_bgp(&mut self, prefix: IpNet) {
        let planned = self
            .bgp
            .get(&prefix)
            .and_then(|route| self.bgp_route(route));
        let key = planned.as_ref().map(|(key, _)| *key);
        if let Some((key, candidate)) = planned {
            if let Intent::NextHops(next_hops) = &candidate.intent {
                for next_hop in next_hops {
                    if !self.next_hops.contains_key(next_hop) {
                        let hops = self.topology.next_hop(next_hop, next_hop.address.into());
                        self.problems_stale |= hops.is_empty();
                        self.next_hops.insert(next_hop.clone(), hops);
                    }
                }
            }
            self.candidates.put(key, candidate);
        }
        let old = match key {
            Some(key) => self.bgp_keys.insert(prefix, key),
            None => self.bgp_keys.remove(&prefix),
        };
        // The new metric first: the old route stays until the new one is there.
        if let Some(key) = key {
            self.recompute(key);
        }
        if let Some(old) = old.filter(|old| Some(*old) != key) {
            self.candidates.take(&old, &Owner::Bgp);
            self.recompute(old);
        }
    }

    /// What to do with a BGP route, which depends on the pool it lies in; `None` when its pool's routes are not made
    /// from BGP.
    fn bgp_route(&self, route: &BgpRoute) -> Option<(RouteKey, Candidate)> {
        let ipv6 = route.prefix.addr().is_ipv6();
        // Which routes are left to the agent is known only once all pools are.
        if !self.in_sync.contains(&Source::Pools) || !self.family_on(ipv6) {
            return None;
        }
        let pool = self.pool_table.of(&route.prefix);
        let settings = &self.settings;
        if written_from_blocks(
            pool,
            settings.program_ipip_routes,
            settings.program_no_encap_routes,
        ) {
            return self.encapsulated_route(route, pool?);
        }
        let mut next_hops = route.next_hops.clone();
        next_hops.sort_unstable();
        next_hops.dedup();
        let candidate = Candidate {
            class: RouteClass::Bgp,
            owner: Owner::Bgp,
            intent: Intent::NextHops(next_hops),
            protocol: self.config.bgp_route_protocol,
            source: self.route_source(ipv6),
            mtu: None,
            provenance: Arc::clone(&self.bgp_provenance),
        };
        Some((
            RouteKey::new(route.prefix, bgp_metric(route.local_pref)),
            candidate,
        ))
    }

    /// Routes of these pools are the agent's own and come from the blocks of other nodes. While nobody tells of those,
    /// a BGP route's next hop, the node's address, says the same, except where VXLAN's tunnel addresses are needed.
    fn encapsulated_route(
        &self,
        route: &BgpRoute,
        pool: &PoolView,
    ) -> Option<(RouteKey, Candidate)> {
        if self.in_sync.contains(&Source::RemoteBlocks) {
            return None;
        }
        let node = route.next_hops.first()?.address;
        if node.is_ipv6() != route.prefix.addr().is_ipv6() {
            return None;
        }
        let near = self.same_subnet(node);
        let (class, intent, mtu) = if pool.vxlan != EncapMode::Never {
            if pool.vxlan != EncapMode::CrossSubnet || !near {
                return None;
            }
            (RouteClass::VxlanSameSubnet, Intent::Direct(node), None)
        } else if pool.ipip == EncapMode::Never {
            (
                RouteClass::NoEncap,
                Intent::NextHops(route.next_hops.clone()),
                None,
            )
        } else if pool.ipip == EncapMode::CrossSubnet && near {
            (RouteClass::IpipSameSubnet, Intent::Direct(node), None)
        } else {
            let intent = Intent::Tunnel {
                device: IPIP_DEVICE,
                gateway: node,
            };
            (RouteClass::IpipTunnel, intent, self.ipip_mtu())
        };
        let candidate = Candidate {
            class,
            owner: Owner::Bgp,
            intent,
            protocol: self.ownership.agent_protocol(),
            source: self.route_source(node.is_ipv6()),
            mtu,
            provenance: Arc::clone(&self.bgp_provenance),
        };
        Some((RouteKey::new(route.prefix, AGENT_METRIC), candidate))
    }

    /// Resolves all next hops anew after links, addresses or foreign routes changed.
    pub(super) fn resolve_next_hops(&mut self) {
        if !std::mem::take(&mut self.underlay_changed) {
            return;
        }
        let in_use: Vec<_> = self.candidates.next_hops().cloned().collect();
        let mut changed = Vec::new();
        let mut now = HashMap::with_capacity_and_hasher(in_use.len(), Default::default());
        for next_hop in in_use {
            let hops = self.topology.next_hop(&next_hop, next_hop.address.into());
            if self.next_hops.get(&next_hop) != Some(&hops) {
                changed.push(next_hop.clone());
            }
            now.insert(next_hop, hops);
        }
        self.next_hops = now;
        for next_hop in changed {
            self.problems_stale = true;
            let keys = self.candidates.on_next_hop(&next_hop);
            self.recompute_all(keys);
        }
    }
}
