//! The stores promise the same: each test runs over memory and over a real API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use margay_apiserver::{Config, Server};
use margay_crds::{AffinityState, BlockAffinity, IPAMBlock, IPPool, IPPoolSpec};
use margay_ipam::block::{Block, Owner, faults};
use margay_ipam::store::{Change, Filter, Kind};
use margay_ipam::write::affinity_for;
use margay_ipam::{
    AssignRequest, Ipam, IpamConfig, KubeStore, MemoryStore, Settings, Store, StoreError,
};

struct Api {
    _folder: tempfile::TempDir,
    server: Server,
    store: KubeStore,
}

async fn api() -> Api {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = Config::new(folder.path().join("data"));
    config.listen = vec!["127.0.0.1:0".parse().expect("an address")];
    config.crds = margay_crds::manifests::ALL;
    let server = Server::start(config).await.expect("starts");
    let path = folder.path().join("data/admin.kubeconfig");
    let kubeconfig = kube::config::Kubeconfig::read_from(path).expect("written");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
        .await
        .expect("usable");
    let store = KubeStore::new(kube::Client::try_from(config).expect("a client"));
    Api {
        _folder: folder,
        server,
        store,
    }
}

fn owner() -> Owner {
    Owner::Host("n1".into())
}

fn affinity(cidr: &str) -> BlockAffinity {
    affinity_for(
        &owner(),
        &cidr.parse().expect("a network"),
        AffinityState::Pending,
    )
}

async fn keeps_its_promises(store: &dyn Store) {
    let created = store
        .put_new(&affinity("10.0.0.0/26"))
        .await
        .expect("created");
    assert_eq!(
        store.put_new(&affinity("10.0.0.0/26")).await,
        Err(StoreError::AlreadyExists)
    );
    let mut next = created.clone();
    next.spec.state = AffinityState::Confirmed;
    let updated = store.put(&next).await.expect("updated");
    assert_ne!(updated.resource_version(), created.resource_version());
    assert_eq!(
        store.put(&next).await,
        Err(StoreError::Conflict),
        "an old version is refused"
    );
    assert_eq!(store.remove(&created).await, Err(StoreError::Conflict));
    let read = store
        .read::<BlockAffinity>(&updated.name_any())
        .await
        .expect("readable");
    assert_eq!(read.as_ref(), Some(&updated));

    store
        .put_new(&affinity("fd00::/122"))
        .await
        .expect("created");
    let six = Filter::Labels("projectcalico.org/ip-version=6".into());
    let found = store
        .read_all::<BlockAffinity>(&six)
        .await
        .expect("readable");
    assert_eq!(found.len(), 1);
    let named = Filter::Name(updated.name_any());
    assert_eq!(
        store
            .read_all::<BlockAffinity>(&named)
            .await
            .expect("readable"),
        std::slice::from_ref(&updated)
    );
    let names = store.names(Kind::Affinity).await.expect("readable");
    assert_eq!(names, ["n1-10-0-0-0-26", "n1-fd00---122"]);

    store.remove(&updated).await.expect("deleted");
    assert_eq!(
        store.remove(&updated).await,
        Ok(()),
        "what is gone counts as deleted"
    );
    assert_eq!(
        store.put(&updated).await,
        Err(StoreError::Conflict),
        "and is not created by a write"
    );
    assert_eq!(
        store.read::<BlockAffinity>(&updated.name_any()).await,
        Ok(None)
    );
    let again = store
        .put_new(&affinity("10.0.0.0/26"))
        .await
        .expect("created");
    assert_eq!(
        store.remove(&updated).await,
        Ok(()),
        "another object of the same name is not meant"
    );
    assert!(
        store
            .read::<BlockAffinity>(&again.name_any())
            .await
            .expect("readable")
            .is_some()
    );
}

async fn finishes_tombstones(store: &dyn Store) {
    let block = Block::new(
        "10.0.0.0/30".parse().expect("net"),
        &owner(),
        jiff::Timestamp::now(),
    );
    let mut dead = block.object().clone();
    dead.spec.deleted = Some(true);
    store.put_new(&dead).await.expect("created");
    store
        .put_new(block.object())
        .await
        .expect("the tombstone is out of the way");
    let stored = store
        .read::<IPAMBlock>("10-0-0-0-30")
        .await
        .expect("readable")
        .expect("there");
    assert_eq!(stored.spec, block.object().spec);
}

