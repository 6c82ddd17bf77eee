//! Path attributes as values (RFC 4271 section 5).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{AsPath, Community, LargeCommunity};

/// ORIGIN; lower is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// 0
    #[default]
    Igp,
    /// 1
    Egp,
    /// 2
    Incomplete,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Igp => "igp",
            Origin::Egp => "egp",
            Origin::Incomplete => "incomplete",
        })
    }
}

/// A next hop: an address, and for IPv6 perhaps a link-local one beside it (RFC 2545 section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NextHop {
    /// The address; link-local when there is no global one.
    pub address: IpAddr,
    /// Link-local address beside a global one.
    pub link_local: Option<Ipv6Addr>,
}

impl NextHop {
    /// Stands for "this speaker" in routes that have no next hop yet.
    pub const UNSPECIFIED: NextHop = NextHop {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        link_local: None,
    };
}

impl From<IpAddr> for NextHop {
    fn from(address: IpAddr) -> Self {
        NextHop {
            address,
            link_local: None,
        }
    }
}

/// AGGREGATOR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Aggregator {
    /// AS number.
    pub as_number: u32,
    /// Identifier of the aggregating speaker.
    pub identifier: Ipv4Addr,
}

/// An optional transitive attribute this speaker does not know; passed on with the Partial bit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UnknownAttribute {
    /// Type.
    pub kind: u8,
    /// Value.
    pub value: Box<[u8]>,
}

/// The attributes of a route. Interned by the RIB, hence `Hash` and cheap to compare by pointer
/// there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// ORIGIN.
    pub origin: Origin,
    /// AS_PATH, with AS4_PATH merged in.
    pub as_path: AsPath,
    /// NEXT_HOP or the next hop of MP_REACH_NLRI.
    pub next_hop: NextHop,
    /// MULTI_EXIT_DISC.
    pub med: Option<u32>,
    /// LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// ATOMIC_AGGREGATE.
    pub atomic_aggregate: bool,
    /// AGGREGATOR, with AS4_AGGREGATOR merged in.
    pub aggregator: Option<Aggregator>,
    /// COMMUNITIES, sorted, each once.
    pub communities: Vec<Community>,
    /// EXTENDED COMMUNITIES, sorted, each once.
    pub extended_communities: Vec<[u8; 8]>,
    /// IPv6 EXTENDED COMMUNITIES, sorted, each once.
    pub ipv6_extended_communities: Vec<[u8; 20]>,
    /// LARGE_COMMUNITY, sorted, each once.
    pub large_communities: Vec<LargeCommunity>,
    /// ORIGINATOR_ID.
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST, nearest first.
    pub cluster_list: Vec<Ipv4Addr>,
    /// ONLY_TO_CUSTOMER (RFC 9234).
    pub only_to_customer: Option<u32>,
    /// Unknown optional transitive attributes by type.
    pub unknown: Vec<UnknownAttribute>,
}

impl Default for Attributes {
    fn default() -> Self {
        Attributes {
            origin: Origin::Igp,
            as_path: AsPath::default(),
            next_hop: NextHop::UNSPECIFIED,
            med: None,
            local_pref: None,
            atomic_aggregate: false,
            aggregator: None,
            communities: Vec::new(),
            extended_communities: Vec::new(),
            ipv6_extended_communities: Vec::new(),
            large_communities: Vec::new(),
            originator_id: None,
            cluster_list: Vec::new(),
            only_to_customer: None,
            unknown: Vec::new(),
        }
    }
}

impl Attributes {
    /// True when the community is present.
    pub fn has_community(&self, community: Community) -> bool {
        self.communities.binary_search(&community).is_ok()
    }
}
