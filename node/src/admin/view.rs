//! What the admin API reads: handles of the parts and the last results of the agent's loop.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use margay_bgp::SpeakerHandle;
use margay_crds::admin;
use margay_felix::Dataplane;
use margay_felix::calc::sessions::{Networks, SessionPlan};
use margay_ipam::Ipam;

use crate::health::Health;

/// The parts an answer is made of.
#[derive(Debug)]
pub(crate) struct View {
    /// Node name.
    pub(crate) node: String,
    /// Start of this process.
    pub(crate) started: Timestamp,
    pub(crate) health: Health,
    pub(crate) dataplane: Dataplane,
    pub(crate) bgp: ArcSwap<BgpView>,
    pub(crate) problems: ArcSwap<Vec<admin::Problem>>,
    pub(crate) ipam: Ipam,
    pub(crate) endpoints: ArcSwap<Vec<admin::Endpoint>>,
}

/// The BGP part.
#[derive(Debug, Clone, Default)]
pub(crate) struct BgpView {
    /// Running speaker.
    pub(crate) handle: Option<SpeakerHandle>,
    /// Sessions as planned; none before the first complete picture of the cluster.
    pub(crate) plan: Option<Arc<SessionPlan>>,
    /// Addresses of this node.
    pub(crate) addresses: Networks,
}

impl BgpView {
    /// Name and type of a peer, for routes learned from it.
    pub(crate) fn peer_name(&self, address: IpAddr) -> String {
        let sessions = self.plan.iter().flat_map(|plan| &plan.sessions);
        match sessions
            .into_iter()
            .find(|session| session.remote == address)
        {
            Some(session) => format!(
                "{} {}",
                session.name,
                super::peers::peer_type(session.kind).as_str()
            ),
            None => address.to_string(),
        }
    }
}
