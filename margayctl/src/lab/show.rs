//! `lab status`, `lab ls`, `lab matrix`.

use super::{failed, open};
use crate::failure::{BAD_ANSWER, DONE, Failure};
use crate::output::{Format, Table, document, print_document};
use margay_lab::cluster::{Condition, LabStatus};
use margay_lab::probe;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Widest matrix that is drawn; a larger one is only counted.
const DRAWN: usize = 16;

/// One screen for a lab
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all well, 1 failed, 3 something is down or unreachable")]
pub(crate) struct Status {
    /// Name of the lab
    lab: Option<String>,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// List labs and what is left of labs
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// table, json, yaml, name
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Ping from every pod and router to every other one
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 everybody reaches everybody, 1 failed, 3 somebody does not")]
pub(crate) struct Matrix {
    /// Name of the lab
    lab: Option<String>,
    /// How long an answer may take, in milliseconds
    #[arg(long, default_value_t = 1000)]
    limit: u64,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

impl Status {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        let lab = open(self.lab.as_deref()).await?;
        let status = lab.status().await.map_err(failed)?;
        let mut value = serde_json::to_value(&status)
            .map_err(|e| Failure::new("cannot print the status", e))?;
        value["apiVersion"] = json!("cli.margay.io/v1");
        value["kind"] = json!("LabStatus");
        let mut out = std::io::stdout().lock();
        if !print_document(&mut out, &self.output, &value)? {
            print_members(&mut out, &status)?;
            for member in &status.members {
                for problem in &member.problems {
                    writeln!(out, "PROBLEM  {}: {problem}", member.name)?;
                }
            }
            for unit in &status.ended {
                writeln!(out, "PROBLEM  {unit} has ended")?;
            }
            let (good, all) = (status.matrix.reachable(), status.matrix.pairs.len());
            writeln!(out, "pod matrix {good}/{all} reachable")?;
        }
        Ok(if status.is_good() { DONE } else { BAD_ANSWER })
    }
}

/// The table of nodes and the router.
pub(super) fn print_members(out: &mut impl Write, status: &LabStatus) -> Result<(), Failure> {
    let mut table = Table::new(&[
        "NODE", "STATE", "SESSIONS", "BLOCKS", "PODS#", "ROUTES#", "CPU#", "RSS#",
    ]);
    for m in &status.members {
        let sessions = m
            .sessions
            .map_or(String::new(), |s| format!("{}/{}", s.up, s.total));
        table.row(vec![
            m.name.clone(),
            m.state.to_owned(),
            sessions,
            m.blocks.join(","),
            if m.sessions.is_some() {
                m.pods.to_string()
            } else {
                String::new()
            },
            m.routes.to_string(),
            format!("{:.2}s", m.cpu_seconds),
            format!("{}Mi", m.resident_bytes >> 20),
        ]);
    }
    Ok(table.print(out, true)?)
}

impl Ls {
    pub(super) fn run(&self) -> Result<u8, Failure> {
        let labs = margay_lab::list();
        let words = |condition: &Condition| match condition {
            Condition::Starting => ("Starting", String::new()),
            Condition::Running => ("Running", String::new()),
            Condition::Broken(why) => ("Broken", why.clone()),
        };
        let item = |l: &margay_lab::cluster::Listed| {
            let (state, why) = words(&l.condition);
            let mut item = json!({"name": l.name.as_str(), "state": state, "shape": l.shape});
            if !why.is_empty() {
                item["reason"] = Value::String(why);
            }
            item
        };
        let value = document("LabList", labs.iter().map(item).collect());
        let mut out = std::io::stdout().lock();
        if print_document(&mut out, &self.output, &value)? {
            return Ok(DONE);
        }
        if matches!(self.output, Format::Name) {
            for lab in &labs {
                writeln!(out, "lab/{}", lab.name)?;
            }
            return Ok(DONE);
        }
        if labs.is_empty() {
            eprintln!("No labs found");
            return Ok(DONE);
        }
        let mut table = Table::new(&["LAB", "STATE", "SHAPE", "REASON"]);
        for lab in &labs {
            let (state, why) = words(&lab.condition);
            let shape = lab
                .shape
                .as_ref()
                .map_or(String::new(), margay_lab::Shape::words);
            table.row(vec![lab.name.to_string(), state.to_owned(), shape, why]);
        }
        table.print(&mut out, true)?;
        Ok(DONE)
    }
}

impl Matrix {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        let lab = open(self.lab.as_deref()).await?;
        let matrix = lab
            .matrix(Duration::from_millis(self.limit))
            .await
            .map_err(failed)?;
        let mut value = serde_json::to_value(&matrix)
            .map_err(|e| Failure::new("cannot print the matrix", e))?;
        value["apiVersion"] = json!("cli.margay.io/v1");
        value["kind"] = json!("LabMatrix");
        let mut out = std::io::stdout().lock();
        if !print_document(&mut out, &self.output, &value)? {
            print_matrix(&mut out, &matrix)?;
        }
        Ok(if matrix.is_complete() {
            DONE
        } else {
            BAD_ANSWER
        })
    }
}

