//! The leader's work: one task, one step after the other, on what changes concern.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use margay_ipam::{KubeStore, Store};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::cluster::{Cluster, Concerned};
use crate::events::Events;
use crate::follow::{self, Update};
use crate::metrics::Gauges;
use crate::nodes::Gone;
use crate::{ControllerConfig, Report};

/// Changes that arrive together are looked at together.
const SETTLE: Duration = Duration::from_millis(50);

/// What the loops work with.
pub(crate) struct Work {
    pub(crate) client: Client,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: ControllerConfig,
    pub(crate) events: Events,
    pub(crate) cluster: Cluster,
    pub(crate) gone: Gone,
}

/// Works for as long as this replica leads; dropped when it no longer does.
pub(crate) async fn work(client: Client, config: ControllerConfig, report: watch::Sender<Report>) {
    let (sender, mut updates) = mpsc::channel(1024);
    let _watches = follow::start(&client, &sender);
    drop(sender);
    let mut work = Work {
        store: Arc::new(KubeStore::new(client.clone())),
        events: Events::new(client.clone(), &config.identity),
        client,
        config,
        cluster: Cluster::default(),
        gone: Gone::default(),
    };
    let mut concerned = Concerned {
        pools: true,
        nodes: true,
        tiers: true,
    };
    let mut retry = Concerned::default();
    let mut gauges = Gauges::default();
    let mut sweep_at = Instant::now() + work.config.sweep_interval;
    loop {
        let wake = work.wake_at(sweep_at);
        tokio::select! {
            update = updates.recv() => match update {
                Some(update) => concerned = concerned | work.take(update),
                None => return,
            },
            () = tokio::time::sleep_until(wake) => {}
        }
        work.gather(&mut updates, &mut concerned).await;
        if !work.cluster.is_synced() {
            continue;
        }
        report.send_if_modified(|report| !std::mem::replace(&mut report.synced, true));
        if work.cluster.is_locked() {
            continue;
        }
        let sweep = Instant::now() >= sweep_at;
        if sweep {
            concerned = concerned | std::mem::take(&mut retry);
            sweep_at = Instant::now() + work.config.sweep_interval;
        }
        let (failures, again) = work.round(std::mem::take(&mut concerned), sweep).await;
        retry = retry | again;
        for failure in &failures {
            tracing::warn!("{failure}");
        }
        let error = (!failures.is_empty()).then(|| failures.join("; "));
        report.send_if_modified(|report| {
            let changed = report.error != error;
            report.error = error;
            changed
        });
        gauges.record(&work.cluster);
    }
}

impl Work {
    fn take(&mut self, update: Update) -> Concerned {
        self.cluster.apply(update, Instant::now())
    }

    /// Takes in what arrives within a short while.
    async fn gather(&mut self, updates: &mut mpsc::Receiver<Update>, concerned: &mut Concerned) {
        let until = Instant::now() + SETTLE;
        while let Ok(Some(update)) = tokio::time::timeout_at(until, updates.recv()).await {
            *concerned = *concerned | self.take(update);
        }
    }

    fn wake_at(&self, sweep_at: Instant) -> Instant {
        let due = self.gone.next(self.config.dead_node_after);
        due.map_or(sweep_at, |due| due.min(sweep_at))
    }

    /// One round; returns what failed, and what to look at again although nothing may change.
    async fn round(&mut self, concerned: Concerned, sweep: bool) -> (Vec<String>, Concerned) {
        let (mut failures, mut again) = (Vec::new(), Concerned::default());
        if concerned.pools {
            let failed = self.reconcile_pools().await;
            again.pools = !failed.is_empty();
            failures.extend(failed);
        }
        if concerned.tiers {
            let (failed, waiting) = self.reconcile_tiers().await;
            again.tiers = !failed.is_empty() || waiting;
            failures.extend(failed);
        }
        // Time alone makes a node due.
        failures.extend(self.reconcile_nodes().await);
        if sweep {
            failures.extend(self.sweep().await);
        }
        (failures, again)
    }
}

impl std::ops::BitOr for Concerned {
    type Output = Concerned;

    fn bitor(self, other: Concerned) -> Concerned {
        Concerned {
            pools: self.pools || other.pools,
            nodes: self.nodes || other.nodes,
            tiers: self.tiers || other.tiers,
        }
    }
}
