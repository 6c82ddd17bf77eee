//! What is written when every request goes to the API at once: the objects other programs read.

use margay_crds::{AllowedUse, AssignmentMode};
use serde_json::json;

use super::*;
use crate::request::{AssignErrorKind, SpecificRequest};
use crate::store::Verb;

fn specific(ip: &str, handle: &str) -> SpecificRequest {
    SpecificRequest {
        ip: ip.parse().expect("an address"),
        handle: handle.into(),
        attrs: BTreeMap::new(),
        usage: Some(AllowedUse::Workload),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_pod_of_a_node_leaves_exactly_the_objects_others_expect() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("worker-1").await;
    let request = AssignRequest::workload("k8s-pod-network.c1", 1, 0)
        .attr("pod", "web-0")
        .attr("namespace", "shop");
    let assigned = ipam.auto_assign(request).await.expect("assigned");
    let ip = &assigned.v4.ips[0];
    assert_eq!(
        (ip.ip.to_string(), ip.block.to_string()),
        ("10.244.41.192".into(), "10.244.41.192/26".into())
    );
    assert_eq!(ip.pool.as_deref(), Some("main"));

    let affinity: BlockAffinity = cluster.get("worker-1-10-244-41-192-26").await;
    assert!(affinity.spec.state.is_confirmed());
    assert_eq!(affinity.spec.kind.as_deref(), Some("host"));
    assert_eq!(affinity.metadata.labels.expect("labelled").len(), 3);

    let object: IPAMBlock = cluster.get("10-244-41-192-26").await;
    let spec = serde_json::to_value(&object.spec).expect("serialises");
    assert_eq!(spec["allocations"][0], 0);
    assert_eq!(
        spec["allocations"]
            .as_array()
            .expect("list")
            .iter()
            .filter(|a| a.is_null())
            .count(),
        63
    );
    assert_eq!(spec["unallocated"], json!((1..64).collect::<Vec<i64>>()));
    assert_eq!(spec["attributes"].as_array().expect("list").len(), 1);
    let entry = &spec["attributes"][0];
    assert_eq!(entry["handle_id"], "k8s-pod-network.c1");
    let attrs = entry["secondary"].as_object().expect("attributes");
    let keys: Vec<&str> = attrs.keys().map(String::as_str).collect();
    assert_eq!(keys, ["namespace", "node", "pod", "timestamp"]);
    assert_eq!(attrs["node"], "worker-1");
    let created = spec["sequenceNumberForAllocation"]["0"]
        .as_i64()
        .expect("a stamp");
    assert_eq!(spec["sequenceNumber"], created + 1);
    assert_eq!(spec["strictAffinity"], false);

    let handle: IPAMHandle = cluster.get("k8s-pod-network.c1").await;
    assert_eq!(
        handle.spec.block,
        BTreeMap::from([("10.244.41.192/26".to_owned(), 1)])
    );
    assert_eq!(ipam.own_blocks().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_block_is_followed_by_the_next_of_the_nodes_order() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("worker-1").await;
    for n in 0..64u32 {
        let ip: IpAddr = one(&ipam, &format!("p{n}"))
            .await
            .parse()
            .expect("an address");
        assert_eq!(ip, IpAddr::from([10, 244, 41, 192 + n as u8]));
    }
    assert_eq!(one(&ipam, "p64").await, "10.244.232.0");
    cluster.check_handles().await;
    assert_eq!(cluster.check_affinities().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_block_of_another_node_is_left_alone_while_there_are_others() {
    let cluster = Cluster::with_main();
    let owner = crate::block::Owner::Host("x".into());
    let cidr = "10.244.41.192/26".parse().expect("a network");
    let theirs = Block::new(
        cidr,
        &owner,
        "2026-03-04T05:00:00Z".parse().expect("a time"),
    );
    cluster.put(theirs.object());
    let ipam = cluster.plain("worker-1").await;
    assert_eq!(one(&ipam, "c1").await, "10.244.232.0");
    assert_eq!(
        cluster.block("10-244-41-192-26").await.object().spec,
        theirs.object().spec
    );
}

#[tokio::test(start_paused = true)]
async fn ipv6_pools_of_any_size_are_probed_without_enumeration() {
    for cidr in ["fd00:10:244::/48", "fd00::/16"] {
        let cluster = Cluster::new();
        cluster.pool("six", cidr, |_| {});
        let ipam = cluster.plain("worker-1").await;
        let assigned = ipam
            .auto_assign(AssignRequest::workload("c1", 0, 64))
            .await
            .expect("assigned");
        assert_eq!(assigned.v6.ips.len(), 64);
        if cidr.ends_with("/48") {
            assert_eq!(ips(&assigned)[0], "fd00:10:244:cf50:df0a:9d5a:3f07:29c0");
            assert_eq!(ips(&assigned)[63], "fd00:10:244:cf50:df0a:9d5a:3f07:29ff");
            cluster
                .block("fd00-10-244-cf50-df0a-9d5a-3f07-29c0-122")
                .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_pool_is_named_in_the_error() {
    let cluster = Cluster::new();
    cluster.sized("tiny", "10.8.0.0/30", 30);
    let ipam = cluster.plain("n1").await;
    for n in 0..4 {
        assert_eq!(one(&ipam, &format!("p{n}")).await, format!("10.8.0.{n}"));
    }
    let error = ipam.auto_assign(pod("p4")).await.expect_err("exhausted");
    assert_eq!(
        error.message,
        "Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.8.0.0/30]"
    );
    assert_eq!(error.details, "pools: 10.8.0.0/30; strictAffinity: false");
    assert!(error.is_retriable());
}

#[tokio::test(start_paused = true)]
async fn an_empty_block_of_another_node_is_taken_over_after_a_minute_and_borrowed_before() {
    for (strict, wait) in [(true, 0), (false, 0), (true, 61)] {
        let cluster = Cluster::new();
        cluster.sized("one", "10.9.9.9/32", 32);
        cluster.configure(|spec| spec.strict_affinity = strict);
        let (a, b) = (cluster.plain("a").await, cluster.plain("b").await);
        one(&a, "pa").await;
        let first = b.auto_assign_partial(pod("pb")).await;
        assert_eq!(first.ips().count(), 0);
        tokio::time::sleep(Duration::from_secs(10 + wait)).await;
        a.release_by_handle("pa").await.expect("released");
        let then = b.auto_assign_partial(pod("pb")).await;
        let block = cluster.block("10-9-9-9-32").await;
        match (strict, wait) {
            (true, 0) => {
                assert_eq!(then.ips().count(), 0);
                assert_eq!(
                    then.v4.msgs,
                    ["No more free affine blocks and strict affinity enabled"]
                );
            }
            (false, _) => {
                assert_eq!(ips(&then), ["10.9.9.9"]);
                assert!(!then.v4.ips[0].own_block);
                assert_eq!(block.owner().expect("owned").name(), "a");
            }
            (true, _) => {
                assert_eq!(ips(&then), ["10.9.9.9"]);
                assert_eq!(block.owner().expect("owned").name(), "b");
                assert_eq!(cluster.check_affinities().await, 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_named_pool_need_not_select_the_node_and_its_empty_block_is_given_back() {
    let cluster = Cluster::new();
    cluster.pool("a", "10.1.0.0/16", |spec| {
        spec.node_selector = Some("zone == 'a'".into())
    });
    cluster.pool("b", "10.2.0.0/16", |spec| {
        spec.node_selector = Some("all()".into())
    });
    cluster.node("n1", &[("zone", "b")]);
    let ipam = cluster.plain("n1").await;
    assert!(one(&ipam, "p1").await.starts_with("10.2."));
    let named = AssignRequest {
        pools4: vec!["a".into()],
        ..pod("p2")
    };
    let assigned = ipam.auto_assign(named).await.expect("assigned");
    assert!(ips(&assigned)[0].starts_with("10.1."));
    ipam.release_by_handle("p2").await.expect("released");
    eventually("the block of pool a is gone", || async {
        cluster.all::<IPAMBlock>().await.len() + cluster.all::<BlockAffinity>().await.len() == 2
    })
    .await;
    assert_eq!(cluster.check_affinities().await, 1);
    assert_eq!(ipam.own_blocks().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_pools_write_nothing() {
    let cluster = Cluster::with_main();
    cluster.pool("off", "10.5.0.0/16", |spec| spec.disabled = Some(true));
    cluster.pool("manual", "10.6.0.0/16", |spec| {
        spec.assignment_mode = Some(AssignmentMode::Manual)
    });
    cluster.pool("tunnel", "10.7.0.0/16", |spec| {
        spec.allowed_uses = Some(vec![AllowedUse::Tunnel])
    });
    let ipam = cluster.plain("n1").await;
    for (named, text) in [
        (
            "10.244.0.0/17",
            "the given pool (10.244.0.0/17) does not exist, or is not enabled",
        ),
        (
            "10.5.0.0/16",
            "the given pool (10.5.0.0/16) does not exist, or is not enabled",
        ),
        (
            "fd00::/48",
            "the given pool (fd00::/48) is not an IPv4 pool",
        ),
        (
            "nosuch",
            "the given pool (nosuch) does not exist, or is not enabled",
        ),
        (
            "tunnel",
            "cannot find a qualified ippool, no pools match the required use",
        ),
    ] {
        let request = AssignRequest {
            pools4: vec![named.into()],
            ..pod("p")
        };
        let error = ipam.auto_assign(request).await.expect_err("refused");
        assert_eq!(error.message, text);
        assert!(!error.is_retriable());
    }
    let error = ipam
        .assign_specific(specific("10.7.0.1", "p"))
        .await
        .expect_err("refused");
    assert_eq!(error.kind, AssignErrorKind::WrongUse);
    assert!(
        error.message.contains("tunnel") && error.message.contains("Workload"),
        "{error}"
    );
    let error = ipam
        .assign_specific(specific("10.99.0.1", "p"))
        .await
        .expect_err("refused");
    assert_eq!(
        error.message,
        "The provided IP address is not in a configured pool\n"
    );
    for kind in [Kind::Block, Kind::Affinity, Kind::Handle] {
        assert_eq!(cluster.store.count(Verb::Create, kind), 0);
    }
    let request = AssignRequest {
        pools4: vec!["manual".into()],
        ..pod("p")
    };
    assert!(ips(&ipam.auto_assign(request).await.expect("assigned"))[0].starts_with("10.6."));
}

#[tokio::test(start_paused = true)]
async fn reserved_addresses_are_never_chosen_but_may_be_asked_for() {
    let cluster = Cluster::new();
    cluster.pool("p", "10.0.0.0/26", |_| {});
    cluster.reserve("one", &["10.0.0.1/32", "10.0.0.32/30"]);
    cluster.reserve("two", &["11.0.0.0/30", "10.0.0.17/32"]);
    let ipam = cluster.plain("n1").await;
    let assigned = ipam.auto_assign_partial(pods("many", 64)).await;
    assert_eq!(assigned.v4.ips.len(), 58);
    assert_eq!(ips(&assigned)[..3], ["10.0.0.0", "10.0.0.2", "10.0.0.3"]);
    let block = cluster.block("10-0-0-0-26").await;
    assert_eq!(block.object().spec.unallocated, [1, 17, 32, 33, 34, 35]);
    ipam.assign_specific(specific("10.0.0.17", "s"))
        .await
        .expect("assigned");
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn wholly_reserved_blocks_are_never_claimed() {
    let cluster = Cluster::new();
    cluster.pool("p", "10.0.0.0/24", |_| {});
    cluster.reserve(
        "r",
        &[
            "10.0.0.0/27",
            "10.0.0.32/27",
            "10.0.0.64/26",
            "10.0.0.128/26",
        ],
    );
    for node in ["n1", "n2", "n3"] {
        let ipam = cluster.plain(node).await;
        assert!(one(&ipam, node).await.starts_with("10.0.0.19") || node != "n1");
    }
    let blocks = cluster.all::<IPAMBlock>().await;
    assert_eq!(blocks.len(), 1);
    assert_eq!(blocks[0].spec.cidr, "10.0.0.192/26");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_blocks_per_node_holds_and_names_itself() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/28", 30);
    cluster.configure(|spec| {
        spec.strict_affinity = true;
        spec.max_blocks_per_host = Some(2);
    });
    let ipam = cluster.plain("host1").await;
    for n in 0..8 {
        one(&ipam, &format!("p{n}")).await;
    }
    let more = AssignRequest {
        max_blocks: Some(3),
        ..pod("p8")
    };
    let result = ipam.auto_assign_partial(more.clone()).await;
    assert!(
        result.v4.msgs[0].contains("limit of 2 blocks"),
        "{:?}",
        result.v4.msgs
    );
    let error = ipam.auto_assign(more).await.expect_err("limited");
    assert_eq!(error.kind, AssignErrorKind::BlockLimit);
    assert_eq!(
        error.message,
        "cannot allocate new block due to per host block limit"
    );
    assert!(
        error.details.contains("limit of 2 blocks"),
        "{}",
        error.details
    );
    one(&cluster.plain("host2").await, "other").await;
    cluster.configure(|spec| {
        spec.strict_affinity = true;
        spec.max_blocks_per_host = Some(3);
    });
    ipam.refresh().await.expect("read");
    one(&ipam, "p8").await;
    assert_eq!(cluster.all::<IPAMBlock>().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn at_the_limit_addresses_are_borrowed_unless_affinity_is_strict() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/28", 30);
    let (a, b) = (
        cluster.plain("worker-1").await,
        cluster.plain("worker-2").await,
    );
    one(&b, "pb").await;
    let limited = AssignRequest {
        max_blocks: Some(1),
        ..pods("pa", 5)
    };
    let assigned = a.auto_assign(limited).await.expect("assigned");
    assert_eq!(assigned.v4.ips.iter().filter(|ip| !ip.own_block).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn strict_affinity_decides_whether_addresses_are_borrowed() {
    for strict in [true, false] {
        let cluster = Cluster::new();
        cluster.sized("p", "10.0.0.0/28", 28);
        cluster.configure(|spec| spec.strict_affinity = strict);
        let (one_, two) = (cluster.plain("host1").await, cluster.plain("host2").await);
        one(&one_, "p1").await;
        let result = two.auto_assign_partial(pod("p2")).await;
        assert_eq!(result.v4.error, None);
        if strict {
            assert_eq!(
                result.v4.msgs,
                ["No more free affine blocks and strict affinity enabled"]
            );
            let error = two.auto_assign(pod("p2")).await.expect_err("none");
            assert_eq!(error.details, "pools: 10.0.0.0/28; strictAffinity: true");
            let error = two
                .assign_specific(specific("10.0.0.9", "p2"))
                .await
                .expect_err("none");
            assert_eq!(error.kind, AssignErrorKind::ForeignBlock);
        } else {
            assert_eq!(result.v4.ips.len(), 1);
            let block = cluster.block("10-0-0-0-28").await;
            assert_eq!(block.owner().expect("owned").name(), "host1");
            let borrower = block
                .held()
                .filter_map(|(_, entry)| entry.secondary.as_ref()?.get("node").cloned());
            assert_eq!(borrower.collect::<Vec<_>>(), ["host1", "host2"]);
            assert_eq!(two.status().counts.borrowed, 1);
            two.release_by_handle("p2").await.expect("released");
            assert_eq!(cluster.held().await.len(), 1);
        }
        cluster.check_handles().await;
    }
}

#[tokio::test(start_paused = true)]
async fn own_blocks_are_used_up_before_others_are_borrowed_from() {
    let cluster = Cluster::new();
    cluster.pool("p", "10.0.0.0/25", |_| {});
    let (a, b) = (cluster.plain("host-a").await, cluster.plain("host-b").await);
    one(&a, "a1").await;
    one(&b, "b1").await;
    let assigned = a.auto_assign(pods("many", 64)).await.expect("assigned");
    assert_eq!(assigned.v4.ips.iter().filter(|ip| ip.own_block).count(), 63);
    assert_eq!(cluster.check_affinities().await, 2);
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_forbids_claiming_says_so() {
    let cluster = Cluster::with_main();
    cluster.configure(|spec| spec.auto_allocate_blocks = false);
    let ipam = cluster.plain("n1").await;
    let error = ipam.auto_assign(pod("p")).await.expect_err("refused");
    assert_eq!(error.message, "failed to find or claim a block");
    assert!(
        matches!(&ipam.problems()[..], [IpamProblem::Configuration(text)] if text.contains("autoAllocateBlocks"))
    );
}

#[tokio::test(start_paused = true)]
async fn releases_of_unknown_handles_and_repeated_ones_succeed() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("n1").await;
    one(&ipam, "net.old").await;
    let new = one(&ipam, "net.new").await;
    for handle in ["net.unknown", "net.old", "net.old"] {
        ipam.release_by_handle(handle).await.expect("succeeds");
    }
    let held = cluster.held().await;
    assert_eq!(
        held.into_keys()
            .map(|ip| ip.to_string())
            .collect::<Vec<_>>(),
        [new]
    );
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn releases_by_address_check_the_handle() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("n1").await;
    let ip: IpAddr = one(&ipam, "a").await.parse().expect("an address");
    let refused = ipam
        .release_ips(&[ip, ip], Some("b"))
        .await
        .expect("harmless");
    assert_eq!((refused.released.len(), refused.unallocated.len()), (0, 1));
    let released = ipam
        .release_ips(&[ip, ip], Some("a"))
        .await
        .expect("released");
    assert_eq!(released.released, [ip]);
    let again = ipam.release_ips(&[ip], Some("a")).await.expect("harmless");
    assert_eq!(again.unallocated, [ip]);
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn cooling_addresses_are_not_assigned_even_by_name() {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/30", 30);
    cluster.configure(|spec| spec.ip_cooldown_seconds = Some(30));
    let ipam = cluster.plain("n1").await;
    for name in ["a", "b", "c"] {
        one(&ipam, name).await;
    }
    ipam.release_by_handle("a").await.expect("released");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let error = ipam
        .assign_specific(specific("10.0.0.0", "x"))
        .await
        .expect_err("cooling");
    assert_eq!(error.kind, AssignErrorKind::Cooling);
    assert!(error.is_retriable());
    assert_eq!(
        ips(&ipam.auto_assign_partial(pods("y", 2)).await),
        ["10.0.0.3"]
    );
    ipam.release_by_handle("y").await.expect("released");
    tokio::time::sleep(Duration::from_secs(40)).await;
    let assigned = ipam.auto_assign(pods("z", 2)).await.expect("assigned");
    assert_eq!(ips(&assigned), ["10.0.0.0", "10.0.0.3"]);
    assert_eq!(
        cluster
            .block("10-0-0-0-30")
            .await
            .object()
            .spec
            .attributes
            .len(),
        3
    );
    cluster.check_handles().await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_address_is_kept_by_its_handle() {
    let cluster = Cluster::with_main();
    let ipam = cluster.agent("n1", Settings::default()).await;
    let handle = crate::names::tunnel_handle("ipip", "n1");
    let request = AssignRequest {
        usage: AllowedUse::Tunnel,
        ..AssignRequest::workload(&handle, 1, 0)
    }
    .attr("type", "ipipTunnelAddress");
    let first = ipam.auto_assign(request.clone()).await.expect("assigned");
    let again = ipam.auto_assign(request).await.expect("assigned");
    assert_eq!(ips(&first), ips(&again));
    assert_eq!(cluster.get::<IPAMHandle>(&handle).await.spec.block.len(), 1);
    ipam.release_by_handle(&handle).await.expect("released");
    eventually("the handle is gone", || async {
        cluster.try_get::<IPAMHandle>(&handle).await.is_none()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn invalid_blocks_are_skipped_and_reported_and_tombstones_count_as_absent() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("worker-1").await;
    one(&ipam, "a").await;
    one(&ipam, "b").await;
    let mut broken: IPAMBlock = cluster.get("10-244-41-192-26").await;
    broken.spec.allocations[3] = Some(7);
    broken.spec.sequence_number = broken.spec.sequence_number.map(|n| n + 1);
    cluster.put(&broken);
    let mut dead: IPAMBlock = broken.clone();
    dead.metadata.name = Some("10-244-232-0-26".into());
    dead.spec = Block::new(
        "10.244.232.0/26".parse().expect("a network"),
        &crate::block::Owner::Host("x".into()),
        Timestamp::now(),
    )
    .object()
    .spec
    .clone();
    dead.spec.deleted = Some(true);
    cluster.put(&dead);
    let fresh = cluster.plain("worker-1").await;
    assert!(
        matches!(&fresh.problems()[..], [IpamProblem::Block { reason, .. }] if reason.contains("allocations[3]"))
    );
    let ip = one(&fresh, "c").await;
    assert!(!ip.starts_with("10.244.41."), "{ip}");
    let kept: IPAMBlock = cluster.get("10-244-41-192-26").await;
    assert_eq!(kept.spec, broken.spec);
}

#[tokio::test(start_paused = true)]
async fn a_specific_address_claims_its_block_and_is_idempotent_by_handle() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("n1").await;
    let first = ipam
        .assign_specific(specific("10.244.7.9", "a"))
        .await
        .expect("assigned");
    assert_eq!(first.block.to_string(), "10.244.7.0/26");
    assert_eq!(
        ipam.assign_specific(specific("10.244.7.9", "a"))
            .await
            .expect("again"),
        first
    );
    let error = ipam
        .assign_specific(specific("10.244.7.9", "b"))
        .await
        .expect_err("held");
    assert_eq!(error.kind, AssignErrorKind::InUse);
    assert!(error.message.contains("already assigned"));
    cluster.check_handles().await;
    assert_eq!(cluster.check_affinities().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_locked_datastore_stops_assignments_and_queues_releases() {
    let cluster = Cluster::with_main();
    let ipam = cluster.plain("n1").await;
    one(&ipam, "a").await;
    let lock = |ready| {
        let spec = margay_crds::ClusterInformationSpec {
            datastore_ready: Some(ready),
            ..margay_crds::ClusterInformationSpec::default()
        };
        cluster.put(&margay_crds::ClusterInformation::new("default", spec));
    };
    lock(false);
    ipam.refresh().await.expect("read");
    let error = ipam.auto_assign(pod("b")).await.expect_err("locked");
    assert_eq!(error.kind, AssignErrorKind::Locked);
    let before = cluster.store.count(Verb::Update, Kind::Block);
    assert_eq!(ipam.release_by_handle("a").await.expect("queued").len(), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.store.count(Verb::Update, Kind::Block), before);
    lock(true);
    eventually("the release is written", || async {
        !cluster.held().await.values().any(|handle| handle == "a")
    })
    .await;
}
