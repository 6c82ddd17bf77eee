//! What the agent knows: inputs, its blocks as last seen, and what it has done since.
//!
//! Truth about an address is its block as last acknowledged by the API, corrected by [`Local`] entries for what this
//! node did and has not written yet. Entries appear with a hand-out or a release and vanish when a block that says the
//! same has been seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use margay_crds::{AllocationAttribute, BlockAffinity};
use tokio::time::Instant;

use super::journal::Journal;
use super::serve::Waiter;
use crate::block::{Block, Claim, Holder, Owner};
use crate::cidr::Family;
use crate::names::{clean_handle, warm_handle};
use crate::pool::{Pool, Pools};
use crate::request::{ATTR_NODE, ATTR_TYPE, OwnBlock, TYPE_WARM};
use crate::reservation::Reservations;
use crate::rules::{Rules, Settings};

/// What this node did with an address and its block does not say yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Local {
    /// Handed out.
    Handed {
        claim: Claim,
        since: Timestamp,
        /// Handle the block may still show, because the address was passed on from it.
        from: Option<String>,
    },
    /// Released by the holder of `handle`, and not to be used for a while.
    Cooling {
        handle: Option<String>,
        since: Timestamp,
    },
}

/// A block this node owns or has addresses of.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) block: Block,
    /// The last write may or may not have taken effect: read before the next one.
    pub(super) suspect: bool,
    /// Since when something is to be written.
    pub(super) dirty_since: Option<Instant>,
    /// Since when nothing in it is in use.
    pub(super) empty_since: Option<Instant>,
}

/// Everything behind the agent's lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) node: String,
    pub(super) owner: Owner,
    pub(super) warm_claim: Claim,
    pub(super) settings: Settings,
    pub(super) pools: Pools,
    pub(super) rules: Rules,
    pub(super) reservations: Reservations,
    pub(super) node_labels: BTreeMap<String, String>,
    pub(super) node_uid: Option<String>,
    /// The Node object is gone, or is another one than when this process started.
    pub(super) node_lost: bool,
    /// `datastoreReady: false`.
    pub(super) locked: bool,
    /// Everything has been read at least once.
    pub(super) synced: bool,
    /// Nodes that share the pools, for the size of the reserve.
    pub(super) node_count: usize,
    /// Affinities of this node, by block.
    pub(super) affinities: BTreeMap<IpNet, BlockAffinity>,
    /// Handles this process has counted in objects.
    pub(super) counted: BTreeSet<String>,
    /// Blocks claimed a moment ago, whose affinities the watch has not shown yet.
    pub(super) claimed: BTreeSet<IpNet>,
    /// Blocks given back a moment ago, whose affinities the watch may still show.
    pub(super) given_back: BTreeSet<IpNet>,
    pub(super) blocks: BTreeMap<IpNet, Cached>,
    /// Own blocks that are inconsistent, with the reason.
    pub(super) invalid: BTreeMap<IpNet, String>,
    pub(super) locals: BTreeMap<IpAddr, Local>,
    /// Addresses that can be handed out at once, oldest first.
    warm: VecDeque<IpAddr>,
    /// Addresses a write under way may give up.
    held_back: BTreeSet<IpAddr>,
    /// Pools without a block nobody has claimed: no reserve is kept there.
    pub(super) pressed: BTreeSet<String>,
    pub(super) waiters: Vec<Waiter>,
    pub(super) journal: Journal,
    /// Addresses in use here that a block gives to somebody else.
    pub(super) lost: BTreeMap<IpAddr, String>,
    /// Addresses without a live owner, and since when.
    pub(super) missed: BTreeMap<IpAddr, Timestamp>,
}

impl State {
    pub(super) fn new(node: &str, settings: Settings, journal: Journal) -> Self {
        State {
            node: node.to_owned(),
            owner: Owner::Host(node.to_owned()),
            warm_claim: Claim {
                handle: Some(warm_handle(node)),
                attrs: BTreeMap::from([
                    (ATTR_NODE.to_owned(), node.to_owned()),
                    (ATTR_TYPE.to_owned(), TYPE_WARM.to_owned()),
                ]),
            },
            settings,
            pools: Pools::default(),
            rules: Rules::default(),
            reservations: Reservations::default(),
            node_labels: BTreeMap::new(),
            node_uid: None,
            node_lost: false,
            locked: false,
            synced: false,
            node_count: 1,
            affinities: BTreeMap::new(),
            counted: BTreeSet::new(),
            claimed: BTreeSet::new(),
            given_back: BTreeSet::new(),
            blocks: BTreeMap::new(),
            invalid: BTreeMap::new(),
            locals: BTreeMap::new(),
            warm: VecDeque::new(),
            held_back: BTreeSet::new(),
            pressed: BTreeSet::new(),
            waiters: Vec::new(),
            journal,
            lost: BTreeMap::new(),
            missed: BTreeMap::new(),
        }
    }

