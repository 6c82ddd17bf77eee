//! What crashes and other writers leave behind: affinities without a block, blocks without an owner, handles without
//! addresses.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use margay_crds::{BlockAffinity, IPAMHandle};
use margay_ipam::names::affinity_name;
use margay_ipam::write::{Change, WriteError, read_block, update_block};
use tokio::time::Instant;

use crate::cluster::{AffinityFacts, Cluster, HandleFacts};
use crate::reconcile::Work;

/// What is to be cleaned up.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Leftovers {
    /// Affinities whose block does not exist or belongs to somebody else, by name.
    pub(crate) affinities: Vec<String>,
    /// Blocks nobody owns and nothing uses, once what cools in them is cold.
    pub(crate) blocks: Vec<IpNet>,
    /// Handles without addresses, by name.
    pub(crate) handles: Vec<String>,
}

/// Finds what has been left behind for long enough.
pub(crate) fn find(cluster: &Cluster, after: Duration, at: Instant, now: Timestamp) -> Leftovers {
    let blocks = cluster.block_cidrs();
    let settled = |since: Instant| at.duration_since(since) >= after;
    let stale = |affinity: &AffinityFacts| {
        let owned = blocks.get(&affinity.cidr).map(|block| block.owner.as_ref());
        settled(affinity.since) && owned != Some(Some(&affinity.owner))
    };
    let affinities = cluster.affinities.objects().iter();
    let in_use = cluster.handles_in_use();
    let unused = |name: &str, handle: &HandleFacts| settled(handle.since) && !in_use.contains(name);
    let cold = |since: Option<Timestamp>| {
        since.is_none_or(|since| now.duration_since(since) > cluster.cooldown() + SECOND)
    };
    Leftovers {
        affinities: affinities
            .filter(|(_, a)| stale(a))
            .map(|(name, _)| name.clone())
            .collect(),
        blocks: blocks
            .values()
            .filter(|block| block.owner.is_none() && block.uses.is_empty() && cold(block.cooling))
            .filter(|block| block.empty || block.cooling.is_some())
            .map(|block| block.cidr)
            .collect(),
        handles: cluster
            .handles
            .objects()
            .iter()
            .filter(|(name, handle)| unused(name, handle))
            .map(|(name, _)| name.clone())
            .collect(),
    }
}

/// Times of release are stored with a resolution of one second.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

impl Work {
    /// Cleans up. Returns what failed.
    pub(crate) async fn sweep(&mut self) -> Vec<String> {
        let after = self.config.leftover_after;
        let found = find(&self.cluster, after, Instant::now(), Timestamp::now());
        let mut failures: BTreeMap<String, WriteError> = BTreeMap::new();
        for name in found.affinities {
            if let Err(error) = self.remove_affinity(&name).await {
                failures.insert(format!("BlockAffinity {name}"), error);
            }
        }
        for cidr in found.blocks {
            if let Err(error) = self.remove_block(&cidr).await {
                failures.insert(format!("block {cidr}"), error);
            }
        }
        for name in found.handles {
            if let Err(error) = self.remove_handle(&name).await {
                failures.insert(format!("IPAMHandle {name}"), error);
            }
        }
        failures
            .into_iter()
            .map(|(what, error)| format!("{what}: {error}"))
            .collect()
    }

    async fn remove_affinity(&self, name: &str) -> Result<(), WriteError> {
        let Some(facts) = self.cluster.affinities.get(name) else {
            return Ok(());
        };
        let (owner, cidr) = (facts.owner.clone(), facts.cidr);
        let object = self
            .store
            .read::<BlockAffinity>(&affinity_name(owner.name(), &cidr))
            .await?;
        let (Some(object), block) = (object, read_block(&*self.store, &cidr).await?) else {
            return Ok(());
        };
        if block.is_some_and(|block| block.is_owned_by(&owner)) {
            return Ok(());
        }
        // Deleted only at the version that was read before the block was: a claim under way changes it.
        self.store.remove(&object).await?;
        tracing::info!(block = %cidr, %owner, "affinity without a block of its own removed");
        Ok(())
    }

    async fn remove_block(&self, cidr: &IpNet) -> Result<(), WriteError> {
        let (cooldown, now) = (self.cluster.cooldown(), Timestamp::now());
        update_block(&*self.store, cidr, None, |block| {
            block.normalise(cooldown, now);
            let unused = block.owner().is_none() && block.is_empty();
            Ok(if unused {
                Change::Delete(())
            } else {
                Change::Keep(())
            })
        })
        .await?;
        tracing::info!(block = %cidr, "unused block without an owner removed");
        Ok(())
    }

    async fn remove_handle(&self, name: &str) -> Result<(), WriteError> {
        let Some(facts) = self.cluster.handles.get(name) else {
            return Ok(());
        };
        let Some(object) = self.store.read::<IPAMHandle>(name).await? else {
            return Ok(());
        };
        if object.metadata.resource_version != facts.version {
            return Ok(());
        }
        self.store.remove(&object).await?;
        tracing::info!(handle = name, "handle without addresses removed");
        Ok(())
    }
}
