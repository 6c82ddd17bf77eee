//! BGPPeers to sessions: the peers this node is told to have, and the far ends of other nodes' peers.

use std::net::IpAddr;

use margay_crds::selector::Selector;
use margay_crds::{BGPPeer, BGPPeerSpec};

use super::address::PeerAddress;
use super::configuration::DEFAULT_RESTART_TIME;
use super::extension::{self, DEFAULT_HOLD_TIME, Extensions};
use super::mesh::waits_for;
use super::node::BgpNode;
use super::plan::Local;
use super::problem::Problem;
use super::session::{Family, NextHopMode, PeerKind, SecretRef, Session};

/// Sessions of one source, with what was wrong on the way.
#[derive(Debug, Default)]
pub(super) struct Expansion {
    pub(super) sessions: Vec<Session>,
    pub(super) problems: Vec<Problem>,
    pub(super) secrets: Vec<SecretRef>,
}

/// A BGPPeer whose texts have been parsed.
struct Parsed<'a> {
    name: &'a str,
    spec: &'a BGPPeerSpec,
    extensions: Extensions,
    /// Nodes that have the peer; `None` is all.
    nodes: Option<Nodes<'a>>,
    remote: Remote,
}

enum Nodes<'a> {
    Named(&'a str),
    Selected(Selector),
}

enum Remote {
    Address(PeerAddress),
    Selected(Selector),
}

impl Parsed<'_> {
    fn has_peer(&self, name: &str, node: &BgpNode) -> bool {
        match &self.nodes {
            None => true,
            Some(Nodes::Named(wanted)) => *wanted == name,
            Some(Nodes::Selected(selector)) => selector.matches(&node.labels),
        }
    }

    fn kind(&self) -> PeerKind {
        if self.nodes.is_none() {
            PeerKind::Global
        } else {
            PeerKind::Node
        }
    }
}

/// Sessions of the BGPPeers that apply to this node: those for all nodes first, each group by name.
pub(super) fn explicit(local: &Local<'_>) -> Expansion {
    let mut out = Expansion::default();
    let mut parsed: Vec<Parsed<'_>> = Vec::new();
    for (name, peer) in local.inputs.peers {
        match parse(name, peer) {
            Ok(peer) => parsed.push(peer),
            Err(problem) => out.problems.push(problem),
        }
    }
    parsed.sort_by_key(|peer| (peer.kind(), peer.name));
    for peer in parsed
        .iter()
        .filter(|peer| peer.has_peer(local.inputs.node, local.node))
    {
        let result = match &peer.remote {
            Remote::Address(address) => {
                toward_address(local, peer, address).map(|session| vec![session])
            }
            Remote::Selected(selector) => Ok(toward_nodes(local, peer, selector)),
        };
        match result {
            Ok(sessions) => authenticate(local, peer, sessions, &mut out),
            Err(problem) => out.problems.push(problem),
        }
    }
    out
}

/// Sessions that exist because this node is the remote end of a BGPPeer of others.
pub(super) fn reverse(local: &Local<'_>) -> Expansion {
    let mut out = Expansion::default();
    // A peer that does not parse has been reported by `explicit`.
    let parsed = local
        .inputs
        .peers
        .iter()
        .filter_map(|(name, peer)| parse(name, peer).ok());
    for peer in parsed.filter(|peer| !is_manual(peer.spec)) {
        let families: Vec<Family> = match &peer.remote {
            Remote::Selected(selector) if selector.matches(&local.node.labels) => {
                Family::ALL.to_vec()
            }
            Remote::Address(address) if is_this_node(local, &peer, address) => {
                vec![Family::of(address.ip)]
            }
            _ => continue,
        };
        let mut sessions = Vec::new();
        for (name, node) in local
            .others()
            .filter(|(name, node)| peer.has_peer(name, node))
        {
            for &family in &families {
                sessions.extend(toward_node(
                    local,
                    &peer,
                    PeerKind::Reverse,
                    name,
                    node,
                    family,
                ));
            }
        }
        authenticate(local, &peer, sessions, &mut out);
    }
    out
}

