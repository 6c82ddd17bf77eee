//! Desired against actual state, the same way for every kernel table.
//!
//! `desired` comes from us, `actual` from a dump, from the kernel's notifications, or from what we last wrote
//! successfully. Whatever differs is *work*; a key that fails stays work without blocking others. Nothing here knows
//! what the keys and values are, does I/O or reads a clock.

mod damping;

use crate::map::{HashMap, HashSet};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

pub use damping::Damping;

#[derive(Debug, Clone)]
struct Entry<V> {
    desired: Option<V>,
    actual: Option<V>,
    /// It was desired at some time in this run, so what is there is there because of us.
    mine: bool,
    /// Desired, but cannot be there now (its interface is down). Neither written nor removed.
    suspended: bool,
}

impl<V> Default for Entry<V> {
    fn default() -> Self {
        Self {
            desired: None,
            actual: None,
            mine: false,
            suspended: false,
        }
    }
}

/// What a notification or a dump means for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation<V> {
    /// Nothing of ours: neither desired nor written by us.
    Foreign,
    /// It is as it should be.
    Agrees,
    /// It is gone although desired.
    Missing {
        /// What should be there.
        expected: V,
    },
    /// It is not as desired.
    Changed {
        /// What should be there.
        expected: V,
        /// What is there.
        found: V,
    },
}

/// One thing to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work<K, V> {
    /// Write `value`, replacing `old`.
    Write {
        /// Where.
        key: K,
        /// What.
        value: V,
        /// What is there now.
        old: Option<V>,
    },
    /// Remove `value`.
    Remove {
        /// Where.
        key: K,
        /// What is there now.
        value: V,
    },
}

/// How removing a key that nobody desires is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Remove it.
    Now,
    /// Ours, perhaps, but not yet: look again after [`Reconciled::reconsider`].
    Later,
    /// Somebody else's.
    Never,
}

/// Something the kernel has and nobody desires.
#[derive(Debug)]
pub struct Undesired<'a, K, V> {
    /// Where.
    pub key: &'a K,
    /// What.
    pub value: &'a V,
    /// It was desired at some time in this run.
    pub mine: bool,
    /// The table it is in.
    pub table: &'a Reconciled<K, V>,
}

/// One kernel table as it should be and as it is.
#[derive(Debug)]
pub struct Reconciled<K, V> {
    entries: HashMap<K, Entry<V>>,
    pending: BTreeSet<K>,
    not_before: HashMap<K, Instant>,
    failed: HashMap<K, String>,
    desired: usize,
}

impl<K, V> Default for Reconciled<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            pending: BTreeSet::new(),
            not_before: HashMap::default(),
            failed: HashMap::default(),
            desired: 0,
        }
    }
}

