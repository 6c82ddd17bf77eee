//! What one peer has been told in one family, and what it has still to be told.
//!
//! A prefix waits at most once however often it changes: a slow peer costs memory by prefixes, not
//! by changes, and always gets the latest state.

use std::sync::Arc;

use ipnet::IpNet;

use super::{FastMap, FastSet};
use crate::wire::Attributes;

/// Adj-RIB-Out of one peer and family.
#[derive(Debug, Default)]
pub(crate) struct AdjOut {
    sent: FastMap<IpNet, Arc<Attributes>>,
    waiting: FastSet<IpNet>,
    queue: Vec<IpNet>,
}

impl AdjOut {
    /// Forgets everything: the session is gone.
    pub(crate) fn clear(&mut self) {
        *self = AdjOut::default();
    }

    /// Puts a prefix in the queue.
    pub(crate) fn mark(&mut self, prefix: IpNet) {
        if self.waiting.insert(prefix) {
            self.queue.push(prefix);
        }
    }

    /// Prefixes waiting.
    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Takes up to `count` prefixes off the queue.
    pub(crate) fn take(&mut self, count: usize) -> Vec<IpNet> {
        let at = self.queue.len().saturating_sub(count);
        let taken = self.queue.split_off(at);
        for prefix in &taken {
            self.waiting.remove(prefix);
        }
        taken
    }

    /// Number of prefixes the peer holds from this speaker.
    pub(crate) fn advertised(&self) -> usize {
        self.sent.len()
    }

    /// What the peer was told about a prefix.
    pub(crate) fn get(&self, prefix: &IpNet) -> Option<&Arc<Attributes>> {
        self.sent.get(prefix)
    }

    /// Records an announcement; false when the peer knows it already.
    pub(crate) fn announce(&mut self, prefix: IpNet, attributes: &Arc<Attributes>) -> bool {
        match self.sent.insert(prefix, Arc::clone(attributes)) {
            Some(old) => !Arc::ptr_eq(&old, attributes),
            None => true,
        }
    }

    /// Records a withdrawal; false when the peer does not have the prefix.
    pub(crate) fn withdraw(&mut self, prefix: &IpNet) -> bool {
        self.sent.remove(prefix).is_some()
    }

    /// Forgets that a prefix was sent, so that it is sent again (RFC 2918), and queues it.
    pub(crate) fn resend_all(&mut self) {
        let prefixes: Vec<IpNet> = self.sent.keys().copied().collect();
        for prefix in prefixes {
            // A prefix that can no longer be exported must still be withdrawn: a refresh replaces
            // the attributes by a value that is equal to none.
            self.sent.insert(prefix, Arc::new(Attributes::default()));
            self.mark(prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_waits_once_and_is_sent_only_when_it_differs() {
        let mut out = AdjOut::default();
        let prefix = "10.0.0.0/8".parse().unwrap();
        let attributes = Arc::new(Attributes::default());
        out.mark(prefix);
        out.mark(prefix);
        assert_eq!(out.pending(), 1);
        assert_eq!(out.take(10), [prefix]);
        assert!(out.announce(prefix, &attributes));
        assert!(!out.announce(prefix, &attributes));
        out.resend_all();
        assert_eq!(out.pending(), 1);
        assert!(out.announce(prefix, &attributes));
        assert!(out.withdraw(&prefix));
        assert!(!out.withdraw(&prefix));
    }
}
