//! Pools as the allocator sees them, and what may be wrong with one.

mod choose;
mod verdict;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use kube::ResourceExt;
use margay_crds::selector::Selector;
use margay_crds::{AllowedUse, IPPool};

use crate::cidr::{Family, overlaps};

pub use choose::{ChoiceError, PoolRequest};
pub use verdict::{Verdict, verdicts};

/// A pool that can be understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Pool {
    /// Name of the IPPool.
    pub name: String,
    /// Its range.
    pub cidr: IpNet,
    /// Prefix length of its blocks.
    pub block_size: u8,
    /// What its addresses may be used for.
    pub uses: Vec<AllowedUse>,
    /// Whether it serves requests that name no pool.
    pub automatic: bool,
    /// Nodes that may use it.
    pub node_selector: Selector,
    /// Namespaces whose pods may use it.
    pub namespace_selector: Selector,
}

/// What is wrong with a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFault {
    /// The field, as it is written in manifests.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong with the value.
    pub reason: String,
}

impl fmt::Display for PoolFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}: {}", self.field, self.value, self.reason)
    }
}

impl Pool {
    /// Reads a pool.
    ///
    /// # Errors
    /// The first field that makes it unusable.
    pub fn parse(object: &IPPool) -> Result<Self, PoolFault> {
        let spec = &object.spec;
        let cidr = range(&spec.cidr)?;
        let block_size = block_size(object, &cidr)?;
        Ok(Pool {
            name: object.name_any(),
            cidr,
            block_size,
            uses: spec.effective_allowed_uses(),
            automatic: spec.is_automatic(),
            node_selector: selector("spec.nodeSelector", spec.node_selector.as_deref())?,
            namespace_selector: selector(
                "spec.namespaceSelector",
                spec.namespace_selector.as_deref(),
            )?,
        })
    }

    /// Address family.
    pub fn family(&self) -> Family {
        Family::of_net(&self.cidr)
    }

    /// True when its addresses may be used so.
    pub fn allows(&self, wanted: &AllowedUse) -> bool {
        self.uses.contains(wanted)
    }

    /// Number of blocks, as a power of two.
    pub fn block_bits(&self) -> u32 {
        u32::from(self.block_size.saturating_sub(self.cidr.prefix_len()))
    }

    /// Number of addresses, as a power of two.
    pub fn address_bits(&self) -> u32 {
        u32::from(self.family().bits() - self.cidr.prefix_len())
    }
}

/// Reads the range of a pool.
fn range(text: &str) -> Result<IpNet, PoolFault> {
    let fault = |reason: &str| PoolFault {
        field: "spec.cidr",
        value: text.to_owned(),
        reason: reason.to_owned(),
    };
    let cidr: IpNet = text
        .parse()
        .map_err(|_| fault("not a network in CIDR notation"))?;
    if cidr.network() != cidr.addr() {
        return Err(fault("IPPool CIDR must be strictly masked"));
    }
    if overlaps(&cidr, &LINK_LOCAL_V4) {
        return Err(fault(
            "IPPool CIDR overlaps with IPv4 link local range 169.254.0.0/16",
        ));
    }
    if overlaps(&cidr, &LINK_LOCAL_V6) {
        return Err(fault(
            "IPPool CIDR overlaps with IPv6 link local range fe80::/10",
        ));
    }
    if cidr.to_string().starts_with(':') {
        return Err(fault("blocks of this range have no valid object name"));
    }
    Ok(cidr)
}

const LINK_LOCAL_V4: IpNet = IpNet::V4(ipnet::Ipv4Net::new_assert(
    std::net::Ipv4Addr::new(169, 254, 0, 0),
    16,
));
const LINK_LOCAL_V6: IpNet = IpNet::V6(ipnet::Ipv6Net::new_assert(
    std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0),
    10,
));

