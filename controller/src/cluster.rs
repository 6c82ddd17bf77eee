//! The cluster, reduced to what the loops look at.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use margay_crds::{BlockAffinity, ClusterInformation, IPAMBlock, IPAMConfiguration, IPPool, Tier};
use margay_ipam::block::{Block, Owner};
use margay_ipam::{ATTR_NAMESPACE, ATTR_NODE, ATTR_POD, ATTR_TYPE, Rules, TYPE_WARM, names};
use tokio::time::Instant;

use crate::follow::{Mirror, Update};

/// What an address is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Pod,
    Tunnel,
    /// Kept by a node for quick hand-out.
    Reserve,
    /// Something this program does not know: never released.
    Unknown,
}

/// One address in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) ordinal: usize,
    pub(crate) handle: Option<String>,
    pub(crate) stamp: i64,
    pub(crate) node: Option<String>,
    pub(crate) purpose: Purpose,
}

/// One block.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BlockFacts {
    pub(crate) cidr: IpNet,
    pub(crate) owner: Option<Owner>,
    pub(crate) uses: Vec<Use>,
    /// When the first of its cooling addresses was released.
    pub(crate) cooling: Option<Timestamp>,
    pub(crate) empty: bool,
}

/// One affinity.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AffinityFacts {
    pub(crate) cidr: IpNet,
    pub(crate) owner: Owner,
    /// When this version was first seen.
    pub(crate) since: Instant,
    version: Option<String>,
}

/// One handle object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HandleFacts {
    pub(crate) version: Option<String>,
    /// When this version was first seen.
    pub(crate) since: Instant,
}

/// Everything the loops look at.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) pools: Mirror<IPPool>,
    pub(crate) blocks: Mirror<BlockFacts>,
    pub(crate) affinities: Mirror<AffinityFacts>,
    pub(crate) handles: Mirror<HandleFacts>,
    /// Nodes that exist.
    pub(crate) nodes: Mirror<()>,
    pub(crate) tiers: Mirror<Tier>,
    configurations: Mirror<IPAMConfiguration>,
    information: Mirror<ClusterInformation>,
}

/// Which loops a change concerns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Concerned {
    pub(crate) pools: bool,
    pub(crate) nodes: bool,
    pub(crate) tiers: bool,
}

impl Cluster {
    /// Takes a change in and tells whom it concerns.
    pub(crate) fn apply(&mut self, update: Update, now: Instant) -> Concerned {
        let mut concerned = Concerned::default();
        match update {
            Update::Pool(event) => {
                concerned.pools = self
                    .pools
                    .apply(*event, |pool, _| (pool.name_any(), Some(pool)));
            }
            Update::Block(event) => {
                let before = self.blocks.objects().len();
                let relisted = matches!(*event, Event::InitDone);
                let changed = self
                    .blocks
                    .apply(*event, |block, _| (block.name_any(), facts(block)));
                // Assignments inside a block are no news for pools; its begin and its end are.
                let other_blocks = relisted || self.blocks.objects().len() != before;
                concerned.pools = changed && other_blocks;
                concerned.nodes = changed;
            }
            Update::Affinity(event) => {
                concerned.nodes = self.affinities.apply(*event, |affinity, known| {
                    let name = affinity.name_any();
                    let facts = affinity_facts(&affinity, known.get(&name), now);
                    (name, facts)
                });
                // Somebody may have claimed a block of a pool that is being deleted.
                concerned.pools = concerned.nodes;
            }
            Update::Handle(event) => {
                self.handles.apply(*event, |handle, known| {
                    let name = handle.name_any();
                    let version = handle.resource_version();
                    let same = known.get(&name).filter(|old| old.version == version);
                    let since = same.map_or(now, |old| old.since);
                    (name, Some(HandleFacts { version, since }))
                });
            }
            Update::Node(event) => {
                concerned.nodes = self
                    .nodes
                    .apply(*event, |node, _| (node.name_any(), Some(())));
            }
            Update::Tier(event) => {
                concerned.tiers = self
                    .tiers
                    .apply(*event, |tier, _| (tier.name_any(), Some(tier)));
            }
            Update::Configuration(event) => {
                self.configurations
                    .apply(*event, |object, _| (object.name_any(), Some(object)));
            }
            Update::Information(event) => {
                let changed = self
                    .information
                    .apply(*event, |object, _| (object.name_any(), Some(object)));
                concerned = Concerned {
                    pools: changed,
                    nodes: changed,
                    tiers: changed,
                };
            }
        }
        concerned
    }

    /// True once every kind has been listed.
    pub(crate) fn is_synced(&self) -> bool {
        self.pools.is_synced()
            && self.blocks.is_synced()
            && self.affinities.is_synced()
            && self.handles.is_synced()
            && self.nodes.is_synced()
            && self.tiers.is_synced()
            && self.configurations.is_synced()
            && self.information.is_synced()
    }

