//! Resources in, sessions out, as tables.

use std::collections::BTreeMap;

use margay_crds::{BGPConfiguration, BGPPeer};
use serde_json::{Value, json};

use super::*;

/// A cluster to ask for the sessions of one node.
#[derive(Default)]
struct Cluster {
    nodes: BTreeMap<String, BgpNode>,
    peers: BTreeMap<String, BGPPeer>,
    configurations: Configurations,
    passwords: BTreeMap<SecretRef, Password>,
}

impl Cluster {
    fn new() -> Self {
        Cluster::default()
    }

    /// Adds a node with labels `key=value,...` and annotations without their prefix.
    fn node(mut self, name: &str, labels: &str, annotations: &[(&str, &str)]) -> Self {
        let labels = labels
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let annotations = annotations
            .iter()
            .map(|(k, v)| (format!("projectcalico.org/{k}"), (*v).to_owned()))
            .collect();
        self.nodes
            .insert(name.into(), BgpNode::read(&labels, &annotations));
        self
    }

    fn v4(self, name: &str, address: &str) -> Self {
        self.node(name, "", &[("IPv4Address", address)])
    }

    fn peer(self, name: &str, spec: Value) -> Self {
        self.annotated_peer(name, json!({}), spec)
    }

    fn annotated_peer(mut self, name: &str, annotations: Value, spec: Value) -> Self {
        let object = json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec});
        self.peers.insert(
            name.into(),
            serde_json::from_value(object).expect("a BGPPeer"),
        );
        self
    }

    fn configuration(mut self, name: &str, spec: Value) -> Self {
        let object = json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPConfiguration",
            "metadata": {"name": name}, "spec": spec});
        let object: BGPConfiguration = serde_json::from_value(object).expect("a BGPConfiguration");
        assert!(
            self.configurations
                .insert(name, &BTreeMap::new(), &object.spec)
        );
        self
    }

    fn secret(mut self, name: &str, key: &str, value: &str) -> Self {
        let secret = SecretRef {
            name: name.into(),
            key: key.into(),
        };
        self.passwords
            .insert(secret, Password::new(value.as_bytes().to_vec()));
        self
    }

    fn plan(&self, node: &str) -> SessionPlan {
        plan(&Inputs {
            node,
            nodes: &self.nodes,
            peers: &self.peers,
            configurations: &self.configurations,
            passwords: &self.passwords,
            router_id: "",
        })
    }

    /// Sessions as `kind ip:port asN [passive] [client]`.
    fn sessions(&self, node: &str) -> Vec<String> {
        self.plan(node).sessions.iter().map(show).collect()
    }
}

fn show(session: &Session) -> String {
    let kind = format!("{:?}", session.kind).to_lowercase();
    let passive = if session.passive { " passive" } else { "" };
    let client = if session.rr_client { " client" } else { "" };
    format!(
        "{kind} {}:{} as{}{passive}{client}",
        session.remote, session.port, session.remote_as
    )
}

#[test]
fn mesh_side_that_dials_is_chosen_by_text_not_by_number() {
    let cluster = Cluster::new()
        .v4("a", "10.0.0.9/24")
        .v4("b", "10.0.0.10/24");
    assert_eq!(cluster.sessions("a"), ["mesh 10.0.0.10:179 as64512"]);
    assert_eq!(cluster.sessions("b"), ["mesh 10.0.0.9:179 as64512 passive"]);
}

#[test]
fn mesh_has_one_session_per_family_both_ends_have() {
    let dual = [
        ("IPv4Address", "10.0.0.1/24"),
        ("IPv6Address", "fd00::1/64"),
    ];
    let cluster = Cluster::new()
        .node("a", "", &dual)
        .node(
            "b",
            "",
            &[
                ("IPv4Address", "10.0.0.2/24"),
                ("IPv6Address", "fd00::2/64"),
            ],
        )
        .node("c", "", &[("IPv6Address", "fd00::3/64")])
        .node("d", "", &[]);
    assert_eq!(
        cluster.sessions("a"),
        [
            "mesh 10.0.0.2:179 as64512 passive",
            "mesh fd00::2:179 as64512 passive",
            "mesh fd00::3:179 as64512 passive"
        ]
    );
    assert!(
        cluster.sessions("d").is_empty(),
        "a node without addresses has no session"
    );
    assert!(cluster.sessions("unknown").is_empty());
}

