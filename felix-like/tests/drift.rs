//! Foreign changes and how they are put right.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use margay_felix::kernel::netns::Netns;
use margay_felix::kernel::rtnl::{Hop, RouteKey, RouteSpec, Rtnl, Scope};
use margay_felix::{Dataplane, EndpointId};
use support::{
    Node, PATIENCE, REPAIR, all_in_sync, block_on, endpoint, eventually, own_block, pool, run,
};

fn node_with_pod() -> (Node, Dataplane, Netns) {
    let mut node = Node::new();
    let pod = node.raw_pod("caliA", "10.65.0.2");
    let dataplane = node.dataplane();
    // Translation, unused by most of these tests, switches connection tracking on.
    dataplane.set_pools(vec![pool("10.65.0.0/16", true)]);
    dataplane.set_own_blocks(vec![own_block("10.65.0.0/26")]);
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    all_in_sync(&dataplane);
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    eventually("the blackhole", PATIENCE, || node.has_route("10.65.0.0/26"));
    (node, dataplane, pod)
}

#[test]
fn replaced_routes_and_neighbours_are_put_right_within_a_second() {
    let (mut node, dataplane, _pod) = node_with_pod();
    let before = node.routes_to("10.65.0.2/32");
    run(
        &node.netns,
        "ip route replace 10.65.0.2/32 via 172.17.0.9 metric 1024",
    );
    eventually("the pod's route", REPAIR, || {
        node.routes_to("10.65.0.2/32") == before
    });
    run(
        &node.netns,
        "ip route replace blackhole 10.65.0.0/26 proto static",
    );
    eventually("the blackhole", REPAIR, || {
        node.routes_to("10.65.0.0/26")[0].1.protocol == 80
    });
    run(
        &node.netns,
        "ip neigh replace 10.65.0.2 lladdr 02:00:00:00:00:01 dev caliA nud permanent",
    );
    let entry = |node: &Node| {
        run(
            &node.netns,
            "ip neigh show 10.65.0.2 dev caliA nud permanent",
        )
    };
    eventually("the entry", REPAIR, || {
        entry(&node).contains("0a:00:00:00:00:02")
    });
    run(&node.netns, "ip neigh del 10.65.0.2 dev caliA");
    eventually("the entry again", REPAIR, || {
        entry(&node).contains("0a:00:00:00:00:02")
    });
    run(&node.netns, "ip neigh flush dev caliA");
    eventually("after a flush", REPAIR, || {
        entry(&node).contains("0a:00:00:00:00:02")
    });
    eventually("finished records", PATIENCE, || {
        let records = dataplane.drift();
        records.len() >= 4 && records.iter().all(|r| r.repaired_at.is_some())
    });
    let records = dataplane.drift();
    assert_eq!(
        (records[0].kind, records[0].subsystem),
        ("changed", "route")
    );
    assert!(
        records[0].found.contains("172.17.0.9"),
        "{}",
        records[0].found
    );
    assert_eq!(records[1].provenance, "IPAMBlock/10.65.0.0/26");
}

#[test]
fn routes_come_back_when_the_uplinks_address_is_flushed_and_set_again() {
    let (mut node, dataplane, _pod) = node_with_pod();
    dataplane.apply_bgp(vec![margay_felix::BgpRoute {
        prefix: "10.65.1.0/26".parse().unwrap(),
        next_hops: vec![margay_felix::BgpNextHop {
            address: "172.17.0.6".parse().unwrap(),
            interface: None,
        }],
        local_pref: 100,
    }]);
    eventually("the learned route", PATIENCE, || {
        node.has_route("10.65.1.0/26")
    });
    run(&node.netns, "ip addr flush dev eth0 scope global");
    eventually("the kernel drops it", PATIENCE, || {
        !node.has_route("10.65.1.0/26")
    });
    run(&node.netns, "ip addr add 172.17.0.5/16 dev eth0");
    eventually("the learned route again", REPAIR, || {
        node.has_route("10.65.1.0/26")
    });
}

