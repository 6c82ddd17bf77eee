//! Metrics of sessions and problems.

use std::collections::{BTreeMap, BTreeSet};

use margay_bgp::{Family, FamilyCounters, PeerState, PeerStatus};
use margay_felix::calc::sessions::SessionPlan;
use metrics::{Label, counter, gauge};

/// Metrics of the sessions there were and are.
#[derive(Debug, Default)]
pub(crate) struct SessionMetrics {
    /// Label sets in use: a session that is no longer configured goes to state 0.
    known: BTreeSet<Vec<Label>>,
}

impl SessionMetrics {
    /// Sets the metrics of every session.
    pub(crate) fn record(&mut self, peers: &[PeerStatus], plan: Option<&SessionPlan>) {
        let mut current = BTreeSet::new();
        for peer in peers {
            let mut sessions = plan.iter().flat_map(|plan| &plan.sessions);
            let session = sessions.find(|session| session.remote == peer.key.address);
            let kind = session.map_or("global", |session| {
                crate::admin::peer_type_name(session.kind)
            });
            for family in peer.families.iter() {
                let labels = labels(peer, kind, family);
                record_session(peer, family, &labels);
                current.insert(labels);
            }
        }
        for gone in self.known.difference(&current) {
            gauge!("margay_bgp_session_state", gone.clone()).set(0.0);
            record_prefixes(gone, &FamilyCounters::default());
        }
        self.known = current;
    }
}

fn record_session(peer: &PeerStatus, family: Family, labels: &[Label]) {
    let labels = || labels.to_vec();
    gauge!("margay_bgp_session_state", labels()).set(state_index(peer.state));
    counter!("margay_bgp_session_flaps_total", labels()).absolute(peer.flaps);
    counter!("margay_bgp_treat_as_withdraw_total", labels()).absolute(peer.treated_as_withdraw);
    counter!("margay_bgp_attribute_discard_total", labels()).absolute(peer.attributes_discarded);
    record_prefixes(&labels(), peer.counters(family));
}

fn record_prefixes(labels: &[Label], counters: &FamilyCounters) {
    for (kind, value) in [
        ("received", counters.received),
        ("accepted", counters.accepted),
        (
            "filtered",
            counters.received.saturating_sub(counters.accepted),
        ),
        ("advertised", counters.advertised),
    ] {
        let mut labels = labels.to_vec();
        labels.push(Label::new("kind", kind));
        gauge!("margay_bgp_prefixes", labels).set(to_f64(value));
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

/// 1 to 6 in the order of the state machine; 0 is a session that is no longer configured.
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
