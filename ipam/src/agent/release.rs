//! Releasing addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use margay_crds::IPAMHandle;
use tokio::time::Instant;

use super::Ipam;
use super::core::Core;
use super::state::{Local, State};
use crate::block::Expected;
use crate::names::{clean_handle, handle_name};
use crate::rules::Handles;
use crate::store::StoreError;
use crate::write::{WriteError, release_handle_in_block};

/// What a release did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Released {
    /// Addresses that were held and are released.
    pub released: Vec<IpAddr>,
    /// Addresses nobody held, or somebody else than the caller says.
    pub unallocated: Vec<IpAddr>,
}

impl Ipam {
    /// Releases everything a handle holds. A handle that holds nothing is a success with an empty result: a release may
    /// be repeated.
    ///
    /// # Errors
    /// The API server had to be asked and could not be.
    pub async fn release_by_handle(&self, handle: &str) -> Result<Vec<IpAddr>, WriteError> {
        let core = &self.core;
        let (ips, through, always) = {
            let mut state = core.lock();
            // Whoever waited for these addresses has given up.
            state
                .waiters
                .retain(|waiter| waiter.claim.handle.as_deref() != Some(handle));
            let ips = state.held_by(handle);
            let through = state.writes_through();
            if !through {
                core.cool(&mut state, &ips)?;
            }
            (ips, through, state.settings.handles == Handles::Always)
        };
        if through {
            let _turn = core.writer.lock().await;
            core.release_now(&ips, handle).await?;
        }
        if ips.is_empty() && always && !core.lock().locked {
            let _turn = core.writer.lock().await;
            return core.release_elsewhere(handle).await;
        }
        core.wake.notify_one();
        Ok(ips)
    }

    /// Releases addresses, each only if it is held under `handle` (or under any, when absent).
    ///
    /// # Errors
    /// The API server had to be asked and could not be.
    pub async fn release_ips(
        &self,
        ips: &[IpAddr],
        handle: Option<&str>,
    ) -> Result<Released, WriteError> {
        let core = &self.core;
        let mut result = Released::default();
        let wanted: BTreeSet<IpAddr> = ips.iter().copied().collect();
        let mut by_handle: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        let through = {
            let mut state = core.lock();
            for ip in wanted {
                match state.holder_of(ip) {
                    Some(held) if handle.is_none_or(|handle| handle == held) => {
                        by_handle.entry(held).or_default().push(ip);
                        result.released.push(ip);
                    }
                    _ => result.unallocated.push(ip),
                }
            }
            let through = state.writes_through();
            if !through {
                core.cool(&mut state, &result.released)?;
            }
            through
        };
        if through {
            let _turn = core.writer.lock().await;
            for (handle, ips) in &by_handle {
                core.release_exactly(ips, handle).await?;
            }
        }
        core.wake.notify_one();
        Ok(result)
    }
}

impl State {
    /// True when releases are written at once: nothing is gained by waiting when no time has to pass before reuse.
    fn writes_through(&self) -> bool {
        self.settings.reuse_floor.is_zero() && self.settings.reserve == 0 && !self.locked
    }

    /// Handle an address is held under on this node; the reserve and cooling addresses have no holder.
    pub(super) fn holder_of(&self, ip: IpAddr) -> Option<String> {
        match self.locals.get(&ip) {
            Some(Local::Handed { claim, .. }) => return claim.handle.clone(),
            Some(Local::Cooling { .. }) => return None,
            None => {}
        }
        let block = &self.block_of(ip)?.block;
        match block.holder(block.ordinal(ip)?) {
            crate::block::Holder::Held(entry) if !self.is_warm(entry) => {
                Some(clean_handle(entry.handle_id.as_deref().unwrap_or_default()).to_owned())
            }
            _ => None,
        }
    }

