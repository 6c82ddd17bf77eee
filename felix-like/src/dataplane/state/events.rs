//! What the kernel tells, and what a full dump shows.

use std::time::Instant;

use super::State;
use crate::dataplane::DataplaneError;
use crate::kernel::monitor::RouteEvent;
use crate::kernel::rtnl::{Link, NeighKey, Neighbour, RouteKey, RouteSpec};
use crate::kernel::{KernelError, MacAddr};
use crate::map::HashSet;
use crate::reconcile::Observation;
use crate::routes::RouteOwner;

/// `RTPROT_UNSPEC` port: the kernel acted on its own.
const BY_KERNEL: u32 = 0;

impl State {
    pub(in crate::dataplane) fn route_event(&mut self, event: RouteEvent) {
        match event {
            RouteEvent::Link { link, gone: true } => self.link_gone(link.index),
            RouteEvent::Link { link, gone: false } => self.link_changed(link),
            RouteEvent::Address { address, gone, .. } => {
                if gone {
                    self.topology.remove_address(&address);
                } else {
                    self.topology.set_address(&address);
                }
                let link = self.topology.link(address.link);
                if gone && link.is_some_and(|l| self.ownership.is_workload(l)) {
                    self.settings_to_check.insert(address.link);
                }
                let link = self.topology.link(address.link);
                if link.is_some_and(|l| !self.ownership.is_workload(l)) {
                    // IPv6 routes are announced when they go.
                    if gone && address.address.addr().is_ipv4() {
                        self.links_to_read.insert(address.link);
                    }
                    self.underlay_changed = true;
                    self.uplink_changed();
                    self.tunnels_changed = true;
                }
            }
            RouteEvent::Neighbour { key, entry, port } => self.neighbour_event(key, entry, port),
            RouteEvent::Route {
                key,
                spec,
                gone,
                replaced,
                port,
            } => {
                self.one_route(key, spec, gone, replaced, port);
            }
            RouteEvent::Setting { link, .. } => {
                if let Ok(link) = u32::try_from(link) {
                    self.settings_to_check.insert(link);
                } else {
                    self.global_settings_to_check = true;
                }
            }
            RouteEvent::Fdb(event) => self.fdb_event(&event),
            RouteEvent::Overrun => {
                tracing::info!("kernel notices were lost, reading everything again");
                self.resync_wanted = true;
            }
        }
    }

    fn link_changed(&mut self, link: Link) {
        let index = link.index;
        let old = self.topology.set_link(link);
        let Some(link) = self.topology.link(index).cloned() else {
            return;
        };
        let was_running = old.as_ref().is_some_and(Link::is_running);
        let was_up = old.as_ref().is_some_and(Link::is_up);
        let renamed = old.as_ref().is_some_and(|o| o.name != link.name);
        let workload = self.ownership.is_workload(&link);
        if old.is_none() && workload {
            self.appeared.insert(index, Instant::now());
        }
        if was_up && !link.is_up() {
            // The kernel drops the routes of a link that goes down, IPv4 ones without a word.
            self.drop_routes_of(index);
        }
        if was_running == link.is_running() && !renamed && old.is_some() {
            if old.as_ref().map(|o| (o.mtu, o.mac)) != Some((link.mtu, link.mac)) {
                self.tunnels_changed = true;
                self.settings_to_check.insert(index);
                self.uplink_changed();
            }
            return;
        }
        if let Some(old) = old.filter(|_| renamed) {
            self.interface_changed(&old.name);
        }
        if link.is_running() && workload {
            self.settings_to_check.insert(index);
        }
        self.interface_changed(&link.name);
        if !workload {
            self.underlay_changed = true;
            self.uplink_changed();
            self.tunnels_changed = true;
        }
    }

