//! Writing this node's blocks: assignments, releases and the size of the reserve in one update.

use ipnet::IpNet;

use super::core::Core;
use super::plan::{Lost, apply_locals, freed_by, reserve_change};
use super::serve::{Job, missing};
use super::state::State;
use crate::block::{Block, InvalidBlock};
use crate::store::StoreError;
use crate::write::{Change, Updated, WriteError, increment_handle, release, update_block};

/// Whose block addresses are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This node's.
    Own,
    /// Another node's, or nobody's.
    Borrowed,
}

impl Core {
    /// Takes addresses of a block for the jobs, as many as there are.
    pub(super) async fn take_from(
        &self,
        cidr: &IpNet,
        jobs: &mut [Job],
        wanted: Wanted,
    ) -> Result<(), WriteError> {
        let base = self.base(cidr);
        let usable = base.as_ref().map_or(usize::MAX, |block| {
            let mut block = block.clone();
            let state = self.lock();
            block.normalise(state.rules.cooldown, self.clock.now());
            block.usable_len(&state.reservations)
        });
        if usable == 0 {
            return Ok(());
        }
        let shares = share(jobs, usable.min(crate::cidr::block_len(cidr)));
        self.count_up(cidr, jobs, &shares).await?;
        let (owner, waiting) = (self.owner(), missing(jobs));
        let claims: Vec<_> = jobs.iter().map(|job| job.waiter.claim.clone()).collect();
        let workload = jobs.iter().all(|job| !job.waiter.with_handle);
        let result = self
            .update(
                cidr,
                base,
                |block, state, reserve| {
                    let own = block.is_owned_by(&owner);
                    if !own && (wanted == Wanted::Own || state.rules.strict_affinity) {
                        let owner = block
                            .owner()
                            .map_or_else(|| "nobody".into(), |o| o.to_string());
                        return Err(WriteError::Foreign {
                            cidr: block.cidr(),
                            owner,
                        });
                    }
                    let mut taken = Vec::with_capacity(claims.len());
                    for (claim, count) in claims.iter().zip(&shares) {
                        taken.push(block.take(*count, claim, &state.reservations));
                    }
                    // What waits is served before the reserve grows.
                    *reserve = workload && taken.iter().map(Vec::len).sum::<usize>() > 0;
                    Ok(taken)
                },
                waiting,
            )
            .await;
        let taken = match result {
            Ok(Some(updated)) => updated.outcome.0,
            Ok(None) => vec![Vec::new(); jobs.len()],
            Err(WriteError::Foreign { .. }) => vec![Vec::new(); jobs.len()],
            Err(error) => {
                if !matches!(error, WriteError::Store(StoreError::Ambiguous(_))) {
                    self.count_back(cidr, jobs, &shares, &vec![Vec::new(); jobs.len()])
                        .await;
                }
                return Err(error);
            }
        };
        self.count_back(cidr, jobs, &shares, &taken).await;
        let state = self.lock();
        for (job, ordinals) in jobs.iter_mut().zip(&taken) {
            let ips = ordinals.iter().map(|n| crate::cidr::nth_address(cidr, *n));
            job.result.ips.extend(ips.map(|ip| state.describe(ip)));
        }
        Ok(())
    }

    /// Writes what has happened to a block's addresses, if anything has. Returns false when the block does not exist.
    pub(super) async fn flush(&self, cidr: &IpNet) -> Result<bool, WriteError> {
        let updated = self
            .update(cidr, self.base(cidr), |_, _, _| Ok(()), 0)
            .await?;
        Ok(updated.is_some())
    }

    /// The state of a block to start from, unless it has to be read.
    fn base(&self, cidr: &IpNet) -> Option<Block> {
        let state = self.lock();
        state
            .blocks
            .get(cidr)
            .filter(|cached| !cached.suspect)
            .map(|cached| cached.block.clone())
    }

