//! `get` and `list`.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use serde_json::{Value, json};

use super::Call;
use super::continuation::{self, Rest};
use super::negotiate::View;
use super::reply::{self, Body};
use super::target::ResourcePath;
use crate::resource::{Conversion, Resource};
use crate::selector::Selector;
use crate::status::ApiError;
use crate::store::{Key, Stored};
use crate::table::{self, Include};

/// The stored object at a path.
pub(super) fn find(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
) -> Result<Arc<Stored>, ApiError> {
    let key = Key::new(Arc::clone(&resource.storage), path.namespace(), name);
    let found = call.app.store.get(&key);
    found.ok_or_else(|| ApiError::not_found(&resource.group, &resource.plural, name))
}

/// `GET` of one object.
pub(super) fn get(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    name: &str,
) -> Result<Response<Body>, ApiError> {
    let view = call.accept.view()?;
    let stored = find(call, resource, path, name)?;
    if view == View::Object && resource.conversion == Conversion::None {
        return Ok(reply::bytes(200, "application/json", stored.json.clone()));
    }
    let object = resource.to_served(stored.object.clone());
    show(call, resource, &object, 200)
}

/// An object in the view the client wants.
pub(super) fn show(
    call: &Call,
    resource: &Resource,
    object: &Value,
    code: u16,
) -> Result<Response<Body>, ApiError> {
    Ok(match call.accept.view()? {
        View::Object => reply::with_code(code, object),
        View::Metadata => reply::with_code(code, &table::partial_metadata(object)),
        View::Table => {
            let row = table::row(resource, object, include(call)?, jiff::Timestamp::now());
            let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            let definitions = Some(table::definitions(resource));
            reply::with_code(code, &table::table(definitions, vec![row], metadata))
        }
    })
}

/// The `includeObject` parameter.
pub(super) fn include(call: &Call) -> Result<Include, ApiError> {
    match call.query.include_object.as_str() {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::None),
        "Object" => Ok(Include::Object),
        other => Err(ApiError::bad_request(format!(
            "unsupported includeObject {other}"
        ))),
    }
}

/// Objects a list or watch starts from, and their revision.
pub(super) fn selected(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
    selector: &Selector,
) -> (Vec<Arc<Stored>>, u64) {
    let (mut objects, revision) = match (selector.name(), path.namespace()) {
        // One name: no need to walk over all.
        (Some(name), namespace) if !resource.namespaced || !namespace.is_empty() => {
            let revision = call.app.store.revision();
            let key = Key::new(Arc::clone(&resource.storage), namespace, name);
            let found = call.app.store.get(&key);
            let newer = found.as_ref().map_or(0, |f| f.revision);
            (found.into_iter().collect(), revision.max(newer))
        }
        _ => call
            .app
            .store
            .list(&resource.storage, path.namespace.as_deref()),
    };
    if !selector.is_empty() {
        objects.retain(|o| matches(resource, selector, &o.object));
    }
    (objects, revision)
}

/// Whether a stored object is selected in the served version.
pub(super) fn matches(resource: &Resource, selector: &Selector, object: &Value) -> bool {
    match resource.conversion {
        Conversion::Events if !selector.is_empty() => {
            selector.matches(&resource.to_served(object.clone()))
        }
        _ => selector.matches(object),
    }
}

/// `GET` of a collection.
pub(super) fn list(
    call: &Call,
    resource: &Resource,
    path: &ResourcePath,
) -> Result<Response<Body>, ApiError> {
    let view = call.accept.view()?;
    let query = &call.query;
    let selector = Selector::parse(&query.label_selector, &query.field_selector, resource)?;
    let scope = format!(
        "{} {:?} {} {}",
        resource.storage, path.namespace, query.label_selector, query.field_selector
    );
    if !query.continuation.is_empty() {
        if !matches!(query.resource_version.as_str(), "" | "0") {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (id, offset, rest) = call.app.pages.find(&query.continuation, &scope)?;
        let objects = rest.objects.get(offset..).unwrap_or_default();
        let (page, left) = split(objects, query.limit);
        let next = (left > 0).then(|| continuation::token(id, offset + page.len()));
        return render(call, resource, view, page, rest.revision, next, left);
    }
    let (objects, revision) = selected(call, resource, path, &selector);
    if let Some(asked) = query.revision() {
        let exact = query.resource_version_match == "Exact" && asked != revision;
        if asked > revision || exact {
            return Err(ApiError::expired(format!(
                "the resource version {asked} is not available, the current one is {revision}"
            )));
        }
    }
    let (page, left) = split(&objects, query.limit);
    let next = (left > 0).then(|| {
        let objects = objects[page.len()..].to_vec();
        call.app.pages.keep(Rest {
            objects,
            revision,
            scope,
        })
    });
    render(call, resource, view, page, revision, next, left)
}

fn split(objects: &[Arc<Stored>], limit: usize) -> (&[Arc<Stored>], usize) {
    let size = if limit == 0 {
        objects.len()
    } else {
        limit.min(objects.len())
    };
    (&objects[..size], objects.len() - size)
}

fn render(
    call: &Call,
    resource: &Resource,
    view: View,
    objects: &[Arc<Stored>],
    revision: u64,
    next: Option<String>,
    left: usize,
) -> Result<Response<Body>, ApiError> {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if let Some(next) = next {
        metadata["continue"] = next.into();
        metadata["remainingItemCount"] = left.into();
    }
    let served = |o: &Arc<Stored>| resource.to_served(o.object.clone());
    Ok(match view {
        View::Object => {
            let kind = json!(resource.list_kind);
            let version = json!(resource.api_version());
            let head = format!(
                r#"{{"kind":{kind},"apiVersion":{version},"metadata":{metadata},"items":["#
            );
            let content = join(&head, objects, |o| match resource.conversion {
                Conversion::None => o.json.clone(),
                _ => Bytes::from(served(o).to_string()),
            });
            reply::bytes(200, "application/json", content)
        }
        View::Metadata => {
            let head = format!(
                r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{metadata},"items":["#
            );
            let item =
                |o: &Arc<Stored>| Bytes::from(table::partial_metadata(&o.object).to_string());
            reply::bytes(200, "application/json", join(&head, objects, item))
        }
        View::Table => {
            let (include, now) = (include(call)?, jiff::Timestamp::now());
            let rows = objects
                .iter()
                .map(|o| match resource.conversion {
                    Conversion::None => table::row(resource, &o.object, include, now),
                    _ => table::row(resource, &served(o), include, now),
                })
                .collect();
            reply::json(&table::table(
                Some(table::definitions(resource)),
                rows,
                metadata,
            ))
        }
    })
}

fn join(head: &str, objects: &[Arc<Stored>], item: impl Fn(&Arc<Stored>) -> Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(head.len() + objects.len() * 1024);
    out.put_slice(head.as_bytes());
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            out.put_u8(b',');
        }
        out.put_slice(&item(object));
    }
    out.put_slice(b"]}");
    out.freeze()
}
