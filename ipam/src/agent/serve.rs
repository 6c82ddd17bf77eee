//! Requests the reserve could not satisfy: all that wait are served together, with as few writes as possible.

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::SignedDuration;
use tokio::sync::oneshot;

use super::core::Core;
use super::state::Local;
use super::write::Wanted;
use crate::block::Claim;
use crate::cidr::Family;
use crate::names::affinity_name;
use crate::pool::Pool;
use crate::request::{AssignError, AssignErrorKind, AssignedIp, FamilyResult};
use crate::store::StoreError;
use crate::write::WriteError;

/// Shortest time after which a released address is handed out again when there is nothing else.
const LAST_RESORT: SignedDuration = SignedDuration::from_secs(5);

/// A request that waits for a write.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) family: Family,
    /// Pools to take from, in order.
    pub(super) pools: Vec<Pool>,
    /// Addresses still wanted.
    pub(super) count: usize,
    pub(super) claim: Claim,
    /// Keep an IPAMHandle.
    pub(super) with_handle: bool,
    /// Greatest number of blocks of this node.
    pub(super) limit: usize,
    pub(super) reply: oneshot::Sender<FamilyResult>,
}

/// A waiter being served.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) waiter: Waiter,
    pub(super) result: FamilyResult,
}

impl Job {
    pub(super) fn missing(&self) -> usize {
        self.waiter.count.saturating_sub(self.result.ips.len())
    }

    fn fail(&mut self, error: &AssignError) {
        if self.missing() > 0 {
            self.result.error.get_or_insert_with(|| error.clone());
        }
    }

    fn say(&mut self, message: &str) {
        if self.missing() > 0 && !self.result.msgs.iter().any(|known| known == message) {
            self.result.msgs.push(message.to_owned());
        }
    }
}

impl Core {
    /// Serves everybody who waits. The caller holds the writer's turn.
    pub(super) async fn serve(&self) {
        loop {
            let waiters = std::mem::take(&mut self.lock().waiters);
            if waiters.is_empty() {
                return;
            }
            let mut groups: BTreeMap<(Family, Vec<String>, bool, usize), Vec<Job>> =
                BTreeMap::new();
            for waiter in waiters {
                let pools = waiter.pools.iter().map(|pool| pool.name.clone()).collect();
                let key = (waiter.family, pools, waiter.with_handle, waiter.limit);
                let result = FamilyResult {
                    requested: waiter.count,
                    ..FamilyResult::default()
                };
                groups.entry(key).or_default().push(Job { waiter, result });
            }
            for jobs in groups.into_values() {
                self.serve_group(jobs).await;
            }
            self.publish();
        }
    }

    async fn serve_group(&self, mut jobs: Vec<Job>) {
        // A repeated request may have been served by the group before.
        let mut seen = std::collections::BTreeSet::new();
        let mut later = Vec::new();
        jobs.retain_mut(|job| {
            if job.waiter.claim.handle.is_none() || seen.insert(job.waiter.claim.handle.clone()) {
                return true;
            }
            let (reply, _) = oneshot::channel();
            let waiter = std::mem::replace(
                &mut job.waiter,
                Waiter {
                    family: Family::V4,
                    pools: Vec::new(),
                    count: 0,
                    claim: Claim {
                        handle: None,
                        attrs: BTreeMap::new(),
                    },
                    with_handle: false,
                    limit: 0,
                    reply,
                },
            );
            later.push(waiter);
            false
        });
        for job in &mut jobs {
            self.take_held(job);
        }
        self.fill(&mut jobs).await;
        for job in jobs {
            // A caller that has gone away releases by handle, or its addresses are found unused later.
            let _ = job.waiter.reply.send(job.result);
        }
        self.lock().waiters.extend(later);
    }

    /// Addresses the handle holds already.
    fn take_held(&self, job: &mut Job) {
        let Some(handle) = job.waiter.claim.handle.as_deref() else {
            return;
        };
        let state = self.lock();
        let family = job.waiter.family;
        let held = state
            .held_by(handle)
            .into_iter()
            .filter(|ip| Family::of(*ip) == family);
        job.result
            .ips
            .extend(held.take(job.waiter.count).map(|ip| state.describe(ip)));
    }