    /// True for the entry of an address kept by this node.
    pub(super) fn is_warm(&self, entry: &AllocationAttribute) -> bool {
        entry.handle_id.as_deref().map(clean_handle) == self.warm_claim.handle.as_deref()
    }

    /// Time after its release before an address is used again.
    pub(super) fn cooldown(&self) -> SignedDuration {
        let floor =
            SignedDuration::try_from(self.settings.reuse_floor).unwrap_or(SignedDuration::MAX);
        self.rules.cooldown.max(floor)
    }

    /// True when an address released at `since` may be used again.
    pub(super) fn is_cold(&self, since: Timestamp, now: Timestamp) -> bool {
        now.duration_since(since) >= self.cooldown()
    }

    /// The block as last seen that an address lies in.
    pub(super) fn block_of(&self, ip: IpAddr) -> Option<&Cached> {
        self.blocks
            .values()
            .find(|cached| cached.block.cidr().contains(&ip))
    }

    /// Everything held under a handle on this node.
    pub(super) fn held_by(&self, handle: &str) -> Vec<IpAddr> {
        let stored = self.blocks.values().flat_map(|cached| {
            let block = &cached.block;
            block.held_by(handle).into_iter().map(|n| block.address(n))
        });
        let mut ips: Vec<IpAddr> = stored.filter(|ip| !self.locals.contains_key(ip)).collect();
        ips.extend(self.locals.iter().filter_map(|(ip, local)| match local {
            Local::Handed { claim, .. } if claim.handle.as_deref() == Some(handle) => Some(*ip),
            _ => None,
        }));
        ips.sort_unstable();
        ips
    }

    /// Number of addresses that can be handed out at once.
    pub(super) fn warm_len(&self, family: Family) -> usize {
        self.warm
            .iter()
            .filter(|ip| Family::of(**ip) == family)
            .count()
    }

    /// Takes the address that has been free longest out of the reserve of one of the pools, in their order.
    pub(super) fn pop_warm(&mut self, pools: &[Pool]) -> Option<IpAddr> {
        let at = pools.iter().find_map(|pool| {
            self.warm
                .iter()
                .position(|ip| pool.cidr.contains(ip) && self.may_use(*ip))
        })?;
        self.warm.remove(at)
    }

    /// Reserved addresses of the reserve stay where they are: a reservation may be younger than they are.
    fn may_use(&self, ip: IpAddr) -> bool {
        !self.reservations.contains(ip)
    }

    /// Puts an address back at the head of the reserve.
    pub(super) fn unpop_warm(&mut self, ip: IpAddr) {
        self.warm.push_front(ip);
    }

    /// Takes one particular address out of the reserve.
    pub(super) fn pop_exactly(&mut self, ip: IpAddr) -> bool {
        let at = self.warm.iter().position(|warm| *warm == ip);
        at.and_then(|at| self.warm.remove(at)).is_some()
    }

    /// A released address that has cooled the longest and at least `least`; used when nothing else is left.
    pub(super) fn pop_cooling(
        &mut self,
        pools: &[Pool],
        least: SignedDuration,
        now: Timestamp,
    ) -> Option<IpAddr> {
        let least = least.max(self.rules.cooldown);
        let candidates = self.locals.iter().filter_map(|(ip, local)| match local {
            Local::Cooling { since, .. } if now.duration_since(*since) >= least => {
                Some((*since, *ip))
            }
            _ => None,
        });
        let usable = candidates.filter(|(_, ip)| {
            pools.iter().any(|pool| pool.cidr.contains(ip))
                && !self.held_back.contains(ip)
                && self.may_use(*ip)
                && self.block_of(*ip).is_some_and(|cached| {
                    cached.block.is_owned_by(&self.owner)
                        && cached.block.ordinal(*ip).is_some_and(|n| {
                            matches!(cached.block.holder(n), Holder::Held(entry) if self.is_warm(entry))
                        })
                })
        });
        let (_, ip) = usable.min()?;
        self.locals.remove(&ip);
        Some(ip)
    }

