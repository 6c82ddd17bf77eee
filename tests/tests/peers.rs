//! BGP peers that change while pods run.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use margay_crds::BGPPeer;
use margay_lab::{Lab, Tor};
use margay_tests::{SOON, text_of, up};
use serde_json::json;

/// Names of the established sessions of a node, sorted.
async fn sessions(lab: &Lab, node: &str) -> margay_lab::Result<Vec<String>> {
    let peers = lab.agent_peers(node).await?.peers;
    let mut names: Vec<String> = peers
        .into_iter()
        .filter(|p| p.is_established())
        .map(|p| p.peer.to_string())
        .collect();
    names.sort();
    Ok(names)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mesh_switched_off_live_leaves_only_explicit_peers_and_switched_on_returns() {
    let lab = up(Lab::builder().nodes(3).tor(Tor::Bird)).await;
    lab.apply(&text_of("examples/bgp/mesh-off.yaml"))
        .await
        .unwrap();
    for node in ["n1", "n2", "n3"] {
        lab.eventually("only the router is left", SOON, async || {
            Ok(sessions(&lab, node).await? == ["10.20.0.2"])
        })
        .await
        .unwrap();
    }
    // The router tells nodes nothing of each other, so they have lost each other's pods, but not the router.
    lab.eventually("pods of other nodes are out of reach", SOON, async || {
        Ok(!lab.ping("n1-p1", "n2-p1").await?)
    })
    .await
    .unwrap();
    assert!(lab.ping("n1-p1", "tor1").await.unwrap());
    lab.apply(&text_of("examples/bgp/mesh-on.yaml"))
        .await
        .unwrap();
    lab.eventually("the mesh is back", SOON, async || {
        Ok(sessions(&lab, "n1").await?.len() == 3)
    })
    .await
    .unwrap();
    lab.converged(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explicit_peers_between_nodes_replace_the_mesh_live() {
    let lab = up(Lab::builder().nodes(3)).await;
    // n1 reflects: the others peer with it alone.
    let nodes: Api<Node> = Api::all(lab.kube());
    let patch = json!({"metadata": {"labels": {"route-reflector": "true"},
        "annotations": {"projectcalico.org/RouteReflectorClusterID": "244.0.0.1"}}});
    nodes
        .patch("n1", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    lab.apply(&text_of("examples/peers/route-reflector.yaml"))
        .await
        .unwrap();
    lab.apply(&text_of("examples/bgp/mesh-off.yaml"))
        .await
        .unwrap();
    for node in ["n2", "n3"] {
        lab.eventually("only the reflector is left", SOON, async || {
            Ok(sessions(&lab, node).await? == ["10.20.1.1"])
        })
        .await
        .unwrap();
    }
    lab.eventually(
        "pods reach each other through the reflector's word",
        SOON,
        async || lab.ping("n2-p1", "n3-p1").await,
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_with_a_node_selector_follows_the_labels_live() {
    let lab = up(Lab::builder().nodes(2).tor(Tor::Bird)).await;
    let peers: Api<BGPPeer> = Api::all(lab.kube());
    peers
        .delete("tor1", &DeleteParams::default())
        .await
        .unwrap();
    let router = "10.20.0.2".to_owned();
    let has = async |node: &str| Ok(sessions(&lab, node).await?.contains(&router));
    for node in ["n1", "n2"] {
        lab.eventually("the global peer is gone", SOON, async || {
            has(node).await.map(|h| !h)
        })
        .await
        .unwrap();
    }
    lab.apply(&text_of("examples/peers/rack.yaml"))
        .await
        .unwrap();
    let nodes: Api<Node> = Api::all(lab.kube());
    let label =
        |value: serde_json::Value| Patch::Merge(json!({"metadata": {"labels": {"rack": value}}}));
    nodes
        .patch("n1", &PatchParams::default(), &label(json!("r1")))
        .await
        .unwrap();
    lab.eventually("the labelled node peers", SOON, async || has("n1").await)
        .await
        .unwrap();
    assert!(!has("n2").await.unwrap());
    nodes
        .patch("n1", &PatchParams::default(), &label(json!(null)))
        .await
        .unwrap();
    lab.eventually("the label is gone and so is the peer", SOON, async || {
        has("n1").await.map(|h| !h)
    })
    .await
    .unwrap();

    lab.apply(&text_of("examples/peers/one-node.yaml"))
        .await
        .unwrap();
    lab.eventually("the named node peers", SOON, async || has("n1").await)
        .await
        .unwrap();
    assert!(!has("n2").await.unwrap());
}
