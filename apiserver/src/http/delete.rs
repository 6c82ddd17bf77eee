//! `delete` and `deletecollection`.

use std::sync::Arc;

use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::reply::{self, Body};
use super::target::ResourcePath;
use super::write::{commit, review};
use super::{Call, body, read};
use crate::admission::metadata::has_finalizers;
use crate::garbage::{Release, release};
use crate::namespaces::mark_deleted;
use crate::resource::Resource;
use crate::resource::core::{CRDS, NAMESPACES};
use crate::selector::Selector;
use crate::status::ApiError;
use crate::store::{Expect, Stored, Write, WriteError};

/// Namespaces every cluster has.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// `DeleteOptions`, from the body or the query.
#[derive(Debug, Default)]
struct Options {
    uid: Option<String>,
    revision: Option<String>,
    dry_run: bool,
    policy: Policy,
}

/// What happens to dependents (`propagationPolicy`).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// They go after their owner.
    #[default]
    Background,
    /// They go before their owner, which does not wait for finalizers of theirs.
    Foreground,
    /// They stay, without the owner.
    Orphan,
}

async fn options(call: &Call, incoming: Incoming) -> Result<Options, ApiError> {
    let bytes = body::read(incoming).await?;
    let body = if bytes.is_empty() {
        Value::Null
    } else {
        body::decode(call, &bytes)?
    };
    let text = |pointer: &str| {
        body.pointer(pointer)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let policy =
        text("/propagationPolicy").unwrap_or_else(|| call.query.propagation_policy.clone());
    let policy = match policy.as_str() {
        "" | "Background" => Policy::Background,
        "Foreground" => Policy::Foreground,
        "Orphan" => Policy::Orphan,
        other => {
            return Err(ApiError::unprocessable(format!(
                "DeleteOptions is invalid: propagationPolicy: Unsupported value: \"{other}\": supported values: \"Foreground\", \"Background\", \"Orphan\""
            )));
        }
    };
    let grace = body["gracePeriodSeconds"]
        .as_i64()
        .or(call.query.grace_period);
    if grace.is_some_and(|g| g < 0) {
        return Err(ApiError::unprocessable(
            "gracePeriodSeconds must be 0 or greater",
        ));
    }
    let dry_run = body["dryRun"]
        .as_array()
        .is_some_and(|l| l.iter().any(|v| v == "All"));
    Ok(Options {
        uid: text("/preconditions/uid"),
        revision: text("/preconditions/resourceVersion"),
        dry_run: dry_run || call.query.dry_run,
        policy,
    })
}

/// `DELETE` of one object.
pub(super) async fn delete(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    if path.subresource.is_some() {
        return Err(ApiError::method_not_allowed());
    }
    let options = options(call, incoming).await?;
    if &*resource.storage == NAMESPACES && IMMORTAL.contains(&name) {
        return Err(ApiError::forbidden(format!(
            "namespaces \"{name}\" is forbidden: this namespace may not be deleted"
        )));
    }
    let mut warnings;
    let (stored, gone) = loop {
        let stored = read::find(call, resource, path, name)?;
        check_preconditions(resource, name, &stored, &options)?;
        let old = resource.to_served(stored.object.clone());
        warnings = review(call, resource, path, None, Some(&old))?;
        match remove(call, resource, &stored, &options).await {
            Err(error) if error.reason == "Conflict" && options.revision.is_none() => {}
            result => break result?,
        }
    };
    if !gone {
        let mut response = read::show(
            call,
            resource,
            &resource.to_served(stored.object.clone()),
            200,
        )?;
        reply::warn(&mut response, &warnings);
        return Ok(response);
    }
    let mut details =
        json!({"name": name, "kind": resource.plural, "uid": stored.object["metadata"]["uid"]});
    if !resource.group.is_empty() {
        details["group"] = resource.group.as_str().into();
    }
    let mut response = reply::json(&json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }));
    reply::warn(&mut response, &warnings);
    Ok(response)
}

