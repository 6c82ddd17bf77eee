//! The recent past of one resource, kept for watches.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Stored;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It appeared.
    Added,
    /// It changed.
    Modified,
    /// It went away; the event carries its last content.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// Revision of the change.
    pub revision: u64,
    /// What happened.
    pub change: Change,
    /// The object after the change (before it, for a removal, with the removal's revision).
    pub object: Arc<Stored>,
    /// The object before the change.
    pub previous: Option<Arc<Stored>>,
}

/// The asked revision is older than what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Bounded history in order of revision.
#[derive(Debug, Default)]
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    /// Events up to this revision may be missing.
    floor: u64,
}

impl Ring {
    pub(super) fn starting_at(floor: u64) -> Self {
        Self {
            events: VecDeque::new(),
            floor,
        }
    }

    pub(super) fn push(&mut self, event: Event, capacity: usize) {
        if self.events.len() >= capacity
            && let Some(dropped) = self.events.pop_front()
        {
            self.floor = dropped.revision;
        }
        self.events.push_back(Arc::new(event));
    }

    pub(super) fn after(
        &self,
        after: u64,
        max: usize,
        now: u64,
    ) -> Result<(Vec<Arc<Event>>, u64), Gone> {
        if after < self.floor {
            return Err(Gone);
        }
        let start = self.events.partition_point(|e| e.revision <= after);
        let events: Vec<_> = self.events.range(start..).take(max).cloned().collect();
        let complete = start + events.len() == self.events.len();
        let upto = match events.last() {
            Some(last) if !complete => last.revision,
            _ => now.max(after),
        };
        Ok((events, upto))
    }
}
