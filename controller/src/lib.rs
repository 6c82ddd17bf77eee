//! Cluster-wide control loops: what no single node can do.
//!
//! One replica leads ([`leader`]) and keeps a reduced copy of the cluster ([`cluster`]) from watches. A change marks what
//! depends on it; one task then brings the API in line, one step after the other:
//!
//! * [`pools`]: conditions, finalizers and Events of IPPools; affinities of pools that are being deleted.
//! * [`nodes`]: addresses and blocks of nodes that are gone.
//! * [`leftovers`]: affinities without a block, blocks without an owner, handles without addresses.
//! * [`tiers`]: the built-in tiers, and tiers that are being deleted.
//!
//! What to do is decided by functions of values; time enters as an argument. Nothing here is needed for pods to start or
//! packets to flow, so a cluster without a controller only stops cleaning up.

mod cluster;
mod events;
mod follow;
mod leader;
mod leftovers;
mod metrics;
mod nodes;
mod pools;
mod reconcile;
mod tiers;

use std::time::Duration;

use kube::Client;
use tokio::sync::watch;

pub use leader::Election;

/// What a controller runs with.
#[derive(Debug, Clone)]
pub struct ControllerConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of this replica in the Lease; unique.
    pub identity: String,
    /// Time a Node has to be gone before its addresses are given to others. Longer than the time after which an agent
    /// without contact to the API stops handing out addresses.
    pub dead_node_after: Duration,
    /// Time an affinity without a block, or a handle without addresses, has to stay so before it is removed.
    pub leftover_after: Duration,
    /// Time between looks for leftovers, and after which failed work is tried again.
    pub sweep_interval: Duration,
    /// Lease duration.
    pub lease_duration: Duration,
    /// A leader that could not renew for this long stops leading.
    pub renew_deadline: Duration,
    /// Time between attempts to get or renew the lease.
    pub retry_period: Duration,
}

impl ControllerConfig {
    /// Defaults, for a replica of this name in this namespace.
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Self {
        ControllerConfig {
            namespace: namespace.into(),
            identity: identity.into(),
            dead_node_after: Duration::from_secs(900),
            leftover_after: Duration::from_secs(600),
            sweep_interval: Duration::from_secs(30),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// How a controller is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// This replica leads.
    pub leading: bool,
    /// The leader has seen the whole cluster.
    pub synced: bool,
    /// Why the last round of work was not complete.
    pub error: Option<String>,
}

/// Runs until `stop` turns true or is dropped: waits for the lease, works while it has it, gives it back.
pub async fn run(
    client: Client,
    config: ControllerConfig,
    report: watch::Sender<Report>,
    mut stop: watch::Receiver<bool>,
) {
    let mut election = Election::new(client.clone(), &config);
    loop {
        tokio::select! {
            () = election.acquire() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        tracing::info!(identity = config.identity, "leading");
        report.send_modify(|report| report.leading = true);
        let stopped = tokio::select! {
            () = election.hold() => false,
            () = reconcile::work(client.clone(), config.clone(), report.clone()) => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        report.send_replace(Report::default());
        if stopped {
            election.release().await;
            return;
        }
        tracing::warn!(identity = config.identity, "no longer leading");
    }
}
