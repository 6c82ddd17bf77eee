//! Our nf_tables tables: commit what differs, notice what others did, keep ownership.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::State;
use super::drift::Finding;
use crate::dataplane::flows::FlowJob;
use crate::dataplane::status::{Problem, ProblemKind};
use crate::desired::{PoolView, Provenance};
use crate::kernel::KernelError;
use crate::kernel::nft::{
    Batch, CommitError, Family, NftEvent, NftSocket, Table, TableFlags, difference,
};
use crate::reconcile::Damping;
use crate::rules::{self, NatInput};

/// Foreign changes often come in bursts; one comparison for all.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Attempts at one commit.
const ATTEMPTS: u32 = 11;
/// From this attempt on the table is made anew.
const REBUILD_FROM: u32 = 5;
/// Pause after all attempts failed.
const RETRY: Duration = Duration::from_secs(10);
/// Pause while another process owns the table.
const OWNED_ELSEWHERE: Duration = Duration::from_secs(1);
/// Differences named in a drift record.
const NAMED: usize = 5;

/// One table of ours.
#[derive(Debug)]
pub(super) struct OurTable {
    family: Family,
    desired: Table,
    actual: Option<Table>,
    flags: TableFlags,
    /// The table is made, or adopted, by our socket.
    claimed: bool,
    /// What is there has to be read before the next comparison.
    unknown: bool,
    /// Something may differ.
    dirty: bool,
    /// Not before this time.
    due: Option<Instant>,
    /// Who touched the table last, besides us.
    foreign: Option<String>,
    last_error: Option<String>,
    /// The kernel has no tables of this family, IPv6.
    unsupported: bool,
}

/// Both tables and the socket that owns them.
#[derive(Debug)]
pub(super) struct Tables {
    socket: NftSocket,
    thread: u32,
    tables: [OurTable; 2],
    owner_unsupported: bool,
    damping: Damping<Family>,
}

impl Tables {
    /// Opens the socket; the calling thread must be the one that commits.
    pub(super) fn open() -> Result<Self, KernelError> {
        let table = |family| OurTable {
            family,
            desired: Table::new(family, "margay"),
            actual: None,
            flags: TableFlags::PLAIN,
            claimed: false,
            unknown: true,
            dirty: true,
            due: None,
            foreign: None,
            last_error: None,
            unsupported: false,
        };
        Ok(Self {
            socket: NftSocket::open()?,
            thread: nix::unistd::gettid().as_raw() as u32,
            tables: [table(Family::Ipv4), table(Family::Ipv6)],
            owner_unsupported: false,
            damping: Damping::default(),
        })
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.tables
            .iter()
            .filter(|t| t.dirty)
            .filter_map(|t| t.due)
            .min()
    }

    pub(super) fn contended(&mut self, now: Instant) -> usize {
        self.damping.contended(now)
    }

    pub(super) fn contended_tables(&self) -> impl Iterator<Item = &'static str> {
        self.damping.contended_keys().map(|family| family.name())
    }

    /// Everything may differ: settings changed, notices were lost, or it is time for the full check.
    pub(super) fn reread(&mut self) {
        for table in &mut self.tables {
            table.unknown = true;
            table.dirty = true;
        }
    }

    pub(super) fn are_owned(&self) -> bool {
        self.tables
            .iter()
            .filter(|t| t.claimed)
            .all(|t| t.flags.owner)
            && self.tables.iter().any(|t| t.claimed)
    }

    pub(super) fn sizes(&self) -> Vec<(String, usize, usize, usize)> {
        let size = |t: &Table| {
            t.chains.values().map(|c| c.rules.len()).sum::<usize>()
                + t.sets.values().map(|s| s.elements.len()).sum::<usize>()
        };
        let of = |t: &OurTable| {
            let name = format!("nft-{}", t.family.name());
            (
                name,
                size(&t.desired),
                t.actual.as_ref().map_or(0, size),
                usize::from(t.dirty),
            )
        };
        self.tables.iter().map(of).collect()
    }

    pub(super) fn problems(&self) -> Vec<Problem> {
        let problem = |t: &OurTable| {
            let error = t.last_error.as_ref()?;
            let title = t.desired.title();
            Some(Problem::new(
                ProblemKind::DataplaneRefused,
                &Provenance::default(),
                "",
                format!("table {title} cannot be committed: {error}"),
            ))
        };
        self.tables.iter().filter_map(problem).collect()
    }
}

