//! Facts about the dataplane.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use serde::Serialize;

use crate::desired::{Provenance, Source};

/// A part of the kernel that a feature needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// IP in IP tunnels (module `ipip`).
    Ipip,
    /// VXLAN devices (module `vxlan`).
    Vxlan,
    /// nf_tables.
    NfTables,
    /// Tables that only their owner may change (Linux 5.12, with `persist` 6.9).
    TableOwner,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipip => "ipip",
            Self::Vxlan => "vxlan",
            Self::NfTables => "nf_tables",
            Self::TableOwner => "nf_tables owner flag",
        })
    }
}

/// What kind of trouble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "PascalCase")]
pub enum ProblemKind {
    /// The kernel lacks something that the object asks for; everything else goes on.
    DataplaneFeatureMissing(Feature),
    /// The kernel refuses an item.
    DataplaneRefused,
    /// A next hop cannot be reached over any route of this node.
    NextHopUnreachable,
    /// Another program keeps changing an item of ours.
    DriftContended,
    /// Pods cannot be reached or cannot forward because a sysctl cannot be written.
    SysctlFailed,
    /// A tunnel device cannot be made because this node's address is on no interface.
    TunnelParentMissing,
}

impl ProblemKind {
    /// The CamelCase reason used in Events and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::DataplaneFeatureMissing(_) => "DataplaneFeatureMissing",
            Self::DataplaneRefused => "DataplaneRefused",
            Self::NextHopUnreachable => "NextHopUnreachable",
            Self::DriftContended => "DriftContended",
            Self::SysctlFailed => "SysctlFailed",
            Self::TunnelParentMissing => "TunnelParentMissing",
        }
    }
}

/// Something that keeps the kernel from being as desired.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The object concerned, an IPPool for a missing tunnel kind.
    pub kind: ProblemKind,
    /// `Kind/name` or `Kind/namespace/name` of the object.
    pub subject: String,
    /// Field at fault, `spec.ipipMode`, when one is.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(
        kind: ProblemKind,
        subject: &Provenance,
        field: &str,
        message: String,
    ) -> Self {
        Self {
            kind,
            subject: subject.to_string(),
            field: field.to_owned(),
            message,
        }
    }
}

/// Sizes of one kernel table as far as it is ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TableCount {
    /// Items that should be there.
    pub desired: usize,
    /// Items of ours that are there.
    pub actual: usize,
    /// Differences still to be worked off.
    pub pending: usize,
}

/// The dataplane at a glance.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Sources whose picture is complete.
    pub in_sync: Vec<Source>,
    /// The tables have been committed once and forwarding is on: pods may be wired.
    pub ready: bool,
    /// Tables are owned, so that other programs cannot change them.
    pub tables_owned: bool,
    /// Endpoints handed over.
    pub endpoints: usize,
    /// Endpoints whose routes are all in the kernel.
    pub endpoints_routed: usize,
    /// Per kernel table: `routes`, `neighbours`, `nft-ip`, `nft-ip6`, `fdb`.
    pub tables: BTreeMap<String, TableCount>,
    /// Netlink write requests since start.
    pub writes: u64,
    /// Foreign changes of our items noticed, by kernel table.
    pub drift_detected: BTreeMap<String, u64>,
    /// Foreign changes put right, by kernel table.
    pub drift_repaired: BTreeMap<String, u64>,
    /// Items that another program keeps changing.
    pub drift_contended: u64,
    /// Differences that only the full check found; each one is a defect.
    pub drift_missed: u64,
    /// When a full check last found nothing to do.
    pub verified_at: Option<SystemTime>,
    /// Open problems.
    pub problems: Vec<Problem>,
}
