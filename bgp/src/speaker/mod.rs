//! The speaker without sockets and clock.
//!
//! [`Speaker`] is a deterministic function of what it is told and when: octets and connection
//! events go in through its methods, [`Action`]s come out of [`Speaker::next_action`]. The driver
//! calls [`Speaker::flush`] after each batch of inputs (decisions are made and UPDATEs written once
//! per batch) and [`Speaker::advance`] when [`Speaker::deadline`] has come.
//!
//! [`Peer`] holds everything about one neighbour; [`Core`] what all share (table, decisions,
//! outgoing actions). The behaviour of a peer is spread over files by subject: dialling, receiving,
//! learning, advertising, losing a session, timers.

mod advertise;
mod configure;
mod core;
mod dialling;
mod learn;
mod lose;
mod peer;
mod receive;
mod recovery;
mod refresh;
mod timers;
mod views;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use self::core::Core;
use self::peer::Peer;
use crate::rib::SourceId;
use crate::{
    ConfigError, Password, PeerKey, RecoveryEvent, RouteChange, RoutePath, SpeakerConfig, Ttl,
};

/// Names a connection between the speaker and its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A connection the driver is asked to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dial {
    /// Its name.
    pub connection: ConnectionId,
    /// Whom to dial.
    pub peer: PeerKey,
    /// Source address, if one is prescribed.
    pub local_address: Option<IpAddr>,
    /// Hop limit.
    pub ttl: Ttl,
    /// TCP-MD5 key.
    pub password: Option<Password>,
    /// Longest time the attempt may take.
    pub timeout: Duration,
    /// Hold time proposed: unacknowledged octets may be as old.
    pub hold: Duration,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a connection; answer with [`Speaker::dialled`] or [`Speaker::dial_failed`].
    Dial(Box<Dial>),
    /// Send octets; answer with [`Speaker::sent`] as the kernel takes them.
    Send {
        /// The connection.
        connection: ConnectionId,
        /// One or more whole messages.
        octets: Bytes,
    },
    /// Send what is queued, then close. Also cancels a dial. Nothing more may be reported about it.
    Close {
        /// The connection.
        connection: ConnectionId,
    },
    /// The best paths of a prefix changed.
    Route(RouteChange),
    /// Recovery went on. Comes after the changes it speaks of.
    Recovery(RecoveryEvent),
}

/// Socket parameters of an expected incoming connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Its name.
    pub connection: ConnectionId,
    /// Hop limit to set.
    pub ttl: Ttl,
    /// Hold time proposed: unacknowledged octets may be as old.
    pub hold: Duration,
}

/// A BGP speaker.
#[derive(Debug)]
pub struct Speaker {
    peers: BTreeMap<SourceId, Peer>,
    core: Core,
}

