//! The reserve: how many writes it takes, and what is handed out when.

use std::collections::BTreeSet;

use super::*;
use crate::request::AssignErrorKind;
use crate::store::Verb;

fn block_writes(cluster: &Cluster) -> u64 {
    cluster.store.count(Verb::Update, Kind::Block)
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_sixty_pods_takes_a_handful_of_writes() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "warm-up").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = block_writes(&cluster);
    let calls: Vec<_> = (0..60)
        .map(|n| {
            let ipam = ipam.clone();
            tokio::spawn(async move { one(&ipam, &format!("p{n}")).await })
        })
        .collect();
    let mut ips = BTreeSet::new();
    for call in calls {
        assert!(ips.insert(call.await.expect("runs")));
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let writes = block_writes(&cluster) - before;
    let claims = cluster.store.count(Verb::Create, Kind::Block);
    assert!(writes <= 4 + claims, "{writes} writes, {claims} claims");
    assert_eq!(cluster.store.count(Verb::Create, Kind::Handle), 0);
    let held = cluster.held().await;
    let stored = held.iter().filter(|(_, handle)| handle.starts_with('p'));
    let stored: BTreeSet<_> = stored.map(|(ip, _)| ip.to_string()).collect();
    assert_eq!(stored, ips);
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_and_go_between_two_flushes_cost_no_write() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "warm-up").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let before = cluster.store.count(Verb::Update, Kind::Block);
    for n in 0..3 {
        let handle = format!("p{n}");
        one(&ipam, &handle).await;
        assert_eq!(
            ipam.release_by_handle(&handle)
                .await
                .expect("released")
                .len(),
            1
        );
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.store.count(Verb::Update, Kind::Block), before);
}

#[tokio::test(start_paused = true)]
async fn a_reserve_lasts_as_many_pods_as_it_has_addresses_without_the_api() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "warm-up").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    cluster.store.set_outage(true);
    let before = cluster.store.total();
    for n in 0..8 {
        one(&ipam, &format!("p{n}")).await;
    }
    let error = ipam.auto_assign(pod("p8")).await.expect_err("nothing left");
    assert!(error.is_retriable());
    assert!(matches!(error.kind, AssignErrorKind::Store(_)), "{error:?}");
    // Only the refill asked the API.
    assert!(cluster.store.total() - before < 10);
    cluster.store.set_outage(false);
    one(&ipam, "p8").await;
}

#[tokio::test(start_paused = true)]
async fn a_released_address_rests_while_there_are_others() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "warm-up").await;
    let ip = one(&ipam, "a").await;
    ipam.release_by_handle("a").await.expect("released");
    for n in 0..30 {
        assert_ne!(one(&ipam, &format!("b{n}")).await, ip);
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    assert_eq!(
        cluster.held().await.len() as u64,
        ipam.status().counts.used + ipam.status().counts.reserved
    );
}

