//! Messages of a peer and the transitions they cause (RFC 4271 section 8.2.2).

use std::time::Instant;

use bytes::BytesMut;

use super::ConnectionId;
use super::core::{Core, slot};
use super::lose::Loss;
use super::peer::Peer;
use crate::Families;
use crate::session::{
    ConnectionState, Session, SessionTimers, dialled_by_us_survives, jitter, negotiate,
};
use crate::wire::{Message, Notification, Open, cease, code, fsm_error, keepalive, next_message};

impl Peer {
    /// Octets came in: handles every complete message.
    pub(super) fn received(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        octets: BytesMut,
        now: Instant,
    ) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let mut buffer = std::mem::take(&mut connection.partial);
        if buffer.is_empty() {
            buffer = octets;
        } else {
            buffer.unsplit(octets);
        }
        loop {
            let Some(connection) = self.connection(id) else {
                return;
            };
            match next_message(&mut buffer, connection.max_length()) {
                Ok(Some(message)) => {
                    self.counters.messages_in += 1;
                    self.handle(core, id, message, now);
                }
                Ok(None) => {
                    // A copy of its own size: the large buffer goes back to the pool.
                    connection.partial = BytesMut::from(&buffer[..]);
                    return;
                }
                Err(notification) => return self.fail(core, id, notification, now),
            }
        }
    }

    fn handle(&mut self, core: &mut Core, id: ConnectionId, message: Message, now: Instant) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let unexpected = match (&connection.state, &message) {
            (_, Message::Notification(_)) => None,
            (ConnectionState::Dialling, _) => return,
            (ConnectionState::OpenSent { .. }, Message::Open(_)) => None,
            (ConnectionState::OpenSent { .. }, _) => Some(fsm_error::OPEN_SENT),
            (ConnectionState::OpenConfirm { .. }, Message::Keepalive | Message::Update(_)) => None,
            (ConnectionState::OpenConfirm { .. }, _) => Some(fsm_error::OPEN_CONFIRM),
            (ConnectionState::Established { .. }, Message::Open(_)) => Some(fsm_error::ESTABLISHED),
            (ConnectionState::Established { .. }, _) => None,
        };
        if let Some(subcode) = unexpected {
            return self.fail(core, id, Notification::new(code::FSM, subcode), now);
        }
        match message {
            Message::Open(open) => self.opened(core, id, &open, now),
            Message::Notification(notification) => {
                self.lose(core, id, Loss::Received(notification), now);
            }
            Message::Keepalive => {
                connection.heard(now);
                self.confirmed(core, id, now);
            }
            Message::Update(body) => {
                // Some stacks send no KEEPALIVE here: an UPDATE implies it.
                connection.heard(now);
                self.confirmed(core, id, now);
                self.learn(core, id, &body, now);
            }
            Message::RouteRefresh(refresh) => {
                if let Some(refresh) = refresh {
                    self.refresh(core, id, refresh, now);
                }
            }
        }
    }

    /// The peer's OPEN: OpenSent to OpenConfirm, unless a collision ends the connection.
    fn opened(&mut self, core: &mut Core, id: ConnectionId, open: &Open, now: Instant) {
        let Some(connection) = self.connections.iter().find(|c| c.id == id) else {
            return;
        };
        let ConnectionState::OpenSent { ours, .. } = &connection.state else {
            return;
        };
        let session = match negotiate(&self.config, ours, open) {
            Ok(session) => session,
            Err(notification) => return self.fail(core, id, notification, now),
        };
        let us = (ours.identifier, ours.as_number);
        if !self.survives_collision(core, id, us, &session, now) {
            return;
        }
        let next = |after: std::time::Duration| (!session.hold.is_zero()).then(|| now + after);
        let timers = SessionTimers {
            hold: next(session.hold),
            keepalive: next(jitter(session.keepalive, &mut core.random)),
        };
        if let Some(connection) = self.connection(id) {
            connection.state = ConnectionState::OpenConfirm {
                session: Box::new(session),
                timers,
            };
        }
        self.send(core, id, keepalive(), 1, now);
    }

    /// Settles which connection of several stays (RFC 4271 section 6.8). Both sides know both
    /// identifiers once one OPEN is there, so both decide alike without waiting for the other.
    fn survives_collision(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        us: (std::net::Ipv4Addr, u32),
        session: &Session,
        now: Instant,
    ) -> bool {
        let collision = || Notification::new(code::CEASE, cease::COLLISION);
        let settling = self.config.timers.connect_retry * 2;
        let ours_survives = dialled_by_us_survives(us, (session.peer_id, session.peer_as));
        let outgoing = self
            .connection(id)
            .is_some_and(|connection| connection.outgoing);
        let others: Vec<ConnectionId> = self
            .connections
            .iter()
            .map(|c| c.id)
            .filter(|other| *other != id)
            .collect();
        for other in others {
            let Some(connection) = self.connection(other) else {
                continue;
            };
            match &connection.state {
                ConnectionState::Dialling => self.lose(core, other, Loss::Superseded, now),
                ConnectionState::Established {
                    session: old,
                    since,
                    ..
                } => {
                    let settled = now.saturating_duration_since(*since) > settling;
                    let announced = session.restart.as_ref().is_some_and(|r| r.restarted);
                    if old.restart.is_some() && (announced || settled) {
                        // RFC 4724 section 4.2: the peer has restarted; no word on the old one.
                        self.lose(core, other, Loss::Superseded, now);
                    } else {
                        self.fail(core, id, collision(), now);
                        return false;
                    }
                }
                ConnectionState::OpenSent { .. } | ConnectionState::OpenConfirm { .. } => {
                    let other_outgoing = connection.outgoing;
                    if other_outgoing != outgoing && outgoing != ours_survives {
                        self.fail(core, id, collision(), now);
                        return false;
                    }
                    self.fail(core, other, collision(), now);
                }
            }
        }
        true
    }

    /// OpenConfirm to Established.
    fn confirmed(&mut self, core: &mut Core, id: ConnectionId, now: Instant) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let ConnectionState::OpenConfirm { session, timers } = &connection.state else {
            return;
        };
        let session = session.clone();
        connection.state = ConnectionState::Established {
            session: session.clone(),
            timers: *timers,
            since: now,
        };
        self.retry_at = None;
        self.since = now;
        self.last_error = None;
        self.was_established = true;
        tracing::info!(
            peer = %self.config.key,
            name = %self.config.name,
            peer_as = session.peer_as,
            router_id = %session.peer_id,
            capabilities = ?session.capability_names(),
            "BGP session established"
        );
        self.adopt_stale(core, &session, now);
        core.recovery.session_up(now);
        self.awaited = match &session.restart {
            Some(restart) if !restart.restarted => self
                .awaited
                .intersection(restart.families)
                .intersection(session.families),
            _ => Families::NONE,
        };
        for family in session.families.iter() {
            let out = &mut self.out[slot(family)];
            out.clear();
            core.table
                .selected_prefixes(family)
                .for_each(|prefix| out.mark(prefix));
        }
        core.busy.insert(self.id);
    }

    /// Decides about routes kept over the peer's absence (RFC 4724 section 4.2).
    fn adopt_stale(&mut self, core: &mut Core, session: &Session, now: Instant) {
        let facts = self.facts(session);
        let before = core.context.sources.insert(self.id, facts);
        let same = before
            .is_some_and(|b| b.router_id == facts.router_id && b.as_number == facts.as_number);
        let preserved = match &session.restart {
            Some(restart) if same => restart.forwarding.intersection(session.families),
            _ => Families::NONE,
        };
        for family in crate::Family::ALL {
            if self.stale_until[slot(family)].is_none() {
                continue;
            }
            if preserved.contains(family) {
                let cap = self.config.graceful_restart.stale_cap;
                self.stale_until[slot(family)] = Some(now + cap);
            } else {
                self.end_stale(core, family);
            }
        }
    }
}
