//! The cluster as this agent sees it: copies of the kinds it reads, and what a change of each touches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use margay_crds::{
    BGPConfiguration, BGPConfigurationSpec, BGPPeer, ClusterInformation, FelixConfiguration,
    FelixConfigurationSpec, IPAMBlock, IPPool,
};
use margay_felix::calc::remote::BlockView;
use margay_felix::calc::sessions::{BgpNode, Configurations, Password, SecretRef};

use super::mirror::Mirror;
use super::startup;
use super::watch::Update;

/// Parts of the desired state that a change touches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Sessions, their parameters, the speaker's identity.
    pub(crate) sessions: bool,
    /// Pools: NAT, export rules.
    pub(crate) pools: bool,
    /// FelixConfiguration.
    pub(crate) settings: bool,
    /// The own Node object.
    pub(crate) own_node: bool,
    /// Pods of this node or namespaces.
    pub(crate) pods: bool,
    /// ClusterInformation.
    pub(crate) cluster: bool,
    /// Blocks of other nodes.
    pub(crate) blocks: bool,
}

impl Dirty {
    /// Everything: after the first complete picture.
    pub(crate) const ALL: Dirty = Dirty {
        sessions: true,
        pools: true,
        settings: true,
        own_node: true,
        pods: true,
        cluster: true,
        blocks: true,
    };

    /// Adds the parts of another change.
    pub(crate) fn merge(&mut self, other: Dirty) {
        self.sessions |= other.sessions;
        self.pools |= other.pools;
        self.settings |= other.settings;
        self.own_node |= other.own_node;
        self.pods |= other.pods;
        self.cluster |= other.cluster;
        self.blocks |= other.blocks;
    }

    /// True when nothing is touched.
    pub(crate) fn is_clean(self) -> bool {
        self == Dirty::default()
    }
}

/// A BGPConfiguration without bookkeeping metadata.
#[derive(Debug, Clone, PartialEq)]
struct Configuration {
    annotations: BTreeMap<String, String>,
    spec: BGPConfigurationSpec,
}

/// Copies of what the agent reads.
#[derive(Debug)]
pub(crate) struct Cluster {
    name: String,
    nodes: Mirror<BgpNode>,
    own: Option<Node>,
    pools: Mirror<IPPool>,
    peers: Mirror<BGPPeer>,
    configurations: Mirror<Configuration>,
    felix: Mirror<FelixConfigurationSpec>,
    cluster: Mirror<ClusterInformation>,
    pods: Mirror<Arc<Pod>>,
    namespaces: Mirror<Arc<Namespace>>,
    secrets: BTreeMap<String, BTreeMap<String, Vec<u8>>>,
    blocks: Mirror<Option<BlockView>>,
}

impl Cluster {
    /// An empty copy for the node of that name.
    pub(crate) fn new(node: &str) -> Self {
        Cluster {
            name: node.to_owned(),
            nodes: Mirror::default(),
            own: None,
            pools: Mirror::default(),
            peers: Mirror::default(),
            configurations: Mirror::default(),
            felix: Mirror::default(),
            cluster: Mirror::default(),
            pods: Mirror::default(),
            namespaces: Mirror::default(),
            secrets: BTreeMap::new(),
            blocks: Mirror::default(),
        }
    }

    /// True once every kind has been listed whole; before, nothing may be derived from what is missing.
    pub(crate) fn is_synced(&self) -> bool {
        self.unsynced().is_empty()
    }

