//! `create`, `update`, `patch`.

use std::sync::Arc;

use http::Response;
use hyper::body::Incoming;
use serde_json::Value;

use super::reply::{self, Body};
use super::target::ResourcePath;
use super::{Call, body, openapi, read};
use crate::admission::policies::{BINDINGS, POLICIES, Review};
use crate::admission::{self, Admitted, Part, Request, patch, strategic};
use crate::resource::Resource;
use crate::resource::core::{CRDS, NAMESPACES};
use crate::status::ApiError;
use crate::store::{Expect, Key, Stored, Write, WriteError};

/// How often a patch is tried again when others change the object meanwhile.
const RETRIES: usize = 50;
/// Media type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// The manager of a write's fields: as given, else the program's name.
pub(super) fn manager(call: &Call) -> String {
    let given = &call.query.field_manager;
    if !given.is_empty() {
        return given.clone();
    }
    let program = call.user_agent.split('/').next().unwrap_or_default();
    if program.is_empty() {
        "unknown".into()
    } else {
        program.chars().take(128).collect()
    }
}

fn part(path: &ResourcePath) -> Part {
    match path.subresource.as_deref() {
        Some("status") => Part::Status,
        Some("finalize") => Part::Finalize,
        _ => Part::Main,
    }
}

/// Refuses new objects in namespaces that do not exist or are on their way out; returns the namespace as it is.
fn check_namespace(call: &Call, path: &ResourcePath) -> Result<Option<(Key, u64)>, ApiError> {
    let Some(name) = &path.namespace else {
        return Ok(None);
    };
    let key = Key::new(NAMESPACES, "", name);
    let Some(namespace) = call.app.store.get(&key) else {
        return Err(ApiError::not_found("", "namespaces", name));
    };
    if namespace.object["metadata"]["deletionTimestamp"].is_string() {
        return Err(ApiError::forbidden(format!(
            "unable to create new content in namespace {name} because it is being terminated"
        )));
    }
    Ok(Some((key, namespace.revision)))
}

/// Lets the admission policies see a write; returns their warnings.
pub(super) fn review(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<String>, ApiError> {
    let (policies, _) = call.app.store.list(POLICIES, None);
    // Policies can always be repaired: none of them holds for policies and bindings.
    if policies.is_empty() || resource.group == "admissionregistration.k8s.io" {
        return Ok(Vec::new());
    }
    let (bindings, _) = call.app.store.list(BINDINGS, None);
    let bindings: Vec<&Value> = bindings.iter().map(|b| &b.object).collect();
    let namespace = path
        .namespace
        .as_ref()
        .and_then(|n| call.app.store.get(&Key::new(NAMESPACES, "", n)));
    let name = object
        .or(old)
        .and_then(|o| o["metadata"]["name"].as_str())
        .unwrap_or_default();
    let review = Review {
        operation: match (object, old) {
            (Some(_), None) => "CREATE",
            (Some(_), Some(_)) => "UPDATE",
            (None, _) => "DELETE",
        },
        resource,
        subresource: path.subresource.as_deref().unwrap_or_default(),
        name,
        namespace: namespace.as_ref().map(|n| &n.object),
        object,
        old,
        dry_run: call.query.dry_run,
        identity: &call.identity,
    };
    review.run(policies.iter().map(|p| &p.object), &bindings)
}

/// `POST`.
pub(super) async fn create(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    if resource.namespaced && path.namespace.is_none() {
        return Err(ApiError::method_not_allowed());
    }
    call.accept.view()?;
    let body = body::decode(call, &body::read(incoming).await?)?;
    store_new(call, resource, path, |request| request.create(body)).await
}

async fn store_new(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    admit: impl FnOnce(&Request<'_>) -> Result<Admitted, ApiError>,
) -> Result<Response<Body>, ApiError> {
    let mut requires = check_namespace(call, path)?;
    let (manager, now) = (manager(call), admission::now());
    let request = request(call, resource, path, &manager, &now);
    let mut admitted = admit(&request)?;
    admitted
        .warnings
        .extend(review(call, resource, path, Some(&admitted.object), None)?);
    let name = admitted.object["metadata"]["name"]
        .as_str()
        .unwrap_or_default();
    let key = Key::new(Arc::clone(&resource.storage), path.namespace(), name);
    if call.query.dry_run {
        if call.app.store.get(&key).is_some() {
            return Err(ApiError::already_exists(
                &resource.group,
                &resource.plural,
                name,
            ));
        }
        return answer(call, resource, admitted.object, &admitted.warnings, 201);
    }
    let object = resource.to_stored(admitted.object);
    let stored = loop {
        let write = Write {
            requires,
            ..Write::new(key.clone(), Expect::Absent, Some(object.clone()))
        };
        match call.app.store.write(write).await {
            // Somebody edited the namespace: look at it again.
            Err(WriteError::Outdated) => requires = check_namespace(call, path)?,
            result => break written(call, resource, &key, result)?,
        }
    };
    let object = resource.to_served(stored.object.clone());
    answer(call, resource, object, &admitted.warnings, 201)
}

fn request<'a>(
    call: &Call,
    resource: &'a Resource,
    path: &'a ResourcePath,
    manager: &'a str,
    now: &'a str,
) -> Request<'a> {
    Request {
        resource,
        namespace: path.namespace(),
        part: part(path),
        validation: call.query.field_validation,
        manager,
        now,
    }
}

fn answer(
    call: &Call,
    resource: &Resource,
    object: Value,
    warnings: &[String],
    code: u16,
) -> Result<Response<Body>, ApiError> {
    let mut response = read::show(call, resource, &object, code)?;
    reply::warn(&mut response, warnings);
    Ok(response)
}

