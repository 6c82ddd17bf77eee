//! Recording foreign changes: what, by whom, and when it was put right.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use super::State;
use crate::dataplane::drift::{DriftLog, DriftRecord};
use crate::dataplane::lock;
use crate::kernel::MacAddr;
use crate::kernel::nft::Family;
use crate::kernel::rtnl::{FdbKey, NeighKey, RouteKey, RouteSpec};
use crate::map::HashMap;
use crate::reconcile::{Damping, Observation};

/// Lines after which the file of records is started anew, the old one kept beside it.
const LINES_PER_FILE: u64 = 10_000;
/// Records within a second beyond which changes are counted but no longer written down one by one.
const RECORDS_PER_SECOND: u32 = 1_000;

/// Records, counters and damping.
pub(super) struct DriftState {
    log: Arc<Mutex<DriftLog>>,
    file: Option<PathBuf>,
    lines: u64,
    open_routes: HashMap<RouteKey, u64>,
    open_neighbours: HashMap<NeighKey, u64>,
    open_fdb: HashMap<FdbKey, u64>,
    pub(super) open_tables: HashMap<Family, u64>,
    pub(super) routes: Damping<RouteKey>,
    pub(super) neighbours: Damping<NeighKey>,
    pub(super) settings: Damping<String>,
    pub(super) fdb: Damping<FdbKey>,
    pub(super) detected: BTreeMap<String, u64>,
    pub(super) repaired: BTreeMap<String, u64>,
    pub(super) paused: bool,
    second: Option<Instant>,
    in_second: u32,
}

/// One change as noticed, before it gets its number and time.
pub(super) struct Finding {
    pub(super) subsystem: &'static str,
    pub(super) kind: &'static str,
    pub(super) item: String,
    pub(super) provenance: String,
    pub(super) expected: String,
    pub(super) found: String,
    pub(super) by: String,
}

impl DriftState {
    pub(super) fn new(log: Arc<Mutex<DriftLog>>, file: Option<PathBuf>) -> Self {
        Self {
            log,
            file,
            lines: 0,
            open_routes: HashMap::default(),
            open_neighbours: HashMap::default(),
            open_fdb: HashMap::default(),
            open_tables: HashMap::default(),
            routes: Damping::default(),
            neighbours: Damping::default(),
            settings: Damping::default(),
            fdb: Damping::default(),
            detected: BTreeMap::new(),
            repaired: BTreeMap::new(),
            paused: false,
            second: None,
            in_second: 0,
        }
    }

    /// Counts and records a change; `None` when so many come in that they are only counted.
    pub(super) fn record(&mut self, finding: Finding) -> Option<u64> {
        *self
            .detected
            .entry(finding.subsystem.to_owned())
            .or_default() += 1;
        let now = Instant::now();
        if self
            .second
            .is_none_or(|s| now.duration_since(s).as_secs() >= 1)
        {
            self.second = Some(now);
            self.in_second = 0;
        }
        self.in_second += 1;
        if self.in_second > RECORDS_PER_SECOND {
            return None;
        }
        tracing::warn!(
            subsystem = finding.subsystem,
            item = finding.item,
            expected = finding.expected,
            found = finding.found,
            by = finding.by,
            "somebody else changed what is ours"
        );
        let record = DriftRecord {
            number: 0,
            at: SystemTime::now(),
            subsystem: finding.subsystem,
            kind: finding.kind,
            item: finding.item,
            provenance: finding.provenance,
            expected: finding.expected,
            found: finding.found,
            by: finding.by,
            repaired_at: None,
        };
        Some(lock(&self.log).push(record))
    }

    /// Notes that a recorded change has been put right.
    pub(super) fn repaired(&mut self, number: u64) {
        let finished = lock(&self.log).repaired(number, SystemTime::now()).cloned();
        let Some(record) = finished else { return };
        *self
            .repaired
            .entry(record.subsystem.to_owned())
            .or_default() += 1;
        self.append(&record);
    }

    /// True while a foreign change of this route is not put right yet.
    pub(super) fn is_open(&self, key: &RouteKey) -> bool {
        self.open_routes.contains_key(key)
    }

    pub(super) fn route_repaired(&mut self, key: &RouteKey) {
        if let Some(number) = self.open_routes.remove(key) {
            self.repaired(number);
        }
    }

    pub(super) fn neighbour_repaired(&mut self, key: &NeighKey) {
        if let Some(number) = self.open_neighbours.remove(key) {
            self.repaired(number);
        }
    }

    pub(super) fn fdb_repaired(&mut self, key: &FdbKey) {
        if let Some(number) = self.open_fdb.remove(key) {
            self.repaired(number);
        }
    }

