//! Attribute sets, each kept once. A table of a million routes has some ten thousand of them.

use std::sync::Arc;

use super::FastSet;
use crate::wire::Attributes;

const FIRST_SWEEP: usize = 1024;

/// Hands out one [`Arc`] per distinct attribute set: equal sets are the same pointer.
#[derive(Debug)]
pub(crate) struct Interner {
    sets: FastSet<Arc<Attributes>>,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Interner {
            sets: FastSet::default(),
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl Interner {
    /// The shared copy of an attribute set.
    pub(crate) fn intern(&mut self, attributes: Attributes) -> Arc<Attributes> {
        if let Some(known) = self.sets.get(&attributes) {
            return Arc::clone(known);
        }
        if self.sets.len() >= self.sweep_at {
            // Nobody else holds a set with one reference. Doubling makes the cost constant per set.
            self.sets.retain(|set| Arc::strong_count(set) > 1);
            self.sweep_at = (self.sets.len() * 2).max(FIRST_SWEEP);
        }
        let shared = Arc::new(attributes);
        self.sets.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn med(value: u32) -> Attributes {
        Attributes {
            med: Some(value),
            ..Attributes::default()
        }
    }

    #[test]
    fn equal_sets_are_one_and_unused_ones_go() {
        let mut interner = Interner::default();
        let kept = interner.intern(med(0));
        assert!(Arc::ptr_eq(&kept, &interner.intern(med(0))));
        for value in 1..10_000 {
            interner.intern(med(value));
        }
        assert!(interner.sets.len() <= FIRST_SWEEP);
        assert!(Arc::ptr_eq(&kept, &interner.intern(med(0))));
    }
}