    async fn fill(&self, jobs: &mut [Job]) {
        let Some((pools, limit)) = jobs
            .first()
            .map(|job| (job.waiter.pools.clone(), job.waiter.limit))
        else {
            return;
        };
        let rules = self.lock().rules;
        let mut refused = None;
        while missing(jobs) > 0 {
            if let Err(error) = self.take_from_own(jobs, &pools).await {
                return fail_all(jobs, &error);
            }
            if missing(jobs) == 0 {
                break;
            }
            if self.own_in(&pools).len() >= limit {
                let text = format!(
                    "Need to allocate an IPAM block but could not - limit of {limit} blocks reached for this node"
                );
                jobs.iter_mut().for_each(|job| job.say(&text));
                refused = Some(AssignError::new(
                    AssignErrorKind::BlockLimit,
                    "cannot allocate new block due to per host block limit",
                ));
                break;
            }
            if !rules.auto_allocate_blocks {
                let error =
                    AssignError::new(AssignErrorKind::NoBlock, "failed to find or claim a block");
                self.last_resort(jobs, &pools);
                return fail_all(jobs, &error);
            }
            match self.acquire(&pools).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return fail_all(jobs, &error.into()),
            }
        }
        if missing(jobs) > 0
            && !rules.strict_affinity
            && let Err(error) = self.borrow(jobs, &pools).await
        {
            return fail_all(jobs, &error.into());
        }
        self.last_resort(jobs, &pools);
        if let Some(error) = refused {
            fail_all(jobs, &error);
        } else if rules.strict_affinity {
            let text = "No more free affine blocks and strict affinity enabled";
            jobs.iter_mut().for_each(|job| job.say(text));
        } else {
            let cidrs: Vec<String> = pools.iter().map(|pool| pool.cidr.to_string()).collect();
            let text = format!("No IPs available in pools: [{}]", cidrs.join(" "));
            jobs.iter_mut().for_each(|job| job.say(&text));
        }
    }

    /// Own blocks inside the pools, in the order of their affinities' names.
    pub(super) fn own_in(&self, pools: &[Pool]) -> Vec<IpNet> {
        let state = self.lock();
        let inside = |cidr: &IpNet| pools.iter().any(|pool| pool.cidr.contains(cidr));
        let mut own: Vec<IpNet> = state
            .affinities
            .keys()
            .filter(|c| inside(c))
            .copied()
            .collect();
        own.sort_by_key(|cidr| affinity_name(&state.node, cidr));
        own
    }

    async fn take_from_own(&self, jobs: &mut [Job], pools: &[Pool]) -> Result<(), AssignError> {
        for cidr in self.own_in(pools) {
            if missing(jobs) == 0 {
                return Ok(());
            }
            if self.lock().reservations.covers(&cidr) {
                continue;
            }
            match self.ensure_own(&cidr).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return Err(error.into()),
            }
            match self.take_from(&cidr, jobs, Wanted::Own).await {
                Ok(()) => {}
                Err(WriteError::Invalid(error)) => self.mark_invalid(&cidr, &error),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Addresses of others' blocks.
    async fn borrow(&self, jobs: &mut [Job], pools: &[Pool]) -> Result<(), WriteError> {
        let blocks = self.blocks_in(pools).await?;
        for block in blocks {
            if missing(jobs) == 0 {
                return Ok(());
            }
            let usable = block.usable_len(&self.lock().reservations);
            if usable == 0 || block.is_owned_by(&self.owner()) {
                continue;
            }
            match self.take_from(&block.cidr(), jobs, Wanted::Borrowed).await {
                Ok(()) | Err(WriteError::Invalid(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Addresses that would better rest a little longer.
    fn last_resort(&self, jobs: &mut [Job], pools: &[Pool]) {
        let (now, at) = (self.clock.now(), tokio::time::Instant::now());
        let mut state = self.lock();
        for job in jobs {
            while job.missing() > 0 && !job.waiter.with_handle {
                let Some(ip) = state.pop_cooling(pools, LAST_RESORT, now) else {
                    return;
                };
                let claim = job.waiter.claim.clone();
                if let Err(error) = state.record(
                    ip,
                    Local::Handed {
                        claim,
                        since: now,
                        from: None,
                    },
                    at,
                ) {
                    tracing::error!(%error, "journal not written");
                    return;
                }
                let described = state.describe(ip);
                job.result.ips.push(described);
            }
        }
    }
}

impl super::state::State {
    /// An assigned address with its block and pool.
    pub(super) fn describe(&self, ip: std::net::IpAddr) -> AssignedIp {
        let cached = self.block_of(ip);
        let block = cached.map_or_else(|| IpNet::from(ip), |cached| cached.block.cidr());
        AssignedIp {
            ip,
            block,
            pool: self.pools.name_of_block(&block).map(str::to_owned),
            own_block: cached.is_some_and(|cached| cached.block.is_owned_by(&self.owner)),
        }
    }
}

pub(super) fn missing(jobs: &[Job]) -> usize {
    jobs.iter().map(Job::missing).sum()
}

fn fail_all(jobs: &mut [Job], error: &AssignError) {
    jobs.iter_mut().for_each(|job| job.fail(error));
}

impl From<WriteError> for AssignError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Store(error) => error.into(),
            other => StoreError::Invalid(other.to_string()).into(),
        }
    }
}
