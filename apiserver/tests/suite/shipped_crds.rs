//! The shipped definitions through the server: what users see when they write a pool, a peer, a configuration.

use serde_json::{Value, json};

use crate::harness::{Answer, POOLS, TestServer, start};

async fn make(server: &TestServer, name: &str, spec: Value) -> Answer {
    let object = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
        "metadata": {"name": name}, "spec": spec});
    server
        .post(&format!("{POOLS}?fieldValidation=Strict"), &object)
        .await
}

#[tokio::test]
async fn every_shipped_definition_is_installed_and_established() {
    let server = start().await;
    let list = server
        .get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .await
        .expect(200);
    let crds = list["items"].as_array().unwrap();
    assert_eq!(crds.len(), margay_crds::manifests::ALL.len());
    for crd in crds {
        assert!(
            crd["status"]["conditions"]
                .as_array()
                .unwrap()
                .iter()
                .all(|c| c["status"] == "True")
        );
        let group = crd["spec"]["group"].as_str().unwrap();
        let version = crd["spec"]["versions"][0]["name"].as_str().unwrap();
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap();
        let list = server
            .get(&format!("/apis/{group}/{version}/{plural}"))
            .await
            .expect(200);
        assert_eq!(list["kind"], crd["spec"]["names"]["listKind"]);
    }
}

#[tokio::test]
async fn a_pool_gets_its_visible_defaults_only() {
    let server = start().await;
    let made = make(&server, "p", json!({"cidr": "10.0.0.0/24"}))
        .await
        .expect(201);
    assert_eq!(
        made["spec"],
        json!({"cidr": "10.0.0.0/24", "nodeSelector": "all()", "assignmentMode": "Automatic"})
    );
}

#[tokio::test]
async fn bad_pools_are_refused_with_field_and_reason() {
    let server = start().await;
    for (spec, text) in [
        (
            json!({"cidr": "10.0.0.0/24", "ipipMode": "Always", "vxlanMode": "CrossSubnet"}),
            "ipipMode and vxlanMode cannot both be enabled",
        ),
        (json!({"cidr": "10.0.0.1/24"}), "must be strictly masked"),
        (json!({"cidr": "169.254.0.0/16"}), "link local range"),
        (json!({"cidr": "fe80::/64"}), "link local range"),
        (json!({"cidr": "10.0.0.0/27"}), "too small"),
        (
            json!({"cidr": "fd00::/112", "ipipMode": "Always"}),
            "IPIP is not supported on IPv6 pools",
        ),
        (json!({"cidr": "10.0.0.0/16", "blockSize": 19}), "spec"),
        (json!({"cidr": "nonsense"}), "spec.cidr"),
        (
            json!({"cidr": "10.0.0.0/16", "ipipMode": "Sometimes"}),
            "spec.ipipMode",
        ),
        (json!({}), "spec.cidr: Required value"),
    ] {
        let answer = make(&server, "p", spec.clone()).await;
        assert_eq!(answer.code, 422, "{spec}: {}", answer.body);
        assert!(
            answer.message().contains(text),
            "{spec}: {}",
            answer.message()
        );
        assert!(
            answer.body["details"]["causes"][0]["field"]
                .as_str()
                .unwrap()
                .starts_with("spec")
        );
    }
    let unknown = make(
        &server,
        "p",
        json!({"cidr": "10.0.0.0/24", "natOutgoin": true}),
    )
    .await;
    assert!(
        unknown
            .message()
            .contains(r#"unknown field "spec.natOutgoin""#)
    );
    unknown.expect(400);
}

#[tokio::test]
async fn pools_at_the_edge_of_the_rules_are_accepted() {
    let server = start().await;
    for (index, spec) in [
        json!({"cidr": "10.0.0.0/24", "ipipMode": "Always", "vxlanMode": "Never"}),
        json!({"cidr": "10.0.0.0/27", "disabled": true}),
        json!({"cidr": "10.0.0.0/32", "blockSize": 32}),
        json!({"cidr": "fd00::/112", "vxlanMode": "Always"}),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = make(&server, &format!("p{index}"), spec.clone()).await;
        assert_eq!(answer.code, 201, "{spec}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_pools_range_and_block_size_stay() {
    let server = start().await;
    make(
        &server,
        "p",
        json!({"cidr": "10.0.0.0/16", "blockSize": 26}),
    )
    .await
    .expect(201);
    let path = format!("{POOLS}/p");
    for patch in [
        json!({"spec": {"cidr": "10.1.0.0/16"}}),
        json!({"spec": {"blockSize": 28}}),
    ] {
        let answer = server.merge(&path, &patch).await;
        assert!(
            answer.message().contains("cannot be changed"),
            "{}",
            answer.body
        );
        answer.expect(422);
    }
    server
        .merge(&path, &json!({"spec": {"natOutgoing": true}}))
        .await
        .expect(200);
}

#[tokio::test]
async fn four_octet_as_numbers_fit() {
    let server = start().await;
    let peer = |number: Value| {
        json!({"apiVersion": "projectcalico.org/v3", "kind": "BGPPeer", "metadata": {"name": "b"},
            "spec": {"peerIP": "192.0.2.1", "asNumber": number}})
    };
    let peers = "/apis/projectcalico.org/v3/bgppeers";
    server.post(peers, &peer(json!("1.10"))).await.expect(422);
    server
        .post(peers, &peer(json!(4_200_000_000_u32)))
        .await
        .expect(201);
}

#[tokio::test]
async fn an_empty_per_node_configuration_stays_empty() {
    let server = start().await;
    let object = json!({"apiVersion": "projectcalico.org/v3", "kind": "FelixConfiguration",
        "metadata": {"name": "node.a"}, "spec": {}});
    let made = server
        .post("/apis/projectcalico.org/v3/felixconfigurations", &object)
        .await;
    assert_eq!(made.expect(201)["spec"], json!({}));
}
