//! IPPools in the words of export and dataplane, and what is wrong with them.

use std::collections::BTreeMap;

use ipnet::IpNet;
use margay_crds::selector::Selector;
use margay_crds::{AllowedUse, EncapMode as WrittenMode, IPPool};

use super::problem::Problem;
use crate::desired::{EncapMode, PoolView};

/// A pool as this node uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedPool {
    /// For the dataplane.
    pub view: PoolView,
    /// Nothing inside it leaves over BGP.
    pub disable_bgp_export: bool,
}

/// The pools in use, by name, and the problems of those that are not, or only in part.
///
/// A pool counts for routing, NAT and export although it is `disabled`: its addresses may still be in use. Of two
/// enabled pools that overlap the established one counts (status Allocatable, then age, then name); the other is not
/// used at all. An unreadable CIDR leaves a pool out; an unreadable selector only keeps it from giving out addresses.
pub fn used_pools(pools: &BTreeMap<String, IPPool>) -> (Vec<UsedPool>, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut readable: Vec<(&String, &IPPool, IpNet)> = Vec::new();
    for (name, pool) in pools {
        match pool.spec.cidr.parse::<IpNet>() {
            Ok(net) if net == net.trunc() => readable.push((name, pool, net)),
            Ok(net) => problems.push(invalid(
                name,
                "spec.cidr",
                format!(
                    "{} has host bits set; the pool is not used (did you mean {}?)",
                    pool.spec.cidr,
                    net.trunc()
                ),
            )),
            Err(_) => {
                problems.push(invalid(
                    name,
                    "spec.cidr",
                    format!("{:?} is not a CIDR", pool.spec.cidr),
                ));
            }
        }
        problems.extend(partial_problems(name, pool));
    }
    readable.sort_by_key(|(name, pool, _)| (!is_allocatable(pool), created(pool), (*name).clone()));
    let mut accepted: Vec<(IpNet, &String)> = Vec::new();
    let mut used = Vec::new();
    for (name, pool, net) in readable {
        if pool.spec.disabled != Some(true) {
            let overlap = accepted
                .iter()
                .find(|(other, _)| other.contains(&net) || net.contains(other));
            if let Some((other, winner)) = overlap {
                problems.push(invalid(
                    name,
                    "spec.cidr",
                    format!("{net} overlaps {other} of IPPool {winner}, which was there first; the pool is not used"),
                ));
                continue;
            }
            accepted.push((net, name));
        }
        used.push(view(name, pool, net));
    }
    used.sort_by(|a, b| a.view.name.cmp(&b.view.name));
    problems.sort();
    (used, problems)
}

fn view(name: &str, pool: &IPPool, cidr: IpNet) -> UsedPool {
    let spec = &pool.spec;
    let vxlan = mode(spec.vxlan_mode.as_ref());
    let ipip = if cidr.addr().is_ipv4() && vxlan == EncapMode::Never {
        mode(spec.ipip_mode.as_ref())
    } else {
        EncapMode::Never
    };
    UsedPool {
        view: PoolView {
            name: name.to_owned(),
            cidr,
            nat_outgoing: spec.nat_outgoing == Some(true),
            ipip,
            vxlan,
            workload: spec.allows(&AllowedUse::Workload) || spec.allows(&AllowedUse::Tunnel),
        },
        disable_bgp_export: spec.disable_bgp_export == Some(true),
    }
}

/// What is wrong with a pool that is used all the same.
fn partial_problems(name: &str, pool: &IPPool) -> Vec<Problem> {
    let spec = &pool.spec;
    let mut problems = Vec::new();
    let selectors = [
        ("spec.nodeSelector", &spec.node_selector),
        ("spec.namespaceSelector", &spec.namespace_selector),
    ];
    for (field, selector) in selectors {
        if let Some(text) = selector
            && let Err(error) = Selector::parse(text)
        {
            problems.push(invalid(
                name,
                field,
                format!("{error}; the pool gives out no addresses"),
            ));
        }
    }
    if mode(spec.ipip_mode.as_ref()) != EncapMode::Never
        && mode(spec.vxlan_mode.as_ref()) != EncapMode::Never
    {
        problems.push(invalid(
            name,
            "spec.ipipMode",
            "excludes vxlanMode, which is used".into(),
        ));
    }
    problems
}

