//! What has to be written about pools.

use ipnet::IpNet;
use jiff::Timestamp;
use kube::ResourceExt;
use margay_crds::{Condition, IP_POOL_FINALIZER, IPPool};
use margay_ipam::cidr::overlaps;
use margay_ipam::pool::{Verdict, verdicts};

/// Type of the condition that says whether new addresses come from a pool.
const ALLOCATABLE: &str = "Allocatable";
/// Annotation by which a pool may go while blocks are left in its range: they belong to other pools from then on.
const ALLOW_DELETE: &str = "margay.io/allow-delete-in-use";

/// What to write about one pool, in this order: condition, affinities, finalizers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolStep {
    /// Name of the pool.
    pub(crate) pool: String,
    /// The condition to set.
    pub(crate) condition: Option<Condition>,
    /// What to tell about it in an Event.
    pub(crate) notice: Option<String>,
    /// Blocks in the range are to be taken from their owners.
    pub(crate) drain: bool,
    /// The finalizers to set.
    pub(crate) finalizers: Option<Vec<String>>,
}

/// The steps that bring all pools in line, only for those that need one.
pub(crate) fn plan(pools: &[IPPool], blocks: &[IpNet], now: Timestamp) -> Vec<PoolStep> {
    let verdicts = verdicts(pools);
    let judged = pools.iter().filter_map(|pool| {
        let verdict = verdicts.get(&pool.name_any())?;
        let step = step(pool, verdict, pools, has_blocks(pool, blocks), now);
        let idle = step.condition.is_none() && !step.drain && step.finalizers.is_none();
        (!idle).then_some(step)
    });
    judged.collect()
}

fn step(
    pool: &IPPool,
    verdict: &Verdict,
    pools: &[IPPool],
    used: bool,
    now: Timestamp,
) -> PoolStep {
    let (status, reason, message) = words(verdict);
    let condition = Condition {
        kind: ALLOCATABLE.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: pool.metadata.generation,
        last_transition_time: transition(pool, status, now),
    };
    let known = current(pool);
    let changed = known.is_none_or(|known| {
        (&known.status, &known.reason, &known.message)
            != (&condition.status, &condition.reason, &condition.message)
    });
    let deleting = pool.metadata.deletion_timestamp.is_some();
    let guarded = has_finalizer(pool);
    let allowed = pool
        .annotations()
        .get(ALLOW_DELETE)
        .is_some_and(|value| value == "true");
    let guard = match verdict {
        Verdict::Allocatable => true,
        // A pool that is going keeps what it has until its last block is gone.
        _ if deleting => guarded && used && !allowed,
        // Its blocks still need the routes and the translation the pool asks for.
        Verdict::Disabled | Verdict::Invalid(_) | Verdict::Terminating => used && !allowed,
        // Blocks in its range belong to the pool that was there before.
        Verdict::Overlap(_) => false,
    };
    PoolStep {
        pool: pool.name_any(),
        notice: notice(pool, verdict, pools),
        condition: changed.then_some(condition),
        drain: deleting && guarded && used && !allowed,
        finalizers: (guard != guarded).then(|| finalizers(pool, guard)),
    }
}

/// Status, reason and message of the condition.
fn words(verdict: &Verdict) -> (&'static str, &'static str, String) {
    match verdict {
        Verdict::Allocatable => (
            "True",
            "OK",
            "IPPool is available for IP allocation.".into(),
        ),
        Verdict::Disabled => (
            "False",
            "PoolDisabled",
            "IPPool.Spec.Disabled is true".into(),
        ),
        Verdict::Terminating => ("False", "Terminating", "IPPool is being deleted".into()),
        Verdict::Overlap(_) => (
            "False",
            "CIDROverlap",
            "CIDR overlaps another pool; disabled to prevent IP allocation conflicts.".into(),
        ),
        Verdict::Invalid(fault) => ("False", "Invalid", fault.to_string()),
    }
}

