//! Reading and following what the allocator depends on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use margay_crds::{
    BlockAffinity, ClusterInformation, IPAMBlock, IPAMConfiguration, IPPool, IPReservation,
};
use tokio::task::{AbortHandle, JoinSet};

use super::core::Core;
use super::state::State;
use crate::block::Block;
use crate::names::{LABEL_AFFINITY_TYPE, affinity_labels, block_name, host_affinities_selector};
use crate::pool::Pools;
use crate::request::ATTR_NODE;
use crate::reservation::Reservations;
use crate::rules::Rules;
use crate::store::{Change, Filter, Result, Stored, decode, decode_all};
use crate::write::read_block;

/// Reads everything once, then follows it for ever.
pub(super) async fn follow(core: Arc<Core>) {
    let mut pause = Duration::from_millis(100);
    while let Err(error) = core.refresh().await {
        tracing::warn!(%error, "pools and blocks cannot be read, trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
    let node = core.lock().node.clone();
    let own = Filter::Labels(host_affinities_selector(&node));
    let default = || Filter::Name("default".into());
    let mut tasks = JoinSet::new();
    tasks.spawn(mirror(core.clone(), Filter::All, pools));
    tasks.spawn(mirror(core.clone(), Filter::All, reservations));
    tasks.spawn(mirror(core.clone(), default(), configuration));
    tasks.spawn(mirror(core.clone(), default(), cluster));
    tasks.spawn(mirror(core.clone(), Filter::Name(node), this_node));
    tasks.spawn(mirror(core.clone(), own, affinities));
    follow_blocks(core, tasks).await;
}

/// Keeps one kind in memory and hands the whole set over after each change.
async fn mirror<K: Stored + PartialEq>(
    core: Arc<Core>,
    filter: Filter,
    apply: fn(&mut State, &BTreeMap<String, K>),
) {
    let mut objects: BTreeMap<String, K> = BTreeMap::new();
    let mut changes = core.store.watch(K::KIND, filter);
    while let Some(change) = changes.next().await {
        match change {
            Change::Restart(all) => {
                let all = decode_all::<K>(all);
                objects = all
                    .into_iter()
                    .map(|object| (object.name_any(), object))
                    .collect();
            }
            Change::Applied(value) => match decode::<K>(value) {
                Ok(object) if object.is_tombstone() => {
                    objects.remove(&object.name_any());
                }
                Ok(object) => {
                    objects.insert(object.name_any(), object);
                }
                Err(error) => {
                    tracing::warn!(%error, "object ignored");
                    continue;
                }
            },
            Change::Deleted(value) => {
                let name = value["metadata"]["name"].as_str().unwrap_or_default();
                objects.remove(name);
            }
            Change::Failed(error) => {
                tracing::debug!(kind = ?K::KIND, %error, "watch failed, retrying");
                continue;
            }
        }
        apply(&mut core.lock(), &objects);
        if core.lock().node_lost {
            core.reread.notify_one();
        }
        core.publish();
        core.wake.notify_one();
    }
}

fn pools(state: &mut State, objects: &BTreeMap<String, IPPool>) {
    let objects: Vec<IPPool> = objects.values().cloned().collect();
    state.set_pools(Pools::new(&objects));
}

fn reservations(state: &mut State, objects: &BTreeMap<String, IPReservation>) {
    state.reservations = Reservations::new(objects.values());
}

fn configuration(state: &mut State, objects: &BTreeMap<String, IPAMConfiguration>) {
    state.set_rules(Rules::new(objects.get("default")));
}

fn cluster(state: &mut State, objects: &BTreeMap<String, ClusterInformation>) {
    state.locked = objects
        .get("default")
        .is_some_and(|c| c.spec.datastore_ready == Some(false));
}

fn this_node(state: &mut State, objects: &BTreeMap<String, Node>) {
    let node = objects.get(&state.node);
    let uid = node.and_then(|node| node.metadata.uid.clone());
    if uid.is_none() || (state.node_uid.is_some() && state.node_uid != uid) {
        if !state.node_lost {
            tracing::warn!(
                node = state.node,
                "Node object gone or replaced: no new addresses"
            );
        }
        state.node_lost = true;
    }
    if let Some(node) = node {
        state.node_labels = node.labels().clone();
    }
}

/// Takes in what the watch of affinities shows, which may lag behind what this process has written itself.
fn affinities(state: &mut State, objects: &BTreeMap<String, BlockAffinity>) {
    let mut shown: BTreeMap<IpNet, BlockAffinity> =
        own(&state.node, objects.values().cloned()).collect();
    state.given_back.retain(|cidr| shown.contains_key(cidr));
    shown.retain(|cidr, affinity| {
        let old = affinity.spec.state.is_pending_deletion() && state.given_back.contains(cidr);
        !old
    });
    for (cidr, known) in std::mem::take(&mut state.affinities) {
        match shown.get(&cidr) {
            Some(affinity) if version(affinity) >= version(&known) => {
                state.claimed.remove(&cidr);
            }
            Some(_) => {
                shown.insert(cidr, known);
            }
            None if state.claimed.contains(&cidr) => {
                shown.insert(cidr, known);
            }
            None => {}
        }
    }
    state.affinities = shown;
}

/// The affinities of a node, by block.
fn own(
    node: &str,
    objects: impl IntoIterator<Item = BlockAffinity>,
) -> impl Iterator<Item = (IpNet, BlockAffinity)> {
    let node = node.to_owned();
    objects.into_iter().filter_map(move |affinity| {
        let host = affinity
            .spec
            .kind
            .as_deref()
            .is_none_or(|kind| kind.is_empty() || kind == "host");
        let cidr: IpNet = affinity.spec.cidr.parse().ok()?;
        (host && affinity.spec.node == node && !affinity.spec.deleted).then_some((cidr, affinity))
    })
}

fn version(affinity: &BlockAffinity) -> u64 {
    affinity
        .resource_version()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

impl State {
    fn set_pools(&mut self, pools: Pools) {
        if self.pools == pools {
            return;
        }
        for (pool, verdict) in pools.problems() {
            tracing::warn!(pool, ?verdict, "pool is not used");
        }
        self.pools = pools;
        self.pressed.clear();
    }

    fn set_rules(&mut self, rules: Rules) {
        if self.rules == rules {
            return;
        }
        for text in rules.contradictions() {
            tracing::warn!("{text}");
        }
        self.rules = rules;
    }
}

impl Core {
    /// Reads everything.
    pub(super) async fn refresh(&self) -> Result<()> {
        let _turn = self.writer.lock().await;
        let node = self.lock().node.clone();
        self.label_affinities(&node).await?;
        let pools = self.store.read_all::<IPPool>(&Filter::All).await?;
        let reservations = self.store.read_all::<IPReservation>(&Filter::All).await?;
        let configuration = self.store.read::<IPAMConfiguration>("default").await?;
        let information = self.store.read::<ClusterInformation>("default").await?;
        let this = self.store.read::<Node>(&node).await?;
        let selector = Filter::Labels(host_affinities_selector(&node));
        let affinities = self.store.read_all::<BlockAffinity>(&selector).await?;
        let blocks = self.store.read_all::<IPAMBlock>(&Filter::All).await?;
        {
            let mut state = self.lock();
            state.set_pools(Pools::new(&pools));
            state.reservations = Reservations::new(&reservations);
            state.set_rules(Rules::new(configuration.as_ref()));
            let locked = information.is_some_and(|info| info.spec.datastore_ready == Some(false));
            state.locked = locked;
            // A new Node object under the same name is this node from now on.
            state.node_uid = this.as_ref().and_then(|node| node.metadata.uid.clone());
            state.node_lost = this.is_none();
            state.node_labels = this.map(|node| node.labels().clone()).unwrap_or_default();
            state.affinities = own(&node, affinities).collect();
            state.claimed.clear();
            state.given_back.clear();
            state.take_blocks(&node, blocks);
            state.synced = true;
        }
        self.publish();
        self.synced.send_replace(true);
        self.wake.notify_one();
        Ok(())
    }

    /// Gives affinities of old writers the labels by which they are found.
    async fn label_affinities(&self, node: &str) -> Result<()> {
        let unlabelled = Filter::Labels(format!("!{LABEL_AFFINITY_TYPE}"));
        for mut affinity in self.store.read_all::<BlockAffinity>(&unlabelled).await? {
            if affinity.spec.node == node {
                affinity.metadata.labels = Some(affinity_labels(&affinity.spec));
                if let Err(error) = self.store.put(&affinity).await {
                    tracing::warn!(affinity = affinity.name_any(), %error, "affinity not labelled");
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Keeps this node's blocks and those it has addresses of.
    fn take_blocks(&mut self, node: &str, objects: Vec<IPAMBlock>) {
        let mut gone: Vec<IpNet> = self.blocks.keys().copied().collect();
        for object in objects {
            let name = object.name_any();
            let mine = object.spec.affinity.as_deref() == Some(&self.owner.to_string());
            let borrowed = object.spec.attributes.iter().any(|entry| {
                entry
                    .secondary
                    .as_ref()
                    .and_then(|attrs| attrs.get(ATTR_NODE))
                    .map(String::as_str)
                    == Some(node)
            });
            if !mine && !borrowed {
                continue;
            }
            let cidr = object.spec.cidr.parse::<IpNet>();
            match (Block::open(object), cidr) {
                (Ok(block), Ok(cidr)) => {
                    gone.retain(|known| *known != cidr);
                    self.absorb(cidr, Some(block));
                }
                (Err(error), Ok(cidr)) => {
                    tracing::error!(%error, "block is skipped");
                    self.invalid.insert(cidr, error.to_string());
                }
                (_, Err(error)) => tracing::error!(name, %error, "block without a network"),
            }
        }
        gone.into_iter().for_each(|cidr| self.absorb(cidr, None));
    }
}

/// Follows exactly the blocks this node has to do with, each by name.
async fn follow_blocks(core: Arc<Core>, mut tasks: JoinSet<()>) {
    let mut followed: BTreeMap<IpNet, AbortHandle> = BTreeMap::new();
    let mut own = core.own.subscribe();
    loop {
        let wanted: std::collections::BTreeSet<IpNet> = {
            let state = core.lock();
            state
                .blocks
                .keys()
                .chain(state.affinities.keys())
                .copied()
                .collect()
        };
        followed.retain(|cidr, task| {
            let keep = wanted.contains(cidr);
            if !keep {
                task.abort();
            }
            keep
        });
        for cidr in wanted {
            followed
                .entry(cidr)
                .or_insert_with(|| tasks.spawn(follow_block(core.clone(), cidr)));
        }
        // Blocks come and go with affinities; borrowed ones are picked up at the next change or in a minute.
        let minute = tokio::time::sleep(Duration::from_secs(60));
        tokio::select! {
            changed = own.changed() => if changed.is_err() { return },
            () = core.reread.notified() => readopt(&core).await,
            () = minute => {}
        }
    }
}

/// A node that was deleted and registered again goes on with the blocks it finds.
async fn readopt(core: &Core) {
    if let Err(error) = core.refresh().await {
        tracing::warn!(%error, "node state cannot be read");
    }
}

async fn follow_block(core: Arc<Core>, cidr: IpNet) {
    let mut changes = core
        .store
        .watch(crate::store::Kind::Block, Filter::Name(block_name(&cidr)));
    while let Some(change) = changes.next().await {
        match change {
            Change::Restart(objects) if objects.is_empty() => verify(&core, cidr).await,
            Change::Restart(objects) => {
                decode_all::<IPAMBlock>(objects)
                    .into_iter()
                    .for_each(|b| take(&core, cidr, b));
            }
            Change::Applied(value) => match decode::<IPAMBlock>(value) {
                Ok(object) if object.is_tombstone() => verify(&core, cidr).await,
                Ok(object) => take(&core, cidr, object),
                Err(error) => tracing::warn!(%error, "block ignored"),
            },
            Change::Deleted(_) => verify(&core, cidr).await,
            Change::Failed(error) => {
                tracing::debug!(block = %cidr, %error, "watch failed, retrying")
            }
        }
        core.publish();
    }
}

fn take(core: &Core, cidr: IpNet, object: IPAMBlock) {
    match Block::open(object) {
        Ok(block) => core.lock().absorb_event(block),
        Err(error) => core.mark_invalid(&cidr, &error),
    }
}

/// A watch says that a block does not exist; it may be speaking of the past.
async fn verify(core: &Core, cidr: IpNet) {
    let _turn = core.writer.lock().await;
    match read_block(&*core.store, &cidr).await {
        Ok(block) => core.lock().absorb(cidr, block),
        Err(error) => tracing::debug!(block = %cidr, %error, "block cannot be read"),
    }
}
