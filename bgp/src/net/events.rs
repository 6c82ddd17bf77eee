//! Route changes on their way to the forwarding table.
//!
//! The newest state of a prefix replaces an older one not yet taken, so a slow consumer costs
//! memory by prefixes, not by changes, and never holds up the speaker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use tokio::sync::Notify;

use crate::{RecoveryEvent, RouteBatch, RouteChange, RoutePath};

#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<Pending>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    changes: BTreeMap<IpNet, Vec<RoutePath>>,
    recovery: Vec<RecoveryEvent>,
    closed: bool,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut Pending) -> T) -> T {
        // No code panics while the lock is held; if one did, the map would still be whole.
        act(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The consuming end.
#[derive(Debug)]
pub struct RouteEvents(Arc<Shared>);

/// The producing end.
#[derive(Debug)]
pub(super) struct RouteSink(Arc<Shared>);

pub(super) fn channel() -> (RouteSink, RouteEvents) {
    let shared = Arc::new(Shared::default());
    (RouteSink(Arc::clone(&shared)), RouteEvents(shared))
}

impl RouteEvents {
    /// Waits for the next batch; `None` once the speaker has stopped and everything was taken.
    pub async fn next(&mut self) -> Option<RouteBatch> {
        loop {
            let filled = self.0.filled.notified();
            let (batch, closed) = self.0.with(|pending| {
                let changes = std::mem::take(&mut pending.changes).into_iter();
                let batch = RouteBatch {
                    changes: changes
                        .map(|(prefix, paths)| RouteChange { prefix, paths })
                        .collect(),
                    recovery: std::mem::take(&mut pending.recovery),
                };
                (batch, pending.closed)
            });
            if !batch.changes.is_empty() || !batch.recovery.is_empty() {
                return Some(batch);
            }
            if closed {
                return None;
            }
            filled.await;
        }
    }
}

impl RouteSink {
    pub(super) fn push(
        &self,
        changes: impl IntoIterator<Item = RouteChange>,
        recovery: impl IntoIterator<Item = RecoveryEvent>,
    ) {
        self.0.with(|pending| {
            for change in changes {
                pending.changes.insert(change.prefix, change.paths);
            }
            pending.recovery.extend(recovery);
        });
        self.0.filled.notify_one();
    }
}

impl Drop for RouteSink {
    fn drop(&mut self) {
        self.0.with(|pending| pending.closed = true);
        self.0.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(prefix: &str) -> RouteChange {
        RouteChange {
            prefix: prefix.parse().unwrap(),
            paths: Vec::new(),
        }
    }

    #[tokio::test]
    async fn only_the_newest_state_of_a_prefix_is_delivered_and_the_end_is_seen() {
        let (sink, mut events) = channel();
        sink.push([change("10.0.0.0/8"), change("10.0.0.0/8")], []);
        sink.push([change("9.0.0.0/8")], [RecoveryEvent::Finished]);
        drop(sink);
        let batch = events.next().await.unwrap();
        let prefixes: Vec<String> = batch.changes.iter().map(|c| c.prefix.to_string()).collect();
        assert_eq!(prefixes, ["9.0.0.0/8", "10.0.0.0/8"]);
        assert_eq!(batch.recovery, vec![RecoveryEvent::Finished]);
        assert_eq!(events.next().await, None);
    }
}
