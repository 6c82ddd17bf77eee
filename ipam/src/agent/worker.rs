//! The task that writes to the API: waiting requests first, then what was noted a while ago, then housekeeping.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use margay_crds::AllowedUse;
use tokio::time::Instant;

use super::core::Core;
use super::state::State;
use crate::block::Block;
use crate::cidr::Family;
use crate::pool::Pool;
use crate::store::{Kind, StoreError};
use crate::write::{Giving, WriteError, release_affinity};

/// Time between looks at what may have become due.
const TICK: Duration = Duration::from_secs(10);

/// Writes for ever.
pub(super) async fn work(core: Arc<Core>) {
    loop {
        let due = core.next_due();
        tokio::select! {
            () = core.wake.notified() => {}
            () = tokio::time::sleep_until(due) => {}
        }
        if !core.lock().synced {
            continue;
        }
        let _turn = core.writer.lock().await;
        core.serve().await;
        if core.lock().locked {
            continue;
        }
        core.flush_due(false).await;
        core.extend().await;
        core.give_back_unused().await;
        core.publish();
    }
}

/// Asks for the own Node when the API server has not been heard of for a while, so that silence means something.
pub(super) async fn keep_contact(core: Arc<Core>) {
    let node = core.lock().node.clone();
    loop {
        tokio::time::sleep(TICK).await;
        if core.contact.silence() >= TICK {
            let probe = core.store.get(Kind::Node, &node);
            // Whether it answered is noted by the store.
            if tokio::time::timeout(TICK, probe).await.is_err() {
                tracing::debug!("API server does not answer");
            }
        }
    }
}

impl State {
    /// True when the reserve of a family should be filled up soon.
    pub(super) fn wants_refill(&self, family: Family) -> bool {
        let reserve = self
            .blocks
            .keys()
            .filter(|cidr| Family::of_net(cidr) == family && self.affinities.contains_key(*cidr))
            .map(|cidr| self.reserve_of(cidr))
            .max()
            .unwrap_or(0);
        2 * self.warm_len(family) < reserve
    }

    /// True when a block is to be written now.
    fn is_due(&self, cidr: &IpNet, now: jiff::Timestamp, at: Instant) -> bool {
        let Some(cached) = self.blocks.get(cidr) else {
            return false;
        };
        let waited = |since: Instant| at.duration_since(since) >= self.settings.flush_interval;
        if cached.dirty_since.is_some_and(waited) {
            return true;
        }
        if !cached.block.is_owned_by(&self.owner) {
            return !self.own_warm(&cached.block).is_empty();
        }
        let reserve = self.reserve_of(cidr);
        let warm = self.warm_len(Family::of_net(cidr));
        let surplus = match reserve {
            0 => self.warm_in(cidr).next().is_some() || self.has_cold(cidr, now),
            _ => warm > 4 * reserve,
        };
        let refill = 2 * warm < reserve && cached.block.usable_len(&self.reservations) > 0;
        surplus || refill
    }

    /// True when addresses of the block have cooled and can be freed.
    fn has_cold(&self, cidr: &IpNet, now: jiff::Timestamp) -> bool {
        self.locals.iter().any(|(ip, local)| match local {
            super::state::Local::Cooling { since, .. } => {
                cidr.contains(ip) && self.is_cold(*since, now)
            }
            super::state::Local::Handed { .. } => false,
        })
    }
}

impl Core {
    fn next_due(&self) -> Instant {
        let state = self.lock();
        let dirty = state
            .blocks
            .values()
            .filter_map(|cached| cached.dirty_since)
            .min();
        let due = dirty.map(|since| since + state.settings.flush_interval);
        let tick = Instant::now() + TICK;
        // What is overdue because it failed is tried at the next tick.
        due.filter(|due| *due > Instant::now())
            .map_or(tick, |due| due.min(tick))
    }

    /// Writes the blocks that are due, or all that have something to say.
    pub(super) async fn flush_due(&self, all: bool) {
        let (now, at) = (self.clock.now(), Instant::now());
        let due: Vec<IpNet> = {
            let mut state = self.lock();
            state.settle(now);
            let blocks = state.blocks.iter();
            let wanted = blocks.filter(|(cidr, cached)| match all {
                true => cached.dirty_since.is_some(),
                false => state.is_due(cidr, now, at),
            });
            wanted.map(|(cidr, _)| *cidr).collect()
        };
        for cidr in due {
            match self.flush(&cidr).await {
                Ok(_) => {}
                Err(WriteError::Invalid(error)) => self.mark_invalid(&cidr, &error),
                Err(error) => {
                    tracing::warn!(block = %cidr, %error, "assignments not written yet");
                    if let Some(cached) = self.lock().blocks.get_mut(&cidr) {
                        cached.dirty_since = Some(Instant::now());
                    }
                }
            }
        }
    }

    /// Writes everything there is to write.
    pub(super) async fn flush_all(&self) {
        let _turn = self.writer.lock().await;
        self.serve().await;
        if !self.lock().locked {
            self.flush_due(true).await;
        }
    }

