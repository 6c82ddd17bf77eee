//! Which pools are used when several want the same addresses.

use std::collections::BTreeMap;

use ipnet::IpNet;
use kube::ResourceExt;
use margay_crds::IPPool;

use super::{Pool, PoolFault, range};
use crate::cidr::overlaps;

/// Judgement of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// New addresses may come from it.
    Allocatable,
    /// `spec.disabled` is true.
    Disabled,
    /// It is being deleted.
    Terminating,
    /// Its range overlaps the one of this pool, which was there before.
    Overlap(String),
    /// A field makes it unusable.
    Invalid(PoolFault),
}

/// Judges all pools of a cluster together, by name.
///
/// Pools are looked at in an order in which an established pool never loses to a newcomer: first those with condition
/// Allocatable=True, then those being deleted, then Allocatable=False, then those without a verdict; within each group
/// the oldest first, then by name. A pool that is disabled or loses does not occupy its range.
pub fn verdicts(objects: &[IPPool]) -> BTreeMap<String, Verdict> {
    let mut order: Vec<&IPPool> = objects.iter().collect();
    order.sort_by_key(|pool| (standing(pool), pool.creation_timestamp(), pool.name_any()));
    let mut occupied: Vec<(IpNet, String)> = Vec::new();
    let mut verdicts = BTreeMap::new();
    for pool in order {
        let name = pool.name_any();
        let range = range(&pool.spec.cidr).ok();
        let rival = range.and_then(|range| {
            occupied
                .iter()
                .find(|(other, _)| overlaps(other, &range))
                .map(|(_, name)| name.clone())
        });
        let verdict = judge(pool, rival);
        let occupies = match &verdict {
            Verdict::Allocatable | Verdict::Terminating | Verdict::Invalid(_) => range,
            Verdict::Disabled | Verdict::Overlap(_) => None,
        };
        occupied.extend(occupies.map(|range| (range, name.clone())));
        verdicts.insert(name, verdict);
    }
    verdicts
}

fn judge(pool: &IPPool, rival: Option<String>) -> Verdict {
    if pool.spec.disabled == Some(true) {
        return Verdict::Disabled;
    }
    if pool.metadata.deletion_timestamp.is_some() {
        return Verdict::Terminating;
    }
    match (Pool::parse(pool), rival) {
        (_, Some(rival)) => Verdict::Overlap(rival),
        (Err(fault), None) => Verdict::Invalid(fault),
        (Ok(_), None) => Verdict::Allocatable,
    }
}

fn standing(pool: &IPPool) -> u8 {
    match (
        pool.allocatable(),
        pool.metadata.deletion_timestamp.is_some(),
    ) {
        (_, true) => 1,
        (Some(true), false) => 0,
        (Some(false), false) => 2,
        (None, false) => 3,
    }
}
