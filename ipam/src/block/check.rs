//! What makes a block valid, and how an invalid one is put right.

use std::collections::BTreeSet;
use std::fmt;

use ipnet::IpNet;
use margay_crds::IPAMBlockSpec;

use crate::cidr::block_len;

/// One thing wrong with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockFault {
    /// `cidr` is not a network of at most 4096 addresses.
    Cidr(String),
    /// `allocations` has not one entry per address.
    Length {
        /// Entries found.
        found: usize,
        /// Addresses of the block.
        size: usize,
    },
    /// An allocation points to no attribute.
    Reference {
        /// Position of the address.
        ordinal: usize,
        /// The index it has.
        index: i64,
    },
    /// No allocation points to this attribute.
    Unreferenced(usize),
    /// `unallocated` names a position twice, or one that does not exist, or one that is allocated.
    Queue(i64),
    /// A position is neither allocated nor in `unallocated`.
    Missing(usize),
}

impl fmt::Display for BlockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockFault::Cidr(text) => write!(f, "spec.cidr {text:?} is not a block"),
            BlockFault::Length { found, size } => {
                write!(
                    f,
                    "spec.allocations has {found} entries for {size} addresses"
                )
            }
            BlockFault::Reference { ordinal, index } => {
                write!(
                    f,
                    "spec.allocations[{ordinal}] refers to attribute {index}, which is absent"
                )
            }
            BlockFault::Unreferenced(index) => {
                write!(f, "spec.attributes[{index}] belongs to no address")
            }
            BlockFault::Queue(ordinal) => {
                write!(
                    f,
                    "spec.unallocated has {ordinal} twice, out of range or allocated"
                )
            }
            BlockFault::Missing(ordinal) => {
                write!(
                    f,
                    "address {ordinal} is neither allocated nor in spec.unallocated"
                )
            }
        }
    }
}

/// Everything wrong with a block; empty for a valid one.
pub fn faults(spec: &IPAMBlockSpec) -> Vec<BlockFault> {
    let size = match spec.cidr.parse::<IpNet>().map(|cidr| block_len(&cidr)) {
        Ok(size) if size <= 4096 => size,
        _ => return vec![BlockFault::Cidr(spec.cidr.clone())],
    };
    if spec.allocations.len() != size {
        return vec![BlockFault::Length {
            found: spec.allocations.len(),
            size,
        }];
    }
    let mut found = Vec::new();
    let mut referenced = vec![false; spec.attributes.len()];
    for (ordinal, index) in spec.allocations.iter().enumerate() {
        let Some(index) = index else { continue };
        match usize::try_from(*index)
            .ok()
            .and_then(|i| referenced.get_mut(i))
        {
            Some(seen) => *seen = true,
            None => found.push(BlockFault::Reference {
                ordinal,
                index: *index,
            }),
        }
    }
    let unused = referenced.iter().enumerate().filter(|(_, seen)| !**seen);
    found.extend(unused.map(|(index, _)| BlockFault::Unreferenced(index)));
    let mut queued = BTreeSet::new();
    for ordinal in &spec.unallocated {
        let free = usize::try_from(*ordinal)
            .ok()
            .and_then(|n| spec.allocations.get(n));
        if free != Some(&None) || !queued.insert(*ordinal) {
            found.push(BlockFault::Queue(*ordinal));
        }
    }
    let lost = spec
        .allocations
        .iter()
        .enumerate()
        .filter(|(n, index)| index.is_none() && !queued.contains(&(*n as i64)));
    found.extend(lost.map(|(n, _)| BlockFault::Missing(n)));
    found
}

/// Puts a block right: allocations that refer to nothing become free, the queue keeps its order and gets the missing
/// positions at its end. A block whose `cidr` is not one is left alone. Returns true when something changed.
pub fn repair(spec: &mut IPAMBlockSpec) -> bool {
    let Ok(size) = spec.cidr.parse::<IpNet>().map(|cidr| block_len(&cidr)) else {
        return false;
    };
    if size > 4096 || faults(spec).is_empty() {
        return false;
    }
    spec.allocations.resize(size, None);
    let known = spec.attributes.len();
    for index in &mut spec.allocations {
        if index.is_some_and(|i| usize::try_from(i).map_or(true, |i| i >= known)) {
            *index = None;
        }
    }
    let mut queued = BTreeSet::new();
    let allocations = &spec.allocations;
    let free = |n: i64| {
        usize::try_from(n)
            .ok()
            .and_then(|n| allocations.get(n))
            .is_some_and(Option::is_none)
    };
    spec.unallocated.retain(|n| free(*n) && queued.insert(*n));
    let missing = (0..size as i64).filter(|n| free(*n) && !queued.contains(n));
    spec.unallocated.extend(missing);
    drop_unreferenced(spec);
    true
}

/// Drops attributes no address refers to and renumbers the rest in order.
pub(super) fn drop_unreferenced(spec: &mut IPAMBlockSpec) {
    let mut place: Vec<Option<i64>> = vec![None; spec.attributes.len()];
    let used = spec.allocations.iter().flatten();
    let used: BTreeSet<usize> = used
        .filter_map(|index| usize::try_from(*index).ok())
        .collect();
    let mut index = 0;
    spec.attributes = std::mem::take(&mut spec.attributes)
        .into_iter()
        .enumerate()
        .filter_map(|(old, entry)| {
            used.contains(&old).then(|| {
                place[old] = Some(index);
                index += 1;
                entry
            })
        })
        .collect();
    for index in spec.allocations.iter_mut() {
        *index = index.and_then(|i| place.get(usize::try_from(i).ok()?).copied().flatten());
    }
    let held: Vec<bool> = spec.allocations.iter().map(Option::is_some).collect();
    if let Some(stamps) = spec.sequence_number_for_allocation.as_mut() {
        stamps.retain(|n, _| n.parse::<usize>().ok().and_then(|n| held.get(n)) == Some(&true));
    }
}
