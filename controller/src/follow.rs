//! Watches, funnelled into one channel, and local copies kept from them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use margay_crds::{
    BlockAffinity, ClusterInformation, IPAMBlock, IPAMConfiguration, IPAMHandle, IPPool, Tier,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// One change of the cluster.
#[derive(Debug)]
pub(crate) enum Update {
    Pool(Box<Event<IPPool>>),
    Block(Box<Event<IPAMBlock>>),
    Affinity(Box<Event<BlockAffinity>>),
    Handle(Box<Event<PartialObjectMeta<IPAMHandle>>>),
    Node(Box<Event<PartialObjectMeta<Node>>>),
    Tier(Box<Event<Tier>>),
    Configuration(Box<Event<IPAMConfiguration>>),
    Information(Box<Event<ClusterInformation>>),
}

/// Starts all watches. They end when the set is dropped.
pub(crate) fn start(client: &Client, updates: &mpsc::Sender<Update>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let all = watcher::Config::default;
    let api = || client.clone();
    tasks.spawn(feed(
        "IPPool",
        watch(Api::all(api()), all()),
        updates.clone(),
        Update::Pool,
    ));
    tasks.spawn(feed(
        "IPAMBlock",
        watch(Api::all(api()), all()),
        updates.clone(),
        Update::Block,
    ));
    tasks.spawn(feed(
        "BlockAffinity",
        watch(Api::all(api()), all()),
        updates.clone(),
        Update::Affinity,
    ));
    tasks.spawn(feed(
        "IPAMHandle",
        watch(Api::<PartialObjectMeta<IPAMHandle>>::all(api()), all()),
        updates.clone(),
        Update::Handle,
    ));
    tasks.spawn(feed(
        "Node",
        watch(Api::<PartialObjectMeta<Node>>::all(api()), all()),
        updates.clone(),
        Update::Node,
    ));
    tasks.spawn(feed(
        "Tier",
        watch(Api::all(api()), all()),
        updates.clone(),
        Update::Tier,
    ));
    tasks.spawn(feed(
        "IPAMConfiguration",
        watch(Api::all(api()), all()),
        updates.clone(),
        Update::Configuration,
    ));
    tasks.spawn(feed(
        "ClusterInformation",
        watch(Api::all(api()), all()),
        updates.clone(),
        Update::Information,
    ));
    tasks
}

/// Passes the events of one watch on until the receiver is gone. Errors are retried with growing pauses.
async fn feed<K: Debug + Send + 'static>(
    kind: &'static str,
    stream: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    updates: mpsc::Sender<Update>,
    wrap: fn(Box<Event<K>>) -> Update,
) {
    let mut stream = stream.default_backoff().boxed();
    let mut failing = false;
    while let Some(item) = stream.next().await {
        match item {
            Ok(event) => {
                failing = false;
                if updates.send(wrap(Box::new(event))).await.is_err() {
                    return;
                }
            }
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(kind, %error, "watch failed, retrying");
            }
            Err(error) => tracing::debug!(kind, %error, "watch still fails"),
        }
    }
}

/// Objects of one kind by name, reduced to what is needed of them.
#[derive(Debug)]
pub(crate) struct Mirror<V> {
    objects: BTreeMap<String, V>,
    listing: BTreeMap<String, V>,
    synced: bool,
}

impl<V> Default for Mirror<V> {
    fn default() -> Self {
        Mirror {
            objects: BTreeMap::new(),
            listing: BTreeMap::new(),
            synced: false,
        }
    }
}

impl<V: Clone + PartialEq> Mirror<V> {
    /// Takes one event in. `reduce` gives the name and what is kept, or only the name of an object that counts as absent;
    /// it sees what was kept before. Returns true when something changed.
    pub(crate) fn apply<K>(
        &mut self,
        event: Event<K>,
        reduce: impl Fn(K, &BTreeMap<String, V>) -> (String, Option<V>),
    ) -> bool {
        match event {
            Event::Init => {
                self.listing.clear();
                false
            }
            Event::InitApply(object) => {
                if let (name, Some(value)) = reduce(object, &self.objects) {
                    self.listing.insert(name, value);
                }
                false
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listing);
                let changed = !self.synced || listed != self.objects;
                self.objects = listed;
                self.synced = true;
                changed
            }
            Event::Apply(object) => match reduce(object, &self.objects) {
                (name, Some(value)) => {
                    let before = self.objects.insert(name, value.clone());
                    before != Some(value)
                }
                (name, None) => self.objects.remove(&name).is_some(),
            },
            Event::Delete(object) => {
                let (name, _) = reduce(object, &self.objects);
                self.objects.remove(&name).is_some()
            }
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn objects(&self) -> &BTreeMap<String, V> {
        &self.objects
    }

    pub(crate) fn get(&self, name: &str) -> Option<&V> {
        self.objects.get(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_replaces_what_was_known_only_when_it_is_complete() {
        let mut mirror = Mirror::<u32>::default();
        let mut apply =
            |event| mirror.apply(event, |(n, v): (&str, u32), _| (n.to_owned(), Some(v)));
        apply(Event::Init);
        apply(Event::InitApply(("a", 1)));
        assert!(apply(Event::InitDone));
        assert!(apply(Event::Apply(("b", 2))));
        assert!(!apply(Event::Apply(("b", 2))));
        apply(Event::Init);
        apply(Event::InitApply(("b", 2)));
        assert!(apply(Event::InitDone));
        assert!(apply(Event::Delete(("b", 2))));
        assert!(mirror.objects().is_empty() && mirror.is_synced());
    }
}