/// Writes to the store.
pub(super) async fn commit(
    call: &Call,
    resource: &Resource,
    key: Key,
    expect: Expect,
    object: Option<Value>,
) -> Result<Arc<Stored>, ApiError> {
    let result = call
        .app
        .store
        .write(Write::new(key.clone(), expect, object))
        .await;
    written(call, resource, &key, result)
}

/// What a write's result means to its author; a changed definition is served before its author is answered.
fn written(
    call: &Call,
    resource: &Resource,
    key: &Key,
    result: Result<Arc<Stored>, WriteError>,
) -> Result<Arc<Stored>, ApiError> {
    let Resource { group, plural, .. } = resource;
    let stored = result.map_err(|error| match error {
        WriteError::Exists => ApiError::already_exists(group, plural, &key.name),
        WriteError::Changed | WriteError::Outdated => ApiError::conflict(
            group,
            plural,
            &key.name,
            "the object has been modified; please apply your changes to the latest version and try again",
        ),
        WriteError::Disk(cause) => ApiError::internal(format!("the store cannot write: {cause}")),
        WriteError::Closed => ApiError::unavailable("the server is stopping"),
    })?;
    if &*resource.storage == CRDS {
        call.app.refresh_catalog();
    }
    Ok(stored)
}

/// `PUT`.
pub(super) async fn replace(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    call.accept.view()?;
    let body = body::decode(call, &body::read(incoming).await?)?;
    let locked = body["metadata"]["resourceVersion"]
        .as_str()
        .is_some_and(|v| !v.is_empty());
    change(call, resource, path, name, locked, |old, request| {
        request.update(old, body.clone())
    })
    .await
}

/// `PATCH`.
pub(super) async fn patch(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
    incoming: Incoming,
) -> Result<Response<Body>, ApiError> {
    call.accept.view()?;
    let bytes = body::read(incoming).await?;
    let kind = body::media_type(call);
    if !openapi::patch_types(resource).contains(&kind) {
        return Err(ApiError::unsupported_media_type(
            &openapi::patch_types(resource).join(", "),
        ));
    }
    let force = call.query.force;
    if force && kind != APPLY {
        return Err(ApiError::bad_request(
            "force is only allowed for apply patches",
        ));
    }
    let mut locked = false;
    let object = match kind {
        "application/json-patch+json" => Value::Null,
        APPLY => body::yaml(&bytes)?,
        _ => body::json(&bytes)?,
    };
    if object["metadata"]["resourceVersion"].is_string() {
        locked = true;
    }
    match kind {
        "application/json-patch+json" => {
            change(call, resource, path, name, locked, |old, request| {
                request.update(old, patch::json_patch(old, &bytes)?)
            })
            .await
        }
        "application/strategic-merge-patch+json" => {
            change(call, resource, path, name, locked, |old, request| {
                let schema = resource.schema.compiled();
                request.update(old, strategic::strategic_merge(schema, old, &object)?)
            })
            .await
        }
        APPLY => apply(call, resource, path, name, locked, object).await,
        _ => {
            change(call, resource, path, name, locked, |old, request| {
                request.update(old, patch::merge_patch(old, &object))
            })
            .await
        }
    }
}

/// Server-side apply: changes the object, or makes it.
async fn apply(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
    locked: bool,
    config: Value,
) -> Result<Response<Body>, ApiError> {
    if call.query.field_manager.is_empty() {
        return Err(ApiError::bad_request(
            "fieldManager is required for apply patch",
        ));
    }
    let force = call.query.force;
    loop {
        let key = Key::new(Arc::clone(&resource.storage), path.namespace(), name);
        if call.app.store.get(&key).is_some() {
            return change(call, resource, path, name, locked, |old, request| {
                request.apply(Some(old), name, config.clone(), force)
            })
            .await;
        }
        if path.subresource.is_some() {
            return Err(ApiError::not_found(&resource.group, &resource.plural, name));
        }
        let admit = |request: &Request<'_>| request.apply(None, name, config.clone(), force);
        match store_new(call, resource, path, admit).await {
            // Somebody else made it meanwhile.
            Err(error) if error.reason == "AlreadyExists" && !call.query.dry_run => {}
            result => return result,
        }
    }
}

/// Reads, computes, admits and writes; starts over when somebody was faster, unless the client gave a version.
async fn change(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
    locked: bool,
    admit: impl Fn(&Value, &Request<'_>) -> Result<Admitted, ApiError>,
) -> Result<Response<Body>, ApiError> {
    let manager = manager(call);
    let mut attempts = 0;
    loop {
        let stored = read::find(call, resource, path, name)?;
        let old = resource.to_served(stored.object.clone());
        let now = admission::now();
        let request = request(call, resource, path, &manager, &now);
        let Admitted {
            object,
            mut warnings,
            remove,
        } = admit(&old, &request)?;
        warnings.extend(review(call, resource, path, Some(&object), Some(&old))?);
        if call.query.dry_run || (!remove && admission::unchanged(&old, &object)) {
            let shown = if call.query.dry_run { object } else { old };
            return answer(call, resource, shown, &warnings, 200);
        }
        let content = (!remove).then(|| resource.to_stored(object.clone()));
        let expect = Expect::Revision(stored.revision);
        match commit(call, resource, stored.key.clone(), expect, content).await {
            Ok(_) if remove => return answer(call, resource, object, &warnings, 200),
            Ok(stored) => {
                let object = resource.to_served(stored.object.clone());
                return answer(call, resource, object, &warnings, 200);
            }
            Err(error) if error.reason == "Conflict" && !locked && attempts < RETRIES => {
                attempts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}
