//! Nodes that are gone: their addresses and blocks go to others, long after the node stopped using them.
//!
//! A node without contact to the API stops handing out addresses long before its Node object can have been missing for
//! the time this controller waits; and no pod may be left in the API that was bound to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Resource};
use margay_ipam::block::{Expected, Owner};
use margay_ipam::write::{Giving, WriteError, release_affinity, release_in_block};
use tokio::time::Instant;

use crate::cluster::{Cluster, Purpose};
use crate::reconcile::Work;

/// Since when nodes that still have addresses are gone.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    since: BTreeMap<String, Instant>,
    /// Nodes whose addresses could not all be released; not before this time again.
    retry: BTreeMap<String, Instant>,
}

impl Gone {
    /// Takes in which nodes exist and which have addresses.
    pub(crate) fn update(
        &mut self,
        with_addresses: &BTreeSet<String>,
        exists: impl Fn(&str) -> bool,
        now: Instant,
    ) {
        self.since
            .retain(|node, _| with_addresses.contains(node) && !exists(node));
        for node in with_addresses.iter().filter(|node| !exists(node)) {
            self.since.entry(node.clone()).or_insert_with(|| {
                tracing::info!(
                    node,
                    "Node object is gone; its addresses are kept for a while"
                );
                now
            });
        }
        let since = &self.since;
        self.retry.retain(|node, _| since.contains_key(node));
    }

    /// Nodes that have been gone for long enough.
    pub(crate) fn due(&self, after: Duration, now: Instant) -> Vec<String> {
        let old = self
            .since
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= after);
        old.filter(|(node, _)| self.retry.get(*node).is_none_or(|at| *at <= now))
            .map(|(node, _)| node.clone())
            .collect()
    }

    /// When the next one is due.
    pub(crate) fn next(&self, after: Duration) -> Option<Instant> {
        let due = self.since.iter().map(|(node, since)| {
            let due = *since + after;
            self.retry.get(node).map_or(due, |at| due.max(*at))
        });
        due.min()
    }

    fn postpone(&mut self, node: &str, until: Instant) {
        self.retry.insert(node.to_owned(), until);
    }
}

/// What a gone node holds: addresses to release by block, and whether there is something nobody here understands.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Estate {
    pub(crate) addresses: BTreeMap<IpNet, BTreeMap<usize, Expected>>,
    pub(crate) unknown: bool,
    pub(crate) affinities: Vec<IpNet>,
}

/// Everything a node holds. Addresses without a handle are never released: nobody could tell whose they are.
pub(crate) fn estate(cluster: &Cluster, node: &str) -> Estate {
    let mut estate = Estate::default();
    for (block, held) in cluster.uses_of(node) {
        let known = held.purpose != Purpose::Unknown;
        match &held.handle {
            Some(handle) if known => {
                let expected = Expected {
                    handle: Some(handle.clone()),
                    stamp: Some(held.stamp),
                };
                estate
                    .addresses
                    .entry(block.cidr)
                    .or_default()
                    .insert(held.ordinal, expected);
            }
            _ => estate.unknown = true,
        }
    }
    let owner = Owner::Host(node.to_owned());
    let affinities = cluster.affinities.objects().values();
    let mut cidrs: BTreeSet<IpNet> = affinities
        .filter(|affinity| affinity.owner == owner)
        .map(|affinity| affinity.cidr)
        .collect();
    let blocks = cluster.blocks.objects().values();
    cidrs.extend(
        blocks
            .filter(|block| block.owner.as_ref() == Some(&owner))
            .map(|b| b.cidr),
    );
    estate.affinities = cidrs.into_iter().collect();
    estate
}

