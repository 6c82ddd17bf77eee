//! `lab`: clusters in network namespaces on this machine.

mod demo;
mod exec;
mod fault;
mod pod;
mod show;
mod up;

use crate::api::Connection;
use crate::failure::{DONE, Failure, INTERRUPTED};
use crate::output::{Format, document, print_document};
use margay_lab::{Kind, LabName};
use serde_json::{Value, json};

/// Clusters in network namespaces on this machine
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Without LAB, a command takes the only lab there is.")]
pub(crate) enum Lab {
    Up(Box<up::Up>),
    Demo(demo::Demo),
    Status(show::Status),
    Ls(show::Ls),
    Matrix(show::Matrix),
    Kubeconfig(Kubeconfig),
    Exec(exec::Exec),
    Apply(Apply),
    #[command(subcommand)]
    Pod(pod::Pod),
    Fault(fault::Faults),
    Down(Down),
}

/// Print the path of the administrator's kubeconfig
#[derive(Debug, clap::Args)]
pub(crate) struct Kubeconfig {
    /// Name of the lab
    lab: Option<String>,
    /// table (the path alone), json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Apply a manifest on the server side
#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    /// File to apply (repeatable)
    #[arg(short, long, required = true, value_name = "FILE")]
    filename: Vec<std::path::PathBuf>,
    /// Name of the lab
    lab: Option<String>,
}

/// Remove everything of a lab; fine to repeat
#[derive(Debug, clap::Args)]
pub(crate) struct Down {
    /// Name of the lab
    lab: Option<String>,
    /// All labs
    #[arg(long, conflicts_with = "lab")]
    all: bool,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

impl Lab {
    /// Runs the command.
    pub(crate) async fn run(&self, _connection: &Connection) -> Result<u8, Failure> {
        let work = async {
            match self {
                Self::Up(command) => command.run().await,
                Self::Demo(command) => command.run().await,
                Self::Status(command) => command.run().await,
                Self::Ls(command) => command.run(),
                Self::Matrix(command) => command.run().await,
                Self::Kubeconfig(command) => command.run(),
                Self::Exec(command) => command.run().await,
                Self::Apply(command) => command.run().await,
                Self::Pod(command) => command.run().await,
                Self::Fault(command) => command.run().await,
                Self::Down(command) => command.run(),
            }
        };
        // A command inside a lab gets its own interrupts from the terminal.
        if matches!(self, Self::Exec(_)) {
            return work.await;
        }
        tokio::select! {
            result = work => result,
            _ = tokio::signal::ctrl_c() => {
                eprintln!("interrupted");
                self.clean_up();
                Ok(INTERRUPTED)
            }
        }
    }

    /// A start that was interrupted leaves nothing; everything else is left as it is.
    fn clean_up(&self) {
        let lab = match self {
            Self::Up(command) => command.interrupted(),
            Self::Demo(command) => command.interrupted(),
            _ => None,
        };
        if let Some(lab) = lab
            && let Err(error) = margay_lab::down(&lab)
        {
            eprintln!("{}", failed(error));
        }
    }
}

impl Kubeconfig {
    fn run(&self) -> Result<u8, Failure> {
        let path = margay_lab::kubeconfig(&name_or_only(self.lab.as_deref())?).map_err(failed)?;
        let value =
            json!({"apiVersion": "cli.margay.io/v1", "kind": "LabKubeconfig", "path": path});
        if !print_document(&mut std::io::stdout().lock(), &self.output, &value)? {
            println!("{}", path.display());
        }
        Ok(DONE)
    }
}

impl Apply {
    async fn run(&self) -> Result<u8, Failure> {
        let lab = open(self.lab.as_deref()).await?;
        for file in &self.filename {
            let text = std::fs::read_to_string(file)
                .map_err(|e| Failure::new(format!("cannot read {}", file.display()), e))?;
            lab.apply(&text).await.map_err(failed)?;
            println!("{} applied", file.display());
        }
        Ok(DONE)
    }
}

impl Down {
    fn run(&self) -> Result<u8, Failure> {
        let names = if self.all {
            margay_lab::down_all().map_err(failed)?
        } else {
            let name = match name_or_only(self.lab.as_deref()) {
                Ok(name) => Some(name),
                // Nothing there to take down is what was asked for.
                Err(_) if self.lab.is_none() && margay_lab::list().is_empty() => None,
                Err(e) => return Err(e),
            };
            if let Some(name) = &name {
                margay_lab::down(name).map_err(failed)?;
            }
            name.into_iter().collect()
        };
        let items: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name.as_str()}))
            .collect();
        let value = document("LabDownList", items);
        if !print_document(&mut std::io::stdout().lock(), &self.output, &value)? {
            if names.is_empty() {
                eprintln!("No labs found");
            }
            for name in &names {
                println!("lab/{name} is down");
            }
        }
        Ok(DONE)
    }
}

/// A lab's error as this program prints errors.
fn failed(error: margay_lab::Error) -> Failure {
    if error.kind == Kind::Usage {
        return Failure::Usage(error.to_string());
    }
    let remedy = error.remedy;
    let failure = Failure::new(error.what, error.why);
    match remedy {
        Some(remedy) => failure.hint(remedy),
        None => failure,
    }
}

/// The lab of this name, or the only one.
fn name_or_only(name: Option<&str>) -> Result<LabName, Failure> {
    match name {
        Some(name) => LabName::new(name).map_err(failed),
        None => margay_lab::only().map_err(failed),
    }
}

async fn open(name: Option<&str>) -> Result<margay_lab::Lab, Failure> {
    margay_lab::Lab::open(&name_or_only(name)?)
        .await
        .map_err(failed)
}

/// `500ms`, `30s`, `2m`; a bare number is seconds.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("{text:?} is no duration; examples: 500ms, 30s, 2m"))?;
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        other => return Err(format!("unknown unit {other:?}; one of ms, s, m")),
    };
    std::time::Duration::try_from_secs_f64(number * unit).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in ["", "s", "-1s", "3h", "abc"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
