//! One configured neighbour.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::{ConfigError, Families, Family, Password, Policy};

/// What identifies a peer in this speaker. An incoming connection is matched by address (and
/// interface) only: its source port says nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey {
    /// Remote address.
    pub address: IpAddr,
    /// Interface of a link-local address (RFC 4007 section 11).
    pub interface: Option<String>,
    /// Port to dial.
    pub port: u16,
}

impl PeerKey {
    /// A peer on a global address.
    pub fn new(address: IpAddr, port: u16) -> Self {
        PeerKey {
            address,
            interface: None,
            port,
        }
    }
}

impl fmt::Display for PeerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.interface, self.address) {
            (Some(interface), address) => write!(f, "[{address}%{interface}]:{}", self.port),
            (None, IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            (None, IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
        }
    }
}

/// The AS number a peer must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RemoteAs {
    /// This one.
    Is(u32),
    /// Any but the local one.
    AnyExternal,
}

/// Which next hop this speaker announces to a peer (RFC 4271 section 5.1.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum NextHopMode {
    /// Own address to external peers; to internal peers learned next hops stay as they are.
    #[default]
    Auto,
    /// Always the own address.
    SelfAddress,
    /// Learned next hops always stay as they are.
    Keep,
}

/// Hop limit of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ttl {
    /// Peer may be routers away: TTL 64.
    Multihop,
    /// Peer is on the same link: TTL 1.
    Direct,
    /// GTSM (RFC 5082): TTL 255 is sent, at least 256 minus this many hops is required.
    Security(u8),
}

/// How much of graceful restart is done with a peer (RFC 4724).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum GracefulRestartMode {
    /// Both sides: keep the peer's routes over its restart, ask it to keep ours.
    #[default]
    Full,
    /// Only keep the peer's routes; the capability lists no families.
    HelperOnly,
    /// The capability is not sent.
    Off,
}

/// Graceful restart settings of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GracefulRestart {
    /// How much of it.
    pub mode: GracefulRestartMode,
    /// Restart time advertised, whole seconds up to 4095.
    pub time: Duration,
    /// Longest time stale routes are kept after the peer is back.
    pub stale_cap: Duration,
}

impl Default for GracefulRestart {
    fn default() -> Self {
        GracefulRestart {
            mode: GracefulRestartMode::Full,
            time: Duration::from_secs(120),
            stale_cap: Duration::from_secs(360),
        }
    }
}

/// Timers of a peer. Dial delays are bases: the actual wait is 0.75 to 1.0 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timers {
    /// Hold time proposed: zero (no keepalives) or 3 s to 65535 s.
    pub hold: Duration,
    /// Keepalive interval; `None`, or anything longer, is a third of the negotiated hold time.
    pub keepalive: Option<Duration>,
    /// Wait before the first dial.
    pub first_dial: Duration,
    /// Wait between dials (ConnectRetryTime).
    pub connect_retry: Duration,
    /// Longest time one dial may take.
    pub connect_timeout: Duration,
    /// Wait after a protocol error; doubles up to [`Timers::error_wait_max`].
    pub error_wait: Duration,
    /// Longest wait after errors.
    pub error_wait_max: Duration,
    /// Errors older than this are forgotten.
    pub error_forget: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Timers {
            hold: seconds(240),
            keepalive: None,
            first_dial: seconds(2),
            connect_retry: seconds(5),
            connect_timeout: seconds(5),
            error_wait: seconds(5),
            error_wait_max: seconds(30),
            error_forget: seconds(300),
        }
    }
}

/// What happens when a peer sends more prefixes than it may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MaxPrefixesAction {
    /// Cease 6/1 (RFC 4486), retry after the error wait.
    #[default]
    Restart,
    /// Only say so.
    Warn,
}

/// Limit of received prefixes per family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MaxPrefixes {
    /// Most prefixes; a warning is logged at three quarters.
    pub limit: u32,
    /// What to do beyond.
    pub action: MaxPrefixesAction,
}

/// One configured neighbour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// Identity.
    pub key: PeerKey,
    /// Name to show.
    pub name: String,
    /// AS number expected.
    pub remote_as: RemoteAs,
    /// AS number used on this session; the session is internal when both are equal.
    pub local_as: u32,
    /// Source address of the connection; `None` lets the kernel choose.
    pub local_address: Option<IpAddr>,
    /// Own IPv4 address announced as next hop; `None` is the address of the connection.
    pub self_ipv4: Option<Ipv4Addr>,
    /// Own IPv6 address announced as next hop; `None` is the address of the connection. Needed for
    /// IPv6 routes on a session over IPv4.
    pub self_ipv6: Option<Ipv6Addr>,
    /// Only wait for the peer to dial.
    pub passive: bool,
    /// Timers.
    pub timers: Timers,
    /// TCP-MD5 key.
    pub password: Option<Password>,
    /// Hop limit.
    pub ttl: Ttl,
    /// Families offered.
    pub families: Families,
    /// IPv4 routes over IPv6 next hops (RFC 8950).
    pub extended_next_hop: bool,
    /// What is taken from the peer.
    pub import: Policy,
    /// What is sent to the peer.
    pub export: Policy,
    /// The peer is a route-reflection client (RFC 4456); internal peers only.
    pub rr_client: bool,
    /// Next hop announced.
    pub next_hop: NextHopMode,
    /// Graceful restart.
    pub graceful_restart: GracefulRestart,
    /// Limit of received prefixes.
    pub max_prefixes: Option<MaxPrefixes>,
    /// Times the local AS may occur in a received AS_PATH.
    pub allow_own_as: u8,
    /// GRACEFUL_SHUTDOWN (RFC 8326) on a route of an external peer sets LOCAL_PREF 0.
    pub honour_graceful_shutdown: bool,
    /// Refuse routes of an external peer whose AS_PATH does not begin with its AS.
    pub enforce_first_as: bool,
}

