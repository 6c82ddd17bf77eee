use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::reservation::Reservations;

const S: i64 = 1_772_600_767_000_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(S)).expect("in range")
        + SignedDuration::from_secs(seconds)
}

fn block(cidr: &str) -> Block {
    Block::new(
        cidr.parse().expect("a network"),
        &Owner::Host("worker-1".into()),
        at(0),
    )
}

fn claim(name: &str) -> Claim {
    Claim {
        handle: Some(name.into()),
        attrs: BTreeMap::from([("node".into(), "worker-1".into())]),
    }
}

fn none() -> Reservations {
    Reservations::default()
}

/// As the store would hand it back.
fn written(block: &Block) -> Block {
    Block::open(block.to_write()).expect("valid")
}

fn take(block: &mut Block, name: &str) -> usize {
    let taken = block.take(1, &claim(name), &none());
    *block = written(block);
    taken[0]
}

fn release(block: &mut Block, name: &str, cooldown: i64, now: i64) {
    let cooldown = SignedDuration::from_secs(cooldown);
    assert_eq!(block.release_handle(name, cooldown, at(now)).len(), 1);
    *block = written(block);
}

#[test]
fn a_new_block_has_the_form_every_reader_expects() {
    let value = serde_json::to_value(block("10.244.41.192/30").object()).expect("serialises");
    assert_eq!(value["metadata"], json!({"name": "10-244-41-192-30"}));
    assert_eq!(
        value["spec"],
        json!({
            "affinity": "host:worker-1",
            "affinityClaimTime": "2026-03-04T05:06:07Z",
            "allocations": [null, null, null, null],
            "attributes": [],
            "cidr": "10.244.41.192/30",
            "deleted": false,
            "sequenceNumber": S,
            "sequenceNumberForAllocation": {},
            "strictAffinity": false,
            "unallocated": [0, 1, 2, 3],
        })
    );
}

#[test]
fn released_addresses_are_used_again_in_the_order_of_their_release() {
    let mut block = block("10.0.0.0/30");
    for name in ["a", "b", "c", "d"] {
        take(&mut block, name);
    }
    assert!(block.take(1, &claim("x"), &none()).is_empty());
    release(&mut block, "c", 0, 1);
    release(&mut block, "a", 0, 2);
    assert_eq!(take(&mut block, "e"), 2);
    let spec = &block.object().spec;
    assert_eq!(spec.allocations, [None, Some(0), Some(2), Some(1)]);
    assert_eq!(spec.unallocated, [0]);
    let handles: Vec<_> = spec
        .attributes
        .iter()
        .filter_map(|a| a.handle_id.as_deref())
        .collect();
    assert_eq!(handles, ["b", "d", "e"]);
    let stamps = spec
        .sequence_number_for_allocation
        .clone()
        .expect("present");
    let expected = [("1", S + 1), ("2", S + 6), ("3", S + 3)];
    assert_eq!(stamps, expected.map(|(k, v)| (k.to_owned(), v)).into());
    assert_eq!(block.sequence(), S + 7);
    assert_eq!(take(&mut block, "f"), 0);
}

#[test]
fn a_cooling_address_counts_as_in_use_until_its_time_has_passed() {
    let mut start = block("10.0.0.0/30");
    for name in ["a", "b", "c"] {
        take(&mut start, name);
    }
    release(&mut start, "a", 30, 0);
    let cooldown = SignedDuration::from_secs(30);

    let mut early = start.clone();
    early.normalise(cooldown, at(10));
    assert_eq!(early.holder(0), Holder::Cooling);
    assert!(!early.take_one(0, &claim("z")));
    assert_eq!(early.take(2, &claim("z"), &none()), [3]);
    assert!(!early.is_empty());

    let mut late = start;
    late.normalise(cooldown, at(31));
    assert_eq!(late.take(2, &claim("z"), &none()), [3, 0]);
    assert_eq!(late.object().spec.attributes.len(), 3);
    assert!(late.coldest().is_none());
}

