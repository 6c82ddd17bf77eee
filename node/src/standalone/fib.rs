//! Learned routes in the kernel's main table.
//!
//! Routes found at start with our protocol number are those of an earlier run: they stay until what replaces them is
//! known (RFC 4724 section 4.1).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use margay_bgp::{Families, Family, RecoveryEvent, RouteBatch, RouteChange, RoutePath};
use margay_felix::kernel::KernelError;
use margay_felix::kernel::netlink::Operation;
use margay_felix::kernel::rtnl::{Hop, RouteKey, RouteSpec, Rtnl, Scope};

/// `bird` in `/etc/iproute2/rt_protos`: the number routing daemons of this kind use.
const PROTOCOL: u8 = 12;
/// LOCAL_PREF and metric add up to this, so that the preferred route has the lower metric.
const MAX_METRIC: u32 = i32::MAX as u32;

/// The routes of this speaker in the kernel.
#[derive(Debug)]
pub(super) struct Fib {
    kernel: Rtnl,
    ours: BTreeMap<RouteKey, RouteSpec>,
    /// Of an earlier run, not replaced yet.
    stale: BTreeMap<RouteKey, RouteSpec>,
    /// Of ours, not taken by the kernel yet.
    refused: BTreeSet<RouteKey>,
}

impl Fib {
    /// Opens the kernel's table and finds the routes of an earlier run.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(super) fn open() -> anyhow::Result<Self> {
        let mut kernel = Rtnl::open()?;
        let stale = kernel
            .routes(None)?
            .into_iter()
            .filter(|(_, spec)| spec.protocol == PROTOCOL);
        let stale = stale.collect();
        Ok(Fib {
            kernel,
            ours: BTreeMap::new(),
            stale,
            refused: BTreeSet::new(),
        })
    }

    /// Families that an earlier run left routes of.
    pub(super) fn preserved(&self) -> Families {
        self.stale
            .keys()
            .map(|key| Family::of_prefix(&key.prefix))
            .collect()
    }

    /// Carries a batch out. What the kernel refuses is logged and left out.
    pub(super) fn apply(&mut self, batch: &RouteBatch) {
        let mut wanted: Vec<(RouteKey, RouteSpec)> = Vec::new();
        let mut gone: Vec<(RouteKey, RouteSpec)> = Vec::new();
        for change in &batch.changes {
            let new = self.route(change);
            let old: Vec<RouteKey> = self.keys_of(change);
            for key in old
                .into_iter()
                .filter(|key| new.as_ref().is_none_or(|(k, _)| k != key))
            {
                gone.extend(self.ours.remove(&key).map(|spec| (key, spec)));
            }
            if let Some((key, spec)) = new
                && self.ours.get(&key) != Some(&spec)
            {
                self.stale.remove(&key);
                self.ours.insert(key, spec.clone());
                wanted.push((key, spec));
            }
        }
        // The new route first: a metric is part of the key, and a moment with two is better than one with none.
        self.install(&wanted, true);
        self.remove(&gone);
        for event in &batch.recovery {
            if let RecoveryEvent::EndOfRib { peer, family } = event {
                self.sweep(|key, spec| {
                    Family::of_prefix(&key.prefix) == *family
                        && spec
                            .hops
                            .iter()
                            .any(|hop| hop.gateway == Some(peer.address))
                });
            }
        }
    }

    /// Offers the kernel again what it refused: a next hop may have become reachable.
    pub(super) fn retry(&mut self) {
        let again: Vec<_> = std::mem::take(&mut self.refused)
            .into_iter()
            .filter_map(|key| Some((key, self.ours.get(&key)?.clone())))
            .collect();
        self.install(&again, false);
    }

    /// Removes what an earlier run left and nobody announced again.
    pub(super) fn sweep_all(&mut self) {
        self.sweep(|_, _| true);
    }

    fn sweep(&mut self, goes: impl Fn(&RouteKey, &RouteSpec) -> bool) {
        let old: Vec<_> = self
            .stale
            .extract_if(.., |key, spec| goes(key, spec))
            .collect();
        self.remove(&old);
    }

    /// Keys under which a prefix is in the kernel.
    fn keys_of(&self, change: &RouteChange) -> Vec<RouteKey> {
        let first = RouteKey {
            prefix: change.prefix,
            metric: 0,
        };
        let last = RouteKey {
            prefix: change.prefix,
            metric: u32::MAX,
        };
        self.ours.range(first..=last).map(|(key, _)| *key).collect()
    }

    fn route(&mut self, change: &RouteChange) -> Option<(RouteKey, RouteSpec)> {
        let best = change.paths.first()?;
        let key = RouteKey::new(change.prefix, MAX_METRIC.saturating_sub(best.local_pref));
        let hops: BTreeSet<Hop> = change
            .paths
            .iter()
            .filter_map(|path| self.hop(path))
            .collect();
        let spec = RouteSpec::unicast(PROTOCOL, Scope::Universe, hops.into_iter().collect());
        (!spec.hops.is_empty()).then_some((key, spec))
    }

    /// The kernel finds the interface of a gateway itself, except for link-local ones.
    fn hop(&mut self, path: &RoutePath) -> Option<Hop> {
        let link = match (path.next_hop, &path.interface) {
            (IpAddr::V6(address), Some(name)) if address.is_unicast_link_local() => {
                self.kernel.link_by_name(name).ok().flatten()?.index
            }
            _ => 0,
        };
        Some(Hop::via(link, path.next_hop, false))
    }

    fn install(&mut self, routes: &[(RouteKey, RouteSpec)], news: bool) {
        let mut first = news;
        for (key, error) in self.write(routes, RouteSpec::replace) {
            if std::mem::take(&mut first) {
                tracing::warn!(route = %key, %error, "the kernel refused routes; they are offered again");
            }
            self.refused.insert(key);
        }
    }

    fn remove(&mut self, routes: &[(RouteKey, RouteSpec)]) {
        for (key, error) in self.write(routes, RouteSpec::delete) {
            if !error.is_absent() {
                tracing::warn!(route = %key, %error, "a route could not be removed");
            }
        }
    }

    /// Performs one operation on each route and returns those that failed.
    fn write(
        &mut self,
        routes: &[(RouteKey, RouteSpec)],
        operation: impl Fn(&RouteSpec, &RouteKey) -> Operation,
    ) -> Vec<(RouteKey, KernelError)> {
        let operations: Vec<Operation> = routes
            .iter()
            .map(|(key, spec)| operation(spec, key))
            .collect();
        let results = self.kernel.batch(&operations);
        let failed = results.into_iter().zip(routes);
        failed
            .filter_map(|(result, (key, _))| Some((*key, result.err()?)))
            .collect()
    }
}
