//! Assigning addresses of a block.

use margay_crds::AllocationAttribute;

use super::{Block, Claim, Holder};
use crate::reservation::Reservations;

impl Block {
    /// Free addresses that automatic assignment may use.
    pub fn usable_len(&self, reserved: &Reservations) -> usize {
        if !reserved.touches(&self.cidr) {
            return self.free_len();
        }
        self.free()
            .filter(|n| !reserved.contains(self.address(*n)))
            .count()
    }

    /// Assigns up to `count` addresses in queue order. Reserved ones are passed over and keep their place in the queue.
    /// Returns their positions.
    pub fn take(&mut self, count: usize, claim: &Claim, reserved: &Reservations) -> Vec<usize> {
        let touched = reserved.touches(&self.cidr);
        let chosen: Vec<usize> = self
            .free()
            .filter(|n| !touched || !reserved.contains(self.address(*n)))
            .take(count)
            .collect();
        for ordinal in &chosen {
            self.assign(*ordinal, claim);
        }
        chosen
    }

    /// Assigns one address. Returns false when it is held or cooling.
    pub fn take_one(&mut self, ordinal: usize, claim: &Claim) -> bool {
        if ordinal >= self.len() || self.holder(ordinal) != Holder::Free {
            return false;
        }
        self.assign(ordinal, claim);
        true
    }

    /// Passes a held address on to another owner, with a new stamp.
    pub fn relabel(&mut self, ordinal: usize, claim: &Claim) {
        if ordinal < self.len() {
            self.assign(ordinal, claim);
            self.tidy();
        }
    }

    fn assign(&mut self, ordinal: usize, claim: &Claim) {
        let index = self.entry_of(claim);
        let spec = &mut self.object.spec;
        spec.allocations[ordinal] = Some(index);
        spec.unallocated.retain(|n| *n != ordinal as i64);
        self.set_stamp(ordinal);
    }

    /// Index of the entry for an owner, added when there is none.
    fn entry_of(&mut self, claim: &Claim) -> i64 {
        self.index_of(|entry| claim.is(entry), || claim.entry())
    }

    pub(super) fn index_of(
        &mut self,
        is: impl Fn(&AllocationAttribute) -> bool,
        new: impl FnOnce() -> AllocationAttribute,
    ) -> i64 {
        let entries = &mut self.object.spec.attributes;
        let index = entries.iter().position(is).unwrap_or_else(|| {
            entries.push(new());
            entries.len() - 1
        });
        index as i64
    }
}
