//! The node-to-node mesh.

use super::plan::Local;
use super::session::{Family, NextHopMode, PeerKind, Session};

/// One session per other node and family, unless this node reflects routes or the mesh is off. Route reflectors are
/// outside the mesh in both directions.
pub(super) fn sessions(local: &Local<'_>) -> Vec<Session> {
    let configurations = local.inputs.configurations;
    if !configurations.mesh_enabled() || local.node.cluster_id.is_some() {
        return Vec::new();
    }
    let mut sessions = Vec::new();
    for (name, node) in local.others().filter(|(_, node)| node.cluster_id.is_none()) {
        for family in Family::ALL {
            let (Some(own), Some(remote)) =
                (local.node.addresses.get(family), node.addresses.get(family))
            else {
                continue;
            };
            sessions.push(Session {
                remote: remote.ip(),
                interface: None,
                port: configurations.listen_port(name),
                kind: PeerKind::Mesh,
                name: name.clone(),
                source: None,
                remote_as: local.as_of(node),
                local_as: local.as_number,
                source_address: Some(own.ip()),
                passive: waits_for(own.ip(), remote.ip()),
                password: None,
                restart_time: configurations.mesh_restart_time(),
                hold_time: configurations.mesh_hold_time(),
                keepalive_time: None,
                ttl_security: None,
                next_hop: NextHopMode::Auto,
                rr_client: false,
                allow_local_as: 0,
                filters: Vec::new(),
                max_prefixes: None,
            });
        }
    }
    sessions
}

/// True when this side only listens: the texts of the two addresses are compared octet by octet, not as numbers, so
/// that exactly one side of each pair dials whichever program runs on it (`10.0.0.9` is after `10.0.0.10`).
pub(super) fn waits_for(own: std::net::IpAddr, remote: std::net::IpAddr) -> bool {
    remote.to_string() > own.to_string()
}
