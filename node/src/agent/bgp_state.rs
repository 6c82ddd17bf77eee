//! Judging the BGP sessions: readiness, transitions worth an Event, end of recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use margay_bgp::{Family, PeerKey, PeerState, PeerStatus};

/// How long after the start every expected session has to be up; afterwards one is enough, so that a dead peer does
/// not make a whole mesh unready.
const STRICT: Duration = Duration::from_secs(30);

/// Stale routes of peers that have not come back are kept this long after the start.
pub(crate) const KEEP_STALE: Duration = Duration::from_secs(120);

/// Whether BGP is ready, in words when it is not. `before` are the peers that were up before a restart.
pub(crate) fn readiness(
    peers: &[PeerStatus],
    before: &BTreeSet<IpAddr>,
    running_for: Duration,
) -> Result<(), String> {
    let down: Vec<&PeerStatus> = peers.iter().filter(|peer| !peer.is_established()).collect();
    if down.is_empty() {
        return Ok(());
    }
    let names = |peers: &[&PeerStatus]| {
        peers
            .iter()
            .map(|peer| peer.key.address.to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    if running_for < STRICT {
        let known_down =
            |peer: &&&PeerStatus| !before.contains(&peer.key.address) && peer.last_error.is_some();
        let expected: Vec<&PeerStatus> = down
            .iter()
            .filter(|peer| !known_down(peer))
            .copied()
            .collect();
        return match expected.is_empty() {
            true if peers.len() > down.len() || before.is_empty() => Ok(()),
            true => Err(format!("BGP not established with {}", names(&down))),
            false => Err(format!("BGP not established with {}", names(&expected))),
        };
    }
    match peers.len() > down.len() {
        true => Ok(()),
        false => Err(format!("BGP not established with {}", names(&down))),
    }
}

/// A session that came up or went down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) up: bool,
    pub(crate) message: String,
}

/// Remembers which sessions were up, to notice changes.
#[derive(Debug, Default)]
pub(crate) struct Transitions {
    up: BTreeMap<PeerKey, bool>,
}

impl Transitions {
    /// Compares with the last look. A session that was never up is no transition; one that is no longer configured is
    /// forgotten.
    pub(crate) fn observe(&mut self, peers: &[PeerStatus]) -> Vec<Transition> {
        let mut transitions = Vec::new();
        let mut now = BTreeMap::new();
        for peer in peers {
            let up = peer.state == PeerState::Established;
            let was = self.up.get(&peer.key).copied().unwrap_or(false);
            if up && !was {
                transitions.push(Transition {
                    up,
                    message: format!("BGP session with {} ({}) is up", peer.name, peer.key),
                });
            } else if was && !up {
                let cause = peer.last_error.as_deref().unwrap_or("no error recorded");
                transitions.push(Transition {
                    up,
                    message: format!(
                        "BGP session with {} ({}) went down: {cause}",
                        peer.name, peer.key
                    ),
                });
            }
            now.insert(peer.key.clone(), up);
        }
        self.up = now;
        transitions
    }
}

/// Decides when routes of an earlier run that nobody has announced again may go.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    finished: bool,
    complete: BTreeSet<(PeerKey, Family)>,
    swept: bool,
}

impl Recovery {
    /// A peer has announced everything it has.
    pub(crate) fn end_of_rib(&mut self, peer: PeerKey, family: Family) {
        self.complete.insert((peer, family));
    }

    /// The speaker awaits nobody any more.
    pub(crate) fn finish(&mut self) {
        self.finished = true;
    }

