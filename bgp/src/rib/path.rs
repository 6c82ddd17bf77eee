//! One path of the table.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::policy::Source;
use crate::wire::Attributes;

/// Where a path comes from: [`SourceId::LOCAL`] or a peer of this speaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SourceId(pub(crate) u32);

impl SourceId {
    /// Routes originated here.
    pub(crate) const LOCAL: SourceId = SourceId(0);
}

/// What decisions and exports need to know of a source. Kept while any of its paths are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SourceFacts {
    /// Local, internal or external.
    pub(crate) kind: Source,
    /// Identifier of the peer.
    pub(crate) router_id: Ipv4Addr,
    /// Address of the peer.
    pub(crate) address: IpAddr,
    /// AS number of the peer.
    pub(crate) as_number: u32,
    /// The peer is a reflection client.
    pub(crate) client: bool,
}

impl SourceFacts {
    /// Facts of [`SourceId::LOCAL`].
    pub(crate) fn local(router_id: Ipv4Addr) -> Self {
        SourceFacts {
            kind: Source::Local,
            router_id,
            address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            as_number: 0,
            client: false,
        }
    }
}

/// One path: a record of the Adj-RIB-In, or a local route.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) source: SourceId,
    /// Path identifier of the peer (RFC 7911), 0 without.
    pub(crate) path_id: u32,
    /// As received; kept for later policies.
    pub(crate) received: Arc<Attributes>,
    /// After import policy; `None` when it was rejected.
    pub(crate) accepted: Option<Arc<Attributes>>,
    /// Weight against other sources.
    pub(crate) preference: u32,
    /// Kept over the peer's restart or refresh, not announced again yet.
    pub(crate) stale: bool,
}
