//! `status`: one screen for the cluster.

use crate::agents::{Agents, Answers, Nodes};
use crate::api::Connection;
use crate::failure::{BAD_ANSWER, Failure, INCONCLUSIVE};
use crate::output::{Format, print_document};
use margay_crds::admin::{Peer, PeerList, ProblemList, Status};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Pause between two looks with `--wait`.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// One screen for the cluster or a node
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The last line is one word: HEALTHY, DEGRADED or BROKEN.\nExit codes: 0 healthy or degraded, 3 with --wait when it did not become healthy, 4 a node did not answer"
)]
pub(crate) struct Show {
    #[command(flatten)]
    nodes: Nodes,
    /// Wait until everything is healthy
    #[arg(long)]
    wait: bool,
    /// How long --wait waits, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    wait_timeout: u64,
    /// table, json, yaml, jsonpath=...
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// How the cluster does, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Overall {
    Healthy,
    Degraded,
    Broken,
}

impl Overall {
    fn word(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Degraded => "Degraded",
            Self::Broken => "Broken",
        }
    }
}

/// What all agents said.
struct Cluster {
    status: Answers<Status>,
    peers: Answers<PeerList>,
    problems: Answers<ProblemList>,
}

impl Show {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(self.wait_timeout);
        let cluster = loop {
            let agents = Agents::find(connection, &self.nodes).await?;
            let cluster = Cluster::ask(&agents).await;
            if !self.wait
                || cluster.overall() == Overall::Healthy
                || tokio::time::Instant::now() >= deadline
            {
                break cluster;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        };
        let mut out = std::io::stdout().lock();
        if !print_document(&mut out, &self.output, &cluster.document())? {
            out.write_all(cluster.screen().as_bytes())?;
        }
        out.flush()?;
        Ok(match (cluster.overall(), self.wait) {
            (Overall::Healthy, _) => 0,
            (_, true) => BAD_ANSWER,
            _ if !cluster.status.silent.is_empty() => INCONCLUSIVE,
            _ => 0,
        })
    }
}

impl Cluster {
    async fn ask(agents: &Agents) -> Self {
        let (status, peers, problems) = tokio::join!(
            agents.ask::<Status>("/v1/status"),
            agents.ask::<PeerList>("/v1/bgp/peers"),
            agents.ask::<ProblemList>("/v1/problems"),
        );
        Self {
            status,
            peers,
            problems,
        }
    }

    fn overall(&self) -> Overall {
        if self.status.answers.is_empty() {
            return Overall::Broken;
        }
        let all_ready =
            self.status.silent.is_empty() && self.status.answers.iter().all(|(_, s)| s.ready);
        let sessions_up = self.down().next().is_none();
        let clean = self
            .problems
            .answers
            .iter()
            .all(|(_, p)| p.problems.is_empty());
        if all_ready && sessions_up && clean {
            Overall::Healthy
        } else {
            Overall::Degraded
        }
    }

    fn down(&self) -> impl Iterator<Item = (&str, &Peer)> {
        self.peers
            .answers
            .iter()
            .flat_map(|(_, list)| list.peers.iter().map(move |p| (list.node.as_str(), p)))
            .filter(|(_, p)| !p.is_established())
    }

    fn sum(&self, of: impl Fn(&Status) -> u64) -> u64 {
        self.status.answers.iter().map(|(_, s)| of(s)).sum()
    }

