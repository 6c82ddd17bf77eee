//! One block in memory: who holds which address, and the changes that can be made to it.
//!
//! Nothing here reads a clock or writes to a store. A [`Block`] is always consistent: one that is not cannot be opened,
//! and no operation makes it so. Each write to the store carries the next sequence number ([`Block::to_write`]), and
//! each address remembers the number at which it was assigned, so that a release decided on older knowledge is refused.

mod check;
mod free;
mod take;
mod time;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use margay_crds::{AllocationAttribute, IPAMBlock, IPAMBlockSpec};

use crate::cidr::{block_len, nth_address, ordinal};
use crate::names::{block_name, clean_handle};

pub use check::{BlockFault, faults, repair};
pub use free::{Expected, ReleaseRefused, Released};
pub use time::{go_time, stored_time, wall};

/// Handle of the addresses Windows nodes keep back; they do not keep a block from being empty.
const WINDOWS_HANDLE: &str = "windows-reserved-ipam-handle";

/// Who a block belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A node, by name.
    Host(String),
    /// A cluster-wide owner, `load-balancer`.
    Virtual(String),
}

impl Owner {
    /// Reads `host:<node>` or `virtual:<name>`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':')?;
        match kind {
            "host" => Some(Owner::Host(name.to_owned())),
            "virtual" => Some(Owner::Virtual(name.to_owned())),
            _ => None,
        }
    }

    /// Name of the node or of the virtual owner.
    pub fn name(&self) -> &str {
        match self {
            Owner::Host(name) | Owner::Virtual(name) => name,
        }
    }

    /// `host` or `virtual`.
    pub fn kind(&self) -> &'static str {
        match self {
            Owner::Host(_) => "host",
            Owner::Virtual(_) => "virtual",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.name())
    }
}

/// State of one address.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Holder<'a> {
    /// Nobody holds it.
    Free,
    /// Released, and kept from being used again for a while. Nobody holds it, but it counts as in use.
    Cooling,
    /// Held.
    Held(&'a AllocationAttribute),
}

/// What an address is assigned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Handle the address is released by.
    pub handle: Option<String>,
    /// Attributes of the owner.
    pub attrs: BTreeMap<String, String>,
}

impl Claim {
    /// True when an entry of a block says the same.
    pub fn is(&self, entry: &AllocationAttribute) -> bool {
        entry.released_at.is_none()
            && entry.handle_id == self.handle
            && entry
                .secondary
                .as_ref()
                .map_or(self.attrs.is_empty(), |attrs| *attrs == self.attrs)
            && entry
                .alternate_owner_attrs
                .as_ref()
                .is_none_or(BTreeMap::is_empty)
    }

    fn entry(&self) -> AllocationAttribute {
        AllocationAttribute {
            handle_id: self.handle.clone(),
            secondary: Some(self.attrs.clone()),
            ..AllocationAttribute::default()
        }
    }
}

/// A consistent block.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    object: IPAMBlock,
    cidr: IpNet,
}

/// Why a block cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("block {name} is invalid: {}", describe(.faults))]
pub struct InvalidBlock {
    /// Name of the IPAMBlock.
    pub name: String,
    /// Everything that is wrong with it.
    pub faults: Vec<BlockFault>,
}

