//! One TCP connection to a peer and the state machine on it (RFC 4271 section 8.2.2).
//!
//! Idle, Connect and Active are states of the *peer* (is it dialling, waiting, holding back); a
//! connection begins with dialling or with being accepted and has these states:
//!
//! ```text
//! Dialling -> OpenSent -> OpenConfirm -> Established
//! ```

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::Session;
use crate::PeerState;
use crate::speaker::ConnectionId;
use crate::wire::{MAX_LENGTH, Open};

/// Hold time until the peer's OPEN is there (RFC 4271 section 8.2.2: "a large value").
const OPEN_HOLD: Duration = Duration::from_secs(240);
/// Shortest send hold time (RFC 9687 section 3.1).
const MIN_SEND_HOLD: Duration = Duration::from_secs(480);

/// When something is due on a negotiated session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionTimers {
    /// Hold timer; `None` with hold time 0.
    pub(crate) hold: Option<Instant>,
    /// Keepalive timer; `None` with hold time 0.
    pub(crate) keepalive: Option<Instant>,
}

/// State of a connection, with the data that is valid in it.
#[derive(Debug)]
pub(crate) enum ConnectionState {
    /// TCP handshake under way.
    Dialling,
    /// OPEN sent, waiting for the peer's.
    OpenSent {
        /// Our OPEN.
        ours: Box<Open>,
        /// When waiting ends.
        hold: Instant,
    },
    /// Both OPENs exchanged, waiting for the peer's KEEPALIVE.
    OpenConfirm {
        session: Box<Session>,
        timers: SessionTimers,
    },
    /// Exchanging routes.
    Established {
        session: Box<Session>,
        timers: SessionTimers,
        since: Instant,
    },
}

/// Octets handed to the driver and not yet taken by the kernel.
#[derive(Debug)]
pub(crate) struct Flow {
    unsent: usize,
    progress: Instant,
}

impl Flow {
    /// Above this nothing is produced: the rest waits as prefixes, not as octets.
    const HIGH: usize = 256 * 1024;

    fn new(now: Instant) -> Self {
        Flow {
            unsent: 0,
            progress: now,
        }
    }

    /// Records octets handed over.
    pub(crate) fn queue(&mut self, octets: usize, now: Instant) {
        if self.unsent == 0 {
            self.progress = now;
        }
        self.unsent += octets;
    }

    /// Records octets the kernel took.
    pub(crate) fn sent(&mut self, octets: usize, now: Instant) {
        self.unsent = self.unsent.saturating_sub(octets);
        self.progress = now;
    }

    /// True when more may be produced.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent < Self::HIGH
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    /// Dialled by this side.
    pub(crate) outgoing: bool,
    /// Local address, once connected.
    pub(crate) local: Option<IpAddr>,
    /// Link-local IPv6 address of the interface, when known.
    pub(crate) link_local: Option<Ipv6Addr>,
    pub(crate) state: ConnectionState,
    /// Octets of an incomplete message.
    pub(crate) partial: BytesMut,
    pub(crate) flow: Flow,
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, outgoing: bool, now: Instant) -> Self {
        Connection {
            id,
            outgoing,
            local: None,
            link_local: None,
            state: ConnectionState::Dialling,
            partial: BytesMut::new(),
            flow: Flow::new(now),
        }
    }

    /// Enters OpenSent.
    pub(crate) fn open_sent(&mut self, ours: Open, now: Instant) {
        self.state = ConnectionState::OpenSent {
            ours: Box::new(ours),
            hold: now + OPEN_HOLD,
        };
    }

    /// What was negotiated, from OpenConfirm on.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.state {
            ConnectionState::OpenConfirm { session, .. }
            | ConnectionState::Established { session, .. } => Some(session),
            _ => None,
        }
    }

    /// The session when routes are exchanged.
    pub(crate) fn established(&self) -> Option<&Session> {
        match &self.state {
            ConnectionState::Established { session, .. } => Some(session),
            _ => None,
        }
    }

    /// Longest message that may be received.
    pub(crate) fn max_length(&self) -> usize {
        self.session()
            .map_or(MAX_LENGTH, |session| session.max_length)
    }

    /// The state as the RFC names it.
    pub(crate) fn peer_state(&self) -> PeerState {
        match self.state {
            ConnectionState::Dialling => PeerState::Connect,
            ConnectionState::OpenSent { .. } => PeerState::OpenSent,
            ConnectionState::OpenConfirm { .. } => PeerState::OpenConfirm,
            ConnectionState::Established { .. } => PeerState::Established,
        }
    }

    /// Restarts the hold timer: a KEEPALIVE or UPDATE came, or octets are waiting to be read.
    pub(crate) fn heard(&mut self, now: Instant) {
        if let ConnectionState::OpenConfirm { session, timers }
        | ConnectionState::Established {
            session, timers, ..
        } = &mut self.state
            && timers.hold.is_some()
        {
            timers.hold = Some(now + session.hold);
        }
    }

    /// When the connection is given up because the peer is silent.
    pub(crate) fn hold_deadline(&self) -> Option<Instant> {
        match &self.state {
            ConnectionState::Dialling => None,
            ConnectionState::OpenSent { hold, .. } => Some(*hold),
            ConnectionState::OpenConfirm { timers, .. }
            | ConnectionState::Established { timers, .. } => timers.hold,
        }
    }

    /// When the next KEEPALIVE is due.
    pub(crate) fn keepalive_deadline(&self) -> Option<Instant> {
        match &self.state {
            ConnectionState::OpenConfirm { timers, .. }
            | ConnectionState::Established { timers, .. } => timers.keepalive,
            _ => None,
        }
    }

    /// When the connection is given up because the peer does not read (RFC 9687).
    pub(crate) fn send_hold_deadline(&self) -> Option<Instant> {
        if self.flow.unsent == 0 {
            return None;
        }
        let hold = self
            .session()
            .map_or(Duration::ZERO, |session| session.hold * 2);
        Some(self.flow.progress + hold.max(MIN_SEND_HOLD))
    }

    /// The earliest of all.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        [
            self.hold_deadline(),
            self.keepalive_deadline(),
            self.send_hold_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