fn block_size(object: &IPPool, cidr: &IpNet) -> Result<u8, PoolFault> {
    let size = object.spec.effective_block_size();
    let fault = |reason: &str| PoolFault {
        field: "spec.blockSize",
        value: object
            .spec
            .block_size
            .map_or_else(|| size.to_string(), |size| size.to_string()),
        reason: reason.to_owned(),
    };
    let written = object.spec.block_size.unwrap_or(0);
    let sizes = match Family::of_net(cidr) {
        Family::V4 => 20..=32,
        Family::V6 => 116..=128,
    };
    if (written != 0 && u8::try_from(written).is_err()) || !sizes.contains(&size) {
        return Err(fault(
            "blockSize must be between 20 and 32 for IPv4 pools, and between 116 and 128 for IPv6 pools",
        ));
    }
    if cidr.prefix_len() > size && object.spec.disabled != Some(true) {
        return Err(fault(
            "IP pool size is too small for use with Calico IPAM. It must be equal to or greater than the block size.",
        ));
    }
    Ok(size)
}

fn selector(field: &'static str, text: Option<&str>) -> Result<Selector, PoolFault> {
    let text = text.unwrap_or_default();
    let fault = |reason: String| PoolFault {
        field,
        value: text.to_owned(),
        reason,
    };
    let selector = Selector::parse(text).map_err(|error| fault(error.to_string()))?;
    if selector.mentions_global() {
        return Err(fault("global() is not valid here".into()));
    }
    Ok(selector)
}

/// All pools of a cluster, judged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pools {
    /// Pools new addresses may come from, by name.
    usable: BTreeMap<String, Pool>,
    /// Ranges of all pools that can be understood, usable or not, by name.
    ranges: BTreeMap<String, IpNet>,
    /// Judgement of each pool, by name.
    verdicts: BTreeMap<String, Verdict>,
}

impl Pools {
    /// Judges all pools together. A pool that is invalid or overlaps an older one is never used, whether or not the
    /// controller has said so in its status already.
    pub fn new(objects: &[IPPool]) -> Self {
        let verdicts = verdicts(objects);
        let mut pools = Pools::default();
        for object in objects {
            let name = object.name_any();
            if let Ok(cidr) = range(&object.spec.cidr) {
                pools.ranges.insert(name.clone(), cidr);
            }
            let good = verdicts.get(&name) == Some(&Verdict::Allocatable);
            if let Some(pool) = Pool::parse(object)
                .ok()
                .filter(|_| good && object.allocatable() != Some(false))
            {
                pools.usable.insert(name, pool);
            }
        }
        pools.verdicts = verdicts;
        pools
    }

    /// Pools new addresses may come from, by name.
    pub fn usable(&self) -> impl Iterator<Item = &Pool> {
        self.usable.values()
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&Pool> {
        self.usable.get(name)
    }

    /// The usable pool an address lies in.
    pub fn containing(&self, ip: IpAddr) -> Option<&Pool> {
        self.usable().find(|pool| pool.cidr.contains(&ip))
    }

    /// The usable pool a block lies in.
    pub fn of_block(&self, block: &IpNet) -> Option<&Pool> {
        self.usable().find(|pool| pool.cidr.contains(block))
    }

    /// Name of the pool, usable or not, a block lies in.
    pub fn name_of_block(&self, block: &IpNet) -> Option<&str> {
        let usable = self.of_block(block).map(|pool| pool.name.as_str());
        let any = || self.ranges.iter().find(|(_, range)| range.contains(block));
        usable.or_else(|| any().map(|(name, _)| name.as_str()))
    }

    /// Pools that cannot be used because of what is written in them, with the reason.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &Verdict)> {
        self.verdicts
            .iter()
            .filter(|(_, v)| matches!(v, Verdict::Invalid(_) | Verdict::Overlap(_)))
            .map(|(name, verdict)| (name.as_str(), verdict))
    }
}

#[cfg(test)]
mod tests;
