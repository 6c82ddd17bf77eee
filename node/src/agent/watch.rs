//! Watches of the kinds the agent reads, funnelled into one channel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client};
use margay_crds::{
    BGPConfiguration, BGPPeer, ClusterInformation, FelixConfiguration, IPAMBlock, IPPool,
};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

/// One change of the cluster as a watch reports it.
#[derive(Debug)]
pub(crate) enum Update {
    Node(Box<Event<Node>>),
    Pod(Box<Event<Pod>>),
    Namespace(Box<Event<Namespace>>),
    Pool(Box<Event<IPPool>>),
    Peer(Box<Event<BGPPeer>>),
    BgpConfiguration(Box<Event<BGPConfiguration>>),
    Felix(Box<Event<FelixConfiguration>>),
    Cluster(Box<Event<ClusterInformation>>),
    Secret(Box<Event<Secret>>),
    Block(Box<Event<IPAMBlock>>),
}

/// The running watches. Dropping them ends all.
pub(crate) struct Watches {
    client: Client,
    namespace: String,
    updates: mpsc::Sender<Update>,
    tasks: JoinSet<()>,
    /// Watches of single Secrets by name.
    secrets: BTreeMap<String, AbortHandle>,
    /// Watch of all blocks, while routes depend on them.
    blocks: Option<AbortHandle>,
}

impl Watches {
    /// Starts the watches every agent has. Secrets are added one by one with [`Watches::follow_secrets`].
    pub(crate) fn start(
        client: &Client,
        node: &str,
        namespace: &str,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let mut watches = Watches {
            client: client.clone(),
            namespace: namespace.to_owned(),
            updates,
            tasks: JoinSet::new(),
            secrets: BTreeMap::new(),
            blocks: None,
        };
        let all = watcher::Config::default();
        let mine = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        watches.spawn("Node", Api::all(client.clone()), all.clone(), Update::Node);
        watches.spawn("Pod", Api::all(client.clone()), mine, Update::Pod);
        watches.spawn(
            "Namespace",
            Api::all(client.clone()),
            all.clone(),
            Update::Namespace,
        );
        watches.spawn(
            "IPPool",
            Api::all(client.clone()),
            all.clone(),
            Update::Pool,
        );
        watches.spawn(
            "BGPPeer",
            Api::all(client.clone()),
            all.clone(),
            Update::Peer,
        );
        watches.spawn(
            "BGPConfiguration",
            Api::all(client.clone()),
            all.clone(),
            Update::BgpConfiguration,
        );
        watches.spawn(
            "FelixConfiguration",
            Api::all(client.clone()),
            all.clone(),
            Update::Felix,
        );
        watches.spawn(
            "ClusterInformation",
            Api::all(client.clone()),
            all,
            Update::Cluster,
        );
        watches
    }

    /// Watches all blocks, or none.
    pub(crate) fn follow_blocks(&mut self, wanted: bool) {
        match (wanted, &self.blocks) {
            (true, None) => {
                let api = Api::all(self.client.clone());
                let task = self.spawn("IPAMBlock", api, watcher::Config::default(), Update::Block);
                self.blocks = Some(task);
            }
            (false, Some(task)) => {
                task.abort();
                self.blocks = None;
            }
            _ => {}
        }
    }

    /// Watches exactly the named Secrets of the agent's namespace: new ones are started, others ended. Returns the new
    /// ones.
    pub(crate) fn follow_secrets(&mut self, wanted: &BTreeSet<String>) -> Vec<String> {
        let mut fresh = Vec::new();
        self.secrets.retain(|name, task| {
            let keep = wanted.contains(name);
            if !keep {
                task.abort();
            }
            keep
        });
        for name in wanted {
            if !self.secrets.contains_key(name) {
                let one = watcher::Config::default().fields(&format!("metadata.name={name}"));
                let api = Api::namespaced(self.client.clone(), &self.namespace);
                let task = self.spawn("Secret", api, one, Update::Secret);
                self.secrets.insert(name.clone(), task);
                fresh.push(name.clone());
            }
        }
        fresh
    }

    /// Follows one kind until the receiver is gone. Errors are retried with growing pauses; each new one is logged.
    fn spawn<K>(
        &mut self,
        kind: &'static str,
        api: Api<K>,
        config: watcher::Config,
        wrap: fn(Box<Event<K>>) -> Update,
    ) -> AbortHandle
    where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let updates = self.updates.clone();
        self.tasks.spawn(async move {
            let mut stream = watch(api, config).default_backoff().boxed();
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
        })
    }
}
