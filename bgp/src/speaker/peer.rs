//! One neighbour: its configuration, connections, counters and tables.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::core::{Core, slot};
use super::{Action, ConnectionId};
use crate::policy::Source;
use crate::rib::{AdjOut, ExportSession, SourceFacts, SourceId};
use crate::session::{Backoff, Connection, Session};
use crate::wire::Notification;
use crate::{Families, Family, PeerConfig, PeerState};

/// A passive peer that stays silent this long after a start is not waited for.
const SILENT_PASSIVE: Duration = Duration::from_secs(10);

/// Counters of a peer.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) flaps: u64,
    pub(super) messages_in: u64,
    pub(super) messages_out: u64,
    pub(super) treated_as_withdraw: u64,
    pub(super) attributes_discarded: u64,
    /// Per family: received and accepted prefixes.
    pub(super) received: [i64; 2],
    pub(super) accepted: [i64; 2],
}

/// What is still to be sent after the queue of a family has run empty.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Markers {
    /// End-of-RIB has been sent, or is not needed.
    pub(super) end_of_rib_sent: bool,
    /// An answer to a refresh request is under way.
    pub(super) refreshing: bool,
    /// A prefix limit warning was given.
    pub(super) limit_warned: bool,
}

/// One neighbour.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(super) id: SourceId,
    pub(super) config: PeerConfig,
    pub(super) connections: Vec<Connection>,
    /// When to dial next; `None` while connected or passive.
    pub(super) retry_at: Option<Instant>,
    /// Incoming connections are refused until then (prefix limit).
    pub(super) refuse_until: Option<Instant>,
    pub(super) backoff: Backoff,
    pub(super) since: Instant,
    pub(super) last_error: Option<String>,
    pub(super) counters: Counters,
    pub(super) out: [AdjOut; 2],
    pub(super) markers: [Markers; 2],
    /// When stale routes of a family go.
    pub(super) stale_until: [Option<Instant>; 2],
    /// Families whose End-of-RIB recovery waits for.
    pub(super) awaited: Families,
    pub(super) silent_at: Option<Instant>,
    pub(super) was_established: bool,
    pub(super) armed: Option<Instant>,
}

impl Peer {
    pub(super) fn new(id: SourceId, config: PeerConfig, recovering: bool, now: Instant) -> Self {
        Peer {
            id,
            awaited: if recovering {
                config.families
            } else {
                Families::NONE
            },
            silent_at: (recovering && config.passive).then(|| now + SILENT_PASSIVE),
            config,
            connections: Vec::new(),
            retry_at: None,
            refuse_until: None,
            backoff: Backoff::default(),
            since: now,
            last_error: None,
            counters: Counters::default(),
            out: Default::default(),
            markers: Default::default(),
            stale_until: [None; 2],
            was_established: false,
            armed: None,
        }
    }

    /// A connection by name.
    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections
            .iter_mut()
            .find(|connection| connection.id == id)
    }

    /// The connection routes are exchanged on.
    pub(super) fn established(&self) -> Option<(&Connection, &Session)> {
        self.connections
            .iter()
            .find_map(|c| c.established().map(|session| (c, session)))
    }

    /// Families of the established session.
    pub(super) fn established_families(&self) -> Option<Families> {
        self.established().map(|(_, session)| session.families)
    }

    /// State of the peer: that of its most advanced connection.
    pub(super) fn state(&self) -> PeerState {
        let best = self.connections.iter().map(Connection::peer_state).max();
        match best {
            Some(state) => state,
            None if self.refuse_until.is_some() => PeerState::Idle,
            None => PeerState::Active,
        }
    }

    /// The earliest timer.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self.silent_at.filter(|_| !self.awaited.is_empty());
        self.connections
            .iter()
            .filter_map(Connection::deadline)
            .chain(
                [self.retry_at, silent, self.refuse_until]
                    .into_iter()
                    .flatten(),
            )
            .chain(self.stale_until.into_iter().flatten())
            .min()
    }

    /// Queues octets on a connection.
    pub(super) fn send(
        &mut self,
        core: &mut Core,
        connection: ConnectionId,
        octets: Bytes,
        messages: u64,
        now: Instant,
    ) {
        if let Some(open) = self.connection(connection) {
            open.flow.queue(octets.len(), now);
            self.counters.messages_out += messages;
            core.actions.push_back(Action::Send { connection, octets });
        }
    }

    /// Records an error for the operator. The same error again is not news.
    pub(super) fn note_error(&mut self, text: String) {
        if self.last_error.as_deref() != Some(&text) {
            tracing::info!(
                peer = %self.config.key,
                name = %self.config.name,
                error = %text,
                "BGP session error"
            );
        }
        self.last_error = Some(text);
    }

    /// Counts of a family after a change.
    pub(super) fn count(&mut self, family: Family, received: i64, accepted: i64) {
        let slot = slot(family);
        self.counters.received[slot] += received;
        self.counters.accepted[slot] += accepted;
    }

    /// Facts for decisions and exports, once the peer's identity is known.
    pub(super) fn facts(&self, session: &Session) -> SourceFacts {
        SourceFacts {
            kind: if session.external {
                Source::External
            } else {
                Source::Internal
            },
            router_id: session.peer_id,
            address: self.config.key.address,
            as_number: session.peer_as,
            client: self.config.rr_client,
        }
    }

    /// The session as exports see it.
    pub(super) fn export_session(&self, core: &Core) -> Option<(ConnectionId, ExportSession)> {
        let (connection, session) = self.established()?;
        let v4 = |address: IpAddr| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        };
        let v6 = |address: IpAddr| match address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        };
        let local = self.config.local_address.or(connection.local);
        Some((
            connection.id,
            ExportSession {
                peer: self.id,
                external: session.external,
                client: self.config.rr_client,
                local_as: self.config.local_as,
                cluster_id: core.config.cluster_id(),
                next_hop: self.config.next_hop,
                self_ipv4: self.config.self_ipv4.or(local.and_then(v4)),
                self_ipv6: self
                    .config
                    .self_ipv6
                    .or(local.and_then(v6))
                    .or(connection.link_local),
                remote: self.config.key.address,
                extended_next_hop: session.extended_next_hop,
                default_local_pref: core.config.default_local_pref,
            },
        ))
    }

    /// Identifier of the peer, from OpenConfirm on.
    pub(super) fn router_id(&self) -> Option<Ipv4Addr> {
        self.connections
            .iter()
            .find_map(Connection::session)
            .map(|session| session.peer_id)
    }

    /// Words for a NOTIFICATION received.
    pub(super) fn received_words(notification: &Notification) -> String {
        format!("received {notification}")
    }
}
