//! Wiring a pod with the real kernel.
#![allow(clippy::unwrap_used)]

mod support;

use margay_felix::EndpointId;
use margay_felix::kernel::netns::Netns;
use margay_felix::kernel::rtnl::Rtnl;
use margay_felix::wire::{
    HOST_MAC, PodWiring, Unwired, Unwiring, WireError, check, unwire, wire_pod,
};
use support::{
    Node, PATIENCE, all_in_sync, block_on, connect, endpoint, eventually, own_block, run, try_run,
};

fn wiring(node: &Node, pod: &Netns, host_interface: &str, addresses: &[&str]) -> PodWiring {
    PodWiring {
        host: node.netns.clone(),
        pod: pod.clone(),
        host_interface: host_interface.into(),
        pod_interface: "eth0".into(),
        alias: format!("margay:cid-{host_interface}:eth0"),
        superseded: Vec::new(),
        mtu: 1440,
        pod_mac: None,
        queues: 1,
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        routes: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        pod_forwarding: false,
    }
}

#[test]
fn two_wired_pods_reach_each_other_and_the_node_over_both_families() {
    let node = Node::new();
    let dataplane = node.dataplane();
    all_in_sync(&dataplane);
    dataplane.set_own_blocks(vec![own_block("10.65.0.0/26"), own_block("fd00:65::/122")]);
    let pods = [
        ("a", "cali00000000001", ["10.65.0.2", "fd00:65::2"]),
        ("b", "cali00000000002", ["10.65.0.3", "fd00:65::3"]),
    ];
    let mut namespaces = Vec::new();
    for (name, interface, addresses) in &pods {
        let pod = Netns::create().unwrap();
        let wiring = wiring(&node, &pod, interface, addresses);
        let mut desired = endpoint(name, interface, addresses);
        desired.mac = None;
        let seq = dataplane.upsert_endpoint(desired.clone());
        block_on(dataplane.wait_committed(seq, PATIENCE)).unwrap();
        let wired = wire_pod(&wiring).unwrap();
        desired.mac = Some(wired.pod_mac);
        dataplane.upsert_endpoint(desired);
        block_on(dataplane.wait_routed(&EndpointId((*name).into()), PATIENCE)).unwrap();
        assert_eq!(check(&wiring, &wired).unwrap(), Vec::<String>::new());
        namespaces.push((pod, wiring, wired));
    }
    let (pod, wiring, wired) = &namespaces[0];
    run(&node.fabric, "ip route replace 10.65.0.0/26 via 172.17.0.5");
    let other = &namespaces[1].0;
    for (target, at) in [
        ("10.65.0.3", other),
        ("172.17.0.5", &node.netns),
        ("172.17.0.1", &node.fabric),
        ("fd00:65::3", other),
        ("fd17::5", &node.netns),
    ] {
        let seen = connect(pod, at, target).unwrap_or_else(|e| panic!("{target}: {e}"));
        assert!(
            ["10.65.0.2", "fd00:65::2"].contains(&seen.to_string().as_str()),
            "{seen}"
        );
    }
    let routes = run(pod, "ip route show");
    assert!(
        routes.contains("default via 169.254.1.1 dev eth0"),
        "{routes}"
    );
    assert!(
        routes.contains("169.254.1.1 dev eth0 scope link"),
        "{routes}"
    );
    let link = run(&node.netns, "ip -d link show cali00000000001");
    assert!(
        link.contains("ee:ee:ee:ee:ee:ee") && link.contains("mtu 1440"),
        "{link}"
    );
    for (key, value) in [
        ("net/ipv4/conf/cali00000000001/proxy_arp", "1"),
        ("net/ipv4/conf/cali00000000001/route_localnet", "1"),
        ("net/ipv4/neigh/cali00000000001/proxy_delay", "0"),
        ("net/ipv6/conf/cali00000000001/accept_ra", "0"),
        ("net/ipv6/conf/cali00000000001/proxy_ndp", "1"),
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv6/conf/all/forwarding", "1"),
    ] {
        assert_eq!(node.sysctl(key), value, "{key}");
    }

    run(pod, "ip route del default");
    run(pod, "ip neigh del 169.254.1.1 dev eth0");
    let findings = check(wiring, wired).unwrap();
    assert_eq!(findings.len(), 2, "{findings:?}");

    let mut which = Unwiring {
        host: node.netns.clone(),
        host_interface: wiring.host_interface.clone(),
        host_index: wired.host_index,
        alias: "margay:another:eth0".into(),
    };
    assert_eq!(unwire(&which).unwrap(), Unwired::NotOurs);
    which.alias = wiring.alias.clone();
    assert_eq!(unwire(&which).unwrap(), Unwired::Removed);
    assert_eq!(unwire(&which).unwrap(), Unwired::Absent);
    assert!(
        !try_run(pod, "ip link show eth0").0,
        "the pod end goes along"
    );
}

