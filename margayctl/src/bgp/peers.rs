//! `bgp peers`.

use super::item;
use crate::agents::{Agents, Nodes};
use crate::api::Connection;
use crate::failure::{BAD_ANSWER, Failure};
use crate::output::{Format, Table, age, document, print_document};
use jiff::Timestamp;
use margay_crds::admin::{Peer, PeerList};
use std::io::{IsTerminal, Write};
use std::net::IpAddr;

/// Sessions: state, counters, last error
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 done, 3 with --require-established when a session is down, 4 a node did not answer"
)]
pub(crate) struct Peers {
    #[command(flatten)]
    nodes: Nodes,
    /// Only sessions with this peer
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// Only sessions in this state
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only sessions of this type: mesh, global, node, reverse, workload
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only sessions that carry this family: ipv4 or ipv6
    #[arg(long, value_name = "FAMILY")]
    family: Option<String>,
    /// Exit with 3 when a session is not Established
    #[arg(long)]
    require_established: bool,
    /// table, wide, json, yaml, jsonl, jsonpath=...
    #[arg(short, long, default_value = "table")]
    output: Format,
    /// Leave the header out
    #[arg(long)]
    no_headers: bool,
}

impl Peers {
    /// Runs the command.
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let agents = Agents::find(connection, &self.nodes).await?;
        let answers = agents.ask::<PeerList>("/v1/bgp/peers").await;
        answers.report_silent();
        let sessions: Vec<(&str, &Peer)> = answers
            .answers
            .iter()
            .flat_map(|(_, list)| {
                list.peers
                    .iter()
                    .map(move |peer| (list.node.as_str(), peer))
            })
            .filter(|(_, peer)| self.wanted(peer))
            .collect();
        let items = sessions
            .iter()
            .map(|(node, peer)| item(node, peer))
            .collect();
        let mut out = std::io::stdout().lock();
        if !print_document(&mut out, &self.output, &document("BgpPeerList", items))? {
            let table = table(
                &sessions,
                matches!(self.output, Format::Wide),
                std::io::stdout().is_terminal(),
            );
            if table.is_empty() {
                eprintln!("No BGP sessions found");
            } else {
                table.print(&mut out, !self.no_headers)?;
            }
        }
        out.flush()?;
        let down = sessions.iter().any(|(_, peer)| !peer.is_established());
        Ok(if self.require_established && down {
            BAD_ANSWER
        } else {
            answers.exit_code()
        })
    }

    fn wanted(&self, peer: &Peer) -> bool {
        self.peer.is_none_or(|ip| ip == peer.peer)
            && self
                .state
                .as_ref()
                .is_none_or(|s| s.eq_ignore_ascii_case(&peer.state))
            && self
                .kind
                .as_ref()
                .is_none_or(|k| k.eq_ignore_ascii_case(peer.kind.as_str()))
            && self
                .family
                .as_ref()
                .is_none_or(|f| peer.families.iter().any(|own| own.eq_ignore_ascii_case(f)))
    }
}

fn table(sessions: &[(&str, &Peer)], wide: bool, ages: bool) -> Table {
    let mut columns = vec![
        "NODE",
        "PEER",
        "NAME",
        "TYPE",
        "PEER-AS#",
        "STATE",
        "UPTIME",
        "RECV#",
        "ACC#",
        "ADV#",
        "FLAPS#",
        "LAST-ERROR",
    ];
    if wide {
        columns.extend([
            "LOCAL-AS#",
            "LOCAL-IP",
            "ROUTER-ID",
            "HOLD#",
            "KEEPALIVE#",
            "CAPS",
            "GR",
            "MD5",
            "TTL-SEC",
            "SOURCE",
        ]);
    }
    let mut table = Table::new(&columns);
    for (node, peer) in sessions {
        let text = |v: Option<String>| v.unwrap_or_default();
        let mut row = vec![
            (*node).to_owned(),
            if peer.port == 179 {
                peer.peer.to_string()
            } else {
                format!("{}:{}", peer.peer, peer.port)
            },
            peer.name.clone(),
            peer.kind.as_str().to_owned(),
            peer.peer_as.to_string(),
            peer.state.clone(),
            text(peer.since.as_deref().map(|since| moment(since, ages))),
            peer.received.to_string(),
            peer.accepted.to_string(),
            peer.advertised.to_string(),
            peer.flaps.to_string(),
            text(peer.last_error.clone()),
        ];
        if wide {
            row.extend([
                peer.local_as.to_string(),
                text(peer.local_address.map(|a| a.to_string())),
                text(peer.router_id.map(|a| a.to_string())),
                peer.hold_time.to_string(),
                peer.keepalive_time.to_string(),
                peer.capabilities.join(","),
                text(peer.graceful_restart.clone()),
                if peer.md5 { "yes" } else { "no" }.to_owned(),
                text(peer.ttl_security.map(|t| t.to_string())),
                text(peer.source.clone()),
            ]);
        }
        table.row(row);
    }
    table
}

/// An age on a terminal, the moment itself elsewhere.
pub(super) fn moment(since: &str, ages: bool) -> String {
    match since.parse::<Timestamp>() {
        Ok(at) if ages => age(at),
        _ => since.to_owned(),
    }
}
