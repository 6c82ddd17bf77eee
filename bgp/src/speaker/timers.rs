//! Timers of a peer that have come.

use std::time::Instant;

use super::ConnectionId;
use super::core::{Core, slot};
use super::peer::Peer;
use crate::session::{ConnectionState, jitter};
use crate::wire::{Notification, code, keepalive};
use crate::{Families, Family};

impl Peer {
    /// Fires every timer that is due.
    pub(super) fn fire(&mut self, core: &mut Core, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let connections: Vec<ConnectionId> = self.connections.iter().map(|c| c.id).collect();
        for id in connections {
            let Some(connection) = self.connection(id) else {
                continue;
            };
            if due(connection.hold_deadline()) {
                self.fail(core, id, Notification::new(code::HOLD_TIMER, 0), now);
            } else if due(connection.send_hold_deadline()) {
                self.fail(core, id, Notification::new(code::SEND_HOLD_TIMER, 0), now);
            } else if due(connection.keepalive_deadline()) {
                self.keep_alive(core, id, now);
            }
        }
        if due(self.refuse_until) {
            self.refuse_until = None;
        }
        if due(self.retry_at) {
            self.dial(core, now);
        }
        if due(self.silent_at) {
            self.silent_at = None;
            if self.connections.is_empty() {
                self.awaited = Families::NONE;
            }
        }
        for family in Family::ALL {
            if due(self.stale_until[slot(family)]) {
                tracing::info!(peer = %self.config.key, %family, "stale routes have had their time");
                self.end_stale(core, family);
            }
        }
    }

    fn keep_alive(&mut self, core: &mut Core, id: ConnectionId, now: Instant) {
        self.send(core, id, keepalive(), 1, now);
        if let Some(connection) = self.connection(id)
            && let ConnectionState::OpenConfirm { session, timers }
            | ConnectionState::Established {
                session, timers, ..
            } = &mut connection.state
        {
            timers.keepalive = Some(now + jitter(session.keepalive, &mut core.random));
        }
    }
}
