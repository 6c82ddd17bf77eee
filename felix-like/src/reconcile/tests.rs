use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

type Table = Reconciled<u8, u8>;

fn work(table: &mut Table) -> Vec<Work<u8, u8>> {
    table.take_work(usize::MAX, Instant::now(), |found| {
        if found.mine {
            Removal::Now
        } else {
            Removal::Never
        }
    })
}

#[test]
fn what_already_agrees_is_no_work() {
    let mut table = Table::default();
    table.observe(&1, Some(10));
    table.want(1, 10);
    assert!(work(&mut table).is_empty());
    assert!(table.is_settled(&1));
}

#[test]
fn what_others_put_there_is_never_removed_but_what_was_once_desired_is() {
    let mut table = Table::default();
    table.observe(&1, Some(10));
    table.observe(&2, Some(20));
    table.want(2, 20);
    table.unwant(&2);
    assert_eq!(work(&mut table), [Work::Remove { key: 2, value: 20 }]);
}

#[test]
fn writes_come_before_removals() {
    let mut table = Table::default();
    table.want(1, 1);
    table.written(&1, 1);
    table.unwant(&1);
    table.want(9, 1);
    let done = work(&mut table);
    assert_eq!(
        done[0],
        Work::Write {
            key: 9,
            value: 1,
            old: None
        }
    );
    assert_eq!(done[1], Work::Remove { key: 1, value: 1 });
}

#[test]
fn a_removal_put_off_is_looked_at_again_on_request() {
    let mut table = Table::default();
    table.observe(&1, Some(1));
    assert!(
        table
            .take_work(9, Instant::now(), |_| Removal::Later)
            .is_empty()
    );
    assert!(
        table
            .take_work(9, Instant::now(), |_| Removal::Now)
            .is_empty()
    );
    table.reconsider();
    assert_eq!(
        table.take_work(9, Instant::now(), |_| Removal::Now).len(),
        1
    );
}

#[test]
fn a_refused_key_rests_until_it_changes_or_is_retried() {
    let mut table = Table::default();
    table.want(1, 1);
    assert_eq!(work(&mut table).len(), 1);
    table.failed(&1, "no".into());
    table.want(1, 1);
    assert!(work(&mut table).is_empty());
    assert_eq!(table.retry_failed(), 1);
    assert_eq!(work(&mut table).len(), 1);
    table.failed(&1, "no".into());
    table.want(1, 2);
    assert_eq!(work(&mut table).len(), 1);
}

#[test]
fn a_suspended_key_is_neither_written_nor_removed() {
    let mut table = Table::default();
    table.want(1, 1);
    table.written(&1, 1);
    table.suspend(&1);
    table.observe(&1, Some(1));
    assert!(work(&mut table).is_empty());
    table.observe(&1, None);
    table.want(1, 1);
    assert_eq!(
        work(&mut table),
        [Work::Write {
            key: 1,
            value: 1,
            old: None
        }]
    );
}

#[test]
fn a_delayed_key_waits_for_its_time() {
    let mut table = Table::default();
    let now = Instant::now();
    table.want(1, 1);
    table.delay(&1, now + Duration::from_secs(5));
    assert!(table.take_work(9, now, |_| Removal::Now).is_empty());
    assert_eq!(table.next_due(), Some(now + Duration::from_secs(5)));
    assert_eq!(
        table
            .take_work(9, now + Duration::from_secs(5), |_| Removal::Now)
            .len(),
        1
    );
}

#[test]
fn a_dump_reports_only_what_is_news() {
    let mut table = Table::default();
    table.want(1, 1);
    table.written(&1, 1);
    table.want(2, 2);
    table.written(&2, 2);
    assert!(table.replace_actual([(1, 1), (2, 2)]).is_empty());
    let news = table.replace_actual([(1, 7), (3, 3)]);
    assert_eq!(
        news,
        [
            (
                1,
                Observation::Changed {
                    expected: 1,
                    found: 7
                }
            ),
            (3, Observation::Foreign),
            (2, Observation::Missing { expected: 2 }),
        ]
    );
}

#[derive(Debug, Clone)]
enum Step {
    Want(u8, u8),
    Unwant(u8),
    Suspend(u8),
    Kernel(u8, Option<u8>),
    Dump,
    Apply,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..6, 0u8..3).prop_map(|(k, v)| Step::Want(k, v)),
        (0u8..6).prop_map(Step::Unwant),
        (0u8..6).prop_map(Step::Suspend),
        (0u8..6, prop::option::of(0u8..3)).prop_map(|(k, v)| Step::Kernel(k, v)),
        Just(Step::Dump),
        Just(Step::Apply),
    ]
}

proptest! {
    /// Whatever order things happen in, once all work is done every desired key is as desired, nothing we wrote is
    #[test]
    fn work_always_ends_in_the_desired_state(steps in prop::collection::vec(step(), 0..80)) {
        let mut table = Table::default();
        let mut kernel: BTreeMap<u8, u8> = BTreeMap::new();
        let mut desired: BTreeMap<u8, Option<u8>> = BTreeMap::new();
        let apply = |table: &mut Table, kernel: &mut BTreeMap<u8, u8>| {
            for item in work(table) {
                match item {
                    Work::Write { key, value, .. } => {
                        kernel.insert(key, value);
                        table.written(&key, value);
                    }
                    Work::Remove { key, .. } => {
                        kernel.remove(&key);
                        table.removed(&key);
                    }
                }
            }
        };
        for step in steps {
            match step {
                Step::Want(k, v) => {
                    table.want(k, v);
                    desired.insert(k, Some(v));
                }
                Step::Unwant(k) => {
                    table.unwant(&k);
                    desired.remove(&k);
                }
                Step::Suspend(k) => {
                    table.suspend(&k);
                    desired.insert(k, None);
                }
                Step::Kernel(k, v) => {
                    match v {
                        Some(v) => kernel.insert(k, v),
                        None => kernel.remove(&k),
                    };
                    table.observe(&k, v);
                }
                Step::Dump => {
                    table.replace_actual(kernel.clone());
                }
                Step::Apply => apply(&mut table, &mut kernel),
            }
            let present = (0..6u8).filter(|k| table.desired(k).is_some() && table.actual(k).is_some());
            prop_assert_eq!(table.present_count(), present.count());
        }
        apply(&mut table, &mut kernel);
        for (key, value) in &desired {
            if let Some(value) = value {
                prop_assert_eq!(kernel.get(key), Some(value));
                prop_assert!(table.is_settled(key));
            }
        }
        prop_assert_eq!(table.desired_count(), desired.values().flatten().count());
        prop_assert_eq!(table.present_count(), table.desired_count());
        prop_assert!(work(&mut table).is_empty());
        for key in kernel.keys() {
            prop_assert!(table.actual(key) == kernel.get(key));
        }
    }
}