    /// For an address that was passed on, the handle its block still shows.
    fn shown_holder(&self, ip: IpAddr) -> Option<String> {
        let Some(Local::Handed {
            from: Some(from), ..
        }) = self.locals.get(&ip)
        else {
            return None;
        };
        let block = &self.block_of(ip)?.block;
        let shown = block.held_by(from).iter().any(|n| block.address(*n) == ip);
        shown.then(|| from.clone())
    }

    /// Forgets what was done with an address: its block says it now.
    pub(super) fn drop_local(&mut self, ip: IpAddr) {
        if self.locals.remove(&ip).is_some() {
            self.journal.done(ip);
        }
    }
}

impl Core {
    /// Releases addresses in memory and the journal; their blocks are written later.
    pub(super) fn cool(&self, state: &mut State, ips: &[IpAddr]) -> Result<(), WriteError> {
        let (now, at) = (self.clock.now(), Instant::now());
        for ip in ips {
            let handle = state.shown_holder(*ip).or_else(|| state.holder_of(*ip));
            let local = Local::Cooling { handle, since: now };
            state
                .record(*ip, local, at)
                .map_err(|error| StoreError::Unavailable(format!("journal: {error}")))?;
        }
        Ok(())
    }

    async fn release_now(&self, ips: &[IpAddr], handle: &str) -> Result<(), WriteError> {
        for cidr in self.blocks_of(ips) {
            let released = self.update(
                &cidr,
                self.known(&cidr),
                |block, state, _| {
                    let now = self.clock.now();
                    Ok(block
                        .release_handle(handle, state.rules.cooldown, now)
                        .len())
                },
                0,
            );
            let count = released.await?.map_or(0, |updated| updated.outcome.0);
            self.count_down(handle, &cidr, count as i64).await;
        }
        Ok(())
    }

    async fn release_exactly(&self, ips: &[IpAddr], handle: &str) -> Result<(), WriteError> {
        for cidr in self.blocks_of(ips) {
            let released = self.update(
                &cidr,
                self.known(&cidr),
                |block, state, _| {
                    let expected = Expected {
                        handle: Some(handle.to_owned()),
                        stamp: None,
                    };
                    let here = ips.iter().filter_map(|ip| block.ordinal(*ip));
                    let addresses = here.map(|n| (n, expected.clone())).collect();
                    let now = self.clock.now();
                    Ok(block
                        .release(&addresses, state.rules.cooldown, now)?
                        .released
                        .len())
                },
                0,
            );
            let count = released.await?.map_or(0, |updated| updated.outcome.0);
            self.count_down(handle, &cidr, count as i64).await;
        }
        Ok(())
    }

    /// Releases what the handle's object says it has in blocks this node does not know.
    async fn release_elsewhere(&self, handle: &str) -> Result<Vec<IpAddr>, WriteError> {
        let Some(object) = self.store.read::<IPAMHandle>(&handle_name(handle)).await? else {
            return Ok(Vec::new());
        };
        let (cooldown, now) = (self.lock().rules.cooldown, self.clock.now());
        for cidr in object
            .spec
            .block
            .keys()
            .filter_map(|text| text.parse::<IpNet>().ok())
        {
            release_handle_in_block(&*self.store, &cidr, handle, cooldown, now).await?;
        }
        Ok(Vec::new())
    }

    /// Counts a handle down, if it may have an object.
    pub(super) async fn count_down(&self, handle: &str, cidr: &IpNet, count: i64) {
        if count > 0 {
            crate::write::release::count_down(&*self.store, handle, cidr, count).await;
        }
    }

    fn known(&self, cidr: &IpNet) -> Option<crate::block::Block> {
        let state = self.lock();
        state
            .blocks
            .get(cidr)
            .filter(|cached| !cached.suspect)
            .map(|cached| cached.block.clone())
    }

    fn blocks_of(&self, ips: &[IpAddr]) -> BTreeSet<IpNet> {
        let state = self.lock();
        ips.iter()
            .filter_map(|ip| Some(state.block_of(*ip)?.block.cidr()))
            .collect()
    }
}
