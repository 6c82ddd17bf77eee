//! Everything the dataplane's thread knows: desired state by source, the kernel as last heard, and the difference.

mod apply;
mod bgp;
mod blocks;
mod drift;
mod endpoints;
mod events;
mod facts;
mod removal;
mod settings;
mod tables;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tokio::sync::oneshot;

use super::DataplaneError;
use super::config::{DataplaneConfig, Settings};
use super::drift::DriftLog;
use super::flows::{self, FlowJob};
use super::reactor::Input;
use super::status::Problem;
use crate::desired::{
    BgpNextHop, BgpRoute, EndpointDesired, EndpointId, LocalNode, OwnBlock, PoolView, Provenance,
    RemoteBlock, RemoteNode, Source,
};
use crate::kernel::MacAddr;
use crate::kernel::rtnl::{FdbKey, Hop, NeighKey, RouteKey, RouteSpec, Rtnl};
use crate::map::{HashMap, HashSet};
use crate::reconcile::Reconciled;
use crate::routes::{Candidates, Choice, Ownership, PoolTable, Topology};
use tables::Tables;

/// See the module's words.
pub(super) struct State {
    config: DataplaneConfig,
    settings: Settings,
    rtnl: Rtnl,
    tables: Tables,
    flow_jobs: mpsc::Sender<FlowJob>,
    /// Addresses whose flows are being forgotten; their new routes wait.
    forgetting: HashSet<IpAddr>,
    /// Pools whose untranslated flows have been cut.
    translated: BTreeSet<IpNet>,

    in_sync: BTreeSet<Source>,
    endpoints: HashMap<EndpointId, EndpointDesired>,
    endpoints_by_interface: HashMap<String, BTreeSet<EndpointId>>,
    endpoint_routes: HashMap<EndpointId, BTreeSet<RouteKey>>,
    endpoint_neighbours: HashMap<EndpointId, BTreeSet<NeighKey>>,
    own_blocks: Vec<OwnBlock>,
    own_block_keys: BTreeSet<RouteKey>,
    pools: Vec<PoolView>,
    pool_table: PoolTable,
    remote_blocks: Vec<RemoteBlock>,
    remote_block_keys: BTreeSet<RouteKey>,
    remote_nodes: BTreeMap<String, RemoteNode>,
    local_node: LocalNode,
    bgp: HashMap<IpNet, BgpRoute>,
    bgp_keys: HashMap<IpNet, RouteKey>,
    bgp_provenance: Arc<Provenance>,

    topology: Topology,
    candidates: Candidates,
    ownership: Ownership,
    next_hops: HashMap<BgpNextHop, Vec<Hop>>,
    underlay_changed: bool,
    /// Index and MTU of the links with our own addresses, IPv4 and IPv6.
    uplinks: [Option<(u32, u32)>; 2],

    routes: Reconciled<RouteKey, RouteSpec>,
    /// Routes of the kernel whose only next hop uses an interface.
    routes_by_link: HashMap<u32, HashSet<RouteKey>>,
    /// Parallel routes that others added under a key of ours.
    stray_routes: Vec<(RouteKey, RouteSpec)>,
    neighbours: Reconciled<NeighKey, MacAddr>,
    fdb: Reconciled<FdbKey, IpAddr>,
    /// Entries wanted on the VXLAN devices, IPv4 and IPv6.
    vtep_neighbours: [BTreeSet<NeighKey>; 2],
    vtep_fdb: [BTreeSet<FdbKey>; 2],
    tunnels_failed: bool,
    appeared: HashMap<u32, Instant>,
    reconsider_at: Option<Instant>,
    resync_wanted: bool,
    /// Interfaces whose routes have to be read again.
    links_to_read: BTreeSet<u32>,
    /// Interfaces whose sysctls may have been changed.
    settings_to_check: BTreeSet<u32>,
    /// Interfaces that had all their settings once; what differs later was changed by somebody.
    settings_done: BTreeSet<u32>,
    forwarding_on: bool,
    global_settings_to_check: bool,
    tunnels_changed: bool,
    rules_changed: bool,
    feature_problems: Vec<Problem>,

    waiting: Vec<(EndpointId, oneshot::Sender<()>)>,
    drift: drift::DriftState,
    problems: Vec<Problem>,
    problems_stale: bool,
    verified_at: Option<std::time::SystemTime>,
    missed: u64,
    writes: u64,
    first_commit_done: bool,
}