#[test]
fn names_in_use_are_refused_and_leave_nothing_behind() {
    let mut node = Node::new();
    let pod = Netns::create().unwrap();
    let first = wiring(&node, &pod, "cali00000000001", &["10.65.0.2"]);
    wire_pod(&first).unwrap();

    // The pod has an eth0 already.
    let second = wiring(&node, &pod, "cali00000000002", &["10.65.0.3"]);
    assert!(
        matches!(wire_pod(&second), Err(WireError::PodInterfaceExists(name)) if name == "eth0")
    );
    assert!(node.rtnl.link_by_name("cali00000000002").unwrap().is_none());

    // The host name belongs to another attachment, unless that one is superseded.
    let other = Netns::create().unwrap();
    let mut third = wiring(&node, &other, "cali00000000001", &["10.65.0.4"]);
    third.alias = "margay:new:eth0".into();
    assert!(matches!(
        wire_pod(&third),
        Err(WireError::HostInterfaceTaken { .. })
    ));
    third.superseded = vec![first.alias.clone()];
    let wired = wire_pod(&third).unwrap();
    assert_eq!(wired.host_mac, HOST_MAC);
    assert_eq!(
        node.rtnl
            .link_by_name("cali00000000001")
            .unwrap()
            .unwrap()
            .index,
        wired.host_index
    );

    // A device that is no pod interface is never removed.
    node.rtnl.create_bridge("cali00000000003").unwrap();
    let fourth = wiring(
        &node,
        &Netns::create().unwrap(),
        "cali00000000003",
        &["10.65.0.5"],
    );
    assert!(matches!(
        wire_pod(&fourth),
        Err(WireError::HostInterfaceTaken { .. })
    ));

    // An address that cannot be added rolls the pair back.
    let last = Netns::create().unwrap();
    let mut fifth = wiring(&node, &last, "cali00000000005", &["10.65.0.6"]);
    fifth.addresses.push("::1".parse().unwrap());
    assert!(matches!(wire_pod(&fifth), Err(WireError::Kernel { .. })));
    assert!(node.rtnl.link_by_name("cali00000000005").unwrap().is_none());
    let mut inside = Rtnl::open_in(&last).unwrap();
    assert!(inside.link_by_name("eth0").unwrap().is_none());

    let mut sixth = wiring(&node, &last, "cali00000000006", &["10.65.0.7"]);
    sixth.pod_mac = Some("01:00:00:00:00:01".parse().unwrap());
    assert!(matches!(wire_pod(&sixth), Err(WireError::InvalidMac(_))));
}

#[test]
fn a_setting_changed_by_hand_is_put_back_within_a_second() {
    let node = Node::new();
    let dataplane = node.dataplane();
    all_in_sync(&dataplane);
    let pod = Netns::create().unwrap();
    let wiring = wiring(&node, &pod, "cali00000000001", &["10.65.0.2"]);
    dataplane.upsert_endpoint(endpoint("a", "cali00000000001", &["10.65.0.2"]));
    wire_pod(&wiring).unwrap();
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    let key = "net/ipv4/conf/cali00000000001/proxy_arp";
    node.netns
        .run(move || std::fs::write(format!("/proc/sys/{key}"), "0").unwrap())
        .unwrap();
    eventually("proxy_arp on again", support::REPAIR, || {
        node.sysctl(key) == "1"
    });
    eventually("the record", PATIENCE, || {
        dataplane
            .drift()
            .iter()
            .any(|r| r.subsystem == "sysctl" && r.item.contains("proxy_arp"))
    });
}

#[test]
fn the_host_ends_addresses_are_put_back_within_a_second() {
    let mut node = Node::new();
    let dataplane = node.dataplane();
    all_in_sync(&dataplane);
    let pod = Netns::create().unwrap();
    let wiring = wiring(&node, &pod, "cali00000000001", &["10.65.0.2", "fd00:65::2"]);
    dataplane.upsert_endpoint(endpoint(
        "a",
        "cali00000000001",
        &["10.65.0.2", "fd00:65::2"],
    ));
    wire_pod(&wiring).unwrap();
    block_on(dataplane.wait_routed(&EndpointId("a".into()), PATIENCE)).unwrap();
    run(
        &node.netns,
        "ip addr del fe80::ecee:eeff:feee:eeee/64 dev cali00000000001",
    );
    eventually("the link-local address", support::REPAIR, || {
        run(&node.netns, "ip addr show dev cali00000000001")
            .contains("fe80::ecee:eeff:feee:eeee/64")
    });
    run(
        &node.netns,
        "ip link set cali00000000001 address 02:00:00:00:00:01",
    );
    eventually("the Ethernet address", support::REPAIR, || {
        node.rtnl
            .link_by_name("cali00000000001")
            .unwrap()
            .unwrap()
            .mac
            == Some(HOST_MAC)
    });
    let records = || {
        let all = dataplane
            .drift()
            .into_iter()
            .filter(|r| r.subsystem == "link");
        all.map(|r| format!("{} {}", r.kind, r.expected))
            .collect::<Vec<_>>()
    };
    let expected = [
        "missing fe80::ecee:eeff:feee:eeee/64",
        "changed ee:ee:ee:ee:ee:ee",
    ];
    eventually("both records", PATIENCE, || records().len() >= 2);
    assert_eq!(records(), expected);
    assert!(connect(&pod, &node.netns, "fd17::5").is_ok());
}