    fn link_gone(&mut self, index: u32) {
        if self
            .topology
            .link(index)
            .is_some_and(|l| self.ownership.is_workload(l))
        {
            let keys = self.routes_by_link.get(&index).cloned().unwrap_or_default();
            for key in keys
                .iter()
                .filter(|k| k.prefix.prefix_len() == k.prefix.max_prefix_len())
            {
                self.forget_flows(key.prefix.addr());
            }
        }
        self.drop_routes_of(index);
        self.appeared.remove(&index);
        self.settings_to_check.remove(&index);
        self.settings_done.remove(&index);
        let Some(link) = self.topology.remove_link(index) else {
            return;
        };
        self.interface_changed(&link.name);
        if !self.ownership.is_workload(&link) {
            self.underlay_changed = true;
            self.uplink_changed();
            self.tunnels_changed = true;
        }
    }

    /// Routes and neighbours that name the interface have to be looked at again.
    fn interface_changed(&mut self, name: &str) {
        let keys = self.candidates.on_interface(name);
        self.recompute_all(keys);
        let endpoints = self
            .endpoints_by_interface
            .get(name)
            .cloned()
            .unwrap_or_default();
        for id in endpoints {
            self.plan_neighbours(&id);
        }
    }

    /// The kernel has removed every route and permanent neighbour of a link.
    fn drop_routes_of(&mut self, index: u32) {
        let keys = self.routes_by_link.remove(&index).unwrap_or_default();
        for key in keys {
            self.topology.remove_foreign(&key);
            self.routes.observe(&key, None);
        }
        let neighbours: Vec<NeighKey> = self
            .neighbours
            .actuals()
            .map(|(k, _)| *k)
            .filter(|k| k.link == index)
            .collect();
        for key in neighbours {
            self.neighbours.observe(&key, None);
        }
    }

    /// An address went from these links: IPv4 routes that prefer it as source, or that it alone made reachable, go
    /// without a notice.
    pub(super) fn read_links(&mut self) {
        for link in std::mem::take(&mut self.links_to_read) {
            match self.rtnl.routes(Some(link)) {
                Ok(routes) => {
                    let there: HashSet<RouteKey> = routes.into_iter().map(|(k, _)| k).collect();
                    let known = self.routes_by_link.get(&link).cloned().unwrap_or_default();
                    for key in known.difference(&there) {
                        self.set_actual(*key, None);
                    }
                }
                // The link is gone altogether: its own notice says so.
                Err(error) if error.is_absent() => {}
                Err(error) => {
                    tracing::warn!(link, %error, "routes of the link not read, reading everything");
                    self.resync_wanted = true;
                }
            }
        }
    }

    fn one_route(&mut self, key: RouteKey, spec: RouteSpec, gone: bool, replaced: bool, port: u32) {
        let known = self.routes.actual(&key);
        let ipv6 = key.prefix.addr().is_ipv6();
        let found = if gone {
            match known {
                Some(known) if ipv6 && known.hops.len() > spec.hops.len() => {
                    // One leg of several was removed.
                    let mut rest = known.clone();
                    rest.hops.retain(|h| !spec.hops.contains(h));
                    Some(rest).filter(|r| !r.hops.is_empty())
                }
                // A parallel route of the same key went, not the one we know.
                Some(known) if !ipv6 && *known != spec => {
                    if self.routes.desired(&key).is_some() {
                        self.links_to_read.extend(known.hops.iter().map(|h| h.link));
                    }
                    return;
                }
                _ => None,
            }
        } else {
            if !ipv6 && !replaced && known.is_some_and(|k| *k != spec) {
                // Added beside the one we know.
                let owner = self.owner_of(&key, &spec);
                if self.routes.desired(&key).is_some() && owner != RouteOwner::Foreign {
                    self.stray_routes.push((key, spec));
                }
                return;
            }
            Some(spec)
        };
        // What was not as desired before is no foreign change of ours.
        let was_settled = self.routes.is_settled(&key);
        let observation = self.set_actual(key, found);
        if was_settled && (port != BY_KERNEL || !gone) {
            self.route_drift(&key, &observation, port);
        }
    }

