//! One speaker and a peer that says exactly what the test says.

use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use bytes::BytesMut;

use crate::speaker::{Action, ConnectionId, Speaker};
use crate::wire::tests::hex;
use crate::wire::{MAX_EXTENDED_LENGTH, Message, Notification, next_message};
use crate::{Families, PeerConfig, PeerStatus, RouteQuery, RouteView, SpeakerConfig};

/// OPEN of AS 65002, identifier 10.99.0.2, IPv4 and IPv6, refresh, 4-octet AS, hold 90.
pub(super) const OPEN: &str =
    "M 0033 01 04 fdea 005a 0a630002 16 02 14 01 04 00010001 01 04 00020001 02 00 41 04 0000fdea";
pub(super) const KEEPALIVE: &str = "M 0013 04";

pub(super) struct Script {
    pub(super) speaker: Speaker,
    pub(super) connection: ConnectionId,
    pub(super) now: Instant,
    pub(super) closed: bool,
    said: BytesMut,
}

impl Script {
    /// Connected, OPEN not sent yet.
    pub(super) fn connected() -> Self {
        let config = SpeakerConfig {
            listen: Vec::new(),
            ..SpeakerConfig::new("10.99.0.1".parse().unwrap())
        };
        let mut speaker = Speaker::new(config, 1).unwrap();
        let now = Instant::now();
        let peer = PeerConfig {
            passive: true,
            families: Families::BOTH,
            ..PeerConfig::new(remote(), 65002, 65001)
        };
        speaker.set_peers(vec![peer], now).unwrap();
        speaker.set_local_routes(Vec::new());
        speaker.flush(now);
        let local = "10.99.0.1".parse().unwrap();
        let connection = speaker
            .accept(remote(), None, local, now)
            .unwrap()
            .connection;
        let mut script = Script {
            speaker,
            connection,
            now,
            closed: false,
            said: BytesMut::new(),
        };
        script.settle();
        script
    }

    /// Established.
    pub(super) fn established() -> Self {
        let mut script = Script::connected();
        script.say(OPEN);
        script.say(KEEPALIVE);
        assert!(script.status().is_established());
        script
    }

    pub(super) fn say(&mut self, octets: &str) {
        let octets = BytesMut::from(&hex(octets)[..]);
        self.speaker.received(self.connection, octets, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        self.speaker.flush(self.now);
        while let Some(action) = self.speaker.next_action() {
            match action {
                Action::Send { octets, .. } => self.said.extend_from_slice(&octets),
                Action::Close { .. } => self.closed = true,
                _ => {}
            }
        }
    }

    /// What the speaker said since last asked.
    pub(super) fn answers(&mut self) -> Vec<Message> {
        std::iter::from_fn(|| next_message(&mut self.said, MAX_EXTENDED_LENGTH).unwrap()).collect()
    }

    /// The NOTIFICATION that ended the connection.
    pub(super) fn last_words(&mut self) -> Option<Notification> {
        assert!(self.closed, "the connection is still open");
        match self.answers().pop() {
            Some(Message::Notification(notification)) => Some(notification),
            _ => None,
        }
    }

    pub(super) fn status(&self) -> PeerStatus {
        self.speaker.peers(self.now, SystemTime::now()).remove(0)
    }

    pub(super) fn routes(&self) -> Vec<RouteView> {
        self.speaker.routes(&RouteQuery::default())
    }
}

fn remote() -> IpAddr {
    "10.99.0.2".parse().unwrap()
}
