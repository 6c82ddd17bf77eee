//! Answers that need no conversion of their own.

use std::time::Instant;

use margay_crds::admin::{
    Addresses, Drift, DriftCounts, EndpointList, Ipam, ProblemList, SessionCounts, Status,
};

use super::peers::{peers, timestamp};
use super::view::View;

/// `GET /v1/status`.
pub(crate) async fn status(view: &View) -> Status {
    let bgp = view.bgp.load_full();
    let sessions = peers(&bgp).await;
    let health = view.health.parts(Instant::now());
    let not_ready: Vec<String> = health
        .iter()
        .filter(|part| !part.ready)
        .map(|part| format!("{}: {}", part.name, part.detail))
        .collect();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Status {
        node: view.node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: view.started.to_string(),
        ready: not_ready.is_empty(),
        not_ready,
        stale_since: None,
        addresses: Addresses {
            v4: bgp.addresses.v4.map(|address| address.net.to_string()),
            v6: bgp.addresses.v6.map(|address| address.net.to_string()),
        },
        as_number: bgp.plan.as_ref().map_or(0, |plan| plan.as_number),
        router_id: bgp.plan.as_ref().map(|plan| plan.router_id),
        sessions: SessionCounts {
            up: count(sessions.iter().filter(|peer| peer.is_established()).count()),
            total: count(sessions.len()),
        },
        ipam: view.ipam.status().counts,
        endpoints: count(view.endpoints.load().len()),
        drift: drift(view).await.counts,
        problems: count(view.problems.load().len()),
        health,
    }
}

/// `GET /v1/ipam`.
pub(crate) fn ipam(view: &View) -> Ipam {
    view.ipam.status()
}

/// `GET /v1/endpoints`.
pub(crate) fn endpoints(view: &View) -> EndpointList {
    EndpointList {
        node: view.node.clone(),
        endpoints: view.endpoints.load_full().as_ref().clone(),
    }
}

/// `GET /v1/drift`.
pub(crate) async fn drift(view: &View) -> Drift {
    let node = view.node.clone();
    let Ok(status) = view.dataplane.status().await else {
        return Drift {
            node,
            open: vec!["the dataplane has stopped".to_owned()],
            ..Drift::default()
        };
    };
    Drift {
        node,
        counts: DriftCounts {
            repaired: status.drift_repaired.values().sum(),
            contended: status.drift_contended,
            verified_at: status.verified_at.and_then(timestamp),
        },
        open: status
            .problems
            .iter()
            .map(|problem| format!("{}: {}", problem.subject, problem.message))
            .collect(),
        repaired_by_kind: status.drift_repaired,
    }
}

/// `GET /v1/problems`.
pub(crate) fn problems(view: &View) -> ProblemList {
    ProblemList {
        node: view.node.clone(),
        problems: view.problems.load_full().as_ref().clone(),
    }
}