    /// Records what was done with an address, in the journal first.
    pub(super) fn record(&mut self, ip: IpAddr, local: Local, at: Instant) -> std::io::Result<()> {
        self.journal.note(ip, &local)?;
        self.missed.remove(&ip);
        self.locals.insert(ip, local);
        self.pop_exactly(ip);
        self.touch(ip, at);
        Ok(())
    }

    /// Marks the block of an address as to be written.
    pub(super) fn touch(&mut self, ip: IpAddr, at: Instant) {
        if let Some(cached) = self
            .blocks
            .values_mut()
            .find(|c| c.block.cidr().contains(&ip))
        {
            cached.dirty_since.get_or_insert(at);
        }
    }

    fn forget(&mut self, ip: IpAddr) {
        if self.locals.remove(&ip).is_some() {
            self.journal.done(ip);
        }
    }

    /// Takes released addresses that have cooled back into the reserve where their blocks still reserve them.
    pub(super) fn settle(&mut self, now: Timestamp) {
        let cold: Vec<IpAddr> = self
            .locals
            .iter()
            .filter(|(ip, local)| match local {
                Local::Cooling { since, .. } => {
                    self.is_cold(*since, now) && !self.held_back.contains(ip)
                }
                Local::Handed { .. } => false,
            })
            .map(|(ip, _)| *ip)
            .collect();
        for ip in cold {
            let warm = self.block_of(ip).is_some_and(|cached| {
                let block = &cached.block;
                block.ordinal(ip).is_some_and(
                    |n| matches!(block.holder(n), Holder::Held(entry) if self.is_warm(entry)),
                )
            });
            if warm {
                self.forget(ip);
                self.warm.push_back(ip);
            }
        }
        self.journal.compact(&self.locals);
    }

    /// Keeps addresses from being handed out while a write that may give them up is under way.
    pub(super) fn hold_back(&mut self, ips: impl IntoIterator<Item = IpAddr>) {
        for ip in ips {
            self.pop_exactly(ip);
            self.held_back.insert(ip);
        }
    }

    /// Takes in the state of a block after a write: as acknowledged or read back; absent when it does not exist.
    /// Addresses held back for the write can be handed out again if the block still reserves them.
    pub(super) fn absorb(&mut self, cidr: IpNet, block: Option<Block>) {
        let held_back: Vec<IpAddr> = self
            .held_back
            .iter()
            .filter(|ip| cidr.contains(*ip))
            .copied()
            .collect();
        for ip in held_back {
            self.held_back.remove(&ip);
        }
        self.keep(cidr, block);
        self.reconcile(cidr);
    }

    fn keep(&mut self, cidr: IpNet, block: Option<Block>) {
        self.invalid.remove(&cidr);
        match block {
            Some(block) => {
                let cached = self.blocks.entry(cidr).or_insert_with(|| Cached {
                    block: block.clone(),
                    suspect: false,
                    dirty_since: None,
                    empty_since: None,
                });
                cached.block = block;
                cached.suspect = false;
            }
            None => {
                self.blocks.remove(&cidr);
            }
        }
    }

    /// Takes in a block from a watch, which may be older than what an acknowledged write has shown.
    pub(super) fn absorb_event(&mut self, block: Block) {
        let cidr = block.cidr();
        let old = self
            .blocks
            .get(&cidr)
            .is_some_and(|cached| cached.suspect || cached.block.sequence() >= block.sequence());
        if !old {
            self.keep(cidr, Some(block));
            self.reconcile(cidr);
        }
    }

