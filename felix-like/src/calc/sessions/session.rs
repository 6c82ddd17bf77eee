//! A session as resources describe it, before it is put in the words of the BGP engine.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

/// Address family of a session's transport, and of what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in order.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// Family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

/// Where a session comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerKind {
    /// BGPPeer that names no node.
    Global,
    /// BGPPeer with `node` or `nodeSelector`.
    Node,
    /// The other end of a BGPPeer of another node.
    Reverse,
    /// Node-to-node mesh.
    Mesh,
}

/// Which next hop is announced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum NextHopMode {
    /// RFC 4271 section 5.1.3: own address to external peers, unchanged to internal ones.
    #[default]
    Auto,
    /// Always the own address.
    SelfAddress,
    /// Never changed.
    Keep,
}

/// One key of a Secret in the agent's namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretRef {
    /// Secret name.
    pub name: String,
    /// Key in its data.
    pub key: String,
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.key)
    }
}

/// A session password. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// Wraps the octets of the Secret.
    pub fn new(octets: Vec<u8>) -> Self {
        Password(octets)
    }

    /// The octets, for the socket option only.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// One BGP session of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Remote address.
    pub remote: IpAddr,
    /// Interface of a link-local remote address.
    pub interface: Option<String>,
    /// Remote port.
    pub port: u16,
    /// Source of the configuration.
    pub kind: PeerKind,
    /// Name to show: the remote node when it is one, else the BGPPeer.
    pub name: String,
    /// BGPPeer it comes from; `None` for the mesh.
    pub source: Option<String>,
    /// AS number the remote must have.
    pub remote_as: u32,
    /// AS number used on this session.
    pub local_as: u32,
    /// Source address of the connection; `None` lets the kernel choose.
    pub source_address: Option<IpAddr>,
    /// Only wait for the connection.
    pub passive: bool,
    /// TCP-MD5 key (RFC 2385).
    pub password: Option<Password>,
    /// Advertised graceful-restart time (RFC 4724), at most 4095 s.
    pub restart_time: Duration,
    /// Proposed hold time; zero turns keepalives off.
    pub hold_time: Duration,
    /// Keepalive interval; `None` is a third of the hold time.
    pub keepalive_time: Option<Duration>,
    /// GTSM hop count (RFC 5082).
    pub ttl_security: Option<u8>,
    /// Next-hop treatment.
    pub next_hop: NextHopMode,
    /// The remote is a route-reflection client (RFC 4456).
    pub rr_client: bool,
    /// Times the own AS may appear in a received AS_PATH.
    pub allow_local_as: u8,
    /// BGPFilter names in order.
    pub filters: Vec<String>,
    /// Most prefixes accepted, when limited.
    pub max_prefixes: Option<u32>,
}

impl Session {
    /// Family of transport and routes.
    pub fn family(&self) -> Family {
        Family::of(self.remote)
    }

    /// Same AS on both sides.
    pub fn is_internal(&self) -> bool {
        self.remote_as == self.local_as
    }
}
