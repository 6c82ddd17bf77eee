//! Counts of addresses per handle.

use std::collections::BTreeMap;

use ipnet::IpNet;
use margay_crds::{IPAMHandle, IPAMHandleSpec};

use super::{ATTEMPTS, WriteError};
use crate::names::handle_name;
use crate::store::{Store, StoreError};

/// Adds addresses of a block to a handle, before the block is written.
///
/// # Errors
/// As the store reports them. After [`StoreError::Ambiguous`] the handle may count too many, which is safe.
pub async fn increment_handle(
    store: &dyn Store,
    handle: &str,
    cidr: &IpNet,
    count: i64,
) -> Result<(), WriteError> {
    let name = handle_name(handle);
    for _ in 0..ATTEMPTS {
        let result = match store.read::<IPAMHandle>(&name).await? {
            None => {
                let spec = IPAMHandleSpec {
                    handle_id: handle.to_owned(),
                    block: BTreeMap::from([(cidr.to_string(), count)]),
                    deleted: Some(false),
                    ..IPAMHandleSpec::default()
                };
                store.put_new(&IPAMHandle::new(&name, spec)).await
            }
            Some(mut object) => {
                *object.spec.block.entry(cidr.to_string()).or_default() += count;
                written(store, object).await
            }
        };
        match result {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict | StoreError::AlreadyExists) => {}
            Err(StoreError::Ambiguous(reason)) => {
                // A new object that now counts what we wanted is ours: nobody else uses this handle for this block.
                let stored = store.read::<IPAMHandle>(&name).await;
                let stored = stored.map_err(|_| StoreError::Ambiguous(reason))?;
                let found =
                    stored.and_then(|object| object.spec.block.get(&cidr.to_string()).copied());
                if found == Some(count) {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(WriteError::Contended(name))
}

/// Takes addresses of a block off a handle, after the block was written. A handle without addresses is deleted; one that
/// does not exist or counts fewer is logged and left.
///
/// # Errors
/// As the store reports them; the handle then counts too many, which is safe.
pub async fn decrement_handle(
    store: &dyn Store,
    handle: &str,
    cidr: &IpNet,
    count: i64,
) -> Result<(), WriteError> {
    let name = handle_name(handle);
    let key = cidr.to_string();
    for _ in 0..ATTEMPTS {
        let Some(mut object) = store.read::<IPAMHandle>(&name).await? else {
            return Ok(());
        };
        let Some(counted) = object.spec.block.get_mut(&key) else {
            tracing::debug!(handle, block = %cidr, "handle does not know this block");
            return Ok(());
        };
        *counted -= count;
        if *counted <= 0 {
            object.spec.block.remove(&key);
        }
        let result = match object.spec.block.is_empty() {
            true => store.remove(&object).await,
            false => written(store, object).await.map(|_| ()),
        };
        match result {
            Ok(()) => return Ok(()),
            Err(StoreError::Conflict) => {}
            Err(StoreError::Ambiguous(_)) => {
                if store.read::<IPAMHandle>(&name).await?.is_none() {
                    // The deletion took effect, or was never needed.
                    return Ok(());
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(WriteError::Contended(name))
}

/// Writes a handle; a lost reply is resolved by reading it back.
async fn written(store: &dyn Store, object: IPAMHandle) -> Result<IPAMHandle, StoreError> {
    match store.put(&object).await {
        Err(StoreError::Ambiguous(reason)) => {
            let name = object.metadata.name.clone().unwrap_or_default();
            match store.read::<IPAMHandle>(&name).await {
                Ok(Some(stored)) if stored.spec == object.spec => Ok(stored),
                Ok(_) => Err(StoreError::Conflict),
                Err(_) => Err(StoreError::Ambiguous(reason)),
            }
        }
        other => other,
    }
}
