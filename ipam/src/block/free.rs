//! Releasing addresses of a block, and the time they cool down.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use margay_crds::AllocationAttribute;

use super::check::drop_unreferenced;
use super::{Block, Holder, stored_time, wall};
use crate::names::clean_handle;

/// What the caller of a release knows about an address; absent parts are not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// Handle it is held under.
    pub handle: Option<String>,
    /// Stamp of its assignment.
    pub stamp: Option<i64>,
}

/// Why a release was refused. Nothing is changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseRefused {
    /// The address was assigned anew since the caller looked.
    #[error(
        "address {ordinal} has been assigned again (sequence number {found}, expected {expected})"
    )]
    Stamp {
        /// Position.
        ordinal: usize,
        /// Stamp in the block.
        found: i64,
        /// Stamp the caller knew.
        expected: i64,
    },
    /// The address is held under another handle.
    #[error("address {ordinal} is held under another handle than {expected}")]
    Handle {
        /// Position.
        ordinal: usize,
        /// Handle the caller knew.
        expected: String,
    },
}

/// Result of a release.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// Positions that were held and are released.
    pub released: Vec<usize>,
    /// Positions that were free or cooling already.
    pub unallocated: Vec<usize>,
    /// How many addresses each handle lost.
    pub by_handle: BTreeMap<String, i64>,
}

impl Block {
    /// Releases addresses. Naming one twice is the same as naming it once.
    ///
    /// # Errors
    /// One of them is not what the caller expects; then none is released.
    pub fn release(
        &mut self,
        addresses: &BTreeMap<usize, Expected>,
        cooldown: SignedDuration,
        now: Timestamp,
    ) -> Result<Released, ReleaseRefused> {
        let mut result = Released::default();
        for (ordinal, expected) in addresses {
            let found = self.stamp(*ordinal);
            if let Some(expected) = expected.stamp.filter(|stamp| *stamp != found) {
                return Err(ReleaseRefused::Stamp {
                    ordinal: *ordinal,
                    found,
                    expected,
                });
            }
            let Holder::Held(entry) = self.holder(*ordinal) else {
                result.unallocated.push(*ordinal);
                continue;
            };
            let handle = entry.handle_id.as_deref().map(clean_handle);
            if let Some(expected) = expected.handle.as_deref().filter(|h| Some(*h) != handle) {
                let expected = expected.to_owned();
                return Err(ReleaseRefused::Handle {
                    ordinal: *ordinal,
                    expected,
                });
            }
            if let Some(handle) = handle {
                *result.by_handle.entry(handle.to_owned()).or_default() += 1;
            }
            result.released.push(*ordinal);
        }
        for ordinal in &result.released {
            self.cool(*ordinal, now);
            self.set_stamp(*ordinal);
        }
        self.normalise(cooldown, now);
        Ok(result)
    }

    /// Releases everything held under a handle. The stamps stay, so a cooling address keeps the one of its assignment.
    pub fn release_handle(
        &mut self,
        handle: &str,
        cooldown: SignedDuration,
        now: Timestamp,
    ) -> Vec<usize> {
        let ordinals = self.held_by(handle);
        for ordinal in &ordinals {
            self.cool(*ordinal, now);
        }
        self.normalise(cooldown, now);
        ordinals
    }

    /// Frees addresses at once; they go to the end of the queue in the given order.
    pub fn free_at_once(&mut self, ordinals: &[usize]) {
        for ordinal in ordinals {
            self.set_free(*ordinal);
        }
        self.tidy();
    }

    /// Frees the addresses whose time has passed (all of them when `cooldown` is zero), lowest first, and drops entries
    /// nobody refers to. Returns true when something changed.
    pub fn normalise(&mut self, cooldown: SignedDuration, now: Timestamp) -> bool {
        let limit = now.checked_sub(cooldown).unwrap_or(Timestamp::MIN);
        let cold = |entry: &AllocationAttribute| {
            entry.released_at.as_deref().is_some_and(|text| {
                cooldown <= SignedDuration::ZERO || wall(text).is_none_or(|at| at < limit)
            })
        };
        let ordinals: Vec<usize> = (0..self.len())
            .filter(|n| self.entry(*n).is_some_and(cold))
            .collect();
        for ordinal in &ordinals {
            self.set_free(*ordinal);
        }
        let before = self.object.spec.attributes.len();
        self.tidy();
        !ordinals.is_empty() || self.object.spec.attributes.len() != before
    }

    /// When the first of the cooling addresses was released.
    pub fn coldest(&self) -> Option<Timestamp> {
        let entries = self.object.spec.attributes.iter();
        entries
            .filter_map(|entry| wall(entry.released_at.as_deref()?))
            .min()
    }

    fn entry(&self, ordinal: usize) -> Option<&AllocationAttribute> {
        let index = (*self.object.spec.allocations.get(ordinal)?)?;
        self.object
            .spec
            .attributes
            .get(usize::try_from(index).ok()?)
    }

    fn cool(&mut self, ordinal: usize, now: Timestamp) {
        let at = stored_time(now);
        let cooling = AllocationAttribute {
            released_at: Some(at),
            ..AllocationAttribute::default()
        };
        let index = self.index_of(|entry| *entry == cooling, || cooling.clone());
        self.object.spec.allocations[ordinal] = Some(index);
    }

    fn set_free(&mut self, ordinal: usize) {
        if self
            .object
            .spec
            .allocations
            .get(ordinal)
            .is_some_and(Option::is_some)
        {
            self.object.spec.allocations[ordinal] = None;
            self.object.spec.unallocated.push(ordinal as i64);
        }
    }

    pub(super) fn tidy(&mut self) {
        drop_unreferenced(&mut self.object.spec);
    }
}