fn describe(faults: &[BlockFault]) -> String {
    faults
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

impl Block {
    /// A new block without assignments. The first sequence number is the wall clock in nanoseconds: a block that is
    /// deleted and created again never repeats numbers.
    pub fn new(cidr: IpNet, owner: &Owner, now: Timestamp) -> Self {
        let size = block_len(&cidr);
        let spec = IPAMBlockSpec {
            cidr: cidr.to_string(),
            affinity: Some(owner.to_string()),
            affinity_claim_time: Some(stored_time(now)),
            allocations: vec![None; size],
            unallocated: (0..size).map(|n| n as i64).collect(),
            deleted: Some(false),
            sequence_number: Some(i64::try_from(now.as_nanosecond()).unwrap_or(0)),
            sequence_number_for_allocation: Some(BTreeMap::new()),
            ..IPAMBlockSpec::default()
        };
        let mut object = IPAMBlock::new(&block_name(&cidr), spec);
        object.metadata = ObjectMeta {
            name: object.metadata.name,
            ..ObjectMeta::default()
        };
        Block { object, cidr }
    }

    /// A stored block, if it is consistent.
    ///
    /// # Errors
    /// Everything that is wrong with it. Such a block must not be allocated from.
    pub fn open(object: IPAMBlock) -> Result<Self, InvalidBlock> {
        let found = faults(&object.spec);
        match object.spec.cidr.parse::<IpNet>() {
            Ok(cidr) if found.is_empty() => Ok(Block {
                object,
                cidr: cidr.trunc(),
            }),
            _ => Err(InvalidBlock {
                name: object.name_any(),
                faults: found,
            }),
        }
    }

    /// The object as read or last written.
    pub fn object(&self) -> &IPAMBlock {
        &self.object
    }

    /// The object to write over the one that was read: one sequence number further.
    pub fn to_write(&self) -> IPAMBlock {
        let mut object = self.object.clone();
        object.spec.sequence_number = Some(self.sequence().wrapping_add(1));
        object.spec.strict_affinity = false;
        object
    }

    /// The network.
    pub fn cidr(&self) -> IpNet {
        self.cidr
    }

    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.object.spec.allocations.len()
    }

    /// Whether it belongs to somebody, and to whom.
    pub fn owner(&self) -> Option<Owner> {
        Owner::parse(self.object.spec.affinity.as_deref()?)
    }

    /// True when it belongs to this owner.
    pub fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owner().as_ref() == Some(owner)
    }

    /// Gives the block to an owner, or to nobody.
    pub fn set_owner(&mut self, owner: Option<&Owner>, now: Timestamp) {
        self.object.spec.affinity = owner.map(ToString::to_string);
        self.object.spec.affinity_claim_time = owner.map(|_| stored_time(now));
    }

    /// When the owner claimed it; blocks of old writers do not know, and count as claimed long ago.
    pub fn claimed_at(&self) -> Option<Timestamp> {
        wall(self.object.spec.affinity_claim_time.as_deref()?)
    }

    /// Number of the last write.
    pub fn sequence(&self) -> i64 {
        self.object.spec.sequence_number.unwrap_or(0)
    }

    /// Number of the write before the one that assigned this address; 0 when the block does not know.
    pub fn stamp(&self, ordinal: usize) -> i64 {
        let stamps = self.object.spec.sequence_number_for_allocation.as_ref();
        stamps
            .and_then(|stamps| stamps.get(&ordinal.to_string()))
            .copied()
            .unwrap_or(0)
    }

    fn set_stamp(&mut self, ordinal: usize) {
        let sequence = self.sequence();
        let stamps = self
            .object
            .spec
            .sequence_number_for_allocation
            .get_or_insert_default();
        stamps.insert(ordinal.to_string(), sequence);
    }

    /// Position of an address, when it lies in the block.
    pub fn ordinal(&self, ip: IpAddr) -> Option<usize> {
        ordinal(&self.cidr, ip)
    }

    /// The address at a position.
    pub fn address(&self, ordinal: usize) -> IpAddr {
        nth_address(&self.cidr, ordinal)
    }

    /// State of the address at a position.
    pub fn holder(&self, ordinal: usize) -> Holder<'_> {
        let Some(Some(index)) = self.object.spec.allocations.get(ordinal) else {
            return Holder::Free;
        };
        match usize::try_from(*index)
            .ok()
            .and_then(|i| self.object.spec.attributes.get(i))
        {
            Some(entry) if entry.released_at.is_some() => Holder::Cooling,
            Some(entry) => Holder::Held(entry),
            None => Holder::Free,
        }
    }

    /// All held addresses with their entries, in order.
    pub fn held(&self) -> impl Iterator<Item = (usize, &AllocationAttribute)> {
        (0..self.len()).filter_map(|n| match self.holder(n) {
            Holder::Held(entry) => Some((n, entry)),
            _ => None,
        })
    }

    /// Positions held under a handle, in order.
    pub fn held_by(&self, handle: &str) -> Vec<usize> {
        self.held()
            .filter(|(_, entry)| entry.handle_id.as_deref().map(clean_handle) == Some(handle))
            .map(|(n, _)| n)
            .collect()
    }

    /// Addresses nobody holds and that are not cooling.
    pub fn free_len(&self) -> usize {
        self.object.spec.unallocated.len()
    }

    /// Free positions, next to be used first.
    pub fn free(&self) -> impl Iterator<Item = usize> + '_ {
        self.object
            .spec
            .unallocated
            .iter()
            .filter_map(|n| usize::try_from(*n).ok())
    }

    /// True when no address is held or cooling. Addresses Windows keeps back do not count.
    pub fn is_empty(&self) -> bool {
        (0..self.len()).all(|n| match self.holder(n) {
            Holder::Free => true,
            Holder::Cooling => false,
            Holder::Held(entry) => is_windows(entry),
        })
    }

    /// True when `other` is another state of the same object, not one that was deleted and created again.
    pub fn same_object(&self, other: &Block) -> bool {
        self.object.metadata.uid == other.object.metadata.uid
    }
}

fn is_windows(entry: &AllocationAttribute) -> bool {
    entry
        .handle_id
        .as_deref()
        .is_some_and(|handle| handle.eq_ignore_ascii_case(WINDOWS_HANDLE))
}

#[cfg(test)]
mod tests;