    /// Claims the next block before the reserve is gone, on a node that has blocks in the pool already.
    async fn extend(&self) {
        for family in Family::ALL {
            let Some((pools, limit)) = self.to_extend(family) else {
                continue;
            };
            if self.own_in(&pools).len() >= limit {
                continue;
            }
            match self.acquire(&pools).await {
                Ok(true) => self.flush_due(false).await,
                Ok(false) => tracing::info!("no block left to claim in advance"),
                Err(error) => tracing::warn!(%error, "no block claimed in advance"),
            }
        }
    }

    /// The pools in which the reserve is running out together with the blocks.
    fn to_extend(&self, family: Family) -> Option<(Vec<Pool>, usize)> {
        let state = self.lock();
        if !state.rules.auto_allocate_blocks || !state.wants_refill(family) {
            return None;
        }
        let own: Vec<&IpNet> = state
            .blocks
            .iter()
            .filter(|(cidr, cached)| {
                Family::of_net(cidr) == family && cached.block.is_owned_by(&state.owner)
            })
            .map(|(cidr, _)| cidr)
            .collect();
        let room = |cidr: &&IpNet| {
            state
                .blocks
                .get(*cidr)
                .map_or(0, |c: &super::state::Cached| {
                    c.block.usable_len(&state.reservations)
                })
        };
        if own.is_empty() || own.iter().map(room).sum::<usize>() > 0 {
            return None;
        }
        let pools: Vec<Pool> = state
            .pools
            .usable()
            .filter(|pool| pool.automatic && pool.allows(&AllowedUse::Workload))
            .filter(|pool| own.iter().any(|cidr| pool.cidr.contains(*cidr)))
            .filter(|pool| pool.node_selector.matches(&state.node_labels))
            .filter(|pool| state.reserve_in(pool) > 0)
            .cloned()
            .collect();
        (!pools.is_empty()).then(|| (pools, state.rules.block_limit(None)))
    }

    /// Gives back blocks nothing is used of: at once when the pool no longer selects this node, else when they have been
    /// unused for long and are not the only ones.
    async fn give_back_unused(&self) {
        let at = Instant::now();
        let unused: Vec<IpNet> = {
            let mut state = self.lock();
            let blocks: Vec<IpNet> = state.blocks.keys().copied().collect();
            for cidr in &blocks {
                let empty = state.is_unused(cidr);
                if let Some(cached) = state.blocks.get_mut(cidr) {
                    let since = cached.empty_since.unwrap_or(at);
                    cached.empty_since = empty.then_some(since);
                }
            }
            let state = &*state;
            blocks
                .into_iter()
                .filter(|cidr| state.is_to_give_back(cidr, at))
                .collect()
        };
        for cidr in unused {
            // Another one may have gone a moment ago, and one is kept.
            if !self.lock().is_to_give_back(&cidr, at) {
                continue;
            }
            match self.give_back(&cidr).await {
                Ok(()) => tracing::info!(block = %cidr, "unused block given back"),
                Err(error) => tracing::debug!(block = %cidr, %error, "block not given back"),
            }
        }
    }

    async fn give_back(&self, cidr: &IpNet) -> Result<(), WriteError> {
        let (owner, cooldown, warm) = {
            let mut state = self.lock();
            let warm: Vec<_> = state.warm_in(cidr).collect();
            state.hold_back(warm.iter().copied());
            (
                state.owner.clone(),
                state.rules.cooldown,
                state.warm_claim.handle.clone(),
            )
        };
        let warm = warm.unwrap_or_default();
        let giving = Giving {
            must_be_empty: true,
            sequence: None,
            cooldown,
            now: self.clock.now(),
        };
        let free = |block: &mut Block| {
            let ordinals = block.held_by(&warm);
            block.free_at_once(&ordinals);
        };
        let result = release_affinity(&*self.store, &owner, cidr, giving, free).await;
        let mut state = self.lock();
        match &result {
            Ok(()) => {
                state.affinities.remove(cidr);
                state.given_back.insert(*cidr);
                state.absorb(*cidr, None);
            }
            Err(WriteError::Store(StoreError::Ambiguous(_) | StoreError::Unavailable(_))) => {
                if let Some(cached) = state.blocks.get_mut(cidr) {
                    cached.suspect = true;
                }
            }
            Err(_) => {
                let block = state.blocks.get(cidr).map(|cached| cached.block.clone());
                state.absorb(*cidr, block);
            }
        }
        result
    }
}

impl State {
    fn is_to_give_back(&self, cidr: &IpNet, at: Instant) -> bool {
        let Some(cached) = self.blocks.get(cidr) else {
            return false;
        };
        let Some(since) = cached
            .empty_since
            .filter(|_| cached.block.is_owned_by(&self.owner))
        else {
            return false;
        };
        let pool = self.pools.of_block(cidr);
        if pool.is_some_and(|pool| !pool.node_selector.matches(&self.node_labels)) {
            return true;
        }
        let own = self.blocks.iter().filter(|(other, cached)| {
            Family::of_net(other) == Family::of_net(cidr) && cached.block.is_owned_by(&self.owner)
        });
        own.count() >= 2 && at.duration_since(since) >= self.settings.empty_block_age
    }
}