#[test]
fn a_release_decided_on_old_knowledge_changes_nothing() {
    let mut block = block("10.0.0.0/30");
    take(&mut block, "a");
    let expect = |handle: &str, stamp| Expected {
        handle: Some(handle.into()),
        stamp: Some(stamp),
    };
    let zero = SignedDuration::ZERO;
    let before = block.clone();
    let stale = block.release(&[(0, expect("a", S - 1))].into(), zero, at(1));
    assert!(matches!(
        stale,
        Err(ReleaseRefused::Stamp { ordinal: 0, .. })
    ));
    let wrong = block.release(&[(0, expect("b", S))].into(), zero, at(1));
    assert!(matches!(wrong, Err(ReleaseRefused::Handle { .. })));
    assert_eq!(block, before);
    let good = block
        .release(&[(0, expect("a", S))].into(), zero, at(1))
        .expect("released");
    assert_eq!(good.released, [0]);
    assert_eq!(good.by_handle, BTreeMap::from([("a".to_owned(), 1)]));
    let again = block
        .release(&[(0, Expected::default())].into(), zero, at(1))
        .expect("harmless");
    assert_eq!((again.released.len(), again.unallocated), (0, vec![0]));
}

#[test]
fn releasing_a_cooling_address_again_is_harmless() {
    let mut block = block("10.0.0.0/30");
    take(&mut block, "a");
    release(&mut block, "a", 60, 0);
    let again = block
        .release(
            &[(0, Expected::default())].into(),
            SignedDuration::from_secs(60),
            at(1),
        )
        .expect("harmless");
    assert_eq!(again.unallocated, [0]);
    assert!(again.by_handle.is_empty());
}

#[test]
fn a_block_created_again_never_repeats_a_stamp() {
    let mut old = block("10.0.0.0/30");
    take(&mut old, "a");
    let mut new = Block::new(old.cidr(), &Owner::Host("worker-2".into()), at(5));
    new.take_one(0, &claim("b"));
    let stale = Expected {
        handle: None,
        stamp: Some(old.stamp(0)),
    };
    assert!(
        new.release(&[(0, stale)].into(), SignedDuration::ZERO, at(6))
            .is_err()
    );
}

#[test]
fn reserved_addresses_keep_their_place_in_the_queue() {
    let reserved = Reservations::of(&[
        "10.0.0.1/32".parse().expect("net"),
        "10.0.0.17/32".parse().expect("net"),
        "10.0.0.32/30".parse().expect("net"),
    ]);
    let mut block = block("10.0.0.0/26");
    assert_eq!(block.usable_len(&reserved), 58);
    let taken = block.take(64, &claim("a"), &reserved);
    assert_eq!((taken.len(), &taken[..3]), (58, &[0, 2, 3][..]));
    assert_eq!(block.object().spec.unallocated, [1, 17, 32, 33, 34, 35]);
    assert!(block.take_one(17, &claim("b")));
}

#[test]
fn inconsistent_blocks_are_refused_with_every_reason_and_can_be_repaired() {
    let mut good = block("10.0.0.0/30");
    take(&mut good, "a");
    take(&mut good, "b");
    let object = good.object().clone();

    let mut dangling = object.clone();
    dangling.spec.allocations[3] = Some(7);
    let error = Block::open(dangling.clone()).expect_err("refused");
    assert!(error.faults.contains(&BlockFault::Reference {
        ordinal: 3,
        index: 7
    }));
    assert!(error.to_string().contains("10-0-0-0-30"), "{error}");
    assert!(repair(&mut dangling.spec));
    let repaired = Block::open(dangling).expect("valid");
    assert_eq!(repaired.object().spec.unallocated, [2, 3]);
    assert_eq!(repaired.held().count(), 2);

    let mut short = object.clone();
    short.spec.allocations.pop();
    assert_eq!(
        faults(&short.spec),
        [BlockFault::Length { found: 3, size: 4 }]
    );
    assert!(repair(&mut short.spec) && faults(&short.spec).is_empty());

    let mut queue = object;
    queue.spec.unallocated = vec![2, 2, 0, -1];
    assert_eq!(faults(&queue.spec).len(), 4);
    assert!(repair(&mut queue.spec));
    assert_eq!(queue.spec.unallocated, [2, 3]);
}

