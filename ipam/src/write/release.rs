//! Releasing addresses in the store, for callers that do not own the block.

use std::collections::BTreeMap;

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};

use super::{Change, WriteError, decrement_handle, update_block};
use crate::block::{Block, Expected, Released};
use crate::store::Store;

/// Releases addresses of a block by position, with what the caller knows of them. A block nobody owns is deleted when it
/// becomes empty. Handles are counted down.
///
/// # Errors
/// One address is not what the caller expects, or the store failed; then none is released.
pub async fn release_in_block(
    store: &dyn Store,
    cidr: &IpNet,
    addresses: &BTreeMap<usize, Expected>,
    cooldown: SignedDuration,
    now: Timestamp,
) -> Result<Released, WriteError> {
    let updated = update_block(store, cidr, None, |block| {
        let result = block.release(addresses, cooldown, now)?;
        Ok(match result.released.is_empty() {
            true => Change::Keep(result),
            false => leave(block, result),
        })
    })
    .await?;
    let Some(updated) = updated else {
        return Ok(Released {
            unallocated: addresses.keys().copied().collect(),
            ..Released::default()
        });
    };
    for (handle, count) in &updated.outcome.by_handle {
        count_down(store, handle, cidr, *count).await;
    }
    Ok(updated.outcome)
}

/// Releases everything a handle holds in a block. Returns the number of addresses.
///
/// # Errors
/// The block is invalid, or the store failed.
pub async fn release_handle_in_block(
    store: &dyn Store,
    cidr: &IpNet,
    handle: &str,
    cooldown: SignedDuration,
    now: Timestamp,
) -> Result<usize, WriteError> {
    let updated = update_block(store, cidr, None, |block| {
        let released = block.release_handle(handle, cooldown, now).len();
        Ok(match released {
            0 => Change::Keep(0),
            count => leave(block, count),
        })
    })
    .await?;
    let count = updated.map_or(0, |updated| updated.outcome);
    if count > 0 {
        count_down(store, handle, cidr, count as i64).await;
    }
    Ok(count)
}

/// Writes a block after a release, or deletes it when nobody owns or uses it.
pub(crate) fn leave<T>(block: &Block, outcome: T) -> Change<T> {
    match block.owner().is_none() && block.is_empty() {
        true => Change::Delete(outcome),
        false => Change::Write(outcome),
    }
}

/// Counts a handle down; a failure leaves it counting too many, which is safe and swept later.
pub(crate) async fn count_down(store: &dyn Store, handle: &str, cidr: &IpNet, count: i64) {
    if let Err(error) = decrement_handle(store, handle, cidr, count).await {
        tracing::warn!(handle, block = %cidr, %error, "handle still counts released addresses");
    }
}
