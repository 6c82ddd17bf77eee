//! The agent's loop: one task owns the copy of the cluster and everything derived from it. Changes are gathered until
//! no more are waiting, then only what they touch is derived anew.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use margay_bgp::{Families, RecoveryEvent, RestartState, SpeakerConfig};
use margay_felix::calc::sessions::{
    BgpNode, Inputs, Networks, SessionPlan, export, origin,
    origin::{BlockState, HeldBlock},
    peer_config, plan, pools,
};
use margay_felix::calc::remote;
use margay_felix::{Dataplane, EncapMode, LocalNode, OwnBlock, Provenance, Source};
use margay_ipam::names::block_name;
use margay_ipam::{AssignErrorKind, Ipam, IpamProblem};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::bgp_state::{Recovery, Transitions, readiness};
use super::cluster::{Cluster, Dirty};
use super::environment::{Backend, Environment};
use super::events::{Events, Notice};
use super::facts::Facts;
use super::problems::{Problem, Problems};
use super::report::Snapshot;
use super::restart::RestartState as Carried;
use super::speaker::{Speaker, established};
use super::watch::{Update, Watches};
use super::tunnel_addresses::{self, Wanted};
use super::{settings, startup};
use crate::admin::view::{BgpView, View};
use crate::cni_server::NodeState;
use crate::health::Health;
use crate::health::server::BGP;
use crate::logging::LogLevel;
use crate::metrics::Metrics;
use crate::metrics::bgp as bgp_metrics;

/// Names of health parts.
pub(crate) const DATASTORE: &str = "Datastore";
pub(crate) const DATAPLANE: &str = "Dataplane";
pub(crate) const LOOP: &str = "AgentLoop";
pub(crate) const IPAM: &str = "AddressManagement";

/// The loop reports at least this often, or counts as dead.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(90);