impl Work {
    /// Releases what nodes hold that have been gone for long enough. Returns what failed.
    pub(crate) async fn reconcile_nodes(&mut self) -> Vec<String> {
        let now = Instant::now();
        let with_addresses = self.cluster.nodes_with_addresses();
        let nodes = &self.cluster.nodes;
        self.gone
            .update(&with_addresses, |node| nodes.get(node).is_some(), now);
        let mut failures = Vec::new();
        for node in self.gone.due(self.config.dead_node_after, now) {
            self.gone.postpone(&node, now + RETRY);
            match self.may_release(&node).await {
                Ok(true) => {
                    if let Err(error) = self.release_node(&node).await {
                        failures.push(format!("node {node}: {error}"));
                    }
                }
                Ok(false) => {}
                Err(error) => failures.push(format!("node {node}: {error}")),
            }
        }
        failures
    }

    /// Asks the API once more: the Node is gone, and so are all pods that were bound to it.
    async fn may_release(&self, node: &str) -> Result<bool, kube::Error> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        if nodes.get_metadata_opt(node).await?.is_some() {
            return Ok(false);
        }
        let pods: Api<Pod> = Api::all(self.client.clone());
        let bound = ListParams::default()
            .fields(&format!("spec.nodeName={node}"))
            .limit(1);
        let left = pods.list_metadata(&bound).await?;
        if let Some(pod) = left.items.first() {
            tracing::info!(node, pod = ?pod.metadata.name, "node is gone, pods bound to it are not");
        }
        Ok(left.items.is_empty())
    }

    async fn release_node(&mut self, node: &str) -> Result<(), WriteError> {
        let (cooldown, now) = (self.cluster.cooldown(), Timestamp::now());
        let estate = estate(&self.cluster, node);
        let mut released = 0;
        for (cidr, addresses) in &estate.addresses {
            match release_in_block(&*self.store, cidr, addresses, cooldown, now).await {
                Ok(result) => released += result.released.len(),
                // Assigned anew since it was seen: the next change of the block is looked at again.
                Err(WriteError::Refused(error)) => {
                    tracing::info!(block = %cidr, %error, "not released")
                }
                Err(error) => return Err(error),
            }
        }
        if released > 0 {
            let text =
                format!("{released} addresses of node {node}, which is gone, are free for others");
            tracing::info!(node, released, "addresses of a node that is gone released");
            let mut about = Node::default().object_ref(&());
            about.name = Some(node.to_owned());
            self.events.warn(about, "IPAMLeakReclaimed", &text).await;
        }
        if estate.unknown {
            tracing::warn!(
                node,
                "blocks of the node stay: some addresses are of an unknown kind"
            );
            return Ok(());
        }
        let owner = Owner::Host(node.to_owned());
        let giving = Giving {
            must_be_empty: true,
            sequence: None,
            cooldown,
            now,
        };
        for cidr in &estate.affinities {
            match release_affinity(&*self.store, &owner, cidr, giving, |_| {}).await {
                Ok(()) => {
                    tracing::info!(block = %cidr, node, "block of a node that is gone released")
                }
                // Others hold addresses of it, or some are still cooling.
                Err(WriteError::NotEmpty(_) | WriteError::Foreign { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Time between attempts for one node.
const RETRY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_node_is_due_only_after_it_was_gone_for_the_whole_time() {
        let (mut gone, start) = (Gone::default(), Instant::now());
        let after = Duration::from_secs(900);
        gone.update(&names(&["a", "b"]), |node| node == "b", start);
        assert_eq!(
            gone.due(after, start + Duration::from_secs(899)),
            Vec::<String>::new()
        );
        assert_eq!(gone.due(after, start + after), ["a"]);
        assert_eq!(gone.next(after), Some(start + after));
        // It came back for a moment: the time starts again.
        gone.update(&names(&["a"]), |_| true, start + Duration::from_secs(800));
        gone.update(&names(&["a"]), |_| false, start + Duration::from_secs(801));
        assert!(gone.due(after, start + after).is_empty());
    }

    #[test]
    fn a_failed_attempt_is_not_repeated_at_once() {
        let (mut gone, start) = (Gone::default(), Instant::now());
        gone.update(&names(&["a"]), |_| false, start);
        gone.postpone("a", start + Duration::from_secs(30));
        assert!(gone.due(Duration::ZERO, start).is_empty());
        assert_eq!(
            gone.due(Duration::ZERO, start + Duration::from_secs(30)),
            ["a"]
        );
    }
}
