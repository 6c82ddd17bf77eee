//! What callers ask for and what they get.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use margay_crds::AllowedUse;

use crate::cidr::Family;
use crate::pool::ChoiceError;
use crate::store::StoreError;

/// Attribute with the name of the node an address is used on. Every assignment carries it.
pub const ATTR_NODE: &str = "node";
/// Attribute with the name of the pod.
pub const ATTR_POD: &str = "pod";
/// Attribute with the namespace of the pod or Service.
pub const ATTR_NAMESPACE: &str = "namespace";
/// Attribute with the time of the assignment, as Go prints it.
pub const ATTR_TIMESTAMP: &str = "timestamp";
/// Attribute with the kind of an address that no pod uses.
pub const ATTR_TYPE: &str = "type";
/// Attribute with the UID of the pod.
pub const ATTR_POD_UID: &str = "margay-pod-uid";
/// Value of [`ATTR_TYPE`] of an address kept for quick hand-out.
pub const TYPE_WARM: &str = "margayWarm";

/// A request for addresses the allocator chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct AssignRequest {
    /// Handle the addresses are held under and released by; for a pod `<network>.<container id>`. A handle that holds
    /// addresses already gets the same ones again.
    pub handle: String,
    /// Attributes of the owner. `node` and `timestamp` are added when they are missing.
    pub attrs: BTreeMap<String, String>,
    /// Number of IPv4 addresses wanted.
    pub num4: usize,
    /// Number of IPv6 addresses wanted.
    pub num6: usize,
    /// Pools to take IPv4 addresses from, by name or CIDR, in order of preference. Empty: every pool meant for this
    /// node and namespace.
    pub pools4: Vec<String>,
    /// Pools to take IPv6 addresses from.
    pub pools6: Vec<String>,
    /// What the addresses are for.
    pub usage: AllowedUse,
    /// Labels of the pod's namespace, for pools with a namespace selector.
    pub namespace_labels: BTreeMap<String, String>,
    /// Greatest number of blocks per family this node may own because of this request.
    pub max_blocks: Option<usize>,
}

impl AssignRequest {
    /// A request for pod addresses from any suitable pool.
    pub fn workload(handle: impl Into<String>, num4: usize, num6: usize) -> Self {
        AssignRequest {
            handle: handle.into(),
            attrs: BTreeMap::new(),
            num4,
            num6,
            pools4: Vec::new(),
            pools6: Vec::new(),
            usage: AllowedUse::Workload,
            namespace_labels: BTreeMap::new(),
            max_blocks: None,
        }
    }

    /// The same request with an attribute of the owner.
    #[must_use]
    pub fn attr(mut self, key: &str, value: impl Into<String>) -> Self {
        self.attrs.insert(key.to_owned(), value.into());
        self
    }

    /// Number of addresses wanted of a family.
    pub fn num(&self, family: Family) -> usize {
        match family {
            Family::V4 => self.num4,
            Family::V6 => self.num6,
        }
    }

    /// Pools asked for of a family.
    pub fn pools(&self, family: Family) -> &[String] {
        match family {
            Family::V4 => &self.pools4,
            Family::V6 => &self.pools6,
        }
    }
}

/// A request for one particular address.
#[derive(Debug, Clone, PartialEq)]
pub struct SpecificRequest {
    /// The address.
    pub ip: IpAddr,
    /// Handle it is held under.
    pub handle: String,
    /// Attributes of the owner; as for [`AssignRequest::attrs`].
    pub attrs: BTreeMap<String, String>,
    /// What it is for; absent: not checked against the pool.
    pub usage: Option<AllowedUse>,
}

/// One assigned address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedIp {
    /// The address.
    pub ip: IpAddr,
    /// The block it is part of.
    pub block: IpNet,
    /// Name of the pool, when it lies in one that is known.
    pub pool: Option<String>,
    /// True when the block belongs to this node: its route covers the address.
    pub own_block: bool,
}

