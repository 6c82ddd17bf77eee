//! What the next write of a block has to say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use margay_crds::AllocationAttribute;

use super::state::{Local, State};
use crate::block::{Block, Holder};
use crate::cidr::Family;
use crate::request::ATTR_POD_UID;
use crate::rules::Handles;

/// How many addresses each handle that may have an object has lost.
pub(super) type Lost = BTreeMap<String, i64>;

/// Brings a block in line with what this node did: owners of addresses handed out, addresses released. In own blocks
/// released addresses go back to the reserve; from others they go back to the block. Returns what
/// handles have lost.
pub(super) fn apply_locals(state: &State, block: &mut Block, now: Timestamp) -> Lost {
    let own = block.is_owned_by(&state.owner);
    let keep = own && state.reserve_of(&block.cidr()) > 0;
    let cidr = block.cidr();
    let mut lost = Lost::new();
    let mut cold = Vec::new();
    let mut given_back = BTreeMap::new();
    for (ip, local) in state.locals.iter().filter(|(ip, _)| cidr.contains(*ip)) {
        let Some(ordinal) = block.ordinal(*ip) else {
            continue;
        };
        match (local, block.holder(ordinal)) {
            (Local::Handed { claim, .. }, Holder::Free) => {
                block.take_one(ordinal, claim);
            }
            (Local::Handed { claim, .. }, Holder::Cooling) => block.relabel(ordinal, claim),
            (Local::Handed { claim, from, .. }, Holder::Held(entry)) => {
                let passed_on = from.is_some() && entry.handle_id == *from;
                let ours = state.is_warm(entry) || entry.handle_id == claim.handle || passed_on;
                if passed_on && state.may_have_handle(entry) {
                    *lost.entry(from.clone().unwrap_or_default()).or_default() += 1;
                }
                if ours && !claim.is(entry) {
                    block.relabel(ordinal, claim);
                }
            }
            (Local::Cooling { handle, since }, Holder::Held(entry)) => {
                let warm = state.is_warm(entry);
                if !warm && entry.handle_id != *handle {
                    continue;
                }
                if let Some(handle) = handle
                    .as_ref()
                    .filter(|_| !warm && state.may_have_handle(entry))
                {
                    *lost.entry(handle.clone()).or_default() += 1;
                }
                if own && !keep && state.is_cold(*since, now) {
                    cold.push(ordinal);
                } else if own && !warm {
                    block.relabel(ordinal, &state.warm_claim);
                } else if !own {
                    given_back.insert(ordinal, crate::block::Expected::default());
                }
            }
            (Local::Cooling { .. }, Holder::Free | Holder::Cooling) => {}
        }
    }
    if !own {
        // The block went to somebody else, or its pool is being deleted: nothing is kept in reserve there.
        cold.extend(state.own_warm(block));
    }
    block.free_at_once(&cold);
    // Nothing is expected of these, so nothing can be refused.
    if let Err(error) = block.release(&given_back, state.rules.cooldown, now) {
        tracing::error!(block = %cidr, %error, "release refused");
    }
    lost
}

/// How the reserve in a block should change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReserveChange {
    /// Addresses to add.
    pub(super) add: usize,
    /// Addresses to give back.
    pub(super) drop: Vec<IpAddr>,
}

/// How the reserve in an own block should change. When the block is written anyway (`changed`) it is filled up to its
/// size, or cut back when there is more than twice as much; otherwise a write is worth it only when less than half or
/// more than four times its size is there. Where no reserve is kept all of it goes.
pub(super) fn reserve_change(
    state: &State,
    block: &Block,
    waiting: usize,
    changed: bool,
) -> ReserveChange {
    let cidr = block.cidr();
    if !block.is_owned_by(&state.owner) {
        return ReserveChange::default();
    }
    let wanted = state.reserve_of(&cidr);
    let have = state.warm_len(Family::of_net(&cidr));
    if wanted == 0 {
        return ReserveChange {
            add: 0,
            drop: state.warm_in(&cidr).collect(),
        };
    }
    if have > if changed { 2 * wanted } else { 4 * wanted } && waiting == 0 {
        // The youngest go first: the others have rested longest.
        let drop = state.warm_in(&cidr).rev().take(have - wanted).collect();
        return ReserveChange { add: 0, drop };
    }
    let add = if changed || 2 * have < wanted {
        wanted.saturating_sub(have)
    } else {
        0
    };
    ReserveChange {
        add,
        drop: Vec::new(),
    }
}

impl State {
    /// Positions a block keeps for this node's reserve and nothing was done with.
    pub(super) fn own_warm(&self, block: &Block) -> Vec<usize> {
        let handle = self.warm_claim.handle.as_deref().unwrap_or_default();
        let mut warm = block.held_by(handle);
        warm.retain(|n| !self.locals.contains_key(&block.address(*n)));
        warm
    }

    /// True when an IPAMHandle may exist for the owner of an address: while [`Handles::Never`] is in force, pods that
    /// carry their UID have one only for an address they asked for.
    fn may_have_handle(&self, entry: &AllocationAttribute) -> bool {
        let pod = entry
            .secondary
            .as_ref()
            .is_some_and(|attrs| attrs.contains_key(ATTR_POD_UID));
        let counted = entry
            .handle_id
            .as_ref()
            .is_some_and(|handle| self.counted.contains(handle));
        self.settings.handles == Handles::Always || !pod || counted
    }
}

/// Addresses that [`apply_locals`] frees and that must not be handed out while the write is under way.
pub(super) fn freed_by(state: &State, block: &Block, now: Timestamp) -> Vec<IpAddr> {
    let cidr = block.cidr();
    if !block.is_owned_by(&state.owner) || state.reserve_of(&cidr) > 0 {
        return Vec::new();
    }
    let cold = |local: &Local| match local {
        Local::Cooling { since, .. } => state.is_cold(*since, now),
        Local::Handed { .. } => false,
    };
    let here = state
        .locals
        .iter()
        .filter(|(ip, local)| cidr.contains(*ip) && cold(local));
    here.map(|(ip, _)| *ip).collect()
}
