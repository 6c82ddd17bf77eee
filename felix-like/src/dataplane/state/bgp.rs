//! Routes learned over BGP.

use std::sync::Arc;

use super::State;
use crate::desired::{BgpRoute, Source};
use crate::kernel::rtnl::RouteKey;
use crate::routes::{Candidate, Intent, Owner, RouteClass, bgp_metric, written_from_blocks};

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

    fn plan_bgp(&mut self, prefix: ipnet::IpNet) {
        let pool = self.pool_table.of(&prefix);
        let settings = &self.settings;
        // Which routes are left to the agent is known only once all pools are.
        let ours = self.in_sync.contains(&Source::Pools)
            && self.family_on(prefix.addr().is_ipv6())
            && !written_from_blocks(
                pool,
                settings.program_ipip_routes,
                settings.program_no_encap_routes,
            );
        let wanted = self.bgp.get(&prefix).filter(|_| ours);
        let key = wanted.map(|r| RouteKey::new(prefix, bgp_metric(r.local_pref)));
        if let (Some(route), Some(key)) = (wanted, key) {
            let mut next_hops = route.next_hops.clone();
            next_hops.sort_unstable();
            next_hops.dedup();
            for next_hop in &next_hops {
                if !self.next_hops.contains_key(next_hop) {
                    let hops = self.topology.next_hop(next_hop, next_hop.address.into());
                    self.next_hops.insert(next_hop.clone(), hops);
                }
            }
            let candidate = Candidate {
                class: RouteClass::Bgp,
                owner: Owner::Bgp,
                intent: Intent::NextHops(next_hops),
                protocol: self.config.bgp_route_protocol,
                source: self.route_source(prefix.addr().is_ipv6()),
                mtu: None,
                provenance: Arc::clone(&self.bgp_provenance),
            };
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

    /// Resolves all next hops anew after links, addresses or foreign routes changed.
    pub(super) fn resolve_next_hops(&mut self) {
        if !std::mem::take(&mut self.underlay_changed) {
            return;
        }
        let in_use: Vec<_> = self.candidates.next_hops().cloned().collect();
        let mut changed = Vec::new();
        let mut now = std::collections::HashMap::with_capacity(in_use.len());
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