impl<K: Ord + Hash + Clone + Debug, V: Eq + Clone> Reconciled<K, V> {
    /// Desires `value` at `key`.
    pub fn want(&mut self, key: K, value: V) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.desired.is_none() {
            self.desired += 1;
        }
        entry.mine = true;
        entry.suspended = false;
        let same = entry.desired.as_ref() == Some(&value);
        if !same {
            self.failed.remove(&key);
        }
        let agrees = entry.actual.as_ref() == Some(&value);
        entry.desired = Some(value);
        if agrees {
            self.settle(&key);
        } else if !(same && self.failed.contains_key(&key)) {
            self.pending.insert(key);
        }
    }

    /// Desires nothing at `key` any more.
    pub fn unwant(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if entry.desired.take().is_some() {
            self.desired -= 1;
        }
        entry.suspended = false;
        self.failed.remove(key);
        self.not_before.remove(key);
        if entry.actual.is_some() {
            self.pending.insert(key.clone());
        } else {
            self.pending.remove(key);
            self.entries.remove(key);
        }
    }

    /// Leaves `key` alone until it is wanted or unwanted again: what is desired cannot be there at the moment.
    pub fn suspend(&mut self, key: &K) {
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.desired.take().is_some() {
            self.desired -= 1;
        }
        entry.mine = true;
        entry.suspended = true;
        self.pending.remove(key);
        self.failed.remove(key);
    }

    /// Takes note of what the kernel has at `key` now.
    pub fn observe(&mut self, key: &K, found: Option<V>) -> Observation<V> {
        if found.is_none() && !self.entries.contains_key(key) {
            return Observation::Foreign;
        }
        let entry = self.entries.entry(key.clone()).or_default();
        entry.actual = found;
        let observation = match (&entry.desired, &entry.actual) {
            (Some(expected), Some(found)) if expected == found => Observation::Agrees,
            (Some(expected), Some(found)) => Observation::Changed {
                expected: expected.clone(),
                found: found.clone(),
            },
            (Some(expected), None) => Observation::Missing {
                expected: expected.clone(),
            },
            (None, _) => Observation::Foreign,
        };
        match observation {
            Observation::Agrees => self.settle(key),
            Observation::Missing { .. } | Observation::Changed { .. } => {
                self.pending.insert(key.clone());
            }
            Observation::Foreign if entry.actual.is_some() && !entry.suspended => {
                self.pending.insert(key.clone());
            }
            Observation::Foreign => {
                self.pending.remove(key);
                if !entry.suspended && entry.actual.is_none() {
                    self.entries.remove(key);
                }
            }
        }
        observation
    }

    /// Takes a complete dump; returns the keys whose observation is not what was known, with the observation.
    pub fn replace_actual(
        &mut self,
        found: impl IntoIterator<Item = (K, V)>,
    ) -> Vec<(K, Observation<V>)> {
        let mut seen = HashSet::default();
        let mut news = Vec::new();
        for (key, value) in found {
            let known = self.entries.get(&key).and_then(|e| e.actual.as_ref()) == Some(&value);
            if !known {
                let observation = self.observe(&key, Some(value));
                news.push((key.clone(), observation));
            }
            seen.insert(key);
        }
        let lost: Vec<K> = self
            .entries
            .iter()
            .filter(|(key, entry)| entry.actual.is_some() && !seen.contains(*key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in lost {
            let observation = self.observe(&key, None);
            news.push((key, observation));
        }
        news
    }

    /// Next things to do, at most `limit`: writes first, so that a replacement under another key is there before the
    /// old item goes. `judge` decides about items that nobody desires.
    pub fn take_work(
        &mut self,
        limit: usize,
        now: Instant,
        mut judge: impl FnMut(Undesired<'_, K, V>) -> Removal,
    ) -> Vec<Work<K, V>> {
        let mut writes = Vec::new();
        let mut removals = Vec::new();
        let mut settled = Vec::new();
        for key in &self.pending {
            if writes.len() + removals.len() >= limit {
                break;
            }
            if self.not_before.get(key).is_some_and(|t| *t > now) {
                continue;
            }
            let Some(entry) = self.entries.get(key) else {
                settled.push(key.clone());
                continue;
            };
            match (&entry.desired, &entry.actual) {
                (Some(desired), actual) if actual.as_ref() != Some(desired) => {
                    let old = actual.clone();
                    writes.push(Work::Write {
                        key: key.clone(),
                        value: desired.clone(),
                        old,
                    });
                }
                (None, Some(actual)) if !entry.suspended => match judge(Undesired {
                    key,
                    value: actual,
                    mine: entry.mine,
                    table: &*self,
                }) {
                    Removal::Now => {
                        removals.push(Work::Remove {
                            key: key.clone(),
                            value: actual.clone(),
                        });
                    }
                    Removal::Later | Removal::Never => settled.push(key.clone()),
                },
                _ => settled.push(key.clone()),
            }
        }
        for key in settled {
            self.pending.remove(&key);
        }
        for work in writes.iter().chain(&removals) {
            let (Work::Write { key, .. } | Work::Remove { key, .. }) = work;
            self.pending.remove(key);
        }
        writes.append(&mut removals);
        writes
    }

    /// A write succeeded.
    pub fn written(&mut self, key: &K, value: V) {
        let entry = self.entries.entry(key.clone()).or_default();
        entry.actual = Some(value);
        if entry.desired == entry.actual {
            self.settle(key);
        } else {
            self.pending.insert(key.clone());
        }
    }

    /// A removal succeeded.
    pub fn removed(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.actual = None;
        if entry.desired.is_some() {
            self.pending.insert(key.clone());
        } else if !entry.suspended {
            self.entries.remove(key);
            self.pending.remove(key);
        }
    }

    /// The kernel refused. The key is left alone until it changes or [`Reconciled::retry_failed`].
    pub fn failed(&mut self, key: &K, why: String) {
        self.failed.insert(key.clone(), why);
        self.pending.remove(key);
    }

    /// Puts a key back that was taken as work and could not be tried.
    pub fn put_back(&mut self, key: &K) {
        self.pending.insert(key.clone());
    }

    /// Tries `key` again if it failed.
    pub fn retry(&mut self, key: &K) {
        if self.failed.remove(key).is_some() {
            self.pending.insert(key.clone());
        }
    }

    /// Tries everything again that failed; returns how many.
    pub fn retry_failed(&mut self) -> usize {
        let failed = std::mem::take(&mut self.failed);
        let count = failed.len();
        self.pending.extend(failed.into_keys());
        count
    }

    /// Looks again at everything that is there and that nobody desires.
    pub fn reconsider(&mut self) {
        for (key, entry) in &self.entries {
            if entry.desired.is_none() && entry.actual.is_some() && !entry.suspended {
                self.pending.insert(key.clone());
            }
        }
    }

    /// Looks again at some keys, as [`Reconciled::reconsider`] does at all.
    pub fn reconsider_keys(&mut self, keys: impl IntoIterator<Item = K>) {
        for key in keys {
            let open = |e: &Entry<V>| e.desired.is_none() && e.actual.is_some() && !e.suspended;
            if self.entries.get(&key).is_some_and(open) {
                self.pending.insert(key);
            }
        }
    }

    /// Does not touch `key` before `when`.
    pub fn delay(&mut self, key: &K, when: Instant) {
        self.not_before.insert(key.clone(), when);
    }

    /// Ends the delay of `key`.
    pub fn delay_over(&mut self, key: &K) {
        self.not_before.remove(key);
    }

    /// When the first delayed key becomes due.
    pub fn next_due(&self) -> Option<Instant> {
        self.not_before
            .iter()
            .filter(|(k, _)| self.pending.contains(*k))
            .map(|(_, t)| *t)
            .min()
    }

    fn settle(&mut self, key: &K) {
        self.pending.remove(key);
        self.failed.remove(key);
        self.not_before.remove(key);
    }

    /// True when there is work that may be done now.
    pub fn has_work(&self, now: Instant) -> bool {
        self.pending
            .iter()
            .any(|k| self.not_before.get(k).is_none_or(|t| *t <= now))
    }

    /// What the kernel has at `key`.
    pub fn actual(&self, key: &K) -> Option<&V> {
        self.entries.get(key)?.actual.as_ref()
    }

    /// What should be at `key`.
    pub fn desired(&self, key: &K) -> Option<&V> {
        self.entries.get(key)?.desired.as_ref()
    }

    /// True when `key` is desired and as desired.
    pub fn is_settled(&self, key: &K) -> bool {
        self.entries
            .get(key)
            .is_some_and(|e| e.desired.is_some() && e.desired == e.actual)
    }

    /// True when `key` is desired but cannot be there now.
    pub fn is_suspended(&self, key: &K) -> bool {
        self.entries.get(key).is_some_and(|e| e.suspended)
    }

    /// Keys the kernel refuses, with its reason.
    pub fn failures(&self) -> impl Iterator<Item = (&K, &str)> {
        self.failed.iter().map(|(k, why)| (k, why.as_str()))
    }

    /// Everything the kernel has.
    pub fn actuals(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries
            .iter()
            .filter_map(|(k, e)| Some((k, e.actual.as_ref()?)))
    }

    /// Number of desired keys.
    pub fn desired_count(&self) -> usize {
        self.desired
    }

    /// Number of desired keys that are there, as desired or otherwise. Takes time in proportion to the open work only.
    pub fn present_count(&self) -> usize {
        let absent = |key: &&K| {
            self.entries
                .get(*key)
                .is_some_and(|e| e.desired.is_some() && e.actual.is_none())
        };
        let open = self
            .pending
            .iter()
            .chain(self.failed.keys().filter(|k| !self.pending.contains(*k)));
        self.desired - open.filter(absent).count()
    }

    /// Number of keys not yet as desired, including refused ones.
    pub fn pending_count(&self) -> usize {
        self.pending.len() + self.failed.len()
    }
}

#[cfg(test)]
mod tests;
