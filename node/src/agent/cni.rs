//! The CNI server as part of the agent: started, followed, stopped; and the node announced as usable.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use margay_ipam::Ipam;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::report;
use crate::admin::view::View;
use crate::cni_server::{CniDeps, CniServer, Conflist, NodeState, write_conflist};
use crate::health::Health;

/// Health part of the server.
pub(crate) const PART: &str = "CNI";

/// Pause between comparisons of assigned and used addresses.
const AUDIT: Duration = Duration::from_secs(60);

/// Where the server's facts go.
#[derive(Debug)]
pub(crate) struct Output {
    /// Addresses of wired pods, for BGP.
    pub(crate) addresses: watch::Sender<Vec<IpAddr>>,
    pub(crate) view: Arc<View>,
    pub(crate) health: Health,
}

/// Serves CNI until `stopping` is set. The configuration list is written once pods can be added: it is what makes the
/// container runtime call.
///
/// # Errors
/// The state directory, the socket or the list cannot be made.
pub(crate) async fn run(
    deps: CniDeps,
    conflist: Conflist,
    manage: bool,
    ipam: Ipam,
    output: Output,
    stopping: CancellationToken,
) -> anyhow::Result<()> {
    let mut state = deps.state.clone();
    let server = CniServer::start(deps).await.inspect_err(|error| {
        tracing::error!(error = format!("{error:#}"), "the CNI server does not run");
        output.health.report(PART, Err(format!("{error:#}")));
    })?;
    let mut changes = server.changes();
    let mut listed = None;
    let mut audit = tokio::time::interval(AUDIT);
    audit.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        publish(&server, &output);
        let ready = state.borrow_and_update().not_ready.clone();
        let families = families(&conflist, &state.borrow());
        if manage && ready.is_none() && listed != Some(families) {
            let (ipv4, ipv6) = families;
            match write_conflist(&Conflist {
                ipv4,
                ipv6,
                ..conflist.clone()
            }) {
                Ok(_) => listed = Some(families),
                Err(error) => tracing::error!(
                    error = format!("{error:#}"),
                    "the CNI configuration is not written"
                ),
            }
        }
        output.health.report(
            PART,
            match ready {
                None if listed.is_some() || !manage => Ok(()),
                None => Err("the CNI configuration is not written".to_owned()),
                Some(cause) => Err(format!("pods cannot be added: {cause}")),
            },
        );
        tokio::select! {
            () = stopping.cancelled() => break,
            changed = changes.changed() => if changed.is_err() { break },
            _ = audit.tick(), if ipam.is_synced() => {
                if let Err(error) = ipam.reconcile_live(&server.live_addresses()).await {
                    tracing::warn!(%error, "assigned and used addresses not compared");
                }
            }
            changed = state.changed() => if changed.is_err() { break },
        }
    }
    server.stop().await;
    Ok(())
}

/// Families pods get: those the node has an address of and a pool for. Without any pool the list asks for what the node
/// could give, so that the error of ADD names what is missing.
fn families(node: &Conflist, state: &NodeState) -> (bool, bool) {
    let both = (
        node.ipv4 && state.has_v4_pool,
        node.ipv6 && state.has_v6_pool,
    );
    if both == (false, false) {
        (node.ipv4, node.ipv6)
    } else {
        both
    }
}

fn publish(server: &CniServer, output: &Output) {
    let endpoints = server.endpoints();
    let addresses: Vec<IpAddr> = endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.iter().copied())
        .collect();
    output.addresses.send_if_modified(|known| {
        let changed = *known != addresses;
        *known = addresses;
        changed
    });
    output.view.endpoints.store(Arc::new(endpoints));
}

/// Sets NetworkUnavailable to false once pods can be added, retried until it is written, and removes the note of the
/// last shutdown.
pub(crate) async fn announce(
    client: Client,
    node: String,
    shutdown_note: PathBuf,
    mut state: watch::Receiver<NodeState>,
) {
    if state
        .wait_for(|state| state.not_ready.is_none())
        .await
        .is_err()
    {
        return;
    }
    let mut pause = Duration::from_millis(200);
    while let Err(error) = report::set_network_available(&client, &node, true).await {
        tracing::warn!(
            error = format!("{error:#}"),
            "the Node is not marked as usable"
        );
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
    // Usually there is none.
    let _ = tokio::fs::remove_file(shutdown_note).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_get_the_families_node_and_pools_agree_on() {
        let conflist = Conflist::from_vars(|_| None, "n").expect("defaults");
        let asked = |node: (bool, bool), pools: (bool, bool)| {
            let conflist = Conflist {
                ipv4: node.0,
                ipv6: node.1,
                ..conflist.clone()
            };
            let state = NodeState {
                has_v4_pool: pools.0,
                has_v6_pool: pools.1,
                ..NodeState::default()
            };
            families(&conflist, &state)
        };
        assert_eq!(asked((true, true), (true, true)), (true, true));
        assert_eq!(asked((true, true), (true, false)), (true, false));
        assert_eq!(asked((true, false), (true, true)), (true, false));
        assert_eq!(asked((false, true), (true, true)), (false, true));
        assert_eq!(asked((true, false), (false, false)), (true, false));
    }
}
