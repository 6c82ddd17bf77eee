//! From the copy of the cluster to dataplane and speaker.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use margay_bgp::{Families, PeerConfig, RestartState, SpeakerConfig};
use margay_felix::calc::remote;
use margay_felix::calc::sessions::origin::{BlockState, HeldBlock};
use margay_felix::calc::sessions::{
    BgpNode, Inputs, Networks, SessionPlan, export, origin, peer_config, plan, pools,
};
use margay_felix::{EncapMode, LocalNode, OwnBlock, Provenance, Source};
use margay_ipam::names::block_name;

use super::{Core, SECRET_LAG};
use crate::admin::view::BgpView;
use crate::agent::environment::Backend;
use crate::agent::problems::Problem;
use crate::agent::{settings, tunnel_addresses};

impl Core {
    pub(super) async fn apply_settings(&mut self) {
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

    pub(super) fn apply_pools(&mut self) {
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
    pub(super) fn want_tunnels(&self) {
        let Some(node) = self.cluster.nodes().get(&self.parts.name) else {
            return;
        };
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
        let names: BTreeSet<String> = plan
            .secrets
            .iter()
            .map(|secret| secret.name.clone())
            .collect();
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

    pub(super) async fn apply_sessions(&mut self) {
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
        let tunnels = nodes
            .get(&self.parts.name)
            .map(|node| node.tunnels)
            .unwrap_or_default();
        self.parts.dataplane.set_local_node(LocalNode {
            addresses: [own.v4, own.v6]
                .into_iter()
                .flatten()
                .map(|address| address.net)
                .collect(),
            vxlan_addresses: [tunnels.vxlan_v4, tunnels.vxlan_v6]
                .into_iter()
                .flatten()
                .collect(),
            ipip_address: tunnels.ipip,
        });
        self.parts
            .dataplane
            .set_remote_nodes(remote::remote_nodes(nodes, &self.parts.name));
    }

    /// Blocks of other nodes, when this agent writes their routes itself.
    pub(super) fn apply_blocks(&mut self) {
        if !self.needs_blocks() {
            self.watches.follow_blocks(false);
            self.cluster.forget_blocks();
            self.parts.dataplane.set_remote_blocks(Vec::new());
            self.parts.dataplane.in_sync(Source::RemoteBlocks);
            return;
        }
        self.watches.follow_blocks(true);
        if let Some(blocks) = self.cluster.blocks() {
            self.parts
                .dataplane
                .set_remote_blocks(remote::remote_blocks(&blocks, &self.parts.name));
            self.parts.dataplane.in_sync(Source::RemoteBlocks);
        }
    }

    /// True when routes of some pool come from blocks instead of BGP.
    fn needs_blocks(&self) -> bool {
        let settings = settings::dataplane(self.cluster.felix());
        self.pools
            .iter()
            .any(|pool| match (pool.view.vxlan, pool.view.ipip) {
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
    fn peers(&self, plan: &SessionPlan) -> (Vec<PeerConfig>, Vec<Problem>) {
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
    pub(super) async fn routes_changed(&mut self) {
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
}