impl Speaker {
    /// A speaker without peers. `seed` feeds the jitter of timers.
    ///
    /// # Errors
    /// The configuration is out of range.
    pub fn new(config: SpeakerConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Speaker {
            peers: BTreeMap::new(),
            core: Core::new(config, seed),
        })
    }

    /// The next thing to do, in order.
    pub fn next_action(&mut self) -> Option<Action> {
        self.core.actions.pop_front()
    }

    /// An incoming connection; `None`: nobody expects it, close it without a word. `interface` is
    /// the one of a link-local peer.
    pub fn accept(
        &mut self,
        remote: IpAddr,
        interface: Option<&str>,
        local: IpAddr,
        now: Instant,
    ) -> Option<Accepted> {
        let is_expected = |peer: &&mut Peer| {
            peer.config.key.address == remote
                && (peer.config.key.interface.is_none()
                    || peer.config.key.interface.as_deref() == interface)
        };
        let peer = self
            .peers
            .values_mut()
            .filter(is_expected)
            .min_by_key(|peer| peer.connections.len())?;
        let accepted = peer.accept(&mut self.core, local, now);
        self.rearm_of(accepted.as_ref().map(|accepted| accepted.connection));
        accepted
    }

    /// A dial succeeded.
    pub fn dialled(
        &mut self,
        connection: ConnectionId,
        local: IpAddr,
        link_local: Option<Ipv6Addr>,
        now: Instant,
    ) {
        self.with_connection(connection, |peer, core| {
            peer.dialled(core, connection, local, link_local, now);
        });
    }

    /// A dial failed; `reason` is shown to the operator.
    pub fn dial_failed(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        self.with_connection(connection, |peer, core| {
            peer.dial_failed(core, connection, reason, now);
        });
    }

    /// Octets came in.
    pub fn received(&mut self, connection: ConnectionId, octets: BytesMut, now: Instant) {
        self.with_connection(connection, |peer, core| {
            peer.received(core, connection, octets, now);
        });
    }

    /// Octets are waiting to be read: the peer is alive, however long the queue in front of
    /// [`Speaker::received`] is.
    pub fn heard(&mut self, connection: ConnectionId, now: Instant) {
        self.with_connection(connection, |peer, _| {
            if let Some(connection) = peer.connection(connection) {
                connection.heard(now);
            }
        });
    }

    /// The kernel took octets of [`Action::Send`].
    pub fn sent(&mut self, connection: ConnectionId, octets: usize, now: Instant) {
        self.with_connection(connection, |peer, core| {
            if let Some(connection) = peer.connection(connection) {
                connection.flow.sent(octets, now);
                core.busy.insert(peer.id);
            }
        });
    }

    /// The connection ended at the other side, or failed.
    pub fn closed(&mut self, connection: ConnectionId, reason: &str, now: Instant) {
        self.with_connection(connection, |peer, core| {
            peer.lose(core, connection, lose::Loss::Closed(reason.to_owned()), now);
        });
    }

    /// Decides what changed and writes what peers must be told.
    pub fn flush(&mut self, now: Instant) {
        self.check_recovery(now);
        self.decide();
        while let Some(id) = self.core.busy.pop_first() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.advertise(&mut self.core, now);
                self.core.arm(peer);
            }
        }
        self.core.finish_batch();
    }

    /// When [`Speaker::advance`] is due next.
    pub fn deadline(&self) -> Option<Instant> {
        let peers = self.core.deadlines.first().map(|(at, _)| *at);
        [peers, self.core.recovery.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets time pass: timers that are due fire.
    pub fn advance(&mut self, now: Instant) {
        while let Some((at, id)) = self.core.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.core.deadlines.pop_first();
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.armed = None;
                peer.fire(&mut self.core, now);
                self.core.arm(peer);
            }
        }
        self.check_recovery(now);
    }

    /// Connections that would be given up at `now`: the driver looks whether octets of theirs are
    /// still queued before it lets time pass.
    pub fn expiring(&self, now: Instant) -> Vec<ConnectionId> {
        let due = self.core.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.filter_map(|(_, id)| self.peers.get(id))
            .flat_map(|peer| &peer.connections)
            .filter(|connection| connection.hold_deadline().is_some_and(|at| at <= now))
            .map(|connection| connection.id)
            .collect()
    }

    fn with_connection(
        &mut self,
        connection: ConnectionId,
        act: impl FnOnce(&mut Peer, &mut Core),
    ) {
        let Some(id) = self.core.owners.get(&connection).copied() else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&id) {
            act(peer, &mut self.core);
            self.core.arm(peer);
        }
    }

    fn rearm_of(&mut self, connection: Option<ConnectionId>) {
        if let Some(connection) = connection {
            self.with_connection(connection, |_, _| {});
        }
    }

    /// Runs the decision process and queues its results for the forwarding table and the peers.
    fn decide(&mut self) {
        let Core {
            table,
            context,
            actions,
            installed,
            busy,
            ..
        } = &mut self.core;
        if !table.is_dirty() {
            return;
        }
        let mut changed = Vec::new();
        table.decide(context, |prefix, paths| {
            let learned = paths.iter().filter(|path| path.source != SourceId::LOCAL);
            let paths: Vec<RoutePath> = learned
                .filter_map(|path| core::route_path(path, context))
                .collect();
            changed.push((prefix, paths));
        });
        for (id, peer) in &mut self.peers {
            let Some(families) = peer.established_families() else {
                continue;
            };
            for (prefix, _) in &changed {
                let family = crate::Family::of_prefix(prefix);
                if families.contains(family) {
                    peer.out[core::slot(family)].mark(*prefix);
                    busy.insert(*id);
                }
            }
        }
        let interfaces = |paths: &mut Vec<RoutePath>, peers: &BTreeMap<SourceId, Peer>| {
            for path in paths
                .iter_mut()
                .filter(|path| core::is_link_local(path.next_hop))
            {
                let from = |peer: &&Peer| peer.config.key.address == path.peer;
                path.interface = peers
                    .values()
                    .find(from)
                    .and_then(|peer| peer.config.key.interface.clone());
            }
        };
        for (prefix, mut paths) in changed {
            interfaces(&mut paths, &self.peers);
            let was = if paths.is_empty() {
                installed.remove(&prefix)
            } else {
                installed.insert(prefix);
                true
            };
            if was {
                actions.push_back(Action::Route(RouteChange { prefix, paths }));
            }
        }
    }
}
