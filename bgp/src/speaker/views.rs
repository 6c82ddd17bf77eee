//! The speaker's state for operators.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use ipnet::IpNet;

use super::Speaker;
use super::core::slot;
use super::peer::Peer;
use crate::policy::Source;
use crate::rib::{Path, SourceId, Step, explain};
use crate::wire::Attributes;
use crate::{
    Family, FamilyCounters, Negotiated, PeerStatus, RemoteAs, RestartRole, RouteQuery, RouteSource,
    RouteView, Ttl,
};

impl Speaker {
    /// All peers in key order. `wall` is the time of day at `now`.
    pub fn peers(&self, now: Instant, wall: SystemTime) -> Vec<PeerStatus> {
        let mut list: Vec<PeerStatus> = self
            .peers
            .values()
            .map(|peer| self.status(peer, now, wall))
            .collect();
        list.sort_by(|a, b| a.key.cmp(&b.key));
        list
    }

    fn status(&self, peer: &Peer, now: Instant, wall: SystemTime) -> PeerStatus {
        let connection = peer.connections.iter().max_by_key(|c| c.peer_state());
        let session = connection.and_then(|connection| connection.session());
        let in_state_for = now.saturating_duration_since(peer.since);
        let counters = |family: Family| FamilyCounters {
            received: peer.counters.received[slot(family)].unsigned_abs(),
            accepted: peer.counters.accepted[slot(family)].unsigned_abs(),
            advertised: peer.out[slot(family)].advertised() as u64,
        };
        PeerStatus {
            key: peer.config.key.clone(),
            name: peer.config.name.clone(),
            remote_as: match (session, peer.config.remote_as) {
                (Some(session), _) => Some(session.peer_as),
                (None, RemoteAs::Is(number)) => Some(number),
                (None, RemoteAs::AnyExternal) => None,
            },
            local_as: peer.config.local_as,
            state: peer.state(),
            since: wall.checked_sub(in_state_for).unwrap_or(wall),
            in_state_for,
            passive: peer.config.passive,
            local_address: connection
                .and_then(|c| c.local)
                .or(peer.config.local_address),
            router_id: peer.router_id(),
            negotiated: session.map(|session| Negotiated {
                families: session.families,
                hold: session.hold,
                keepalive: session.keepalive,
                capabilities: session.capability_names(),
            }),
            families: peer.config.families,
            ipv4: counters(Family::Ipv4),
            ipv6: counters(Family::Ipv6),
            flaps: peer.counters.flaps,
            messages_in: peer.counters.messages_in,
            messages_out: peer.counters.messages_out,
            treated_as_withdraw: peer.counters.treated_as_withdraw,
            attributes_discarded: peer.counters.attributes_discarded,
            last_error: peer.last_error.clone(),
            restart: if peer.stale_until.iter().any(Option::is_some) {
                Some(RestartRole::Helper)
            } else if self.core.recovery.is_recovering() && !peer.awaited.is_empty() {
                Some(RestartRole::Restarting)
            } else {
                None
            },
            password: peer.config.password.is_some(),
            ttl_security: match peer.config.ttl {
                Ttl::Security(hops) => Some(hops),
                _ => None,
            },
            pending: peer.out.iter().map(|out| out.pending() as u64).sum(),
        }
    }

    /// Paths by prefix, best first.
    pub fn routes(&self, query: &RouteQuery) -> Vec<RouteView> {
        let prefixes = self.wanted_prefixes(query);
        match query.advertised_to {
            Some(address) => self.advertised(address, &prefixes),
            None => prefixes
                .iter()
                .flat_map(|prefix| self.views(prefix))
                .filter(|view| match (&view.source, query.peer) {
                    (_, None) => true,
                    (RouteSource::Peer { peer, .. }, Some(wanted)) => peer.address == wanted,
                    (RouteSource::Local, Some(_)) => false,
                })
                .collect(),
        }
    }

    fn wanted_prefixes(&self, query: &RouteQuery) -> Vec<IpNet> {
        let table = &self.core.table;
        let mut prefixes: Vec<IpNet> = match (query.covering, query.prefix) {
            (Some(address), _) => longest_match(address, |p| !table.paths(p).is_empty())
                .into_iter()
                .collect(),
            (None, Some(prefix)) if !query.longer => vec![prefix.trunc()],
            (None, Some(prefix)) => table
                .prefixes()
                .filter(|p| prefix.contains(*p))
                .copied()
                .collect(),
            (None, None) => table.prefixes().copied().collect(),
        };
        let families = query.families;
        prefixes.retain(|p| families.is_empty() || families.contains(Family::of_prefix(p)));
        prefixes.sort_unstable();
        prefixes
    }

    fn views(&self, prefix: &IpNet) -> Vec<RouteView> {
        let steps = explain(&self.core.table, prefix, &self.core.context);
        let selected = self.core.table.selected(prefix).len();
        let paths = self.core.table.paths(prefix).iter();
        paths
            .zip(steps)
            .enumerate()
            .map(|(index, (path, step))| {
                let attributes = path.accepted.as_ref().unwrap_or(&path.received);
                RouteView {
                    best: step == Step::Best,
                    multipath: index < selected,
                    reason: step.words().to_owned(),
                    ..self.view(prefix, path, attributes)
                }
            })
            .collect()
    }

    fn view(&self, prefix: &IpNet, path: &Path, attributes: &Arc<Attributes>) -> RouteView {
        RouteView {
            prefix: *prefix,
            source: self.source_of(path.source),
            best: false,
            multipath: false,
            accepted: path.accepted.is_some(),
            stale: path.stale,
            next_hop: attributes.next_hop.address,
            local_pref: attributes
                .local_pref
                .unwrap_or(self.core.context.default_local_pref),
            med: attributes.med,
            origin: attributes.origin,
            as_path: attributes.as_path.to_string(),
            communities: attributes.communities.clone(),
            large_communities: attributes.large_communities.clone(),
            originator_id: attributes.originator_id,
            cluster_list: attributes.cluster_list.clone(),
            reason: String::new(),
        }
    }

    fn source_of(&self, source: SourceId) -> RouteSource {
        let facts = self.core.context.sources.get(&source);
        match (self.peers.get(&source), facts) {
            (Some(peer), Some(facts)) => RouteSource::Peer {
                peer: peer.config.key.clone(),
                router_id: facts.router_id,
                external: facts.kind == Source::External,
            },
            _ => RouteSource::Local,
        }
    }

    /// What a peer was told, with the attributes it was sent.
    fn advertised(&self, address: IpAddr, prefixes: &[IpNet]) -> Vec<RouteView> {
        let Some(peer) = self
            .peers
            .values()
            .find(|peer| peer.config.key.address == address)
        else {
            return Vec::new();
        };
        let view = |prefix: &IpNet| {
            let attributes = peer.out[slot(Family::of_prefix(prefix))].get(prefix)?;
            let path = self.core.table.selected(prefix).first()?;
            Some(RouteView {
                best: true,
                multipath: true,
                reason: "advertised".to_owned(),
                ..self.view(prefix, path, attributes)
            })
        };
        prefixes.iter().filter_map(view).collect()
    }
}

/// The longest prefix that covers an address and is in the table.
fn longest_match(address: IpAddr, exists: impl Fn(&IpNet) -> bool) -> Option<IpNet> {
    let longest = Family::of(address).max_prefix_len();
    (0..=longest)
        .rev()
        .filter_map(|length| IpNet::new(address, length).ok())
        .map(|prefix| prefix.trunc())
        .find(exists)
}
