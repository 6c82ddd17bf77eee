//! Deleting a namespace removes what is in it, then the namespace itself.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::admission::metadata::has_finalizers;
use crate::http::App;
use crate::resource::core::NAMESPACES;
use crate::store::{Expect, Stored, Write};

/// Runs until stopped: after every change, namespaces being deleted are looked at again.
pub(crate) async fn clean_up(app: Arc<App>, stop: CancellationToken) {
    let mut changed = app.store.subscribe();
    loop {
        changed.mark_unchanged();
        let (namespaces, _) = app.store.list(NAMESPACES, None);
        for namespace in namespaces {
            if namespace.object["metadata"]["deletionTimestamp"].is_string() {
                empty(&app, &namespace).await;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            result = changed.changed() => if result.is_err() { return },
        }
    }
}

/// Removes content; when nothing is left, gives the namespace's finalizer up.
async fn empty(app: &App, namespace: &Arc<Stored>) {
    let catalog = app.live.current();
    let mut storages: Vec<_> = catalog
        .all()
        .filter(|r| r.namespaced)
        .map(|r| Arc::clone(&r.storage))
        .collect();
    storages.sort();
    storages.dedup();
    let name = &namespace.key.name;
    let mut left = 0;
    for storage in storages {
        let (objects, _) = app.store.list(&storage, Some(name));
        for object in objects {
            // A write that fails is tried again after the change that made it fail.
            left += usize::from(!remove(app, &object).await);
        }
    }
    if left > 0 {
        return;
    }
    let mut object = namespace.object.clone();
    object["spec"]["finalizers"] = json!([]);
    let object = has_finalizers(&object).then_some(object);
    if object.as_ref() == Some(&namespace.object) {
        return;
    }
    let expect = Expect::Revision(namespace.revision);
    let _ = app
        .store
        .write(Write::new(namespace.key.clone(), expect, object))
        .await;
}

/// Deletes one object; true when it is gone.
pub(crate) async fn remove(app: &App, stored: &Arc<Stored>) -> bool {
    let object = if has_finalizers(&stored.object) {
        if stored.object["metadata"]["deletionTimestamp"].is_string() {
            return false;
        }
        Some(mark_deleted(stored.object.clone()))
    } else {
        None
    };
    let gone = object.is_none();
    let expect = Expect::Revision(stored.revision);
    let write = Write::new(stored.key.clone(), expect, object);
    app.store.write(write).await.is_ok() && gone
}

/// Sets the deletion timestamp; what has finalizers goes when they are gone.
pub(crate) fn mark_deleted(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = crate::admission::now().into();
    object["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = (generation + 1).into();
    }
    if object["kind"] == "Namespace" {
        object["status"]["phase"] = "Terminating".into();
    }
    object
}