    /// Kinds not listed whole yet.
    pub(crate) fn unsynced(&self) -> Vec<&'static str> {
        [
            ("Node", self.nodes.is_synced()),
            ("Pod", self.pods.is_synced()),
            ("Namespace", self.namespaces.is_synced()),
            ("IPPool", self.pools.is_synced()),
            ("BGPPeer", self.peers.is_synced()),
            ("BGPConfiguration", self.configurations.is_synced()),
            ("FelixConfiguration", self.felix.is_synced()),
            ("ClusterInformation", self.cluster.is_synced()),
        ]
        .into_iter()
        .filter(|(_, synced)| !synced)
        .map(|(kind, _)| kind)
        .collect()
    }

    /// Takes one change in and tells what it touches.
    pub(crate) fn apply(&mut self, update: Update) -> Dirty {
        let none = Dirty::default();
        match update {
            Update::Node(event) => {
                let own_node = self.remember_own(&event);
                let sessions = self
                    .nodes
                    .apply(*event, |node| (node.name_any(), startup::read(&node)));
                Dirty {
                    sessions,
                    own_node,
                    ..none
                }
            }
            Update::Pod(event) => {
                let key = |pod: Pod| {
                    (
                        format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any()),
                        Arc::new(pod),
                    )
                };
                Dirty {
                    pods: self.pods.apply(*event, key),
                    ..none
                }
            }
            Update::Namespace(event) => {
                let key = |namespace: Namespace| (namespace.name_any(), Arc::new(namespace));
                Dirty {
                    pods: self.namespaces.apply(*event, key),
                    ..none
                }
            }
            Update::Pool(event) => Dirty {
                pools: self.pools.apply(*event, reduced_pool),
                ..none
            },
            Update::Peer(event) => Dirty {
                sessions: self.peers.apply(*event, reduced_peer),
                ..none
            },
            Update::BgpConfiguration(event) => Dirty {
                sessions: self.configurations.apply(*event, reduced_configuration),
                ..none
            },
            Update::Felix(event) => {
                let reduce = |object: FelixConfiguration| (object.name_any(), object.spec);
                Dirty {
                    settings: self.felix.apply(*event, reduce),
                    ..none
                }
            }
            Update::Cluster(event) => {
                let reduce = |mut object: ClusterInformation| {
                    object.metadata = ObjectMeta {
                        name: object.metadata.name,
                        ..ObjectMeta::default()
                    };
                    (object.name_any(), object)
                };
                Dirty {
                    cluster: self.cluster.apply(*event, reduce),
                    ..none
                }
            }
            Update::Block(event) => {
                // An unusable block is an empty one: it routes nothing.
                let reduce = |block: IPAMBlock| (block.name_any(), BlockView::read(&block.spec));
                let blocks = self.blocks.apply(*event, reduce);
                Dirty { blocks, ..none }
            }
            Update::Secret(event) => Dirty {
                sessions: self.apply_secret(*event),
                ..none
            },
        }
    }

    /// Keeps the whole own Node, of which more is read than of others.
    fn remember_own(&mut self, event: &Event<Node>) -> bool {
        match event {
            Event::Apply(node) | Event::InitApply(node) if node.name_any() == self.name => {
                self.own = Some(node.clone());
                true
            }
            Event::Delete(node) if node.name_any() == self.name => {
                self.own = None;
                true
            }
            _ => false,
        }
    }

    fn apply_secret(&mut self, event: Event<Secret>) -> bool {
        match event {
            Event::Apply(secret) | Event::InitApply(secret) => {
                let name = secret.name_any();
                let data: BTreeMap<String, Vec<u8>> = secret
                    .data
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(key, value)| (key, value.0))
                    .collect();
                self.secrets.insert(name, data.clone()).as_ref() != Some(&data)
            }
            Event::Delete(secret) => self.secrets.remove(&secret.name_any()).is_some(),
            Event::Init | Event::InitDone => false,
        }
    }

    /// All blocks by name, once they have been listed; they are watched only while routes depend on them.
    pub(crate) fn blocks(&self) -> Option<BTreeMap<String, BlockView>> {
        let usable =
            |(name, block): (&String, &Option<BlockView>)| Some((name.clone(), block.clone()?));
        self.blocks
            .is_synced()
            .then(|| self.blocks.objects().iter().filter_map(usable).collect())
    }

    /// Forgets the blocks: they are no longer watched.
    pub(crate) fn forget_blocks(&mut self) {
        self.blocks = Mirror::default();
    }

    /// Nodes by name.
    pub(crate) fn nodes(&self) -> &BTreeMap<String, BgpNode> {
        self.nodes.objects()
    }

    /// The own Node, while it exists.
    pub(crate) fn own_node(&self) -> Option<&Node> {
        self.own.as_ref()
    }

    /// Pools by name.
    pub(crate) fn pools(&self) -> &BTreeMap<String, IPPool> {
        self.pools.objects()
    }

    /// BGPPeers by name.
    pub(crate) fn peers(&self) -> &BTreeMap<String, BGPPeer> {
        self.peers.objects()
    }

    /// Pods of this node by `namespace/name`.
    pub(crate) fn pods(&self) -> &BTreeMap<String, Arc<Pod>> {
        self.pods.objects()
    }

    /// Namespaces by name.
    pub(crate) fn namespaces(&self) -> &BTreeMap<String, Arc<Namespace>> {
        self.namespaces.objects()
    }

    /// False while the datastore is locked for a migration.
    pub(crate) fn datastore_ready(&self) -> bool {
        self.cluster
            .get("default")
            .and_then(|object| object.spec.datastore_ready)
            .unwrap_or(true)
    }

    /// BGPConfigurations that count, and the names of those that do not.
    pub(crate) fn configurations(&self) -> (Configurations, Vec<String>) {
        let mut configurations = Configurations::default();
        let mut ignored = Vec::new();
        for (name, object) in self.configurations.objects() {
            if !configurations.insert(name, &object.annotations, &object.spec) {
                ignored.push(name.clone());
            }
        }
        (configurations, ignored)
    }

    /// The FelixConfiguration named `default`, and the one of this node, which wins field by field.
    pub(crate) fn felix(
        &self,
    ) -> (
        Option<&FelixConfigurationSpec>,
        Option<&FelixConfigurationSpec>,
    ) {
        (
            self.felix.get("default"),
            self.felix.get(&format!("node.{}", self.name)),
        )
    }

    /// True once a Secret has been seen.
    pub(crate) fn knows_secret(&self, name: &str) -> bool {
        self.secrets.contains_key(name)
    }

    /// Forgets every Secret but the named ones.
    pub(crate) fn retain_secrets(&mut self, names: &BTreeSet<String>) {
        self.secrets.retain(|name, _| names.contains(name));
    }

    /// Every Secret value known.
    pub(crate) fn passwords(&self) -> BTreeMap<SecretRef, Password> {
        let mut passwords = BTreeMap::new();
        for (name, data) in &self.secrets {
            for (key, value) in data {
                let secret = SecretRef {
                    name: name.clone(),
                    key: key.clone(),
                };
                passwords.insert(secret, Password::new(value.clone()));
            }
        }
        passwords
    }
}