#[test]
fn fields_of_others_and_equal_owners_are_kept() {
    let mut object = block("10.0.0.0/30").object().clone();
    object.spec.extra.insert("future".into(), json!({"a": 1}));
    object.metadata.annotations = Some([("x".to_owned(), "y".to_owned())].into());
    let mut block = Block::open(object).expect("valid");
    block.take(2, &claim("a"), &none());
    let written = block.to_write();
    assert_eq!(written.spec.extra["future"], json!({"a": 1}));
    assert!(written.metadata.annotations.is_some());
    assert_eq!(
        written.spec.attributes.len(),
        1,
        "one entry serves both addresses"
    );
}

#[test]
fn windows_reservations_do_not_keep_a_block_from_being_empty() {
    let mut block = block("10.0.0.0/30");
    block.take(1, &claim("Windows-Reserved-IPAM-Handle"), &none());
    assert!(block.is_empty());
    take(&mut block, "a");
    assert!(!block.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Take(usize, u8),
    TakeOne(usize, u8),
    Release(u8),
    ReleaseOne(usize),
    FreeAtOnce(usize),
    Relabel(usize, u8),
    Pass(i64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0usize..4, 0u8..5).prop_map(|(n, h)| Step::Take(n, h)),
        (0usize..9, 0u8..5).prop_map(|(n, h)| Step::TakeOne(n, h)),
        (0u8..5).prop_map(Step::Release),
        (0usize..9).prop_map(Step::ReleaseOne),
        (0usize..9).prop_map(Step::FreeAtOnce),
        (0usize..9, 0u8..5).prop_map(|(n, h)| Step::Relabel(n, h)),
        (0i64..20).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn every_sequence_of_changes_leaves_a_valid_block(
        steps in proptest::collection::vec(step(), 0..60),
        cooldown in 0i64..15,
    ) {
        let mut block = block("10.0.0.0/29");
        let cooldown = SignedDuration::from_secs(cooldown);
        let mut now = 0;
        for step in steps {
            let before = block.sequence();
            match step {
                Step::Take(n, h) => {
                    let free = block.free_len();
                    prop_assert_eq!(block.take(n, &claim(&h.to_string()), &none()).len(), n.min(free));
                }
                Step::TakeOne(n, h) => {
                    let free = n < 8 && block.holder(n) == Holder::Free;
                    prop_assert_eq!(block.take_one(n, &claim(&h.to_string())), free);
                }
                Step::Release(h) => {
                    block.release_handle(&h.to_string(), cooldown, at(now));
                    prop_assert!(block.held_by(&h.to_string()).is_empty());
                }
                Step::ReleaseOne(n) => {
                    let all = [(n, Expected::default())].into();
                    let result = block.release(&all, cooldown, at(now)).expect("nothing expected");
                    prop_assert_eq!(result.released.len() + result.unallocated.len(), 1);
                }
                Step::FreeAtOnce(n) => block.free_at_once(&[n]),
                Step::Relabel(n, h) if n < 8 && matches!(block.holder(n), Holder::Held(_)) => {
                    block.relabel(n, &claim(&h.to_string()));
                }
                Step::Relabel(..) => {}
                Step::Pass(seconds) => {
                    now += seconds;
                    block.normalise(cooldown, at(now));
                }
            }
            let spec = &block.object().spec;
            prop_assert_eq!(faults(spec), vec![]);
            let held = spec.allocations.iter().filter(|a| a.is_some()).count();
            let stamps = spec.sequence_number_for_allocation.as_ref().map_or(0, BTreeMap::len);
            prop_assert_eq!(held, stamps);
            block = Block::open(block.to_write()).expect("valid");
            prop_assert_eq!(block.sequence(), before + 1);
        }
    }
}