/// Reads a BGPPeer, refusing what cannot mean anything.
fn parse<'a>(name: &'a str, peer: &'a BGPPeer) -> Result<Parsed<'a>, Problem> {
    let spec = &peer.spec;
    let refuse =
        |word: &str, field: &str, message: String| Err(Problem::peer(name, word, field, message));
    let selector = |field: &str, text: &str| {
        Selector::parse(text)
            .map_err(|error| Problem::peer(name, "PeersSelected=False", field, error))
    };
    let annotations = peer.metadata.annotations.clone().unwrap_or_default();
    let extensions = Extensions::read(&annotations)
        .map_err(|(field, message)| Problem::peer(name, "ExtensionInvalid", &field, message))?;

    let nodes = match (text(&spec.node), text(&spec.node_selector)) {
        (Some(_), Some(_)) => {
            return refuse("Invalid", "spec.node", "excludes nodeSelector".into());
        }
        (Some(node), None) => Some(Nodes::Named(node)),
        (None, Some(expression)) => {
            Some(Nodes::Selected(selector("spec.nodeSelector", expression)?))
        }
        (None, None) => None,
    };
    let remote = match (text(&spec.peer_ip), text(&spec.peer_selector)) {
        (Some(_), Some(_)) => {
            return refuse("Invalid", "spec.peerIP", "excludes peerSelector".into());
        }
        (Some(address), None) => match address.parse::<PeerAddress>() {
            Ok(address) if address.is_link_local() && address.interface.is_none() => {
                let message = format!(
                    "{} is link-local; write {}%INTERFACE",
                    address.ip, address.ip
                );
                return refuse("LinkLocalNeedsInterface", "spec.peerIP", message);
            }
            Ok(address) => Remote::Address(address),
            Err(message) => return refuse("Invalid", "spec.peerIP", message),
        },
        (None, Some(_)) if spec.as_number.is_some_and(|number| number != 0) => {
            let message =
                "excludes peerSelector: the AS number is that of each selected node".into();
            return refuse("InvalidASNumber", "spec.asNumber", message);
        }
        (None, Some(expression)) => Remote::Selected(selector("spec.peerSelector", expression)?),
        (None, None) if text(&spec.local_workload_selector).is_some() => {
            let message = "peering with local workloads is not available in this version".into();
            return refuse("Unsupported", "spec.localWorkloadSelector", message);
        }
        (None, None) => {
            return refuse(
                "Invalid",
                "spec.peerIP",
                "neither peerIP nor peerSelector is set".into(),
            );
        }
    };
    Ok(Parsed {
        name,
        spec,
        extensions,
        nodes,
        remote,
    })
}

/// The session to a `peerIP`, which may or may not be a cluster node.
fn toward_address(
    local: &Local<'_>,
    peer: &Parsed<'_>,
    address: &PeerAddress,
) -> Result<Session, Problem> {
    let family = Family::of(address.ip);
    let owner = local.inputs.nodes.iter().find(|(_, node)| {
        node.addresses
            .get(family)
            .is_some_and(|own| own.ip() == address.ip)
    });
    let configured_as = peer.spec.as_number.filter(|number| *number != 0);
    let Some(remote_as) = configured_as.or_else(|| owner.map(|(_, node)| local.as_of(node))) else {
        return Err(Problem::peer(
            peer.name,
            "InvalidASNumber",
            "spec.asNumber",
            format!(
                "is required: {} is not the address of a cluster node",
                address.ip
            ),
        ));
    };
    let port = address.port.unwrap_or_else(|| match owner {
        Some((name, node)) if local.as_of(node) == remote_as => {
            local.inputs.configurations.listen_port(name)
        }
        _ => super::DEFAULT_PORT,
    });
    let passive = peer.kind() == PeerKind::Global
        && owner.is_some()
        && local
            .node
            .addresses
            .get(family)
            .is_some_and(|own| waits_for(own.ip(), address.ip));
    let name = owner.map_or(peer.name, |(name, _)| name.as_str());
    let cluster_id = owner.and_then(|(_, node)| node.cluster_id);
    let mut session = base(local, peer, peer.kind(), address.ip, remote_as, cluster_id);
    session.interface.clone_from(&address.interface);
    session.port = port;
    session.name = name.to_owned();
    session.passive = peer.extensions.passive.unwrap_or(passive);
    Ok(session)
}

/// The sessions to the nodes a `peerSelector` matches.
fn toward_nodes(local: &Local<'_>, peer: &Parsed<'_>, selector: &Selector) -> Vec<Session> {
    let mut sessions = Vec::new();
    for (name, node) in local
        .others()
        .filter(|(_, node)| selector.matches(&node.labels))
    {
        for family in Family::ALL {
            if let Some(mut session) = toward_node(local, peer, peer.kind(), name, node, family) {
                let by_address = peer.kind() == PeerKind::Global
                    && local
                        .node
                        .addresses
                        .get(family)
                        .is_some_and(|own| waits_for(own.ip(), session.remote));
                session.passive = peer.extensions.passive.unwrap_or(by_address);
                sessions.push(session);
            }
        }
    }
    sessions
}

/// The session to one node in one family, if both ends have an address in it.
fn toward_node(
    local: &Local<'_>,
    peer: &Parsed<'_>,
    kind: PeerKind,
    name: &str,
    node: &BgpNode,
    family: Family,
) -> Option<Session> {
    local.node.addresses.get(family)?;
    let remote = node.addresses.get(family)?.ip();
    let mut session = base(
        local,
        peer,
        kind,
        remote,
        local.as_of(node),
        node.cluster_id,
    );
    session.port = local.inputs.configurations.listen_port(name);
    name.clone_into(&mut session.name);
    Some(session)
}

