//! Routes this speaker originates.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::wire::{Community, LargeCommunity};

/// A route originated here: ORIGIN IGP, empty AS_PATH.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LocalRoute {
    /// The prefix; host bits are ignored.
    pub prefix: IpNet,
    /// LOCAL_PREF sent to internal peers, also used in the decision process.
    pub local_pref: u32,
    /// MULTI_EXIT_DISC sent to external peers.
    pub med: Option<u32>,
    /// Next hop sent to internal peers; `None` is this speaker. External peers always get this
    /// speaker unless their [`crate::NextHopMode`] is `Keep`.
    pub next_hop: Option<IpAddr>,
    /// Communities (RFC 1997).
    pub communities: Vec<Community>,
    /// Large communities (RFC 8092).
    pub large_communities: Vec<LargeCommunity>,
    /// Weight against other sources of the same prefix before BGP's own rules; learned routes have
    /// [`LocalRoute::LEARNED_PREFERENCE`].
    pub preference: u32,
}

impl LocalRoute {
    /// Preference of routes learned from peers.
    pub const LEARNED_PREFERENCE: u32 = 100;
    /// Preference of static and blackhole routes.
    pub const STATIC_PREFERENCE: u32 = 200;

    /// A static route with the given LOCAL_PREF and nothing else.
    pub fn new(prefix: IpNet, local_pref: u32) -> Self {
        LocalRoute {
            prefix: prefix.trunc(),
            local_pref,
            med: None,
            next_hop: None,
            communities: Vec::new(),
            large_communities: Vec::new(),
            preference: Self::STATIC_PREFERENCE,
        }
    }
}
