//! Getting another block: an unclaimed one, else one that somebody else no longer uses.

use ipnet::IpNet;
use jiff::SignedDuration;

use super::core::Core;
use crate::block::{Block, Owner};
use crate::names::{affinity_name, block_cidr};
use crate::pool::Pool;
use crate::probe::Probe;
use crate::reservation::Reservations;
use crate::store::{Filter, Kind, StoreError};
use crate::write::{ATTEMPTS, Claimed, Giving, WriteError, claim, read_block, release_affinity};

/// Candidates looked at in one pool; only a pool almost entirely reserved or taken has more than a few.
const CANDIDATES: usize = 1 << 20;

impl Core {
    /// Claims one more block in one of the pools. Returns false when there is none to be had.
    pub(super) async fn acquire(&self, pools: &[Pool]) -> Result<bool, WriteError> {
        for _ in 0..ATTEMPTS {
            let names = self.store.names(Kind::Block).await?;
            let existing: Vec<IpNet> = names.iter().filter_map(|name| block_cidr(name)).collect();
            let occupied = Reservations::of(&existing);
            let Some(candidate) = pools
                .iter()
                .find_map(|pool| self.unclaimed(pool, &occupied))
            else {
                return self.reclaim(pools).await;
            };
            match self.claim(&candidate).await {
                Ok(()) => return Ok(true),
                // Somebody was faster: look again.
                Err(WriteError::Foreign { .. } | WriteError::Store(StoreError::Conflict)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(WriteError::Contended("block".into()))
    }

    /// The first block of a pool, in this node's order, that overlaps no existing block and is not wholly reserved.
    fn unclaimed(&self, pool: &Pool, occupied: &Reservations) -> Option<IpNet> {
        let mut state = self.lock();
        let found = match state.reservations.covers(&pool.cidr) || occupied.covers(&pool.cidr) {
            true => None,
            false => Probe::new(&state.node, pool.cidr, pool.block_size)
                .take(CANDIDATES)
                .find(|cidr| !occupied.touches(cidr) && !state.reservations.covers(cidr)),
        };
        match found {
            Some(_) => state.pressed.remove(&pool.name),
            None => state.pressed.insert(pool.name.clone()),
        };
        found
    }

    /// Claims a block and takes it in.
    pub(super) async fn claim(&self, cidr: &IpNet) -> Result<(), WriteError> {
        let Claimed { affinity, block } =
            claim(&*self.store, &self.owner(), cidr, self.clock.now()).await?;
        tracing::info!(block = %cidr, "block claimed");
        let mut state = self.lock();
        state.claimed.insert(*cidr);
        state.given_back.remove(cidr);
        state.affinities.insert(*cidr, affinity);
        state.absorb(*cidr, Some(block));
        drop(state);
        self.publish();
        Ok(())
    }

    /// Takes over a block of the pools that is of no use to anybody else.
    async fn reclaim(&self, pools: &[Pool]) -> Result<bool, WriteError> {
        let owner = self.owner();
        for mut block in self.blocks_in(pools).await? {
            let cidr = block.cidr();
            let (rules, claim_age, usable, known) = {
                let state = self.lock();
                block.normalise(state.rules.cooldown, self.clock.now());
                let usable = block.usable_len(&state.reservations);
                let known = state.affinities.contains_key(&cidr);
                (state.rules, state.settings.claim_age, usable, known)
            };
            let taken = match block.owner() {
                _ if usable == 0 => continue,
                Some(current) if current == owner && known => continue,
                Some(current) if current == owner => self.claim(&cidr).await,
                None if block.is_empty() => self.claim(&cidr).await,
                Some(other) if block.is_empty() && self.is_old(&block, claim_age) => {
                    let giving = Giving {
                        must_be_empty: true,
                        sequence: Some(block.sequence()),
                        cooldown: rules.cooldown,
                        now: self.clock.now(),
                    };
                    match release_affinity(&*self.store, &other, &cidr, giving, |_| {}).await {
                        Ok(()) => {
                            tracing::info!(block = %cidr, from = %other, "unused block taken over");
                            self.claim(&cidr).await
                        }
                        Err(error) => Err(error),
                    }
                }
                _ => continue,
            };
            match taken {
                Ok(()) => return Ok(true),
                Err(WriteError::Store(
                    error @ (StoreError::Unavailable(_) | StoreError::Forbidden(_)),
                )) => return Err(error.into()),
                Err(error) => tracing::debug!(block = %cidr, %error, "block not taken over"),
            }
        }
        Ok(false)
    }

    fn is_old(&self, block: &Block, least: std::time::Duration) -> bool {
        let least = SignedDuration::try_from(least).unwrap_or(SignedDuration::MAX);
        block
            .claimed_at()
            .is_none_or(|at| self.clock.now().duration_since(at) > least)
    }

    /// All valid blocks of the pools, by pool and in this node's order.
    pub(super) async fn blocks_in(&self, pools: &[Pool]) -> Result<Vec<Block>, WriteError> {
        let objects = self.store.read_all(&Filter::All).await?;
        let node = self.lock().node.clone();
        let mut blocks: Vec<((usize, u128), Block)> = Vec::new();
        for object in objects {
            let block = match Block::open(object) {
                Ok(block) => block,
                Err(error) => {
                    tracing::warn!(%error, "block left out");
                    continue;
                }
            };
            let cidr = block.cidr();
            let place = pools.iter().position(|pool| pool.cidr.contains(&cidr));
            if let Some((place, pool)) = place.and_then(|at| Some((at, pools.get(at)?))) {
                let rank = Probe::new(&node, pool.cidr, pool.block_size).rank(&cidr);
                blocks.push(((place, rank), block));
            }
        }
        blocks.sort_by_key(|(key, _)| *key);
        Ok(blocks.into_iter().map(|(_, block)| block).collect())
    }

    /// Makes sure that a block this node has an affinity for is its own and confirmed: completes what a crash
    /// interrupted, and drops an affinity whose block went to somebody else. Returns false when the block cannot be used.
    pub(super) async fn ensure_own(&self, cidr: &IpNet) -> Result<bool, WriteError> {
        let (owner, confirmed, cached) = {
            let state = self.lock();
            let confirmed = state
                .affinities
                .get(cidr)
                .is_some_and(|a| a.spec.state.is_confirmed() || a.spec.state.is_unset());
            let own = |block: &Block| block.is_owned_by(&state.owner);
            let cached = state
                .blocks
                .get(cidr)
                .is_some_and(|cached| !cached.suspect && own(&cached.block));
            (state.owner.clone(), confirmed, cached)
        };
        if confirmed && cached {
            return Ok(true);
        }
        match read_block(&*self.store, cidr).await {
            Ok(Some(block)) if !block.is_owned_by(&owner) && !block.is_adoptable() => {
                self.lock().absorb(*cidr, Some(block));
                self.forget_affinity(cidr, &owner).await?;
                Ok(false)
            }
            Ok(Some(block)) if confirmed && block.is_owned_by(&owner) => {
                self.lock().absorb(*cidr, Some(block));
                Ok(true)
            }
            Ok(_) => match self.claim(cidr).await {
                Ok(()) => Ok(true),
                Err(WriteError::Foreign { .. }) => {
                    self.lock().affinities.remove(cidr);
                    Ok(false)
                }
                Err(error) => Err(error),
            },
            Err(WriteError::Invalid(error)) => {
                self.mark_invalid(cidr, &error);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn forget_affinity(&self, cidr: &IpNet, owner: &Owner) -> Result<(), WriteError> {
        let name = affinity_name(owner.name(), cidr);
        if let Some(affinity) = self.store.read::<margay_crds::BlockAffinity>(&name).await? {
            self.store.remove(&affinity).await?;
        }
        tracing::info!(block = %cidr, "affinity dropped: the block belongs to somebody else");
        self.lock().affinities.remove(cidr);
        self.publish();
        Ok(())
    }
}

impl Block {
    /// True when nobody owns or uses it.
    pub(super) fn is_adoptable(&self) -> bool {
        self.owner().is_none() && self.is_empty()
    }
}
