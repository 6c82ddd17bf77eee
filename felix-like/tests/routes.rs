//! Routes against a real kernel: pods, own blocks, BGP, and what happens to them when links or other programs act.

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
