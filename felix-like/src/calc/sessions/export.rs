//! What a node announces: its own blocks as a whole, everything else that lies in a pool, nothing outside.

use ipnet::IpNet;
use margay_bgp::Policy;
use margay_bgp::policy::{Condition, Rule, Verdict};

use super::pools::UsedPool;
use super::session::Family;
use super::{MAX_METRIC, NORMAL_PRIORITY};

/// The export policy of all sessions of one family. `blocks` are the confirmed blocks of this node.
///
/// In this order: nothing inside a pool with `disableBGPExport`; each own block; a more specific route of an own block
/// only while its priority is elevated (a pod that has just moved here); anything else inside a pool, whoever
/// originated it, so that a router can learn every block from any one node.
pub fn policy(family: Family, pools: &[UsedPool], blocks: &[IpNet]) -> Policy {
    let of_family = |net: &IpNet| Family::of(net.addr()) == family;
    let pools_where = |disabled: bool| -> Vec<IpNet> {
        let chosen = pools
            .iter()
            .filter(|pool| pool.disable_bgp_export == disabled);
        let mut nets: Vec<IpNet> = chosen
            .map(|pool| pool.view.cidr)
            .filter(of_family)
            .collect();
        nets.sort();
        nets
    };
    let mut blocks: Vec<IpNet> = blocks.iter().copied().filter(of_family).collect();
    blocks.sort();
    let elevated = Condition::LocalPref {
        min: MAX_METRIC - NORMAL_PRIORITY + 1,
        max: u32::MAX,
    };
    let mut rules = Vec::new();
    let mut rule =
        |nets: Vec<IpNet>, wrap: fn(Vec<IpNet>) -> Condition, more: Option<Condition>, verdict| {
            if !nets.is_empty() {
                rules.push(Rule::new(
                    std::iter::once(wrap(nets)).chain(more).collect(),
                    verdict,
                ));
            }
        };
    rule(
        pools_where(true),
        Condition::PrefixWithin,
        None,
        Verdict::Reject,
    );
    rule(blocks.clone(), Condition::PrefixIs, None, Verdict::Accept);
    rule(
        blocks.clone(),
        Condition::PrefixWithin,
        Some(elevated),
        Verdict::Accept,
    );
    rule(blocks, Condition::PrefixWithin, None, Verdict::Reject);
    rule(
        pools_where(false),
        Condition::PrefixWithin,
        None,
        Verdict::Accept,
    );
    Policy {
        rules,
        default: Verdict::Reject,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::{EncapMode, PoolView};

    fn pool(cidr: &str, disable_bgp_export: bool, vxlan: EncapMode) -> UsedPool {
        let view = PoolView {
            name: cidr.into(),
            cidr: cidr.parse().expect("net"),
            nat_outgoing: false,
            ipip: EncapMode::Never,
            vxlan,
            workload: true,
        };
        UsedPool {
            view,
            disable_bgp_export,
        }
    }

    /// Evaluates a policy the way the engine does: the first rule whose conditions all hold decides.
    fn exported(policy: &Policy, prefix: &str, priority: u32) -> bool {
        let prefix: IpNet = prefix.parse().expect("net");
        let local_pref = MAX_METRIC - priority;
        let holds = |condition: &Condition| match condition {
            Condition::PrefixIs(nets) => nets.contains(&prefix),
            Condition::PrefixWithin(nets) => nets.iter().any(|net| net.contains(&prefix)),
            Condition::LocalPref { min, max } => (*min..=*max).contains(&local_pref),
            other => panic!("unexpected {other:?}"),
        };
        let verdict = policy
            .rules
            .iter()
            .find(|rule| rule.conditions.iter().all(holds))
            .and_then(|rule| rule.verdict);
        verdict.unwrap_or(policy.default) == Verdict::Accept
    }

    #[test]
    fn blocks_are_aggregated_and_pools_decide_about_the_rest() {
        let pools = [
            pool("192.168.1.0/24", false, EncapMode::Never),
            pool("192.168.2.0/24", true, EncapMode::Never),
            pool("192.168.3.0/24", false, EncapMode::Never),
            pool("10.0.0.0/16", false, EncapMode::Always),
        ];
        let blocks = ["192.168.1.64/26".parse().expect("net")];
        let policy = policy(Family::V4, &pools, &blocks);
        for (prefix, priority, expected, why) in [
            ("192.168.1.64/26", 1024, true, "own block"),
            ("192.168.1.65/32", 1024, false, "inside the own block"),
            ("192.168.1.66/32", 512, true, "elevated"),
            (
                "192.168.3.5/32",
                1024,
                true,
                "borrowed from another node's block",
            ),
            ("192.168.2.7/32", 1024, false, "disableBGPExport"),
            ("192.168.2.0/24", 1024, false, "disableBGPExport, whole"),
            ("192.168.1.128/26", 1024, true, "another node's block"),
            ("10.0.7.0/26", 1024, true, "VXLAN pools are exported too"),
            ("172.17.0.0/16", 1024, false, "in no pool"),
            (
                "0.0.0.0/0",
                1024,
                false,
                "a pool does not cover what contains it",
            ),
        ] {
            assert_eq!(
                exported(&policy, prefix, priority),
                expected,
                "{prefix}: {why}"
            );
        }
    }

    #[test]
    fn families_do_not_mix() {
        let pools = [
            pool("192.168.1.0/24", false, EncapMode::Never),
            pool("fd00::/64", false, EncapMode::Never),
        ];
        let v6 = policy(
            Family::V6,
            &pools,
            &["192.168.1.64/26".parse().expect("net")],
        );
        assert!(exported(&v6, "fd00::40/122", 1024));
        assert!(!exported(&v6, "192.168.1.64/26", 1024));
        assert_eq!(v6.rules.len(), 1);
    }

    #[test]
    fn without_pools_nothing_leaves() {
        let policy = policy(Family::V4, &[], &[]);
        assert!(policy.rules.is_empty());
        assert_eq!(policy.default, Verdict::Reject);
    }
}
