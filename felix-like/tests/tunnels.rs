//! Pools with encapsulation: VXLAN devices with a real kernel, IPIP as far as the kernel has it.
#![allow(clippy::unwrap_used)]

mod support;

use margay_felix::kernel::rtnl::RouteType;
use margay_felix::{
    BgpNextHop, BgpRoute, Dataplane, EncapMode, Feature, LocalNode, PoolView, ProblemKind,
    Provenance, RemoteBlock, RemoteNode, Source,
};
use support::{Node, PATIENCE, REPAIR, all_in_sync, block_on, eventually, pool, run};

fn vxlan_pool(mode: EncapMode) -> PoolView {
    PoolView {
        vxlan: mode,
        ..pool("10.65.0.0/16", true)
    }
}

fn remote_block(cidr: &str, node: &str) -> RemoteBlock {
    RemoteBlock {
        cidr: cidr.parse().unwrap(),
        node: node.into(),
        provenance: Provenance::cluster("IPAMBlock", cidr),
    }
}

fn remote_node(name: &str, address: &str, tunnel: &str) -> RemoteNode {
    RemoteNode {
        name: name.into(),
        addresses: vec![address.parse().unwrap()],
        vxlan_addresses: vec![tunnel.parse().unwrap()],
        ..RemoteNode::default()
    }
}

fn local(cidr: &str) -> LocalNode {
    LocalNode {
        addresses: vec![cidr.parse().unwrap()],
        vxlan_addresses: vec!["10.65.0.1".parse().unwrap()],
        ipip_address: None,
    }
}

fn start(node: &Node, mode: EncapMode) -> Dataplane {
    let dataplane = node.dataplane();
    dataplane.set_local_node(local("172.17.0.5/16"));
    dataplane.set_pools(vec![vxlan_pool(mode)]);
    dataplane.set_remote_nodes(vec![
        remote_node("n2", "172.17.0.6", "10.65.1.1"),
        remote_node("n3", "10.9.0.3", "10.65.2.1"),
    ]);
    dataplane.set_remote_blocks(vec![
        remote_block("10.65.1.0/26", "n2"),
        remote_block("10.65.2.0/26", "n3"),
        remote_block("10.65.9.9/32", "n2"),
    ]);
    all_in_sync(&dataplane);
    dataplane
}

/// The route as `ip route` shows it.
fn shown(node: &Node, prefix: &str) -> String {
    run(&node.netns, &format!("ip route show {prefix}"))
        .trim()
        .to_owned()
}

#[test]
fn with_vxlan_always_blocks_go_through_the_tunnel_with_neighbour_and_forwarding_entries() {
    let mut node = Node::new();
    let dataplane = start(&node, EncapMode::Always);
    eventually("both tunnel routes", PATIENCE, || {
        node.has_route("10.65.1.0/26") && node.has_route("10.65.2.0/26")
    });
    let route = shown(&node, "10.65.1.0/26");
    assert_eq!(
        route,
        "10.65.1.0/26 via 10.65.1.1 dev vxlan.calico onlink mtu 1450"
    );
    let device = run(&node.netns, "ip -d link show vxlan.calico");
    for part in [
        "vxlan id 4096",
        "local 172.17.0.5",
        "dev eth0",
        "dstport 4789",
        "mtu 1450",
    ] {
        assert!(device.contains(part), "{part}: {device}");
    }
    assert!(device.contains("nolearning"), "{device}");
    assert!(run(&node.netns, "ip addr show vxlan.calico").contains("inet 10.65.0.1/32"));
    // A smaller uplink makes a smaller tunnel, and back.
    run(&node.netns, "ip link set eth0 mtu 1400");
    eventually("the smaller route", REPAIR, || {
        shown(&node, "10.65.1.0/26").contains("mtu 1350")
    });
    eventually("the smaller device", REPAIR, || {
        node.rtnl
            .link_by_name("vxlan.calico")
            .unwrap()
            .is_some_and(|l| l.mtu == 1350)
    });
    run(&node.netns, "ip link set eth0 mtu 1500");
    eventually("the old route", REPAIR, || {
        shown(&node, "10.65.1.0/26").contains("mtu 1450")
    });
    eventually("entries of both nodes", PATIENCE, || {
        let status = block_on(dataplane.status()).unwrap();
        status.tables["fdb"].pending == 0 && status.tables["neighbours"].pending == 0
    });
    // SHA-1("n2") begins with these octets.
    let mac = "66:".to_owned() + &sha1_octets("n2");
    let neighbours = run(&node.netns, "ip neigh show dev vxlan.calico");
    assert!(
        neighbours.contains(&format!("10.65.1.1 lladdr {mac} PERMANENT")),
        "{neighbours}"
    );
    let index = node.index("vxlan.calico");
    let fdb = node.rtnl.fdb(index).unwrap();
    let n2 = fdb.iter().find(|e| e.key.mac.to_string() == mac).unwrap();
    assert_eq!(n2.remote.to_string(), "172.17.0.6");
    assert_eq!(fdb.len(), 2);
}