#[tokio::test(start_paused = true)]
async fn a_full_block_gives_up_a_resting_address_rather_than_fail() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/28", 28);
    let ipam = cluster.agent("n1", Settings::default()).await;
    for n in 0..16 {
        one(&ipam, &format!("p{n}")).await;
    }
    ipam.release_by_handle("p3").await.expect("released");
    assert!(ipam.auto_assign(pod("early")).await.is_err());
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(one(&ipam, "late").await, "10.0.0.3");
    eventually("it is written", || async {
        cluster.held().await.values().any(|handle| handle == "late")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn small_pools_keep_no_reserve_and_what_is_released_becomes_free() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/28", 29);
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "a").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.held().await.len(), 1);
    ipam.release_by_handle("a").await.expect("released");
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(
        cluster
            .held()
            .await
            .values()
            .all(|handle| handle == "margay-warm.n1")
    );
    eventually("it is free", || async { cluster.held().await.is_empty() }).await;
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_unclaimed_blocks_gets_the_reserve_back() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/25", 26);
    let (a, b) = (
        cluster.agent("a", Settings::default()).await,
        cluster.agent("b", Settings::default()).await,
    );
    one(&a, "a0").await;
    one(&b, "b0").await;
    assert!(cluster.held().await.len() > 2);
    // The next claim fails: there is no third block.
    let many = AssignRequest {
        num4: 70,
        ..pod("a-many")
    };
    let assigned = a.auto_assign(many).await.expect("own and borrowed");
    assert!(assigned.v4.ips.iter().any(|ip| !ip.own_block));
    eventually("the reserve of a is given back", || async {
        !cluster
            .held()
            .await
            .values()
            .any(|handle| handle == "margay-warm.a")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unused_blocks_are_given_back_after_a_while_and_one_is_kept() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    let many = AssignRequest {
        num4: 70,
        ..pod("many")
    };
    ipam.auto_assign(many).await.expect("assigned");
    assert_eq!(ipam.own_blocks().len(), 2);
    ipam.release_by_handle("many").await.expect("released");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(ipam.own_blocks().len(), 2);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(ipam.own_blocks().len(), 1);
    assert_eq!(cluster.all::<IPAMBlock>().await.len(), 1);
    assert_eq!(cluster.check_affinities().await, 1);
    one(&ipam, "again").await;
}

#[tokio::test(start_paused = true)]
async fn a_warm_address_somebody_took_away_is_not_handed_out() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "a").await;
    let name = crate::names::block_name(&ipam.own_blocks()[0].cidr);
    let mut block = cluster.block(&name).await;
    let warm = block.held_by("margay-warm.n1");
    assert_eq!(warm.len(), 8);
    let theirs = crate::block::Claim {
        handle: Some("other".into()),
        attrs: BTreeMap::new(),
    };
    let taken = block.address(warm[0]);
    block.relabel(warm[0], &theirs);
    cluster.put(&block.to_write());
    eventually("seen", || async { ipam.status().counts.reserved == 7 }).await;
    for n in 0..20 {
        assert_ne!(one(&ipam, &format!("p{n}")).await, taken.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_writes_what_is_only_in_memory() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    one(&ipam, "a").await;
    let ip: IpAddr = one(&ipam, "b").await.parse().expect("an address");
    assert_eq!(cluster.held().await[&ip], "margay-warm.n1");
    ipam.stop(Duration::from_secs(5)).await;
    assert_eq!(cluster.held().await[&ip], "b");
}

#[tokio::test(start_paused = true)]
async fn dual_stack_is_all_or_nothing() {
    let cluster = Cluster::with_main();
    cluster.sized("six", "fd00:10:244::/126", 126);
    let ipam = cluster.agent("n1", Settings::default()).await;
    let both = |handle: &str| AssignRequest {
        num6: 1,
        ..pod(handle)
    };
    for n in 0..4 {
        let assigned = ipam
            .auto_assign(both(&format!("p{n}")))
            .await
            .expect("assigned");
        assert_eq!((assigned.v4.ips.len(), assigned.v6.ips.len()), (1, 1));
    }
    let used = ipam.status().counts.used;
    let error = ipam
        .auto_assign(both("p4"))
        .await
        .expect_err("no IPv6 left");
    assert!(
        error
            .message
            .starts_with("Assigned 0 out of 1 requested IPv6 addresses"),
        "{error}"
    );
    assert_eq!(
        ipam.status().counts.used,
        used,
        "the IPv4 address is released again"
    );
}

#[tokio::test(start_paused = true)]
async fn own_blocks_are_announced_as_they_come_and_go() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("worker-1", Settings::default()).await;
    let mut blocks = ipam.watch_own_blocks();
    assert!(blocks.borrow_and_update().is_empty());
    one(&ipam, "a").await;
    blocks.changed().await.expect("running");
    let now = blocks.borrow_and_update().clone();
    assert_eq!(now.len(), 1);
    assert_eq!(now[0].cidr.to_string(), "10.244.41.192/26");
    assert_eq!(now[0].pool.as_deref(), Some("main"));
}