impl State {
    pub(in crate::dataplane) fn nft_event(&mut self, event: NftEvent) {
        let (thread, command, touched) = match event {
            NftEvent::Overrun => {
                self.tables.reread();
                return;
            }
            NftEvent::Generation {
                thread,
                command,
                tables,
                ..
            } => (thread, command, tables),
        };
        if thread == self.tables.thread {
            return;
        }
        for table in &mut self.tables.tables {
            let name = (table.family.number(), table.desired.name.clone());
            if touched.contains(&name) && table.claimed {
                table.unknown = true;
                table.dirty = true;
                table.foreign = Some(format!("pid {thread} ({command})"));
                let due = self.tables.damping.changed(&table.family, Instant::now());
                table.due = Some(due.max(Instant::now() + DEBOUNCE));
            }
        }
    }

    /// Builds the desired tables anew after pools, nodes or settings changed.
    pub(super) fn plan_tables(&mut self) {
        if !std::mem::take(&mut self.rules_changed) {
            return;
        }
        let hosts: Vec<IpAddr> = self.host_addresses();
        let tunnels = [self.tunnel_devices(false), self.tunnel_devices(true)];
        for table in &mut self.tables.tables {
            let input = NatInput {
                pools: &self.pools,
                tunnels: &tunnels[usize::from(table.family.is_ipv6())],
                vxlan_port: self.settings.vxlan_port,
                hosts: &hosts,
                settings: &self.settings.nat_outgoing,
            };
            table.desired = rules::table(table.family, input);
            table.dirty = true;
            table.due = None;
        }
    }

