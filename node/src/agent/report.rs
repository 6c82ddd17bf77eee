//! What the agent writes about itself to the API: the NodeReport and the NetworkUnavailable condition.

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use margay_crds::{
    NodeReport, NodeReportStatus, ReportAddresses, ReportDrift, ReportIpam, ReportProblem,
    ReportSession, ReportSessions, admin,
};
use serde_json::json;
use tokio::sync::watch;

/// Not more often than this.
const AT_LEAST_APART: Duration = Duration::from_secs(10);
/// Written again after this time though nothing changed.
const AT_MOST_APART: Duration = Duration::from_secs(300);
/// Longest lists of a report.
const MAX_PROBLEMS: usize = 100;
const MAX_DOWN: usize = 64;
const MAX_EXTERNAL: usize = 256;

/// Everything a report is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) status: admin::Status,
    pub(crate) peers: Vec<admin::Peer>,
    pub(crate) problems: Vec<admin::Problem>,
}

/// Builds the status of a NodeReport, without its time.
pub(crate) fn status_of(snapshot: &Snapshot) -> NodeReportStatus {
    let status = &snapshot.status;
    let down: Vec<ReportSession> = snapshot
        .peers
        .iter()
        .filter(|peer| !peer.is_established())
        .map(session)
        .collect();
    let external: Vec<ReportSession> = snapshot
        .peers
        .iter()
        .filter(|peer| peer.peer_as != peer.local_as)
        .map(session)
        .collect();
    let truncated = snapshot.problems.len() > MAX_PROBLEMS
        || down.len() > MAX_DOWN
        || external.len() > MAX_EXTERNAL;
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    NodeReportStatus {
        addresses: Some(ReportAddresses {
            v4: status.addresses.v4.clone(),
            v6: status.addresses.v6.clone(),
        }),
        api_level: Some(super::API_LEVEL.to_owned()),
        as_number: Some(status.as_number),
        drift: Some(ReportDrift {
            contended: count(status.drift.contended),
            repaired: count(status.drift.repaired),
            verified_at: status.drift.verified_at.clone(),
        }),
        ipam: Some(ReportIpam {
            blocks: count(status.ipam.blocks),
            borrowed: count(status.ipam.borrowed),
            reserved: count(status.ipam.reserved),
            used: count(status.ipam.used),
        }),
        observed_at: None,
        problems: snapshot
            .problems
            .iter()
            .take(MAX_PROBLEMS)
            .map(problem)
            .collect(),
        ready: status.ready,
        router_id: status.router_id.map(|id| id.to_string()),
        sessions: Some(ReportSessions {
            total: count(status.sessions.total),
            up: count(status.sessions.up),
            not_established: down.into_iter().take(MAX_DOWN).collect(),
            external: external.into_iter().take(MAX_EXTERNAL).collect(),
        }),
        stale: status.stale_since.is_some(),
        truncated,
        version: Some(status.version.clone()),
    }
}

fn session(peer: &admin::Peer) -> ReportSession {
    ReportSession {
        last_error: peer.last_error.clone(),
        name: peer.name.clone(),
        peer: peer.peer.to_string(),
        port: i32::from(peer.port),
        since: peer.since.clone(),
        state: peer.state.clone(),
        kind: peer.kind.as_str().to_owned(),
    }
}

fn problem(problem: &admin::Problem) -> ReportProblem {
    let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    ReportProblem {
        field: some(&problem.field),
        kind: problem.kind.clone(),
        message: problem.message.clone(),
        name: problem.name.clone(),
        namespace: some(&problem.namespace),
        reason: problem.reason.clone(),
        since: problem.since.clone(),
        problem_type: None,
    }
}

/// What is compared to decide whether a report is worth writing: counters that always move are left out.
fn essence(status: &NodeReportStatus) -> NodeReportStatus {
    let mut status = status.clone();
    if let Some(drift) = &mut status.drift {
        drift.verified_at = None;
    }
    status
}

