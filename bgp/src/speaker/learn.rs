//! Routes of a peer on their way into the table: UPDATE, loop checks, import policy.

use std::sync::Arc;
use std::time::Instant;

use bytes::{BufMut, BytesMut};
use ipnet::IpNet;

use super::ConnectionId;
use super::core::{Core, slot};
use super::peer::Peer;
use crate::policy::{Source, Subject};
use crate::rib::{Interner, Path, SourceFacts};
use crate::wire::{Attributes, Community, Notification, Update, UpdateContext, cease, code};
use crate::{Families, Family, LocalRoute, MaxPrefixesAction, PeerConfig, RecoveryEvent};

/// What import policy made of a route.
struct Imported {
    accepted: Option<Arc<Attributes>>,
    preference: u32,
}

impl Peer {
    /// Applies an UPDATE.
    pub(super) fn learn(&mut self, core: &mut Core, id: ConnectionId, body: &[u8], now: Instant) {
        let Some(connection) = self.connections.iter().find(|c| c.id == id) else {
            return;
        };
        let Some(session) = connection.established() else {
            return;
        };
        let context = UpdateContext {
            external: session.external,
            wide_as: session.wide_as,
            families: session.families,
            add_path: Families::NONE,
            extended_next_hop: session.extended_next_hop,
            local_address: connection.local,
        };
        let update = match Update::decode(body, &context) {
            Ok(update) => update,
            Err(notification) => return self.fail(core, id, notification, now),
        };
        self.counters.attributes_discarded += u64::from(update.discarded);
        if let Some(fault) = &update.fault {
            self.counters.treated_as_withdraw += 1;
            tracing::warn!(
                peer = %self.config.key,
                %fault,
                prefixes = update.withdrawn.len(),
                "malformed UPDATE treated as withdrawal"
            );
        }
        let facts = self.facts(session);
        for nlri in &update.withdrawn {
            self.unlearn(core, &nlri.prefix, nlri.path_id);
        }
        for reachable in update.reachable {
            let attributes = Attributes {
                next_hop: reachable.next_hop,
                ..update.attributes.clone()
            };
            if loops(&attributes, &self.config, &facts, core) {
                for nlri in &reachable.prefixes {
                    self.unlearn(core, &nlri.prefix, nlri.path_id);
                }
                continue;
            }
            let received = core.interner.intern(attributes);
            for nlri in &reachable.prefixes {
                let imported = self.import(
                    nlri.prefix,
                    &received,
                    &facts,
                    core.config.default_local_pref,
                    &mut core.interner,
                );
                let path = Path {
                    source: self.id,
                    path_id: nlri.path_id,
                    received: Arc::clone(&received),
                    accepted: imported.accepted,
                    preference: imported.preference,
                    stale: false,
                };
                let change = core.table.insert(nlri.prefix, path);
                self.count(
                    Family::of_prefix(&nlri.prefix),
                    change.received,
                    change.accepted,
                );
            }
        }
        if let Some(family) = update.end_of_rib {
            self.end_of_rib(core, family);
        }
        self.check_limit(core, id, now);
    }

    fn unlearn(&mut self, core: &mut Core, prefix: &IpNet, path_id: u32) {
        let change = core.table.remove(prefix, self.id, path_id);
        self.count(Family::of_prefix(prefix), change.received, change.accepted);
    }

    /// The peer has sent everything it has.
    fn end_of_rib(&mut self, core: &mut Core, family: Family) {
        self.end_stale(core, family);
        self.awaited.remove(family);
        core.events.push(RecoveryEvent::EndOfRib {
            peer: self.config.key.clone(),
            family,
        });
    }