/// What all sessions of a BGPPeer share.
fn base(
    local: &Local<'_>,
    peer: &Parsed<'_>,
    kind: PeerKind,
    remote: IpAddr,
    remote_as: u32,
    remote_cluster_id: Option<std::net::Ipv4Addr>,
) -> Session {
    let spec = peer.spec;
    let forward = kind != PeerKind::Reverse;
    let local_as = spec
        .local_as_number
        .filter(|number| forward && *number != 0)
        .unwrap_or(local.as_number);
    let cluster_id = local.node.cluster_id;
    let use_node_ip = !forward
        || spec
            .source_address
            .as_ref()
            .is_none_or(|source| source.is_use_node_ip());
    let own = local
        .node
        .addresses
        .get(Family::of(remote))
        .map(|own| own.ip());
    Session {
        remote,
        interface: None,
        port: super::DEFAULT_PORT,
        kind,
        name: peer.name.to_owned(),
        source: Some(peer.name.to_owned()),
        remote_as,
        local_as,
        source_address: own.filter(|_| use_node_ip && !is_link_local(remote)),
        passive: false,
        password: None,
        restart_time: spec
            .max_restart_time
            .as_deref()
            .and_then(extension::duration)
            .unwrap_or(DEFAULT_RESTART_TIME),
        hold_time: peer.extensions.hold_time.unwrap_or(DEFAULT_HOLD_TIME),
        keepalive_time: spec.keepalive_time.as_deref().and_then(extension::duration),
        ttl_security: spec.ttl_security.filter(|hops| *hops > 0),
        next_hop: next_hop_mode(spec, remote_as != local_as),
        rr_client: remote_as == local_as && cluster_id.is_some() && remote_cluster_id != cluster_id,
        allow_local_as: if forward {
            spec.num_allowed_local_as_numbers
                .and_then(|times| u8::try_from(times).ok())
                .unwrap_or(0)
        } else {
            0
        },
        filters: spec.filters.clone().unwrap_or_default(),
        max_prefixes: peer.extensions.max_prefixes,
    }
}

fn next_hop_mode(spec: &BGPPeerSpec, external: bool) -> NextHopMode {
    use margay_crds::NextHopMode as Written;
    match &spec.next_hop_mode {
        Some(Written::SelfAddress) => NextHopMode::SelfAddress,
        Some(Written::Keep) => NextHopMode::Keep,
        _ if external && spec.keep_original_next_hop == Some(true) => NextHopMode::Keep,
        _ => NextHopMode::Auto,
    }
}

/// Adds the password to the sessions of a peer and moves them to `out`; without the Secret none is started.
fn authenticate(
    local: &Local<'_>,
    peer: &Parsed<'_>,
    mut sessions: Vec<Session>,
    out: &mut Expansion,
) {
    if sessions.is_empty() {
        return;
    }
    if let Some((secret, optional)) = peer.spec.password.as_ref().and_then(secret_of) {
        let password = local.inputs.passwords.get(&secret).cloned();
        let missing = password.is_none() && !optional;
        if missing {
            out.problems.push(Problem::peer(
                peer.name,
                "SecretMissing",
                "spec.password",
                format!(
                    "no session is started until Secret {secret} exists in the agent's namespace"
                ),
            ));
            sessions.clear();
        }
        sessions
            .iter_mut()
            .for_each(|session| session.password.clone_from(&password));
        out.secrets.push(secret);
    }
    out.sessions.append(&mut sessions);
}

/// The Secret a password field names, and whether its absence is accepted.
pub(super) fn secret_of(password: &margay_crds::BGPPassword) -> Option<(SecretRef, bool)> {
    let reference = password.secret_key_ref.as_ref()?;
    let secret = SecretRef {
        name: reference.name.clone(),
        key: reference.key.clone(),
    };
    Some((secret, reference.optional.unwrap_or(false)))
}

fn is_manual(spec: &BGPPeerSpec) -> bool {
    spec.reverse_peering
        .as_ref()
        .is_some_and(|mode| mode.is_manual())
}

/// True when a `peerIP` is this node: address, AS number and, if given, port agree.
fn is_this_node(local: &Local<'_>, peer: &Parsed<'_>, address: &PeerAddress) -> bool {
    let own = local
        .node
        .addresses
        .get(Family::of(address.ip))
        .map(|own| own.ip());
    let wanted_as = peer
        .spec
        .as_number
        .filter(|number| *number != 0)
        .unwrap_or_else(|| local.inputs.configurations.global_as());
    own == Some(address.ip)
        && wanted_as == local.as_number
        && address
            .port
            .is_none_or(|port| port == local.inputs.configurations.listen_port(local.inputs.node))
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn text(field: &Option<String>) -> Option<&str> {
    field.as_deref().filter(|text| !text.is_empty())
}