    /// True while the datastore is locked and nothing may be changed.
    pub(crate) fn is_locked(&self) -> bool {
        self.information
            .get("default")
            .is_some_and(|i| i.spec.datastore_ready == Some(false))
    }

    /// Time after its release before an address may be used again.
    pub(crate) fn cooldown(&self) -> SignedDuration {
        Rules::new(self.configurations.get("default")).cooldown
    }

    /// Names of all nodes that own blocks, have affinities or hold addresses.
    pub(crate) fn nodes_with_addresses(&self) -> BTreeSet<String> {
        let mut nodes = BTreeSet::new();
        for block in self.blocks.objects().values() {
            if let Some(Owner::Host(name)) = &block.owner {
                nodes.insert(name.clone());
            }
            nodes.extend(block.uses.iter().filter_map(|held| held.node.clone()));
        }
        for affinity in self.affinities.objects().values() {
            if let Owner::Host(name) = &affinity.owner {
                nodes.insert(name.clone());
            }
        }
        nodes
    }

    /// Names of the objects of all handles that hold addresses.
    pub(crate) fn handles_in_use(&self) -> BTreeSet<String> {
        let blocks = self.blocks.objects().values();
        let handles =
            blocks.flat_map(|block| block.uses.iter().filter_map(|u| u.handle.as_deref()));
        handles.map(names::handle_name).collect()
    }

    /// Addresses in use by node and block.
    pub(crate) fn uses_of<'a>(
        &'a self,
        node: &'a str,
    ) -> impl Iterator<Item = (&'a BlockFacts, &'a Use)> {
        self.blocks.objects().values().flat_map(move |block| {
            let uses = block.uses.iter();
            uses.filter(move |held| held.node.as_deref() == Some(node))
                .map(move |held| (block, held))
        })
    }

    /// The pool an address lies in.
    pub(crate) fn pool_of(&self, ip: IpAddr) -> Option<&str> {
        let pools = self.pools.objects().iter();
        pools
            .filter_map(|(name, pool)| Some((name, pool.spec.cidr.parse::<IpNet>().ok()?)))
            .find(|(_, cidr)| cidr.contains(&ip))
            .map(|(name, _)| name.as_str())
    }

    /// Networks of all blocks.
    pub(crate) fn block_cidrs(&self) -> BTreeMap<IpNet, &BlockFacts> {
        self.blocks
            .objects()
            .values()
            .map(|block| (block.cidr, block))
            .collect()
    }
}

fn facts(object: IPAMBlock) -> Option<BlockFacts> {
    if object.spec.deleted == Some(true) {
        return None;
    }
    let owner = object.spec.affinity.as_deref().and_then(Owner::parse);
    let cidr = object.spec.cidr.parse::<IpNet>().ok()?;
    match Block::open(object) {
        Ok(block) => Some(BlockFacts {
            cidr: block.cidr(),
            owner,
            uses: uses(&block),
            cooling: block.coldest(),
            empty: block.is_empty(),
        }),
        // It exists and belongs to somebody; nothing in it is touched.
        Err(error) => {
            tracing::warn!(%error, "block is left alone");
            Some(BlockFacts {
                cidr,
                owner,
                uses: Vec::new(),
                cooling: None,
                empty: false,
            })
        }
    }
}

fn uses(block: &Block) -> Vec<Use> {
    block
        .held()
        .map(|(ordinal, entry)| {
            let attr = |key: &str| entry.secondary.as_ref()?.get(key).map(String::as_str);
            let purpose = match attr(ATTR_TYPE) {
                Some(TYPE_WARM) => Purpose::Reserve,
                Some(kind) if names::is_tunnel_type(kind) => Purpose::Tunnel,
                _ if attr(ATTR_POD).is_some() && attr(ATTR_NAMESPACE).is_some() => Purpose::Pod,
                _ => Purpose::Unknown,
            };
            Use {
                ordinal,
                handle: entry.handle_id.clone(),
                stamp: block.stamp(ordinal),
                node: attr(ATTR_NODE).map(str::to_owned),
                purpose,
            }
        })
        .collect()
}

fn affinity_facts(
    affinity: &BlockAffinity,
    known: Option<&AffinityFacts>,
    now: Instant,
) -> Option<AffinityFacts> {
    if affinity.spec.deleted {
        return None;
    }
    let version = affinity.resource_version();
    let node = affinity.spec.node.clone();
    let owner = match affinity.spec.kind.as_deref() {
        Some("virtual") => Owner::Virtual(node),
        _ => Owner::Host(node),
    };
    let same = known.filter(|old| old.version == version);
    let since = same.map_or(now, |old| old.since);
    Some(AffinityFacts {
        cidr: affinity.spec.cidr.parse().ok()?,
        owner,
        since,
        version,
    })
}
