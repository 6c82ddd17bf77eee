//! The parts of the agent share this.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::contact::Contact;
use super::state::State;
use crate::block::Owner;
use crate::request::{AssignError, AssignErrorKind, OwnBlock};
use crate::store::Store;

/// Where the agent gets the time of day from.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    simulated: Option<(Timestamp, tokio::time::Instant)>,
}

impl Clock {
    /// The clock of the host.
    pub fn real() -> Self {
        Clock::default()
    }

    /// A clock that shows `start` now and then follows tokio's clock, which tests can stop and move.
    pub fn simulated(start: Timestamp) -> Self {
        Clock {
            simulated: Some((start, tokio::time::Instant::now())),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        match self.simulated {
            None => Timestamp::now(),
            Some((start, origin)) => {
                let elapsed = jiff::SignedDuration::try_from(origin.elapsed()).unwrap_or_default();
                start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

/// Everything the agent's tasks share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) store: Arc<dyn Store>,
    pub(super) contact: Contact,
    pub(super) clock: Clock,
    /// Held by whoever writes: one write at a time per node.
    pub(super) writer: tokio::sync::Mutex<()>,
    /// Wakes the task that writes.
    pub(super) wake: Notify,
    /// Asks for everything to be read anew, because the Node object is gone or another one.
    pub(super) reread: Notify,
    pub(super) own: watch::Sender<Vec<OwnBlock>>,
    pub(super) synced: watch::Sender<bool>,
    state: Mutex<State>,
}

impl Core {
    pub(super) fn new(store: Arc<dyn Store>, contact: Contact, clock: Clock, state: State) -> Self {
        Core {
            store,
            contact,
            clock,
            writer: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            reread: Notify::new(),
            own: watch::Sender::new(Vec::new()),
            synced: watch::Sender::new(false),
            state: Mutex::new(state),
        }
    }

    /// The state. Never held across an await.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Each change of the state is complete before anything that can panic runs.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn owner(&self) -> Owner {
        self.lock().owner.clone()
    }

    /// Tells whoever watches which blocks are this node's.
    pub(super) fn publish(&self) {
        let blocks = self.lock().own_blocks();
        self.own.send_if_modified(|current| {
            let changed = *current != blocks;
            *current = blocks;
            changed
        });
    }

    /// Refuses assignments while they would not be safe.
    pub(super) fn gate(&self, state: &State) -> Result<(), AssignError> {
        if !state.synced {
            return Err(AssignError::new(
                AssignErrorKind::NotSynced,
                "address management has not read the cluster's pools and blocks yet",
            ));
        }
        if state.node_lost {
            return Err(AssignError::new(
                AssignErrorKind::Fenced,
                format!(
                    "Node {} has been deleted; its addresses may be given to others",
                    state.node
                ),
            ));
        }
        let silence = self.contact.silence();
        if silence > state.settings.fence {
            return Err(AssignError::new(
                AssignErrorKind::Fenced,
                format!(
                    "no contact to the API server for {} s; the addresses of this node may be given to others",
                    silence.as_secs()
                ),
            ));
        }
        if state.locked {
            return Err(AssignError::new(
                AssignErrorKind::Locked,
                "Calico is currently not ready to process requests",
            ));
        }
        Ok(())
    }
}
