//! Writing the objects: compare-and-swap loops and the order in which several objects change.
//!
//! Rules that hold after a crash between any two writes: an affinity object exists before its block does; a handle
//! counts an address before the block says so and until after the block no longer does; a write whose reply is lost is
//! looked up in what is stored before anything is repeated or taken back.

mod affinity;
mod handle;
pub(crate) mod release;

use ipnet::IpNet;

use crate::block::{Block, Holder, InvalidBlock, ReleaseRefused};
use crate::names::block_name;
use crate::store::{Store, StoreError};

pub use affinity::{Claimed, Giving, affinity_for, claim, release_affinity};
pub use handle::{decrement_handle, increment_handle};
pub use release::{release_handle_in_block, release_in_block};

/// Attempts of a compare-and-swap loop before it gives up.
pub const ATTEMPTS: usize = 100;

/// Why an object could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The block is inconsistent and must not be written.
    #[error(transparent)]
    Invalid(#[from] InvalidBlock),
    /// A release was decided on knowledge that is out of date.
    #[error(transparent)]
    Refused(#[from] ReleaseRefused),
    /// The block is not empty.
    #[error("block {0} is not empty")]
    NotEmpty(IpNet),
    /// The block belongs to somebody else.
    #[error("block {cidr} belongs to {owner}")]
    Foreign {
        /// The block.
        cidr: IpNet,
        /// Its owner.
        owner: String,
    },
    /// Others kept changing the object.
    #[error("gave up after {ATTEMPTS} attempts: others keep changing {0}")]
    Contended(String),
}

/// What to do with a block after looking at it.
#[derive(Debug, Clone)]
pub enum Change<T> {
    /// Write it.
    Write(T),
    /// Delete it.
    Delete(T),
    /// Leave it.
    Keep(T),
}

/// A block after an update.
#[derive(Debug, Clone)]
pub struct Updated<T> {
    /// The block as it is stored now; absent when it was deleted.
    pub block: Option<Block>,
    /// What the change returned.
    pub outcome: T,
}

/// Reads a block.
///
/// # Errors
/// The store failed, or the block is invalid.
pub async fn read_block(store: &dyn Store, cidr: &IpNet) -> Result<Option<Block>, WriteError> {
    match store.read(&block_name(cidr)).await? {
        Some(object) => Ok(Some(Block::open(object)?)),
        None => Ok(None),
    }
}

/// Changes a block, again and again from its newest state until nobody interferes. `base` is a state read before, to
/// save reading it. Returns nothing when the block does not exist.
///
/// # Errors
/// [`StoreError::Ambiguous`] when a write may or may not have taken effect and the block cannot be read back; every
/// other error means that nothing was changed.
pub async fn update_block<T: Clone>(
    store: &dyn Store,
    cidr: &IpNet,
    mut base: Option<Block>,
    mut change: impl FnMut(&mut Block) -> Result<Change<T>, WriteError>,
) -> Result<Option<Updated<T>>, WriteError> {
    let mut attempts: Vec<Attempt<T>> = Vec::new();
    for _ in 0..ATTEMPTS {
        let current = match base.take() {
            Some(block) => block,
            None => match read_block(store, cidr).await {
                Ok(Some(block)) => block,
                Ok(None) => {
                    let deleted = attempts.into_iter().find(|attempt| attempt.deletion);
                    return Ok(deleted.map(|a| Updated {
                        block: None,
                        outcome: a.outcome,
                    }));
                }
                Err(error) if attempts.is_empty() => return Err(error),
                Err(error) => return Err(StoreError::Ambiguous(error.to_string()).into()),
            },
        };
        if let Some(done) = attempts
            .iter()
            .find(|attempt| attempt.took_effect(&current))
        {
            return Ok(Some(Updated {
                outcome: done.outcome.clone(),
                block: Some(current),
            }));
        }
        let mut next = current.clone();
        let (outcome, deletion) = match change(&mut next)? {
            Change::Keep(outcome) => {
                return Ok(Some(Updated {
                    block: Some(current),
                    outcome,
                }));
            }
            Change::Write(outcome) => (outcome, false),
            Change::Delete(outcome) => (outcome, true),
        };
        let object = next.to_write();
        let written = match deletion {
            true => store.remove(next.object()).await.map(|()| None),
            false => store.put(&object).await.map(Some),
        };
        match written {
            Ok(Some(object)) => {
                return Ok(Some(Updated {
                    block: Some(Block::open(object)?),
                    outcome,
                }));
            }
            Ok(None) => {
                return Ok(Some(Updated {
                    block: None,
                    outcome,
                }));
            }
            Err(StoreError::Conflict) => {}
            Err(StoreError::Ambiguous(_)) => {
                let after = Block::open(object)?;
                attempts.push(Attempt {
                    before: current,
                    after,
                    deletion,
                    outcome,
                });
            }
            Err(error) if attempts.is_empty() => return Err(error.into()),
            Err(error) => return Err(StoreError::Ambiguous(error.to_string()).into()),
        }
    }
    match attempts.is_empty() {
        true => Err(WriteError::Contended(block_name(cidr))),
        false => Err(StoreError::Ambiguous("outcome of an earlier write".into()).into()),
    }
}

/// A write whose reply was lost.
#[derive(Debug)]
struct Attempt<T> {
    before: Block,
    after: Block,
    deletion: bool,
    outcome: T,
}

impl<T> Attempt<T> {
    /// True when what is stored now shows that the write took effect: it is exactly what was written, or each address
    /// the write assigned has the owner and the stamp the write gave it.
    fn took_effect(&self, stored: &Block) -> bool {
        if self.deletion || !self.before.same_object(stored) {
            return false;
        }
        if stored.object().spec == self.after.object().spec {
            return true;
        }
        let mut assigned = (0..self.after.len()).filter(|n| {
            self.after.stamp(*n) == self.before.sequence()
                && matches!(self.after.holder(*n), Holder::Held(_))
        });
        let mut any = false;
        let all = assigned.all(|n| {
            any = true;
            stored.stamp(n) == self.after.stamp(n) && stored.holder(n) == self.after.holder(n)
        });
        any && all
    }
}
