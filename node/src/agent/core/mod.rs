//! The agent's loop: one task owns the copy of the cluster and everything derived from it. Changes are gathered until
//! no more are waiting, then only what they touch is derived anew.

mod apply;
mod look;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::Client;
use margay_bgp::RecoveryEvent;
use margay_felix::calc::sessions::{BgpNode, Networks, SessionPlan, pools};
use margay_felix::{Dataplane, Source};
use margay_ipam::Ipam;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::bgp_state::{KEEP_STALE, Recovery, Transitions};
use super::cluster::{Cluster, Dirty};
use super::environment::Environment;
use super::events::Events;
use super::facts::Facts;
use super::problems::{Problem, Problems};
use super::report::Snapshot;
use super::restart::RestartState as Carried;
use super::speaker::Speaker;
use super::tunnel_addresses::Wanted;
use super::watch::{Update, Watches};
use crate::admin::view::View;
use crate::cni_server::NodeState;
use crate::health::Health;
use crate::logging::LogLevel;
use crate::metrics::Metrics;
use crate::metrics::bgp::SessionMetrics;

/// Names of health parts.
pub(crate) const DATASTORE: &str = "Datastore";
pub(crate) const DATAPLANE: &str = "Dataplane";
pub(crate) const LOOP: &str = "AgentLoop";
pub(crate) const IPAM: &str = "AddressManagement";

/// The loop reports at least this often, or counts as dead.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(90);

/// Pause between looks at the parts that do not report by themselves.
const TICK: Duration = Duration::from_millis(250);

/// How long sessions outlive the Node object.
const NODE_GRACE: Duration = Duration::from_secs(60);

/// How long a Secret that is watched for the first time may take to arrive.
const SECRET_LAG: Duration = Duration::from_millis(500);

/// Ticks from one look at the sessions to the next.
const TICKS_PER_LOOK: u32 = 4;

/// What the loop is built from.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) environment: Environment,
    pub(crate) client: Client,
    pub(crate) level: LogLevel,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    pub(crate) events: Events,
    pub(crate) dataplane: Dataplane,
    pub(crate) view: Arc<View>,
    pub(crate) facts: watch::Sender<Arc<Facts>>,
    pub(crate) reports: watch::Sender<Snapshot>,
    /// What the last process left.
    pub(crate) carried: Option<Carried>,
    pub(crate) restart_file: PathBuf,
    pub(crate) ipam: Ipam,
    /// Blocks of this node, valid once `ipam` is in sync.
    pub(crate) blocks: watch::Receiver<Vec<margay_ipam::OwnBlock>>,
    /// Addresses of wired pods.
    pub(crate) pod_addresses: watch::Receiver<Vec<IpAddr>>,
    /// What the CNI server is told.
    pub(crate) node_state: watch::Sender<NodeState>,
    /// Asks for the node's addresses to be settled again.
    pub(crate) redetect: Arc<Notify>,
    /// Tunnel devices that need an address.
    pub(crate) tunnels: watch::Sender<Option<Wanted>>,
    pub(crate) mtu: u32,
}

/// The loop's state.
pub(crate) struct Core {
    parts: Parts,
    cluster: Cluster,
    watches: Watches,
    updates: mpsc::Receiver<Update>,
    recovery_events: mpsc::Receiver<RecoveryEvent>,
    speaker: Speaker,
    recovery: Recovery,
    transitions: Transitions,
    problems: Problems,
    dirty: Dirty,
    started: Instant,
    plan: Option<Arc<SessionPlan>>,
    pools: Vec<pools::UsedPool>,
    before: BTreeSet<IpAddr>,
    carried: Carried,
    ipv6: bool,
    ticks: u32,
    blocks_known: bool,
    /// Since when the own Node object is missing.
    node_missing: Option<Instant>,
    session_metrics: SessionMetrics,
}

impl Core {
    /// Starts the watches.
    pub(crate) fn new(parts: Parts) -> Self {
        let (sender, updates) = mpsc::channel(1024);
        let (recovery_sender, recovery_events) = mpsc::channel(256);
        let watches = Watches::start(
            &parts.client,
            &parts.name,
            &parts.environment.namespace,
            sender,
        );
        let carried = parts.carried.clone().unwrap_or_default();
        Core {
            cluster: Cluster::new(&parts.name),
            watches,
            updates,
            recovery_events,
            speaker: Speaker::new(parts.dataplane.clone(), recovery_sender),
            recovery: Recovery::default(),
            transitions: Transitions::default(),
            problems: Problems::default(),
            dirty: Dirty::default(),
            started: Instant::now(),
            plan: None,
            pools: Vec::new(),
            before: carried.established.clone(),
            carried,
            ticks: 0,
            blocks_known: false,
            node_missing: None,
            session_metrics: SessionMetrics::default(),
            ipv6: std::path::Path::new("/proc/sys/net/ipv6").exists(),
            parts,
        }
    }

