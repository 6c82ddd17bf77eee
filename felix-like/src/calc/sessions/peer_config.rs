//! Sessions in the words of the BGP engine.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use margay_bgp as bgp;

use super::Networks;
use super::plan::SessionPlan;
use super::problem::Problem;
use super::session::{Family, NextHopMode, Session};

/// Longest restart time the capability can carry (RFC 4724 section 3).
const MAX_RESTART_TIME: Duration = Duration::from_secs(4095);

/// The peers of a plan. `export` gives the export policy of a family. A session the engine would refuse becomes a
/// problem of its BGPPeer.
pub fn peer_configs(
    plan: &SessionPlan,
    export: impl Fn(Family) -> bgp::Policy,
) -> (Vec<bgp::PeerConfig>, Vec<Problem>) {
    let exports = Family::ALL.map(export);
    let mut configs = Vec::with_capacity(plan.sessions.len());
    let mut problems = Vec::new();
    for session in &plan.sessions {
        let export = match session.family() {
            Family::V4 => &exports[0],
            Family::V6 => &exports[1],
        };
        match peer_config(session, export) {
            Ok(config) => configs.push(config),
            Err((field, message)) => problems.push(refused(session, field, message)),
        }
        if !session.filters.is_empty() {
            problems.push(refused(
                session,
                "spec.filters",
                "BGPFilterInvalid: filters are not available in this version; nothing is imported or exported".into(),
            ));
        }
    }
    problems.sort();
    problems.dedup();
    (configs, problems)
}

fn refused(session: &Session, field: &str, message: String) -> Problem {
    match &session.source {
        Some(peer) => Problem {
            kind: "BGPPeer",
            name: peer.clone(),
            reason: "BGPPeerRejected",
            field: field.to_owned(),
            message,
        },
        None => Problem {
            kind: "BGPConfiguration",
            name: "default".into(),
            reason: "ConfigInvalid",
            field: field.to_owned(),
            message: format!("mesh session to {}: {message}", session.name),
        },
    }
}

fn peer_config(
    session: &Session,
    export: &bgp::Policy,
) -> Result<bgp::PeerConfig, (&'static str, String)> {
    let mut config = bgp::PeerConfig::new(session.remote, session.remote_as, session.local_as);
    config.key.interface.clone_from(&session.interface);
    config.key.port = session.port;
    config.name.clone_from(&session.name);
    config.local_address = session.source_address;
    config.passive = session.passive;
    config.timers.hold = session.hold_time;
    config.timers.keepalive = session.keepalive_time;
    config.password = match &session.password {
        None => None,
        Some(password) => Some(
            bgp::Password::new(password.expose().to_vec())
                .map_err(|error| ("spec.password", error.to_string()))?,
        ),
    };
    config.ttl = session
        .ttl_security
        .map_or(bgp::Ttl::Multihop, bgp::Ttl::Security);
    config.rr_client = session.rr_client;
    config.next_hop = match session.next_hop {
        NextHopMode::Auto => bgp::NextHopMode::Auto,
        NextHopMode::SelfAddress => bgp::NextHopMode::SelfAddress,
        NextHopMode::Keep => bgp::NextHopMode::Keep,
    };
    config.graceful_restart.time = session.restart_time.min(MAX_RESTART_TIME);
    config.max_prefixes = session.max_prefixes.map(|limit| bgp::MaxPrefixes {
        limit,
        action: bgp::MaxPrefixesAction::Restart,
    });
    config.allow_own_as = session.allow_local_as;
    if session.filters.is_empty() {
        config.export.clone_from(export);
    } else {
        // Nobody knows what the filter would have let through.
        config.import = bgp::Policy::reject_all();
        config.export = bgp::Policy::reject_all();
    }
    match config.validate() {
        Ok(()) => Ok(config),
        Err(bgp::ConfigError::Peer { field, reason, .. }) => Err((field, reason)),
        Err(error) => Err(("", error.to_string())),
    }
}