impl PeerConfig {
    /// A peer on port 179 with the usual timers, the family of its address and policies that accept
    /// everything.
    pub fn new(address: IpAddr, remote_as: u32, local_as: u32) -> Self {
        PeerConfig {
            key: PeerKey::new(address, 179),
            name: address.to_string(),
            remote_as: RemoteAs::Is(remote_as),
            local_as,
            local_address: None,
            self_ipv4: None,
            self_ipv6: None,
            passive: false,
            timers: Timers::default(),
            password: None,
            ttl: Ttl::Multihop,
            families: Families::from(Family::of(address)),
            extended_next_hop: false,
            import: Policy::accept_all(),
            export: Policy::accept_all(),
            rr_client: false,
            next_hop: NextHopMode::Auto,
            graceful_restart: GracefulRestart::default(),
            max_prefixes: None,
            allow_own_as: 0,
            honour_graceful_shutdown: true,
            enforce_first_as: false,
        }
    }

    /// True when both ends are in the same AS.
    pub fn is_internal(&self) -> bool {
        self.remote_as == RemoteAs::Is(self.local_as)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// The first field out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |field, reason: &str| {
            Err(ConfigError::Peer {
                peer: self.key.clone(),
                field,
                reason: reason.to_owned(),
            })
        };
        let hold = self.timers.hold;
        if !hold.is_zero() && !(3..=65535).contains(&hold.as_secs()) {
            return refuse(
                "timers.hold",
                "must be 0 or 3 s to 65535 s (RFC 4271 section 4.2)",
            );
        }
        if self.local_as == 0 || self.remote_as == RemoteAs::Is(0) {
            return refuse("remote_as", "AS 0 must not be used (RFC 7607)");
        }
        if self.graceful_restart.time.as_secs() > 4095 {
            return refuse(
                "graceful_restart.time",
                "must be at most 4095 s (RFC 4724 section 3)",
            );
        }
        if self.families.is_empty() {
            return refuse("families", "at least one family is needed");
        }
        if self.rr_client && !self.is_internal() {
            return refuse(
                "rr_client",
                "only an internal peer can be a client (RFC 4456)",
            );
        }
        if self.key.port == 0 {
            return refuse("key.port", "must be 1 to 65535");
        }
        if self.ttl == Ttl::Security(0) {
            return refuse("ttl", "the hop count must be 1 to 255 (RFC 5082)");
        }
        match (self.key.address, &self.key.interface) {
            (IpAddr::V6(ip), None) if ip.is_unicast_link_local() => {
                return refuse("key.interface", "a link-local address needs an interface");
            }
            _ => {}
        }
        match self.local_address {
            Some(local) if Family::of(local) != Family::of(self.key.address) => refuse(
                "local_address",
                "must be of the family of the peer's address",
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> PeerConfig {
        PeerConfig::new("192.0.2.1".parse().unwrap(), 65001, 65000)
    }

    #[test]
    fn every_value_out_of_range_names_its_field() {
        type Change = fn(&mut PeerConfig);
        let cases: [(&str, Change); 8] = [
            ("timers.hold", |p| p.timers.hold = Duration::from_secs(2)),
            ("remote_as", |p| p.remote_as = RemoteAs::Is(0)),
            ("graceful_restart.time", |p| {
                p.graceful_restart.time = Duration::from_secs(4096);
            }),
            ("families", |p| p.families = Families::NONE),
            ("rr_client", |p| p.rr_client = true),
            ("ttl", |p| p.ttl = Ttl::Security(0)),
            ("key.interface", |p| {
                p.key.address = "fe80::1".parse().unwrap()
            }),
            ("local_address", |p| {
                p.local_address = Some("fd00::1".parse().unwrap())
            }),
        ];
        assert_eq!(peer().validate(), Ok(()));
        for (name, change) in cases {
            let mut config = peer();
            change(&mut config);
            match config.validate() {
                Err(ConfigError::Peer { field, .. }) => assert_eq!(field, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_peer_prints_the_way_it_is_dialled() {
        let key = |address: &str| PeerKey::new(address.parse().unwrap(), 179);
        assert_eq!(key("192.0.2.1").to_string(), "192.0.2.1:179");
        assert_eq!(key("fd00::1").to_string(), "[fd00::1]:179");
        let link_local = PeerKey {
            interface: Some("eth0".into()),
            ..key("fe80::1")
        };
        assert_eq!(link_local.to_string(), "[fe80::1%eth0]:179");
    }
}