impl State {
    /// Opens the sockets in the calling thread's namespace; nothing is read or written yet.
    pub(super) fn open(
        config: DataplaneConfig,
        log: Arc<Mutex<DriftLog>>,
        input: mpsc::Sender<Input>,
    ) -> Result<Self, DataplaneError> {
        let rtnl = Rtnl::open().map_err(|source| DataplaneError::Kernel {
            action: "open an rtnetlink socket",
            source,
        })?;
        let tables = Tables::open().map_err(|source| DataplaneError::Kernel {
            action: "open an nf_tables socket",
            source,
        })?;
        let flow_jobs = flows::start(input)?;
        let settings = config.settings.clone();
        let ownership = Ownership {
            interface_prefixes: config.interface_prefixes.clone(),
            device_protocol: config.device_route_protocol,
            bgp_protocol: config.bgp_route_protocol,
            remove_external: settings.remove_external_routes,
            restart_prefixes: config.restart_prefixes.iter().map(IpNet::trunc).collect(),
        };
        let drift = drift::DriftState::new(log, config.drift_log.clone());
        Ok(Self {
            settings,
            rtnl,
            tables,
            flow_jobs,
            forgetting: HashSet::default(),
            translated: BTreeSet::new(),
            in_sync: BTreeSet::new(),
            endpoints: HashMap::default(),
            endpoints_by_interface: HashMap::default(),
            endpoint_routes: HashMap::default(),
            endpoint_neighbours: HashMap::default(),
            own_blocks: Vec::new(),
            own_block_keys: BTreeSet::new(),
            pools: Vec::new(),
            pool_table: PoolTable::default(),
            remote_blocks: Vec::new(),
            remote_block_keys: BTreeSet::new(),
            remote_nodes: BTreeMap::new(),
            local_node: LocalNode::default(),
            bgp: HashMap::default(),
            bgp_keys: HashMap::default(),
            bgp_provenance: Arc::new(Provenance::cluster("BGP", "")),
            topology: Topology::default(),
            candidates: Candidates::default(),
            ownership,
            next_hops: HashMap::default(),
            underlay_changed: false,
            uplinks: [None; 2],
            routes: Reconciled::default(),
            routes_by_link: HashMap::default(),
            stray_routes: Vec::new(),
            neighbours: Reconciled::default(),
            fdb: Reconciled::default(),
            vtep_neighbours: Default::default(),
            vtep_fdb: Default::default(),
            tunnels_failed: false,
            appeared: HashMap::default(),
            reconsider_at: None,
            resync_wanted: false,
            links_to_read: BTreeSet::new(),
            settings_to_check: BTreeSet::new(),
            settings_done: BTreeSet::new(),
            forwarding_on: false,
            global_settings_to_check: false,
            tunnels_changed: true,
            rules_changed: true,
            feature_problems: Vec::new(),
            waiting: Vec::new(),
            drift,
            problems: Vec::new(),
            problems_stale: true,
            verified_at: None,
            missed: 0,
            writes: 0,
            first_commit_done: false,
            config,
        })
    }

    /// Interval of the full check.
    pub(super) fn full_check(&self) -> Duration {
        self.config.full_check
    }

    /// Receive buffer for kernel notices.
    pub(super) fn monitor_buffer(&self) -> usize {
        self.config.monitor_buffer
    }

    /// Ports whose route and neighbour changes are our own.
    pub(super) fn own_ports(&self) -> Vec<u32> {
        vec![self.rtnl.port()]
    }

    /// A source has delivered its complete picture.
    pub(super) fn in_sync(&mut self, source: Source) {
        if self.in_sync.insert(source) {
            tracing::info!(?source, "source is in sync");
            if matches!(source, Source::Pools | Source::RemoteBlocks) {
                self.tunnels_changed = true;
                self.replan_bgp();
            }
            self.routes.reconsider();
            self.neighbours.reconsider();
            self.fdb.reconsider();
        }
    }

    /// True when a source's picture is complete. Without anybody who tells of other nodes' blocks, their routes come
    /// from BGP.
    fn is_complete(&self, source: Source) -> bool {
        self.in_sync.contains(&source)
            || (source == Source::RemoteBlocks
                && self.remote_blocks.is_empty()
                && self.in_sync.contains(&Source::Bgp))
    }

    /// New settings.
    pub(super) fn configure(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        if settings.table_owner != self.settings.table_owner {
            self.tables.reread();
        }
        self.settings = settings;
        self.rules_changed = true;
        self.tunnels_changed = true;
        self.global_settings_to_check = true;
        self.ownership.remove_external = self.settings.remove_external_routes;
        self.replan_everything();
    }

    /// Plans all sources anew after something changed that concerns all of them.
    fn replan_everything(&mut self) {
        let endpoints: Vec<EndpointId> = self.endpoints.keys().cloned().collect();
        for id in endpoints {
            self.plan_endpoint(&id);
        }
        self.plan_own_blocks();
        self.plan_remote_blocks();
        self.replan_bgp();
        self.routes.reconsider();
        self.problems_stale = true;
    }

    /// Preferred source address of our routes in a family.
    fn route_source(&self, ipv6: bool) -> Option<IpAddr> {
        self.settings
            .route_source
            .iter()
            .copied()
            .find(|a| a.is_ipv6() == ipv6)
    }

    /// MTU of IPIP routes.
    fn ipip_mtu(&self) -> Option<u32> {
        self.settings
            .ipip_mtu
            .or_else(|| self.uplink_mtu(false)?.checked_sub(20))
    }

    /// MTU of a VXLAN device and its routes.
    fn vxlan_mtu(&self, ipv6: bool) -> Option<u32> {
        if ipv6 {
            self.settings
                .vxlan_mtu_v6
                .or_else(|| self.uplink_mtu(true)?.checked_sub(70))
        } else {
            self.settings
                .vxlan_mtu
                .or_else(|| self.uplink_mtu(false)?.checked_sub(50))
        }
    }

    fn uplink_mtu(&self, ipv6: bool) -> Option<u32> {
        Some(self.topology.link(self.topology.uplink(ipv6)?)?.mtu)
    }

    /// True when a family is switched on.
    fn family_on(&self, ipv6: bool) -> bool {
        if ipv6 {
            self.settings.ipv6
        } else {
            self.settings.ipv4
        }
    }

    /// Looks again who gets a route.
    fn recompute(&mut self, key: RouteKey) {
        match self.candidates.choose(&key, &self.topology) {
            Choice::None => self.routes.unwant(&key),
            Choice::NotNow => self.routes.suspend(&key),
            Choice::Route(spec) => {
                self.routes.want(key, spec);
                self.routes.retry(&key);
            }
        }
    }

    fn recompute_all(&mut self, keys: impl IntoIterator<Item = RouteKey>) {
        for key in keys {
            self.recompute(key);
        }
    }
}
