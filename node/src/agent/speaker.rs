//! The BGP speaker of this process, and its routes on their way to the dataplane.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::Context;
use margay_bgp::{
    LocalRoute, PeerConfig, PeerStatus, RecoveryEvent, RouteBatch, RouteChange, RouteEvents,
    SpeakerConfig, SpeakerHandle,
};
use margay_felix::{BgpNextHop, BgpRoute, Dataplane};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A speaker and the task that carries its routes to the kernel.
#[derive(Debug)]
pub(crate) struct Speaker {
    dataplane: Dataplane,
    recovery: mpsc::Sender<RecoveryEvent>,
    /// Set whenever routes changed, cleared by whoever looks.
    routes_changed: Arc<AtomicBool>,
    running: Option<Running>,
    started: Instant,
}

#[derive(Debug)]
struct Running {
    handle: SpeakerHandle,
    config: SpeakerConfig,
    routes: JoinHandle<()>,
}

impl Speaker {
    /// A speaker that does not run yet. Recovery events of the running one go to `recovery`.
    pub(crate) fn new(dataplane: Dataplane, recovery: mpsc::Sender<RecoveryEvent>) -> Self {
        Speaker {
            dataplane,
            recovery,
            routes_changed: Arc::new(AtomicBool::new(false)),
            running: None,
            started: Instant::now(),
        }
    }

    /// The handle, while a speaker runs.
    pub(crate) fn handle(&self) -> Option<&SpeakerHandle> {
        self.running.as_ref().map(|running| &running.handle)
    }

    /// When the current speaker started.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// True when routes changed since the last call.
    pub(crate) fn take_routes_changed(&self) -> bool {
        self.routes_changed.swap(false, Ordering::Relaxed)
    }

    /// Makes sure that a speaker with this identity runs; true when it was started just now. A running one is told of
    /// changes: another identifier resets its sessions, other listeners do not.
    ///
    /// # Errors
    /// The configuration is refused or an address cannot be listened on; what ran goes on as it was.
    pub(crate) async fn ensure(&mut self, mut config: SpeakerConfig) -> anyhow::Result<bool> {
        let listen = config.listen.clone();
        if let Some(running) = &mut self.running {
            config.restart = running.config.restart;
            if running.config != config {
                tracing::info!(router_id = %config.router_id, ?listen, "BGP speaker changes");
                let applied = running.handle.configure(config.clone()).await;
                applied.with_context(|| format!("cannot run BGP on {listen:?}"))?;
                running.config = config;
            }
            return Ok(false);
        }
        let (handle, routes) = margay_bgp::start(config.clone())
            .with_context(|| format!("cannot start BGP on {listen:?}"))?;
        let task = tokio::spawn(carry(
            routes,
            self.dataplane.clone(),
            self.recovery.clone(),
            Arc::clone(&self.routes_changed),
        ));
        tracing::info!(router_id = %config.router_id, ?listen, restarted = config.restart.restarted, "BGP speaker started");
        self.running = Some(Running {
            handle,
            config,
            routes: task,
        });
        self.started = Instant::now();
        Ok(true)
    }

    /// Replaces the peers; sessions whose parameters are unchanged stay up.
    ///
    /// # Errors
    /// The speaker refuses the set as a whole or has stopped.
    pub(crate) async fn set_peers(&self, peers: Vec<PeerConfig>) -> anyhow::Result<()> {
        match self.handle() {
            Some(handle) => handle
                .set_peers(peers)
                .await
                .context("cannot apply BGP peers"),
            None => Ok(()),
        }
    }

    /// Replaces the local routes.
    ///
    /// # Errors
    /// The speaker has stopped.
    pub(crate) async fn set_local_routes(&self, routes: Vec<LocalRoute>) -> anyhow::Result<()> {
        match self.handle() {
            Some(handle) => handle
                .set_local_routes(routes)
                .await
                .context("cannot apply local routes"),
            None => Ok(()),
        }
    }

    /// State of all sessions; none while no speaker runs.
    pub(crate) async fn peers(&self) -> Vec<PeerStatus> {
        match self.handle() {
            Some(handle) => handle.peers().await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Closes every connection without a NOTIFICATION: helpers keep the routes (RFC 4724 section 4.2).
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle.stop().await;
            running.routes.abort();
        }
    }
}

/// Hands route changes to the dataplane as they come.
async fn carry(
    mut events: RouteEvents,
    dataplane: Dataplane,
    recovery: mpsc::Sender<RecoveryEvent>,
    changed: Arc<AtomicBool>,
) {
    while let Some(RouteBatch {
        changes,
        recovery: progress,
    }) = events.next().await
    {
        if !changes.is_empty() {
            dataplane.apply_bgp(changes.into_iter().map(route).collect());
            changed.store(true, Ordering::Relaxed);
        }
        for event in progress {
            if recovery.send(event).await.is_err() {
                return;
            }
        }
    }
}

/// A best route in the dataplane's words. Equal paths differ in next hop only; two peers may give the same one.
fn route(change: RouteChange) -> BgpRoute {
    let local_pref = change.paths.first().map_or(0, |path| path.local_pref);
    let next_hops: BTreeSet<BgpNextHop> = change
        .paths
        .into_iter()
        .map(|path| BgpNextHop {
            address: path.next_hop,
            interface: path.interface,
        })
        .collect();
    BgpRoute {
        prefix: change.prefix,
        next_hops: next_hops.into_iter().collect(),
        local_pref,
    }
}

/// Addresses of the peers that are up.
pub(crate) fn established(peers: &[PeerStatus]) -> BTreeSet<IpAddr> {
    peers
        .iter()
        .filter(|peer| peer.is_established())
        .map(|peer| peer.key.address)
        .collect()
}

#[cfg(test)]
mod tests {
    use margay_bgp::RoutePath;

    use super::*;

    #[test]
    fn equal_next_hops_are_given_once_and_a_withdrawal_has_none() {
        let path = |next_hop: &str, peer: &str| RoutePath {
            next_hop: next_hop.parse().expect("ip"),
            interface: None,
            peer: peer.parse().expect("ip"),
            local_pref: 2_147_482_623,
            external: false,
            communities: Vec::new(),
        };
        let prefix = "10.0.0.64/26".parse().expect("net");
        let paths = vec![
            path("10.1.0.2", "10.1.0.2"),
            path("10.1.0.2", "10.1.0.3"),
            path("10.1.0.4", "10.1.0.4"),
        ];
        let converted = route(RouteChange { prefix, paths });
        assert_eq!(converted.next_hops.len(), 2);
        assert_eq!(converted.local_pref, 2_147_482_623);
        assert!(
            route(RouteChange {
                prefix,
                paths: Vec::new()
            })
            .next_hops
            .is_empty()
        );
    }
}
