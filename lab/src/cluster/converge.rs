//! Waiting for a lab to have settled: by what agents and pods say, never by the clock.

use super::Lab;
use crate::admin;
use crate::error::{Error, Kind, Result};
use crate::state::State;
use futures::future::join_all;
use margay_crds::admin::{PeerList, Status};
use std::time::{Duration, Instant};

/// How long a lab may take to settle.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// How long one ping may take while settling.
const PING: Duration = Duration::from_millis(250);

impl Lab {
    /// What the agent of a node says about itself.
    ///
    /// # Errors
    /// There is no such node, or its agent does not answer.
    pub async fn agent_status(&self, node: &str) -> Result<Status> {
        admin::get(&self.state()?.node(node)?.admin_socket, "/v1/status").await
    }

    /// The BGP sessions of a node.
    ///
    /// # Errors
    /// There is no such node, or its agent does not answer.
    pub async fn agent_peers(&self, node: &str) -> Result<PeerList> {
        admin::get(&self.state()?.node(node)?.admin_socket, "/v1/bgp/peers").await
    }

    /// Any answer of a node's admin API.
    ///
    /// # Errors
    /// There is no such node, or its agent does not answer or refuses.
    pub async fn ask_agent<T: serde::de::DeserializeOwned>(
        &self,
        node: &str,
        path: &str,
    ) -> Result<T> {
        admin::get(&self.state()?.node(node)?.admin_socket, path).await
    }

    /// Waits until every agent is ready, every configured session is up, and everybody reaches everybody. Returns how
    /// long that took.
    ///
    /// # Errors
    /// [`Kind::Timeout`] that names the first thing missing.
    pub async fn converged(&self, limit: Duration) -> Result<Duration> {
        let start = Instant::now();
        let deadline = start + limit;
        loop {
            self.all_run()?;
            let missing = match self.unsettled().await {
                None => match self.unreachable().await? {
                    None => {
                        State::update(&self.name, |s| s.settled = true)?;
                        return Ok(start.elapsed());
                    }
                    Some(pair) => pair,
                },
                Some(missing) => missing,
            };
            if Instant::now() >= deadline {
                let what = format!(
                    "lab {} has not converged after {} s",
                    self.name,
                    limit.as_secs()
                );
                return Err(Error::new(what, missing).kind(Kind::Timeout));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A process that has ended will not come back by waiting.
    fn all_run(&self) -> Result<()> {
        let state = self.state()?;
        match state.dead_units().first() {
            None => Ok(()),
            Some(unit) => {
                let log = crate::process::tail(&super::units::log_of(&state, unit), 5);
                let what = format!("lab {} cannot converge", self.name);
                Err(Error::new(
                    what,
                    format!("{unit} has ended; its log says: {log}"),
                ))
            }
        }
    }

    /// The first agent that is not ready or the first session that is not up.
    async fn unsettled(&self) -> Option<String> {
        let state = match self.state() {
            Ok(state) => state,
            Err(e) => return Some(e.to_string()),
        };
        let expected = expected_sessions(&state);
        let checks = state
            .nodes
            .iter()
            .map(|n| self.node_unsettled(&n.name, expected));
        join_all(checks).await.into_iter().flatten().next()
    }

    async fn node_unsettled(&self, node: &str, expected: usize) -> Option<String> {
        let (status, peers) = tokio::join!(self.agent_status(node), self.agent_peers(node));
        let (status, peers) = match (status, peers) {
            (Ok(status), Ok(peers)) => (status, peers),
            (Err(e), _) | (_, Err(e)) => return Some(e.to_string()),
        };
        if let Some(peer) = peers.peers.iter().find(|p| !p.is_established()) {
            let error = peer.last_error.as_deref().unwrap_or("no error seen");
            return Some(format!(
                "{node}: session with {} ({}) is {}, last error: {error}",
                peer.peer, peer.name, peer.state
            ));
        }
        if peers.peers.len() < expected {
            return Some(format!(
                "{node}: {} of {expected} sessions are configured",
                peers.peers.len()
            ));
        }
        (!status.ready).then(|| format!("{node} is not ready: {}", status.not_ready.join("; ")))
    }

    async fn unreachable(&self) -> Result<Option<String>> {
        let matrix = self.matrix(PING).await?;
        let first = matrix.unreachable().next();
        Ok(first.map(|pair| {
            let (good, all) = (matrix.reachable(), matrix.pairs.len());
            format!(
                "{good} of {all} pairs reachable; {} gets no answer from {} ({})",
                pair.from, pair.to, pair.address
            )
        }))
    }
}

/// Sessions each node has at least until the lab has settled for the first time: the mesh and the router, per family.
/// Later the user decides: then whatever is configured must be up.
fn expected_sessions(state: &State) -> usize {
    if state.settled {
        return 0;
    }
    let others = usize::from(state.shape.nodes) - 1 + usize::from(state.shape.tor.is_some());
    let families = usize::from(state.shape.families.v4()) + usize::from(state.shape.families.v6());
    others * families
}
