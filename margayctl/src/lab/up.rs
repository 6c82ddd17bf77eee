//! `lab up`: makes a lab.

use super::failed;
use crate::failure::{DONE, Failure};
use crate::output::{Format, print_document};
use margay_lab::cluster::Step;
use margay_lab::{Builder, Families, Lab, LabName, Phase, State, Tor};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Make a lab and wait until everybody reaches everybody
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A healthy lab of the same shape is left as it is.\n\nExamples:\n  margayctl lab up demo --tor margay\n  margayctl lab up l1 -n 5 --tor bird --dual-stack --pods-per-node 2"
)]
pub(crate) struct Up {
    /// Name of the lab: lower-case letters and digits
    #[arg(default_value = "demo", value_name = "LAB")]
    lab: String,
    #[command(flatten)]
    shape: Shape,
    /// Apply this manifest before the agents start, instead of the default
    /// pools (repeatable)
    #[arg(long, value_name = "FILE")]
    pools: Vec<PathBuf>,
    /// Loopback port of the API server [default: a free one]
    #[arg(long, value_name = "PORT")]
    api_port: Option<u16>,
    /// Remove what is left of a lab of this name first
    #[arg(long)]
    recreate: bool,
    /// Do not wait until it has converged
    #[arg(long)]
    no_wait: bool,
    /// table, json, yaml
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// What the lab consists of.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Shape {
    /// Number of nodes
    #[arg(short, long, default_value_t = 3)]
    nodes: u8,
    /// mesh: nodes peer with each other; tor: with a router, too
    /// [default: tor if --tor is given]
    #[arg(long, value_enum)]
    topology: Option<Topology>,
    /// Software of the top-of-rack router [default with --topology tor: margay]
    #[arg(long, value_enum)]
    tor: Option<TorWord>,
    /// IPv6 beside IPv4
    #[arg(long, visible_alias = "ipv6", conflicts_with = "ipv6_only")]
    dual_stack: bool,
    /// IPv6 alone: nodes and pods have no IPv4 address
    #[arg(long)]
    ipv6_only: bool,
    /// Pods on each node
    #[arg(long, default_value_t = 4)]
    pods_per_node: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Topology {
    Mesh,
    Tor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum TorWord {
    Margay,
    Bird,
    Frr,
    Gobgp,
}

impl From<TorWord> for Tor {
    fn from(word: TorWord) -> Self {
        match word {
            TorWord::Margay => Self::Margay,
            TorWord::Bird => Self::Bird,
            TorWord::Frr => Self::Frr,
            TorWord::Gobgp => Self::Gobgp,
        }
    }
}

impl Shape {
    /// The builder of a lab of this shape.
    pub(super) fn builder(&self, name: LabName) -> Result<Builder, Failure> {
        let families = match (self.dual_stack, self.ipv6_only) {
            (false, false) => Families::V4,
            (_, true) => Families::V6,
            (true, false) => Families::Dual,
        };
        let builder = Lab::named(name)
            .nodes(self.nodes)
            .tor(self.router()?)
            .families(families);
        Ok(builder
            .pods_per_node(self.pods_per_node)
            .progress(progress()))
    }

    fn router(&self) -> Result<Option<Tor>, Failure> {
        match (self.topology, self.tor) {
            (Some(Topology::Mesh), Some(_)) => Err(Failure::Usage(
                "--topology mesh has no router; leave --tor out, or use --topology tor".into(),
            )),
            (Some(Topology::Mesh), None) | (None, None) => Ok(None),
            (Some(Topology::Tor), None) => Ok(Some(Tor::Margay)),
            (_, Some(word)) => Ok(Some(word.into())),
        }
    }
}

impl Up {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        let name = LabName::new(&self.lab).map_err(failed)?;
        let mut builder = self.shape.builder(name)?;
        for file in &self.pools {
            let text = std::fs::read_to_string(file)
                .map_err(|e| Failure::new(format!("cannot read {}", file.display()), e))?;
            builder = builder.pools(text);
        }
        let builder = builder
            .api_port(self.api_port)
            .recreate(self.recreate)
            .wait(!self.no_wait);
        let lab = Box::pin(builder.up()).await.map_err(failed)?;
        let state = lab.state().map_err(failed)?;
        let value = json!({
            "apiVersion": "cli.margay.io/v1", "kind": "Lab", "name": state.name, "shape": state.shape,
            "apiUrl": state.api_url, "kubeconfig": state.kubeconfig, "nodes": state.nodes, "pods": state.pods,
        });
        if !print_document(&mut std::io::stdout().lock(), &self.output, &value)? {
            println!("lab/{} is up: {}", state.name, state.shape.words());
            println!("export KUBECONFIG={}", state.kubeconfig.display());
        }
        Ok(DONE)
    }

    /// The lab to remove when the command is interrupted: only one that is still being made.
    pub(super) fn interrupted(&self) -> Option<LabName> {
        half_made(&self.lab)
    }
}

/// The lab, if this process is making it just now.
pub(super) fn half_made(lab: &str) -> Option<LabName> {
    let name = LabName::new(lab).ok()?;
    let state = State::load(&name).ok()??;
    let own = i32::try_from(std::process::id()).is_ok_and(|pid| pid == state.owner.pid);
    (own && state.phase == Phase::Starting).then_some(name)
}

/// Progress on standard error: a bar that is redrawn on a terminal, a line at the start and at the end elsewhere.
pub(super) fn progress() -> margay_lab::cluster::Progress {
    let start = Instant::now();
    let terminal = std::io::stderr().is_terminal();
    Arc::new(move |step: &Step| {
        let (done, of) = (step.done, step.of.max(1));
        let last = done >= of;
        let mut stderr = std::io::stderr().lock();
        // Nobody reads a progress bar that cannot be written.
        let _ = if terminal {
            let full = done * 10 / of;
            let bar = format!("{}{}", "#".repeat(full), "-".repeat(10 - full.min(10)));
            let end = if last { "\n" } else { "" };
            write!(stderr, "\r\x1b[K[{bar}] {done}/{of}  {}{end}", step.what)
        } else {
            writeln!(
                stderr,
                "[{done}/{of}] {} ({:.1}s)",
                step.what,
                start.elapsed().as_secs_f64()
            )
        };
        let _ = stderr.flush();
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        shape: Shape,
    }

    fn shape(words: &[&str]) -> Shape {
        Line::try_parse_from([&["x"], words].concat())
            .unwrap()
            .shape
    }

    #[test]
    fn a_router_program_alone_chooses_the_topology_and_the_topology_alone_the_program() {
        assert_eq!(shape(&["--tor", "bird"]).router().unwrap(), Some(Tor::Bird));
        assert_eq!(
            shape(&["--topology", "tor"]).router().unwrap(),
            Some(Tor::Margay)
        );
        assert_eq!(shape(&[]).router().unwrap(), None);
        assert!(
            shape(&["--topology", "mesh", "--tor", "frr"])
                .router()
                .is_err()
        );
    }
}
