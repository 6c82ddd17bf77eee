//! Everybody pings everybody once.

use super::echo::{EchoSocket, Tag};
use crate::error::{Result, Tried};
use crate::names::netns_path;
use crate::namespaces::in_netns;
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Somebody who sends and answers pings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name shown.
    pub name: String,
    /// Network namespace name.
    pub netns: String,
    /// Addresses, at most one per family is asked for.
    pub addresses: Vec<IpAddr>,
}

/// Whether one address answered one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reach {
    /// Who asked.
    pub from: String,
    /// Who was asked.
    pub to: String,
    /// Under which address.
    pub address: IpAddr,
    /// Round-trip time in microseconds; absent = no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_microseconds: Option<u64>,
}

/// Result of a round of pings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// One entry per ordered pair and address family.
    pub pairs: Vec<Reach>,
}

impl Matrix {
    /// How many pairs answered.
    pub fn reachable(&self) -> usize {
        self.pairs
            .iter()
            .filter(|p| p.rtt_microseconds.is_some())
            .count()
    }

    /// Pairs without an answer.
    pub fn unreachable(&self) -> impl Iterator<Item = &Reach> {
        self.pairs.iter().filter(|p| p.rtt_microseconds.is_none())
    }

    /// Whether every pair answered.
    pub fn is_complete(&self) -> bool {
        self.unreachable().next().is_none()
    }
}

/// Pings from each endpoint to every other one, in each family both have. Two rounds at most: the first packet of a
/// pair may be lost to neighbour discovery.
///
/// # Errors
/// A namespace cannot be entered or no socket can be opened.
pub(crate) fn measure(endpoints: &[Endpoint], limit: Duration) -> Result<Matrix> {
    let workers: Vec<_> = endpoints
        .iter()
        .map(|from| {
            let others = endpoints.iter().filter(|to| to.name != from.name);
            let targets: Vec<(String, IpAddr)> = others
                .flat_map(|to| to.addresses.iter().map(|ip| (to.name.clone(), *ip)))
                .collect();
            let (from, netns) = (from.clone(), netns_path(&from.netns));
            thread::spawn(move || in_netns(&netns, move || ping_all(&from, &targets, limit)))
        })
        .collect();
    let mut matrix = Matrix::default();
    for (worker, from) in workers.into_iter().zip(endpoints) {
        let what = || format!("cannot ping from {}", from.name);
        let joined = worker
            .join()
            .map_err(|_| std::io::Error::other("the pinging thread panicked"));
        matrix
            .pairs
            .extend(joined.and_then(|r| r).and_then(|r| r).tried(what)?);
    }
    Ok(matrix)
}

fn ping_all(
    from: &Endpoint,
    targets: &[(String, IpAddr)],
    limit: Duration,
) -> std::io::Result<Vec<Reach>> {
    let mut found = HashMap::new();
    for v6 in [false, true] {
        let has = |ip: &IpAddr| ip.is_ipv6() == v6;
        let wanted: Vec<IpAddr> = targets.iter().map(|(_, ip)| *ip).filter(has).collect();
        if wanted.is_empty() || !from.addresses.iter().any(has) {
            continue;
        }
        let socket = EchoSocket::open(v6)?;
        for round in 0..2 {
            ping_round(&socket, &wanted, round, limit, &mut found)?;
        }
    }
    let both = targets.iter().filter(|(_, ip)| {
        from.addresses
            .iter()
            .any(|own| own.is_ipv6() == ip.is_ipv6())
    });
    Ok(both
        .map(|(to, address)| Reach {
            from: from.name.clone(),
            to: to.clone(),
            address: *address,
            rtt_microseconds: found.get(address).copied(),
        })
        .collect())
}

/// Asks every address not yet found and waits until all have answered or `limit` has passed.
fn ping_round(
    socket: &EchoSocket,
    wanted: &[IpAddr],
    round: u16,
    limit: Duration,
    found: &mut HashMap<IpAddr, u64>,
) -> std::io::Result<()> {
    let id = std::process::id() as u16 ^ (round << 15);
    let mut sent = HashMap::new();
    for (address, sequence) in wanted
        .iter()
        .zip(0_u16..)
        .filter(|(ip, _)| !found.contains_key(ip))
    {
        // Unreachable is an answer like silence.
        if socket.send(*address, Tag { id, sequence }).is_ok() {
            sent.insert(sequence, (*address, Instant::now()));
        }
    }
    let deadline = Instant::now() + limit;
    while !sent.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let Some(tag) = socket.receive(left)? else {
            continue;
        };
        if tag.id != id {
            continue;
        }
        if let Some((address, at)) = sent.remove(&tag.sequence) {
            found.insert(
                address,
                u64::try_from(at.elapsed().as_micros()).unwrap_or(u64::MAX),
            );
        }
    }
    Ok(())
}
