//! Claiming blocks and giving them back.
//!
//! Claim: affinity `pending`, block, affinity `confirmed`. Release: affinity `pendingDeletion`, block without owner or
//! deleted, affinity deleted. The block decides who owns it; the affinity is the index by node, and only a confirmed one
//! is advertised.

use ipnet::IpNet;
use jiff::{SignedDuration, Timestamp};
use margay_crds::{AffinityState, BlockAffinity, BlockAffinitySpec};

use super::{ATTEMPTS, Change, WriteError, read_block, update_block};
use crate::block::{Block, Owner};
use crate::names::{affinity_labels, affinity_name};
use crate::store::{Store, StoreError};

/// A block with its confirmed affinity.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The affinity.
    pub affinity: BlockAffinity,
    /// The block.
    pub block: Block,
}

/// A new affinity object.
pub fn affinity_for(owner: &Owner, cidr: &IpNet, state: AffinityState) -> BlockAffinity {
    let spec = BlockAffinitySpec {
        cidr: cidr.to_string(),
        node: owner.name().to_owned(),
        kind: Some(owner.kind().to_owned()),
        state,
        ..BlockAffinitySpec::default()
    };
    let mut affinity = BlockAffinity::new(&affinity_name(owner.name(), cidr), spec);
    affinity.metadata.labels = Some(affinity_labels(&affinity.spec));
    affinity
}