    fn import(
        &self,
        prefix: IpNet,
        received: &Arc<Attributes>,
        facts: &SourceFacts,
        default_local_pref: u32,
        interner: &mut Interner,
    ) -> Imported {
        let shut_down = facts.kind == Source::External
            && self.config.honour_graceful_shutdown
            && received.has_community(Community::GRACEFUL_SHUTDOWN);
        let base = if shut_down {
            // RFC 8326 section 4.2.
            interner.intern(Attributes {
                local_pref: Some(0),
                ..received.as_ref().clone()
            })
        } else {
            Arc::clone(received)
        };
        let decision = self.config.import.apply(Subject {
            prefix,
            source: facts.kind,
            attributes: &base,
            default_local_pref,
        });
        let Some(decision) = decision else {
            let preference = LocalRoute::LEARNED_PREFERENCE;
            return Imported {
                accepted: None,
                preference,
            };
        };
        let preference = decision
            .preference
            .unwrap_or(LocalRoute::LEARNED_PREFERENCE);
        let changed = match decision.attributes {
            std::borrow::Cow::Borrowed(_) if decision.prepend.is_empty() => None,
            attributes => {
                let mut attributes = attributes.into_owned();
                decision
                    .prepend
                    .iter()
                    .rev()
                    .for_each(|n| attributes.as_path.prepend(*n));
                Some(attributes)
            }
        };
        let accepted = match changed {
            Some(attributes) => interner.intern(attributes),
            None => base,
        };
        Imported {
            accepted: Some(accepted),
            preference,
        }
    }

    /// Puts every route of the peer through the import policy again.
    pub(super) fn reimport(&mut self, core: &mut Core) {
        let Some(facts) = core.context.sources.get(&self.id).copied() else {
            return;
        };
        let default_local_pref = core.config.default_local_pref;
        let Core {
            table, interner, ..
        } = core;
        let mut accepted = [0i64; 2];
        table.reconsider(self.id, |prefix, path| {
            let imported = self.import(
                *prefix,
                &path.received,
                &facts,
                default_local_pref,
                interner,
            );
            let slot = slot(Family::of_prefix(prefix));
            accepted[slot] += i64::from(imported.accepted.is_some());
            let same = match (&path.accepted, &imported.accepted) {
                (Some(old), Some(new)) => Arc::ptr_eq(old, new),
                (None, None) => true,
                _ => false,
            };
            let changed = !same || path.preference != imported.preference;
            path.accepted = imported.accepted;
            path.preference = imported.preference;
            changed
        });
        self.counters.accepted = accepted;
    }

    /// Enforces the prefix limit (RFC 4486 section 4).
    fn check_limit(&mut self, core: &mut Core, id: ConnectionId, now: Instant) {
        let Some(limit) = self.config.max_prefixes else {
            return;
        };
        for family in Family::ALL {
            let slot = slot(family);
            let received = self.counters.received[slot].unsigned_abs();
            let allowed = u64::from(limit.limit);
            if received > allowed && limit.action == MaxPrefixesAction::Restart {
                let mut data = BytesMut::with_capacity(7);
                data.put_u16(family.afi());
                data.put_u8(1);
                data.put_u32(limit.limit);
                let notification =
                    Notification::with_data(code::CEASE, cease::MAX_PREFIXES, data.freeze());
                self.fail(core, id, notification, now);
                let wait = self
                    .backoff
                    .error(now, &self.config.timers, &mut core.random);
                self.refuse_until = Some(now + wait);
                if !self.config.passive {
                    self.retry_at = self.refuse_until;
                }
                return;
            }
            if received > allowed * 3 / 4 && !self.markers[slot].limit_warned {
                self.markers[slot].limit_warned = true;
                tracing::warn!(
                    peer = %self.config.key,
                    %family,
                    received,
                    limit = limit.limit,
                    "peer is near or above its prefix limit"
                );
            }
        }
    }
}

/// Routes that have been here before (RFC 4271 section 9.1.2, RFC 4456 section 8), or that do not
/// begin with the peer's AS where that is demanded.
fn loops(attributes: &Attributes, config: &PeerConfig, facts: &SourceFacts, core: &Core) -> bool {
    let own_as = attributes.as_path.count(config.local_as) > usize::from(config.allow_own_as);
    let first_as = config.enforce_first_as
        && facts.kind == Source::External
        && attributes.as_path.first() != Some(facts.as_number);
    let originator = attributes.originator_id == Some(core.config.router_id);
    let cluster = attributes.cluster_list.contains(&core.config.cluster_id());
    own_as || first_as || originator || cluster
}