fn sha1_octets(name: &str) -> String {
    let listing = std::process::Command::new("sh")
        .args(["-c", &format!("printf %s {name} | sha1sum")])
        .output()
        .unwrap();
    let digest = String::from_utf8(listing.stdout).unwrap();
    (0..5)
        .map(|i| digest[2 * i..2 * i + 2].to_owned())
        .collect::<Vec<_>>()
        .join(":")
}

#[test]
fn with_cross_subnet_near_nodes_are_reached_directly_until_our_own_subnet_shrinks() {
    let mut node = Node::new();
    let dataplane = start(&node, EncapMode::CrossSubnet);
    eventually("both routes", PATIENCE, || {
        node.has_route("10.65.1.0/26") && node.has_route("10.65.2.0/26")
    });
    assert_eq!(
        shown(&node, "10.65.1.0/26"),
        "10.65.1.0/26 via 172.17.0.6 dev eth0 proto 80 onlink"
    );
    assert!(shown(&node, "10.65.2.0/26").contains("via 10.65.2.1 dev vxlan.calico"));
    // The monitor sees one replacement and no removal: there is always a route.
    let watch = node.netns.clone();
    let (done, stop) = (
        std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)),
        0,
    );
    let flag = std::sync::Arc::clone(&done);
    let watcher = std::thread::spawn(move || {
        let mut rtnl = margay_felix::kernel::rtnl::Rtnl::open_in(&watch).unwrap();
        let mut gaps = stop;
        while !flag.load(std::sync::atomic::Ordering::Relaxed) {
            let wanted = "10.65.1.0/26".parse().unwrap();
            let routes = rtnl.routes(None).unwrap();
            gaps += usize::from(!routes.iter().any(|(k, _)| k.prefix == wanted));
        }
        gaps
    });
    dataplane.set_local_node(local("172.17.0.5/32"));
    eventually("n2 through the tunnel", PATIENCE, || {
        shown(&node, "10.65.1.0/26").contains("via 10.65.1.1 dev vxlan.calico")
    });
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(watcher.join().unwrap(), 0, "an interval without a route");
}

#[test]
fn a_tunnel_device_that_is_flapped_or_deleted_is_whole_again_within_a_second() {
    let mut node = Node::new();
    let dataplane = start(&node, EncapMode::Always);
    let whole = |node: &mut Node| {
        let tunnel = node.rtnl.link_by_name("vxlan.calico").unwrap();
        tunnel.is_some_and(|l| l.is_up())
            && ["10.65.1.0/26", "10.65.2.0/26", "10.65.9.9/32"]
                .iter()
                .all(|p| node.has_route(p))
            && run(&node.netns, "ip neigh show dev vxlan.calico")
                .matches("PERMANENT")
                .count()
                == 2
            && run(&node.netns, "ip addr show vxlan.calico").contains("10.65.0.1/32")
            && {
                let index = node.index("vxlan.calico");
                node.rtnl.fdb(index).unwrap().len() == 2
            }
    };
    eventually("everything", PATIENCE, || whole(&mut node));
    let before = node.rtnl.link_by_name("vxlan.calico").unwrap().unwrap();
    run(&node.netns, "ip link set vxlan.calico down");
    run(&node.netns, "ip link set vxlan.calico up");
    eventually("everything after a flap", REPAIR, || whole(&mut node));
    run(&node.netns, "ip link del vxlan.calico");
    eventually("everything after deletion", REPAIR, || whole(&mut node));
    let after = node.rtnl.link_by_name("vxlan.calico").unwrap().unwrap();
    assert_eq!((after.mac, &after.vxlan), (before.mac, &before.vxlan));
    assert_ne!(after.index, before.index);
    // No pool needs it any more.
    dataplane.set_pools(vec![pool("10.65.0.0/16", false)]);
    eventually("the device is removed", PATIENCE, || {
        node.rtnl.link_by_name("vxlan.calico").unwrap().is_none()
    });
}