#[test]
fn mesh_uses_as_number_and_port_of_each_node() {
    let cluster = Cluster::new()
        .v4("a", "10.0.0.1/24")
        .node(
            "b",
            "",
            &[("IPv4Address", "10.0.0.2/24"), ("ASNumber", "64600")],
        )
        .v4("c", "10.0.0.3/24")
        .configuration("default", json!({"asNumber": 65001}))
        .configuration("node.c", json!({"listenPort": 1179}));
    assert_eq!(
        cluster.sessions("a"),
        [
            "mesh 10.0.0.2:179 as64600 passive",
            "mesh 10.0.0.3:1179 as65001 passive"
        ]
    );
    assert_eq!(cluster.plan("b").as_number, 64600);
    assert_eq!(cluster.plan("c").listen_port, 1179);
}

#[test]
fn mesh_switched_off_leaves_no_session() {
    let cluster = Cluster::new()
        .v4("a", "10.0.0.1/24")
        .v4("b", "10.0.0.2/24")
        .configuration("default", json!({"nodeToNodeMeshEnabled": false}));
    assert!(cluster.sessions("a").is_empty());
}

#[test]
fn route_reflector_is_outside_the_mesh_and_has_reverse_sessions_as_clients() {
    let cluster = Cluster::new()
        .v4("m", "10.192.0.2/16")
        .v4("n1", "10.192.0.3/16")
        .node(
            "n2",
            "rr=true",
            &[
                ("IPv4Address", "10.192.0.4/16"),
                ("RouteReflectorClusterID", "10.0.0.1"),
            ],
        )
        .peer(
            "reflect",
            json!({"nodeSelector": "has(rr)", "peerSelector": "!has(rr)"}),
        );
    assert_eq!(
        cluster.sessions("m"),
        [
            "mesh 10.192.0.3:179 as64512 passive",
            "reverse 10.192.0.4:179 as64512"
        ]
    );
    assert_eq!(
        cluster.sessions("n2"),
        [
            "node 10.192.0.2:179 as64512 client",
            "node 10.192.0.3:179 as64512 client"
        ]
    );
    assert_eq!(
        cluster
            .plan("n2")
            .cluster_id
            .map(|id| id.to_string())
            .as_deref(),
        Some("10.0.0.1")
    );
}

#[test]
fn peers_by_address_use_listen_ports_of_nodes_and_wait_for_greater_addresses() {
    let cluster = Cluster::new()
        .v4("n1", "10.192.0.1/16")
        .v4("n2", "10.192.0.2/16")
        .v4("n3", "10.192.0.3/16")
        .configuration(
            "default",
            json!({"asNumber": 64567, "listenPort": 150, "bindMode": "NodeIP", "nodeToNodeMeshEnabled": false}),
        )
        .peer("a", json!({"peerIP": "10.192.0.3", "asNumber": 64567, "sourceAddress": "None"}))
        .peer("b", json!({"peerIP": "10.192.0.1:166", "asNumber": 64567}))
        .peer("c", json!({"peerIP": "10.192.0.1", "asNumber": 64567}));
    let plan = cluster.plan("n2");
    assert_eq!(
        plan.sessions.iter().map(show).collect::<Vec<_>>(),
        [
            "global 10.192.0.1:150 as64567",
            "global 10.192.0.1:166 as64567",
            "global 10.192.0.3:150 as64567 passive"
        ]
    );
    assert_eq!(plan.listen_port, 150);
    assert!(plan.bind_node_ip);
    assert_eq!(plan.sessions[2].source_address, None);
    assert_eq!(
        plan.sessions[0]
            .source_address
            .map(|ip| ip.to_string())
            .as_deref(),
        Some("10.192.0.2")
    );
}

