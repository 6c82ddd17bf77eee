//! `lab fault`: breaks something, and heals it.

use super::{duration, failed, open};
use crate::failure::{DONE, Failure};
use crate::output::{Format, Table, print_document};
use margay_lab::cluster::Fault;
use serde_json::json;
use std::time::Duration;

/// Break something on purpose
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --for, traffic runs all the time, the fault is healed afterwards, and the packets\nlost and the time to converge are printed. Without it the fault stays until\n`margayctl lab fault heal`."
)]
pub(crate) struct Faults {
    #[command(subcommand)]
    what: What,
    /// Heal it after this time: 500ms, 30s, 2m
    #[arg(long = "for", global = true, value_parser = duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// table, json, yaml
    #[arg(short, long, global = true, default_value = "table")]
    output: Format,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Pull the cable of a node or the router
    LinkDown {
        /// Node or tor1
        member: String,
        /// Name of the lab
        lab: Option<String>,
    },
    /// Drop all packets between two groups: n1,n2:n3
    Partition {
        /// Two lists of nodes and routers
        groups: String,
        /// Name of the lab
        lab: Option<String>,
    },
    /// Drop some packets of a node or the router
    Loss {
        /// Node or tor1
        member: String,
        /// How many of a hundred: 20%
        percent: String,
        /// Name of the lab
        lab: Option<String>,
    },
    /// Kill a process without warning
    Kill {
        /// Node (its agent), tor1, controller or apiserver
        unit: String,
        /// The word agent may follow a node's name; then the name of the lab
        #[arg(num_args = 0..=2, value_name = "agent] [LAB")]
        more: Vec<String>,
    },
    /// Stop a process and start it again
    Restart {
        /// Node (its agent), tor1, controller or apiserver
        unit: String,
        /// The word agent may follow a node's name; then the name of the lab
        #[arg(num_args = 0..=2, value_name = "agent] [LAB")]
        more: Vec<String>,
    },
    /// Not possible: the test machines' kernels cannot delay packets
    #[command(hide = true)]
    Delay {
        /// Anything
        #[arg(num_args = 0..)]
        more: Vec<String>,
    },
    /// Undo every fault
    Heal {
        /// Name of the lab
        lab: Option<String>,
    },
}

impl Faults {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        let (fault, lab) = match self.what.fault()? {
            (Some(fault), lab) => (fault, lab),
            (None, lab) => {
                open(lab.as_deref())
                    .await?
                    .heal_all()
                    .await
                    .map_err(failed)?;
                println!("healed");
                return Ok(DONE);
            }
        };
        let lab = open(lab.as_deref()).await?;
        let duration = match (&fault, self.duration) {
            (Fault::Restart { .. }, given) => Some(given.unwrap_or_default()),
            (_, given) => given,
        };
        let Some(duration) = duration else {
            // It stays broken on purpose; `heal` finds out by itself what there is to undo.
            let _broken = lab.break_it(fault).await.map_err(failed)?;
            eprintln!("broken until: margayctl lab fault heal {}", lab.name());
            return Ok(DONE);
        };
        eprintln!(
            "broken for {} s, then waiting until all is well",
            duration.as_secs_f64()
        );
        let report = lab.fault_for(fault, duration).await.map_err(failed)?;
        let mut value = serde_json::to_value(&report)
            .map_err(|e| Failure::new("cannot print the report", e))?;
        value["apiVersion"] = json!("cli.margay.io/v1");
        value["kind"] = json!("LabFaultReport");
        value["packetsSent"] = json!(report.sent());
        value["packetsLost"] = json!(report.lost());
        let mut out = std::io::stdout().lock();
        if !print_document(&mut out, &self.output, &value)? {
            let mut table = Table::new(&["FROM", "TO", "SENT#", "LOST#", "LONGEST SILENCE#"]);
            for s in &report.streams {
                table.row(vec![
                    s.from.clone(),
                    s.to.clone(),
                    s.sent.to_string(),
                    s.lost().to_string(),
                    format!("{}ms", s.longest_silence_milliseconds),
                ]);
            }
            table.print(&mut out, true)?;
            println!(
                "{} of {} packets lost; converged {} ms after the repair",
                report.lost(),
                report.sent(),
                report.converged_milliseconds
            );
        }
        Ok(DONE)
    }
}

impl What {
    /// The fault and the lab; no fault means that all are to be undone.
    fn fault(&self) -> Result<(Option<Fault>, Option<String>), Failure> {
        Ok(match self {
            Self::LinkDown { member, lab } => (
                Some(Fault::LinkDown {
                    member: member.clone(),
                }),
                lab.clone(),
            ),
            Self::Partition { groups, lab } => {
                let halves = groups.split_once(':');
                let (left, right) = halves
                    .ok_or_else(|| Failure::Usage(format!("partition {groups}: write n1,n2:n3")))?;
                let list = |text: &str| text.split(',').map(str::to_owned).collect();
                (
                    Some(Fault::Partition {
                        left: list(left),
                        right: list(right),
                    }),
                    lab.clone(),
                )
            }
            Self::Loss {
                member,
                percent,
                lab,
            } => {
                let number = percent.trim_end_matches('%').parse();
                let percent = number.map_err(|_| {
                    Failure::Usage(format!("loss {percent}: write a number from 1 to 100"))
                })?;
                (
                    Some(Fault::Loss {
                        member: member.clone(),
                        percent,
                    }),
                    lab.clone(),
                )
            }
            Self::Kill { unit, more } => (Some(Fault::Kill { unit: unit.clone() }), lab_of(more)?),
            Self::Restart { unit, more } => {
                (Some(Fault::Restart { unit: unit.clone() }), lab_of(more)?)
            }
            Self::Delay { .. } => {
                let why = "needs the kernel's netem queue, which labs do not rely on";
                return Err(
                    Failure::new("fault delay", why).hint("use loss, link-down or partition")
                );
            }
            Self::Heal { lab } => (None, lab.clone()),
        })
    }
}

/// `[agent] [LAB]`
fn lab_of(words: &[String]) -> Result<Option<String>, Failure> {
    match words {
        [] => Ok(None),
        [word] if word == "agent" => Ok(None),
        [lab] => Ok(Some(lab.clone())),
        [word, lab] if word == "agent" => Ok(Some(lab.clone())),
        _ => Err(Failure::Usage(format!(
            "cannot understand {:?}",
            words.join(" ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_agent_may_stand_before_the_lab() {
        let words =
            |list: &[&str]| lab_of(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(words(&[]).unwrap(), None);
        assert_eq!(words(&["agent"]).unwrap(), None);
        assert_eq!(words(&["demo"]).unwrap().as_deref(), Some("demo"));
        assert_eq!(words(&["agent", "demo"]).unwrap().as_deref(), Some("demo"));
        assert!(words(&["demo", "agent"]).is_err());
    }
}
