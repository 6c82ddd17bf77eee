//! Claims and releases of blocks, interrupted and contended.

use std::collections::BTreeSet;

use margay_crds::AffinityState;

use super::*;
use crate::block::Owner;
use crate::store::{Fault, StoreError, Verb};
use crate::write::{Giving, WriteError, affinity_for, claim, release_affinity};

fn net(text: &str) -> ipnet::IpNet {
    text.parse().expect("a network")
}

/// Runs an assignment until the injected fault has swallowed an answer, then kills the agent.
async fn killed_at(cluster: &Cluster, verb: Verb, kind: Kind) {
    let ipam = cluster.plain("worker-1").await;
    cluster.store.inject(verb, kind, Fault::Hang);
    let before = cluster.store.count(verb, kind);
    let victim = ipam.clone();
    let call = tokio::spawn(async move { victim.auto_assign(pod("c1")).await });
    eventually("the write", || async {
        cluster.store.count(verb, kind) > before
    })
    .await;
    tokio::task::yield_now().await;
    call.abort();
    drop(ipam);
}

#[tokio::test(start_paused = true)]
async fn a_claim_interrupted_anywhere_is_completed_with_the_same_block() {
    for (verb, kind) in [
        (Verb::Create, Kind::Affinity),
        (Verb::Create, Kind::Block),
        (Verb::Update, Kind::Affinity),
    ] {
        let cluster = Cluster::with_main();
        killed_at(&cluster, verb, kind).await;
        let affinity: BlockAffinity = cluster.get("worker-1-10-244-41-192-26").await;
        let ipam = cluster.plain("worker-1").await;
        // What is not confirmed is not advertised.
        assert_eq!(
            ipam.own_blocks().is_empty(),
            affinity.spec.state.is_pending()
        );
        assert_eq!(one(&ipam, "c1").await, "10.244.41.192");
        assert_eq!(cluster.check_affinities().await, 1);
        assert_eq!(cluster.all::<IPAMBlock>().await.len(), 1);
        assert_eq!(ipam.own_blocks().len(), 1);
        cluster.check_handles().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_that_went_to_another_node_costs_only_the_stale_affinity() {
    let cluster = Cluster::with_main();
    let cidr = net("10.244.41.192/26");
    let stale = affinity_for(
        &Owner::Host("worker-1".into()),
        &cidr,
        AffinityState::PendingDeletion,
    );
    cluster.put(&stale);
    let theirs = claim(
        &cluster.store,
        &Owner::Host("b".into()),
        &cidr,
        cluster.clock().now(),
    )
    .await
    .expect("claimed");
    let ipam = cluster.plain("worker-1").await;
    assert_eq!(one(&ipam, "c1").await, "10.244.232.0");
    assert_eq!(cluster.block("10-244-41-192-26").await, theirs.block);
    assert!(
        cluster
            .try_get::<BlockAffinity>("worker-1-10-244-41-192-26")
            .await
            .is_none()
    );
    assert_eq!(cluster.check_affinities().await, 2);
}

#[tokio::test(start_paused = true)]
async fn thirty_two_nodes_share_sixteen_blocks() {
    let cluster = Cluster::new();
    cluster.pool("p", "10.0.0.0/22", |_| {});
    let mut agents = Vec::new();
    for n in 0..32 {
        agents.push(cluster.plain(&format!("host-{n}")).await);
    }
    cluster.store.misbehave(1, 0.0);
    let calls: Vec<_> = agents
        .iter()
        .enumerate()
        .map(|(n, ipam)| {
            let ipam = ipam.clone();
            tokio::spawn(async move { ipam.auto_assign(pod(&format!("p{n}"))).await })
        })
        .collect();
    let mut ips = BTreeSet::new();
    for call in calls {
        let assigned = call.await.expect("runs").expect("assigned");
        ips.extend(assigned.ips().map(|a| a.ip));
    }
    assert_eq!(ips.len(), 32);
    assert_eq!(cluster.check_affinities().await, 16);
    for object in cluster.all::<IPAMBlock>().await {
        let block = Block::open(object).expect("valid");
        let owner = block.owner().expect("owned");
        let nodes: Vec<_> = block
            .held()
            .filter_map(|(_, e)| e.secondary.as_ref()?.get("node").cloned())
            .collect();
        assert!(
            nodes.iter().any(|node| node == owner.name()),
            "{nodes:?} in the block of {owner}"
        );
    }
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_loses_against_an_assignment_that_came_in_between() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("worker-1").await;
    one(&ipam, "c1").await;
    ipam.release_by_handle("c1").await.expect("released");
    let (owner, cidr) = (Owner::Host("worker-1".into()), net("10.244.41.192/26"));
    let giving = Giving {
        must_be_empty: true,
        sequence: None,
        cooldown: jiff::SignedDuration::ZERO,
        now: cluster.clock().now(),
    };
    // The releaser has marked the affinity and is held up before it deletes the block.
    cluster.store.inject(Verb::Delete, Kind::Block, Fault::Hang);
    let mut marked: BlockAffinity = cluster.get("worker-1-10-244-41-192-26").await;
    marked.spec.state = AffinityState::PendingDeletion;
    cluster.put(&marked);
    cluster.store.behave();
    let ip = one(&ipam, "c2").await;
    let refused = release_affinity(&cluster.store, &owner, &cidr, giving, |_| {}).await;
    assert_eq!(refused, Err(WriteError::NotEmpty(cidr)));
    assert_eq!(cluster.held().await.len(), 1);
    let old = Giving {
        sequence: Some(1),
        must_be_empty: false,
        ..giving
    };
    let refused = release_affinity(&cluster.store, &owner, &cidr, old, |_| {}).await;
    assert_eq!(refused, Err(StoreError::Conflict.into()));
    eventually("the agent sees the mark", || async {
        ipam.status().blocks[0].state == "pendingDeletion"
    })
    .await;
    one(&ipam, "c3").await;
    assert_eq!(cluster.check_affinities().await, 1);
    assert!(
        cluster
            .held()
            .await
            .contains_key(&ip.parse().expect("an address"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_block_in_use_can_be_disowned_and_is_deleted_with_its_last_address() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("worker-1").await;
    one(&ipam, "c1").await;
    let (owner, cidr) = (Owner::Host("worker-1".into()), net("10.244.41.192/26"));
    let giving = Giving {
        must_be_empty: false,
        sequence: None,
        cooldown: jiff::SignedDuration::ZERO,
        now: cluster.clock().now(),
    };
    release_affinity(&cluster.store, &owner, &cidr, giving, |_| {})
        .await
        .expect("released");
    assert_eq!(cluster.block("10-244-41-192-26").await.owner(), None);
    assert_eq!(cluster.check_affinities().await, 0);
    eventually("the agent sees it", || async {
        ipam.own_blocks().is_empty()
    })
    .await;
    ipam.release_by_handle("c1").await.expect("released");
    assert!(cluster.all::<IPAMBlock>().await.is_empty());
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn a_block_with_owner_and_no_affinity_object_is_found_again() {
    let cluster = Cluster::new();
    cluster.pool("p", "10.0.0.0/26", |_| {});
    let owner = Owner::Host("n1".into());
    let block = Block::new(net("10.0.0.0/26"), &owner, cluster.clock().now());
    cluster.put(block.object());
    let ipam = cluster.plain("n1").await;
    assert_eq!(one(&ipam, "a").await, "10.0.0.0");
    assert_eq!(cluster.check_affinities().await, 1);
}

#[tokio::test(start_paused = true)]
async fn affinities_of_old_writers_get_the_labels_by_which_they_are_found() {
    let cluster = Cluster::with_main();
    let mut old = affinity_for(
        &Owner::Host("n1".into()),
        &net("10.244.9.0/26"),
        AffinityState::Unset,
    );
    old.metadata.labels = None;
    old.spec.kind = None;
    cluster.put(&old);
    let ipam = cluster.plain("n1").await;
    assert_eq!(ipam.own_blocks().len(), 1);
    assert!(
        cluster
            .get::<BlockAffinity>("n1-10-244-9-0-26")
            .await
            .metadata
            .labels
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn blocks_of_another_size_are_never_overlapped() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/24", 26);
    for cidr in ["10.0.0.0/28", "10.0.0.64/27", "10.0.0.128/25"] {
        let block = Block::new(net(cidr), &Owner::Host("x".into()), cluster.clock().now());
        cluster.put(block.object());
    }
    cluster.configure(|spec| spec.strict_affinity = true);
    let ipam = cluster.plain("n1").await;
    assert!(ipam.auto_assign(pod("a")).await.is_err());
    assert_eq!(cluster.all::<IPAMBlock>().await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_cannot_be_called_like_the_owner_of_service_addresses() {
    let cluster = Cluster::new();
    let config = IpamConfig {
        journal: cluster.journal("x"),
        ..IpamConfig::for_node("load-balancer")
    };
    assert!(matches!(
        Ipam::start(cluster.store.clone(), config),
        Err(StartError::NodeName(_))
    ));
}