/// What an Event says, for pools nobody would expect to be unused.
fn notice(pool: &IPPool, verdict: &Verdict, pools: &[IPPool]) -> Option<String> {
    match verdict {
        Verdict::Overlap(rival) => {
            let other = pools.iter().find(|other| other.name_any() == *rival);
            let range = other.map_or_else(String::new, |other| format!(" ({})", other.spec.cidr));
            Some(format!(
                "spec.cidr: {:?} overlaps IPPool {rival}{range}; no addresses are assigned from this pool",
                pool.spec.cidr
            ))
        }
        Verdict::Invalid(fault) => {
            Some(format!("{fault}; no addresses are assigned from this pool"))
        }
        Verdict::Allocatable | Verdict::Disabled | Verdict::Terminating => None,
    }
}

fn current(pool: &IPPool) -> Option<&Condition> {
    let conditions = pool.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.kind == ALLOCATABLE)
}

/// The time of the last change of status.
fn transition(pool: &IPPool, status: &str, now: Timestamp) -> String {
    match current(pool) {
        Some(known) if known.status == status && !known.last_transition_time.is_empty() => {
            known.last_transition_time.clone()
        }
        _ => margay_ipam::block::stored_time(now),
    }
}

fn has_blocks(pool: &IPPool, blocks: &[IpNet]) -> bool {
    let range = pool.spec.cidr.parse::<IpNet>();
    range.is_ok_and(|range| blocks.iter().any(|block| overlaps(&range, block)))
}

fn has_finalizer(pool: &IPPool) -> bool {
    pool.finalizers()
        .iter()
        .any(|name| name == IP_POOL_FINALIZER)
}

