//! Looking at the parts: readiness, transitions, problems, reports.

use std::sync::Arc;

use jiff::Timestamp;
use margay_felix::Source;
use margay_ipam::names::block_name;
use margay_ipam::{AssignErrorKind, IpamProblem};

use super::{Core, DATAPLANE, DATASTORE, IPAM, LOOP, NODE_GRACE, TICKS_PER_LOOK};
use crate::agent::bgp_state::readiness;
use crate::agent::environment::Backend;
use crate::agent::events::Notice;
use crate::agent::facts::Facts;
use crate::agent::problems::Problem;
use crate::agent::report::Snapshot;
use crate::agent::speaker::established;
use crate::cni_server::NodeState;
use crate::health::server::BGP;
use crate::metrics::bgp::record_problems;

impl Core {
    /// Judges readiness for pods on every tick while it is missing, and everything once a second.
    pub(super) async fn tick(&mut self) {
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
            if self
                .node_missing
                .is_some_and(|since| since.elapsed() >= NODE_GRACE)
                && !self.is_alone()
            {
                tracing::warn!(
                    "the Node object has been deleted: leaving the cluster's BGP sessions"
                );
                self.dirty.sessions = true;
            }
            // Also changes that came while others were being applied.
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
        self.session_metrics.record(&peers, self.plan.as_deref());
        record_problems(&self.problems.counts());
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

    pub(super) fn publish_facts(&self) {
        let facts = Facts {
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

    pub(super) fn dataplane_problems(&mut self, found: Vec<margay_felix::Problem>) {
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

    pub(super) fn node_problem(&self, reason: &str, message: String) -> Problem {
        Problem {
            kind: "Node".into(),
            name: self.parts.name.clone(),
            reason: reason.into(),
            field: String::new(),
            message,
        }
    }

    /// Replaces the problems of one part; each new one is logged and becomes an Event.
    pub(super) fn report_problems(&mut self, part: &'static str, problems: Vec<Problem>) {
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
