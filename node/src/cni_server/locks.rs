//! One call at a time for a container and for a pod; GC alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Locks by name, made on demand and forgotten when nobody holds or awaits them.
#[derive(Debug, Default)]
pub(super) struct Locks {
    by_name: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    /// Waits for the lock of a name. A caller that needs two takes the container's before the pod's.
    pub(super) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        let lock = {
            let mut by_name = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
            by_name.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(by_name.entry(name.to_owned()).or_default())
        };
        lock.lock_owned().await
    }
}

/// Shared by calls, exclusive for GC.
#[derive(Debug, Default)]
pub(super) struct GcLock(Arc<RwLock<()>>);

impl GcLock {
    pub(super) async fn shared(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.0).read_owned().await
    }

    pub(super) async fn exclusive(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0).write_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_are_independent_and_forgotten() {
        let locks = Locks::default();
        let first = locks.lock("a").await;
        let _second = locks.lock("b").await;
        let again = locks.lock("a");
        futures::pin_mut!(again);
        assert!(futures::poll!(&mut again).is_pending());
        drop(first);
        drop(again.await);
        let _third = locks.lock("c").await;
        assert!(!locks.by_name.lock().expect("lock").contains_key("a"));
    }
}