    /// True once: when every peer that was up before has announced everything, or after [`KEEP_STALE`]. Without an
    /// earlier run there is nothing to keep, so the end of the speaker's own recovery is enough.
    pub(crate) fn sweep(&mut self, before: &BTreeSet<IpAddr>, running_for: Duration) -> bool {
        if self.swept || !self.finished {
            return false;
        }
        let back = |address: &IpAddr| {
            self.complete
                .iter()
                .any(|(peer, _)| peer.address == *address)
        };
        self.swept = before.iter().all(back) || running_for >= KEEP_STALE;
        self.swept
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use margay_bgp::{Families, FamilyCounters};

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn peer(last: u8, state: PeerState, error: Option<&str>) -> PeerStatus {
        PeerStatus {
            key: PeerKey::new(ip(last), 179),
            name: format!("n{last}"),
            remote_as: Some(64512),
            local_as: 64512,
            state,
            since: SystemTime::UNIX_EPOCH,
            in_state_for: Duration::ZERO,
            passive: false,
            local_address: None,
            router_id: None,
            negotiated: None,
            families: Families::IPV4,
            ipv4: FamilyCounters::default(),
            ipv6: FamilyCounters::default(),
            flaps: 0,
            messages_in: 0,
            messages_out: 0,
            treated_as_withdraw: 0,
            attributes_discarded: 0,
            last_error: error.map(str::to_owned),
            restart: None,
            password: false,
            ttl_security: None,
            pending: 0,
        }
    }

    #[test]
    fn readiness_is_strict_at_first_and_lenient_later() {
        use PeerState::{Active, Established};
        let early = Duration::from_secs(5);
        let late = Duration::from_secs(31);
        let none = BTreeSet::new();
        let before = BTreeSet::from([ip(2)]);
        let refused = Some("connection refused");
        for (peers, before, time, ready, why) in [
            (vec![], &none, early, true, "no peers"),
            (
                vec![peer(2, Established, None), peer(3, Active, None)],
                &none,
                early,
                false,
                "one not yet tried",
            ),
            (
                vec![peer(2, Established, None), peer(3, Active, refused)],
                &none,
                early,
                true,
                "known to be down",
            ),
            (
                vec![peer(2, Active, refused), peer(3, Established, None)],
                &before,
                early,
                false,
                "was up before",
            ),
            (
                vec![peer(2, Active, refused), peer(3, Established, None)],
                &before,
                late,
                true,
                "one is enough later",
            ),
            (
                vec![peer(2, Active, refused)],
                &none,
                late,
                false,
                "none is up",
            ),
        ] {
            assert_eq!(readiness(&peers, before, time).is_ok(), ready, "{why}");
        }
        let error = readiness(&[peer(2, Active, None)], &none, early).expect_err("down");
        assert_eq!(error, "BGP not established with 10.0.0.2");
    }

    #[test]
    fn transitions_are_told_once() {
        let mut transitions = Transitions::default();
        assert!(
            transitions
                .observe(&[peer(2, PeerState::Connect, None)])
                .is_empty()
        );
        assert!(transitions.observe(&[peer(2, PeerState::Established, None)])[0].up);
        assert!(
            transitions
                .observe(&[peer(2, PeerState::Established, None)])
                .is_empty()
        );
        let down = transitions.observe(&[peer(2, PeerState::Idle, Some("hold timer expired"))]);
        assert!(!down[0].up && down[0].message.contains("hold timer expired"));
        assert!(
            transitions.observe(&[]).is_empty(),
            "a removed peer is no failure"
        );
    }

    #[test]
    fn stale_routes_go_when_all_earlier_peers_are_back_or_time_is_up() {
        let before = BTreeSet::from([ip(2), ip(3)]);
        let mut recovery = Recovery::default();
        recovery.end_of_rib(PeerKey::new(ip(2), 179), Family::Ipv4);
        recovery.finish();
        assert!(
            !recovery.sweep(&before, Duration::from_secs(60)),
            "10.0.0.3 may still come back"
        );
        recovery.end_of_rib(PeerKey::new(ip(3), 179), Family::Ipv4);
        assert!(recovery.sweep(&before, Duration::from_secs(61)));
        assert!(
            !recovery.sweep(&before, Duration::from_secs(62)),
            "only once"
        );

        let mut absent = Recovery::default();
        absent.finish();
        assert!(absent.sweep(&before, KEEP_STALE));

        let mut fresh = Recovery::default();
        assert!(
            !fresh.sweep(&BTreeSet::new(), Duration::ZERO),
            "the speaker is still recovering"
        );
        fresh.finish();
        assert!(fresh.sweep(&BTreeSet::new(), Duration::ZERO));
    }
}