    /// Updates a block: time passes, what this node did is written down, then `change` does its part and says whether
    /// the reserve may grow. The new state is taken in before this returns.
    pub(super) async fn update<T: Clone>(
        &self,
        cidr: &IpNet,
        base: Option<Block>,
        mut change: impl FnMut(&mut Block, &State, &mut bool) -> Result<T, WriteError>,
        waiting: usize,
    ) -> Result<Option<Updated<(T, Lost)>>, WriteError> {
        let now = self.clock.now();
        let result = update_block(&*self.store, cidr, base, |block| {
            let before = block.object().spec.clone();
            let mut state = self.lock();
            block.normalise(state.rules.cooldown, now);
            let freed = freed_by(&state, block, now);
            let lost = apply_locals(&state, block, now);
            let mut grow = true;
            let outcome = change(block, &state, &mut grow)?;
            let changed = block.object().spec != before;
            let reserve = reserve_change(&state, block, waiting, changed);
            if grow {
                let claim = state.warm_claim.clone();
                block.take(reserve.add, &claim, &state.reservations);
            }
            let drop: Vec<_> = reserve.drop.iter().filter_map(|ip| block.ordinal(*ip)).collect();
            let drop: Vec<usize> = drop
                .into_iter()
                .filter(|n| matches!(block.holder(*n), crate::block::Holder::Held(e) if state.is_warm(e)))
                .collect();
            block.free_at_once(&drop);
            state.hold_back(reserve.drop.into_iter().chain(freed));
            Ok(match block.object().spec == before {
                true => Change::Keep((outcome, lost)),
                false => release::leave(block, (outcome, lost)),
            })
        })
        .await;
        self.conclude(cidr, &result);
        if let Ok(Some(updated)) = &result {
            for (handle, count) in &updated.outcome.1 {
                self.count_down(handle, cidr, *count).await;
            }
        }
        result
    }

    /// Takes in the outcome of an update.
    fn conclude<T>(&self, cidr: &IpNet, result: &Result<Option<Updated<T>>, WriteError>) {
        let mut state = self.lock();
        match result {
            Ok(Some(updated)) => {
                state.absorb(*cidr, updated.block.clone());
                if let Some(cached) = state.blocks.get_mut(cidr) {
                    cached.dirty_since = None;
                }
            }
            Ok(None) => state.absorb(*cidr, None),
            Err(WriteError::Store(StoreError::Ambiguous(_))) => {
                if let Some(cached) = state.blocks.get_mut(cidr) {
                    cached.suspect = true;
                }
            }
            // Nothing was written: what was held back can be handed out after all. Unless the API was not reached, the
            // block may not be what it was thought to be.
            Err(error) => {
                let unreached = matches!(error, WriteError::Store(StoreError::Unavailable(_)));
                let block = state.blocks.get(cidr).map(|cached| cached.block.clone());
                let dirty = state.blocks.get(cidr).and_then(|cached| cached.dirty_since);
                state.absorb(*cidr, block);
                if let Some(cached) = state.blocks.get_mut(cidr) {
                    cached.dirty_since = dirty;
                    cached.suspect = !unreached;
                }
            }
        }
    }

    async fn count_up(
        &self,
        cidr: &IpNet,
        jobs: &[Job],
        shares: &[usize],
    ) -> Result<(), WriteError> {
        for (job, share) in jobs.iter().zip(shares) {
            if let Some(handle) = job.handle().filter(|_| *share > 0) {
                self.lock().counted.insert(handle.to_owned());
                increment_handle(&*self.store, handle, cidr, *share as i64).await?;
            }
        }
        Ok(())
    }

    /// Takes back what was counted and not obtained.
    async fn count_back(&self, cidr: &IpNet, jobs: &[Job], shares: &[usize], taken: &[Vec<usize>]) {
        for ((job, share), taken) in jobs.iter().zip(shares).zip(taken) {
            let excess = share - taken.len().min(*share);
            if let Some(handle) = job.handle().filter(|_| excess > 0) {
                release::count_down(&*self.store, handle, cidr, excess as i64).await;
            }
        }
    }

    /// Remembers that an own block must not be allocated from.
    pub(super) fn mark_invalid(&self, cidr: &IpNet, error: &InvalidBlock) {
        let mut state = self.lock();
        if state.invalid.insert(*cidr, error.to_string()).is_none() {
            tracing::error!(block = %cidr, %error, "block is skipped");
        }
    }
}

impl Job {
    /// The handle to keep counts for, if any.
    fn handle(&self) -> Option<&str> {
        self.waiter
            .claim
            .handle
            .as_deref()
            .filter(|_| self.waiter.with_handle)
    }
}

/// How many addresses each job may take out of `usable`, first come first served.
fn share(jobs: &[Job], usable: usize) -> Vec<usize> {
    let mut left = usable;
    jobs.iter()
        .map(|job| {
            let share = job.missing().min(left);
            left -= share;
            share
        })
        .collect()
}