    fn host_addresses(&self) -> Vec<IpAddr> {
        let local = self.local_node.addresses.iter().map(IpNet::addr);
        let remote = self
            .remote_nodes
            .values()
            .flat_map(|n| n.addresses.iter().copied());
        local
            .chain(remote)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Commits what differs; true when both tables are as desired.
    pub(super) fn apply_tables(&mut self) -> bool {
        let now = Instant::now();
        let mut done = true;
        for index in 0..self.tables.tables.len() {
            let table = &self.tables.tables[index];
            let waits = table.due.is_some_and(|t| t > now) || (self.drift.paused && table.claimed);
            if !table.dirty || !self.family_on(table.family.is_ipv6()) {
                continue;
            }
            // A kernel without this family's tables must not keep the other family back.
            let settled = !waits && self.commit_table(index);
            done &= settled || self.tables.tables[index].unsupported;
        }
        if done {
            self.cut_untranslated();
        }
        done
    }

    fn commit_table(&mut self, index: usize) -> bool {
        let want_owner = self.settings.table_owner && !self.tables.owner_unsupported;
        let mut rebuild = false;
        for attempt in 0..ATTEMPTS {
            let mut flags = if want_owner {
                TableFlags::OWNED
            } else {
                TableFlags::PLAIN
            };
            if self.tables.owner_unsupported {
                flags = TableFlags::PLAIN;
            }
            let generation = match self.read_table(index) {
                Ok(generation) => generation,
                Err(error) => return self.table_failed(index, error.to_string(), RETRY),
            };
            let table = &self.tables.tables[index];
            // Flags of an existing table cannot be changed, but a persistent one may be adopted.
            let wrong_flags = table.actual.is_some() && flags.persist != table.flags.persist;
            let rebuild_now = rebuild || wrong_flags || attempt >= REBUILD_FROM;
            let claim = !table.claimed;
            let mut batch = Batch::new();
            if claim && table.actual.is_some() && !rebuild_now {
                batch.table(table.family, &table.desired.name, flags);
            }
            let changes = difference(&table.desired, table.actual.as_ref(), flags, rebuild_now);
            self.report_table_drift(index, &changes);
            batch.append(changes);
            let committed = self.tables.socket.commit(&batch, generation);
            self.writes += u64::from(!batch.is_empty());
            match committed {
                Ok(()) => {
                    let table = &mut self.tables.tables[index];
                    table.actual = Some(table.desired.clone());
                    if claim || rebuild_now {
                        table.flags = flags;
                        tracing::info!(
                            table = table.desired.title(),
                            owned = flags.owner,
                            messages = batch.len(),
                            "table committed"
                        );
                    }
                    table.claimed = true;
                    table.unsupported = false;
                    table.dirty = false;
                    table.due = None;
                    self.problems_stale |= table.last_error.take().is_some();
                    self.drift.table_repaired(self.tables.tables[index].family);
                    return true;
                }
                Err(CommitError::Stale) => self.tables.tables[index].unknown = true,
                Err(error) => {
                    let unsupported = error.is_unsupported_table();
                    self.tables.tables[index].unknown = true;
                    if flags.owner && unsupported {
                        // First with a table made anew, then without the flags.
                        if rebuild || self.tables.tables[index].actual.is_none() {
                            self.tables.owner_unsupported = true;
                            tracing::info!("this kernel has no owned tables, using plain ones");
                        }
                        rebuild = true;
                        continue;
                    }
                    if unsupported {
                        self.tables.tables[index].unsupported = index > 0;
                        return self.table_failed(index, error.to_string(), RETRY);
                    }
                    if error.is(libc::EPERM) {
                        // An agent that is about to end still owns it.
                        return self.table_failed(index, error.to_string(), OWNED_ELSEWHERE);
                    }
                    if attempt + 1 == ATTEMPTS {
                        return self.table_failed(index, error.to_string(), RETRY);
                    }
                    std::thread::sleep(Duration::from_millis(1 << attempt.min(6)));
                }
            }
        }
        self.table_failed(index, "the ruleset changes all the time".to_owned(), RETRY)
    }

    /// Reads a table if what it holds is not known; returns the generation it was read at.
    fn read_table(&mut self, index: usize) -> Result<Option<u32>, KernelError> {
        let table = &mut self.tables.tables[index];
        if !table.unknown {
            return Ok(None);
        }
        let (found, generation) = self.tables.socket.read(table.family, &table.desired.name)?;
        match found {
            Some((content, flags)) => {
                table.actual = Some(content);
                table.flags = flags;
            }
            None => {
                table.actual = None;
                // A table that somebody deleted has to be made and claimed anew.
            }
        }
        table.unknown = false;
        Ok(Some(generation))
    }

    /// What others changed in a table that was as desired before.
    fn report_table_drift(&mut self, index: usize, changes: &Batch) {
        let table = &mut self.tables.tables[index];
        let Some(by) = table.foreign.take() else {
            return;
        };
        if changes.is_empty() {
            return;
        }
        let named: Vec<&str> = (0..changes.len().min(NAMED))
            .map(|i| changes.label(i))
            .collect();
        let missing = table.actual.is_none();
        let family = table.family;
        let finding = Finding {
            subsystem: "nft",
            kind: if missing { "missing" } else { "changed" },
            item: table.desired.title(),
            provenance: String::new(),
            expected: "the table as committed".to_owned(),
            found: format!("{} differences: {}", changes.len(), named.join("; ")),
            by,
        };
        if let Some(number) = self.drift.record(finding) {
            self.drift.open_tables.insert(family, number);
        }
        self.problems_stale = true;
    }

    fn table_failed(&mut self, index: usize, error: String, pause: Duration) -> bool {
        let table = &mut self.tables.tables[index];
        table.due = Some(Instant::now() + pause);
        table.unknown = true;
        if table.last_error.as_ref() != Some(&error) {
            tracing::error!(table = table.desired.title(), error, "table not committed");
            table.last_error = Some(error);
            self.problems_stale = true;
        }
        false
    }

    /// Flows that began before the rule that translates them keep their source for as long as they last: cut them, so
    /// that their next packet begins a translated one.
    fn cut_untranslated(&mut self) {
        let masqueraded: BTreeSet<IpNet> = self
            .pools
            .iter()
            .filter(|p| p.workload && p.nat_outgoing)
            .map(|p| p.cidr)
            .collect();
        let new: Vec<IpNet> = masqueraded.difference(&self.translated).copied().collect();
        self.translated = masqueraded;
        if new.is_empty() {
            return;
        }
        let inside = self
            .pools
            .iter()
            .filter(|p| p.workload)
            .map(|p: &PoolView| p.cidr)
            .collect();
        let hosts = if self.settings.nat_outgoing.exclude_hosts {
            self.host_addresses()
        } else {
            // Traffic to this node itself never leaves it, so it is never translated.
            self.local_node.addresses.iter().map(IpNet::addr).collect()
        };
        let _ = self.flow_jobs.send(FlowJob::Untranslated {
            from: new,
            inside,
            hosts,
        });
    }
}
