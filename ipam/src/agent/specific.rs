//! Assigning an address the caller names.

use std::net::IpAddr;

use ipnet::IpNet;
use margay_crds::AllowedUse;

use super::Ipam;
use super::assign::claim_of;
use super::core::Core;
use super::state::{Local, State};
use crate::block::{Claim, Holder};
use crate::cidr::block_of;
use crate::pool::Pool;
use crate::request::{AssignError, AssignErrorKind, AssignedIp, SpecificRequest};
use crate::store::StoreError;
use crate::write::{ATTEMPTS, WriteError, increment_handle, read_block, release};

/// What became of an attempt to take one address.
#[derive(Debug, Clone, PartialEq)]
enum Taken {
    Yes,
    /// The handle holds it already.
    Held,
    InUse,
    Cooling,
}

impl Ipam {
    /// Assigns one particular address. Selectors, reservations and the limit of blocks do not matter; the pool has to be
    /// usable and the use allowed. An address the handle holds already is a success.
    ///
    /// # Errors
    /// Why the address cannot be had.
    pub async fn assign_specific(
        &self,
        request: SpecificRequest,
    ) -> Result<AssignedIp, AssignError> {
        let core = &self.core;
        let (cidr, claim) = {
            let state = core.lock();
            core.gate(&state)?;
            let pool = pool_for(&state, &request)?;
            let cidr = block_of(request.ip, pool.block_size)
                .ok_or_else(|| AssignError::new(AssignErrorKind::NotInPool, NOT_IN_POOL))?;
            let now = core.clock.now();
            (
                cidr,
                claim_of(&request.handle, &request.attrs, &state.node, now),
            )
        };
        let _turn = core.writer.lock().await;
        for _ in 0..ATTEMPTS {
            if !core.make_available(&cidr).await? {
                continue;
            }
            match core.take_specific(&cidr, request.ip, &claim).await {
                Ok(Taken::Yes | Taken::Held) => {
                    core.publish();
                    return Ok(core.lock().describe(request.ip));
                }
                Ok(Taken::Cooling) => return Err(cooling(request.ip)),
                Ok(Taken::InUse) => return Err(in_use(request.ip)),
                // The block went to somebody else, or away, in between.
                Err(WriteError::Store(StoreError::Conflict)) => {}
                Err(WriteError::Foreign { owner, .. }) => return Err(foreign(&cidr, &owner)),
                Err(error) => return Err(error.into()),
            }
        }
        Err(WriteError::Contended(cidr.to_string()).into())
    }
}

const NOT_IN_POOL: &str = "The provided IP address is not in a configured pool\n";

fn pool_for<'a>(state: &'a State, request: &SpecificRequest) -> Result<&'a Pool, AssignError> {
    let Some(pool) = state.pools.containing(request.ip) else {
        return Err(AssignError::new(AssignErrorKind::NotInPool, NOT_IN_POOL));
    };
    match &request.usage {
        Some(usage) if !pool.allows(usage) => Err(AssignError::new(
            AssignErrorKind::WrongUse,
            format!(
                "IP pool {} ({}) does not allow {usage}; its allowed uses are {}",
                pool.name,
                pool.cidr,
                pool.uses
                    .iter()
                    .map(AllowedUse::as_str)
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        )),
        _ => Ok(pool),
    }
}

fn in_use(ip: IpAddr) -> AssignError {
    AssignError::new(
        AssignErrorKind::InUse,
        format!("IP address {ip} is already assigned"),
    )
}

fn cooling(ip: IpAddr) -> AssignError {
    AssignError::new(
        AssignErrorKind::Cooling,
        format!("IP address {ip} is already assigned: it was released a moment ago"),
    )
}

fn foreign(cidr: &IpNet, owner: &str) -> AssignError {
    AssignError::new(
        AssignErrorKind::ForeignBlock,
        format!("block {cidr} belongs to {owner} and strict affinity is enabled"),
    )
}

impl Core {
    /// Makes sure the block exists, claiming it if nobody has. Returns false to try again.
    async fn make_available(&self, cidr: &IpNet) -> Result<bool, AssignError> {
        if self.lock().blocks.contains_key(cidr) {
            return Ok(true);
        }
        match read_block(&*self.store, cidr).await {
            Ok(Some(block)) => {
                self.lock().absorb(*cidr, Some(block));
                Ok(true)
            }
            Ok(None) => match self.claim(cidr).await {
                Ok(()) => Ok(true),
                Err(WriteError::Foreign { .. } | WriteError::Store(StoreError::Conflict)) => {
                    Ok(false)
                }
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn take_specific(
        &self,
        cidr: &IpNet,
        ip: IpAddr,
        claim: &Claim,
    ) -> Result<Taken, WriteError> {
        let handle = claim.handle.clone().unwrap_or_default();
        {
            let mut state = self.lock();
            match state.locals.get(&ip).cloned() {
                Some(Local::Handed { claim, .. }) if claim.handle.as_ref() == Some(&handle) => {
                    return Ok(Taken::Held);
                }
                Some(Local::Handed { .. }) => return Ok(Taken::InUse),
                Some(Local::Cooling { handle: last, .. }) if last.as_ref() != Some(&handle) => {
                    return Ok(Taken::Cooling);
                }
                _ => {}
            }
            // From here on nobody else gets it out of the reserve.
            state.hold_back([ip]);
        }
        self.lock().counted.insert(handle.clone());
        increment_handle(&*self.store, &handle, cidr, 1).await?;
        let base = self
            .lock()
            .blocks
            .get(cidr)
            .filter(|c| !c.suspect)
            .map(|c| c.block.clone());
        let result = self
            .update(
                cidr,
                base,
                |block, state, _| {
                    let Some(ordinal) = block.ordinal(ip) else {
                        return Ok(Taken::InUse);
                    };
                    if state.rules.strict_affinity && !block.is_owned_by(&state.owner) {
                        let owner = block
                            .owner()
                            .map_or_else(|| "nobody".into(), |o| o.to_string());
                        return Err(WriteError::Foreign {
                            cidr: block.cidr(),
                            owner,
                        });
                    }
                    Ok(match block.holder(ordinal) {
                        Holder::Free => {
                            block.take_one(ordinal, claim);
                            Taken::Yes
                        }
                        Holder::Held(entry) if state.is_warm(entry) => {
                            block.relabel(ordinal, claim);
                            Taken::Yes
                        }
                        Holder::Held(entry) if entry.handle_id.as_ref() == Some(&handle) => {
                            match state.locals.contains_key(&ip) {
                                // Released by the same owner a moment ago and not written yet.
                                true => {
                                    block.relabel(ordinal, claim);
                                    Taken::Yes
                                }
                                false => Taken::Held,
                            }
                        }
                        Holder::Held(_) => Taken::InUse,
                        Holder::Cooling => Taken::Cooling,
                    })
                },
                1,
            )
            .await;
        let taken = match result {
            Ok(Some(updated)) => Ok(updated.outcome.0),
            Ok(None) => Err(StoreError::Conflict.into()),
            Err(error) => Err(error),
        };
        let keep = matches!(
            taken,
            Ok(Taken::Yes) | Err(WriteError::Store(StoreError::Ambiguous(_)))
        );
        if !keep {
            release::count_down(&*self.store, &handle, cidr, 1).await;
        }
        if taken == Ok(Taken::Yes) {
            self.lock().drop_local(ip);
        }
        taken
    }
}
