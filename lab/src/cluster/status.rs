//! How a lab does, in figures.

use super::{Lab, network};
use crate::error::Result;
use crate::probe::Matrix;
use crate::state::{Node, Shape, State};
use futures::future::join_all;
use margay_crds::admin::{Ipam, SessionCounts, Status};
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;

/// A node or the router.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// `up`, `not ready`, `silent` or `down`.
    pub state: &'static str,
    /// BGP sessions; absent when they cannot be asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionCounts>,
    /// Address blocks of the node.
    pub blocks: Vec<String>,
    /// Running pods.
    pub pods: usize,
    /// Kernel routes learned by BGP.
    pub routes: usize,
    /// Processor time used since the start, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// What is wrong, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A lab.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabStatus {
    /// Its name.
    pub name: String,
    /// What it consists of.
    pub shape: Shape,
    /// API server as the host reaches it.
    pub api_url: String,
    /// Kubeconfig of the administrator.
    pub kubeconfig: std::path::PathBuf,
    /// Nodes, then the router.
    pub members: Vec<NodeStatus>,
    /// Processes that have ended.
    pub ended: Vec<String>,
    /// Who reaches whom.
    pub matrix: Matrix,
}

impl LabStatus {
    /// Whether everything is as it should be.
    pub fn is_good(&self) -> bool {
        self.ended.is_empty()
            && self.matrix.is_complete()
            && self
                .members
                .iter()
                .all(|m| m.state == "up" && m.sessions.is_none_or(|s| s.up == s.total))
    }
}

impl Lab {
    /// Asks everybody.
    ///
    /// # Errors
    /// The lab has gone, or a namespace cannot be entered.
    pub async fn status(&self) -> Result<LabStatus> {
        let state = self.state()?;
        let nodes = state.nodes.iter().map(|n| self.node_status(&state, n));
        let (nodes, matrix) =
            tokio::join!(join_all(nodes), self.matrix(Duration::from_millis(500)));
        let mut members = nodes;
        members.extend(self.router_status(&state));
        Ok(LabStatus {
            name: state.name.to_string(),
            ended: state.dead_units(),
            members,
            matrix: matrix?,
            api_url: state.api_url,
            kubeconfig: state.kubeconfig,
            shape: state.shape,
        })
    }

    /// The kernel's main routing tables of a node or the router.
    ///
    /// # Errors
    /// There is no such member.
    pub fn kernel_routes(&self, member: &str) -> Result<Vec<network::KernelRoute>> {
        let state = self.state()?;
        let tor = state
            .tor
            .as_ref()
            .filter(|t| t.name == member)
            .map(|t| &t.netns);
        network::routes(tor.map_or_else(|| state.node(member).map(|n| &n.netns), Ok)?)
    }

    /// Address blocks of all nodes, as the agents say.
    ///
    /// # Errors
    /// An agent does not answer.
    pub async fn blocks(&self) -> Result<BTreeSet<String>> {
        let mut all = BTreeSet::new();
        for node in self.state()?.nodes {
            let ipam: Ipam = self.ask_agent(&node.name, "/v1/ipam").await?;
            all.extend(ipam.blocks.into_iter().map(|b| b.cidr));
        }
        Ok(all)
    }

    async fn node_status(&self, state: &State, node: &Node) -> NodeStatus {
        let (status, ipam, peers) = tokio::join!(
            self.agent_status(&node.name),
            self.ask_agent::<Ipam>(&node.name, "/v1/ipam"),
            self.agent_peers(&node.name)
        );
        let mut problems = Vec::new();
        let alive = state
            .processes
            .get(&node.name)
            .is_some_and(crate::process::Pid::is_alive);
        let word = match &status {
            Ok(Status { ready: true, .. }) => "up",
            Ok(Status { not_ready, .. }) => {
                problems.extend(not_ready.iter().cloned());
                "not ready"
            }
            Err(e) if alive => {
                problems.push(e.to_string());
                "silent"
            }
            Err(_) => "down",
        };
        let down = peers
            .iter()
            .flat_map(|l| &l.peers)
            .filter(|p| !p.is_established());
        problems
            .extend(down.map(|p| format!("session with {} ({}) is {}", p.peer, p.name, p.state)));
        let routes = network::routes(&node.netns).unwrap_or_default();
        let (resident_bytes, cpu) = usage(state, &node.name);
        NodeStatus {
            name: node.name.clone(),
            state: word,
            sessions: status.ok().map(|s| s.sessions),
            blocks: ipam
                .map(|i| i.blocks.into_iter().map(|b| b.cidr).collect())
                .unwrap_or_default(),
            pods: state.pods.iter().filter(|p| p.node == node.name).count(),
            routes: routes
                .iter()
                .filter(|r| ["12", "80"].contains(&r.protocol.as_str()) && !r.gateways.is_empty())
                .count(),
            cpu_seconds: cpu.as_secs_f64(),
            resident_bytes,
            problems,
        }
    }

    fn router_status(&self, state: &State) -> Option<NodeStatus> {
        let tor = state.tor.as_ref()?;
        let underlay = state.nodes.iter().flat_map(|n| n.addresses.clone());
        let nodes: BTreeSet<_> = underlay.collect();
        let routes = network::routes(&tor.netns).unwrap_or_default();
        let learned = routes
            .iter()
            .filter(|r| r.gateways.iter().any(|g| nodes.contains(g)));
        let alive = state
            .processes
            .iter()
            .filter(|(u, _)| u.starts_with(&tor.name))
            .all(|(_, p)| p.is_alive());
        let (resident_bytes, cpu) = usage(state, &tor.name);
        Some(NodeStatus {
            name: tor.name.clone(),
            state: if alive { "up" } else { "down" },
            sessions: None,
            blocks: Vec::new(),
            pods: 0,
            routes: learned.count(),
            cpu_seconds: cpu.as_secs_f64(),
            resident_bytes,
            problems: Vec::new(),
        })
    }
}

fn usage(state: &State, unit: &str) -> (u64, Duration) {
    let used = state
        .processes
        .get(unit)
        .and_then(crate::process::Pid::usage);
    used.unwrap_or_default()
}
