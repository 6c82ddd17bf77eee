//! Where the objects live: a small revisioned store with compare-and-swap, lists and watches.
//!
//! Objects travel as JSON so that one implementation serves every kind and nothing a foreign writer put into an object
//! is lost; [`Stored`] types are read and written through the methods of `dyn Store`.

mod kube;
mod memory;

use std::fmt;

use ::kube::{Resource, ResourceExt};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use margay_crds::{
    BlockAffinity, ClusterInformation, IPAMBlock, IPAMConfiguration, IPAMHandle, IPPool,
    IPReservation,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::kube::KubeStore;
pub use self::memory::{Fault, MemoryStore, Verb};

/// The kinds address management reads or writes. All are cluster-scoped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// IPPool.
    Pool,
    /// IPAMBlock.
    Block,
    /// BlockAffinity.
    Affinity,
    /// IPAMHandle.
    Handle,
    /// IPAMConfiguration.
    Configuration,
    /// IPReservation.
    Reservation,
    /// Node of the core group.
    Node,
    /// ClusterInformation.
    Cluster,
}

/// Which objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All.
    All,
    /// Those a Kubernetes label selector selects.
    Labels(String),
    /// The one with this name.
    Name(String),
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The object does not exist.
    #[error("not found")]
    NotFound,
    /// Create: the object exists.
    #[error("already exists")]
    AlreadyExists,
    /// Update or delete: the object is not at the revision that was read. Read again and decide anew.
    #[error("changed by somebody else")]
    Conflict,
    /// The API server refuses these credentials or this operation.
    #[error("not allowed: {0}")]
    Forbidden(String),
    /// The API server refuses the object.
    #[error("refused: {0}")]
    Invalid(String),
    /// A write whose outcome is unknown: the reply was lost. Read the object back before doing anything else.
    #[error("outcome unknown: {0}")]
    Ambiguous(String),
    /// The API server cannot be reached or does not answer; nothing was changed.
    #[error("API server not available: {0}")]
    Unavailable(String),
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub enum Change {
    /// The whole current set: at the start, and again whenever the watch had to begin anew.
    Restart(Vec<Value>),
    /// Created or changed.
    Applied(Value),
    /// Deleted; the last known state.
    Deleted(Value),
    /// The watch is interrupted and retried.
    Failed(StoreError),
}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A revisioned store of the kinds of [`Kind`].
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reads one object.
    fn get<'a>(&'a self, kind: Kind, name: &'a str) -> BoxFuture<'a, Result<Value>>;
    /// Reads the selected objects, ordered by name.
    fn list<'a>(&'a self, kind: Kind, filter: &'a Filter) -> BoxFuture<'a, Result<Vec<Value>>>;
    /// Names of all objects of a kind, without their content; may be a moment old.
    fn names(&self, kind: Kind) -> BoxFuture<'_, Result<Vec<String>>>;
    /// Creates an object and returns it as stored.
    fn create(&self, kind: Kind, object: Value) -> BoxFuture<'_, Result<Value>>;
    /// Replaces an object if it is still at the `metadata.resourceVersion` given, and returns it as stored.
    fn update(&self, kind: Kind, object: Value) -> BoxFuture<'_, Result<Value>>;
    /// Deletes an object if it still has this UID and resource version.
    fn delete<'a>(
        &'a self,
        kind: Kind,
        name: &'a str,
        uid: &'a str,
        version: &'a str,
    ) -> BoxFuture<'a, Result<()>>;
    /// Follows the selected objects. The stream never ends by itself.
    fn watch(&self, kind: Kind, filter: Filter) -> BoxStream<'static, Change>;
}

/// A type of one of the kinds.
pub trait Stored:
    Resource<DynamicType = ()>
    + Serialize
    + DeserializeOwned
    + Clone
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// Its kind.
    const KIND: Kind;

    /// True for an object whose deletion has begun in the two-step way of older writers; it counts as absent.
    fn is_tombstone(&self) -> bool {
        false
    }
}

macro_rules! stored {
    ($($type:ty => $kind:ident $(, $tombstone:expr)?;)+) => {
        $(impl Stored for $type {
            const KIND: Kind = Kind::$kind;
            $(fn is_tombstone(&self) -> bool {
                let judge: fn(&Self) -> bool = $tombstone;
                judge(self)
            })?
        })+
    };
}

