//! Dialling, being dialled, and sending the OPEN.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use super::core::Core;
use super::lose::Loss;
use super::peer::Peer;
use super::{Accepted, Action, ConnectionId, Dial};
use crate::session::{Connection, ConnectionState, our_open};

impl Peer {
    /// Begins: the first dial is due after a short wait.
    pub(super) fn start(&mut self, core: &mut Core, now: Instant) {
        if !self.config.passive {
            let wait = crate::session::jitter(self.config.timers.first_dial, &mut core.random);
            self.retry_at = Some(now + wait);
        }
    }

    /// Dials unless a connection makes it needless.
    pub(super) fn dial(&mut self, core: &mut Core, now: Instant) {
        self.retry_at = None;
        let is_busy = |c: &Connection| c.outgoing || c.session().is_some();
        if self.config.passive || self.connections.iter().any(is_busy) {
            return;
        }
        let id = core.connection(self.id);
        self.connections.push(Connection::new(id, true, now));
        core.actions.push_back(Action::Dial(Box::new(Dial {
            connection: id,
            peer: self.config.key.clone(),
            local_address: self.config.local_address,
            ttl: self.config.ttl,
            password: self.config.password.clone(),
            timeout: self.config.timers.connect_timeout,
            hold: self.config.timers.hold,
        })));
    }

    /// The dial succeeded: OPEN goes out.
    pub(super) fn dialled(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        local: IpAddr,
        link_local: Option<Ipv6Addr>,
        now: Instant,
    ) {
        if let Some(connection) = self.connection(id)
            && matches!(connection.state, ConnectionState::Dialling)
        {
            connection.local = Some(local);
            connection.link_local = link_local;
            self.send_open(core, id, now);
        }
    }

    /// The dial failed: try again later, keep listening.
    pub(super) fn dial_failed(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        reason: &str,
        now: Instant,
    ) {
        // A peer that cannot be reached is not waited for (RFC 4724 section 4.1).
        self.awaited = crate::Families::NONE;
        self.lose(core, id, Loss::Unreachable(reason.to_owned()), now);
    }

    /// The peer dialled.
    pub(super) fn accept(
        &mut self,
        core: &mut Core,
        local: IpAddr,
        now: Instant,
    ) -> Option<Accepted> {
        if self.refuse_until.is_some_and(|until| now < until) {
            return None;
        }
        // An earlier incoming connection without an OPEN is a leftover of the peer.
        let leftover =
            |c: &&Connection| !c.outgoing && matches!(c.state, ConnectionState::OpenSent { .. });
        if let Some(id) = self.connections.iter().find(leftover).map(|c| c.id) {
            self.lose(core, id, Loss::Superseded, now);
        }
        let id = core.connection(self.id);
        let mut connection = Connection::new(id, false, now);
        connection.local = Some(local);
        self.connections.push(connection);
        self.send_open(core, id, now);
        Some(Accepted {
            connection: id,
            ttl: self.config.ttl,
            hold: self.config.timers.hold,
        })
    }

    fn send_open(&mut self, core: &mut Core, id: ConnectionId, now: Instant) {
        let open = our_open(
            &self.config,
            core.config.router_id,
            core.recovery.is_restarting(),
            core.forwarding(self.was_established),
        );
        let octets = open.encode();
        if let Some(connection) = self.connection(id) {
            connection.open_sent(open, now);
        }
        self.send(core, id, octets, 1, now);
    }
}
