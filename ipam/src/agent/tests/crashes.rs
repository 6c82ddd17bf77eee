//! Lost replies, killed processes, reboots.

use super::*;
use crate::request::{AssignErrorKind, LiveAddress};
use crate::store::{Fault, Verb};

fn with_reserve() -> Settings {
    Settings::default()
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_reply_is_lost_counts_exactly_once() {
    for fault in [Fault::LostReply, Fault::LostRequest] {
        let cluster = Cluster::with_main();
        let ipam = cluster.plain("n1").await;
        one(&ipam, "a").await;
        cluster.store.inject(Verb::Update, Kind::Block, fault);
        let ip = one(&ipam, "b").await;
        let held = cluster.held().await;
        assert_eq!(held.len(), 2);
        assert_eq!(held[&ip.parse().expect("an address")], "b");
        cluster.check_handles().await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_replies_of_claims_and_handles_leave_no_trace() {
    for (verb, kind) in [
        (Verb::Create, Kind::Affinity),
        (Verb::Create, Kind::Block),
        (Verb::Update, Kind::Affinity),
        (Verb::Create, Kind::Handle),
    ] {
        for fault in [Fault::LostReply, Fault::LostRequest] {
            let cluster = Cluster::with_main();
            let ipam = cluster.plain("worker-1").await;
            cluster.store.inject(verb, kind, fault);
            let mut result = ipam.auto_assign(pod("a")).await;
            if result.is_err() {
                result = ipam.auto_assign(pod("a")).await;
            }
            assert_eq!(ips(&result.expect("assigned")), ["10.244.41.192"]);
            assert_eq!(cluster.check_affinities().await, 1);
            cluster.check_handles().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_killed_before_its_reply_gives_the_same_handle_the_same_address() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "warm-up").await;
    let before = one(&ipam, "net.c1").await;
    let updates = cluster.store.count(Verb::Update, Kind::Block);
    drop(ipam);
    let ipam = cluster.agent("n1", with_reserve()).await;
    assert_eq!(
        one(&ipam, "net.c1").await,
        before,
        "the journal knows the handle"
    );
    assert_ne!(
        one(&ipam, "net.c2").await,
        before,
        "another sandbox is another pod"
    );
    assert_eq!(cluster.store.count(Verb::Update, Kind::Block), updates);
    // Nothing uses the first sandbox any more: two looks a minute apart, and it is released.
    let live = |handle: &str, ip: &str| LiveAddress {
        ip: ip.parse().expect("an address"),
        handle: handle.into(),
        attrs: BTreeMap::new(),
    };
    let (second, first) = (one(&ipam, "net.c2").await, one(&ipam, "warm-up").await);
    let used = [live("net.c2", &second), live("warm-up", &first)];
    assert_eq!(
        ipam.reconcile_live(&used).await.expect("works"),
        Vec::<IpAddr>::new()
    );
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(
        ipam.reconcile_live(&used).await.expect("works"),
        Vec::<IpAddr>::new()
    );
    tokio::time::sleep(Duration::from_secs(31)).await;
    let released = ipam.reconcile_live(&used).await.expect("works");
    assert_eq!(
        released.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [before]
    );
    assert_eq!(
        ipam.reconcile_live(&used).await.expect("works"),
        Vec::<IpAddr>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_killed_before_its_flush_never_loses_an_address() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    let mut given = BTreeMap::new();
    for n in 0..4 {
        let handle = format!("net.c{n}");
        given.insert(one(&ipam, &handle).await, handle);
    }
    drop(ipam);
    let ipam = cluster.agent("n1", with_reserve()).await;
    for n in 4..20 {
        let handle = format!("net.c{n}");
        let twice = given.insert(one(&ipam, &handle).await, handle);
        assert_eq!(twice, None);
    }
    eventually("everything is written", || async {
        let held = cluster.held().await;
        given
            .iter()
            .all(|(ip, handle)| held.get(&ip.parse().expect("address")) == Some(handle))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn after_a_reboot_the_addresses_of_before_are_released() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "net.first").await;
    one(&ipam, "net.unwritten").await;
    drop(ipam);
    let ipam = cluster.agent_at_boot("n1", with_reserve(), "boot-2").await;
    eventually("the address is back in the reserve", || async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        ipam.status().counts.used == 1
    })
    .await;
    let held = cluster.held().await;
    assert!(
        !held.values().any(|handle| handle == "net.unwritten"),
        "{held:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_contact_to_the_api_the_reserve_lasts_until_the_fence() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "warm-up").await;
    cluster.store.set_outage(true);
    one(&ipam, "p0").await;
    tokio::time::sleep(Duration::from_secs(590)).await;
    one(&ipam, "p1").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let error = ipam.auto_assign(pod("p2")).await.expect_err("fenced");
    assert_eq!(error.kind, AssignErrorKind::Fenced);
    assert!(ipam.check().is_err() && error.is_retriable());
    cluster.store.set_outage(false);
    eventually("contact again", || async { ipam.check().is_ok() }).await;
    one(&ipam, "p2").await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_hands_out_nothing_until_it_is_registered_again() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "a").await;
    cluster.store.force_delete(Kind::Node, "n1");
    eventually("the node is gone", || async { ipam.check().is_err() }).await;
    let error = ipam.auto_assign(pod("b")).await.expect_err("fenced");
    assert_eq!(error.kind, AssignErrorKind::Fenced);
    cluster.node("n1", &[]);
    eventually("the node is back", || async { ipam.check().is_ok() }).await;
    one(&ipam, "b").await;
}

#[tokio::test(start_paused = true)]
async fn an_address_in_use_that_no_journal_knows_is_not_handed_out() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "a").await;
    let ip = one(&ipam, "net.c1").await;
    drop(ipam);
    std::fs::remove_file(cluster.journal("n1")).expect("removed");
    let ipam = cluster.agent("n1", with_reserve()).await;
    let live = LiveAddress {
        ip: ip.parse().expect("an address"),
        handle: "net.c1".into(),
        attrs: BTreeMap::from([("pod".to_owned(), "web-0".to_owned())]),
    };
    ipam.reconcile_live(std::slice::from_ref(&live))
        .await
        .expect("works");
    for n in 0..20 {
        assert_ne!(one(&ipam, &format!("p{n}")).await, ip);
    }
    eventually("it is written", || async {
        cluster.held().await.get(&live.ip) == Some(&live.handle)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_address_given_to_somebody_else_is_reported() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "a").await;
    let ip: IpAddr = one(&ipam, "net.c1").await.parse().expect("an address");
    let cidr = ipam.own_blocks()[0].cidr;
    let mut block = cluster.block(&crate::names::block_name(&cidr)).await;
    let ordinal = block.ordinal(ip).expect("inside");
    let thief = crate::block::Claim {
        handle: Some("thief".into()),
        attrs: BTreeMap::new(),
    };
    block.relabel(ordinal, &thief);
    cluster.put(&block.to_write());
    eventually("the problem is seen", || async {
        ipam.problems()
            == [IpamProblem::Lost {
                ip,
                holder: "thief".into(),
            }]
    })
    .await;
    assert_eq!(cluster.held().await[&ip], "thief");
}

#[tokio::test(start_paused = true)]
async fn an_address_passed_on_to_its_real_user_is_written_for_that_one() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    one(&ipam, "first").await;
    for late in [false, true] {
        let (old, new) = (format!("net.old-{late}"), format!("net.new-{late}"));
        let ip: IpAddr = one(&ipam, &old).await.parse().expect("an address");
        if late {
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        let user = LiveAddress {
            ip,
            handle: new.clone(),
            attrs: BTreeMap::new(),
        };
        assert!(ipam.transfer(&old, &user).expect("written"));
        assert!(!ipam.transfer(&old, &user).expect("written"));
        assert_eq!((ipam.held_by(&old), ipam.held_by(&new)), (vec![], vec![ip]));
        eventually("it is written", || async {
            cluster.held().await.get(&ip) == Some(&new)
        })
        .await;
        assert_eq!(ipam.problems(), vec![]);
        ipam.release_by_handle(&new).await.expect("released");
        eventually("it is released", || async {
            cluster.held().await.get(&ip) != Some(&new)
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_another_program_has_wired_are_left_alone() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", with_reserve()).await;
    let foreign = AssignRequest::workload("calico.c1", 1, 0)
        .attr("pod", "p")
        .attr("namespace", "d");
    let ip = ipam.auto_assign(foreign).await.expect("assigned").v4.ips[0].ip;
    drop(ipam);
    std::fs::remove_file(cluster.journal("n1")).expect("removed");
    let ipam = cluster.agent("n1", with_reserve()).await;
    for _ in 0..3 {
        assert_eq!(
            ipam.reconcile_live(&[]).await.expect("works"),
            Vec::<IpAddr>::new()
        );
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    assert_eq!(cluster.held().await[&ip], "calico.c1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_holds_nobody_up_for_long() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("n1").await;
    one(&ipam, "a").await;
    cluster.store.inject(Verb::Update, Kind::Block, Fault::Hang);
    let start = tokio::time::Instant::now();
    let ip: IpAddr = one(&ipam, "b").await.parse().expect("an address");
    assert!(start.elapsed() < Duration::from_secs(20));
    let held = cluster.held().await;
    assert_eq!(
        (held.len(), held[&ip].as_str()),
        (2, "b"),
        "the write had taken effect"
    );
    cluster.check_handles().await;
}
