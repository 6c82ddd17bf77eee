//! Routes against a real kernel: pods, own blocks, BGP, and what happens to them when links or other programs act.
#![allow(clippy::unwrap_used)]

mod support;

use margay_felix::kernel::rtnl::{RouteType, Scope};
use margay_felix::{BgpNextHop, BgpRoute, EndpointId};
use support::{
    Node, PATIENCE, REPAIR, all_in_sync, block_on, endpoint, eventually, own_block, pool, run,
};

fn bgp(prefix: &str, next_hops: &[&str], local_pref: u32) -> BgpRoute {
    let next_hop = |a: &&str| BgpNextHop {
        address: a.parse().unwrap(),
        interface: None,
    };
    BgpRoute {
        prefix: prefix.parse().unwrap(),
        next_hops: next_hops.iter().map(next_hop).collect(),
        local_pref,
    }
}

#[test]
fn local_pods_and_own_blocks_get_their_routes() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.2");
    let _b = node.raw_pod("caliB", "10.65.0.3");
    let dataplane = node.dataplane();
    dataplane.set_own_blocks(vec![own_block("10.65.0.0/26"), own_block("10.65.9.9/32")]);
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2", "fd00:65::2"]));
    dataplane.upsert_endpoint(endpoint("b", "caliB", &["10.65.0.3"]));
    for name in ["a", "b"] {
        block_on(dataplane.wait_routed(&EndpointId(name.into()), PATIENCE)).unwrap();
    }
    let (index, found) = (node.index("caliA"), node.routes_to("10.65.0.2/32"));
    assert_eq!(found.len(), 1);
    let (key, spec) = &found[0];
    assert_eq!(
        (key.metric, spec.protocol, spec.scope),
        (1024, 3, Scope::Link)
    );
    assert_eq!(spec.hops[0].link, index);
    assert_eq!(node.routes_to("fd00:65::2/128")[0].0.metric, 1024);
    eventually("blackhole of the own block", PATIENCE, || {
        node.has_route("10.65.0.0/26")
    });
    let (key, spec) = node.routes_to("10.65.0.0/26").remove(0);
    assert_eq!(
        (key.metric, spec.protocol, spec.kind),
        (0, 80, RouteType::Blackhole)
    );
    assert!(
        !node.has_route("10.65.9.9/32"),
        "a single address has no blackhole"
    );
    let neighbours = run(&node.netns, "ip neigh show dev caliA nud permanent");
    assert!(
        neighbours.contains("10.65.0.2 lladdr 0a:00:00:00:00:02"),
        "{neighbours}"
    );
}

#[test]
fn a_deleted_pod_route_is_back_within_a_second_and_the_record_names_the_culprit() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.2");
    let dataplane = node.dataplane();
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    run(&node.netns, "ip route del 10.65.0.2/32");
    eventually("the route again", REPAIR, || node.has_route("10.65.0.2/32"));
    eventually("the record", REPAIR, || {
        dataplane
            .drift()
            .first()
            .is_some_and(|r| r.repaired_at.is_some())
    });
    let record = dataplane.drift().remove(0);
    assert_eq!((record.subsystem, record.kind), ("route", "missing"));
    assert_eq!(record.provenance, "Pod/default/a");
    assert!(
        record.by.starts_with("pid ") || record.by.starts_with("port "),
        "{}",
        record.by
    );
}

#[test]
fn a_pod_route_is_back_after_its_interface_went_down_and_up() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.2");
    let dataplane = node.dataplane();
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2", "fd00:65::2"]));
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    run(&node.netns, "ip link set caliA down");
    eventually("the kernel drops the route", PATIENCE, || {
        !node.has_route("10.65.0.2/32")
    });
    run(&node.netns, "ip link set caliA up");
    eventually("the IPv4 route again", REPAIR, || {
        node.has_route("10.65.0.2/32")
    });
    eventually("the IPv6 route again", REPAIR, || {
        node.has_route("fd00:65::2/128")
    });
}

