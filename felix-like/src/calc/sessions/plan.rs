//! All sessions of one node: explicit peers, then reverse ones, then the mesh, each address once.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use margay_crds::BGPPeer;

use super::configuration::{Configurations, router_id};
use super::expand;
use super::mesh;
use super::node::BgpNode;
use super::problem::Problem;
use super::session::{Password, PeerKind, SecretRef, Session};

/// Everything the sessions of a node depend on.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Name of this node.
    pub node: &'a str,
    /// All nodes, this one included, by name.
    pub nodes: &'a BTreeMap<String, BgpNode>,
    /// All BGPPeers by name.
    pub peers: &'a BTreeMap<String, BGPPeer>,
    /// BGPConfigurations.
    pub configurations: &'a Configurations,
    /// Values of the Secrets that could be read.
    pub passwords: &'a BTreeMap<SecretRef, Password>,
    /// `CALICO_ROUTER_ID`.
    pub router_id: &'a str,
}

/// What a node's speaker has to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPlan {
    /// AS number of this node.
    pub as_number: u32,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Own cluster id (RFC 4456), when this node reflects.
    pub cluster_id: Option<Ipv4Addr>,
    /// Port to listen on.
    pub listen_port: u16,
    /// Listen on the BGP addresses only.
    pub bind_node_ip: bool,
    /// Sessions, ordered by remote address and port.
    pub sessions: Vec<Session>,
    /// Objects at fault, in order.
    pub problems: Vec<Problem>,
    /// Secrets the sessions need, whether or not they could be read.
    pub secrets: Vec<SecretRef>,
}

/// The local node and its inputs.
#[derive(Debug)]
pub(super) struct Local<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) node: &'a BgpNode,
    pub(super) as_number: u32,
}

impl Local<'_> {
    /// Every other node.
    pub(super) fn others(&self) -> impl Iterator<Item = (&String, &BgpNode)> {
        self.inputs
            .nodes
            .iter()
            .filter(|(name, _)| name.as_str() != self.inputs.node)
    }

    /// Effective AS number of a node.
    pub(super) fn as_of(&self, node: &BgpNode) -> u32 {
        node.as_number
            .unwrap_or_else(|| self.inputs.configurations.global_as())
    }
}

/// Computes the sessions of `inputs.node`. A node that is not in `inputs.nodes` has none.
pub fn plan(inputs: &Inputs<'_>) -> SessionPlan {
    let absent = BgpNode::default();
    let node = inputs.nodes.get(inputs.node).unwrap_or(&absent);
    let as_number = node
        .as_number
        .unwrap_or_else(|| inputs.configurations.global_as());
    let local = Local {
        inputs,
        node,
        as_number,
    };

    let mut merged = Merged::default();
    let mut explicit = expand::explicit(&local);
    merged.secrets.append(&mut explicit.secrets);
    merged.problems.append(&mut explicit.problems);
    for session in explicit.sessions {
        merged.add_explicit(session);
    }
    let mut reverse = expand::reverse(&local);
    merged.secrets.append(&mut reverse.secrets);
    merged.problems.append(&mut reverse.problems);
    for session in reverse.sessions {
        merged.add_if_free(session);
    }
    let mut mesh_sessions = mesh::sessions(&local);
    if let Some((secret, optional)) = inputs.configurations.mesh_password() {
        match inputs.passwords.get(&secret) {
            Some(password) => {
                mesh_sessions
                    .iter_mut()
                    .for_each(|session| session.password = Some(password.clone()));
            }
            None if optional => {}
            None => {
                mesh_sessions.clear();
                merged.problems.push(Problem {
                    kind: "BGPConfiguration",
                    name: "default".into(),
                    reason: "BGPPasswordMissing",
                    field: "spec.nodeMeshPassword".into(),
                    message: format!("no mesh session is started until Secret {secret} exists"),
                });
            }
        }
        merged.secrets.push(secret);
    }
    for session in mesh_sessions {
        merged.add_if_free(session);
    }

    merged.sessions.retain(|s| {
        node.addresses
            .get(s.family())
            .is_none_or(|own| own.ip() != s.remote)
    });
    merged
        .sessions
        .sort_by(|a, b| (a.remote, &a.interface, a.port).cmp(&(b.remote, &b.interface, b.port)));
    merged.problems.sort();
    merged.problems.dedup();
    merged.secrets.sort();
    merged.secrets.dedup();
    SessionPlan {
        as_number,
        router_id: router_id(inputs.router_id, inputs.node, &node.addresses),
        cluster_id: node.cluster_id,
        listen_port: inputs.configurations.listen_port(inputs.node),
        bind_node_ip: inputs.configurations.bind_node_ip(inputs.node),
        sessions: merged.sessions,
        problems: merged.problems,
        secrets: merged.secrets,
    }
}

/// Sessions by strength. Explicit sessions come in order of strength and name.
#[derive(Debug, Default)]
struct Merged {
    sessions: Vec<Session>,
    /// Addresses that have a session already.
    taken: BTreeSet<(IpAddr, Option<String>)>,
    problems: Vec<Problem>,
    secrets: Vec<SecretRef>,
}

impl Merged {
    /// Adds a session of a BGPPeer unless a stronger one has the same address and port.
    fn add_explicit(&mut self, session: Session) {
        let twin = self.sessions.iter().find(|other| {
            other.remote == session.remote
                && other.interface == session.interface
                && other.port == session.port
        });
        match twin {
            Some(winner) if winner.source != session.source => {
                let loser = session.source.clone().unwrap_or_default();
                let winner_name = winner.source.clone().unwrap_or_default();
                self.problems.push(Problem::peer(
                    &loser,
                    "Shadowed",
                    "spec.peerIP",
                    format!(
                        "{} port {} is already configured by BGPPeer {winner_name}, which is used",
                        session.remote, session.port
                    ),
                ));
            }
            Some(_) => {}
            None => {
                self.taken
                    .insert((session.remote, session.interface.clone()));
                self.sessions.push(session);
            }
        }
    }

    /// Adds a session unless any other goes to the same address.
    fn add_if_free(&mut self, session: Session) {
        debug_assert!(matches!(session.kind, PeerKind::Reverse | PeerKind::Mesh));
        if self
            .taken
            .insert((session.remote, session.interface.clone()))
        {
            self.sessions.push(session);
        }
    }
}
