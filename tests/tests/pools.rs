//! Pools that change while pods run.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use margay_crds::IPPool;
use margay_crds::admin::ProblemList;
use margay_lab::cluster::PodRequest;
use margay_lab::probe::send_datagram;
use margay_lab::{Lab, Result, Tor};
use margay_tests::{SOON, destinations_via, node_addresses, text_of, up};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;

/// Source address a datagram of a pod has when it arrives behind the router.
fn source_seen_by_router(lab: &Lab, pod: &str) -> Result<Option<IpAddr>> {
    let router = lab.endpoint("tor1")?;
    let receiver = lab.receiver("tor1", router.addresses[0])?;
    let pod = lab.endpoint(pod)?;
    send_datagram(&pod.netns, pod.addresses[0], receiver.address()?)?;
    Ok(receiver
        .next_source(Duration::from_millis(300))?
        .map(|s| s.ip()))
}

async fn set_nat_outgoing(lab: &Lab, on: bool) {
    let pools: Api<IPPool> = Api::all(lab.kube());
    let patch = Patch::Merge(json!({"spec": {"natOutgoing": on}}));
    pools
        .patch("default-ipv4-ippool", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nat_outgoing_decides_live_which_source_address_the_router_sees() {
    let lab = up(Lab::builder().nodes(1).tor(Tor::Bird)).await;
    let pod = lab.endpoint("n1-p1").unwrap().addresses[0];
    let node = lab.node_addresses("n1").unwrap()[0];
    for (on, expected) in [(true, node), (false, pod), (true, node)] {
        set_nat_outgoing(&lab, on).await;
        let what = format!("with natOutgoing {on} the router sees {expected}");
        lab.eventually(&what, SOON, async || {
            Ok(source_seen_by_router(&lab, "n1-p1")? == Some(expected))
        })
        .await
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_pool_applied_live_is_used_by_new_pods_and_reaches_the_router() {
    let lab = up(Lab::builder().nodes(2).tor(Tor::Bird)).await;
    lab.apply(&text_of("examples/pools/second-pool.yaml"))
        .await
        .unwrap();
    let pool: IpNet = "10.89.0.0/16".parse().unwrap();
    let mut pods = Vec::new();
    for node in ["n1", "n2"] {
        let request = PodRequest::on(node).from_pool("second-pool");
        // The agent learns of the pool by its watch.
        lab.eventually("the new pool is used", SOON, async || {
            let pod = lab.add_pod(&request).await?;
            assert!(pool.contains(&pod.addresses[0]), "{pod:?}");
            Ok(true)
        })
        .await
        .unwrap();
        pods.extend(lab.pods().unwrap().into_iter().next_back());
    }
    lab.converged(SOON).await.unwrap();
    let learned = destinations_via(&lab, "tor1", &node_addresses(&lab).unwrap()).unwrap();
    let from_pool = learned
        .iter()
        .filter(|d| d.parse::<IpNet>().is_ok_and(|d| pool.contains(&d)))
        .count();
    assert_eq!(from_pool, 2, "{learned:?}");
    // The second pool does not translate, the first one does.
    let seen = source_seen_by_router(&lab, &pods[0].name).unwrap();
    assert_eq!(seen, Some(pods[0].addresses[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_pod_is_gone_and_its_address_is_no_longer_reachable() {
    let lab = up(Lab::builder().nodes(2)).await;
    let pod = lab.add_pod(&PodRequest::on("n1")).await.unwrap();
    lab.converged(SOON).await.unwrap();
    lab.remove_pod(&pod.name).await.unwrap();
    let routes = lab.kernel_routes("n1").unwrap();
    assert!(
        !routes
            .iter()
            .any(|r| r.destination.addr() == pod.addresses[0] && r.kind == "unicast"),
        "{routes:?}"
    );
    lab.converged(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlapping_pool_is_never_used_and_its_condition_and_an_event_say_why() {
    let lab = up(Lab::builder().nodes(1)).await;
    let overlap = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "overlap"},
        "spec": {"cidr": "10.88.4.0/22", "nodeSelector": "all()"}});
    lab.apply(&overlap.to_string()).await.unwrap();
    let pools: Api<IPPool> = Api::all(lab.kube());
    lab.eventually("the condition says CIDROverlap", SOON, async || {
        let pool = serde_json::to_value(pools.get("overlap").await.unwrap()).unwrap();
        let conditions = pool["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        Ok(conditions.iter().any(|c| {
            c["type"] == "Allocatable" && c["status"] == "False" && c["reason"] == "CIDROverlap"
        }))
    })
    .await
    .unwrap();
    let refused = lab
        .add_pod(&PodRequest::on("n1").from_pool("overlap"))
        .await;
    assert!(refused.is_err(), "{refused:?}");
    lab.eventually("an Event about the pool", SOON, async || {
        Ok(!events_about(&lab, "IPPool", "overlap").await.is_empty())
    })
    .await
    .unwrap();
    lab.add_pod(&PodRequest::on("n1")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_tunnel_the_kernel_lacks_is_reported_by_name_and_other_pools_go_on() {
    let kernel_has_ipip = has_ipip();
    let pools = [
        text_of("examples/pools/default-ipv4-ippool.yaml"),
        text_of("examples/pools/second-pool.yaml"),
    ];
    let lab = up(pools
        .into_iter()
        .fold(Lab::builder().nodes(2).pods_per_node(0), |b, p| b.pools(p)))
    .await;
    if kernel_has_ipip {
        let problems: ProblemList = lab.ask_agent("n1", "/v1/problems").await.unwrap();
        assert!(problems.problems.is_empty(), "{problems:?}");
    } else {
        lab.eventually("the agent names the missing module", SOON, async || {
            let problems: ProblemList = lab.ask_agent("n1", "/v1/problems").await?;
            Ok(problems
                .problems
                .iter()
                .any(|p| p.reason == "DataplaneFeatureMissing" && p.message.contains("ipip")))
        })
        .await
        .unwrap();
        lab.eventually("an Event names the missing module", SOON, async || {
            let events: Api<Event> = Api::all(lab.kube());
            let list = events.list(&ListParams::default()).await.unwrap();
            let named = |e: &Event| {
                e.reason.as_deref() == Some("DataplaneFeatureMissing")
                    && e.message.as_deref().is_some_and(|m| m.contains("ipip"))
            };
            Ok(list.items.iter().any(named))
        })
        .await
        .unwrap();
    }
    for node in ["n1", "n2"] {
        lab.add_pod(&PodRequest::on(node).from_pool("second-pool"))
            .await
            .unwrap();
    }
    lab.eventually(
        "pods of the other pool reach each other",
        SOON,
        async || lab.ping("n1-p1", "n2-p1").await,
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_get_an_address_shows_the_reason_in_a_condition_and_an_event() {
    let lab = up(Lab::builder().nodes(1)).await;
    let error = lab
        .add_pod(&PodRequest::on("n1").from_pool("no-such-pool"))
        .await
        .unwrap_err();
    assert!(error.why.contains("no-such-pool"), "{error}");
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(lab.kube(), "default");
    let pod = serde_json::to_value(pods.get("n1-p2").await.unwrap()).unwrap();
    assert_eq!(pod["status"]["phase"], "Pending");
    let text = pod["status"]["conditions"].to_string();
    assert!(
        text.contains("FailedCreatePodSandBox") && text.contains("no-such-pool"),
        "{text}"
    );
    let events = events_about(&lab, "Pod", "n1-p2").await;
    assert!(
        events.iter().any(|m| m.contains("no-such-pool")),
        "{events:?}"
    );
    assert!(
        !std::path::Path::new("/run/netns")
            .join(lab.name().netns("n1-p2"))
            .exists()
    );
}

async fn events_about(lab: &Lab, kind: &str, name: &str) -> Vec<String> {
    let events: Api<Event> = Api::all(lab.kube());
    let list = events.list(&ListParams::default()).await.unwrap();
    let about = |e: &Event| {
        e.involved_object.kind.as_deref() == Some(kind)
            && e.involved_object.name.as_deref() == Some(name)
    };
    list.items
        .into_iter()
        .filter(about)
        .filter_map(|e| e.message)
        .collect()
}

/// Whether this kernel can make ipip devices, tried in a namespace of its own.
fn has_ipip() -> bool {
    let made = std::process::Command::new("unshare")
        .args(["-n", "ip", "link", "add", "t0", "type", "ipip"])
        .output();
    made.expect("unshare and ip are installed").status.success()
}
