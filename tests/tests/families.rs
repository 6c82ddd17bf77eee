//! IPv4 only, IPv6 only, dual stack.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use margay_lab::{Families, Lab, Tor};
use margay_tests::{destinations_via, node_addresses, up};
use std::net::IpAddr;

async fn everybody_reaches_everybody(families: Families, tor: Tor) {
    let lab = up(Lab::builder().nodes(3).tor(tor).families(families)).await;
    let addresses: Vec<IpAddr> = lab
        .pods()
        .unwrap()
        .into_iter()
        .flat_map(|p| p.addresses)
        .collect();
    let (v4, v6): (Vec<&IpAddr>, Vec<&IpAddr>) = addresses.iter().partition(|ip| ip.is_ipv4());
    assert_eq!(v4.len(), if families.v4() { 3 } else { 0 }, "{addresses:?}");
    assert_eq!(v6.len(), if families.v6() { 3 } else { 0 }, "{addresses:?}");
    let learned = destinations_via(&lab, "tor1", &node_addresses(&lab).unwrap()).unwrap();
    let blocks = lab.blocks().await.unwrap();
    assert!(
        !blocks.is_empty() && learned.is_superset(&blocks),
        "the router has {learned:?}, the nodes {blocks:?}"
    );
    let matrix = lab
        .matrix(std::time::Duration::from_millis(500))
        .await
        .unwrap();
    let pairs = 4 * 3 * (usize::from(families.v4()) + usize::from(families.v6()));
    assert_eq!((matrix.reachable(), matrix.pairs.len()), (pairs, pairs));
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_alone() {
    Box::pin(everybody_reaches_everybody(Families::V4, Tor::Margay)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_alone() {
    Box::pin(everybody_reaches_everybody(Families::V6, Tor::Bird)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_and_ipv6_together_beside_bird() {
    Box::pin(everybody_reaches_everybody(Families::Dual, Tor::Bird)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_and_ipv6_together_beside_frr() {
    Box::pin(everybody_reaches_everybody(Families::Dual, Tor::Frr)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_and_ipv6_together_beside_gobgp() {
    Box::pin(everybody_reaches_everybody(Families::Dual, Tor::Gobgp)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_and_ipv6_together_beside_margay() {
    Box::pin(everybody_reaches_everybody(Families::Dual, Tor::Margay)).await;
}