/// Claims a block for an owner: creates it, or completes an earlier claim, or adopts an empty block nobody owns. A block
/// that exists is written once more, which makes a rival's decision to take it over fail.
///
/// # Errors
/// [`WriteError::Foreign`] when somebody else has the block; the own affinity is then gone again. Otherwise as the store
/// reports them; the claim is then completed by the next attempt.
pub async fn claim(
    store: &dyn Store,
    owner: &Owner,
    cidr: &IpNet,
    now: Timestamp,
) -> Result<Claimed, WriteError> {
    let affinity = mark_pending(store, owner, cidr).await?;
    let created = store.put_new(Block::new(*cidr, owner, now).object()).await;
    let block = match created {
        Ok(object) => Block::open(object)?,
        Err(StoreError::AlreadyExists | StoreError::Ambiguous(_)) => {
            match adopt(store, owner, cidr, now).await {
                Ok(Some(block)) => block,
                // The reply that was lost was a refusal, or the block was deleted: the next attempt starts over.
                Ok(None) => return Err(StoreError::Conflict.into()),
                Err(error @ WriteError::Foreign { .. }) => {
                    drop_affinity(store, &affinity).await;
                    return Err(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(error) => return Err(error.into()),
    };
    let affinity = finish(store, owner, cidr, affinity, now).await?;
    Ok(Claimed { affinity, block })
}

/// The affinity as `pending`, created or changed.
async fn mark_pending(
    store: &dyn Store,
    owner: &Owner,
    cidr: &IpNet,
) -> Result<BlockAffinity, WriteError> {
    let wanted = affinity_for(owner, cidr, AffinityState::Pending);
    let name = affinity_name(owner.name(), cidr);
    for _ in 0..ATTEMPTS {
        match store.put_new(&wanted).await {
            Ok(affinity) => return Ok(affinity),
            Err(StoreError::AlreadyExists | StoreError::Ambiguous(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(mut affinity) = store.read::<BlockAffinity>(&name).await? else {
            continue;
        };
        if affinity.spec.state.is_pending() {
            return Ok(affinity);
        }
        affinity.spec.state = AffinityState::Pending;
        affinity.metadata.labels = Some(affinity_labels(&affinity.spec));
        match store.put(&affinity).await {
            Ok(affinity) => return Ok(affinity),
            Err(StoreError::Conflict | StoreError::Ambiguous(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(WriteError::Contended(name))
}

/// Makes sure an existing block is the owner's.
async fn adopt(
    store: &dyn Store,
    owner: &Owner,
    cidr: &IpNet,
    now: Timestamp,
) -> Result<Option<Block>, WriteError> {
    let updated = update_block(store, cidr, None, |block| match block.owner() {
        Some(current) if current == *owner => Ok(Change::Write(())),
        None if block.is_empty() => {
            block.set_owner(Some(owner), now);
            Ok(Change::Write(()))
        }
        other => Err(WriteError::Foreign {
            cidr: *cidr,
            owner: other.map_or_else(|| "nobody, and is in use".into(), |o| o.to_string()),
        }),
    })
    .await?;
    Ok(updated.and_then(|updated| updated.block))
}

/// The affinity as `confirmed`. Whoever interfered meanwhile meant to release the block and could not, because the block
/// was written after they looked; the claim stands.
async fn finish(
    store: &dyn Store,
    owner: &Owner,
    cidr: &IpNet,
    mut affinity: BlockAffinity,
    now: Timestamp,
) -> Result<BlockAffinity, WriteError> {
    let name = affinity_name(owner.name(), cidr);
    for _ in 0..ATTEMPTS {
        affinity.spec.state = AffinityState::Confirmed;
        match store.put(&affinity).await {
            Ok(affinity) => return Ok(affinity),
            Err(StoreError::Conflict | StoreError::Ambiguous(_)) => {}
            Err(error) => return Err(error.into()),
        }
        affinity = match store.read::<BlockAffinity>(&name).await? {
            Some(found) if found.spec.state.is_confirmed() => return Ok(found),
            Some(found) if found.spec.state.is_pending() => found,
            // A release is under way: say pending, invalidate the releaser's view of the block, then confirm.
            _ => {
                let pending = mark_pending(store, owner, cidr).await?;
                match adopt(store, owner, cidr, now).await {
                    Ok(Some(_)) => pending,
                    Ok(None) => return Err(StoreError::Conflict.into()),
                    Err(error) => {
                        drop_affinity(store, &pending).await;
                        return Err(error);
                    }
                }
            }
        };
    }
    Err(WriteError::Contended(name))
}

/// Deletes an affinity whose block belongs to somebody else. Best effort: a leftover is found and removed later.
async fn drop_affinity(store: &dyn Store, affinity: &BlockAffinity) {
    if let Err(error) = store.remove(affinity).await {
        tracing::debug!(affinity = ?affinity.metadata.name, %error, "stale affinity stays");
    }
}

/// How a block is to be given back.
#[derive(Debug, Clone, Copy)]
pub struct Giving {
    /// Refuse unless the block is empty; otherwise only the ownership of a block in use is given up.
    pub must_be_empty: bool,
    /// Refuse if the block was written since it had this sequence number.
    pub sequence: Option<i64>,
    /// Cooling time of addresses.
    pub cooldown: SignedDuration,
    /// The time.
    pub now: Timestamp,
}

impl Giving {
    /// Refuses what must not be given back.
    fn check(&self, block: &mut Block, owner: &Owner) -> Result<(), WriteError> {
        let current = block.owner();
        if current.as_ref() != Some(owner) {
            return Err(WriteError::Foreign {
                cidr: block.cidr(),
                owner: current.map_or_else(|| "nobody".into(), |owner| owner.to_string()),
            });
        }
        if self
            .sequence
            .is_some_and(|sequence| sequence != block.sequence())
        {
            return Err(StoreError::Conflict.into());
        }
        block.normalise(self.cooldown, self.now);
        if self.must_be_empty && !block.is_empty() {
            return Err(WriteError::NotEmpty(block.cidr()));
        }
        Ok(())
    }
}

/// Gives a block back: an empty one is deleted, from one in use only the ownership is taken. `prepare` changes the block
/// before it is judged, to free what only the owner knows to be unused.
///
/// # Errors
/// [`WriteError::NotEmpty`], [`WriteError::Foreign`] (an affinity of ours without ownership is deleted then), or as the
/// store reports them. An interrupted release leaves the affinity `pendingDeletion`; it may be repeated.
pub async fn release_affinity(
    store: &dyn Store,
    owner: &Owner,
    cidr: &IpNet,
    giving: Giving,
    mut prepare: impl FnMut(&mut Block),
) -> Result<(), WriteError> {
    let affinity = store
        .read::<BlockAffinity>(&affinity_name(owner.name(), cidr))
        .await?;
    let Some(block) = read_block(store, cidr).await? else {
        return match affinity {
            Some(affinity) => Ok(store.remove(&affinity).await?),
            None => Ok(()),
        };
    };
    let mut judged = block.clone();
    prepare(&mut judged);
    match (giving.check(&mut judged, owner), &affinity) {
        (Ok(()), _) => {}
        (Err(error @ WriteError::Foreign { .. }), Some(affinity)) => {
            store.remove(affinity).await?;
            return Err(error);
        }
        (Err(error), _) => return Err(error),
    }
    let affinity = match affinity {
        Some(affinity) => Some(mark_for_deletion(store, affinity).await?),
        None => None,
    };
    let mut base = Some(block);
    update_block(store, cidr, base.take(), |block| {
        prepare(block);
        giving.check(block, owner)?;
        if block.is_empty() {
            return Ok(Change::Delete(()));
        }
        block.set_owner(None, giving.now);
        Ok(Change::Write(()))
    })
    .await?;
    match affinity {
        Some(affinity) => Ok(store.remove(&affinity).await?),
        None => Ok(()),
    }
}

async fn mark_for_deletion(
    store: &dyn Store,
    mut affinity: BlockAffinity,
) -> Result<BlockAffinity, WriteError> {
    if affinity.spec.state.is_pending_deletion() {
        return Ok(affinity);
    }
    affinity.spec.state = AffinityState::PendingDeletion;
    Ok(store.put(&affinity).await?)
}