stored! {
    IPPool => Pool;
    IPAMBlock => Block, |block| block.spec.deleted == Some(true);
    BlockAffinity => Affinity, |affinity| affinity.spec.deleted;
    IPAMHandle => Handle, |handle| handle.spec.deleted == Some(true);
    IPAMConfiguration => Configuration;
    IPReservation => Reservation;
    Node => Node;
    ClusterInformation => Cluster;
}

/// Reads a JSON object as a type.
///
/// # Errors
/// The object has another shape; the message names the place.
pub fn decode<K: Stored>(value: Value) -> Result<K> {
    serde_json::from_value(value)
        .map_err(|error| StoreError::Invalid(format!("{}: {error}", K::kind(&()))))
}

/// Writes a typed object as JSON.
///
/// # Errors
/// The object cannot be written, which only maps with keys that are not text can cause.
pub fn encode<K: Stored>(object: &K) -> Result<Value> {
    serde_json::to_value(object)
        .map_err(|error| StoreError::Invalid(format!("{}: {error}", K::kind(&()))))
}

impl dyn Store {
    /// Reads one object; absent when it does not exist or is a tombstone, whose deletion is then completed.
    ///
    /// # Errors
    /// As the store reports them, except [`StoreError::NotFound`].
    pub async fn read<K: Stored>(&self, name: &str) -> Result<Option<K>> {
        let object: K = match self.get(K::KIND, name).await {
            Ok(value) => decode(value)?,
            Err(StoreError::NotFound) => return Ok(None),
            Err(error) => return Err(error),
        };
        if object.is_tombstone() {
            self.bury(&object).await;
            return Ok(None);
        }
        Ok(Some(object))
    }

    /// Reads the selected objects without tombstones. Objects that cannot be understood are left out and logged.
    ///
    /// # Errors
    /// As the store reports them.
    pub async fn read_all<K: Stored>(&self, filter: &Filter) -> Result<Vec<K>> {
        Ok(decode_all(self.list(K::KIND, filter).await?))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// As the store reports them. A tombstone in the way is removed first.
    pub async fn put_new<K: Stored>(&self, object: &K) -> Result<K> {
        match self.create(K::KIND, encode(object)?).await {
            Err(StoreError::AlreadyExists)
                if self.read::<K>(&object.name_any()).await?.is_none() =>
            {
                decode(self.create(K::KIND, encode(object)?).await?)
            }
            created => decode(created?),
        }
    }

    /// Replaces an object at the revision it carries. An object somebody deleted meanwhile is a conflict.
    ///
    /// # Errors
    /// As the store reports them, except [`StoreError::NotFound`].
    pub async fn put<K: Stored>(&self, object: &K) -> Result<K> {
        match self.update(K::KIND, encode(object)?).await {
            Err(StoreError::NotFound) => Err(StoreError::Conflict),
            updated => decode(updated?),
        }
    }

    /// Deletes an object at the revision it carries. An object that is gone already counts as deleted.
    ///
    /// # Errors
    /// As the store reports them, except [`StoreError::NotFound`].
    pub async fn remove<K: Stored>(&self, object: &K) -> Result<()> {
        let meta = object.meta();
        let uid = meta.uid.as_deref().unwrap_or_default();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        match self.delete(K::KIND, &object.name_any(), uid, version).await {
            Err(StoreError::NotFound) => Ok(()),
            other => other,
        }
    }

    /// Completes a deletion another writer began. Best effort: whoever meets the object next tries again.
    async fn bury<K: Stored>(&self, object: &K) {
        if let Err(error) = self.remove(object).await {
            tracing::debug!(kind = %K::kind(&()), name = %object.name_any(), %error, "tombstone stays");
        }
    }
}

/// Typed objects out of a list, without tombstones and without objects that cannot be understood.
pub fn decode_all<K: Stored>(values: Vec<Value>) -> Vec<K> {
    values
        .into_iter()
        .filter_map(|value| match decode::<K>(value) {
            Ok(object) => Some(object),
            Err(error) => {
                tracing::warn!(%error, "object left out");
                None
            }
        })
        .filter(|object| !object.is_tombstone())
        .collect()
}