fn finalizers(pool: &IPPool, guard: bool) -> Vec<String> {
    let mut names: Vec<String> = pool
        .finalizers()
        .iter()
        .filter(|name| *name != IP_POOL_FINALIZER)
        .cloned()
        .collect();
    if guard {
        names.push(IP_POOL_FINALIZER.to_owned());
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use margay_crds::{IPPoolSpec, IPPoolStatus};

    use super::*;

    fn pool(name: &str, cidr: &str) -> IPPool {
        let spec = IPPoolSpec {
            cidr: cidr.into(),
            ..IPPoolSpec::default()
        };
        IPPool::new(name, spec)
    }

    fn by_pool(steps: Vec<PoolStep>) -> BTreeMap<String, PoolStep> {
        steps
            .into_iter()
            .map(|step| (step.pool.clone(), step))
            .collect()
    }

    fn now() -> Timestamp {
        "2026-03-04T05:06:07Z".parse().expect("a time")
    }

    fn blocks(cidrs: &[&str]) -> Vec<IpNet> {
        cidrs
            .iter()
            .map(|cidr| cidr.parse().expect("a network"))
            .collect()
    }

    /// The pool as it is stored after its step.
    fn after(mut pool: IPPool, steps: &BTreeMap<String, PoolStep>) -> IPPool {
        if let Some(step) = steps.get(&pool.name_any()) {
            if let Some(condition) = &step.condition {
                pool.status = Some(IPPoolStatus {
                    conditions: Some(vec![condition.clone()]),
                });
            }
            if let Some(finalizers) = &step.finalizers {
                pool.metadata.finalizers = Some(finalizers.clone());
            }
        }
        pool
    }

    fn reason(steps: &BTreeMap<String, PoolStep>, pool: &str) -> String {
        steps[pool].condition.clone().expect("a condition").reason
    }

    #[test]
    fn a_good_pool_is_guarded_once_and_then_left_alone() {
        let pools = [pool("a", "10.0.0.0/16")];
        let steps = by_pool(plan(&pools, &[], now()));
        assert_eq!(reason(&steps, "a"), "OK");
        assert_eq!(
            steps["a"].finalizers,
            Some(vec![IP_POOL_FINALIZER.to_owned()])
        );
        let pools = pools.map(|pool| after(pool, &steps));
        assert_eq!(plan(&pools, &[], now()), vec![]);
    }

    #[test]
    fn a_newcomer_that_overlaps_gets_a_condition_and_an_event_naming_the_other() {
        let old = pool("old", "10.0.0.0/16");
        let old = after(old.clone(), &by_pool(plan(&[old], &[], now())));
        let pools = [old, pool("a-new", "10.0.1.0/24")];
        let steps = by_pool(plan(&pools, &blocks(&["10.0.1.0/26"]), now()));
        assert_eq!(steps.len(), 1);
        assert_eq!(reason(&steps, "a-new"), "CIDROverlap");
        let notice = steps["a-new"].notice.clone().expect("an event");
        assert!(
            notice.contains("spec.cidr") && notice.contains("old (10.0.0.0/16)"),
            "{notice}"
        );
        assert_eq!(steps["a-new"].finalizers, None);
    }

    #[test]
    fn a_bad_selector_is_named_with_its_field_and_the_pool_keeps_its_range() {
        let mut bad = pool("bad", "10.0.0.0/16");
        bad.spec.node_selector = Some("zone ==".into());
        let steps = by_pool(plan(&[bad, pool("x", "10.0.0.0/24")], &[], now()));
        let condition = steps["bad"].condition.clone().expect("a condition");
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("False", "Invalid")
        );
        assert!(
            condition.message.contains("spec.nodeSelector"),
            "{}",
            condition.message
        );
        assert!(steps["bad"].notice.is_some());
        assert_eq!(reason(&steps, "x"), "CIDROverlap");
    }

    #[test]
    fn a_disabled_pool_stays_guarded_while_it_has_blocks() {
        let mut off = pool("p", "10.0.0.0/16");
        off.metadata.finalizers = Some(vec!["x/y".into(), IP_POOL_FINALIZER.into()]);
        off.spec.disabled = Some(true);
        let used = by_pool(plan(&[off.clone()], &blocks(&["10.0.3.0/26"]), now()));
        assert_eq!(
            (reason(&used, "p"), &used["p"].finalizers),
            ("PoolDisabled".into(), &None)
        );
        let unused = by_pool(plan(&[off.clone()], &blocks(&["10.1.0.0/26"]), now()));
        assert_eq!(unused["p"].finalizers, Some(vec!["x/y".to_owned()]));
        off.annotations_mut()
            .insert(ALLOW_DELETE.into(), "true".into());
        let allowed = by_pool(plan(&[off], &blocks(&["10.0.3.0/26"]), now()));
        assert_eq!(allowed["p"].finalizers, Some(vec!["x/y".to_owned()]));
    }

    #[test]
    fn a_deleted_pool_is_drained_and_goes_with_its_last_block() {
        let mut gone = pool("p", "10.0.0.0/16");
        gone.metadata.finalizers = Some(vec![IP_POOL_FINALIZER.into()]);
        gone.metadata.deletion_timestamp = Some(Time(now()));
        let used = by_pool(plan(&[gone.clone()], &blocks(&["10.0.3.0/26"]), now()));
        assert_eq!(reason(&used, "p"), "Terminating");
        assert!(used["p"].drain && used["p"].finalizers.is_none());
        let unused = by_pool(plan(&[gone], &[], now()));
        assert!(!unused["p"].drain);
        assert_eq!(unused["p"].finalizers, Some(vec![]));
    }

    #[test]
    fn the_time_of_a_transition_stays_while_the_status_does() {
        let mut off = pool("p", "10.0.0.0/16");
        off.spec.disabled = Some(true);
        let off = after(off.clone(), &by_pool(plan(&[off], &[], now())));
        let later = now() + jiff::SignedDuration::from_secs(60);
        let mut bad = off;
        bad.spec.disabled = None;
        bad.spec.block_size = Some(99);
        let steps = by_pool(plan(&[bad], &[], later));
        let condition = steps["p"].condition.clone().expect("a condition");
        assert_eq!(
            (
                condition.reason.as_str(),
                condition.last_transition_time.as_str()
            ),
            ("Invalid", "2026-03-04T05:06:07Z")
        );
    }
}