async fn tells_changes(store: &dyn Store) {
    let mut all = store.watch(Kind::Affinity, Filter::All);
    let mut one = store.watch(Kind::Affinity, Filter::Name("n1-10-7-0-0-26".into()));
    let mut next = async || tokio::time::timeout(Duration::from_secs(10), all.next()).await;
    assert!(matches!(next().await, Ok(Some(Change::Restart(_)))));
    let first = tokio::time::timeout(Duration::from_secs(10), one.next()).await;
    assert!(matches!(first, Ok(Some(Change::Restart(objects))) if objects.is_empty()));
    store
        .put_new(&affinity("10.6.0.0/26"))
        .await
        .expect("created");
    let other = store
        .put_new(&affinity("10.7.0.0/26"))
        .await
        .expect("created");
    store.remove(&other).await.expect("deleted");
    let name = |value: &serde_json::Value| value["metadata"]["name"].as_str().map(str::to_owned);
    let expected = ["n1-10-6-0-0-26", "n1-10-7-0-0-26", "n1-10-7-0-0-26"];
    for (n, expected) in expected.into_iter().enumerate() {
        match next().await {
            Ok(Some(Change::Applied(value))) if n < 2 => {
                assert_eq!(name(&value).as_deref(), Some(expected))
            }
            Ok(Some(Change::Deleted(value))) if n == 2 => {
                assert_eq!(name(&value).as_deref(), Some(expected))
            }
            other => panic!("{n}: {other:?}"),
        }
    }
    for deleted in [false, true] {
        let change = tokio::time::timeout(Duration::from_secs(10), one.next()).await;
        match change.expect("in time").expect("goes on") {
            Change::Applied(_) => assert!(!deleted),
            Change::Deleted(_) => assert!(deleted),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn memory_keeps_its_promises() {
    keeps_its_promises(&MemoryStore::new()).await;
    finishes_tombstones(&MemoryStore::new()).await;
    tells_changes(&MemoryStore::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_keeps_its_promises() {
    let api = api().await;
    keeps_its_promises(&api.store).await;
    finishes_tombstones(&api.store).await;
    tells_changes(&api.store).await;
    api.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_pools_over_an_api_server() {
    let api = api().await;
    let store: Arc<dyn Store> = Arc::new(api.store.clone());
    for (name, cidr) in [("four", "10.244.0.0/20"), ("six", "fd00:10:244::/112")] {
        let spec = IPPoolSpec {
            cidr: cidr.into(),
            ..IPPoolSpec::default()
        };
        store
            .put_new(&IPPool::new(name, spec))
            .await
            .expect("created");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut agents = Vec::new();
    for n in 0..4 {
        let name = format!("n{n}");
        let mut node = Node::default();
        node.metadata.name = Some(name.clone());
        store.put_new(&node).await.expect("created");
        let config = IpamConfig {
            journal: folder.path().join(&name),
            settings: Settings {
                flush_interval: Duration::from_millis(300),
                ..Settings::default()
            },
            ..IpamConfig::for_node(&name)
        };
        let ipam = Ipam::start_shared(store.clone(), config).expect("starts");
        ipam.wait_synced().await;
        agents.push(ipam);
    }
    let start = std::time::Instant::now();
    let calls: Vec<_> = (0..120)
        .map(|n| {
            let ipam = agents[n % 4].clone();
            let request = AssignRequest::workload(format!("net.p{n}"), 1, 1).attr("pod", "p");
            tokio::spawn(async move { ipam.auto_assign(request).await })
        })
        .collect();
    let mut given = BTreeSet::new();
    for call in calls {
        for assigned in call.await.expect("runs").expect("assigned").ips() {
            assert!(given.insert(assigned.ip), "{} twice", assigned.ip);
        }
    }
    println!("240 addresses on 4 nodes in {:?}", start.elapsed());
    assert_eq!(given.len(), 240);
    for ipam in &agents {
        ipam.stop(Duration::from_secs(10)).await;
    }
    let mut stored = BTreeSet::new();
    for object in store
        .read_all::<IPAMBlock>(&Filter::All)
        .await
        .expect("readable")
    {
        assert_eq!(faults(&object.spec), vec![]);
        let block = Block::open(object).expect("valid");
        let pods = block.held().filter(|(_, e)| {
            e.handle_id
                .as_deref()
                .is_some_and(|h| h.starts_with("net."))
        });
        stored.extend(pods.map(|(ordinal, _)| block.address(ordinal)));
    }
    assert_eq!(stored, given);
    api.server.stop().await;
}
