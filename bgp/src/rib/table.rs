//! The table: every path of every prefix, Adj-RIBs-In and Loc-RIB in one.
//!
//! The paths of a prefix are ordered: the selected ones first. A prefix that changed is *dirty*
//! until the next decision; what was selected before its first change is kept aside, so that a
//! route that flaps within one batch costs its neighbours nothing.

use std::sync::Arc;

use ipnet::IpNet;

use super::FastMap;
use super::decision::DecisionContext;
use super::path::{Path, SourceId};
use crate::Family;
use crate::wire::Attributes;

#[derive(Debug, Default)]
struct Entry {
    paths: Vec<Path>,
    selected: usize,
}

/// One selected path, enough to tell whether a selection changed.
#[derive(Debug, Clone)]
pub(crate) struct Selected {
    pub(crate) source: SourceId,
    pub(crate) path_id: u32,
    pub(crate) attributes: Arc<Attributes>,
}

impl PartialEq for Selected {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
            && self.path_id == other.path_id
            && Arc::ptr_eq(&self.attributes, &other.attributes)
    }
}

/// Changes in counts caused by one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CountChange {
    pub(crate) received: i64,
    pub(crate) accepted: i64,
}

/// All paths by prefix.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: FastMap<IpNet, Entry>,
    dirty: FastMap<IpNet, Vec<Selected>>,
}

impl Entry {
    fn selection(&self) -> Vec<Selected> {
        self.paths[..self.selected]
            .iter()
            .filter_map(|path| {
                let attributes = Arc::clone(path.accepted.as_ref()?);
                Some(Selected {
                    source: path.source,
                    path_id: path.path_id,
                    attributes,
                })
            })
            .collect()
    }
}

impl Table {
    /// Paths of a prefix, selected ones first.
    pub(crate) fn paths(&self, prefix: &IpNet) -> &[Path] {
        self.entries.get(prefix).map_or(&[], |entry| &entry.paths)
    }

    /// Selected paths of a prefix, best first.
    pub(crate) fn selected(&self, prefix: &IpNet) -> &[Path] {
        self.entries
            .get(prefix)
            .map_or(&[], |entry| &entry.paths[..entry.selected])
    }

    /// All prefixes of a family that have a selected path.
    pub(crate) fn selected_prefixes(&self, family: Family) -> impl Iterator<Item = IpNet> + '_ {
        self.entries
            .iter()
            .filter(move |(prefix, entry)| {
                entry.selected > 0 && Family::of_prefix(prefix) == family
            })
            .map(|(prefix, _)| *prefix)
    }

    /// All prefixes.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = &IpNet> {
        self.entries.keys()
    }

    /// Adds a path, or replaces the one with the same source and identifier.
    pub(crate) fn insert(&mut self, prefix: IpNet, path: Path) -> CountChange {
        let entry = self.entries.entry(prefix).or_default();
        let accepted = i64::from(path.accepted.is_some());
        let same = |p: &Path| p.source == path.source && p.path_id == path.path_id;
        match entry.paths.iter().position(same) {
            Some(at) => {
                let old = &entry.paths[at];
                let unchanged = Arc::ptr_eq(&old.received, &path.received)
                    && same_attributes(old.accepted.as_ref(), path.accepted.as_ref())
                    && old.preference == path.preference;
                let change = CountChange {
                    received: 0,
                    accepted: accepted - i64::from(old.accepted.is_some()),
                };
                if !unchanged {
                    self.dirty
                        .entry(prefix)
                        .or_insert_with(|| entry.selection());
                }
                entry.paths[at] = path;
                change
            }
            None => {
                self.dirty
                    .entry(prefix)
                    .or_insert_with(|| entry.selection());
                entry.paths.push(path);
                CountChange {
                    received: 1,
                    accepted,
                }
            }
        }
    }

    /// Removes the path of a source with an identifier.
    pub(crate) fn remove(&mut self, prefix: &IpNet, source: SourceId, id: u32) -> CountChange {
        let Some(entry) = self.entries.get_mut(prefix) else {
            return CountChange::default();
        };
        let same = |path: &Path| path.source == source && path.path_id == id;
        let Some(at) = entry.paths.iter().position(same) else {
            return CountChange::default();
        };
        self.dirty
            .entry(*prefix)
            .or_insert_with(|| entry.selection());
        let old = entry.paths.remove(at);
        if at < entry.selected {
            entry.selected -= 1;
        }
        CountChange {
            received: -1,
            accepted: -i64::from(old.accepted.is_some()),
        }
    }

    /// Removes the paths of a source in a family, all or only the stale ones.
    pub(crate) fn remove_source(
        &mut self,
        source: SourceId,
        family: Family,
        only_stale: bool,
    ) -> CountChange {
        let mut change = CountChange::default();
        for (prefix, entry) in &mut self.entries {
            if Family::of_prefix(prefix) != family {
                continue;
            }
            let goes = |path: &Path| path.source == source && (path.stale || !only_stale);
            if !entry.paths.iter().any(goes) {
                continue;
            }
            self.dirty
                .entry(*prefix)
                .or_insert_with(|| entry.selection());
            let mut index = 0;
            let selected = entry.selected;
            entry.paths.retain(|path| {
                let stays = !goes(path);
                if !stays {
                    change.received -= 1;
                    change.accepted -= i64::from(path.accepted.is_some());
                    entry.selected -= usize::from(index < selected);
                }
                index += 1;
                stays
            });
        }
        change
    }

    /// Marks the paths of a source in a family as stale; returns how many.
    pub(crate) fn mark_stale(&mut self, source: SourceId, family: Family) -> usize {
        let mut count = 0;
        for (prefix, entry) in &mut self.entries {
            if Family::of_prefix(prefix) != family {
                continue;
            }
            for path in entry.paths.iter_mut().filter(|path| path.source == source) {
                path.stale = true;
                count += 1;
            }
        }
        count
    }

    /// Changes paths of a source in place; `change` says whether it did.
    pub(crate) fn reconsider(
        &mut self,
        source: SourceId,
        mut change: impl FnMut(&IpNet, &mut Path) -> bool,
    ) {
        for (prefix, entry) in &mut self.entries {
            if !entry.paths.iter().any(|path| path.source == source) {
                continue;
            }
            let before = entry.selection();
            let mut changed = false;
            for path in entry.paths.iter_mut().filter(|path| path.source == source) {
                changed |= change(prefix, path);
            }
            if changed {
                self.dirty.entry(*prefix).or_insert(before);
            }
        }
    }

    /// Marks everything for decision, for a change in the context.
    pub(crate) fn touch_all(&mut self) {
        for (prefix, entry) in &self.entries {
            self.dirty
                .entry(*prefix)
                .or_insert_with(|| entry.selection());
        }
    }

    /// True when a decision is due.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Decides every dirty prefix and reports those whose selection changed, with the new one.
    pub(crate) fn decide(
        &mut self,
        context: &DecisionContext,
        mut changed: impl FnMut(IpNet, &[Path]),
    ) {
        for (prefix, before) in self.dirty.drain() {
            let Some(entry) = self.entries.get_mut(&prefix) else {
                continue;
            };
            entry.selected = context.select(&mut entry.paths);
            if entry.selection() != before {
                changed(prefix, &entry.paths[..entry.selected]);
            }
            if entry.paths.is_empty() {
                self.entries.remove(&prefix);
            }
        }
    }
}

