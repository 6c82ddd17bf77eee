//! `bgp routes`.

use super::item;
use super::peers::moment;
use crate::agents::{Agents, Nodes};
use crate::api::Connection;
use crate::failure::Failure;
use crate::output::{Format, Table, document, print_document};
use ipnet::IpNet;
use margay_crds::admin::{Route, RouteList};
use std::io::{IsTerminal, Write};
use std::net::IpAddr;

/// Routes: every path, the best one marked
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first column: * valid, > best, = used beside the best, s stale (kept over a restart).\n\nExamples:\n  margayctl bgp routes\n  margayctl bgp routes 10.88.0.0/26 --node n1\n  margayctl bgp routes --for 10.88.0.7"
)]
pub(crate) struct Routes {
    /// Only this prefix
    prefix: Option<IpNet>,
    #[command(flatten)]
    nodes: Nodes,
    /// Also prefixes inside the given one
    #[arg(long, requires = "prefix")]
    longer: bool,
    /// The longest match for an address
    #[arg(long = "for", value_name = "IP", conflicts_with = "prefix")]
    address: Option<IpAddr>,
    /// Only paths learned from this peer
    #[arg(long, value_name = "IP")]
    peer: Option<IpAddr>,
    /// Only this family
    #[arg(long, value_parser = ["ipv4", "ipv6"])]
    family: Option<String>,
    /// Only best paths
    #[arg(long)]
    best: bool,
    /// table, wide, json, yaml, jsonl, jsonpath=...
    #[arg(short, long, default_value = "table")]
    output: Format,
    /// Leave the header out
    #[arg(long)]
    no_headers: bool,
}

impl Routes {
    /// Runs the command.
    pub(super) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let agents = Agents::find(connection, &self.nodes).await?;
        let answers = agents.ask::<RouteList>(&self.path()).await;
        answers.report_silent();
        let paths: Vec<(&str, &Route)> = answers
            .answers
            .iter()
            .flat_map(|(_, list)| {
                list.routes
                    .iter()
                    .map(move |route| (list.node.as_str(), route))
            })
            .filter(|(_, route)| !self.best || route.best || route.multipath)
            .collect();
        let items = paths
            .iter()
            .map(|(node, route)| item(node, route))
            .collect();
        let mut out = std::io::stdout().lock();
        if !print_document(&mut out, &self.output, &document("BgpRouteList", items))? {
            let table = table(&paths, std::io::stdout().is_terminal());
            if table.is_empty() {
                eprintln!("No routes found");
            } else {
                table.print(&mut out, !self.no_headers)?;
            }
        }
        out.flush()?;
        Ok(answers.exit_code())
    }

    fn path(&self) -> String {
        let mut query: Vec<String> = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                query.push(format!("{key}={}", value.replace('/', "%2F")));
            }
        };
        add("prefix", self.prefix.map(|p| p.to_string()));
        add("longer", self.longer.then(|| "true".to_owned()));
        add("for", self.address.map(|a| a.to_string()));
        add("peer", self.peer.map(|a| a.to_string()));
        add("family", self.family.clone());
        if query.is_empty() {
            "/v1/bgp/routes".to_owned()
        } else {
            format!("/v1/bgp/routes?{}", query.join("&"))
        }
    }
}

fn marks(route: &Route) -> String {
    let mut marks = String::from("*");
    if route.best {
        marks.push('>');
    } else if route.multipath {
        marks.push('=');
    }
    if route.stale {
        marks.push('s');
    }
    marks
}

fn table(paths: &[(&str, &Route)], ages: bool) -> Table {
    let mut table = Table::new(&[
        "NODE", "", "PREFIX", "NEXT-HOP", "FROM", "AS-PATH", "LP#", "MED#", "COMM", "AGE", "FIB",
    ]);
    for (node, route) in paths {
        let text = |v: Option<String>| v.unwrap_or_default();
        table.row(vec![
            (*node).to_owned(),
            marks(route),
            route.prefix.clone(),
            text(route.next_hop.map(|a| a.to_string())),
            route.from_name.clone(),
            if route.as_path.is_empty() {
                "(i)".to_owned()
            } else {
                route.as_path.clone()
            },
            text(route.local_pref.map(|v| v.to_string())),
            text(route.med.map(|v| v.to_string())),
            route.communities.join(","),
            text(route.since.as_deref().map(|since| moment(since, ages))),
            text(route.fib.clone()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_carries_every_filter_and_escapes_the_slash() {
        let routes = Routes {
            prefix: Some("10.0.0.0/24".parse().unwrap()),
            nodes: Nodes::default(),
            longer: true,
            address: None,
            peer: Some("10.1.1.1".parse().unwrap()),
            family: None,
            best: false,
            output: Format::Table,
            no_headers: false,
        };
        assert_eq!(
            routes.path(),
            "/v1/bgp/routes?prefix=10.0.0.0%2F24&longer=true&peer=10.1.1.1"
        );
    }
}