fn check_preconditions(
    resource: &Resource,
    name: &str,
    stored: &Stored,
    options: &Options,
) -> Result<(), ApiError> {
    let metadata = &stored.object["metadata"];
    let checks = [
        ("UID", "uid", &options.uid),
        ("ResourceVersion", "resourceVersion", &options.revision),
    ];
    for (label, field, wanted) in checks {
        let Some(wanted) = wanted else { continue };
        let actual = metadata[field].as_str().unwrap_or_default();
        if actual != wanted {
            let why = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record ({actual}). The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(
                &resource.group,
                &resource.plural,
                name,
                &why,
            ));
        }
    }
    Ok(())
}

/// Removes the object, or marks it when finalizers hold it. Returns what is left or was, and whether it is gone.
async fn remove(
    call: &Call,
    resource: &Resource,
    stored: &Arc<Stored>,
    options: &Options,
) -> Result<(Arc<Stored>, bool), ApiError> {
    let held = has_finalizers(&stored.object);
    if held && stored.object["metadata"]["deletionTimestamp"].is_string() || options.dry_run {
        return Ok((Arc::clone(stored), !held));
    }
    if !held && &*resource.storage == CRDS {
        remove_instances(call, &stored.key.name).await?;
    }
    let owner = stored.object["metadata"]["uid"]
        .as_str()
        .unwrap_or_default();
    let first = match options.policy {
        Policy::Background => None,
        Policy::Foreground => Some(Release::Delete),
        Policy::Orphan => Some(Release::Orphan),
    };
    if let Some(first) = first {
        for key in call.app.store.dependents(owner) {
            release(&call.app, &key, owner, first).await;
        }
    }
    let object = held.then(|| mark_deleted(stored.object.clone()));
    let expect = Expect::Revision(stored.revision);
    let stored = commit(call, resource, stored.key.clone(), expect, object).await?;
    Ok((stored, !held))
}

/// The objects of a definition go before it does; nobody could reach them afterwards.
async fn remove_instances(call: &Call, name: &str) -> Result<(), ApiError> {
    let (objects, _) = call.app.store.list(name, None);
    let removals = objects.into_iter().map(|o| {
        let expect = Expect::Revision(o.revision);
        call.app
            .store
            .write(Write::new(o.key.clone(), expect, None))
    });
    for result in futures::future::join_all(removals).await {
        if let Err(WriteError::Disk(cause)) = result {
            return Err(ApiError::internal(format!(
                "the store cannot write: {cause}"
            )));
        }
    }
    Ok(())
}

/// `DELETE` of a collection: everything selected; answers with the list of what was there.
pub(super) async fn collection(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    let options = options(call, incoming).await?;
    let query = &call.query;
    let selector = Selector::parse(&query.label_selector, &query.field_selector, resource)?;
    let (mut objects, revision) = read::selected(call, resource, path, &selector);
    if &*resource.storage == NAMESPACES {
        objects.retain(|o| !IMMORTAL.contains(&&*o.key.name));
    }
    for object in &objects {
        let old = resource.to_served(object.object.clone());
        review(call, resource, path, None, Some(&old))?;
    }
    // All at once: the store commits them in groups.
    let removals = objects.iter().map(|o| remove(call, resource, o, &options));
    for result in futures::future::join_all(removals).await {
        match result {
            // Changed or deleted meanwhile: no longer the object that was selected.
            Err(error) if error.reason != "Conflict" => return Err(error),
            _ => {}
        }
    }
    let items: Vec<Value> = objects
        .iter()
        .map(|o| resource.to_served(o.object.clone()))
        .collect();
    Ok(reply::json(&json!({
        "kind": resource.list_kind,
        "apiVersion": resource.api_version(),
        "metadata": {"resourceVersion": revision.to_string()},
        "items": items,
    })))
}
