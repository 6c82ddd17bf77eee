//! Breaking things on purpose, healing them, and counting what was lost.

use super::{Lab, blocking, network};
use crate::error::{Error, Kind, Result, Tried};
use crate::names::netns_path;
use crate::namespaces::{Placement, place};
use crate::probe::{Ping, PingReport};
use crate::programs;
use crate::state::State;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// One packet per so much time while a fault lasts.
const INTERVAL: Duration = Duration::from_millis(20);
/// How long healing may take.
const HEAL: Duration = Duration::from_secs(300);
/// Table in the fabric that holds losses and partitions.
const TABLE: &str = "margay-fault";

/// Something that breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The cable between a node or router and the fabric is pulled; the API server is out of reach, too.
    LinkDown {
        /// Node or router.
        member: String,
    },
    /// Packets between the two groups are dropped; the API server stays in reach.
    Partition {
        /// One side.
        left: Vec<String>,
        /// The other side.
        right: Vec<String>,
    },
    /// Some of the packets of a member to and from the others are dropped.
    Loss {
        /// Node or router.
        member: String,
        /// How many of a hundred, 1 to 100.
        percent: u8,
    },
    /// A process is killed without warning (SIGKILL).
    Kill {
        /// `n1`, `tor1`, `controller`, `apiserver`.
        unit: String,
    },
    /// A process is stopped (SIGTERM) and started again at once.
    Restart {
        /// `n1`, `tor1`, `controller`, `apiserver`.
        unit: String,
    },
}

/// What a fault did to the traffic between pods.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultReport {
    /// Streams of pings that ran all the time: between the first pods of the nodes, and the router.
    pub streams: Vec<PingReport>,
    /// Milliseconds from the repair until every session was up and everybody reached everybody.
    pub converged_milliseconds: u64,
}

impl FaultReport {
    /// Packets lost on all streams.
    pub fn lost(&self) -> u64 {
        self.streams.iter().map(PingReport::lost).sum()
    }

    /// Packets sent on all streams.
    pub fn sent(&self) -> u64 {
        self.streams.iter().map(|s| s.sent).sum()
    }
}

/// A fault in effect. [`Lab::heal`] undoes it.
#[derive(Debug)]
#[must_use = "the fault lasts until it is healed"]
pub struct Faulted {
    fault: Fault,
}

impl Lab {
    /// Breaks something and leaves it broken.
    ///
    /// # Errors
    /// There is no such member, or the kernel refuses.
    pub async fn break_it(&self, fault: Fault) -> Result<Faulted> {
        let state = self.state()?;
        match &fault {
            Fault::LinkDown { member } => {
                network::batch(
                    &state.fabric,
                    &format!("link set {} down\n", port(&state, member)?),
                )?;
            }
            Fault::Partition { left, right } => {
                let rules = partition(&state, left, right)?;
                self.drop_in_fabric(&state, rules).await?;
            }
            Fault::Loss { member, percent } => {
                let rules = loss(port(&state, member)?, *percent)?;
                self.drop_in_fabric(&state, rules).await?;
            }
            Fault::Kill { unit } => self.kill(unit).await?,
            Fault::Restart { unit } => {
                self.terminate(unit).await?;
                self.start(unit).await?;
            }
        }
        Ok(Faulted { fault })
    }

    /// Undoes a fault.
    ///
    /// # Errors
    /// The kernel refuses, or a process does not start.
    pub async fn heal(&self, faulted: Faulted) -> Result<()> {
        let state = self.state()?;
        match &faulted.fault {
            Fault::LinkDown { member } => network::batch(
                &state.fabric,
                &format!("link set {} up\n", port(&state, member)?),
            ),
            Fault::Partition { .. } | Fault::Loss { .. } => {
                self.drop_in_fabric(&state, String::new()).await
            }
            Fault::Kill { unit } => self.start(unit).await,
            Fault::Restart { .. } => Ok(()),
        }
    }

    /// Undoes every fault: all links up, no packet dropped, every process running.
    ///
    /// # Errors
    /// The kernel refuses, or a process does not start.
    pub async fn heal_all(&self) -> Result<()> {
        let state = self.state()?;
        let mut lines = String::new();
        let members = state
            .nodes
            .iter()
            .map(|n| &n.name)
            .chain(state.tor.iter().map(|t| &t.name));
        for member in members {
            let _ = writeln!(lines, "link set {member} up");
        }
        network::batch(&state.fabric, &lines)?;
        if programs::on_path("nft").is_some() {
            self.drop_in_fabric(&state, String::new()).await?;
        }
        for unit in state.dead_units() {
            self.start(&unit).await?;
        }
        Ok(())
    }

