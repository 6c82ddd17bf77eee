//! The real allocator over a store in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use margay_crds::{IPPool, IPPoolSpec};
use margay_ipam::store::{Kind, Stored};
use margay_ipam::{Ipam, MemoryStore};
use serde_json::json;

use super::lab::{Lab, first_address, new_netns, reaches};

async fn ipam(lab: &Lab, store: &MemoryStore) -> Arc<Ipam> {
    let spec = IPPoolSpec {
        cidr: "10.65.0.0/24".into(),
        ..IPPoolSpec::default()
    };
    let pool = IPPool::new("main", spec);
    store.force(IPPool::KIND, serde_json::to_value(&pool).expect("json"));
    store.force(
        Kind::Node,
        json!({"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1"}}),
    );
    let mut config = margay_ipam::IpamConfig::for_node("node-1");
    config.journal = lab.path("journal");
    let ipam = Ipam::start(store.clone(), config).expect("allocator");
    ipam.wait_synced().await;
    Arc::new(ipam)
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_addresses_of_the_pool_and_give_them_back() {
    let mut lab = Lab::new().await;
    let store = MemoryStore::new();
    let ipam = ipam(&lab, &store).await;
    lab.use_addresses(Arc::clone(&ipam) as _).await;
    let pods: Vec<_> = (0..30)
        .map(|n| (format!("c{n}"), format!("pod-{n}"), new_netns()))
        .collect();
    let calls = pods
        .iter()
        .map(|(id, name, netns)| lab.attach(id, name, netns));
    let addresses = futures::future::join_all(calls).await;
    assert_eq!(addresses.iter().collect::<BTreeSet<_>>().len(), 30);
    assert!(reaches(&pods[0].2, &pods[29].2, addresses[29]).await);
    let handle = "k8s-pod-network.c0";
    assert_eq!(ipam.held_by(handle), [addresses[0]]);
    for (id, name, netns) in &pods {
        lab.cni("DEL", id, Some(netns))
            .pod(name)
            .run()
            .await
            .silent();
        assert!(ipam.held_by(&format!("k8s-pod-network.{id}")).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_and_repeated_add_agree_with_the_allocator() {
    let mut lab = Lab::new().await;
    let store = MemoryStore::new();
    let ipam = ipam(&lab, &store).await;
    lab.use_addresses(Arc::clone(&ipam) as _).await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let add = lab.cni("ADD", "c1", Some(&pod));
    let first = add.run().await;
    assert_eq!(first.exit, 0, "{first:?}");
    assert_eq!(add.run().await.stdout, first.stdout);
    lab.cni("CHECK", "c1", Some(&pod))
        .set("prevResult", first.json())
        .run()
        .await
        .silent();
    // The same container in a new namespace keeps its address.
    let again = lab.cni("ADD", "c1", Some(&new_netns())).run().await;
    assert_eq!(first_address(&again), first_address(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pool_is_an_error_of_its_own() {
    let mut lab = Lab::new().await;
    let store = MemoryStore::new();
    let ipam = ipam(&lab, &store).await;
    lab.use_addresses(ipam as _).await;
    lab.add_pod("nginx");
    let config = json!({"type":"calico-ipam","assign_ipv6":"true"});
    let answer = lab
        .cni("ADD", "c1", Some(&new_netns()))
        .set("ipam", config)
        .run()
        .await;
    assert_eq!(answer.code(), 101, "{answer:?}");
    let config = json!({"type":"calico-ipam","ipv4_pools":["no-such-pool"]});
    let answer = lab
        .cni("ADD", "c1", Some(&new_netns()))
        .set("ipam", config)
        .run()
        .await;
    assert_eq!(answer.code(), 101, "{answer:?}");
}