/// Where the speaker listens: on every address, or on the BGP addresses only. An IPv6 socket is left out where the
/// kernel has no IPv6.
pub fn listen_addresses(plan: &SessionPlan, own: &Networks, ipv6: bool) -> Vec<SocketAddr> {
    let port = plan.listen_port;
    if plan.bind_node_ip {
        let addresses = [own.v4, own.v6].into_iter().flatten();
        return addresses
            .map(|address| SocketAddr::new(address.ip(), port))
            .collect();
    }
    let mut listen = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
    if ipv6 {
        listen.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    listen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calc::sessions::{NodeAddress, Password, PeerKind};

    fn session() -> Session {
        Session {
            remote: "192.0.2.1".parse().expect("ip"),
            interface: None,
            port: 1179,
            kind: PeerKind::Global,
            name: "tor".into(),
            source: Some("tor".into()),
            remote_as: 65001,
            local_as: 64512,
            source_address: Some("10.0.0.1".parse().expect("ip")),
            passive: true,
            password: None,
            restart_time: Duration::from_secs(9000),
            hold_time: Duration::from_secs(9),
            keepalive_time: None,
            ttl_security: None,
            next_hop: NextHopMode::Keep,
            rr_client: false,
            allow_local_as: 2,
            filters: Vec::new(),
            max_prefixes: Some(7),
        }
    }

    fn plan(session: Session) -> SessionPlan {
        SessionPlan {
            as_number: 64512,
            router_id: Ipv4Addr::new(10, 0, 0, 1),
            cluster_id: None,
            listen_port: 179,
            bind_node_ip: false,
            sessions: vec![session],
            problems: Vec::new(),
            secrets: Vec::new(),
        }
    }

    #[test]
    fn every_field_reaches_the_engine() {
        let (configs, problems) = peer_configs(&plan(session()), |_| bgp::Policy::reject_all());
        assert!(problems.is_empty());
        let config = &configs[0];
        assert_eq!(config.key.to_string(), "192.0.2.1:1179");
        assert!(config.passive);
        assert_eq!(
            config.graceful_restart.time, MAX_RESTART_TIME,
            "cut to what the capability can carry"
        );
        assert_eq!(config.next_hop, bgp::NextHopMode::Keep);
        assert_eq!(config.allow_own_as, 2);
        assert_eq!(config.max_prefixes.map(|max| max.limit), Some(7));
        assert_eq!(config.export, bgp::Policy::reject_all());
        assert_eq!(config.import, bgp::Policy::accept_all());
    }

    #[test]
    fn a_password_the_kernel_cannot_take_rejects_its_peer_only() {
        let long = Session {
            password: Some(Password::new(vec![b'x'; 81])),
            ..session()
        };
        let (configs, problems) = peer_configs(&plan(long), |_| bgp::Policy::accept_all());
        assert!(configs.is_empty());
        assert_eq!(problems[0].field, "spec.password");
        assert!(!problems[0].to_string().contains("xxx"));
    }

    #[test]
    fn a_peer_with_filters_this_version_lacks_is_closed_and_reported() {
        let filtered = Session {
            filters: vec!["f".into()],
            ..session()
        };
        let (configs, problems) = peer_configs(&plan(filtered), |_| bgp::Policy::accept_all());
        assert_eq!(configs[0].import, bgp::Policy::reject_all());
        assert_eq!(configs[0].export, bgp::Policy::reject_all());
        assert_eq!(problems.len(), 1);
    }

    #[test]
    fn the_bind_mode_decides_where_the_speaker_listens() {
        let own = Networks {
            v4: NodeAddress::parse("10.0.0.1/24", Family::V4),
            v6: None,
        };
        let mut plan = plan(session());
        assert_eq!(listen_addresses(&plan, &own, true).len(), 2);
        assert_eq!(listen_addresses(&plan, &own, false).len(), 1);
        plan.bind_node_ip = true;
        assert_eq!(
            listen_addresses(&plan, &own, true),
            ["10.0.0.1:179".parse().expect("address")]
        );
    }
}