#[test]
fn a_kernel_without_ipip_is_reported_on_the_pool_and_nothing_else_suffers() {
    let mut node = Node::new();
    let mut probe = margay_felix::kernel::rtnl::Rtnl::open_in(&node.netns).unwrap();
    let supported = probe
        .create_ipip("tunl0", "0.0.0.0".parse().unwrap())
        .is_ok();
    let dataplane = node.dataplane();
    let ipip = PoolView {
        ipip: EncapMode::Always,
        ..pool("10.65.0.0/16", false)
    };
    let near = PoolView {
        ipip: EncapMode::CrossSubnet,
        ..pool("10.66.0.0/16", false)
    };
    dataplane.set_pools(vec![ipip, near, pool("10.67.0.0/16", false)]);
    for source in [
        Source::Pools,
        Source::Bgp,
        Source::Endpoints,
        Source::OwnBlocks,
    ] {
        dataplane.in_sync(source);
    }
    let hop = BgpNextHop {
        address: "172.17.0.6".parse().unwrap(),
        interface: None,
    };
    let route = |prefix: &str| BgpRoute {
        prefix: prefix.parse().unwrap(),
        next_hops: vec![hop.clone()],
        local_pref: 100,
    };
    dataplane.apply_bgp(vec![
        route("10.65.1.0/26"),
        route("10.66.1.0/26"),
        route("10.67.1.0/26"),
    ]);
    eventually("the other pools' routes", PATIENCE, || {
        node.has_route("10.66.1.0/26") && node.has_route("10.67.1.0/26")
    });
    assert_eq!(
        shown(&node, "10.66.1.0/26"),
        "10.66.1.0/26 via 172.17.0.6 dev eth0 proto 80 onlink"
    );
    assert_eq!(node.routes_to("10.67.1.0/26")[0].1.protocol, 12);
    assert_eq!(node.routes_to("10.67.1.0/26")[0].1.kind, RouteType::Unicast);
    if supported {
        eventually("the tunnel route", PATIENCE, || {
            node.has_route("10.65.1.0/26")
        });
        let shown = shown(&node, "10.65.1.0/26");
        assert!(
            shown.contains("via 172.17.0.6 dev tunl0 proto 80 onlink mtu 1480"),
            "{shown}"
        );
    } else {
        assert!(!node.has_route("10.65.1.0/26"));
        let mut problems = dataplane.problems();
        let found = block_on(problems.wait_for(|all| !all.is_empty()))
            .unwrap()
            .clone();
        let missing = ProblemKind::DataplaneFeatureMissing(Feature::Ipip);
        let problem = found.iter().find(|p| p.kind == missing).unwrap();
        assert_eq!(problem.subject, "IPPool/pool-10.65.0.0/16");
        assert_eq!(problem.field, "spec.ipipMode");
        assert!(problem.message.contains("module ipip"));
    }
}

#[test]
fn the_nodes_own_packets_enter_the_tunnel_with_its_tunnel_address() {
    let node = Node::new();
    let dataplane = start(&node, EncapMode::Always);
    // The other end, made by hand: node n2 with a pod's address on its device.
    let near = vtep(&node.netns);
    let mac = "66:".to_owned() + &sha1_octets("n2");
    let n2 = &node.fabric;
    for command in [
        "ip link add vx type vxlan id 4096 local 172.17.0.6 dev node dstport 4789 nolearning",
        &format!("ip link set vx address {mac} mtu 1450 up"),
        "ip addr add 10.65.1.1/32 dev vx",
        "ip addr add 10.65.1.20/32 dev vx",
        "ip route add 10.65.0.1/32 dev vx",
        &format!("ip neigh add 10.65.0.1 lladdr {near} dev vx nud permanent"),
        &format!("bridge fdb add {near} dev vx dst 172.17.0.5"),
    ] {
        run(n2, command);
    }
    eventually("the tunnel route", PATIENCE, || {
        !shown(&node, "10.65.1.0/26").is_empty()
    });
    let seq = dataplane.in_sync(Source::Pools);
    block_on(dataplane.wait_committed(seq, PATIENCE)).unwrap();

    let server = n2
        .run(|| std::net::UdpSocket::bind("10.65.1.20:7000").unwrap())
        .unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = node
        .netns
        .run(|| std::net::UdpSocket::bind("172.17.0.5:3000").unwrap())
        .unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"ask", "10.65.1.20:7000").unwrap();
    let mut buffer = [0; 8];
    let (_, from) = server.recv_from(&mut buffer).unwrap();
    assert_eq!(from.ip().to_string(), "10.65.0.1");
    assert!(from.port() >= 4790, "{from}");
    server.send_to(b"answer", from).unwrap();
    assert_eq!(
        client.recv(&mut buffer).unwrap(),
        6,
        "the answer finds its way back"
    );
}

/// Ethernet address of the node's tunnel device, once it is there.
fn vtep(netns: &margay_felix::kernel::netns::Netns) -> String {
    let mut rtnl = margay_felix::kernel::rtnl::Rtnl::open_in(netns).unwrap();
    let mut mac = None;
    eventually("the tunnel device", PATIENCE, || {
        mac = rtnl
            .link_by_name("vxlan.calico")
            .unwrap()
            .and_then(|l| l.mac);
        mac.is_some()
    });
    mac.unwrap().to_string()
}