/// Metadata the calculation reads; everything else (resourceVersion, managedFields, ...) changes without meaning.
fn reduced(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        annotations: metadata.annotations,
        creation_timestamp: metadata.creation_timestamp,
        ..ObjectMeta::default()
    }
}

fn reduced_pool(mut pool: IPPool) -> (String, IPPool) {
    pool.metadata = reduced(pool.metadata);
    (pool.name_any(), pool)
}

fn reduced_peer(mut peer: BGPPeer) -> (String, BGPPeer) {
    peer.metadata = reduced(peer.metadata);
    (peer.name_any(), peer)
}

fn reduced_configuration(object: BGPConfiguration) -> (String, Configuration) {
    let name = object.name_any();
    let annotations = object.metadata.annotations.unwrap_or_default();
    (
        name,
        Configuration {
            annotations,
            spec: object.spec,
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, extra: Value) -> Node {
        let mut object = json!({"metadata": {"name": name, "annotations":
            {"projectcalico.org/IPv4Address": "10.0.0.1/24"}}});
        object
            .as_object_mut()
            .expect("map")
            .extend(extra.as_object().expect("map").clone());
        serde_json::from_value(object).expect("a Node")
    }

    #[test]
    fn a_heartbeat_touches_no_session() {
        let mut cluster = Cluster::new("a");
        assert!(
            cluster
                .apply(Update::Node(Box::new(Event::Apply(node("b", json!({}))))))
                .sessions
        );
        let heartbeat = json!({"status": {"conditions": [{"type": "Ready", "status": "True",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}});
        assert!(
            cluster
                .apply(Update::Node(Box::new(Event::Apply(node("b", heartbeat)))))
                .is_clean()
        );
    }

    #[test]
    fn a_rewritten_peer_without_difference_touches_nothing() {
        let peer = |version: &str| -> BGPPeer {
            serde_json::from_value(json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer",
                "metadata": {"name": "p", "resourceVersion": version}, "spec": {"peerIP": "192.0.2.1"}}))
            .expect("a BGPPeer")
        };
        let mut cluster = Cluster::new("a");
        assert!(
            cluster
                .apply(Update::Peer(Box::new(Event::Apply(peer("1")))))
                .sessions
        );
        assert!(
            cluster
                .apply(Update::Peer(Box::new(Event::Apply(peer("2")))))
                .is_clean()
        );
    }

    #[test]
    fn nothing_is_complete_before_every_kind_has_been_listed() {
        let mut cluster = Cluster::new("a");
        assert_eq!(cluster.unsynced().len(), 8);
        cluster.apply(Update::Node(Box::new(Event::Init)));
        cluster.apply(Update::Node(Box::new(Event::InitDone)));
        assert!(!cluster.is_synced());
        assert!(!cluster.unsynced().contains(&"Node"));
    }

    #[test]
    fn secrets_become_passwords_and_go_with_their_object() {
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "bgp"}, "data": {"k": "czNjcmV0"}}))
                .expect("a Secret");
        let mut cluster = Cluster::new("a");
        assert!(
            cluster
                .apply(Update::Secret(Box::new(Event::Apply(secret.clone()))))
                .sessions
        );
        assert!(
            cluster
                .apply(Update::Secret(Box::new(Event::Apply(secret.clone()))))
                .is_clean()
        );
        let key = SecretRef {
            name: "bgp".into(),
            key: "k".into(),
        };
        assert_eq!(
            cluster.passwords().get(&key).map(Password::expose),
            Some(b"s3cret".as_slice())
        );
        assert!(
            cluster
                .apply(Update::Secret(Box::new(Event::Delete(secret))))
                .sessions
        );
        assert!(cluster.passwords().is_empty());
    }
}
