//! A top-of-rack router beside the mesh: it learns every block, goes, and comes back.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use margay_lab::cluster::Fault;
use margay_lab::{Lab, Result, Tor};
use margay_tests::{SOON, destinations_via, node_addresses, router_addresses, up};
use std::time::Duration;

/// Hold time in every router configuration of `examples/tor`, in seconds.
const HOLD: u64 = 9;

/// What the router announces is in the kernel of every node, by way of the router.
fn nodes_know_what_is_behind(lab: &Lab) -> Result<bool> {
    let router = router_addresses(lab)?;
    let nodes = lab.state()?.nodes;
    for node in nodes {
        if !destinations_via(lab, &node.name, &router)?.contains("198.51.100.0/24") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// No node has a kernel route by way of the router.
fn nodes_forgot(lab: &Lab) -> Result<bool> {
    let router = router_addresses(lab)?;
    for node in lab.state()?.nodes {
        if !destinations_via(lab, &node.name, &router)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn a_router_learns_every_block_goes_and_comes_back(kind: Tor) {
    let lab = up(Lab::builder().nodes(3).tor(kind)).await;

    // Converged means that pods and router reach each other both ways; here is why.
    let blocks = lab.blocks().await.unwrap();
    assert_eq!(blocks.len(), 3, "{blocks:?}");
    let learned = destinations_via(&lab, "tor1", &node_addresses(&lab).unwrap()).unwrap();
    assert!(
        learned.is_superset(&blocks),
        "the router has {learned:?}, the nodes {blocks:?}"
    );
    assert!(nodes_know_what_is_behind(&lab).unwrap());
    assert!(lab.ping("n1-p1", "tor1").await.unwrap() && lab.ping("tor1", "n1-p1").await.unwrap());

    // Cut off without a word: only the hold timer can tell (RFC 4271 section 6.5).
    let groups = (
        vec!["n1".to_owned(), "n2".to_owned(), "n3".to_owned()],
        vec!["tor1".to_owned()],
    );
    let cut = lab
        .break_it(Fault::Partition {
            left: groups.0,
            right: groups.1,
        })
        .await
        .unwrap();
    let limit = Duration::from_secs(HOLD + 3);
    lab.eventually(
        "routes of a silent router are gone by the hold time",
        limit,
        async || nodes_forgot(&lab),
    )
    .await
    .unwrap();
    let rest = lab.ping("n1-p1", "n2-p1").await.unwrap();
    assert!(rest, "the nodes lost each other, too");
    lab.heal(cut).await.unwrap();
    lab.eventually("routes are back", Duration::from_secs(60), async || {
        nodes_know_what_is_behind(&lab)
    })
    .await
    .unwrap();

    // Killed: the kernel closes its connections. A router that restarts gracefully keeps its routes in the nodes
    // meanwhile (RFC 4724), the others lose them at once.
    lab.kill("tor1").await.unwrap();
    if kind == Tor::Margay {
        let gone = lab
            .eventually("routes are gone", Duration::from_secs(3), async || {
                nodes_forgot(&lab)
            })
            .await;
        assert!(
            gone.is_err(),
            "the nodes did not wait for the router to come back"
        );
    } else {
        lab.eventually("routes of a dead router are gone", limit, async || {
            nodes_forgot(&lab)
        })
        .await
        .unwrap();
    }
    lab.start("tor1").await.unwrap();
    lab.eventually("routes are back", Duration::from_secs(60), async || {
        nodes_know_what_is_behind(&lab)
    })
    .await
    .unwrap();
    lab.converged(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bird_learns_every_block_and_its_routes_go_and_come_back_with_it() {
    Box::pin(a_router_learns_every_block_goes_and_comes_back(Tor::Bird)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frr_learns_every_block_and_its_routes_go_and_come_back_with_it() {
    Box::pin(a_router_learns_every_block_goes_and_comes_back(Tor::Frr)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gobgp_learns_every_block_and_its_routes_go_and_come_back_with_it() {
    Box::pin(a_router_learns_every_block_goes_and_comes_back(Tor::Gobgp)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn margay_as_router_learns_every_block_and_its_routes_go_and_come_back_with_it() {
    Box::pin(a_router_learns_every_block_goes_and_comes_back(Tor::Margay)).await;
}