#[test]
fn manual_reverse_peering_creates_nothing_on_the_selected_end() {
    let cluster = |mode: &str| {
        Cluster::new()
            .node("r", "rr=true", &[("IPv4Address", "10.0.0.1/24")])
            .v4("a", "10.0.0.2/24")
            .v4("b", "10.0.0.3/24")
            .configuration("default", json!({"nodeToNodeMeshEnabled": false}))
            .peer("p", json!({"nodeSelector": "all()", "peerSelector": "rr == 'true'", "reversePeering": mode}))
    };
    assert!(cluster("Manual").sessions("r").is_empty());
    assert_eq!(
        cluster("Auto").sessions("r"),
        [
            "reverse 10.0.0.2:179 as64512",
            "reverse 10.0.0.3:179 as64512"
        ]
    );
    assert_eq!(
        cluster("Manual").sessions("a"),
        ["node 10.0.0.1:179 as64512"]
    );
}

#[test]
fn of_two_peers_with_one_address_the_first_by_name_wins_and_the_other_is_reported() {
    let cluster = Cluster::new()
        .v4("n", "10.0.0.1/24")
        .peer("b", json!({"peerIP": "192.0.2.1", "asNumber": 65002}))
        .peer("a", json!({"peerIP": "192.0.2.1", "asNumber": 65001}));
    let plan = cluster.plan("n");
    assert_eq!(
        plan.sessions.iter().map(show).collect::<Vec<_>>(),
        ["global 192.0.2.1:179 as65001"]
    );
    assert_eq!(plan.problems.len(), 1);
    assert_eq!(plan.problems[0].name, "b");
    assert!(
        plan.problems[0].message.starts_with("Shadowed"),
        "{}",
        plan.problems[0]
    );
}

#[test]
fn peer_for_all_nodes_wins_over_peer_for_one_node() {
    let cluster = Cluster::new()
        .v4("n", "10.0.0.1/24")
        .peer(
            "a",
            json!({"node": "n", "peerIP": "192.0.2.1", "asNumber": 65001}),
        )
        .peer("z", json!({"peerIP": "192.0.2.1", "asNumber": 65002}));
    assert_eq!(cluster.sessions("n"), ["global 192.0.2.1:179 as65002"]);
}

#[test]
fn explicit_peer_replaces_the_mesh_session_to_the_same_address() {
    let cluster = Cluster::new()
        .v4("a", "10.0.0.1/24")
        .v4("b", "10.0.0.2/24")
        .peer(
            "p",
            json!({"node": "a", "peerIP": "10.0.0.2", "asNumber": 64512}),
        );
    let plan = cluster.plan("a");
    assert_eq!(
        plan.sessions.iter().map(show).collect::<Vec<_>>(),
        ["node 10.0.0.2:179 as64512"]
    );
    assert_eq!(plan.sessions[0].name, "b", "the remote node gives the name");
    assert!(
        plan.problems.is_empty(),
        "a replaced mesh session is normal"
    );
    assert_eq!(cluster.sessions("b"), ["reverse 10.0.0.1:179 as64512"]);
}

#[test]
fn node_selector_and_node_name_choose_the_nodes_that_have_a_peer() {
    let cluster = Cluster::new()
        .node("a", "rack=1", &[("IPv4Address", "10.0.0.1/24")])
        .node("b", "rack=2", &[("IPv4Address", "10.0.0.2/24")])
        .configuration("default", json!({"nodeToNodeMeshEnabled": false}))
        .peer(
            "rack1",
            json!({"nodeSelector": "rack == '1'", "peerIP": "192.0.2.1", "asNumber": 65001}),
        )
        .peer(
            "only-b",
            json!({"node": "b", "peerIP": "192.0.2.2", "asNumber": 65001}),
        );
    assert_eq!(cluster.sessions("a"), ["node 192.0.2.1:179 as65001"]);
    assert_eq!(cluster.sessions("b"), ["node 192.0.2.2:179 as65001"]);
}

#[test]
fn peers_of_other_nodes_take_the_nodes_as_number_when_none_is_given() {
    let cluster = Cluster::new()
        .v4("a", "10.0.0.1/24")
        .node(
            "b",
            "",
            &[("IPv4Address", "10.0.0.2/24"), ("ASNumber", "65010")],
        )
        .peer("p", json!({"node": "a", "peerIP": "10.0.0.2"}));
    assert_eq!(cluster.sessions("a"), ["node 10.0.0.2:179 as65010"]);
}

