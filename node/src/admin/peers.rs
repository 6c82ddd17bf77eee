//! `GET /v1/bgp/peers`.

use std::time::SystemTime;

use jiff::Timestamp;
use margay_bgp::{Family, PeerStatus, RestartRole};
use margay_crds::admin::{Peer, PeerList, PeerType};
use margay_felix::calc::sessions::{PeerKind, Session};

use super::view::{BgpView, View};

/// All sessions of the node.
pub(crate) async fn list(view: &View) -> PeerList {
    let bgp = view.bgp.load_full();
    PeerList {
        node: view.node.clone(),
        peers: peers(&bgp).await,
    }
}

/// Every configured session with its state.
pub(crate) async fn peers(bgp: &BgpView) -> Vec<Peer> {
    let Some(handle) = &bgp.handle else {
        return Vec::new();
    };
    let statuses = handle.peers().await.unwrap_or_default();
    let mut peers: Vec<Peer> = statuses
        .iter()
        .map(|status| {
            let sessions = bgp.plan.iter().flat_map(|plan| &plan.sessions);
            let session = sessions.into_iter().find(|session| {
                session.remote == status.key.address
                    && session.port == status.key.port
                    && session.interface == status.key.interface
            });
            peer(status, session)
        })
        .collect();
    peers.sort_by_key(|peer| (peer.peer, peer.port));
    peers
}

/// The word for a session's source.
pub(crate) fn peer_type(kind: PeerKind) -> PeerType {
    match kind {
        PeerKind::Global => PeerType::Global,
        PeerKind::Node => PeerType::Node,
        PeerKind::Reverse => PeerType::Reverse,
        PeerKind::Mesh => PeerType::Mesh,
    }
}

fn peer(status: &PeerStatus, session: Option<&Session>) -> Peer {
    let sum = |pick: fn(&margay_bgp::FamilyCounters) -> u64| {
        Family::ALL
            .iter()
            .map(|family| pick(status.counters(*family)))
            .sum()
    };
    let seconds = |time: std::time::Duration| u16::try_from(time.as_secs()).unwrap_or(u16::MAX);
    let negotiated = status.negotiated.as_ref();
    let families = negotiated.map_or(status.families, |agreed| agreed.families);
    Peer {
        peer: status.key.address,
        port: status.key.port,
        name: status.name.clone(),
        kind: session.map_or(PeerType::Global, |session| peer_type(session.kind)),
        source: session.and_then(|session| session.source.clone()),
        peer_as: status
            .remote_as
            .or_else(|| session.map(|session| session.remote_as))
            .unwrap_or(0),
        local_as: status.local_as,
        local_address: status.local_address,
        router_id: status.router_id,
        state: status.state.to_string(),
        since: timestamp(status.since),
        passive: status.passive,
        families: families.iter().map(|family| family.to_string()).collect(),
        received: sum(|counters| counters.received),
        accepted: sum(|counters| counters.accepted),
        advertised: sum(|counters| counters.advertised),
        flaps: status.flaps,
        last_error: status.last_error.clone(),
        hold_time: negotiated.map_or(0, |agreed| seconds(agreed.hold)),
        keepalive_time: negotiated.map_or(0, |agreed| seconds(agreed.keepalive)),
        capabilities: negotiated
            .map(|agreed| {
                agreed
                    .capabilities
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect()
            })
            .unwrap_or_default(),
        graceful_restart: status.restart.map(|role| match role {
            RestartRole::Helper => "helper".to_owned(),
            RestartRole::Restarting => "restarting".to_owned(),
        }),
        md5: status.password,
        ttl_security: status.ttl_security,
    }
}

/// RFC 3339, in whole seconds.
pub(crate) fn timestamp(time: SystemTime) -> Option<String> {
    let time = Timestamp::try_from(time).ok()?;
    time.round(jiff::Unit::Second)
        .ok()
        .map(|time| time.to_string())
}