    /// Runs until `stop` is set, then closes the sessions quietly and writes the restart state. The kernel stays as it
    /// is.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut troubles = self.parts.dataplane.problems();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(update) = self.updates.recv() => {
                    self.take(update);
                    while let Ok(update) = self.updates.try_recv() {
                        self.take(update);
                    }
                    self.derive().await;
                }
                Some(event) = self.recovery_events.recv() => self.recover(event),
                Ok(()) = self.parts.blocks.changed() => self.routes_changed().await,
                Ok(()) = self.parts.pod_addresses.changed() => self.routes_changed().await,
                Ok(()) = troubles.changed() => {
                    let found = troubles.borrow_and_update().clone();
                    self.dataplane_problems(found);
                }
                _ = tick.tick() => self.tick().await,
            }
        }
        self.remember().await;
        self.speaker.stop().await;
    }

    fn take(&mut self, update: Update) {
        let was_synced = self.cluster.is_synced();
        self.dirty.merge(self.cluster.apply(update));
        if !was_synced && self.cluster.is_synced() {
            tracing::info!(
                nodes = self.cluster.nodes().len(),
                pools = self.cluster.pools().len(),
                "cluster state is complete"
            );
            self.dirty = Dirty::ALL;
        }
    }

    /// Derives what the gathered changes touch. Nothing happens before every kind is known, nor while the datastore is
    /// locked: then the last desired state stays in force.
    async fn derive(&mut self) {
        if self.dirty.is_clean() {
            return;
        }
        if !self.cluster.is_synced() {
            self.publish_facts();
            return;
        }
        if self.dirty.pods || self.dirty.cluster || self.dirty.own_node {
            self.publish_facts();
        }
        if !self.cluster.datastore_ready() {
            let locked = Problem {
                kind: "ClusterInformation".into(),
                name: "default".into(),
                reason: "DatastoreLocked".into(),
                field: "spec.datastoreReady".into(),
                message: "the datastore is locked; changes are applied when it is unlocked".into(),
            };
            self.report_problems("datastore", vec![locked]);
            return;
        }
        self.report_problems("datastore", Vec::new());
        let dirty = std::mem::take(&mut self.dirty);
        if dirty.settings {
            self.apply_settings().await;
        }
        if dirty.pools {
            self.apply_pools();
        }
        if dirty.blocks || dirty.pools || dirty.settings {
            self.apply_blocks();
        }
        if dirty.sessions || dirty.pools {
            self.parts.ipam.set_node_count(self.cluster.nodes().len());
            self.want_tunnels();
            if !self.is_in_grace() {
                self.apply_sessions().await;
            }
        }
        if dirty.own_node && self.own_addresses() == Networks::default() {
            // A Node that was made anew has to be told its addresses again.
            self.parts.redetect.notify_one();
        }
    }

    /// True when no session is planned.
    fn is_alone(&self) -> bool {
        self.plan
            .as_ref()
            .is_none_or(|plan| plan.sessions.is_empty())
    }

    /// True while the own Node object is missing, but not yet for long: a kubelet may be registering it anew, and its
    /// sessions stay meanwhile.
    fn is_in_grace(&mut self) -> bool {
        if self.cluster.own_node().is_some() || self.plan.is_none() {
            self.node_missing = None;
            return false;
        }
        let since = *self.node_missing.get_or_insert_with(Instant::now);
        since.elapsed() < NODE_GRACE
    }

    fn recover(&mut self, event: RecoveryEvent) {
        match event {
            RecoveryEvent::EndOfRib { peer, family } => self.recovery.end_of_rib(peer, family),
            RecoveryEvent::Finished => {
                tracing::info!("BGP recovery finished");
                self.recovery.finish();
            }
        }
        self.sweep_if_recovered();
    }

    fn sweep_if_recovered(&mut self) {
        if self.recovery.sweep(&self.before, self.started.elapsed()) {
            tracing::info!("stale BGP routes may go");
            self.parts.dataplane.in_sync(Source::Bgp);
        }
    }

    /// Keeps the restart state current: a crash must not need a farewell.
    async fn remember_peers(&mut self, up: BTreeSet<IpAddr>) {
        let routes_changed = self.speaker.take_routes_changed();
        if up == self.carried.established && !routes_changed && self.carried.forwarding {
            return;
        }
        // Peers that were up before a restart count until they had their chance to come back.
        let recovering = self.started.elapsed() < KEEP_STALE;
        let mut known = up;
        if recovering {
            known.extend(self.before.iter().copied());
        }
        self.carried.established = known;
        self.remember().await;
    }

    async fn remember(&mut self) {
        if let Ok(prefixes) = self.parts.dataplane.bgp_prefixes_outside_pools().await {
            self.carried.outside_pools = prefixes.into_iter().collect();
        }
        self.carried.forwarding = true;
        if let Err(error) = self.carried.store(&self.parts.restart_file) {
            tracing::warn!(error = format!("{error:#}"), "restart state not written");
        }
    }

    fn own_addresses(&self) -> Networks {
        self.cluster
            .nodes()
            .get(&self.parts.name)
            .map(|node: &BgpNode| node.addresses)
            .unwrap_or_default()
    }
}