#[test]
fn bgp_routes_resolve_their_next_hops_and_survive_an_uplink_flap() {
    let mut node = Node::new();
    let dataplane = node.dataplane();
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    all_in_sync(&dataplane);
    dataplane.apply_bgp(vec![
        bgp("10.65.1.0/26", &["172.17.0.6"], 2_147_482_623),
        bgp("10.65.2.0/26", &["172.17.0.6", "172.17.0.7"], 100),
        bgp("10.65.3.0/26", &["10.9.0.3"], 100),
        bgp("fd00:65:1::/122", &["fd17::6", "fd17::7"], 100),
    ]);
    let eth0 = node.index("eth0");
    eventually("all four routes", PATIENCE, || {
        [
            "10.65.1.0/26",
            "10.65.2.0/26",
            "10.65.3.0/26",
            "fd00:65:1::/122",
        ]
        .iter()
        .all(|p| node.has_route(p))
    });
    let check = |node: &mut Node| {
        let (key, spec) = node.routes_to("10.65.1.0/26").remove(0);
        assert_eq!((key.metric, spec.protocol), (1024, 12));
        assert_eq!(spec.hops[0].gateway, Some("172.17.0.6".parse().unwrap()));
        assert_eq!(spec.hops[0].link, eth0);
        let (key, spec) = node.routes_to("10.65.2.0/26").remove(0);
        assert_eq!((key.metric, spec.hops.len()), (2_147_483_547, 2));
        let spec = node.routes_to("10.65.3.0/26").remove(0).1;
        assert_eq!(
            spec.hops[0].gateway,
            Some("172.17.0.1".parse().unwrap()),
            "through the router"
        );
        assert_eq!(node.routes_to("fd00:65:1::/122")[0].1.hops.len(), 2);
    };
    check(&mut node);
    run(&node.netns, "ip link set eth0 down");
    eventually("the kernel drops them", PATIENCE, || {
        !node.has_route("10.65.1.0/26")
    });
    run(&node.netns, "ip link set eth0 up");
    run(&node.netns, "ip addr replace fd17::5/64 dev eth0 nodad");
    run(&node.netns, "ip route replace default via 172.17.0.1");
    eventually("all four routes again", REPAIR, || {
        [
            "10.65.1.0/26",
            "10.65.2.0/26",
            "10.65.3.0/26",
            "fd00:65:1::/122",
        ]
        .iter()
        .all(|p| node.has_route(p))
    });
    check(&mut node);
    dataplane.apply_bgp(vec![bgp("10.65.2.0/26", &["172.17.0.7"], 100)]);
    eventually("one leg", PATIENCE, || {
        node.routes_to("10.65.2.0/26")
            .first()
            .is_some_and(|(_, s)| s.hops.len() == 1)
    });
    dataplane.apply_bgp(vec![
        bgp("10.65.1.0/26", &[], 0),
        bgp("fd00:65:1::/122", &["fd17::7"], 100),
    ]);
    eventually("withdrawn", PATIENCE, || !node.has_route("10.65.1.0/26"));
    eventually("one IPv6 leg", PATIENCE, || {
        let found = node.routes_to("fd00:65:1::/122");
        found.len() == 1 && found[0].1.hops.len() == 1
    });
}

#[test]
fn a_borrowed_address_elsewhere_beats_the_blackhole_and_one_of_theirs_lives_here() {
    let mut node = Node::new();
    let _c = node.raw_pod("caliC", "10.65.1.9");
    let dataplane = node.dataplane();
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    all_in_sync(&dataplane);
    dataplane.set_own_blocks(vec![own_block("10.65.0.0/26")]);
    dataplane.upsert_endpoint(endpoint("c", "caliC", &["10.65.1.9"]));
    dataplane.apply_bgp(vec![
        bgp("10.65.0.7/32", &["172.17.0.6"], 100),
        bgp("10.65.1.0/26", &["172.17.0.6"], 100),
    ]);
    eventually("all routes", PATIENCE, || {
        [
            "10.65.0.7/32",
            "10.65.0.0/26",
            "10.65.1.9/32",
            "10.65.1.0/26",
        ]
        .iter()
        .all(|p| node.has_route(p))
    });
    let way = |address: &str| run(&node.netns, &format!("ip route get {address}"));
    assert!(way("10.65.0.7").contains("via 172.17.0.6 dev eth0"));
    assert!(way("10.65.1.9").contains("dev caliC"));
    assert!(!run(&node.netns, "ip route show type blackhole").contains("10.65.1.9"));
}

#[test]
fn an_own_block_wins_over_the_same_prefix_learned_over_bgp() {
    let mut node = Node::new();
    let dataplane = node.dataplane();
    dataplane.set_pools(vec![pool("fd00:65::/64", false)]);
    all_in_sync(&dataplane);
    // LOCAL_PREF 2147482623 gives metric 1024, which is also what IPv6 calls metric 0.
    dataplane.apply_bgp(vec![bgp("fd00:65::/122", &["fd17::6"], 2_147_482_623)]);
    eventually("the learned route", PATIENCE, || {
        node.has_route("fd00:65::/122")
    });
    dataplane.set_own_blocks(vec![own_block("fd00:65::/122")]);
    eventually("the blackhole instead", PATIENCE, || {
        let found = node.routes_to("fd00:65::/122");
        found.len() == 1 && found[0].1.kind == RouteType::Blackhole
    });
    dataplane.set_own_blocks(Vec::new());
    eventually("the learned route again", PATIENCE, || {
        let found = node.routes_to("fd00:65::/122");
        found.len() == 1 && found[0].1.protocol == 12
    });
}