/// Pause between looks at the parts that do not report by themselves.
const TICK: Duration = Duration::from_millis(250);

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
            self.apply_sessions().await;
        }
    }

    async fn apply_settings(&mut self) {
        let objects = self.cluster.felix();
        self.parts.dataplane.configure(settings::dataplane(objects));
        let severity = settings::log_severity(objects);
        let severity = severity.or_else(|| {
            self.cluster
                .configurations()
                .0
                .log_severity(&self.parts.name)
        });
        self.parts.level.configure(severity.as_deref());
        let address = settings::metrics_address(&self.parts.environment, self.cluster.felix());
        self.parts.metrics.serve(address).await;
    }

    fn apply_pools(&mut self) {
        let (used, problems) = pools::used_pools(self.cluster.pools());
        self.parts
            .dataplane
            .set_pools(used.iter().map(|pool| pool.view.clone()).collect());
        self.parts.dataplane.in_sync(Source::Pools);
        self.pools = used;
        self.want_tunnels();
        self.report_problems("pools", problems.into_iter().map(Problem::from).collect());
    }

    /// Tells which tunnel devices need an address.
    fn want_tunnels(&self) {
        let Some(node) = self.cluster.nodes().get(&self.parts.name) else { return };
        let wanted = Some(tunnel_addresses::wanted(self.cluster.pools(), &node.labels));
        self.parts.tunnels.send_if_modified(|last| {
            let changed = *last != wanted;
            *last = wanted;
            changed
        });
    }

    /// The sessions of this node as the cluster stands.
    fn plan(&self) -> (SessionPlan, Vec<String>) {
        let (configurations, ignored) = self.cluster.configurations();
        let passwords = self.cluster.passwords();
        let plan = plan(&Inputs {
            node: &self.parts.name,
            nodes: self.cluster.nodes(),
            peers: self.cluster.peers(),
            configurations: &configurations,
            passwords: &passwords,
            router_id: &self.parts.environment.router_id,
        });
        (plan, ignored)
    }

    /// Waits a moment for Secrets that are watched for the first time, so that a session with a password is not
    /// reported as broken before its Secret could arrive.
    async fn await_secrets(&mut self, plan: &SessionPlan) -> bool {
        let names: BTreeSet<String> = plan.secrets.iter().map(|secret| secret.name.clone()).collect();
        self.cluster.retain_secrets(&names);
        let fresh = self.watches.follow_secrets(&names);
        if fresh.is_empty() {
            return false;
        }
        let deadline = tokio::time::Instant::now() + SECRET_LAG;
        while !fresh.iter().all(|name| self.cluster.knows_secret(name)) {
            match tokio::time::timeout_at(deadline, self.updates.recv()).await {
                Ok(Some(update)) => self.take(update),
                _ => break,
            }
        }
        true
    }

    async fn apply_sessions(&mut self) {
        let (mut plan, mut ignored) = self.plan();
        if self.await_secrets(&plan).await {
            (plan, ignored) = self.plan();
        }
        let mut problems: Vec<Problem> = plan.problems.iter().cloned().map(Problem::from).collect();
        problems.extend(ignored.into_iter().map(|name| Problem {
            message: format!(
                "has no effect: a BGPConfiguration is named default or node.NODENAME, not {name}"
            ),
            kind: "BGPConfiguration".into(),
            name,
            reason: "ConfigInvalid".into(),
            field: "metadata.name".into(),
        }));
        let own = self.own_addresses();
        self.apply_nodes(&own);
        if self.parts.environment.backend == Backend::Bgp {
            if let Err(error) = self.run_speaker(&plan, &own).await {
                problems.push(self.node_problem("BGPNotRunning", format!("{error:#}")));
            }
            let (peers, refused) = self.peers(&plan);
            problems.extend(refused);
            if peers.is_empty() && self.has_neighbours(&own) {
                let message =
                    "this node has no BGP session: the mesh is off and no BGPPeer applies";
                problems.push(self.node_problem("BGPNoSessions", message.into()));
            }
            if let Err(error) = self.speaker.set_peers(peers).await {
                problems.push(self.node_problem("BGPNotRunning", format!("{error:#}")));
            }
        }
        self.plan = Some(Arc::new(plan));
        self.parts.view.bgp.store(Arc::new(BgpView {
            handle: self.speaker.handle().cloned(),
            plan: self.plan.clone(),
            addresses: own,
        }));
        self.report_problems("sessions", problems);
    }

    /// Addresses and tunnel ends of this node and the others.
    fn apply_nodes(&self, own: &Networks) {
        let nodes = self.cluster.nodes();
        let tunnels = nodes.get(&self.parts.name).map(|node| node.tunnels).unwrap_or_default();
        self.parts.dataplane.set_local_node(LocalNode {
            addresses: [own.v4, own.v6].into_iter().flatten().map(|address| address.net).collect(),
            vxlan_addresses: [tunnels.vxlan_v4, tunnels.vxlan_v6].into_iter().flatten().collect(),
            ipip_address: tunnels.ipip,
        });
        self.parts.dataplane.set_remote_nodes(remote::remote_nodes(nodes, &self.parts.name));
    }

    /// Blocks of other nodes, when this agent writes their routes itself.
    fn apply_blocks(&mut self) {
        if !self.needs_blocks() {
            self.watches.follow_blocks(false);
            self.cluster.forget_blocks();
            self.parts.dataplane.set_remote_blocks(Vec::new());
            self.parts.dataplane.in_sync(Source::RemoteBlocks);
            return;
        }
        self.watches.follow_blocks(true);
        if let Some(blocks) = self.cluster.blocks() {
            self.parts.dataplane.set_remote_blocks(remote::remote_blocks(&blocks, &self.parts.name));
            self.parts.dataplane.in_sync(Source::RemoteBlocks);
        }
    }

    /// True when routes of some pool come from blocks instead of BGP.
    fn needs_blocks(&self) -> bool {
        let settings = settings::dataplane(self.cluster.felix());
        self.pools.iter().any(|pool| match (pool.view.vxlan, pool.view.ipip) {
            (EncapMode::Never, EncapMode::Never) => settings.program_no_encap_routes,
            (EncapMode::Never, _) => settings.program_ipip_routes,
            _ => true,
        })
    }

    /// True when another node could be a peer of this one.
    fn has_neighbours(&self, own: &Networks) -> bool {
        let others = self
            .cluster
            .nodes()
            .iter()
            .filter(|(name, _)| **name != self.parts.name);
        let shares = |node: &BgpNode| {
            let pairs = [(own.v4, node.addresses.v4), (own.v6, node.addresses.v6)];
            pairs
                .iter()
                .any(|(mine, theirs)| mine.is_some() && theirs.is_some())
        };
        others.into_iter().any(|(_, node)| shares(node))
    }

    /// Peers of a plan with the export policy of now.
    fn peers(&self, plan: &SessionPlan) -> (Vec<margay_bgp::PeerConfig>, Vec<Problem>) {
        let confirmed = origin::confirmed(&self.blocks());
        let (peers, problems) = peer_config::peer_configs(plan, |family| {
            export::policy(family, &self.pools, &confirmed)
        });
        (peers, problems.into_iter().map(Problem::from).collect())
    }

    async fn run_speaker(&mut self, plan: &SessionPlan, own: &Networks) -> anyhow::Result<()> {
        let forwarding = self
            .parts
            .carried
            .as_ref()
            .is_some_and(|carried| carried.forwarding);
        let config = SpeakerConfig {
            cluster_id: plan.cluster_id,
            listen: peer_config::listen_addresses(plan, own, self.ipv6),
            restart: RestartState {
                restarted: self.parts.carried.is_some(),
                preserved: if forwarding {
                    Families::BOTH
                } else {
                    Families::NONE
                },
            },
            ..SpeakerConfig::new(plan.router_id)
        };
        if self.speaker.ensure(config).await? {
            // Local routes before peers: the first table sent is already the right one.
            self.originate().await;
        }
        Ok(())
    }

    /// Blocks or pod addresses changed: kernel blackholes, originated routes, export rules.
    async fn routes_changed(&mut self) {
        self.parts.blocks.mark_unchanged();
        if self.parts.ipam.is_synced() {
            let own = origin::routed(&self.blocks())
                .into_iter()
                .map(|cidr| OwnBlock {
                    cidr,
                    provenance: Provenance::cluster("IPAMBlock", &block_name(&cidr)),
                })
                .collect();
            self.parts.dataplane.set_own_blocks(own);
            self.parts.dataplane.in_sync(Source::OwnBlocks);
            self.blocks_known = true;
        }
        self.originate().await;
        if let Some(plan) = self.plan.clone() {
            let (peers, _) = self.peers(&plan);
            if let Err(error) = self.speaker.set_peers(peers).await {
                tracing::error!(error = format!("{error:#}"), "BGP peers not applied");
            }
        }
    }

    async fn originate(&mut self) {
        if !self.parts.ipam.is_synced() {
            // The first list ends this side of a restart (RFC 4724): it has to be complete.
            return;
        }
        let pods: Vec<IpAddr> = self.parts.pod_addresses.borrow_and_update().clone();
        let routes = origin::local_routes(
            &self.blocks(),
            pods.into_iter().map(|address| (address, false)),
        );
        if let Err(error) = self.speaker.set_local_routes(routes).await {
            tracing::error!(error = format!("{error:#}"), "local routes not applied");
        }
    }

    fn blocks(&self) -> Vec<HeldBlock> {
        let blocks = self.parts.blocks.borrow();
        blocks
            .iter()
            .map(|block| HeldBlock {
                cidr: block.cidr,
                state: BlockState::Confirmed,
            })
            .collect()
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

    /// Judges readiness for pods on every tick while it is missing, and everything once a second.
    async fn tick(&mut self) {
        self.parts.health.report(LOOP, Ok(()));
        self.ticks = self.ticks.wrapping_add(1);
        let due = self.ticks.is_multiple_of(TICKS_PER_LOOK);
        if !self.blocks_known && self.parts.ipam.is_synced() {
            self.routes_changed().await;
        }
        if due || self.parts.node_state.borrow().not_ready.is_some() {
            self.judge_pod_readiness().await;
        }
        if due {
            // Changes that came while others were being applied.
            self.derive().await;
            self.look().await;
        }
    }

    /// Tells the CNI server whether pods may be added.
    async fn judge_pod_readiness(&mut self) {
        let dataplane = self.dataplane_readiness().await;
        // A lock of the datastore keeps pods from being added, but says nothing about the node's health.
        let (mut healthy, mut unlocked) = (
            dataplane
                .clone()
                .map_err(|cause| format!("the kernel is {cause}")),
            Ok(()),
        );
        match self.parts.ipam.check() {
            Ok(()) => {}
            Err(error) if error.kind == AssignErrorKind::Locked => unlocked = Err(error.message),
            Err(error) => healthy = Err(error.message),
        }
        if !self.cluster.is_synced() {
            let missing = self.cluster.unsynced().join(", ");
            healthy = Err(format!(
                "the agent has not read {missing} from the API server yet"
            ));
        }
        self.parts
            .health
            .report(IPAM, healthy.clone().and(unlocked.clone()));
        let has_pool = |v4: bool| {
            self.pools
                .iter()
                .any(|pool| pool.view.workload && pool.view.cidr.addr().is_ipv4() == v4)
        };
        let state = NodeState {
            not_ready: healthy.clone().and(unlocked).err(),
            unhealthy: healthy.err(),
            mtu: Some(self.parts.mtu),
            has_v4_pool: has_pool(true),
            has_v6_pool: has_pool(false),
        };
        self.parts.health.report(DATAPLANE, dataplane);
        self.parts.node_state.send_if_modified(|last| {
            let changed = *last != state;
            *last = state;
            changed
        });
    }

    /// Judges the sessions, refreshes health, metrics and reports.
    async fn look(&mut self) {
        let unsynced = self.cluster.unsynced();
        if unsynced.is_empty() {
            self.parts.health.report(DATASTORE, Ok(()));
        } else {
            self.parts.health.report(
                DATASTORE,
                Err(format!(
                    "waiting for the API server to list {}",
                    unsynced.join(", ")
                )),
            );
        }
        self.sweep_if_recovered();
        if self.plan.is_some()
            && self.speaker.handle().is_none()
            && self.parts.environment.backend == Backend::Bgp
        {
            // The port may have been taken by another program; it may be free now.
            self.dirty.sessions = true;
            self.derive().await;
        }
        self.ipam_problems();
        let peers = self.speaker.peers().await;
        for transition in self.transitions.observe(&peers) {
            let notice = match transition.up {
                true => {
                    tracing::info!("{}", transition.message);
                    Notice::normal(&self.parts.name, "BGPSessionUp", transition.message)
                }
                false => {
                    tracing::warn!("{}", transition.message);
                    Notice::warning(
                        "Node",
                        &self.parts.name,
                        "BGPSessionDown",
                        transition.message,
                    )
                }
            };
            self.parts.events.send(notice);
        }
        self.parts.health.report(BGP, self.bgp_readiness(&peers));
        bgp_metrics::record(&peers, self.plan.as_deref());
        bgp_metrics::record_problems(&self.problems.counts());
        self.remember_peers(established(&peers)).await;
        self.publish_report().await;
    }

    fn bgp_readiness(&self, peers: &[margay_bgp::PeerStatus]) -> Result<(), String> {
        if self.parts.environment.backend != Backend::Bgp {
            return Ok(());
        }
        if self.speaker.handle().is_none() {
            return Err("the BGP speaker does not run yet".into());
        }
        readiness(peers, &self.before, self.speaker.started().elapsed())
    }

    async fn dataplane_readiness(&self) -> Result<(), String> {
        match self.parts.dataplane.status().await {
            Ok(status) if status.ready => Ok(()),
            Ok(status) => {
                let missing: Vec<String> = Source::ALL
                    .iter()
                    .filter(|source| !status.in_sync.contains(source))
                    .map(|source| format!("{source:?}"))
                    .collect();
                Err(format!(
                    "not programmed yet; waiting for {}",
                    missing.join(", ")
                ))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Keeps the restart state current: a crash must not need a farewell.
    async fn remember_peers(&mut self, up: BTreeSet<IpAddr>) {
        let routes_changed = self.speaker.take_routes_changed();
        if up == self.carried.established && !routes_changed && self.carried.forwarding {
            return;
        }
        // Peers that were up before a restart count until they had their chance to come back.
        let recovering = self.started.elapsed() < super::bgp_state::KEEP_STALE;
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

    fn publish_facts(&self) {
        let facts = Facts {
            synced: self.cluster.is_synced(),
            datastore_ready: self.cluster.datastore_ready(),
            node_exists: self.cluster.own_node().is_some(),
            pods: self.cluster.pods().clone(),
            namespaces: self.cluster.namespaces().clone(),
        };
        self.parts.facts.send_replace(Arc::new(facts));
    }

    async fn publish_report(&self) {
        let snapshot = Snapshot {
            status: crate::admin::status(&self.parts.view).await,
            peers: crate::admin::bgp_peers(&self.parts.view).await,
            problems: self.parts.view.problems.load_full().as_ref().clone(),
        };
        self.parts.reports.send_if_modified(|last| {
            let changed = *last != snapshot;
            *last = snapshot;
            changed
        });
    }

    fn dataplane_problems(&mut self, found: Vec<margay_felix::Problem>) {
        let problems = found
            .into_iter()
            .map(|problem| {
                let (kind, name) = problem
                    .subject
                    .split_once('/')
                    .unwrap_or(("Node", &self.parts.name));
                Problem {
                    kind: kind.to_owned(),
                    name: name.to_owned(),
                    reason: problem.kind.reason().to_owned(),
                    field: problem.field,
                    message: problem.message,
                }
            })
            .collect();
        self.report_problems("dataplane", problems);
    }

    fn ipam_problems(&mut self) {
        let node = self.parts.name.clone();
        let problems = self
            .parts
            .ipam
            .problems()
            .into_iter()
            .filter_map(|problem| match problem {
                // What is wrong with a pool is told by the calculation, for routing and addresses alike.
                IpamProblem::Pool { .. } => None,
                IpamProblem::Configuration(message) => Some(Problem {
                    kind: "IPAMConfiguration".into(),
                    name: "default".into(),
                    reason: "ConfigInvalid".into(),
                    field: "spec".into(),
                    message,
                }),
                IpamProblem::Block { cidr, reason } => Some(Problem {
                    kind: "IPAMBlock".into(),
                    name: block_name(&cidr),
                    reason: "BlockInvalid".into(),
                    field: String::new(),
                    message: format!("{reason}; the block is not used"),
                }),
                IpamProblem::Lost { ip, holder } => Some(Problem {
                    kind: "Node".into(),
                    name: node.clone(),
                    reason: "AddressConflict".into(),
                    field: String::new(),
                    message: format!(
                        "{ip} is used by a pod of this node but recorded for {holder}"
                    ),
                }),
            });
        let problems = problems.collect();
        self.report_problems("ipam", problems);
    }

    fn node_problem(&self, reason: &str, message: String) -> Problem {
        Problem {
            kind: "Node".into(),
            name: self.parts.name.clone(),
            reason: reason.into(),
            field: String::new(),
            message,
        }
    }

    /// Replaces the problems of one part; each new one is logged and becomes an Event.
    fn report_problems(&mut self, part: &'static str, problems: Vec<Problem>) {
        for fresh in self.problems.replace(part, Timestamp::now(), problems) {
            tracing::warn!(
                kind = fresh.kind,
                name = fresh.name,
                reason = fresh.reason,
                field = fresh.field,
                "{}",
                fresh.message
            );
            let message = match fresh.field.is_empty() {
                true => fresh.message,
                false => format!("{}: {}", fresh.field, fresh.message),
            };
            self.parts.events.send(Notice::warning(
                &fresh.kind,
                &fresh.name,
                &fresh.reason,
                message,
            ));
        }
        self.parts
            .view
            .problems
            .store(Arc::new(self.problems.list()));
    }
}

/// Address re-detection, for the life of the agent: a changed address is written to the Node, from where it comes back
/// through the watch like any other change. Three failures in a row are needed before an address counts as lost.
pub(crate) async fn redetect(
    client: Client,
    name: String,
    environment: Environment,
    events: Events,
) {
    let mut failures = 0;
    loop {
        tokio::time::sleep(environment.poll_interval).await;
        let attempt = async {
            let node = startup::own_node(&client, &name).await?;
            startup::settle_addresses(&client, &environment, &node).await
        };
        match attempt.await {
            Ok(_) => failures = 0,
            Err(error) => {
                failures += 1;
                tracing::warn!(
                    error = format!("{error:#}"),
                    failures,
                    "address detection failed"
                );
                if failures == 3 {
                    events.send(Notice::warning(
                        "Node",
                        &name,
                        "NodeAddressLost",
                        format!("{error:#}"),
                    ));
                }
            }
        }
    }
}
