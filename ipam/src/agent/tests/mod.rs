//! The allocator over a store in memory.

mod claims;
mod crashes;
mod random;
mod reserve;
mod write_through;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::ObjectMeta;
use margay_crds::{
    BlockAffinity, IPAMBlock, IPAMConfiguration, IPAMConfigurationSpec, IPAMHandle, IPPool,
    IPPoolSpec, IPReservation, IPReservationSpec,
};
use serde::Serialize;

use super::*;
use crate::block::Block;
use crate::request::{AssignRequest, Assigned};
use crate::store::{Filter, Kind, MemoryStore, Stored};

/// A cluster in memory.
pub(super) struct Cluster {
    pub(super) store: MemoryStore,
    folder: tempfile::TempDir,
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl Cluster {
    pub(super) fn new() -> Self {
        Cluster {
            store: MemoryStore::new(),
            folder: tempfile::tempdir().expect("a folder"),
            start: "2026-03-04T05:06:07Z".parse().expect("a time"),
            origin: tokio::time::Instant::now(),
        }
    }

    /// A cluster with the pool `main` 10.244.0.0/16.
    pub(super) fn with_main() -> Self {
        let cluster = Cluster::new();
        cluster.pool("main", "10.244.0.0/16", |_| {});
        cluster
    }

    pub(super) fn put<K: Stored + Serialize>(&self, object: &K) {
        self.store
            .force(K::KIND, serde_json::to_value(object).expect("serialises"));
    }

    pub(super) fn pool(&self, name: &str, cidr: &str, change: impl FnOnce(&mut IPPoolSpec)) {
        let mut spec = IPPoolSpec {
            cidr: cidr.into(),
            ..IPPoolSpec::default()
        };
        change(&mut spec);
        self.put(&IPPool::new(name, spec));
    }

    pub(super) fn sized(&self, name: &str, cidr: &str, block_size: i32) {
        self.pool(name, cidr, |spec| spec.block_size = Some(block_size));
    }

    pub(super) fn configure(&self, change: impl FnOnce(&mut IPAMConfigurationSpec)) {
        let mut spec = IPAMConfigurationSpec::default();
        change(&mut spec);
        self.put(&IPAMConfiguration::new("default", spec));
    }

    pub(super) fn reserve(&self, name: &str, cidrs: &[&str]) {
        let reserved_cidrs = Some(cidrs.iter().map(|text| (*text).to_owned()).collect());
        self.put(&IPReservation::new(
            name,
            IPReservationSpec { reserved_cidrs },
        ));
    }

    pub(super) fn node(&self, name: &str, labels: &[(&str, &str)]) {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        self.put(&Node {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            ..Node::default()
        });
    }

    pub(super) fn journal(&self, node: &str) -> PathBuf {
        self.folder.path().join(format!("{node}/journal"))
    }

    pub(super) fn clock(&self) -> Clock {
        let passed = jiff::SignedDuration::try_from(self.origin.elapsed()).expect("short");
        Clock::simulated(self.start + passed)
    }

    /// The agent of a node, as after boot or after a crash.
    pub(super) async fn agent_at_boot(&self, node: &str, settings: Settings, boot: &str) -> Ipam {
        if self.store.count(crate::store::Verb::Get, Kind::Node) == 0
            || self.try_get::<Node>(node).await.is_none()
        {
            self.node(node, &[]);
        }
        let config = IpamConfig {
            node: node.into(),
            journal: self.journal(node),
            boot_id: boot.into(),
            settings,
            clock: self.clock(),
        };
        let ipam = Ipam::start(self.store.clone(), config).expect("starts");
        ipam.wait_synced().await;
        ipam
    }

    pub(super) async fn agent(&self, node: &str, settings: Settings) -> Ipam {
        self.agent_at_boot(node, settings, "boot-1").await
    }

    /// An agent that behaves as programs without a reserve do.
    pub(super) async fn plain(&self, node: &str) -> Ipam {
        self.agent(node, Settings::write_through()).await
    }

    pub(super) async fn try_get<K: Stored>(&self, name: &str) -> Option<K> {
        (&self.store as &dyn Store)
            .read(name)
            .await
            .expect("readable")
    }

    pub(super) async fn get<K: Stored>(&self, name: &str) -> K {
        self.try_get(name)
            .await
            .unwrap_or_else(|| panic!("{name} exists"))
    }

    pub(super) async fn all<K: Stored>(&self) -> Vec<K> {
        (&self.store as &dyn Store)
            .read_all(&Filter::All)
            .await
            .expect("readable")
    }

    pub(super) async fn block(&self, name: &str) -> Block {
        Block::open(self.get::<IPAMBlock>(name).await).expect("valid")
    }

    /// Everything held in all blocks: address to handle. Blocks must be valid.
    pub(super) async fn held(&self) -> BTreeMap<IpAddr, String> {
        let mut held = BTreeMap::new();
        for object in self.all::<IPAMBlock>().await {
            let block = Block::open(object).expect("valid");
            for (ordinal, entry) in block.held() {
                held.insert(
                    block.address(ordinal),
                    entry.handle_id.clone().unwrap_or_default(),
                );
            }
        }
        held
    }

    /// Each affinity is confirmed and its block is the node's; returns their number.
    pub(super) async fn check_affinities(&self) -> usize {
        let affinities = self.all::<BlockAffinity>().await;
        for affinity in &affinities {
            assert!(affinity.spec.state.is_confirmed(), "{affinity:?}");
            let cidr = affinity.spec.cidr.parse().expect("a network");
            let block = self.block(&crate::names::block_name(&cidr)).await;
            assert_eq!(
                block.owner(),
                Some(crate::block::Owner::Host(affinity.spec.node.clone()))
            );
        }
        affinities.len()
    }

    /// Handle objects count exactly what the blocks say.
    pub(super) async fn check_handles(&self) {
        let mut counted: BTreeMap<(String, String), i64> = BTreeMap::new();
        for object in self.all::<IPAMBlock>().await {
            let block = Block::open(object).expect("valid");
            for (_, entry) in block.held() {
                let handle = entry.handle_id.clone().unwrap_or_default();
                *counted
                    .entry((handle, block.cidr().to_string()))
                    .or_default() += 1;
            }
        }
        let mut stored = BTreeMap::new();
        for handle in self.all::<IPAMHandle>().await {
            for (cidr, count) in handle.spec.block {
                stored.insert((handle.spec.handle_id.clone(), cidr), count);
            }
        }
        assert_eq!(stored, counted);
    }
}

pub(super) fn pod(handle: &str) -> AssignRequest {
    AssignRequest::workload(handle, 1, 0)
        .attr("pod", handle)
        .attr("namespace", "shop")
        .attr("margay-pod-uid", format!("uid-{handle}"))
}

pub(super) fn pods(handle: &str, count: usize) -> AssignRequest {
    AssignRequest {
        num4: count,
        ..pod(handle)
    }
}

pub(super) fn ips(assigned: &Assigned) -> Vec<String> {
    assigned.ips().map(|a| a.ip.to_string()).collect()
}

/// The address a pod gets.
pub(super) async fn one(ipam: &Ipam, handle: &str) -> String {
    let assigned = ipam.auto_assign(pod(handle)).await.expect("assigned");
    assert_eq!(assigned.ips().count(), 1);
    ips(&assigned).remove(0)
}

/// Waits until something is so.
pub(super) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    while !check().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
