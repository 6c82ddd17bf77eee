//! Dependents of owners that are gone (Kubernetes "Garbage Collection"): an object goes with its last owner.
//!
//! Only the end of an owner starts a clean-up; an object made with an owner that never existed stays.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::http::App;
use crate::namespaces::remove;
use crate::store::{Expect, Key, Write};

/// Runs until stopped.
pub(crate) async fn collect(app: Arc<App>, stop: CancellationToken) {
    let mut changed = app.store.subscribe();
    loop {
        changed.mark_unchanged();
        for owner in app.store.take_gone_owners() {
            for key in app.store.dependents(&owner) {
                release(&app, &key, &owner, Release::Delete).await;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            result = changed.changed() => if result.is_err() { return },
        }
    }
}

/// What becomes of a dependent without owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Release {
    /// It is deleted.
    Delete,
    /// It lives on.
    Orphan,
}

/// Takes `owner` from an object's owners; what happens to one that has no other is up to `release`.
pub(crate) async fn release(app: &App, key: &Key, owner: &str, release: Release) {
    // Tried again when somebody else writes meanwhile.
    while let Some(stored) = app.store.get(key) {
        let mut object = stored.object.clone();
        let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() else {
            return;
        };
        if !owners.iter().any(|o| o["uid"] == owner) {
            return;
        }
        owners.retain(|o| o["uid"] != owner);
        let last = owners.is_empty();
        if last && release == Release::Delete {
            remove(app, &stored).await;
        } else {
            if last && let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.shift_remove("ownerReferences");
            }
            let expect = Expect::Revision(stored.revision);
            let _ = app
                .store
                .write(Write::new(key.clone(), expect, Some(object)))
                .await;
        }
        let same = |now: &Value| {
            now["metadata"]["resourceVersion"] == stored.object["metadata"]["resourceVersion"]
        };
        match app.store.get(key) {
            // Nothing was written: held by finalizers already, or the disk is full.
            Some(now) if same(&now.object) => return,
            Some(now) if now.object["metadata"]["deletionTimestamp"].is_string() => return,
            _ => {}
        }
    }
}
