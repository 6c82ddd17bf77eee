//! Changes of configuration: what resets a session and what does not.

use std::collections::BTreeMap;
use std::time::Instant;

use ipnet::IpNet;

use super::Speaker;
use super::core::{Core, slot};
use super::lose::Loss;
use super::peer::Peer;
use crate::rib::{FastMap, Path, SourceId};
use crate::wire::{Attributes, NextHop, Notification, cease, code};
use crate::{ConfigError, Family, LocalRoute, NextHops, PeerConfig, PeerKey, SpeakerConfig};

impl Speaker {
    /// Replaces the speaker's settings, see [`crate::SpeakerHandle::configure`].
    ///
    /// # Errors
    /// A value out of range; nothing has changed.
    pub fn configure(&mut self, config: SpeakerConfig, now: Instant) -> Result<(), ConfigError> {
        config.validate()?;
        let old = std::mem::replace(&mut self.core.config, config);
        let config = &self.core.config;
        self.core.context.default_local_pref = config.default_local_pref;
        self.core.context.max_paths = usize::from(config.max_paths);
        if old.router_id != config.router_id {
            let facts = crate::rib::SourceFacts::local(config.router_id);
            self.core.context.sources.insert(SourceId::LOCAL, facts);
            for peer in self.peers.values_mut() {
                peer.reset(&mut self.core, now);
                self.core.arm(peer);
            }
        } else if old.cluster_id() != config.cluster_id() {
            self.export_again();
        }
        if old.default_local_pref != self.core.config.default_local_pref
            || old.max_paths != self.core.config.max_paths
        {
            self.core.table.touch_all();
        }
        Ok(())
    }

    /// The speaker's settings.
    pub fn config(&self) -> &SpeakerConfig {
        &self.core.config
    }

    /// Replaces all peers, see [`crate::SpeakerHandle::set_peers`].
    ///
    /// # Errors
    /// The first invalid peer; nothing has changed.
    pub fn set_peers(&mut self, peers: Vec<PeerConfig>, now: Instant) -> Result<(), ConfigError> {
        let mut wanted: BTreeMap<PeerKey, PeerConfig> = BTreeMap::new();
        for peer in peers {
            peer.validate()?;
            let key = peer.key.clone();
            if wanted.insert(key.clone(), peer).is_some() {
                return Err(ConfigError::DuplicatePeer(key));
            }
        }
        let (latest, after) = (
            now + self.core.config.max_deferral,
            self.core.config.deferral_after_last_session,
        );
        let first = self.core.recovery.begin(latest, after);
        let recovering = first && self.core.recovery.has_restarted();

        let existing: Vec<(SourceId, PeerKey)> = self
            .peers
            .iter()
            .map(|(id, peer)| (*id, peer.config.key.clone()))
            .collect();
        let mut orphans = Vec::new();
        for (id, key) in existing {
            match wanted.remove(&key) {
                Some(config) => self.change_peer(id, config, now),
                None => orphans.push((id, key)),
            }
        }
        for (id, key) in orphans {
            // A change of the port alone is the same neighbour.
            let same =
                |other: &PeerKey| other.address == key.address && other.interface == key.interface;
            match wanted.keys().find(|other| same(other)).cloned() {
                Some(renamed) => {
                    if let Some(config) = wanted.remove(&renamed) {
                        self.change_peer(id, config, now);
                    }
                }
                None => self.remove_peer(id, now),
            }
        }
        for config in wanted.into_values() {
            let id = self.core.source();
            let mut peer = Peer::new(id, config, recovering, now);
            peer.start(&mut self.core, now);
            self.core.arm(&mut peer);
            self.peers.insert(id, peer);
        }
        Ok(())
    }

    fn change_peer(&mut self, id: SourceId, config: PeerConfig, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        if peer.config == config {
            return;
        }
        peer.change(&mut self.core, config, now);
        self.core.arm(peer);
    }

    fn remove_peer(&mut self, id: SourceId, now: Instant) {
        let Some(mut peer) = self.peers.remove(&id) else {
            return;
        };
        let connections: Vec<_> = peer.connections.iter().map(|c| c.id).collect();
        for connection in connections {
            let notification = Notification::new(code::CEASE, cease::DECONFIGURED);
            peer.fail(&mut self.core, connection, notification, now);
        }
        for family in Family::ALL {
            peer.drop_routes(&mut self.core, family, false);
        }
        if let Some(armed) = peer.armed {
            self.core.deadlines.remove(&(armed, id));
        }
        self.core.context.sources.remove(&id);
        self.core.busy.remove(&id);
    }

    /// Replaces all local routes, see [`crate::SpeakerHandle::set_local_routes`].
    pub fn set_local_routes(&mut self, routes: Vec<LocalRoute>) {
        let first = !std::mem::replace(&mut self.core.local_known, true);
        let mut wanted: FastMap<IpNet, LocalRoute> = FastMap::default();
        for route in routes {
            let prefix = route.prefix.trunc();
            wanted.insert(prefix, LocalRoute { prefix, ..route });
        }
        let core = &mut self.core;
        for prefix in core
            .local
            .keys()
            .filter(|prefix| !wanted.contains_key(*prefix))
        {
            core.table.remove(prefix, SourceId::LOCAL, 0);
        }
        for (prefix, route) in &wanted {
            if core.local.get(prefix) != Some(route) {
                let attributes = core.interner.intern(local_attributes(route));
                core.table.insert(
                    *prefix,
                    Path {
                        source: SourceId::LOCAL,
                        path_id: 0,
                        received: std::sync::Arc::clone(&attributes),
                        accepted: Some(attributes),
                        preference: route.preference,
                        stale: false,
                    },
                );
            }
        }
        core.local = wanted;
        if first {
            core.busy.extend(self.peers.keys().copied());
        }
    }