fn same_attributes(a: Option<&Arc<Attributes>>, b: Option<&Arc<Attributes>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::NextHops;
    use crate::rib::{Interner, SourceFacts};

    fn context() -> DecisionContext {
        let facts = SourceFacts::local(Ipv4Addr::LOCALHOST);
        DecisionContext {
            sources: (0..4).map(|n| (SourceId(n), facts)).collect(),
            next_hops: NextHops::new(),
            default_local_pref: 100,
            max_paths: 1,
        }
    }

    fn path(source: u32, attributes: &Arc<Attributes>) -> Path {
        Path {
            source: SourceId(source),
            path_id: 0,
            received: Arc::clone(attributes),
            accepted: Some(Arc::clone(attributes)),
            preference: 100,
            stale: false,
        }
    }

    fn decide(table: &mut Table) -> Vec<(IpNet, usize)> {
        let mut changes = Vec::new();
        table.decide(&context(), |prefix, paths| {
            changes.push((prefix, paths.len()))
        });
        changes
    }

    #[test]
    fn a_prefix_that_flaps_within_one_batch_changes_nothing() {
        let mut interner = Interner::default();
        let attributes = interner.intern(Attributes::default());
        let prefix = "10.0.0.0/8".parse().unwrap();
        let mut table = Table::default();
        table.insert(prefix, path(1, &attributes));
        assert_eq!(decide(&mut table), [(prefix, 1)]);
        table.remove(&prefix, SourceId(1), 0);
        table.insert(prefix, path(1, &attributes));
        assert_eq!(decide(&mut table), []);
        table.remove(&prefix, SourceId(1), 0);
        assert_eq!(decide(&mut table), [(prefix, 0)]);
        assert_eq!(table.prefixes().count(), 0);
    }

    #[test]
    fn only_stale_paths_of_the_source_and_family_go() {
        let mut interner = Interner::default();
        let attributes = interner.intern(Attributes::default());
        let old = "10.0.0.0/8".parse().unwrap();
        let new = "11.0.0.0/8".parse().unwrap();
        let mut table = Table::default();
        table.insert(old, path(1, &attributes));
        table.insert(new, path(1, &attributes));
        table.insert(old, path(2, &attributes));
        assert_eq!(table.mark_stale(SourceId(1), Family::Ipv6), 0);
        assert_eq!(table.mark_stale(SourceId(1), Family::Ipv4), 2);
        table.insert(new, path(1, &attributes));
        let change = table.remove_source(SourceId(1), Family::Ipv4, true);
        assert_eq!(
            change,
            CountChange {
                received: -1,
                accepted: -1
            }
        );
        assert_eq!(table.paths(&old).len(), 1);
        assert_eq!(table.paths(&new).len(), 1);
    }

    #[test]
    fn a_repeated_announcement_only_clears_the_stale_mark() {
        let mut interner = Interner::default();
        let attributes = interner.intern(Attributes::default());
        let prefix = "10.0.0.0/8".parse().unwrap();
        let mut table = Table::default();
        table.insert(prefix, path(1, &attributes));
        decide(&mut table);
        table.mark_stale(SourceId(1), Family::Ipv4);
        assert_eq!(
            table.insert(prefix, path(1, &attributes)),
            CountChange::default()
        );
        assert!(!table.is_dirty());
        assert!(!table.paths(&prefix)[0].stale);
    }
}
