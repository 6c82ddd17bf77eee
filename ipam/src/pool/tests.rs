use std::collections::BTreeMap;

use margay_crds::{AllowedUse, AssignmentMode, IPPool, IPPoolSpec, IPPoolStatus};

use super::*;

fn pool(name: &str, cidr: &str) -> IPPool {
    let spec = IPPoolSpec {
        cidr: cidr.into(),
        ..IPPoolSpec::default()
    };
    IPPool::new(name, spec)
}

fn with(mut pool: IPPool, change: impl FnOnce(&mut IPPoolSpec)) -> IPPool {
    change(&mut pool.spec);
    pool
}

fn allocatable(mut pool: IPPool, status: &str) -> IPPool {
    let condition = margay_crds::Condition {
        kind: "Allocatable".into(),
        status: status.into(),
        ..margay_crds::Condition::default()
    };
    pool.status = Some(IPPoolStatus {
        conditions: Some(vec![condition]),
    });
    pool
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn choose(
    pools: &Pools,
    named: &[&str],
    usage: &AllowedUse,
    node: &[(&str, &str)],
) -> Result<Vec<String>, ChoiceError> {
    let named: Vec<String> = named.iter().map(|text| (*text).to_owned()).collect();
    let (node_labels, namespace_labels) = (labels(node), BTreeMap::new());
    let chosen = pools.choose(&PoolRequest {
        family: Family::V4,
        named: &named,
        usage,
        node: "n1",
        node_labels: &node_labels,
        namespace_labels: &namespace_labels,
    })?;
    Ok(chosen.into_iter().map(|pool| pool.name.clone()).collect())
}

#[test]
fn bad_pools_are_refused_naming_the_field() {
    let fault = |pool: IPPool| Pool::parse(&pool).expect_err("refused");
    assert_eq!(
        fault(pool("p", "10.0.0.5/24")).reason,
        "IPPool CIDR must be strictly masked"
    );
    assert_eq!(fault(pool("p", "10.0.0.0")).field, "spec.cidr");
    assert!(
        fault(pool("p", "169.254.10.0/24"))
            .reason
            .contains("169.254.0.0/16")
    );
    assert!(
        fault(pool("p", "0.0.0.0/0"))
            .reason
            .contains("169.254.0.0/16")
    );
    assert!(fault(pool("p", "fe80::/64")).reason.contains("fe80::/10"));
    for (cidr, size) in [
        ("10.0.0.0/16", 19),
        ("10.0.0.0/16", 33),
        ("fd00::/48", 115),
        ("fd00::/48", 129),
    ] {
        let fault = fault(with(pool("p", cidr), |spec| spec.block_size = Some(size)));
        assert_eq!(
            (fault.field, fault.value),
            ("spec.blockSize", size.to_string())
        );
    }
    let small = fault(pool("p", "10.0.0.0/27"));
    assert!(small.reason.contains("too small"), "{small}");
    let bad = fault(with(pool("p", "10.0.0.0/16"), |spec| {
        spec.node_selector = Some("zone ==".into())
    }));
    assert_eq!(bad.field, "spec.nodeSelector");
    let bad = fault(with(pool("p", "10.0.0.0/16"), |spec| {
        spec.namespace_selector = Some("global()".into());
    }));
    assert_eq!(bad.field, "spec.namespaceSelector");
}

#[test]
fn a_newcomer_that_overlaps_never_displaces_an_established_pool() {
    let pools = [
        pool("a-new", "10.0.0.0/17"),
        allocatable(pool("old", "10.0.0.0/16"), "True"),
        pool("other", "10.1.0.0/16"),
    ];
    let verdicts = verdicts(&pools);
    assert_eq!(verdicts["a-new"], Verdict::Overlap("old".into()));
    assert_eq!(verdicts["old"], Verdict::Allocatable);
    assert_eq!(verdicts["other"], Verdict::Allocatable);
    let pools = Pools::new(&pools);
    assert_eq!(pools.usable().count(), 2);
    assert_eq!(pools.problems().count(), 1);
}

#[test]
fn a_disabled_pool_leaves_its_range_to_others_and_a_deleted_one_does_not() {
    let disabled = with(pool("a", "10.0.0.0/16"), |spec| spec.disabled = Some(true));
    let found = verdicts(&[disabled, pool("b", "10.0.0.0/16")]);
    assert_eq!(
        (&found["a"], &found["b"]),
        (&Verdict::Disabled, &Verdict::Allocatable)
    );
    let mut deleted = allocatable(pool("a", "10.0.0.0/16"), "False");
    deleted.metadata.deletion_timestamp = Some(
        k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
    );
    let found = verdicts(&[deleted, pool("b", "10.0.0.0/16")]);
    assert_eq!(found["a"], Verdict::Terminating);
    assert_eq!(found["b"], Verdict::Overlap("a".into()));
}

#[test]
fn a_pool_with_a_bad_selector_is_left_out_and_others_go_on() {
    let bad = with(pool("bad", "10.0.0.0/16"), |spec| {
        spec.node_selector = Some("((".into())
    });
    let pools = Pools::new(&[bad, pool("good", "10.1.0.0/16")]);
    assert_eq!(
        choose(&pools, &[], &AllowedUse::Workload, &[]),
        Ok(vec!["good".into()])
    );
    assert!(matches!(
        pools.problems().next(),
        Some(("bad", Verdict::Invalid(_)))
    ));
    // Its blocks are known to be its own all the same.
    assert_eq!(
        pools.name_of_block(&"10.0.0.0/26".parse().expect("net")),
        Some("bad")
    );
}

#[test]
fn selectors_choose_in_name_order_and_naming_a_pool_overrides_them() {
    let pools = Pools::new(&[
        with(pool("b", "10.2.0.0/16"), |spec| {
            spec.node_selector = Some("all()".into())
        }),
        with(pool("a", "10.1.0.0/16"), |spec| {
            spec.node_selector = Some("zone == 'a'".into())
        }),
        with(pool("m", "10.3.0.0/16"), |spec| {
            spec.assignment_mode = Some(AssignmentMode::Manual)
        }),
    ]);
    let workload = AllowedUse::Workload;
    assert_eq!(
        choose(&pools, &[], &workload, &[("zone", "a")]),
        Ok(vec!["a".into(), "b".into()])
    );
    assert_eq!(
        choose(&pools, &[], &workload, &[("zone", "b")]),
        Ok(vec!["b".into()])
    );
    assert_eq!(choose(&pools, &["a"], &workload, &[]), Ok(vec!["a".into()]));
    let named = choose(&pools, &["10.3.0.0/16", "b"], &workload, &[]);
    assert_eq!(named, Ok(vec!["m".into(), "b".into()]));
}

#[test]
fn requests_no_pool_suits_are_refused_in_calicos_words() {
    let pools = Pools::new(&[
        with(pool("t", "10.1.0.0/16"), |spec| {
            spec.allowed_uses = Some(vec![AllowedUse::Tunnel])
        }),
        with(pool("off", "10.2.0.0/16"), |spec| {
            spec.disabled = Some(true)
        }),
        pool("six", "fd00::/48"),
    ]);
    let workload = AllowedUse::Workload;
    let text = |named: &[&str]| {
        choose(&pools, named, &workload, &[])
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        text(&[]),
        "cannot find a qualified ippool, no pools match the required use"
    );
    assert_eq!(
        text(&["10.1.0.0/17"]),
        "the given pool (10.1.0.0/17) does not exist, or is not enabled"
    );
    assert_eq!(
        text(&["10.2.0.0/16"]),
        "the given pool (10.2.0.0/16) does not exist, or is not enabled"
    );
    assert_eq!(
        text(&["nosuch"]),
        "the given pool (nosuch) does not exist, or is not enabled"
    );
    assert!(text(&["fd00::/48"]).contains("not an IPv4 pool"));
    assert!(text(&["six"]).contains("not an IPv4 pool"));
    let none = Pools::new(&[pool("six", "fd00::/48")]);
    let error = choose(&none, &[], &workload, &[]).expect_err("refused");
    assert_eq!(error.to_string(), "cannot find a qualified ippool");
    let elsewhere = Pools::new(&[with(pool("a", "10.1.0.0/16"), |spec| {
        spec.node_selector = Some("zone == 'a'".into());
    })]);
    let error = choose(&elsewhere, &[], &workload, &[]).expect_err("refused");
    assert_eq!(error.to_string(), "no configured Calico pools for node n1");
}
