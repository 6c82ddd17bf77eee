//! What keeps objects from taking effect on this node: collected from every part, reported as Events and in
//! NodeReport.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use margay_crds::admin;

/// A problem without its time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Problem {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) reason: String,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl From<margay_felix::calc::sessions::Problem> for Problem {
    fn from(problem: margay_felix::calc::sessions::Problem) -> Self {
        Problem {
            kind: problem.kind.to_owned(),
            name: problem.name,
            reason: problem.reason.to_owned(),
            field: problem.field,
            message: problem.message,
        }
    }
}

/// Open problems by the part that found them.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    open: BTreeMap<&'static str, BTreeMap<Problem, Timestamp>>,
    /// Every kind and reason there ever was, so that a metric goes back to 0.
    seen: BTreeSet<(String, String)>,
}

impl Problems {
    /// Replaces everything one part has to say. Returns the problems that were not open before.
    pub(crate) fn replace(
        &mut self,
        part: &'static str,
        now: Timestamp,
        problems: Vec<Problem>,
    ) -> Vec<Problem> {
        let old = self.open.remove(part).unwrap_or_default();
        let mut fresh = Vec::new();
        let mut current = BTreeMap::new();
        for problem in problems {
            let since = old.get(&problem).copied();
            if since.is_none() {
                fresh.push(problem.clone());
                self.seen
                    .insert((problem.kind.clone(), problem.reason.clone()));
            }
            current.insert(problem, since.unwrap_or(now));
        }
        self.open.insert(part, current);
        fresh
    }

    /// All open problems, oldest first.
    pub(crate) fn list(&self) -> Vec<admin::Problem> {
        let mut all: Vec<(&Timestamp, &Problem)> = self
            .open
            .values()
            .flatten()
            .map(|(problem, since)| (since, problem))
            .collect();
        all.sort();
        all.into_iter()
            .map(|(since, problem)| admin::Problem {
                kind: problem.kind.clone(),
                namespace: String::new(),
                name: problem.name.clone(),
                reason: problem.reason.clone(),
                field: problem.field.clone(),
                message: problem.message.clone(),
                since: Some(since.to_string()),
            })
            .collect()
    }

    /// Number of open problems by kind and reason, for the metric; 0 for those that are over.
    pub(crate) fn counts(&self) -> BTreeMap<(String, String), u64> {
        let mut counts: BTreeMap<_, u64> = self.seen.iter().map(|key| (key.clone(), 0)).collect();
        for problem in self.open.values().flat_map(BTreeMap::keys) {
            *counts
                .entry((problem.kind.clone(), problem.reason.clone()))
                .or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(name: &str) -> Problem {
        Problem {
            kind: "BGPPeer".into(),
            name: name.into(),
            reason: "BGPPeerRejected".into(),
            field: "spec.peerIP".into(),
            message: "x".into(),
        }
    }

    #[test]
    fn a_problem_is_new_once_keeps_its_time_and_goes_with_its_cause() {
        let mut problems = Problems::default();
        let first = Timestamp::from_second(10).expect("time");
        let later = Timestamp::from_second(20).expect("time");
        assert_eq!(
            problems
                .replace("sessions", first, vec![problem("a")])
                .len(),
            1
        );
        assert_eq!(
            problems.replace("sessions", later, vec![problem("a"), problem("b")]),
            [problem("b")]
        );
        let list = problems.list();
        assert_eq!(list[0].since.as_deref(), Some("1970-01-01T00:00:10Z"));
        assert_eq!(list[1].name, "b");
        problems.replace("pools", later, vec![problem("p")]);
        assert!(problems.replace("sessions", later, vec![]).is_empty());
        assert_eq!(problems.list().len(), 1, "other parts keep theirs");
    }
}
