//! Agents go and come back; traffic between existing pods does not notice.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use margay_lab::probe::{Ping, PingReport};
use margay_lab::{Lab, Tor};
use margay_tests::{SOON, up};
use std::time::Duration;

/// Between two packets.
const INTERVAL: Duration = Duration::from_millis(10);

/// Pings between all pods and the router in all directions, until stopped.
fn traffic(lab: &Lab) -> Vec<Ping> {
    let names: Vec<String> = lab
        .endpoints()
        .unwrap()
        .into_iter()
        .map(|e| e.name)
        .collect();
    let pairs = names
        .iter()
        .flat_map(|a| names.iter().filter(move |b| *b != a).map(move |b| (a, b)));
    pairs
        .map(|(from, to)| lab.ping_stream(from, to, INTERVAL).unwrap())
        .collect()
}

fn assert_nothing_lost(streams: Vec<Ping>) {
    let reports: Vec<PingReport> = streams.into_iter().map(|s| s.stop().unwrap()).collect();
    let sent: u64 = reports.iter().map(|r| r.sent).sum();
    let lossy: Vec<&PingReport> = reports.iter().filter(|r| r.lost() > 0).collect();
    assert!(sent > 100, "only {sent} packets were sent");
    assert!(lossy.is_empty(), "of {sent} packets: {lossy:#?}");
}

async fn an_agent_may_be_killed_and_started_again(tor: Option<Tor>) {
    let lab = up(Lab::builder().nodes(3).tor(tor)).await;
    let routes = lab.kernel_routes("n2").unwrap();
    let streams = traffic(&lab);
    lab.kill_agent(2).await.unwrap();
    // While it is away everything stays: on the node and on its peers.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lab.kernel_routes("n2").unwrap(), routes);
    lab.start_agent(2).await.unwrap();
    lab.converged(SOON).await.unwrap();
    // The peers' clean-up after the restart is part of it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_nothing_lost(streams);
    let mut after = lab.kernel_routes("n2").unwrap();
    let mut before = routes;
    let key =
        |r: &margay_lab::cluster::KernelRoute| (r.destination.to_string(), r.protocol.clone());
    after.sort_by_key(key);
    before.sort_by_key(key);
    assert_eq!(after, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_and_restarted_loses_no_ping_in_the_mesh() {
    Box::pin(an_agent_may_be_killed_and_started_again(None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_and_restarted_loses_no_ping_beside_bird() {
    Box::pin(an_agent_may_be_killed_and_started_again(Some(Tor::Bird))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_and_restarted_loses_no_ping_beside_frr() {
    Box::pin(an_agent_may_be_killed_and_started_again(Some(Tor::Frr))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_killed_and_restarted_loses_no_ping_beside_gobgp() {
    Box::pin(an_agent_may_be_killed_and_started_again(Some(Tor::Gobgp))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_stopped_and_restarted_loses_no_ping() {
    let lab = up(Lab::builder().nodes(2).tor(Tor::Bird)).await;
    let streams = traffic(&lab);
    lab.terminate("n1").await.unwrap();
    lab.start("n1").await.unwrap();
    lab.converged(SOON).await.unwrap();
    assert_nothing_lost(streams);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_killed_and_restarted_loses_no_object_and_no_ping() {
    let lab = up(Lab::builder().nodes(2)).await;
    let streams = traffic(&lab);
    let pods = || async {
        let api: kube::Api<k8s_openapi::api::core::v1::Pod> =
            kube::Api::namespaced(lab.kube(), "default");
        api.list(&kube::api::ListParams::default())
            .await
            .map(|l| l.items.len())
    };
    let before = pods().await.unwrap();
    lab.kill("apiserver").await.unwrap();
    lab.start("apiserver").await.unwrap();
    lab.eventually("the API answers as before", SOON, async || {
        Ok(pods().await.is_ok_and(|n| n == before))
    })
    .await
    .unwrap();
    lab.add_pod(&margay_lab::cluster::PodRequest::on("n1"))
        .await
        .unwrap();
    lab.converged(SOON).await.unwrap();
    assert_nothing_lost(streams);
}