fn mode(written: Option<&WrittenMode>) -> EncapMode {
    match written {
        Some(WrittenMode::Always) => EncapMode::Always,
        Some(WrittenMode::CrossSubnet) => EncapMode::CrossSubnet,
        _ => EncapMode::Never,
    }
}

fn is_allocatable(pool: &IPPool) -> bool {
    let conditions = pool
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.kind == "Allocatable" && condition.status == "True")
}

fn created(pool: &IPPool) -> Option<String> {
    pool.metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0.to_string())
}

fn invalid(name: &str, field: &str, message: String) -> Problem {
    Problem {
        kind: "IPPool",
        name: name.to_owned(),
        reason: "PoolInvalid",
        field: field.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pools(list: &[(&str, &str, Value)]) -> BTreeMap<String, IPPool> {
        list.iter()
            .map(|(name, created, spec)| {
                let object = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool",
                    "metadata": {"name": name, "creationTimestamp": created}, "spec": spec});
                (
                    (*name).to_owned(),
                    serde_json::from_value(object).expect("an IPPool"),
                )
            })
            .collect()
    }

    const DAY1: &str = "2026-01-01T00:00:00Z";
    const DAY2: &str = "2026-01-02T00:00:00Z";

    #[test]
    fn settings_reach_dataplane_and_export() {
        let (used, problems) = used_pools(&pools(&[
            (
                "a",
                DAY1,
                json!({"cidr": "10.0.0.0/16", "ipipMode": "CrossSubnet", "natOutgoing": true}),
            ),
            (
                "b",
                DAY1,
                json!({"cidr": "fd00::/64", "disableBGPExport": true, "disabled": true}),
            ),
            (
                "c",
                DAY1,
                json!({"cidr": "10.9.0.0/24", "allowedUses": ["LoadBalancer"]}),
            ),
        ]));
        assert!(problems.is_empty());
        assert_eq!(used.len(), 3, "a disabled pool still counts for routing");
        assert_eq!(used[0].view.ipip, EncapMode::CrossSubnet);
        assert!(used[0].view.nat_outgoing && used[0].view.workload && !used[0].disable_bgp_export);
        assert!(used[1].disable_bgp_export && !used[1].view.nat_outgoing);
        assert!(!used[2].view.workload);
    }

    #[test]
    fn the_younger_of_two_overlapping_pools_is_not_used_and_says_so() {
        let (used, problems) = used_pools(&pools(&[
            ("a-young", DAY2, json!({"cidr": "10.0.1.0/24"})),
            ("b-old", DAY1, json!({"cidr": "10.0.0.0/16"})),
            (
                "c-split",
                DAY2,
                json!({"cidr": "10.0.2.0/24", "disabled": true}),
            ),
        ]));
        let names: Vec<&str> = used.iter().map(|pool| pool.view.name.as_str()).collect();
        assert_eq!(names, ["b-old", "c-split"]);
        assert_eq!(problems.len(), 1);
        assert_eq!(
            (problems[0].name.as_str(), problems[0].field.as_str()),
            ("a-young", "spec.cidr")
        );
        assert!(problems[0].message.contains("b-old"), "{}", problems[0]);
    }

    #[test]
    fn a_selector_typo_is_reported_and_the_pool_still_routes() {
        let (used, problems) = used_pools(&pools(&[(
            "a",
            DAY1,
            json!({"cidr": "10.0.0.0/16", "nodeSelector": "rack = '1'"}),
        )]));
        assert_eq!(used.len(), 1);
        assert_eq!(problems[0].field, "spec.nodeSelector");
        assert_eq!(problems[0].reason, "PoolInvalid");
    }

    #[test]
    fn a_pool_without_a_usable_cidr_leaves_the_others_alone() {
        let (used, problems) = used_pools(&pools(&[
            ("a", DAY1, json!({"cidr": "10.0.0.1/16"})),
            ("b", DAY1, json!({"cidr": "ten"})),
            ("c", DAY1, json!({"cidr": "10.1.0.0/16"})),
        ]));
        assert_eq!(used.len(), 1);
        assert_eq!(problems.len(), 2);
        assert!(
            problems[0].message.contains("10.0.0.0/16"),
            "{}",
            problems[0]
        );
    }
}