/// Rows ask, columns answer: `ok`, `FAIL`, or `part` when one of two address families answers.
pub(super) fn print_matrix(out: &mut impl Write, matrix: &probe::Matrix) -> Result<(), Failure> {
    let mut names: Vec<&str> = Vec::new();
    let mut cells: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    for pair in &matrix.pairs {
        for name in [pair.from.as_str(), pair.to.as_str()] {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let cell = cells.entry((&pair.from, &pair.to)).or_default();
        cell.0 += usize::from(pair.rtt_microseconds.is_some());
        cell.1 += 1;
    }
    if names.len() <= DRAWN {
        let header: Vec<&str> = std::iter::once("FROM")
            .chain(names.iter().copied())
            .collect();
        let mut table = Table::new(&header);
        for from in &names {
            let cell = |to: &&str| match cells.get(&(*from, *to)) {
                None => String::new(),
                Some((good, all)) if good == all => "ok".to_owned(),
                Some((0, _)) => "FAIL".to_owned(),
                Some(_) => "part".to_owned(),
            };
            table.row(
                std::iter::once((*from).to_owned())
                    .chain(names.iter().map(cell))
                    .collect(),
            );
        }
        table.print(out, true)?;
    }
    for pair in matrix.unreachable() {
        writeln!(
            out,
            "UNREACHABLE  {} -> {} ({})",
            pair.from, pair.to, pair.address
        )?;
    }
    let (good, all) = (matrix.reachable(), matrix.pairs.len());
    let percent = (good * 100).checked_div(all).unwrap_or(100);
    writeln!(out, "{good}/{all} reachable ({percent} %)")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use margay_lab::probe::Reach;

    #[test]
    fn a_pair_that_answers_in_one_of_two_families_is_neither_ok_nor_failed() {
        let reach = |from: &str, to: &str, address: &str, good: bool| Reach {
            from: from.into(),
            to: to.into(),
            address: address.parse().unwrap(),
            rtt_microseconds: good.then_some(50),
        };
        let matrix = probe::Matrix {
            pairs: vec![
                reach("a", "b", "10.0.0.2", true),
                reach("a", "b", "fd00::2", false),
                reach("b", "a", "10.0.0.1", true),
                reach("b", "a", "fd00::1", true),
            ],
        };
        let mut out = Vec::new();
        print_matrix(&mut out, &matrix).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("a     -   part\n"), "{text}");
        assert!(text.contains("b     ok  -\n"), "{text}");
        assert!(
            text.ends_with("UNREACHABLE  a -> b (fd00::2)\n3/4 reachable (75 %)\n"),
            "{text}"
        );
    }
}
