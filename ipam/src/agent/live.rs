//! Comparing what is assigned with what is in use on the node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::SignedDuration;
use tokio::time::Instant;

use super::Ipam;
use super::state::{Local, State};
use crate::block::{Claim, Holder};
use crate::request::{ATTR_NODE, ATTR_POD, ATTR_POD_UID, LiveAddress};
use crate::write::WriteError;

/// Time between two looks that must both miss the owner of an address before it is released.
const CLEAN_PASS: SignedDuration = SignedDuration::from_secs(60);

impl Ipam {
    /// Takes in which addresses are in use on this node. To be called once before the first request is served, and then
    /// every minute.
    ///
    /// An address in use that is in the reserve, or not recorded at all, is recorded for its owner. A pod address nobody
    /// uses is released when two calls at least 60 s apart have missed it; these are returned.
    ///
    /// # Errors
    /// A release has to be written at once and cannot be.
    pub async fn reconcile_live(&self, live: &[LiveAddress]) -> Result<Vec<IpAddr>, WriteError> {
        let (now, at) = (self.core.clock.now(), Instant::now());
        let abandoned: BTreeMap<IpAddr, String> = {
            let mut state = self.core.lock();
            for address in live {
                state.adopt(address, now, at);
            }
            let missing = state.without_owner(live);
            let missed = std::mem::take(&mut state.missed);
            state.missed = missing
                .keys()
                .map(|ip| (*ip, missed.get(ip).copied().unwrap_or(now)))
                .collect();
            let missed = &state.missed;
            let old = |ip: &IpAddr| {
                missed
                    .get(ip)
                    .is_some_and(|s| now.duration_since(*s) >= CLEAN_PASS)
            };
            missing.into_iter().filter(|(ip, _)| old(ip)).collect()
        };
        for (ip, handle) in &abandoned {
            tracing::info!(%ip, handle, "address released: nothing on this node uses it");
            self.release_ips(&[*ip], Some(handle)).await?;
        }
        self.core.wake.notify_one();
        Ok(abandoned.into_keys().collect())
    }

    /// Addresses a handle holds, in order, as far as is known here.
    pub fn held_by(&self, handle: &str) -> Vec<IpAddr> {
        self.core.lock().held_by(handle)
    }

    /// Gives an address that was handed out under `from` to the owner that really uses it. False when `from` does not
    /// hold it.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn transfer(&self, from: &str, to: &LiveAddress) -> std::io::Result<bool> {
        let mut state = self.core.lock();
        if state.holder_of(to.ip).as_deref() != Some(from) {
            return Ok(false);
        }
        let mut attrs = to.attrs.clone();
        attrs
            .entry(ATTR_NODE.to_owned())
            .or_insert_with(|| state.node.clone());
        let claim = Claim {
            handle: Some(to.handle.clone()),
            attrs,
        };
        let handed = Local::Handed {
            claim,
            since: self.core.clock.now(),
            from: Some(from.to_owned()),
        };
        state.record(to.ip, handed, Instant::now())?;
        drop(state);
        self.core.wake.notify_one();
        Ok(true)
    }
}

impl State {
    /// Makes sure an address in use is recorded for its owner.
    fn adopt(&mut self, address: &LiveAddress, now: jiff::Timestamp, at: Instant) {
        let ip = address.ip;
        if self.locals.contains_key(&ip) {
            return;
        }
        let free = match self.block_of(ip).map(|cached| &cached.block) {
            None => {
                self.lost
                    .insert(ip, "nobody: its block is not known here".into());
                return;
            }
            Some(block) => match block.ordinal(ip).map(|n| block.holder(n)) {
                Some(Holder::Held(entry))
                    if entry.handle_id.as_deref() == Some(&address.handle) =>
                {
                    return;
                }
                Some(Holder::Held(entry)) if !self.is_warm(entry) => {
                    let other = entry.handle_id.clone().unwrap_or_default();
                    self.lost.insert(ip, other);
                    return;
                }
                other => other.is_some(),
            },
        };
        if free {
            let mut attrs = address.attrs.clone();
            attrs
                .entry(ATTR_NODE.to_owned())
                .or_insert_with(|| self.node.clone());
            let claim = Claim {
                handle: Some(address.handle.clone()),
                attrs,
            };
            if let Err(error) = self.record(
                ip,
                Local::Handed {
                    claim,
                    since: now,
                    from: None,
                },
                at,
            ) {
                tracing::error!(%error, "journal not written");
            }
        }
    }

    /// Pod addresses of this node that are not among those in use, with their handles.
    fn without_owner(&self, live: &[LiveAddress]) -> BTreeMap<IpAddr, String> {
        let used: std::collections::BTreeSet<IpAddr> = live.iter().map(|a| a.ip).collect();
        let mut missing = BTreeMap::new();
        for block in self.blocks.values().map(|cached| &cached.block) {
            for (ordinal, entry) in block.held() {
                let attr = |key: &str| entry.secondary.as_ref()?.get(key).map(String::as_str);
                // Only what an agent like this one has assigned: pods other programs have wired are not known here.
                let pod = attr(ATTR_POD).is_some() && attr(ATTR_POD_UID).is_some();
                let mine = attr(ATTR_NODE) == Some(&self.node) && pod;
                if let Some(handle) = entry.handle_id.clone().filter(|_| mine) {
                    missing.insert(block.address(ordinal), handle);
                }
            }
        }
        for (ip, local) in &self.locals {
            match local {
                Local::Cooling { .. } => {
                    missing.remove(ip);
                }
                Local::Handed { claim, .. } => {
                    let pod = claim.attrs.contains_key(ATTR_POD);
                    if let Some(handle) = claim.handle.clone().filter(|_| pod) {
                        missing.insert(*ip, handle);
                    }
                }
            }
        }
        missing.retain(|ip, _| !used.contains(ip));
        missing
    }
}