    /// Brings the reserve and the local entries of a block in line with its state.
    fn reconcile(&mut self, cidr: IpNet) {
        let locals: Vec<IpAddr> = self
            .locals
            .keys()
            .filter(|ip| cidr.contains(*ip))
            .copied()
            .collect();
        let (owner, warm_handle) = (self.owner.clone(), self.warm_claim.handle.clone());
        let mut warm = BTreeSet::new();
        let mut settled = Vec::new();
        if let Some(cached) = self.blocks.get(&cidr) {
            let block = &cached.block;
            let is_warm = |entry: &AllocationAttribute| {
                entry.handle_id.as_deref().map(clean_handle) == warm_handle.as_deref()
            };
            if block.is_owned_by(&owner) {
                let reserved = block.held().filter(|(_, entry)| is_warm(entry));
                warm.extend(reserved.map(|(n, _)| block.address(n)));
            }
            for ip in &locals {
                let Some(ordinal) = block.ordinal(*ip) else {
                    continue;
                };
                let holder = block.holder(ordinal);
                match (&self.locals[ip], holder) {
                    (Local::Handed { claim, .. }, Holder::Held(entry)) if claim.is(entry) => {
                        settled.push(*ip);
                        self.lost.remove(ip);
                    }
                    (Local::Handed { claim, from, .. }, Holder::Held(entry))
                        if !is_warm(entry)
                            && entry.handle_id != claim.handle
                            && (from.is_none() || entry.handle_id != *from) =>
                    {
                        let other = entry.handle_id.clone().unwrap_or_default();
                        self.lost.insert(*ip, other);
                    }
                    (Local::Handed { .. }, _) => {}
                    (Local::Cooling { .. }, Holder::Free | Holder::Cooling) => settled.push(*ip),
                    (Local::Cooling { handle, .. }, Holder::Held(entry))
                        if !is_warm(entry) && entry.handle_id != *handle =>
                    {
                        settled.push(*ip);
                    }
                    (Local::Cooling { .. }, Holder::Held(_)) => {}
                }
            }
        } else {
            // Without a block nothing is left to be released; what is handed out is put back by the next write.
            settled.extend(
                locals
                    .iter()
                    .filter(|ip| matches!(self.locals[*ip], Local::Cooling { .. })),
            );
        }
        settled.into_iter().for_each(|ip| self.forget(ip));
        let (locals, held_back) = (&self.locals, &self.held_back);
        self.warm
            .retain(|ip| !cidr.contains(ip) || (warm.contains(ip) && !locals.contains_key(ip)));
        let known: BTreeSet<IpAddr> = self.warm.iter().copied().collect();
        let new: Vec<IpAddr> = warm
            .into_iter()
            .filter(|ip| !known.contains(ip) && !locals.contains_key(ip) && !held_back.contains(ip))
            .collect();
        self.warm.extend(new);
        self.journal.compact(&self.locals);
    }

    /// Blocks that are this node's and confirmed (or about to be given back).
    pub(super) fn own_blocks(&self) -> Vec<OwnBlock> {
        self.affinities
            .iter()
            .filter(|(cidr, affinity)| {
                let foreign = self
                    .blocks
                    .get(*cidr)
                    .is_some_and(|cached| !cached.block.is_owned_by(&self.owner));
                !affinity.spec.state.is_pending() && !foreign
            })
            .map(|(cidr, _)| OwnBlock {
                cidr: *cidr,
                pool: self.pools.name_of_block(cidr).map(str::to_owned),
            })
            .collect()
    }

    /// Size of the reserve in a pool.
    pub(super) fn reserve_in(&self, pool: &Pool) -> usize {
        let tiny = pool.block_size >= pool.family().bits() - 3;
        let nodes = self.node_count.max(1) as u128;
        let small = pool.address_bits() < 64 && (1u128 << pool.address_bits()) / nodes < 32;
        if tiny || small || self.pressed.contains(&pool.name) {
            0
        } else {
            self.settings.reserve
        }
    }

    /// The usable pool of a block, and the size of the reserve there.
    pub(super) fn reserve_of(&self, cidr: &IpNet) -> usize {
        self.pools
            .of_block(cidr)
            .map_or(0, |pool| self.reserve_in(pool))
    }

    /// Addresses of the reserve that lie in a block, next to be handed out first.
    pub(super) fn warm_in<'a>(
        &'a self,
        cidr: &'a IpNet,
    ) -> impl DoubleEndedIterator<Item = IpAddr> + 'a {
        self.warm
            .iter()
            .filter(move |ip| cidr.contains(*ip))
            .copied()
    }

    /// True when the block holds nothing but this node's reserve.
    pub(super) fn is_unused(&self, cidr: &IpNet) -> bool {
        let Some(cached) = self.blocks.get(cidr) else {
            return false;
        };
        let block = &cached.block;
        !self.locals.keys().any(|ip| cidr.contains(ip))
            && (0..block.len()).all(|n| match block.holder(n) {
                Holder::Free => true,
                Holder::Held(entry) => self.is_warm(entry),
                Holder::Cooling => false,
            })
    }
}
