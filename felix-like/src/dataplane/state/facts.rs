//! What the dataplane reports.

use std::collections::BTreeMap;
use std::time::Instant;

use ipnet::IpNet;

use super::State;
use crate::dataplane::status::{Problem, ProblemKind, Status, TableCount};
use crate::desired::Provenance;

/// Problems of one kind listed one by one.
const LISTED: usize = 20;

impl State {
    pub(in crate::dataplane) fn status(&mut self) -> Status {
        let count = |desired, actual, pending| TableCount {
            desired,
            actual,
            pending,
        };
        let ours = self.routes.present_count();
        let mut tables = BTreeMap::from([(
            "routes".to_owned(),
            count(
                self.routes.desired_count(),
                ours,
                self.routes.pending_count(),
            ),
        )]);
        let ours = self.neighbours.present_count();
        tables.insert(
            "neighbours".to_owned(),
            count(
                self.neighbours.desired_count(),
                ours,
                self.neighbours.pending_count(),
            ),
        );
        let ours = self.fdb.present_count();
        tables.insert(
            "fdb".to_owned(),
            count(self.fdb.desired_count(), ours, self.fdb.pending_count()),
        );
        for (name, desired, actual, pending) in self.tables.sizes() {
            tables.insert(name, count(desired, actual, pending));
        }
        Status {
            in_sync: self.in_sync.iter().copied().collect(),
            ready: self.first_commit_done,
            tables_owned: self.tables.are_owned(),
            endpoints: self.endpoints.len(),
            endpoints_routed: self
                .endpoints
                .keys()
                .filter(|id| self.is_routed(id))
                .count(),
            tables,
            writes: self.writes,
            drift_detected: self.drift.detected.clone(),
            drift_repaired: self.drift.repaired.clone(),
            drift_contended: self.contended() as u64,
            drift_missed: self.missed,
            verified_at: self.verified_at,
            problems: self.problems.clone(),
        }
    }

    fn contended(&mut self) -> usize {
        let now = Instant::now();
        self.drift.routes.contended(now)
            + self.drift.fdb.contended(now)
            + self.drift.neighbours.contended(now)
            + self.drift.settings.contended(now)
            + self.tables.contended(now)
    }

    pub(in crate::dataplane) fn bgp_prefixes_outside_pools(&self) -> Vec<IpNet> {
        let outside = |prefix: &&IpNet| self.pool_table.of(prefix).is_none();
        let mut prefixes: Vec<IpNet> = self.bgp_keys.keys().filter(outside).copied().collect();
        prefixes.sort_unstable();
        prefixes
    }

    /// The list of problems, when it is another than last time.
    pub(in crate::dataplane) fn changed_problems(&mut self) -> Option<Vec<Problem>> {
        if !std::mem::take(&mut self.problems_stale) {
            return None;
        }
        let mut problems = self.find_problems();
        problems.sort();
        problems.dedup();
        if problems == self.problems {
            return None;
        }
        for problem in problems.iter().filter(|p| !self.problems.contains(p)) {
            tracing::warn!(
                reason = problem.kind.reason(),
                subject = problem.subject,
                "{}",
                problem.message
            );
        }
        self.problems = problems.clone();
        Some(problems)
    }

    fn find_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (key, why) in self.routes.failures().take(LISTED) {
            let subject = self.candidates.provenance(key);
            problems.push(Problem::new(
                ProblemKind::DataplaneRefused,
                subject.as_deref().unwrap_or(&Provenance::default()),
                "",
                format!("the kernel refuses the route to {key}: {why}"),
            ));
        }
        for (key, why) in self.neighbours.failures().take(LISTED) {
            problems.push(Problem::new(
                ProblemKind::DataplaneRefused,
                &Provenance::default(),
                "",
                format!(
                    "the kernel refuses the neighbour entry of {}: {why}",
                    key.ip
                ),
            ));
        }
        for (next_hop, _) in self
            .next_hops
            .iter()
            .filter(|(_, h)| h.is_empty())
            .take(LISTED)
        {
            let address = next_hop.address;
            problems.push(Problem::new(
                ProblemKind::NextHopUnreachable,
                &Provenance::cluster("BGP", &address.to_string()),
                "",
                format!("no route of this node leads to the BGP next hop {address}"),
            ));
        }
        for key in self.drift.routes.contended_keys().take(LISTED) {
            let subject = self.candidates.provenance(key);
            problems.push(Problem::new(
                ProblemKind::DriftContended,
                subject.as_deref().unwrap_or(&Provenance::default()),
                "",
                format!(
                    "another program keeps changing the route to {key}; it is now put right every \
                     5 s only. The drift records name the program"
                ),
            ));
        }
        for family in self.tables.contended_tables() {
            problems.push(Problem::new(
                ProblemKind::DriftContended,
                &Provenance::default(),
                "",
                format!("another program keeps changing table {family} margay"),
            ));
        }
        problems.extend(self.tables.problems());
        problems.extend(self.feature_problems.iter().cloned());
        problems
    }
}
