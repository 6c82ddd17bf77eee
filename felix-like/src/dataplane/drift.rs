//! Changes by others to items of ours, and what became of them.

use std::collections::VecDeque;
use std::time::SystemTime;

use serde::Serialize;

/// Records kept in memory.
const KEPT: usize = 10_000;

/// One foreign change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriftRecord {
    /// Counts up from 1 since start.
    pub number: u64,
    /// When it was noticed.
    pub at: SystemTime,
    /// Kernel table: `route`, `neighbour`, `nft`, `link`, `sysctl`, `fdb`.
    pub subsystem: &'static str,
    /// `missing`, `changed` or `extra`.
    pub kind: &'static str,
    /// The item, as its own tools would name it.
    pub item: String,
    /// The object the item comes from.
    pub provenance: String,
    /// What should be there.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// Who did it, as far as the kernel tells: `pid 123 (ip)`, `port 123`, `kernel`.
    pub by: String,
    /// When it was put right.
    pub repaired_at: Option<SystemTime>,
}

/// The last records.
#[derive(Debug, Default)]
pub(super) struct DriftLog {
    records: VecDeque<DriftRecord>,
    next: u64,
}

impl DriftLog {
    /// Adds a record and returns its number.
    pub(super) fn push(&mut self, mut record: DriftRecord) -> u64 {
        self.next += 1;
        record.number = self.next;
        if self.records.len() == KEPT {
            self.records.pop_front();
        }
        self.records.push_back(record);
        self.next
    }

    /// Notes that the item of a record is as it should be again; returns the finished record.
    pub(super) fn repaired(&mut self, number: u64, at: SystemTime) -> Option<&DriftRecord> {
        let first = self.records.front()?.number;
        let index = usize::try_from(number.checked_sub(first)?).ok()?;
        let record = self.records.get_mut(index)?;
        record.repaired_at = Some(at);
        Some(record)
    }

    /// All records kept, oldest first.
    pub(super) fn all(&self) -> Vec<DriftRecord> {
        self.records.iter().cloned().collect()
    }
}