/// Writes reports as the snapshots change, until the sender is gone.
pub(crate) async fn run(client: Client, node: String, mut snapshots: watch::Receiver<Snapshot>) {
    let reports: Api<NodeReport> = Api::all(client);
    let mut written: Option<NodeReportStatus> = None;
    let mut absent = false;
    loop {
        let status = status_of(&snapshots.borrow_and_update());
        if status
            .version
            .as_deref()
            .is_some_and(|version| !version.is_empty())
        {
            match write(&reports, &node, &status).await {
                Ok(()) => {
                    written = Some(essence(&status));
                    absent = false;
                }
                Err(error) if !absent => {
                    absent = true;
                    tracing::warn!(error = format!("{error:#}"), "NodeReport not written");
                }
                Err(_) => {}
            }
        }
        tokio::time::sleep(AT_LEAST_APART).await;
        let deadline = tokio::time::sleep(AT_MOST_APART - AT_LEAST_APART);
        tokio::pin!(deadline);
        loop {
            if written.as_ref() != Some(&essence(&status_of(&snapshots.borrow_and_update()))) {
                break;
            }
            tokio::select! {
                () = &mut deadline => break,
                changed = snapshots.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// Creates the report if it is missing and patches its status.
async fn write(
    reports: &Api<NodeReport>,
    node: &str,
    status: &NodeReportStatus,
) -> anyhow::Result<()> {
    let mut body = serde_json::to_value(status)?;
    body["observedAt"] = json!(Timestamp::now().to_string());
    // A merge patch keeps lists and fields that are absent: name those that can become empty.
    for key in ["problems"] {
        if body.get(key).is_none() {
            body[key] = json!([]);
        }
    }
    for key in ["notEstablished", "external"] {
        if body["sessions"].get(key).is_none() {
            body["sessions"][key] = json!([]);
        }
    }
    let patch = Patch::Merge(json!({"status": body}));
    match reports
        .patch_status(node, &PatchParams::default(), &patch)
        .await
    {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(error)) if error.code == 404 => {}
        Err(error) => return Err(error).context("cannot write the status"),
    }
    let mut report = NodeReport::new(node, margay_crds::NodeReportSpec::default());
    report.metadata.owner_references = owner(reports, node).await.map(|owner| vec![owner]);
    match reports.create(&PostParams::default(), &report).await {
        Err(kube::Error::Api(error)) if error.code == 409 => {}
        other => {
            other.context("cannot create it (are Margay's CRDs installed?)")?;
        }
    }
    reports
        .patch_status(node, &PatchParams::default(), &patch)
        .await
        .context("cannot write the status")?;
    Ok(())
}

/// The Node as owner, so that the report goes with it.
async fn owner(
    reports: &Api<NodeReport>,
    node: &str,
) -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference> {
    let nodes: Api<Node> = Api::all(reports.clone().into_client());
    let object = nodes.get_opt(node).await.ok()??;
    Some(
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            api_version: "v1".into(),
            kind: "Node".into(),
            name: object.name_any(),
            uid: object.uid()?,
            ..Default::default()
        },
    )
}

/// Sets the NetworkUnavailable condition of the Node.
///
/// # Errors
/// The API server refuses it or does not answer.
pub(crate) async fn set_network_available(
    client: &Client,
    node: &str,
    available: bool,
) -> anyhow::Result<()> {
    let now = Timestamp::now().to_string();
    let (status, reason, message) = match available {
        true => ("False", "MargayIsUp", "Margay is running on this node"),
        false => (
            "True",
            "MargayIsDown",
            "Margay is shutting down on this node",
        ),
    };
    let body = json!({"status": {"conditions": [{
        "type": "NetworkUnavailable", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}});
    Api::<Node>::all(client.clone())
        .patch_status(node, &PatchParams::default(), &Patch::Strategic(body))
        .await
        .with_context(|| format!("cannot set NetworkUnavailable of Node {node}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(index: u8, state: &str, peer_as: u32) -> admin::Peer {
        serde_json::from_value(
            json!({"peer": format!("10.0.0.{index}"), "port": 179, "name": "x", "type": "mesh",
            "peerAs": peer_as, "localAs": 64512, "state": state}),
        )
        .expect("a peer")
    }

    #[test]
    fn sessions_worth_a_look_are_listed_and_cut() {
        let mut peers: Vec<admin::Peer> =
            (0..70).map(|index| peer(index, "Active", 64512)).collect();
        peers.push(peer(200, "Established", 65000));
        let status = status_of(&Snapshot {
            peers,
            ..Snapshot::default()
        });
        let sessions = status.sessions.expect("sessions");
        assert_eq!(sessions.not_established.len(), MAX_DOWN);
        assert_eq!(sessions.external.len(), 1);
        assert!(status.truncated);
    }

    #[test]
    fn a_full_check_alone_is_no_news() {
        let mut snapshot = Snapshot::default();
        let before = essence(&status_of(&snapshot));
        snapshot.status.drift.verified_at = Some("2026-01-01T00:00:00Z".into());
        assert_eq!(essence(&status_of(&snapshot)), before);
        snapshot.status.drift.repaired = 1;
        assert_ne!(essence(&status_of(&snapshot)), before);
    }
}
