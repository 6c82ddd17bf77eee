//! Agents in namespaces against the embedded API server: what only a kernel and a second node can show.

mod support;

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;
use support::{Cluster, eventually};

const SOON: Duration = Duration::from_secs(20);

/// Two nodes with a pod each; waits until the pods reach each other.
fn connected(tag: &str) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::start(tag, 2);
    for node in 1..=2 {
        cluster.start_agent(node);
    }
    for node in 1..=2 {
        cluster.wait_ready(node);
    }
    let (a, b) = (cluster.add_pod(1, "a"), cluster.add_pod(2, "b"));
    eventually("the pods reach each other", SOON, || {
        cluster.reaches(a, b).then_some(())
    });
    (cluster, a, b)
}

#[test]
fn pods_on_two_nodes_reach_each_other_over_the_mesh() {
    let (cluster, a, b) = connected("m");
    assert_eq!((cluster.sessions_up(1), cluster.sessions_up(2)), (1, 1));
    assert!(cluster.reaches(b, a));

    let routes = cluster.routes(1);
    assert!(
        routes.contains("via 10.20.0.2 dev eth0 proto bird metric 1024")
            || routes.contains("via 10.20.0.2 dev eth0 proto 12 metric 1024"),
        "{routes}"
    );
    assert!(routes.contains("blackhole 10.88."), "{routes}");

    let peers = cluster.admin(1, "bgp/peers").expect("peers");
    assert_eq!(peers["peers"][0]["type"], "mesh");
    assert_eq!(peers["peers"][0]["name"], "n2");
    assert_eq!(peers["peers"][0]["peerAs"], 64512);
    let bgp = cluster.admin(1, "bgp/routes").expect("routes");
    let learned = bgp["routes"]
        .as_array()
        .expect("list")
        .iter()
        .find(|route| route["from"] == "10.20.0.2");
    assert_eq!(
        learned.expect("a learned route")["localPref"],
        2_147_482_623u32
    );

    let node = cluster.kubectl(&["get", "node", "n1", "-o", "json"]);
    assert!(
        node.contains("\"projectcalico.org/IPv4Address\": \"10.20.0.1/24\""),
        "{node}"
    );
    eventually("the node is marked as usable", SOON, || {
        cluster
            .kubectl(&["get", "node", "n1", "-o", "yaml"])
            .contains("MargayIsUp")
            .then_some(())
    });
}

#[test]
fn a_killed_agent_loses_no_packet_between_existing_pods() {
    let (mut cluster, a, b) = connected("k");
    let before = cluster.routes(1);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let stream = cluster.stream(a, b);
        eventually("the stream runs", SOON, || {
            (stream.received() > 20).then_some(())
        });
        cluster.end_agent(1, signal);
        cluster.start_agent(1);
        cluster.wait_ready(1);
        eventually("the session is back", Duration::from_secs(40), || {
            (cluster.sessions_up(1) == 1).then_some(())
        });
        let count = stream.received();
        eventually("the stream goes on", SOON, || {
            (stream.received() > count + 100).then_some(())
        });
        let (sent, received) = stream.stop();
        assert_eq!(
            sent,
            received,
            "lost datagrams with {signal}\n{}",
            cluster.tail(1)
        );
        assert_eq!(cluster.routes(1), before, "routes after {signal}");
    }
    let c = cluster.add_pod(1, "c");
    eventually("a new pod is reached", SOON, || {
        cluster.reaches(b, c).then_some(())
    });
}

