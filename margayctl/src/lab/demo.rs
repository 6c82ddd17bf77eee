//! `lab demo`: a lab with a router, and everything worth seeing about it on one page.

use super::show::print_members;
use super::{failed, up};
use crate::failure::{BAD_ANSWER, DONE, Failure};
use crate::output::Table;
use margay_crds::admin::{PeerList, RouteList};
use margay_lab::cluster::LabStatus;
use margay_lab::{Lab, LabName, Tor};
use std::io::Write;

/// Routes shown per node; the rest is counted.
const ROUTES_SHOWN: usize = 8;

/// Make a lab and print nodes, sessions, blocks, routes, reachability and what
/// to try next
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// Name of the lab: lower-case letters and digits
    #[arg(default_value = "demo", value_name = "LAB")]
    lab: String,
    /// Number of nodes
    #[arg(short, long, default_value_t = 3)]
    nodes: u8,
    /// Remove what is left of a lab of this name first
    #[arg(long)]
    recreate: bool,
}

impl Demo {
    pub(super) async fn run(&self) -> Result<u8, Failure> {
        let name = LabName::new(&self.lab).map_err(failed)?;
        let builder = Lab::named(name)
            .nodes(self.nodes)
            .tor(Tor::Margay)
            .progress(up::progress());
        let lab = Box::pin(builder.recreate(self.recreate).up())
            .await
            .map_err(failed)?;
        let status = lab.status().await.map_err(failed)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "Lab {}: {}", status.name, status.shape.words())?;
        writeln!(out, "\nNODES")?;
        print_members(&mut out, &status)?;
        writeln!(out, "\nBGP SESSIONS")?;
        sessions(&mut out, &lab, &status).await?;
        writeln!(out, "\nROUTES LEARNED BY BGP")?;
        routes(&mut out, &lab, &status).await?;
        writeln!(out, "\nPODS")?;
        pods(&mut out, &lab)?;
        writeln!(out, "\nWHO REACHES WHOM")?;
        super::show::print_matrix(&mut out, &status.matrix)?;
        if !status.is_good() {
            out.flush()?;
            let first = status.matrix.unreachable().next();
            let why = first.map_or_else(
                || {
                    status
                        .members
                        .iter()
                        .flat_map(|m| m.problems.clone())
                        .chain(status.ended.clone())
                        .collect::<Vec<_>>()
                        .join("; ")
                },
                |pair| {
                    format!(
                        "{} gets no answer from {} ({})",
                        pair.from, pair.to, pair.address
                    )
                },
            );
            eprintln!(
                "{}",
                Failure::new("the demo does not work", why)
                    .hint(format!("margayctl lab status {}", status.name))
            );
            return Ok(BAD_ANSWER);
        }
        next(&mut out, &status)?;
        Ok(DONE)
    }

    /// The lab to remove when the command is interrupted.
    pub(super) fn interrupted(&self) -> Option<LabName> {
        up::half_made(&self.lab)
    }
}

async fn sessions(out: &mut impl Write, lab: &Lab, status: &LabStatus) -> Result<(), Failure> {
    let mut table = Table::new(&[
        "NODE",
        "PEER",
        "NAME",
        "TYPE",
        "AS#",
        "STATE",
        "RECEIVED#",
        "ADVERTISED#",
    ]);
    for member in status.members.iter().filter(|m| m.sessions.is_some()) {
        let list: PeerList = lab.agent_peers(&member.name).await.map_err(failed)?;
        for p in list.peers {
            table.row(vec![
                member.name.clone(),
                p.peer.to_string(),
                p.name,
                p.kind.as_str().to_owned(),
                p.peer_as.to_string(),
                p.state,
                p.received.to_string(),
                p.advertised.to_string(),
            ]);
        }
    }
    Ok(table.print(out, true)?)
}

async fn routes(out: &mut impl Write, lab: &Lab, status: &LabStatus) -> Result<(), Failure> {
    let mut table = Table::new(&["NODE", "PREFIX", "NEXT HOP", "FROM", "AS PATH", "KERNEL"]);
    for member in status.members.iter().filter(|m| m.sessions.is_some()) {
        let list: RouteList = lab
            .ask_agent(&member.name, "/v1/bgp/routes")
            .await
            .map_err(failed)?;
        let learned: Vec<_> = list
            .routes
            .into_iter()
            .filter(|r| r.best && r.from.is_some())
            .collect();
        let more = learned.len().saturating_sub(ROUTES_SHOWN);
        for r in learned.into_iter().take(ROUTES_SHOWN) {
            let next_hop = r.next_hop.map(|ip| ip.to_string()).unwrap_or_default();
            table.row(vec![
                member.name.clone(),
                r.prefix,
                next_hop,
                r.from_name,
                r.as_path,
                r.fib.unwrap_or_default(),
            ]);
        }
        if more > 0 {
            table.row(vec![member.name.clone(), format!("... {more} more")]);
        }
    }
    Ok(table.print(out, true)?)
}

fn pods(out: &mut impl Write, lab: &Lab) -> Result<(), Failure> {
    let mut table = Table::new(&["POD", "NODE", "ADDRESSES"]);
    for pod in lab.pods().map_err(failed)? {
        let addresses: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        table.row(vec![pod.name, pod.node, addresses.join(", ")]);
    }
    Ok(table.print(out, true)?)
}

fn next(out: &mut impl Write, status: &LabStatus) -> Result<(), Failure> {
    let lab = &status.name;
    write!(
        out,
        "
WHAT TO TRY NEXT
  export KUBECONFIG={}
  export PATH={}:${{XDG_CACHE_HOME:-$HOME/.cache}}/margay/bin:$PATH
  kubectl get nodes,pods,ippools -o wide
  kubectl apply -f examples/pools/second-pool.yaml && margayctl lab pod add n1 --pool second-pool
  kubectl patch ippool default-ipv4-ippool --type merge -p '{{\"spec\":{{\"natOutgoing\":false}}}}'
  margayctl bgp peers; margayctl bgp routes; margayctl ipam show --show-blocks
  margayctl lab exec n1-p1 -- ping -c 3 198.51.100.1      # a pod pings what is behind the router
  margayctl lab fault kill n2 agent {lab} --for 3s          # traffic goes on
  margayctl lab down {lab}                                # leaves nothing behind
",
        status.kubeconfig.display(),
        own_directory(),
    )?;
    Ok(())
}

fn own_directory() -> String {
    let own = std::env::current_exe().ok();
    own.and_then(|exe| Some(exe.parent()?.display().to_string()))
        .unwrap_or_else(|| "target/debug".into())
}