    fn screen(&self) -> String {
        let version = self
            .status
            .answers
            .first()
            .map_or("?", |(_, s)| s.version.as_str());
        let ready = self.status.answers.iter().filter(|(_, s)| s.ready).count();
        let total = self.status.answers.len() + self.status.silent.len();
        let mut text = format!("Margay v{version}   {total} nodes\n\n");
        text.push_str(&format!("NODES    {ready}/{total} ready\n"));
        for (node, why) in &self.status.silent {
            text.push_str(&format!("           SILENT  {node}: {why}\n"));
        }
        for (_, status) in self.status.answers.iter().filter(|(_, s)| !s.ready) {
            text.push_str(&format!(
                "           NOT READY  {}: {}\n",
                status.node,
                status.not_ready.join("; ")
            ));
        }
        let (up, sessions) = (self.sum(|s| s.sessions.up), self.sum(|s| s.sessions.total));
        text.push_str(&format!("BGP      {up}/{sessions} sessions up\n"));
        for (node, peer) in self.down() {
            let last = peer.last_error.as_deref().unwrap_or("no error seen");
            text.push_str(&format!(
                "           DOWN  {node} -> {} ({}, AS {})  {}  last: {last}\n",
                peer.peer, peer.name, peer.peer_as, peer.state
            ));
        }
        text.push_str(&format!(
            "IPAM     {} addresses used   {} reserved   {} blocks   borrowed {}\n",
            self.sum(|s| s.ipam.used),
            self.sum(|s| s.ipam.reserved),
            self.sum(|s| s.ipam.blocks),
            self.sum(|s| s.ipam.borrowed),
        ));
        text.push_str(&format!("PODS     {} wired\n", self.sum(|s| s.endpoints)));
        text.push_str(&format!(
            "KERNEL   drift repaired {}   contended {}\n",
            self.sum(|s| s.drift.repaired),
            self.sum(|s| s.drift.contended)
        ));
        for (_, list) in &self.problems.answers {
            for p in &list.problems {
                let field = if p.field.is_empty() {
                    String::new()
                } else {
                    format!(" {}", p.field)
                };
                text.push_str(&format!(
                    "PROBLEM  {}: {} {}{field}: {} ({})\n",
                    list.node, p.kind, p.name, p.message, p.reason
                ));
            }
        }
        text.push_str(&self.overall().word().to_uppercase());
        text.push('\n');
        text
    }

    fn document(&self) -> Value {
        let problems: Vec<Value> = self
            .problems
            .answers
            .iter()
            .flat_map(|(_, list)| {
                list.problems
                    .iter()
                    .map(move |p| json!({"node": list.node, "problem": p}))
            })
            .collect();
        let nodes: Vec<Value> = self.status.answers.iter().map(|(_, s)| json!(s)).collect();
        let silent: Vec<Value> = self
            .status
            .silent
            .iter()
            .map(|(node, why)| json!({"node": node, "reason": why}))
            .collect();
        json!({
            "apiVersion": "cli.margay.io/v1",
            "kind": "Status",
            "overall": self.overall().word(),
            "nodes": nodes,
            "silent": silent,
            "problems": problems,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers<T>(items: Vec<T>) -> Answers<T> {
        Answers {
            answers: items.into_iter().map(|t| ("n".to_owned(), t)).collect(),
            silent: Vec::new(),
        }
    }

    fn cluster(ready: bool, state: &str) -> Cluster {
        let peer: Peer = serde_json::from_value(json!({
            "peer": "10.0.0.1", "port": 179, "name": "tor", "type": "global", "peerAs": 65010, "localAs": 64512,
            "state": state, "lastError": "connection refused"}))
        .unwrap();
        Cluster {
            status: answers(vec![Status {
                node: "n".into(),
                ready,
                ..Status::default()
            }]),
            peers: answers(vec![PeerList {
                node: "n".into(),
                peers: vec![peer],
            }]),
            problems: answers(vec![ProblemList::default()]),
        }
    }

    #[test]
    fn the_last_line_is_the_overall_word() {
        assert!(
            cluster(true, "Established")
                .screen()
                .ends_with("\nHEALTHY\n")
        );
        let degraded = cluster(true, "Active").screen();
        assert!(degraded.ends_with("\nDEGRADED\n"));
        assert!(
            degraded
                .contains("DOWN  n -> 10.0.0.1 (tor, AS 65010)  Active  last: connection refused")
        );
        assert_eq!(cluster(false, "Established").overall(), Overall::Degraded);
    }

    #[test]
    fn nobody_answering_is_broken() {
        let mut cluster = cluster(true, "Established");
        cluster.status.answers.clear();
        assert_eq!(cluster.overall(), Overall::Broken);
    }
}