#[test]
fn sessions_follow_configuration_live() {
    let (cluster, a, b) = connected("c");
    let mesh = |on: bool| {
        cluster.apply(
            &json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPConfiguration",
            "metadata": {"name": "default"}, "spec": {"nodeToNodeMeshEnabled": on}}),
        );
    };
    mesh(false);
    eventually("the mesh is gone", SOON, || {
        (cluster.sessions_up(1) == 0 && !cluster.routes(1).contains("via 10.20.0.2 dev"))
            .then_some(())
    });
    assert!(!cluster.reaches(a, b));
    eventually("a node without session says so", SOON, || {
        cluster
            .admin(1, "problems")?
            .to_string()
            .contains("BGPNoSessions")
            .then_some(())
    });

    cluster.apply(&json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer", "metadata": {"name": "bad"},
        "spec": {"peerIP": "192.0.2.9"}}));
    cluster.apply(&json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer", "metadata": {"name": "pair"},
        "spec": {"node": "n1", "peerIP": "10.20.0.2", "asNumber": 64512}}));
    eventually("the explicit session is up", SOON, || {
        (cluster.sessions_up(1) == 1).then_some(())
    });
    eventually("the pods reach each other again", SOON, || {
        cluster.reaches(a, b).then_some(())
    });
    let peers = cluster.admin(1, "bgp/peers").expect("peers");
    assert_eq!(
        (&peers["peers"][0]["type"], &peers["peers"][0]["source"]),
        (&json!("node"), &json!("pair"))
    );
    let reverse = cluster.admin(2, "bgp/peers").expect("peers");
    assert_eq!(reverse["peers"][0]["type"], "reverse");

    let problems = cluster.admin(1, "problems").expect("problems");
    let bad = problems["problems"]
        .as_array()
        .expect("list")
        .iter()
        .find(|problem| problem["name"] == "bad")
        .cloned();
    assert_eq!(
        bad.expect("the bad peer is reported")["field"],
        "spec.asNumber"
    );
    eventually("an Event on the bad peer", SOON, || {
        let events = cluster.kubectl(&["get", "events", "-A", "-o", "json"]);
        (events.contains("BGPPeerRejected") && events.contains("InvalidASNumber")).then_some(())
    });

    let flaps = |node: usize| {
        cluster
            .admin(node, "bgp/peers")
            .map(|list| list["peers"][0]["flaps"].clone())
    };
    let before = flaps(1);
    cluster.apply(&json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "second"},
        "spec": {"cidr": "10.99.0.0/24", "disableBGPExport": true}}));
    cluster.kubectl(&["label", "node", "n1", "rack=1"]);
    cluster.kubectl(&["delete", "bgppeer", "bad"]);
    eventually("the problem is gone", SOON, || {
        let problems = cluster.admin(1, "problems")?.to_string();
        (!problems.contains("\"bad\"")).then_some(())
    });
    assert_eq!(
        flaps(1),
        before,
        "no session is reset by pools, labels or other peers"
    );
    assert_eq!(cluster.sessions_up(1), 1);
}

#[test]
fn dual_stack_nodes_have_a_session_and_routes_per_family() {
    let mut cluster = Cluster::start("d", 2);
    for node in 1..=2 {
        cluster.set(node, "IP6", "autodetect");
        cluster.set(node, "CALICO_IPV6POOL_CIDR", "fd88::/64");
        cluster.start_agent(node);
    }
    for node in 1..=2 {
        cluster.wait_ready(node);
    }
    let (a, b) = (cluster.add_pod(1, "a"), cluster.add_pod(2, "b"));
    eventually("both sessions are up", SOON, || {
        (cluster.sessions_up(1) == 2).then_some(())
    });
    eventually("IPv4 works", SOON, || cluster.reaches(a, b).then_some(()));
    eventually("IPv6 works", SOON, || {
        cluster.reaches_over(a, b, false).then_some(())
    });
}

#[test]
fn vxlan_pools_are_routed_from_blocks_and_given_tunnel_addresses() {
    let mut cluster = Cluster::start("x", 2);
    for node in 1..=2 {
        cluster.set(node, "CALICO_IPV4POOL_VXLAN", "Always");
        cluster.start_agent(node);
    }
    for node in 1..=2 {
        cluster.wait_ready(node);
    }
    let (a, b) = (cluster.add_pod(1, "a"), cluster.add_pod(2, "b"));
    eventually("the pods reach each other", SOON, || {
        cluster.reaches(a, b).then_some(())
    });
    let routes = cluster.routes(1);
    assert!(routes.contains("dev vxlan.calico onlink"), "{routes}");
    let node = cluster.kubectl(&["get", "node", "n1", "-o", "json"]);
    assert!(
        node.contains("projectcalico.org/IPv4VXLANTunnelAddr"),
        "{node}"
    );
}