#[test]
fn one_bad_peer_is_reported_with_its_field_and_leaves_the_others_alone() {
    let cases = [
        (
            json!({"peerIP": "192.0.2.9"}),
            "InvalidASNumber",
            "spec.asNumber",
        ),
        (
            json!({"peerIP": "fe80::1", "asNumber": 65000}),
            "LinkLocalNeedsInterface",
            "spec.peerIP",
        ),
        (
            json!({"peerIP": "tor", "asNumber": 65000}),
            "Invalid",
            "spec.peerIP",
        ),
        (json!({"asNumber": 65000}), "Invalid", "spec.peerIP"),
        (
            json!({"peerSelector": "a = b"}),
            "PeersSelected=False",
            "spec.peerSelector",
        ),
        (
            json!({"nodeSelector": "has(", "peerIP": "192.0.2.9", "asNumber": 1}),
            "PeersSelected=False",
            "spec.nodeSelector",
        ),
        (
            json!({"peerSelector": "all()", "asNumber": 65000}),
            "InvalidASNumber",
            "spec.asNumber",
        ),
        (
            json!({"peerSelector": "all()", "peerIP": "192.0.2.9"}),
            "Invalid",
            "spec.peerIP",
        ),
        (
            json!({"peerIP": "192.0.2.9", "asNumber": 65000,
                "password": {"secretKeyRef": {"name": "absent", "key": "k"}}}),
            "SecretMissing",
            "spec.password",
        ),
    ];
    for (spec, word, field) in cases {
        let cluster = Cluster::new()
            .v4("n", "10.0.0.1/24")
            .v4("o", "10.0.0.2/24")
            .peer("bad", spec.clone())
            .peer("good", json!({"peerIP": "192.0.2.1", "asNumber": 65001}));
        let plan = cluster.plan("n");
        assert_eq!(
            plan.sessions.iter().map(show).collect::<Vec<_>>(),
            [
                "mesh 10.0.0.2:179 as64512 passive",
                "global 192.0.2.1:179 as65001"
            ],
            "{spec}"
        );
        assert_eq!(plan.problems.len(), 1, "{spec}: {:?}", plan.problems);
        let problem = &plan.problems[0];
        assert_eq!((problem.kind, problem.name.as_str()), ("BGPPeer", "bad"));
        assert!(problem.message.starts_with(word), "{spec}: {problem}");
        assert_eq!(problem.field, field, "{spec}");
    }
}

#[test]
fn link_local_peer_with_an_interface_keeps_its_scope() {
    let cluster = Cluster::new()
        .node("n", "", &[("IPv6Address", "fd00::1/64")])
        .peer("p", json!({"peerIP": "fe80::1%eth0", "asNumber": 65000}));
    let plan = cluster.plan("n");
    assert_eq!(plan.sessions.len(), 1);
    assert_eq!(plan.sessions[0].interface.as_deref(), Some("eth0"));
    assert_eq!(
        plan.sessions[0].source_address, None,
        "a global source cannot reach a link-local peer"
    );
}

#[test]
fn password_appears_with_its_secret_and_only_on_its_sessions() {
    let spec = json!({"peerIP": "192.0.2.1", "asNumber": 65001,
        "password": {"secretKeyRef": {"name": "bgp", "key": "tor"}}});
    let without = Cluster::new()
        .v4("n", "10.0.0.1/24")
        .peer("p", spec)
        .peer("q", json!({"peerIP": "192.0.2.2", "asNumber": 65001}));
    assert_eq!(without.sessions("n"), ["global 192.0.2.2:179 as65001"]);
    assert_eq!(
        without.plan("n").secrets.len(),
        1,
        "the Secret is watched though it is missing"
    );
    let with = without.secret("bgp", "tor", "s3cret");
    let plan = with.plan("n");
    assert_eq!(plan.sessions.len(), 2);
    assert!(plan.sessions[0].password.is_some() && plan.sessions[1].password.is_none());
    assert!(
        !format!("{plan:?}").contains("s3cret"),
        "passwords are never printed"
    );
}

