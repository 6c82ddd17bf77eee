//! Routes as other crates see them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use crate::wire::{Community, LargeCommunity, Origin};
use crate::{Families, Family, PeerKey};

/// One way to a prefix, for the forwarding table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoutePath {
    /// Next hop; an IPv6 next hop of an IPv4 prefix is RFC 8950.
    pub next_hop: IpAddr,
    /// Interface of a link-local next hop.
    pub interface: Option<String>,
    /// Peer the path was learned from.
    pub peer: IpAddr,
    /// LOCAL_PREF after import.
    pub local_pref: u32,
    /// True when learned from another AS.
    pub external: bool,
    /// Communities, for the decisions of whoever programs the route.
    pub communities: Vec<Community>,
}

/// The best paths of a prefix, all of equal cost, best first. No paths: nothing learned is best any
/// more (gone, or a local route of this speaker wins).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteChange {
    /// The prefix.
    pub prefix: IpNet,
    /// Equal-cost paths; empty means remove.
    pub paths: Vec<RoutePath>,
}

/// Progress of recovery after a start (RFC 4724 section 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryEvent {
    /// A peer has sent everything it had: what the forwarding table still holds of its earlier
    /// routes and was not announced again may go.
    EndOfRib {
        /// The peer.
        peer: PeerKey,
        /// The family.
        family: Family,
    },
    /// Nobody is awaited any more. Sent once, also when nothing had to be recovered.
    Finished,
}

/// What happened since the last batch: apply `changes` first, then `recovery`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteBatch {
    /// Latest state of each changed prefix, each prefix once, in prefix order.
    pub changes: Vec<RouteChange>,
    /// Recovery events in order.
    pub recovery: Vec<RecoveryEvent>,
}

/// What is known about a next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHopState {
    /// Cost of the route that resolves it (0 on-link); `None`: unreachable. A route over an
    /// unreachable next hop is neither installed nor advertised.
    pub metric: Option<u32>,
}

/// Known next hops; those not listed count as reachable at cost 0.
pub type NextHops = BTreeMap<IpAddr, NextHopState>;

/// Where a path comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteSource {
    /// Originated here.
    Local,
    /// Learned from a peer.
    Peer {
        /// The peer.
        peer: PeerKey,
        /// Its BGP identifier.
        router_id: Ipv4Addr,
        /// True when it is in another AS.
        external: bool,
    },
}

/// One path of the table, with all the decision process knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteView {
    /// The prefix.
    pub prefix: IpNet,
    /// Origin of the path.
    pub source: RouteSource,
    /// True for the path that is advertised on.
    pub best: bool,
    /// True for the best path and those of equal cost.
    pub multipath: bool,
    /// False when the import policy refused the path; it is kept for later policies.
    pub accepted: bool,
    /// Kept over the peer's restart, not announced again yet (RFC 4724).
    pub stale: bool,
    /// Next hop.
    pub next_hop: IpAddr,
    /// LOCAL_PREF used in the decision.
    pub local_pref: u32,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH in the usual notation, sets in braces.
    pub as_path: String,
    /// Communities.
    pub communities: Vec<Community>,
    /// Large communities.
    pub large_communities: Vec<LargeCommunity>,
    /// ORIGINATOR_ID (RFC 4456).
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST (RFC 4456).
    pub cluster_list: Vec<Ipv4Addr>,
    /// Why the path is or is not the best, in words.
    pub reason: String,
}

/// Which paths to list. All given conditions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteQuery {
    /// Only this prefix.
    pub prefix: Option<IpNet>,
    /// With `prefix`: more specific ones as well.
    pub longer: bool,
    /// Only the longest prefix that covers this address.
    pub covering: Option<IpAddr>,
    /// Only paths learned from this address.
    pub peer: Option<IpAddr>,
    /// Only these families; empty is all.
    pub families: Families,
    /// What is advertised to this peer address instead of the table.
    pub advertised_to: Option<IpAddr>,
}
