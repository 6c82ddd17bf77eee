//! The decision process (RFC 4271 section 9.1.2, RFC 4456 section 9), by elimination: each step
//! leaves the candidates that are best in it, so the order of arrival cannot matter and MED is only
//! compared between routes of one neighbouring AS.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::path::{Path, SourceFacts, SourceId};
use super::{FastMap, Table};
use crate::NextHops;
use crate::policy::Source;
use crate::wire::Attributes;

/// What decisions depend on besides the paths.
#[derive(Debug)]
pub(crate) struct DecisionContext {
    /// Facts of every source that has paths.
    pub(crate) sources: FastMap<SourceId, SourceFacts>,
    /// Known next hops.
    pub(crate) next_hops: NextHops,
    /// LOCAL_PREF of paths that have none.
    pub(crate) default_local_pref: u32,
    /// Most paths of equal cost.
    pub(crate) max_paths: usize,
}

/// The step in which a path lost, or what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Rejected,
    Unreachable,
    Preference,
    LocalPref,
    AsPath,
    Origin,
    Med,
    External,
    Metric,
    Multipath,
    Best,
}

impl Step {
    /// In words an operator understands.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Step::Rejected => "rejected by import policy",
            Step::Unreachable => "next hop is unreachable",
            Step::Preference => "another source is preferred",
            Step::LocalPref => "lower LOCAL_PREF",
            Step::AsPath => "longer AS_PATH",
            Step::Origin => "worse ORIGIN",
            Step::Med => "higher MED from the same AS",
            Step::External => "internal, and an external path exists",
            Step::Metric => "higher cost to the next hop",
            Step::Multipath => "equal cost, later in the tie-break",
            Step::Best => "best",
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Candidate<'a> {
    index: usize,
    path: &'a Path,
    attributes: &'a Attributes,
    facts: &'a SourceFacts,
    metric: u32,
}

impl Candidate<'_> {
    /// AS the route was learned from: MED is compared inside it.
    fn neighbour_as(&self) -> u32 {
        self.attributes
            .as_path
            .first()
            .unwrap_or(self.facts.as_number)
    }

    /// Order among paths of equal cost, lowest first.
    fn tie_break(&self) -> (u32, usize, IpAddr, u32) {
        let id = self
            .attributes
            .originator_id
            .unwrap_or(self.facts.router_id);
        (
            u32::from(id),
            self.attributes.cluster_list.len(),
            self.facts.address,
            self.path.path_id,
        )
    }
}

impl DecisionContext {
    fn metric(&self, path: &Path, attributes: &Attributes) -> Option<u32> {
        if path.source == SourceId::LOCAL {
            return Some(0);
        }
        match self.next_hops.get(&attributes.next_hop.address) {
            Some(state) => state.metric,
            None => Some(0),
        }
    }

    /// Puts the best path first and those of equal cost behind it, the others last; returns how
    /// many are selected.
    pub(crate) fn select(&self, paths: &mut [Path]) -> usize {
        if let [only] = paths {
            let eligible = only
                .accepted
                .as_deref()
                .is_some_and(|a| self.metric(only, a).is_some());
            return usize::from(eligible);
        }
        let chosen: Vec<usize> = self.run(paths, &mut |_, _| {});
        reorder(paths, &chosen);
        chosen.len()
    }

    /// Runs the steps; tells `lost` which path lost where. Returns the selected ones, best first.
    fn run(&self, paths: &[Path], lost: &mut dyn FnMut(usize, Step)) -> Vec<usize> {
        let mut set: Vec<Candidate<'_>> = Vec::with_capacity(paths.len());
        for (index, path) in paths.iter().enumerate() {
            let Some(attributes) = path.accepted.as_deref() else {
                lost(index, Step::Rejected);
                continue;
            };
            match (
                self.metric(path, attributes),
                self.sources.get(&path.source),
            ) {
                (Some(metric), Some(facts)) => {
                    set.push(Candidate {
                        index,
                        path,
                        attributes,
                        facts,
                        metric,
                    });
                }
                _ => lost(index, Step::Unreachable),
            }
        }
        keep_best(&mut set, Step::Preference, lost, |c| {
            Reverse(c.path.preference)
        });
        keep_best(&mut set, Step::LocalPref, lost, |c| {
            Reverse(c.attributes.local_pref.unwrap_or(self.default_local_pref))
        });
        keep_best(&mut set, Step::AsPath, lost, |c| {
            c.attributes.as_path.length()
        });
        keep_best(&mut set, Step::Origin, lost, |c| c.attributes.origin);
        keep_lowest_med(&mut set, lost);
        keep_best(&mut set, Step::External, lost, |c| {
            c.facts.kind == Source::Internal
        });
        keep_best(&mut set, Step::Metric, lost, |c| c.metric);
        set.sort_by_key(Candidate::tie_break);
        set.iter()
            .skip(self.max_paths)
            .for_each(|c| lost(c.index, Step::Multipath));
        set.iter()
            .take(self.max_paths)
            .map(|candidate| candidate.index)
            .collect()
    }
}

/// Leaves the candidates with the least key.
fn keep_best<K: Ord>(
    set: &mut Vec<Candidate<'_>>,
    step: Step,
    lost: &mut dyn FnMut(usize, Step),
    key: impl Fn(&Candidate<'_>) -> K,
) {
    if set.len() < 2 {
        return;
    }
    let Some(best) = set.iter().map(&key).min() else {
        return;
    };
    set.retain(|candidate| {
        let stays = key(candidate) == best;
        if !stays {
            lost(candidate.index, step);
        }
        stays
    });
}

/// Leaves, of each neighbouring AS, the candidates with the lowest MED; a missing one is 0.
fn keep_lowest_med(set: &mut Vec<Candidate<'_>>, lost: &mut dyn FnMut(usize, Step)) {
    if set.len() < 2 {
        return;
    }
    let mut lowest: Vec<(u32, u32)> = Vec::new();
    for candidate in set.iter() {
        let (neighbour, med) = (
            candidate.neighbour_as(),
            candidate.attributes.med.unwrap_or(0),
        );
        match lowest.iter_mut().find(|(known, _)| *known == neighbour) {
            Some((_, least)) => *least = med.min(*least),
            None => lowest.push((neighbour, med)),
        }
    }
    set.retain(|candidate| {
        let (neighbour, med) = (
            candidate.neighbour_as(),
            candidate.attributes.med.unwrap_or(0),
        );
        let stays = lowest.contains(&(neighbour, med));
        if !stays {
            lost(candidate.index, Step::Med);
        }
        stays
    });
}

/// Moves the paths at `chosen` to the front in that order.
fn reorder(paths: &mut [Path], chosen: &[usize]) {
    // Where the path that was first at each place is now, and back.
    let mut place: Vec<usize> = (0..paths.len()).collect();
    let mut held: Vec<usize> = (0..paths.len()).collect();
    for (position, original) in chosen.iter().enumerate() {
        let from = place[*original];
        paths.swap(position, from);
        let displaced = held[position];
        held.swap(position, from);
        place[displaced] = from;
        place[*original] = position;
    }
}

/// Why each path of a prefix is where it is, in the order of the table.
pub(crate) fn explain(
    table: &Table,
    prefix: &ipnet::IpNet,
    context: &DecisionContext,
) -> Vec<Step> {
    let paths = table.paths(prefix);
    let mut steps = vec![Step::Multipath; paths.len()];
    let chosen = context.run(paths, &mut |index, step| steps[index] = step);
    if let Some(best) = chosen.first() {
        steps[*best] = Step::Best;
    }
    steps
}

#[cfg(test)]
mod tests;