#[test]
fn missing_mesh_password_keeps_the_mesh_down_unless_it_is_optional() {
    let cluster = |optional: bool| {
        Cluster::new().v4("a", "10.0.0.1/24").v4("b", "10.0.0.2/24").configuration(
            "default",
            json!({"nodeMeshPassword": {"secretKeyRef": {"name": "mesh", "key": "k", "optional": optional}}}),
        )
    };
    let down = cluster(false).plan("a");
    assert!(down.sessions.is_empty());
    assert_eq!(down.problems[0].reason, "BGPPasswordMissing");
    assert_eq!(cluster(true).sessions("a").len(), 1);
    let up = cluster(false).secret("mesh", "k", "x").plan("a");
    assert!(up.sessions[0].password.is_some());
}

#[test]
fn fields_of_a_peer_reach_its_session() {
    let cluster = Cluster::new().v4("n", "10.0.0.1/24").annotated_peer(
        "p",
        json!({"margay.io/hold-time": "9s", "margay.io/passive": "true", "margay.io/max-prefixes": "100"}),
        json!({"peerIP": "192.0.2.1:1179", "asNumber": 65001, "localASNumber": 64999, "maxRestartTime": "5m",
            "keepaliveTime": "3s", "nextHopMode": "Self", "ttlSecurity": 2, "numAllowedLocalASNumbers": 1,
            "filters": ["x", "y"]}),
    );
    let session = &cluster.plan("n").sessions[0];
    assert_eq!(session.port, 1179);
    assert!(session.passive);
    assert_eq!(session.hold_time.as_secs(), 9);
    assert_eq!(session.keepalive_time.map(|t| t.as_secs()), Some(3));
    assert_eq!(session.restart_time.as_secs(), 300);
    assert_eq!((session.local_as, session.remote_as), (64999, 65001));
    assert_eq!(session.next_hop, NextHopMode::SelfAddress);
    assert_eq!(session.ttl_security, Some(2));
    assert_eq!(session.allow_local_as, 1);
    assert_eq!(session.filters, ["x", "y"]);
    assert_eq!(session.max_prefixes, Some(100));
}

#[test]
fn keep_original_next_hop_counts_only_between_autonomous_systems() {
    let mode = |remote_as: u32| {
        let cluster = Cluster::new().v4("n", "10.0.0.1/24").peer(
            "p",
            json!({"peerIP": "192.0.2.1", "asNumber": remote_as, "keepOriginalNextHop": true}),
        );
        cluster.plan("n").sessions[0].next_hop
    };
    assert_eq!(mode(65001), NextHopMode::Keep);
    assert_eq!(mode(64512), NextHopMode::Auto);
}

#[test]
fn a_repeated_computation_gives_the_same_plan() {
    let cluster = Cluster::new()
        .v4("a", "10.0.0.1/24")
        .v4("b", "10.0.0.2/24")
        .peer("p", json!({"peerSelector": "all()"}))
        .peer("q", json!({"peerIP": "192.0.2.9"}));
    assert_eq!(cluster.plan("a"), cluster.plan("a"));
}

#[test]
fn router_id_comes_from_the_setting_then_the_address_then_the_name() {
    use super::configuration::router_id;
    let v4 = Networks {
        v4: NodeAddress::parse("10.0.0.5/24", Family::V4),
        v6: None,
    };
    let none = Networks::default();
    assert_eq!(router_id("", "kube-master", &v4).to_string(), "10.0.0.5");
    assert_eq!(
        router_id("hash", "kube-master", &v4).to_string(),
        "25.79.212.8"
    );
    assert_eq!(
        router_id("1.2.3.4", "kube-master", &v4).to_string(),
        "1.2.3.4"
    );
    assert_eq!(
        router_id("", "kube-master", &none).to_string(),
        "25.79.212.8"
    );
    assert_eq!(
        router_id("0.0.0.0", "kube-master", &v4).to_string(),
        "10.0.0.5"
    );
}
