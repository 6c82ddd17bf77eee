//! What callers send to the dataplane's thread.

use ipnet::IpNet;
use tokio::sync::oneshot;

use super::config::Settings;
use super::status::Status;
use crate::desired::{
    BgpRoute, EndpointDesired, EndpointId, LocalNode, OwnBlock, PoolView, RemoteBlock, RemoteNode,
    Seq, Source,
};

/// One message.
#[derive(Debug)]
pub(super) enum Command {
    /// A change of desired state.
    Change(Seq, Change),
    /// Answer when every route and neighbour of the endpoint is in the kernel.
    WaitRouted(EndpointId, oneshot::Sender<()>),
    /// Answer when no item that belonged to the removed endpoint is left.
    Status(oneshot::Sender<Status>),
    /// Prefixes of BGP routes that are in the kernel and in no pool.
    BgpPrefixesOutsidePools(oneshot::Sender<Vec<IpNet>>),
    /// Detect but do not repair until resumed.
    PauseRepairs(bool),
    /// Leave everything as it is and end.
    Stop,
}

/// A change of desired state.
#[derive(Debug)]
pub(super) enum Change {
    Endpoints(Vec<EndpointDesired>),
    UpsertEndpoint(EndpointDesired),
    RemoveEndpoint(EndpointId),
    OwnBlocks(Vec<OwnBlock>),
    Pools(Vec<PoolView>),
    RemoteBlocks(Vec<RemoteBlock>),
    RemoteNodes(Vec<RemoteNode>),
    LocalNode(LocalNode),
    Bgp(Vec<BgpRoute>),
    InSync(Source),
    Settings(Box<Settings>),
}