/// What a request for one family got.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FamilyResult {
    /// Addresses wanted.
    pub requested: usize,
    /// Addresses assigned.
    pub ips: Vec<AssignedIp>,
    /// Why there are fewer, in Calico's words.
    pub msgs: Vec<String>,
    /// Pools that were considered, by CIDR.
    pub pools: Vec<String>,
    /// What ended the search early, if anything.
    pub error: Option<AssignError>,
}

impl FamilyResult {
    /// True when there are fewer addresses than wanted.
    pub fn is_short(&self) -> bool {
        self.ips.len() < self.requested
    }
}

/// What a request got.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assigned {
    /// IPv4.
    pub v4: FamilyResult,
    /// IPv6.
    pub v6: FamilyResult,
}

impl Assigned {
    /// All addresses, IPv4 first.
    pub fn ips(&self) -> impl Iterator<Item = &AssignedIp> {
        self.v4.ips.iter().chain(&self.v6.ips)
    }

    /// The result of a family.
    pub fn family(&self, family: Family) -> &FamilyResult {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    pub(crate) fn family_mut(&mut self, family: Family) -> &mut FamilyResult {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// Why an assignment failed, for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignErrorKind {
    /// No pool suits.
    Pools(ChoiceError),
    /// The pools have no address left for this node.
    Exhausted,
    /// This node may not own another block.
    BlockLimit,
    /// The cluster does not let nodes claim blocks.
    NoBlock,
    /// The address asked for lies in no usable pool.
    NotInPool,
    /// The pool of the address asked for does not serve this use.
    WrongUse,
    /// The address asked for is held by somebody else.
    InUse,
    /// The address asked for was released a moment ago.
    Cooling,
    /// The address asked for lies in a block of another node, and affinity is strict.
    ForeignBlock,
    /// This process has not read the cluster's state yet.
    NotSynced,
    /// The datastore is locked (`datastoreReady: false`).
    Locked,
    /// No contact to the API server for too long, or the Node object is gone: addresses may no longer be ours.
    Fenced,
    /// The API server could not be asked.
    Store(StoreError),
}

/// Why an assignment failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AssignError {
    /// The cause, for programs.
    pub kind: AssignErrorKind,
    /// The cause in words; where Calico has the same error, in its words.
    pub message: String,
    /// What an operator needs besides: the pools considered, and whether affinity is strict.
    pub details: String,
}

impl AssignError {
    pub(crate) fn new(kind: AssignErrorKind, message: impl Into<String>) -> Self {
        AssignError {
            kind,
            message: message.into(),
            details: String::new(),
        }
    }

    /// True when the same request may succeed later without anybody changing the configuration.
    pub fn is_retriable(&self) -> bool {
        matches!(
            self.kind,
            AssignErrorKind::Exhausted
                | AssignErrorKind::Cooling
                | AssignErrorKind::NotSynced
                | AssignErrorKind::Locked
                | AssignErrorKind::Fenced
                | AssignErrorKind::Store(_)
        )
    }
}

impl From<ChoiceError> for AssignError {
    fn from(error: ChoiceError) -> Self {
        let message = error.to_string();
        AssignError::new(AssignErrorKind::Pools(error), message)
    }
}

impl From<StoreError> for AssignError {
    fn from(error: StoreError) -> Self {
        let message = format!("address management cannot reach the datastore: {error}");
        AssignError::new(AssignErrorKind::Store(error), message)
    }
}

/// A block that belongs to this node with a confirmed affinity: what BGP advertises and what gets a blackhole route.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnBlock {
    /// The block.
    pub cidr: IpNet,
    /// Name of its pool, when known.
    pub pool: Option<String>,
}

/// An address in use on this node, as the node itself knows: from its attachment records, interfaces and pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAddress {
    /// The address.
    pub ip: IpAddr,
    /// Handle its owner holds it under.
    pub handle: String,
    /// Attributes of the owner.
    pub attrs: BTreeMap<String, String>,
}
