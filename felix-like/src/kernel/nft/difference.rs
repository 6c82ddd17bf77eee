//! The smallest transaction that turns the table that is there into the one wanted.

use std::collections::BTreeSet;

use super::message::Batch;
use super::model::{Table, TableFlags};

/// Messages that make `actual` (nothing, when absent) into `desired`. Only what differs is touched: elements one by
/// one, chains as a whole. Returns an empty batch when nothing differs.
///
/// With `rebuild` the table is deleted and made anew in the same transaction, which packets never notice.
pub fn difference(
    desired: &Table,
    actual: Option<&Table>,
    flags: TableFlags,
    rebuild: bool,
) -> Batch {
    let family = desired.family;
    let table = desired.name.as_str();
    let mut batch = Batch::new();
    let rebuild = rebuild || actual.is_some_and(|a| cannot_be_changed(desired, a));
    let there = actual.filter(|_| !rebuild);
    if rebuild && actual.is_some() {
        batch.delete_table(family, table);
    }
    if there.is_none() {
        batch.table(family, table, flags);
    }

    for (name, set) in &desired.sets {
        if there.is_none_or(|t| !t.sets.contains_key(name)) {
            batch.set(family, table, name, set);
        }
    }
    for (name, chain) in &desired.chains {
        if there.is_none_or(|t| !t.chains.contains_key(name)) {
            batch.chain(family, table, name, chain);
        }
    }
    // After the chains, because elements of verdict maps name them.
    for (name, set) in &desired.sets {
        let none = BTreeSet::new();
        let old = there
            .and_then(|t| t.sets.get(name))
            .map_or(&none, |s| &s.elements);
        batch.delete_elements(family, table, name, old.difference(&set.elements));
        batch.add_elements(family, table, name, set.elements.difference(old));
    }
    for (name, chain) in &desired.chains {
        let old = there.and_then(|t| t.chains.get(name));
        if old.is_some_and(|o| o.rules == chain.rules) {
            continue;
        }
        if old.is_some_and(|o| !o.rules.is_empty()) {
            batch.flush_chain(family, table, name);
        }
        for rule in &chain.rules {
            batch.rule(family, table, name, rule);
        }
    }
    if let Some(there) = there {
        let extra: Vec<&String> = there
            .chains
            .keys()
            .filter(|n| !desired.chains.contains_key(*n))
            .collect();
        // Empty all first: they may jump to each other.
        for name in &extra {
            batch.flush_chain(family, table, name);
        }
        for name in extra {
            batch.delete_chain(family, table, name);
        }
        for name in there.sets.keys().filter(|n| !desired.sets.contains_key(*n)) {
            batch.delete_set(family, table, name);
        }
    }
    batch
}

/// Base chains keep their hook, and sets their type, for life.
fn cannot_be_changed(desired: &Table, actual: &Table) -> bool {
    let other_base = |(name, chain): (&String, &super::model::Chain)| {
        actual
            .chains
            .get(name)
            .is_some_and(|a| a.base != chain.base)
    };
    let other_shape = |(name, set): (&String, &super::model::Set)| {
        actual.sets.get(name).is_some_and(|a| !a.same_shape(set))
    };
    desired.chains.iter().any(other_base) || desired.sets.iter().any(other_shape)
}