#[test]
fn a_cni_plugins_metric_zero_route_is_replaced_without_a_gap() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.2");
    run(
        &node.netns,
        "ip route add 10.65.0.2/32 dev caliA scope link",
    );
    let dataplane = node.dataplane();
    dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2"]));
    eventually("only ours", PATIENCE, || {
        let found = node.routes_to("10.65.0.2/32");
        assert!(!found.is_empty(), "a gap");
        found.len() == 1 && found[0].0.metric == 1024
    });
}

#[test]
fn of_two_interfaces_with_one_address_the_newer_gets_the_route() {
    let mut node = Node::new();
    let _x = node.raw_pod("caliX", "10.65.0.2");
    let _y = node.raw_pod("caliY", "10.65.0.2");
    let dataplane = node.dataplane();
    dataplane.upsert_endpoint(endpoint("y", "caliY", &["10.65.0.2"]));
    dataplane.upsert_endpoint(endpoint("x", "caliX", &["10.65.0.2"]));
    let (x, y) = (node.index("caliX"), node.index("caliY"));
    let link = |node: &mut Node| {
        node.routes_to("10.65.0.2/32")
            .first()
            .map(|r| r.1.hops[0].link)
    };
    eventually("route to caliY", PATIENCE, || link(&mut node) == Some(y));
    dataplane.remove_endpoint(EndpointId("y".into()));
    eventually("route to caliX", PATIENCE, || link(&mut node) == Some(x));
    dataplane.remove_endpoint(EndpointId("x".into()));
    eventually("no route", PATIENCE, || link(&mut node).is_none());
}

#[test]
fn an_inactive_endpoint_has_no_route() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.2");
    let dataplane = node.dataplane();
    let mut desired = endpoint("a", "caliA", &["10.65.0.2"]);
    dataplane.upsert_endpoint(desired.clone());
    block_on(dataplane.wait_routed(&desired.id, PATIENCE)).unwrap();
    desired.active = false;
    dataplane.upsert_endpoint(desired.clone());
    eventually("no route", PATIENCE, || !node.has_route("10.65.0.2/32"));
    (desired.active, desired.elevated) = (true, true);
    dataplane.upsert_endpoint(desired);
    eventually("the elevated one", PATIENCE, || {
        node.routes_to("10.65.0.2/32")
            .first()
            .is_some_and(|r| r.0.metric == 512)
    });
}

#[test]
fn foreign_routes_stay_and_leftovers_of_ours_go_only_when_their_source_is_complete() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.8");
    for route in [
        "10.65.5.0/26 via 172.17.0.9 dev eth0 proto 80",
        "10.65.6.0/26 via 172.17.0.9 dev eth0 proto static",
        "10.65.7.0/26 via 172.17.0.9 dev eth0 proto bird metric 32",
        "192.0.2.0/24 via 172.17.0.9 dev eth0 proto bird metric 32",
        "198.51.100.0/24 via 172.17.0.9 dev eth0 proto bird metric 2147483547",
        "203.0.113.0/24 via 172.17.0.9 dev eth0 proto bird metric 32",
        "blackhole 10.65.3.0/26 proto 80",
        "blackhole 10.65.4.0/26 proto static",
        "10.65.0.8 dev caliA proto static",
    ] {
        run(&node.netns, &format!("ip route add {route}"));
    }
    let dataplane = node.dataplane_with(|config| {
        config.foreign_route_grace = std::time::Duration::from_millis(200);
        config.restart_prefixes = vec!["203.0.113.0/24".parse().unwrap()];
    });
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    let seq = dataplane.in_sync(margay_felix::Source::Pools);
    block_on(dataplane.wait_committed(seq, PATIENCE)).unwrap();
    let all = [
        "10.65.5.0/26",
        "10.65.6.0/26",
        "10.65.7.0/26",
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "10.65.3.0/26",
        "10.65.4.0/26",
        "10.65.0.8/32",
    ];
    let left =
        |node: &mut Node| -> Vec<&str> { all.into_iter().filter(|p| node.has_route(p)).collect() };
    assert_eq!(left(&mut node), all, "no source but the pools is complete");
    all_in_sync(&dataplane);
    let stay = ["10.65.6.0/26", "192.0.2.0/24", "10.65.4.0/26"];
    eventually("only foreign routes", PATIENCE, || left(&mut node) == stay);
}