    /// Breaks something for a while under traffic, heals it, waits until all is well again, and tells what was lost.
    ///
    /// # Errors
    /// As [`Lab::break_it`], [`Lab::heal`]; [`Kind::Timeout`] when the lab does not recover.
    pub async fn fault_for(&self, fault: Fault, duration: Duration) -> Result<FaultReport> {
        let streams = self.all_streams()?;
        let faulted = self.break_it(fault).await?;
        tokio::time::sleep(duration).await;
        self.heal(faulted).await?;
        let converged = self.converged(HEAL).await?;
        let streams = blocking(move || {
            streams
                .into_iter()
                .map(Ping::stop)
                .collect::<Result<Vec<_>>>()
        })
        .await?;
        Ok(FaultReport {
            streams,
            converged_milliseconds: u64::try_from(converged.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Pings between the first pods of all nodes and the router, every ordered pair.
    fn all_streams(&self) -> Result<Vec<Ping>> {
        let state = self.state()?;
        let first = |node: &str| {
            state
                .pods
                .iter()
                .find(|p| p.node == node)
                .map(|p| p.name.clone())
        };
        let pods = state.nodes.iter().filter_map(|n| first(&n.name));
        let all: Vec<String> = pods
            .chain(state.tor.iter().map(|t| t.name.clone()))
            .collect();
        let pairs = all
            .iter()
            .flat_map(|a| all.iter().filter(move |b| *b != a).map(move |b| (a, b)));
        pairs
            .map(|(from, to)| self.ping_stream(from, to, INTERVAL))
            .collect()
    }

    /// Replaces what the fabric drops.
    async fn drop_in_fabric(&self, state: &State, rules: String) -> Result<()> {
        let fabric = netns_path(&state.fabric);
        // Adding before deleting makes deleting safe when there is no table; all of it is one transaction.
        let mut script = format!("table bridge {TABLE} {{}}\ndelete table bridge {TABLE}\n");
        if !rules.is_empty() {
            let _ = write!(
                script,
                "table bridge {TABLE} {{\n chain forward {{\n  type filter hook forward priority 0;\n{rules} }}\n}}\n"
            );
        }
        blocking(move || {
            let what = || "cannot drop packets in the fabric".to_owned();
            let nft = programs::on_path("nft").ok_or_else(|| {
                Error::new(what(), "the command nft is not installed")
                    .kind(Kind::Preflight)
                    .remedy("apt-get install nftables")
            })?;
            let mut command = Command::new(nft);
            command
                .args(["-f", "-"])
                .stdin(Stdio::piped())
                .stderr(Stdio::piped());
            place(
                &mut command,
                Placement {
                    netns: Some(fabric),
                    ..Placement::default()
                },
            )
            .tried(what)?;
            let mut child = command.spawn().tried(what)?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(script.as_bytes()).tried(what)?;
            }
            let output = child.wait_with_output().tried(what)?;
            if output.status.success() {
                Ok(())
            } else {
                Err(Error::new(
                    what(),
                    String::from_utf8_lossy(&output.stderr).trim(),
                ))
            }
        })
        .await
    }
}

/// The fabric's end of a member's cable: it has the member's name.
fn port<'a>(state: &State, member: &'a str) -> Result<&'a str> {
    if state.tor.as_ref().is_some_and(|t| t.name == member) {
        return Ok(member);
    }
    state.node(member).map(|_| member)
}

fn loss(port: &str, percent: u8) -> Result<String> {
    if !(1..=100).contains(&percent) {
        return Err(Error::new(format!("loss {percent}%"), "must be 1 to 100").kind(Kind::Usage));
    }
    let drop = format!("numgen random mod 100 < {percent} drop");
    Ok(format!(
        "  iifname \"{port}\" {drop}\n  oifname \"{port}\" {drop}\n"
    ))
}

fn partition(state: &State, left: &[String], right: &[String]) -> Result<String> {
    let mut rules = String::new();
    for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (a, b))) {
        let (a, b) = (port(state, a)?, port(state, b)?);
        if a == b {
            return Err(Error::new(format!("partition {a}"), "is on both sides").kind(Kind::Usage));
        }
        let _ = writeln!(
            rules,
            "  iifname \"{a}\" oifname \"{b}\" drop\n  iifname \"{b}\" oifname \"{a}\" drop"
        );
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::LabName;
    use crate::state::{Shape, Tor};
    use crate::underlay::Families;

    #[test]
    fn a_partition_cuts_both_directions_of_every_pair_and_refuses_a_member_on_both_sides() {
        let shape = Shape {
            nodes: 1,
            tor: Some(Tor::Bird),
            families: Families::V4,
            pods_per_node: 1,
        };
        let mut state = State::new(LabName::new("x").unwrap(), shape, true).unwrap();
        let node = |name: &str| crate::state::Node {
            name: name.into(),
            netns: String::new(),
            folder: "/".into(),
            mount_namespace: "/".into(),
            admin_socket: "/".into(),
            addresses: Vec::new(),
        };
        state.nodes = vec![node("n1"), node("n2"), node("n3")];
        let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        let rules = partition(&state, &names(&["n1", "n2"]), &names(&["n3"])).unwrap();
        assert_eq!(rules.matches("drop").count(), 4);
        assert!(rules.contains("iifname \"n3\" oifname \"n1\" drop"));
        assert_eq!(
            partition(&state, &names(&["n1"]), &names(&["n1"]))
                .unwrap_err()
                .kind,
            Kind::Usage
        );
        assert_eq!(
            partition(&state, &names(&["n9"]), &names(&["n1"]))
                .unwrap_err()
                .kind,
            Kind::NotFound
        );
        assert_eq!(loss("n1", 0).unwrap_err().kind, Kind::Usage);
    }
}
