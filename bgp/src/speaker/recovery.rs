//! This speaker's own restart (RFC 4724 section 4.1): learned routes are passed on, and End-of-RIB
//! is sent, only when nobody is awaited any more. Routes are taken in and handed to the forwarding
//! table all the time, and local routes leave at once.

use std::time::{Duration, Instant};

use super::Speaker;
use super::core::slot;
use crate::{Family, RecoveryEvent, RestartState};

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// No peers have been configured yet.
    Starting,
    /// Peers are awaited.
    Recovering {
        latest: Instant,
        after_session: Duration,
        last_session: Option<Instant>,
    },
    Finished,
}

/// Progress of recovery.
#[derive(Debug)]
pub(super) struct Recovery {
    restarted: bool,
    phase: Phase,
}

impl Recovery {
    pub(super) fn new(state: RestartState) -> Self {
        Recovery {
            restarted: state.restarted,
            phase: Phase::Starting,
        }
    }

    /// R bit of an OPEN.
    pub(super) fn is_restarting(&self) -> bool {
        self.restarted && !matches!(self.phase, Phase::Finished)
    }

    /// True once learned routes may leave and End-of-RIB may be sent.
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished)
    }

    /// True from the first configuration of peers on, until finished.
    pub(super) fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovering { .. })
    }

    /// Peers are known: waiting begins, if there is anything to recover. Returns true when this is
    /// the first time.
    pub(super) fn begin(&mut self, latest: Instant, after_session: Duration) -> bool {
        let first = matches!(self.phase, Phase::Starting);
        if first {
            self.phase = Phase::Recovering {
                latest,
                after_session,
                last_session: None,
            };
        }
        first
    }

    /// True when routes of an earlier run have to be recovered.
    pub(super) fn has_restarted(&self) -> bool {
        self.restarted
    }

    /// A session came up.
    pub(super) fn session_up(&mut self, now: Instant) {
        if let Phase::Recovering { last_session, .. } = &mut self.phase {
            *last_session = Some(now);
        }
    }

    /// When waiting ends at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Recovering {
                latest,
                after_session,
                last_session,
            } => Some(last_session.map_or(latest, |at| latest.min(at + after_session))),
            _ => None,
        }
    }
}

impl Speaker {
    /// Ends recovery when it is time.
    pub(super) fn check_recovery(&mut self, now: Instant) {
        let Some(deadline) = self.core.recovery.deadline() else {
            return;
        };
        let awaited = self.peers.values().any(|peer| !peer.awaited.is_empty());
        if awaited && now < deadline {
            return;
        }
        self.core.recovery.phase = Phase::Finished;
        self.core.events.push(RecoveryEvent::Finished);
        if self.core.recovery.restarted {
            tracing::info!(timed_out = awaited, "BGP recovery finished");
        }
        for (id, peer) in &mut self.peers {
            let Some(families) = peer.established_families() else {
                continue;
            };
            for family in Family::ALL.into_iter().filter(|f| families.contains(*f)) {
                let out = &mut peer.out[slot(family)];
                self.core
                    .table
                    .selected_prefixes(family)
                    .for_each(|prefix| out.mark(prefix));
            }
            self.core.busy.insert(*id);
        }
    }
}
