//! The end of a connection, and what becomes of its routes (RFC 4271 section 8.2.2, RFC 4724
//! section 4.2).

use std::time::Instant;

use super::core::{Core, slot};
use super::peer::Peer;
use super::{Action, ConnectionId};
use crate::session::{Connection, ConnectionState, Session, jitter};
use crate::wire::{Notification, cease, code};
use crate::{Families, Family};

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum Loss {
    /// TCP was closed or failed; the text says how.
    Closed(String),
    /// The dial never came through.
    Unreachable(String),
    /// This side ends it with a NOTIFICATION.
    Sent(Notification),
    /// The peer ended it with a NOTIFICATION.
    Received(Notification),
    /// The peer has opened another connection instead: it has restarted.
    Superseded,
    /// This side closes to begin anew with changed parameters; the peer keeps the routes.
    Planned,
}

impl Loss {
    /// Routes survive a loss of TCP, not a NOTIFICATION (RFC 4724 section 4.2).
    fn retains_routes(&self) -> bool {
        matches!(self, Loss::Closed(_) | Loss::Superseded | Loss::Planned)
    }

    fn is_collision(&self) -> bool {
        let (Loss::Sent(notification) | Loss::Received(notification)) = self else {
            return false;
        };
        (notification.code, notification.subcode) == (code::CEASE, cease::COLLISION)
    }

    /// True for what makes the next dial wait longer.
    fn is_error(&self) -> bool {
        match self {
            Loss::Sent(notification) | Loss::Received(notification) => {
                notification.code != code::CEASE
            }
            _ => false,
        }
    }
}

impl Peer {
    /// Ends a connection with a NOTIFICATION.
    pub(super) fn fail(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        notification: Notification,
        now: Instant,
    ) {
        let dialling = |c: &Connection| matches!(c.state, ConnectionState::Dialling);
        let loss = match self.connection(id) {
            // Nobody is there to hear it.
            Some(connection) if dialling(connection) => Loss::Superseded,
            _ => Loss::Sent(notification),
        };
        self.lose(core, id, loss, now);
    }

    /// Ends a connection.
    pub(super) fn lose(&mut self, core: &mut Core, id: ConnectionId, loss: Loss, now: Instant) {
        if let Loss::Sent(notification) = &loss {
            self.send(core, id, notification.encode(), 1, now);
        }
        let Some(at) = self.connections.iter().position(|c| c.id == id) else {
            return;
        };
        let connection = self.connections.swap_remove(at);
        core.owners.remove(&id);
        core.actions.push_back(Action::Close { connection: id });
        let was_established = connection.established().is_some();
        match &loss {
            Loss::Closed(reason) | Loss::Unreachable(reason) => self.note_error(reason.clone()),
            Loss::Sent(_) | Loss::Received(_) if loss.is_collision() && !was_established => {}
            Loss::Sent(notification) => self.note_error(format!("sent {notification}")),
            Loss::Received(notification) => self.note_error(Self::received_words(notification)),
            Loss::Superseded | Loss::Planned => {}
        }
        if let Some(session) = connection.established() {
            self.session_down(core, session, loss.retains_routes(), now);
        }
        if self.connections.is_empty() && !self.config.passive {
            let wait = if loss.is_error() {
                self.backoff
                    .error(now, &self.config.timers, &mut core.random)
            } else if was_established {
                jitter(self.config.timers.first_dial, &mut core.random)
            } else {
                jitter(self.config.timers.connect_retry, &mut core.random)
            };
            self.retry_at = Some(now + wait);
        }
    }

    fn session_down(&mut self, core: &mut Core, session: &Session, retain: bool, now: Instant) {
        self.since = now;
        self.counters.flaps += 1;
        let kept = match &session.restart {
            Some(restart) if retain && !restart.time.is_zero() => {
                session.families.intersection(restart.families)
            }
            _ => Families::NONE,
        };
        for family in session.families.iter() {
            self.out[slot(family)].clear();
            self.markers[slot(family)] = Default::default();
            if kept.contains(family) {
                // Routes still stale from an earlier restart have had their time.
                self.drop_routes(core, family, true);
                core.table.mark_stale(self.id, family);
                let time = session
                    .restart
                    .as_ref()
                    .map_or_else(Default::default, |r| r.time);
                self.stale_until[slot(family)] = Some(now + time);
            } else {
                self.drop_routes(core, family, false);
                self.stale_until[slot(family)] = None;
            }
        }
        tracing::info!(
            peer = %self.config.key,
            name = %self.config.name,
            kept = ?kept,
            "BGP session down"
        );
    }

    /// Removes routes of the peer in a family, all or only the stale ones.
    pub(super) fn drop_routes(&mut self, core: &mut Core, family: Family, only_stale: bool) {
        let change = core.table.remove_source(self.id, family, only_stale);
        self.count(family, change.received, change.accepted);
    }

    /// Stale routes of a family have had their time, or were all announced again.
    pub(super) fn end_stale(&mut self, core: &mut Core, family: Family) {
        if self.stale_until[slot(family)].take().is_some() {
            self.drop_routes(core, family, true);
        }
    }
}
