//! State of the sessions as other crates see it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use crate::{Families, Family, PeerKey};

/// State of a session (RFC 4271 section 8.2.2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerState {
    /// Not trying (waiting after an error, or shut down).
    #[default]
    Idle,
    /// Dialling.
    Connect,
    /// Waiting for the peer to dial, or for the next dial.
    Active,
    /// OPEN sent.
    OpenSent,
    /// OPEN received, waiting for KEEPALIVE.
    OpenConfirm,
    /// Exchanging routes.
    Established,
}

impl fmt::Display for PeerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Which part a peer plays in graceful restart at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RestartRole {
    /// The peer is away or has not finished: this speaker keeps its routes.
    Helper,
    /// This speaker has restarted and waits for the peer's End-of-RIB.
    Restarting,
}

/// Prefix counts of one family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FamilyCounters {
    /// Received, before policy.
    pub received: u64,
    /// Accepted by policy.
    pub accepted: u64,
    /// Advertised to the peer.
    pub advertised: u64,
}

/// What two OPENs agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiated {
    /// Families carried.
    pub families: Families,
    /// Hold time, zero is off.
    pub hold: Duration,
    /// Keepalive interval, zero is off.
    pub keepalive: Duration,
    /// Short names of the capabilities in effect: `4B` (RFC 6793), `RR` (2918), `ENH` (7313), `GR`
    /// (4724), `EXT` (8654), `ENHE` (8950).
    pub capabilities: Vec<&'static str>,
}

/// One configured peer and its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// Identity.
    pub key: PeerKey,
    /// Name given in the configuration.
    pub name: String,
    /// AS number of the peer: the configured one, or what it said.
    pub remote_as: Option<u32>,
    /// AS number used on the session.
    pub local_as: u32,
    /// State.
    pub state: PeerState,
    /// When the session entered Established or last left it.
    pub since: SystemTime,
    /// How long ago `since` is.
    pub in_state_for: Duration,
    /// Only waits for the peer to dial.
    pub passive: bool,
    /// Local address of the connection, or the configured one.
    pub local_address: Option<IpAddr>,
    /// BGP identifier of the peer, once known.
    pub router_id: Option<Ipv4Addr>,
    /// Set from the OPEN exchange on.
    pub negotiated: Option<Negotiated>,
    /// Families configured.
    pub families: Families,
    /// IPv4 counts.
    pub ipv4: FamilyCounters,
    /// IPv6 counts.
    pub ipv6: FamilyCounters,
    /// Times the session left Established.
    pub flaps: u64,
    /// Messages received since the peer was configured.
    pub messages_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// UPDATE messages treated as withdraw (RFC 7606).
    pub treated_as_withdraw: u64,
    /// Attributes discarded (RFC 7606).
    pub attributes_discarded: u64,
    /// Last error in words.
    pub last_error: Option<String>,
    /// Graceful restart in progress.
    pub restart: Option<RestartRole>,
    /// A TCP-MD5 key is configured.
    pub password: bool,
    /// GTSM hop count, when on.
    pub ttl_security: Option<u8>,
    /// Prefixes waiting to be sent.
    pub pending: u64,
}

impl PeerStatus {
    /// Counts of one family.
    pub fn counters(&self, family: Family) -> &FamilyCounters {
        match family {
            Family::Ipv4 => &self.ipv4,
            Family::Ipv6 => &self.ipv6,
        }
    }

    /// True when routes are exchanged.
    pub fn is_established(&self) -> bool {
        self.state == PeerState::Established
    }
}
