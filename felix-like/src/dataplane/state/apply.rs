//! Writing the difference.

use std::time::{Duration, Instant};

use super::State;
use crate::dataplane::flows::FlowJob;
use crate::desired::Source;
use crate::kernel::KernelError;
use crate::kernel::rtnl::{Neighbour, RouteKey, RouteSpec};
use crate::reconcile::{Removal, Work};
use crate::routes::{ELEVATED_METRIC, RouteOwner, WORKLOAD_METRIC};

/// Route operations in one pass: some ten milliseconds.
const ROUTES_PER_PASS: usize = 4096;

/// Longest wait for connection tracking before a route is written all the same.
const FORGET_LIMIT: Duration = Duration::from_secs(5);

fn is_host(key: &RouteKey) -> bool {
    key.prefix.prefix_len() == key.prefix.max_prefix_len()
}

impl State {
    /// One pass over all tables. True when everything but the backlog of routes is in the kernel, so that callers
    /// waiting for a commit may go on.
    pub(in crate::dataplane) fn apply(&mut self) -> bool {
        self.read_links();
        if self.resync_wanted
            && let Err(error) = self.resync()
        {
            tracing::warn!(%error, "reading the kernel's tables again failed");
            return false;
        }
        if self.reconsider_at.is_some_and(|t| Instant::now() >= t) {
            self.reconsider_at = None;
            self.routes.reconsider();
        }
        self.apply_tunnels();
        self.plan_tables();
        let mut committed = self.first_commit_done;
        // Before the pools are known there is nothing right to commit.
        if self.in_sync.contains(&Source::Pools) {
            committed = self.apply_tables();
            if committed && !self.first_commit_done {
                self.first_commit_done = true;
                self.apply_global_settings();
            }
        }
        if self.global_settings_to_check && self.forwarding_on && !self.drift.paused {
            self.apply_global_settings();
        }
        self.apply_interface_settings();
        self.resolve_next_hops();
        self.apply_routes();
        self.apply_neighbours();
        self.apply_fdb();
        self.answer_waiting();
        committed
    }

    pub(in crate::dataplane) fn has_backlog(&self) -> bool {
        let now = Instant::now();
        !self.drift.paused && (self.routes.has_work(now) || self.neighbours.has_work(now))
    }

