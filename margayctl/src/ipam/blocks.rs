//! What one block says about its addresses.

use ipnet::IpNet;
use margay_crds::{AllocationAttribute, IPAMBlock};
use std::net::IpAddr;

/// Handles of addresses a node keeps ready for its next pods begin with this.
const WARM_HANDLE: &str = "margay-warm.";

/// A block with its range parsed.
#[derive(Debug)]
pub(super) struct BlockView<'a> {
    /// The range.
    pub(super) cidr: IpNet,
    block: &'a IPAMBlock,
}

/// One allocated address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocated<'a> {
    /// The address.
    pub(super) ip: IpAddr,
    /// Who holds it; `None` when the block's index is out of range.
    pub(super) holder: Option<&'a AllocationAttribute>,
}

impl Allocated<'_> {
    /// Kept ready by a node, not given to anybody yet.
    pub(super) fn is_warm(&self) -> bool {
        self.holder
            .and_then(|h| h.handle_id.as_deref())
            .is_some_and(|h| h.starts_with(WARM_HANDLE))
    }

    /// A `secondary` attribute of the holder.
    pub(super) fn attribute(&self, key: &str) -> Option<&str> {
        self.holder?
            .secondary
            .as_ref()?
            .get(key)
            .map(String::as_str)
    }

    /// The pod, or what else the address is for.
    pub(super) fn purpose(&self) -> String {
        match (
            self.attribute("namespace"),
            self.attribute("pod"),
            self.attribute("type"),
        ) {
            (Some(namespace), Some(pod), _) => format!("{namespace}/{pod}"),
            (_, _, Some(kind)) => kind.to_owned(),
            _ => self
                .holder
                .and_then(|h| h.handle_id.clone())
                .unwrap_or_default(),
        }
    }
}

impl<'a> BlockView<'a> {
    /// Views a block; `None` when its range cannot be parsed.
    pub(super) fn new(block: &'a IPAMBlock) -> Option<Self> {
        Some(Self {
            cidr: block.spec.cidr.parse().ok()?,
            block,
        })
    }

    /// The node that owns the block.
    pub(super) fn owner(&self) -> Option<&str> {
        self.block.spec.affinity.as_deref()?.strip_prefix("host:")
    }

    /// Number of addresses.
    pub(super) fn size(&self) -> u128 {
        size(&self.cidr)
    }

    /// Every allocated address, in order.
    pub(super) fn allocated(&self) -> impl Iterator<Item = Allocated<'a>> + '_ {
        let block = self.block;
        block
            .spec
            .allocations
            .iter()
            .enumerate()
            .filter_map(move |(ordinal, index)| {
                let index = usize::try_from((*index)?).ok();
                let holder = index.and_then(|i| block.spec.attributes.get(i));
                Some(Allocated {
                    ip: address_at(&self.cidr, ordinal as u128),
                    holder,
                })
            })
    }

    /// Every address nobody holds.
    pub(super) fn free(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let allocations = &self.block.spec.allocations;
        allocations
            .iter()
            .enumerate()
            .filter(|(_, a)| a.is_none())
            .map(|(i, _)| address_at(&self.cidr, i as u128))
    }
}

/// Number of addresses in a range.
pub(super) fn size(net: &IpNet) -> u128 {
    let bits = u32::from(net.max_prefix_len() - net.prefix_len());
    1_u128.checked_shl(bits).unwrap_or(u128::MAX)
}

fn address_at(net: &IpNet, ordinal: u128) -> IpAddr {
    match net {
        IpNet::V4(net) => {
            let base = u32::from(net.network());
            IpAddr::V4(
                base.wrapping_add(u32::try_from(ordinal).unwrap_or(u32::MAX))
                    .into(),
            )
        }
        IpNet::V6(net) => IpAddr::V6(u128::from(net.network()).wrapping_add(ordinal).into()),
    }
}