    /// Replaces what is known about next hops, see [`crate::SpeakerHandle::set_next_hops`].
    pub fn set_next_hops(&mut self, next_hops: NextHops) {
        if self.core.context.next_hops != next_hops {
            self.core.context.next_hops = next_hops;
            self.core.table.touch_all();
        }
    }

    /// Resets a session with Cease 6/4; false when there is no such peer.
    pub fn reset(&mut self, key: &PeerKey, now: Instant) -> bool {
        let Some(peer) = self.peers.values_mut().find(|peer| peer.config.key == *key) else {
            return false;
        };
        let connections: Vec<_> = peer.connections.iter().map(|c| c.id).collect();
        for connection in connections {
            let notification = Notification::new(code::CEASE, cease::RESET);
            peer.fail(&mut self.core, connection, notification, now);
        }
        self.core.arm(peer);
        true
    }

    /// Asks a peer for its routes again; false when it cannot be asked.
    pub fn refresh(&mut self, key: &PeerKey, now: Instant) -> bool {
        match self.peers.values_mut().find(|peer| peer.config.key == *key) {
            Some(peer) => peer.request_refresh(&mut self.core, now),
            None => false,
        }
    }

    fn export_again(&mut self) {
        for peer in self.peers.values_mut() {
            peer.export_again(&mut self.core);
        }
    }
}

fn local_attributes(route: &LocalRoute) -> Attributes {
    let mut attributes = Attributes {
        next_hop: route.next_hop.map_or(NextHop::UNSPECIFIED, NextHop::from),
        med: route.med,
        local_pref: Some(route.local_pref),
        communities: route.communities.clone(),
        large_communities: route.large_communities.clone(),
        ..Attributes::default()
    };
    attributes.communities.sort_unstable();
    attributes.communities.dedup();
    attributes.large_communities.sort_unstable();
    attributes.large_communities.dedup();
    attributes
}

/// Parameters that are agreed on, or fixed, when a session begins.
fn needs_reset(old: &PeerConfig, new: &PeerConfig) -> bool {
    old.key.address != new.key.address
        || old.key.interface != new.key.interface
        || old.remote_as != new.remote_as
        || old.local_as != new.local_as
        || old.local_address != new.local_address
        || old.password != new.password
        || old.ttl != new.ttl
        || old.families != new.families
        || old.extended_next_hop != new.extended_next_hop
        || old.timers.hold != new.timers.hold
        || old.graceful_restart.mode != new.graceful_restart.mode
        || old.graceful_restart.time != new.graceful_restart.time
}

impl Peer {
    /// Takes over a changed configuration.
    fn change(&mut self, core: &mut Core, config: PeerConfig, now: Instant) {
        let old = std::mem::replace(&mut self.config, config);
        let new = &self.config;
        let (import, export) = (
            old.import != new.import
                || old.honour_graceful_shutdown != new.honour_graceful_shutdown,
            old.export != new.export
                || old.next_hop != new.next_hop
                || old.rr_client != new.rr_client
                || old.self_ipv4 != new.self_ipv4
                || old.self_ipv6 != new.self_ipv6,
        );
        let ask_again =
            old.allow_own_as != new.allow_own_as || old.enforce_first_as != new.enforce_first_as;
        if needs_reset(&old, new) {
            self.reset(core, now);
            return;
        }
        if old.passive != new.passive && self.connections.is_empty() {
            self.retry_at = None;
            self.start(core, now);
        }
        if old.rr_client != self.config.rr_client
            && let Some(facts) = core.context.sources.get_mut(&self.id)
        {
            facts.client = self.config.rr_client;
            core.table.reconsider(self.id, |_, _| true);
        }
        if import {
            self.reimport(core);
        }
        if export {
            self.export_again(core);
        }
        if ask_again {
            self.request_refresh(core, now);
        }
    }

    /// Begins anew. With graceful restart the peer keeps the routes meanwhile.
    fn reset(&mut self, core: &mut Core, now: Instant) {
        let connections: Vec<_> = self
            .connections
            .iter()
            .map(|c| {
                (
                    c.id,
                    c.established()
                        .is_some_and(|session| session.restart.is_some()),
                )
            })
            .collect();
        for (id, graceful) in connections {
            if graceful {
                self.lose(core, id, Loss::Planned, now);
            } else {
                let notification = Notification::new(code::CEASE, cease::CONFIGURATION);
                self.fail(core, id, notification, now);
            }
        }
        self.retry_at = None;
        self.start(core, now);
    }

    fn export_again(&mut self, core: &mut Core) {
        let Some(families) = self.established_families() else {
            return;
        };
        for family in families.iter() {
            let out = &mut self.out[slot(family)];
            core.table
                .selected_prefixes(family)
                .for_each(|prefix| out.mark(prefix));
        }
        core.busy.insert(self.id);
    }
}
