//! Metrics of sessions and problems.

use std::collections::BTreeMap;

use margay_bgp::{Family, PeerState, PeerStatus};
use margay_felix::calc::sessions::SessionPlan;
use metrics::{Label, counter, gauge};

/// Sets the gauges of every session.
pub(crate) fn record(peers: &[PeerStatus], plan: Option<&SessionPlan>) {
    for peer in peers {
        let session = plan.and_then(|plan| {
            plan.sessions
                .iter()
                .find(|session| session.remote == peer.key.address)
        });
        let kind = session.map_or("global", |session| {
            crate::admin::peer_type_name(session.kind)
        });
        for family in peer.families.iter() {
            let labels = labels(peer, kind, family);
            gauge!("margay_bgp_session_state", labels.clone()).set(state_index(peer.state));
            counter!("margay_bgp_session_flaps_total", labels.clone()).absolute(peer.flaps);
            counter!("margay_bgp_treat_as_withdraw_total", labels.clone())
                .absolute(peer.treated_as_withdraw);
            counter!("margay_bgp_attribute_discard_total", labels.clone())
                .absolute(peer.attributes_discarded);
            let counters = peer.counters(family);
            for (kind, value) in [
                ("received", counters.received),
                ("accepted", counters.accepted),
                (
                    "filtered",
                    counters.received.saturating_sub(counters.accepted),
                ),
                ("advertised", counters.advertised),
            ] {
                let mut labels = labels.clone();
                labels.push(Label::new("kind", kind));
                gauge!("margay_bgp_prefixes", labels).set(to_f64(value));
            }
        }
    }
}

fn labels(peer: &PeerStatus, kind: &'static str, family: Family) -> Vec<Label> {
    vec![
        Label::new("peer", peer.key.address.to_string()),
        Label::new("port", peer.key.port.to_string()),
        Label::new("name", peer.name.clone()),
        Label::new("type", kind),
        Label::new("family", family.to_string()),
        Label::new("peer_asn", peer.remote_as.unwrap_or(0).to_string()),
    ]
}

/// 1 to 6 in the order of the state machine, 0 for a state it does not have.
fn state_index(state: PeerState) -> f64 {
    match state {
        PeerState::Idle => 1.0,
        PeerState::Connect => 2.0,
        PeerState::Active => 3.0,
        PeerState::OpenSent => 4.0,
        PeerState::OpenConfirm => 5.0,
        PeerState::Established => 6.0,
    }
}

/// Sets the number of open problems by kind and reason.
pub(crate) fn record_problems(counts: &BTreeMap<(String, String), u64>) {
    for ((kind, reason), count) in counts {
        let labels = vec![
            Label::new("kind", kind.clone()),
            Label::new("reason", reason.clone()),
        ];
        gauge!("margay_problem", labels).set(to_f64(*count));
    }
}

#[allow(clippy::cast_precision_loss)] // Counts stay far below 2^52.
fn to_f64(value: u64) -> f64 {
    value as f64
}
