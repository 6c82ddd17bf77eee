//! Links, addresses and routes of a lab, through iproute2.

use super::blocking;
use crate::error::{Error, Result, Tried};
use crate::names::netns_path;
use crate::namespaces;
use crate::state::{Node, Router, State};
use crate::underlay::{Families, prefix_len};
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// A route in a kernel table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRoute {
    /// Destination, always with prefix length.
    pub destination: ipnet::IpNet,
    /// Next hops; empty for a directly connected or blackhole route.
    pub gateways: Vec<IpAddr>,
    /// Protocol number or name as iproute2 prints it.
    pub protocol: String,
    /// `unicast`, `blackhole`, ...
    pub kind: String,
}

/// Gives the fabric its bridge and every member a cable to it.
pub(super) async fn connect(state: &State) -> Result<()> {
    let fabric = state.fabric.clone();
    let families = state.shape.families;
    let members: Vec<(String, String, Vec<IpAddr>, Vec<IpAddr>)> = state
        .nodes
        .iter()
        .map(
            |Node {
                 name,
                 netns,
                 addresses,
                 ..
             }| (name.clone(), netns.clone(), addresses.clone(), Vec::new()),
        )
        .chain(state.tor.iter().map(
            |Router {
                 name,
                 netns,
                 addresses,
                 behind,
                 ..
             }| {
                (
                    name.clone(),
                    netns.clone(),
                    addresses.clone(),
                    behind.clone(),
                )
            },
        ))
        .collect();
    blocking(move || {
        batch(&fabric, &fabric_commands(families, &members))?;
        let workers: Vec<_> = members
            .into_iter()
            .map(|(_, netns, addresses, behind)| {
                std::thread::spawn(move || {
                    sysctls(&netns, !behind.is_empty())?;
                    batch(&netns, &member_commands(&addresses, &behind))
                })
            })
            .collect();
        for worker in workers {
            worker
                .join()
                .map_err(|_| Error::new("cannot connect a member", "the thread panicked"))??;
        }
        Ok(())
    })
    .await
}

type Member = (String, String, Vec<IpAddr>, Vec<IpAddr>);

fn fabric_commands(families: Families, members: &[Member]) -> String {
    let mut text = String::from("link set lo up\nlink add br0 type bridge\nlink set br0 up\n");
    for (name, netns, ..) in members {
        let _ = writeln!(
            text,
            "link add {name} type veth peer name eth0 netns {netns}"
        );
        let _ = writeln!(text, "link set {name} master br0 up");
    }
    for ip in families.fabric() {
        let _ = writeln!(
            text,
            "addr add {ip}/{} dev br0{}",
            prefix_len(&ip),
            no_dad(&ip)
        );
    }
    text
}

fn member_commands(addresses: &[IpAddr], behind: &[IpAddr]) -> String {
    let mut text = String::from("link set lo up\nlink set eth0 up\n");
    for ip in addresses {
        let _ = writeln!(
            text,
            "addr add {ip}/{} dev eth0{}",
            prefix_len(ip),
            no_dad(ip)
        );
    }
    for ip in behind {
        let length = if ip.is_ipv4() { 24 } else { 64 };
        let _ = writeln!(text, "addr add {ip}/{length} dev lo{}", no_dad(ip));
    }
    text
}

/// Duplicate detection would only delay an address nobody else can have.
fn no_dad(ip: &IpAddr) -> &'static str {
    if ip.is_ipv6() { " nodad" } else { "" }
}

/// A host that is prepared for Kubernetes, and a router, forward packets; both are namespaces of the lab.
fn sysctls(netns: &str, router: bool) -> Result<()> {
    let mut settings = vec![
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
    ];
    if router {
        settings.push(("ipv4/fib_multipath_hash_policy", "1"));
    }
    let written = namespaces::in_netns(&netns_path(netns), move || {
        for (name, value) in settings {
            let file = format!("/proc/sys/net/{name}");
            // A kernel without IPv6 has no such files; an IPv4 lab does not need them.
            if std::path::Path::new(&file).exists() {
                std::fs::write(file, value)?;
            }
        }
        std::io::Result::Ok(())
    });
    written
        .and_then(|r| r)
        .tried(|| format!("cannot set kernel parameters in {netns}"))
}

/// Runs lines of ip(8) in a network namespace.
pub(super) fn batch(netns: &str, lines: &str) -> Result<()> {
    let what = || format!("cannot set up the network in {netns}");
    let mut command = Command::new("ip");
    command.args(["-n", netns, "-batch", "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().tried(what)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A closed pipe means that ip has already complained; its own words are better.
        let _ = stdin.write_all(lines.as_bytes());
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
}

#[derive(Deserialize)]
struct IpRoute {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    dst: String,
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    via: Option<Via>,
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    nexthops: Vec<NextHop>,
}

#[derive(Deserialize)]
struct NextHop {
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    via: Option<Via>,
}

#[derive(Deserialize)]
struct Via {
    host: IpAddr,
}

/// The main table of one namespace, both families.
pub(super) fn routes(netns: &str) -> Result<Vec<KernelRoute>> {
    let mut all = Vec::new();
    for family in ["-4", "-6"] {
        let what = || format!("cannot read the routes of {netns}");
        let output = Command::new("ip")
            .args(["-n", netns, "-N", "-d", family, "-j", "route", "show"])
            .output()
            .tried(what)?;
        if !output.status.success() {
            return Err(Error::new(
                what(),
                String::from_utf8_lossy(&output.stderr).trim(),
            ));
        }
        if output.stdout.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed: Vec<IpRoute> = serde_json::from_slice(&output.stdout).tried(what)?;
        all.extend(
            parsed
                .into_iter()
                .filter_map(|r| r.into_route(family == "-6")),
        );
    }
    Ok(all)
}

impl IpRoute {
    fn into_route(self, v6: bool) -> Option<KernelRoute> {
        let text = match (self.dst.as_str(), v6) {
            ("default", false) => "0.0.0.0/0",
            ("default", true) => "::/0",
            (text, _) => text,
        };
        let destination = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(Into::into))
            .ok()?;
        let hops = self.nexthops.into_iter().map(|h| (h.gateway, h.via));
        let gateways = std::iter::once((self.gateway, self.via)).chain(hops);
        Some(KernelRoute {
            destination,
            gateways: gateways
                .filter_map(|(g, v)| g.or(v.map(|v| v.host)))
                .collect(),
            protocol: self.protocol,
            kind: self.kind.unwrap_or_else(|| "unicast".into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_ip_are_read_with_and_without_prefix_length_and_with_several_next_hops() {
        let text = r#"[{"dst":"default","gateway":"10.0.0.1","protocol":"boot","flags":[]},
            {"dst":"10.88.0.5","dev":"cali1","protocol":"3","flags":[]},
            {"type":"blackhole","dst":"10.88.0.0/26","protocol":"80","flags":[]},
            {"dst":"10.88.0.64/26","protocol":"12","nexthops":[{"gateway":"10.20.1.2","weight":1},{"via":{"family":"inet6","host":"fd20::2"}}]}]"#;
        let parsed: Vec<IpRoute> = serde_json::from_str(text).unwrap();
        let routes: Vec<KernelRoute> = parsed
            .into_iter()
            .filter_map(|r| r.into_route(false))
            .collect();
        assert_eq!(routes[0].destination.to_string(), "0.0.0.0/0");
        assert_eq!(routes[1].destination.to_string(), "10.88.0.5/32");
        assert_eq!(routes[2].kind, "blackhole");
        assert_eq!(routes[3].gateways.len(), 2);
    }
}