    pub(super) fn table_repaired(&mut self, family: Family) {
        if let Some(number) = self.open_tables.remove(&family) {
            self.repaired(number);
        }
    }

    /// Best effort: a full disk must not stop repairs.
    fn append(&mut self, record: &DriftRecord) {
        let Some(path) = &self.file else { return };
        let written = (|| {
            if self.lines >= LINES_PER_FILE {
                let mut old = path.clone().into_os_string();
                old.push(".1");
                std::fs::rename(path, old)?;
                self.lines = 0;
            }
            let mut file: File = OpenOptions::new().create(true).append(true).open(path)?;
            let mut line = serde_json::to_vec(record)?;
            line.push(b'\n');
            file.write_all(&line)
        })();
        match written {
            Ok(()) => self.lines += 1,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "drift record not written");
                self.file = None;
            }
        }
    }
}

impl State {
    pub(super) fn route_drift(
        &mut self,
        key: &RouteKey,
        observation: &Observation<RouteSpec>,
        port: u32,
    ) {
        let (kind, expected, found) = match observation {
            Observation::Missing { expected } => ("missing", expected.to_string(), String::new()),
            Observation::Changed { expected, found } => {
                ("changed", expected.to_string(), found.to_string())
            }
            Observation::Foreign | Observation::Agrees => return,
        };
        let provenance = self.candidates.provenance(key);
        let number = self.drift.record(Finding {
            subsystem: "route",
            kind,
            item: key.to_string(),
            provenance: provenance.map(|p| p.to_string()).unwrap_or_default(),
            expected,
            found,
            by: culprit(port),
        });
        if let Some(number) = number {
            self.drift.open_routes.insert(*key, number);
        }
        let due = self.drift.routes.changed(key, Instant::now());
        self.routes.delay(key, due);
        self.problems_stale = true;
    }

    pub(super) fn neighbour_drift(
        &mut self,
        key: &NeighKey,
        observation: &Observation<MacAddr>,
        port: u32,
    ) {
        let (kind, expected, found) = match observation {
            Observation::Missing { expected } => ("missing", expected.to_string(), String::new()),
            Observation::Changed { expected, found } => {
                ("changed", expected.to_string(), found.to_string())
            }
            Observation::Foreign | Observation::Agrees => return,
        };
        let link = self
            .topology
            .link(key.link)
            .map(|l| l.name.clone())
            .unwrap_or_default();
        let ids = self.endpoints_by_interface.get(&link);
        let endpoint = ids.and_then(|ids| self.endpoints.get(ids.first()?));
        let number = self.drift.record(Finding {
            subsystem: "neighbour",
            kind,
            item: format!("{} dev {link}", key.ip),
            provenance: endpoint
                .map(|e| e.provenance.to_string())
                .unwrap_or_default(),
            expected,
            found,
            by: culprit(port),
        });
        if let Some(number) = number {
            self.drift.open_neighbours.insert(*key, number);
        }
        let due = self.drift.neighbours.changed(key, Instant::now());
        self.neighbours.delay(key, due);
        self.problems_stale = true;
    }
}

impl State {
    pub(super) fn fdb_drift(&mut self, key: &FdbKey, observation: &Observation<IpAddr>, port: u32) {
        let (kind, expected, found) = match observation {
            Observation::Missing { expected } => ("missing", expected.to_string(), String::new()),
            Observation::Changed { expected, found } => {
                ("changed", expected.to_string(), found.to_string())
            }
            Observation::Foreign | Observation::Agrees => return,
        };
        let link = self
            .topology
            .link(key.link)
            .map(|l| l.name.clone())
            .unwrap_or_default();
        let number = self.drift.record(Finding {
            subsystem: "fdb",
            kind,
            item: format!("{} dev {link}", key.mac),
            provenance: String::new(),
            expected,
            found,
            by: culprit(port),
        });
        if let Some(number) = number {
            self.drift.open_fdb.insert(*key, number);
        }
        let due = self.drift.fdb.changed(key, Instant::now());
        self.fdb.delay(key, due);
        self.problems_stale = true;
    }
}

/// Who is behind a netlink port. A program's first socket has its process id as port; later ones have arbitrary
/// numbers, and the program may have ended already.
pub(super) fn culprit(port: u32) -> String {
    if port == 0 {
        return "kernel".to_owned();
    }
    match std::fs::read_to_string(format!("/proc/{port}/comm")) {
        Ok(name) => format!("pid {port} ({})", name.trim_end()),
        Err(_) => format!("port {port}"),
    }
}