#[test]
fn a_restart_changes_nothing_in_the_kernel() {
    let mut node = Node::new();
    let _a = node.raw_pod("caliA", "10.65.0.2");
    let feed = |dataplane: &margay_felix::Dataplane| {
        dataplane.set_pools(vec![
            pool("10.65.0.0/16", true),
            pool("fd00:65::/64", false),
        ]);
        dataplane.set_own_blocks(vec![own_block("10.65.0.0/26"), own_block("fd00:65::/122")]);
        dataplane.upsert_endpoint(endpoint("a", "caliA", &["10.65.0.2", "fd00:65::2"]));
        dataplane.apply_bgp(vec![
            bgp("10.65.1.0/26", &["172.17.0.6", "172.17.0.7"], 100),
            bgp("fd00:65:1::/122", &["fd17::6"], 100),
        ]);
        all_in_sync(dataplane);
        block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
        eventually("nothing pending", PATIENCE, || {
            let status = block_on(dataplane.status()).unwrap();
            status.tables.values().all(|t| t.pending == 0) && status.tables["routes"].desired == 6
        });
    };
    let first = node.dataplane();
    feed(&first);
    first.stop();
    assert!(node.has_route("10.65.1.0/26") && node.has_route("10.65.0.2/32"));
    let before = run(&node.netns, "ip route show table all");
    // Until the old socket is closed the tables are still owned.
    eventually("the thread ends", PATIENCE, || {
        block_on(first.status()).is_err()
    });
    let second = node.dataplane();
    feed(&second);
    assert_eq!(run(&node.netns, "ip route show table all"), before);
    // The two tables are adopted; nothing else is written.
    assert_eq!(block_on(second.status()).unwrap().writes, 2);
    assert!(second.drift().is_empty());
}

#[test]
fn nothing_is_written_while_no_source_has_delivered() {
    let mut node = Node::new();
    run(&node.netns, "ip route add blackhole 10.65.3.0/26 proto 80");
    let dataplane = node.dataplane();
    let status = block_on(dataplane.status()).unwrap();
    assert_eq!((status.writes, status.ready), (0, false));
    assert!(node.has_route("10.65.3.0/26"));
    assert_eq!(node.sysctl("net/ipv4/ip_forward"), "0");
    let seq = dataplane.set_own_blocks(Vec::new());
    let limit = std::time::Duration::from_millis(100);
    assert!(
        block_on(dataplane.wait_committed(seq, limit)).is_err(),
        "no pools, no commit"
    );
}

#[test]
fn a_learned_route_leaves_somebody_elses_of_the_same_metric_alone_until_it_goes() {
    let mut node = Node::new();
    let dataplane = node.dataplane();
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    all_in_sync(&dataplane);
    run(
        &node.netns,
        "ip route add 192.0.2.0/24 via 172.17.0.9 proto static metric 1024",
    );
    dataplane.apply_bgp(vec![
        bgp("192.0.2.0/24", &["172.17.0.6"], 2_147_482_623),
        bgp("198.51.100.0/24", &["172.17.0.6"], 2_147_482_623),
    ]);
    eventually("the other learned route", PATIENCE, || {
        node.has_route("198.51.100.0/24")
    });
    let found = node.routes_to("192.0.2.0/24");
    assert_eq!((found.len(), found[0].1.protocol), (1, 4));
    let mut problems = dataplane.problems();
    let all = block_on(problems.wait_for(|all| !all.is_empty()))
        .unwrap()
        .clone();
    assert!(all[0].message.contains("not ours"), "{all:?}");
    run(&node.netns, "ip route del 192.0.2.0/24 proto static");
    eventually("ours", REPAIR, || {
        node.routes_to("192.0.2.0/24")
            .first()
            .is_some_and(|r| r.1.protocol == 12)
    });
    // Whoever replaces ours later is the one who is wrong.
    run(
        &node.netns,
        "ip route replace 192.0.2.0/24 via 172.17.0.9 proto static metric 1024",
    );
    eventually("ours again", REPAIR, || {
        node.routes_to("192.0.2.0/24")
            .first()
            .is_some_and(|r| r.1.protocol == 12)
    });
}