    pub(in crate::dataplane) fn next_due(&self) -> Option<Instant> {
        if self.drift.paused {
            return None;
        }
        let tables = self
            .tables
            .next_due()
            .filter(|_| self.in_sync.contains(&Source::Pools));
        [
            self.routes.next_due(),
            self.neighbours.next_due(),
            self.fdb.next_due(),
            self.reconsider_at,
            tables,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    pub(in crate::dataplane) fn has_failures(&self) -> bool {
        self.routes.failures().next().is_some()
            || self.neighbours.failures().next().is_some()
            || self.fdb.failures().next().is_some()
            || self.tunnels_failed
    }

    pub(in crate::dataplane) fn retry_failed(&mut self) {
        self.routes.retry_failed();
        self.fdb.retry_failed();
        self.tunnels_changed |= std::mem::take(&mut self.tunnels_failed);
        self.neighbours.retry_failed();
        self.problems_stale = true;
    }

    pub(in crate::dataplane) fn pause_repairs(&mut self, pause: bool) {
        self.drift.paused = pause;
    }

    /// The safety net: everything is read and compared. What only this finds is a defect of the notices' handling.
    pub(in crate::dataplane) fn check_everything(&mut self) {
        self.tables.reread();
        match self.resync() {
            Ok(0) if self.routes.pending_count() == 0 => {
                self.verified_at = Some(std::time::SystemTime::now());
            }
            Ok(0) => {}
            Ok(found) => {
                self.missed += found as u64;
                tracing::warn!(found, "differences that no notice had told of");
            }
            Err(error) => tracing::warn!(%error, "full check failed"),
        }
    }

    fn apply_routes(&mut self) {
        if self.drift.paused {
            return;
        }
        let now = Instant::now();
        let mut routes = std::mem::take(&mut self.routes);
        let work = routes.take_work(ROUTES_PER_PASS, now, |found| self.judge_route(&found, now));
        self.routes = routes;
        self.remove_strays();
        let work = self.hold_back(work, now);
        if work.is_empty() {
            return;
        }
        let operations: Vec<_> = work
            .iter()
            .map(|item| match item {
                // Adding fails when somebody else was quicker; replacing would take the place of his.
                Work::Write {
                    key,
                    value,
                    old: None,
                } if value.protocol == self.config.bgp_route_protocol => value.add(key),
                Work::Write { key, value, .. } => value.replace(key),
                Work::Remove { key, value } => value.delete(key),
            })
            .collect();
        self.writes += operations.len() as u64;
        let results = self.rtnl.batch(&operations);
        for (item, result) in work.into_iter().zip(results) {
            match item {
                Work::Write { key, value, .. } => self.route_written(key, value, result),
                Work::Remove { key, value } => self.route_removed(key, &value, result),
            }
        }
    }

    /// A pod's address that moves to another interface, or away, first loses its old route, then its tracked
    /// connections, and only then gets the new route: what was accepted for the old pod must not count for the new one.
    fn hold_back(
        &mut self,
        work: Vec<Work<RouteKey, RouteSpec>>,
        now: Instant,
    ) -> Vec<Work<RouteKey, RouteSpec>> {
        let mut ready = Vec::with_capacity(work.len());
        for item in work {
            let Work::Write { key, value, old } = &item else {
                ready.push(item);
                continue;
            };
            if self.forgetting.contains(&key.prefix.addr()) && is_host(key) {
                self.routes.put_back(key);
                self.routes.delay(key, now + FORGET_LIMIT);
                continue;
            }
            if let Some(old) = old
                && self.is_in_the_way(key, old, value)
            {
                let why = format!(
                    "a route of protocol {} that is not ours is there",
                    old.protocol
                );
                self.routes.failed(key, why);
                self.problems_stale = true;
                continue;
            }
            if let Some(old) = old
                .as_ref()
                .filter(|old| self.leaves_pod(key, old, Some(value)))
            {
                ready.push(Work::Remove {
                    key: *key,
                    value: old.clone(),
                });
                continue;
            }
            ready.push(item);
        }
        ready
    }

    /// A learned route never takes the place of somebody else's; one that took the place of ours is put right.
    fn is_in_the_way(&self, key: &RouteKey, old: &RouteSpec, new: &RouteSpec) -> bool {
        new.protocol == self.config.bgp_route_protocol
            && self.owner_of(key, old) == RouteOwner::Foreign
            && old.protocol != new.protocol
            && !self.drift.is_open(key)
    }

    /// True when a pod's host route stops leading to the interface it led to.
    fn leaves_pod(&self, key: &RouteKey, old: &RouteSpec, new: Option<&RouteSpec>) -> bool {
        let [hop] = old.hops.as_slice() else {
            return false;
        };
        is_host(key)
            && hop.gateway.is_none()
            && new.is_none_or(|new| new.hops != old.hops)
            && self.was_workload(hop.link)
    }

    /// The link is a pod's host end, or was one and is gone.
    fn was_workload(&self, link: u32) -> bool {
        self.topology
            .link(link)
            .is_none_or(|l| self.ownership.is_workload(l))
    }

    /// Starts forgetting the flows of an address.
    pub(super) fn forget_flows(&mut self, ip: std::net::IpAddr) {
        if self.forgetting.insert(ip) && self.flow_jobs.send(FlowJob::Of(vec![ip])).is_err() {
            self.forgetting.remove(&ip);
        }
    }

    /// The flows of these addresses are forgotten; their routes may be written.
    pub(in crate::dataplane) fn flows_forgotten(&mut self, ips: &[std::net::IpAddr]) {
        for ip in ips {
            self.forgetting.remove(ip);
            let prefix = ipnet::IpNet::from(*ip);
            let keys = [WORKLOAD_METRIC, ELEVATED_METRIC].map(|m| RouteKey::new(prefix, m));
            let bgp = self.bgp_keys.get(&prefix).copied();
            for key in keys.into_iter().chain(bgp) {
                self.routes.delay_over(&key);
            }
        }
    }

    fn route_written(&mut self, key: RouteKey, value: RouteSpec, result: Result<(), KernelError>) {
        match result {
            Ok(()) => {
                let link = value
                    .hops
                    .first()
                    .map(|h| h.link)
                    .filter(|l| self.was_workload(*l));
                self.set_actual(key, Some(value));
                self.drift.route_repaired(&key);
                // A twin by somebody else on this interface can go now.
                if let Some(keys) = link.and_then(|l| self.routes_by_link.get(&l)) {
                    self.routes.reconsider_keys(keys.iter().copied());
                }
            }
            Err(error) if error.effect_unknown() || error.is(libc::EEXIST) => {
                self.resync_wanted = true;
                self.routes.put_back(&key);
            }
            Err(error) => {
                // A link that has just gone is no failure: its notice is on the way and suspends the route.
                if !error.is_link_gone() {
                    tracing::warn!(route = %key, value = %value, %error, "route refused");
                    self.problems_stale = true;
                }
                self.routes.failed(&key, error.to_string());
            }
        }
    }

    fn route_removed(&mut self, key: RouteKey, value: &RouteSpec, result: Result<(), KernelError>) {
        match result {
            Err(error) if error.effect_unknown() => {
                self.resync_wanted = true;
                self.routes.put_back(&key);
            }
            Ok(()) => self.route_gone(key, value),
            Err(error) if error.is_absent() => self.route_gone(key, value),
            Err(error) => {
                tracing::warn!(route = %key, %error, "route not removed");
                self.routes.failed(&key, error.to_string());
                self.problems_stale = true;
            }
        }
    }

    fn route_gone(&mut self, key: RouteKey, old: &RouteSpec) {
        let pod = self.leaves_pod(&key, old, None);
        self.set_actual(key, None);
        if pod {
            self.forget_flows(key.prefix.addr());
        }
    }

    /// Removes parallel routes that somebody added under keys of ours.
    fn remove_strays(&mut self) {
        let strays = std::mem::take(&mut self.stray_routes);
        if strays.is_empty() {
            return;
        }
        let operations: Vec<_> = strays.iter().map(|(key, spec)| spec.delete(key)).collect();
        self.writes += operations.len() as u64;
        for ((key, _), result) in strays.iter().zip(self.rtnl.batch(&operations)) {
            if let Err(error) = result
                && !error.is_absent()
            {
                tracing::warn!(route = %key, %error, "parallel route not removed");
            }
        }
    }

    fn apply_neighbours(&mut self) {
        if self.drift.paused {
            return;
        }
        let now = Instant::now();
        let work = self.neighbours.take_work(ROUTES_PER_PASS, now, |found| {
            if found.mine {
                Removal::Now
            } else {
                Removal::Never
            }
        });
        if work.is_empty() {
            return;
        }
        let operations: Vec<_> = work
            .iter()
            .map(|item| match item {
                Work::Write { key, value, .. } => Neighbour::replace(*key, *value),
                Work::Remove { key, .. } => Neighbour::delete(*key),
            })
            .collect();
        self.writes += operations.len() as u64;
        let results = self.rtnl.batch(&operations);
        for (item, result) in work.into_iter().zip(results) {
            match (item, result) {
                (Work::Write { key, value, .. }, Ok(())) => {
                    self.neighbours.written(&key, value);
                    self.drift.neighbour_repaired(&key);
                }
                (Work::Remove { key, .. }, Ok(())) => self.neighbours.removed(&key),
                (Work::Remove { key, .. }, Err(e)) if e.is_absent() || e.is_link_gone() => {
                    self.neighbours.removed(&key);
                }
                (Work::Write { key, .. } | Work::Remove { key, .. }, Err(error)) => {
                    if !error.is_link_gone() {
                        tracing::warn!(ip = %key.ip, %error, "neighbour entry refused");
                        self.problems_stale = true;
                    }
                    self.neighbours.failed(&key, error.to_string());
                }
            }
        }
    }
}