    /// Takes note of what the kernel has under a key, in every index.
    pub(super) fn set_actual(
        &mut self,
        key: RouteKey,
        found: Option<RouteSpec>,
    ) -> Observation<RouteSpec> {
        let old_link = self.routes.actual(&key).and_then(only_link);
        let new_link = found.as_ref().and_then(only_link);
        if old_link != new_link {
            if let Some(keys) = old_link.and_then(|l| self.routes_by_link.get_mut(&l)) {
                keys.remove(&key);
            }
            if let Some(link) = new_link {
                self.routes_by_link.entry(link).or_default().insert(key);
            }
        }
        let foreign = found.as_ref().filter(|spec| {
            spec.protocol != self.config.bgp_route_protocol
                && self.owner_of(&key, spec) == RouteOwner::Foreign
                && self.routes.desired(&key).is_none()
        });
        match foreign {
            Some(spec) => {
                self.topology.set_foreign(&key, spec.clone());
                self.underlay_changed = true;
            }
            None => self.underlay_changed |= self.topology.remove_foreign(&key),
        }
        self.routes.observe(&key, found)
    }

    pub(super) fn owner_of(&self, key: &RouteKey, spec: &RouteSpec) -> RouteOwner {
        self.ownership
            .of(key, spec, &self.topology, &self.pool_table)
    }

    fn neighbour_event(&mut self, key: NeighKey, entry: Option<Neighbour>, port: u32) {
        let found = entry.filter(|e| e.permanent).and_then(|e| e.mac);
        if found.is_none() && self.neighbours.actual(&key).is_none() {
            return;
        }
        let observation = self.neighbours.observe(&key, found);
        if port != BY_KERNEL {
            self.neighbour_drift(&key, &observation, port);
        }
    }

    /// Reads links, addresses, routes and neighbours, and compares. Returns the number of differences in what is ours.
    ///
    /// # Errors
    /// When a table cannot be read; what was known stays.
    pub(in crate::dataplane) fn resync(&mut self) -> Result<usize, DataplaneError> {
        let step = |action: &'static str| {
            move |source: KernelError| DataplaneError::Kernel { action, source }
        };
        let links = self.rtnl.links().map_err(step("read links"))?;
        let addresses = self.rtnl.addresses().map_err(step("read addresses"))?;
        let known: HashSet<u32> = self.topology.links().map(|l| l.index).collect();
        let there: HashSet<u32> = links.iter().map(|l| l.index).collect();
        for index in known.difference(&there) {
            self.link_gone(*index);
        }
        for link in links {
            self.link_changed(link);
        }
        self.topology.clear_addresses();
        for address in &addresses {
            self.topology.set_address(address);
        }
        self.underlay_changed = true;
        self.uplink_changed();

        let routes = self.rtnl.routes(None).map_err(step("read routes"))?;
        let mut differences = 0;
        let mut seen = HashSet::with_capacity_and_hasher(routes.len(), Default::default());
        for (key, spec) in routes {
            // Of parallel IPv4 routes the first is the one in use.
            if !seen.insert(key) {
                continue;
            }
            if self.routes.actual(&key) != Some(&spec) {
                let observation = self.set_actual(key, Some(spec));
                differences += usize::from(is_difference(&observation));
            }
        }
        let lost: Vec<RouteKey> = self
            .routes
            .actuals()
            .map(|(k, _)| *k)
            .filter(|k| !seen.contains(k))
            .collect();
        for key in lost {
            let observation = self.set_actual(key, None);
            differences += usize::from(is_difference(&observation));
        }
        let neighbours = self.rtnl.neighbours().map_err(step("read neighbours"))?;
        let permanent: Vec<(NeighKey, MacAddr)> = neighbours
            .iter()
            .filter(|n| n.permanent)
            .filter_map(|n| Some((n.key, n.mac?)))
            .collect();
        for (_, observation) in self.neighbours.replace_actual(permanent) {
            differences += usize::from(is_difference(&observation));
        }
        differences += self.resync_fdb().map_err(step("read forwarding entries"))?;
        self.tunnels_changed = true;
        self.resync_wanted = false;
        Ok(differences)
    }
}

fn only_link(spec: &RouteSpec) -> Option<u32> {
    let first = spec.hops.first()?.link;
    spec.depends_on(first).then_some(first)
}

pub(super) fn is_difference<V>(observation: &Observation<V>) -> bool {
    matches!(
        observation,
        Observation::Missing { .. } | Observation::Changed { .. }
    )
}