#[test]
fn a_burst_that_overflows_the_event_buffer_ends_in_the_desired_state() {
    let mut node = Node::new();
    let _pod = node.raw_pod("caliA", "10.65.0.2");
    let dataplane = node.dataplane_with(|config| config.monitor_buffer = 64 << 10);
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    all_in_sync(&dataplane);
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    // 20 000 routes of somebody else, and in their midst the removal of ours.
    let mut other = Rtnl::open_in(&node.netns).unwrap();
    let hop = Hop::via(node.index("eth0"), "172.17.0.9".parse().unwrap(), false);
    let spec = RouteSpec::unicast(4, Scope::Universe, vec![hop]);
    let key = |i: u32| {
        let address = std::net::Ipv4Addr::from(0x0b00_0000 + (i << 8));
        RouteKey::new(ipnet::IpNet::new(address.into(), 24).unwrap(), 0)
    };
    let mut operations: Vec<_> = (0..20_000).map(|i| spec.replace(&key(i))).collect();
    let (ours, our_spec) = node.routes_to("10.65.0.2/32").remove(0);
    operations.insert(10_000, our_spec.delete(&ours));
    assert!(other.batch(&operations).iter().all(Result::is_ok));
    eventually("our route", PATIENCE, || node.has_route("10.65.0.2/32"));
    let foreign = node.rtnl.routes(None).unwrap();
    assert_eq!(
        foreign.iter().filter(|(_, s)| s.protocol == 4).count(),
        20_000
    );
}

#[test]
fn a_fight_is_damped_and_reported() {
    let (mut node, dataplane, _pod) = node_with_pod();
    let mut other = Rtnl::open_in(&node.netns).unwrap();
    let (key, spec) = node.routes_to("10.65.0.2/32").remove(0);
    let start = Instant::now();
    let mut deleted = 0;
    while start.elapsed() < Duration::from_secs(2) {
        deleted += usize::from(other.batch(&[spec.delete(&key)])[0].is_ok());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(
        (5..=7).contains(&deleted),
        "{deleted} repairs in two seconds"
    );
    assert_eq!(block_on(dataplane.status()).unwrap().drift_contended, 1);
    let mut problems = dataplane.problems();
    let found = block_on(problems.wait_for(|all| !all.is_empty()))
        .unwrap()
        .clone();
    assert_eq!(found[0].kind.reason(), "DriftContended");
    assert_eq!(found[0].subject, "Pod/default/a");
    // Others are not held up.
    run(&node.netns, "ip route del blackhole 10.65.0.0/26");
    eventually("the blackhole", REPAIR, || node.has_route("10.65.0.0/26"));
    // It comes back at the damped pace once nobody removes it.
    eventually("the pod's route", Duration::from_secs(6), || {
        node.has_route("10.65.0.2/32")
    });
}

#[test]
fn repairs_can_be_paused_and_resumed() {
    let (mut node, dataplane, _pod) = node_with_pod();
    dataplane.pause_repairs(true);
    run(&node.netns, "ip route del 10.65.0.2/32");
    eventually("the record", PATIENCE, || dataplane.drift().len() == 1);
    assert!(!node.has_route("10.65.0.2/32"));
    dataplane.pause_repairs(false);
    eventually("the route", REPAIR, || node.has_route("10.65.0.2/32"));
}

#[test]
fn records_are_written_to_a_file_one_object_a_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drift.jsonl");
    let mut node = Node::new();
    let _pod = node.raw_pod("caliA", "10.65.0.2");
    let dataplane = node.dataplane_with(|config| config.drift_log = Some(path.clone()));
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    run(&node.netns, "ip route del 10.65.0.2/32");
    eventually("the line", PATIENCE, || {
        std::fs::read_to_string(&path).is_ok_and(|t| !t.is_empty())
    });
    let text = std::fs::read_to_string(&path).unwrap();
    let record: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(record["subsystem"], "route");
    assert_eq!(record["provenance"], "Pod/default/a");
    assert!(record["repairedAt"].is_object() || record["repairedAt"].is_string());
}

#[test]
fn connections_of_a_removed_pods_address_are_forgotten_and_others_are_not() {
    let (mut node, dataplane, pod) = node_with_pod();
    let other_pod = node.raw_pod("caliB", "10.65.0.3");
    dataplane.upsert_endpoint(endpoint("b", "caliB", &["10.65.0.3"]));
    block_on(dataplane.wait_routed(&EndpointId("b".into()), PATIENCE)).unwrap();
    run(&node.fabric, "ip route add 10.65.0.0/16 via 172.17.0.5");
    for source in [&pod, &other_pod] {
        support::connect(source, &node.fabric, "172.17.0.9").unwrap();
    }
    let mut conntrack = margay_felix::kernel::conntrack::Conntrack::open_in(&node.netns).unwrap();
    let mut sources = move || {
        let mut all: Vec<String> = conntrack
            .flows(false)
            .unwrap()
            .iter()
            .map(|f| f.source.to_string())
            .collect();
        all.sort();
        all
    };
    assert_eq!(sources(), ["10.65.0.2", "10.65.0.3"]);
    dataplane.remove_endpoint(EndpointId("a".into()));
    eventually("only the other pod's", PATIENCE, || {
        sources() == ["10.65.0.3"]
    });
}
