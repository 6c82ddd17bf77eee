//! OpenAPI documents: v3 per group and version, v2 as a whole. Made on demand and kept until a CRD changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Response;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::Call;
use super::reply::{self, Body};
use crate::resource::Resource;
use crate::resource::catalog::Catalog;
use crate::schema::core_kinds::REF;
use crate::status::ApiError;

/// Rendered documents of one generation of the catalog, by path.
#[derive(Debug, Default)]
pub(super) struct Documents(Mutex<(u64, HashMap<String, Bytes>)>);

impl Documents {
    fn get(&self, catalog: &Catalog, path: &str, make: impl FnOnce() -> Value) -> Bytes {
        {
            let documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if documents.0 == catalog.generation
                && let Some(known) = documents.1.get(path)
            {
                return known.clone();
            }
        }
        let made = Bytes::from(make().to_string());
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if documents.0 < catalog.generation {
            *documents = (catalog.generation, HashMap::new());
        }
        if documents.0 == catalog.generation {
            documents.1.insert(path.to_owned(), made.clone());
        }
        made
    }
}

fn document_paths(catalog: &Catalog) -> impl Iterator<Item = (String, &Vec<Arc<Resource>>)> {
    catalog.groups.iter().flat_map(|(group, versions)| {
        versions.iter().map(move |(version, list)| {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            (path, list)
        })
    })
}

/// `/openapi/v3`: where the documents are. The hash changes when a CRD of the group does.
pub(super) fn v3_index(call: &Call) -> Response<Body> {
    let catalog = call.app.live.current();
    let index = call.app.documents.get(&catalog, "v3", || {
        let mut paths = Map::new();
        for (path, list) in document_paths(&catalog) {
            let mut digest = Sha256::new();
            digest.update(env!("CARGO_PKG_VERSION"));
            for resource in list {
                digest.update(resource.plural.as_bytes());
                if let Some(raw) = resource.schema.raw() {
                    digest.update(raw.to_string());
                }
            }
            let hash: String = digest
                .finalize()
                .iter()
                .map(|b| format!("{b:02X}"))
                .collect();
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
        json!({ "paths": paths })
    });
    reply::bytes(200, "application/json", index)
}

/// One v3 document.
pub(super) fn v3(call: &Call, path: &str) -> Result<Response<Body>, ApiError> {
    let catalog = call.app.live.current();
    let (_, list) = document_paths(&catalog)
        .find(|(known, _)| known == path)
        .ok_or_else(ApiError::no_such_path)?;
    let document = call.app.documents.get(&catalog, path, || {
        let mut schemas = Map::new();
        let mut paths = Map::new();
        for resource in list {
            let (name, definitions) = resource.schema.definitions();
            for (name, definition) in definitions {
                schemas.entry(name).or_insert(definition);
            }
            schemas.insert(list_name(&name), list_schema(resource, &name));
            add_paths(&mut paths, resource, &name);
        }
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "v1.37.0"},
            "paths": paths,
            "components": {"schemas": schemas},
        })
    });
    Ok(reply::bytes(200, "application/json", document))
}

/// `/openapi/v2` as JSON; the protobuf form is not offered and clients fall back to v3.
pub(super) fn v2(call: &Call) -> Result<Response<Body>, ApiError> {
    if !call.accept.json() {
        return Err(ApiError::not_acceptable("application/json"));
    }
    let catalog = call.app.live.current();
    let document = call.app.documents.get(&catalog, "v2", || {
        let mut definitions = Map::new();
        let mut paths = Map::new();
        for resource in catalog.all() {
            let (name, own) = resource.schema.definitions();
            for (name, definition) in own {
                definitions.entry(name).or_insert_with(|| to_v2(definition));
            }
            definitions.insert(list_name(&name), to_v2(list_schema(resource, &name)));
            paths.insert(collection_path(resource), json!({}));
        }
        json!({
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": "v1.37.0"},
            "paths": paths,
            "definitions": definitions,
        })
    });
    Ok(reply::bytes(200, "application/json", document))
}

/// OpenAPI 2 has other references and no `nullable`, `anyOf`, `oneOf`, `not`.
fn to_v2(mut schema: Value) -> Value {
    fn walk(schema: &mut Value) {
        match schema {
            Value::Object(map) => {
                for unknown in [
                    "nullable",
                    "anyOf",
                    "oneOf",
                    "not",
                    "x-kubernetes-validations",
                ] {
                    map.shift_remove(unknown);
                }
                if let Some(Value::String(reference)) = map.get_mut("$ref") {
                    *reference = format!("#/definitions/{}", reference.trim_start_matches(REF));
                }
                map.values_mut().for_each(walk);
            }
            Value::Array(list) => list.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut schema);
    schema
}

fn list_name(name: &str) -> String {
    format!("{name}List")
}

fn list_schema(resource: &Resource, item: &str) -> Value {
    json!({
        "description": format!("{} is a list of {}", resource.list_kind, resource.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "items": {"type": "array", "items": {"allOf": [{"$ref": format!("{REF}{item}")}]}},
            "metadata": {"type": "object"},
        },
        "x-kubernetes-group-version-kind": [
            {"group": resource.group, "version": resource.version, "kind": resource.list_kind}],
    })
}

fn collection_path(resource: &Resource) -> String {
    let base = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let scope = if resource.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    format!("{base}{scope}/{}", resource.plural)
}

/// The operations kubectl looks for before it uses server-side dry-run and field validation.
fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, name: &str) {
    let gvk = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let reference = json!({"$ref": format!("{REF}{name}")});
    let parameter = |name: &str, kind: &str| json!({"name": name, "in": "query", "schema": {"type": kind, "uniqueItems": true}});
    let writing = json!([
        parameter("dryRun", "string"),
        parameter("fieldManager", "string"),
        parameter("fieldValidation", "string"),
    ]);
    let mut patching = writing.clone();
    if let Some(list) = patching.as_array_mut() {
        list.push(parameter("force", "boolean"));
    }
    let media = |kind: &str| json!({kind: {"schema": reference}});
    let operation = |action: &str, parameters: &Value, body: Option<&str>| {
        let mut operation = json!({
            "operationId": format!("{action}{}{}", resource.version, resource.kind),
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": media("application/json")}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        });
        if let Some(body) = body {
            operation["requestBody"] = json!({"content": media(body), "required": true});
        }
        operation
    };
    let none = json!([]);
    let collection = collection_path(resource);
    let item = format!("{collection}/{{name}}");
    paths.insert(
        collection,
        json!({
            "get": operation("list", &none, None),
            "post": operation("post", &writing, Some("application/json")),
            "delete": operation("deletecollection", &none, None),
        }),
    );
    let mut patch = operation("patch", &patching, None);
    let mut content = json!({});
    for kind in patch_types(resource) {
        content[*kind] = json!({"schema": {"type": "object"}});
    }
    patch["requestBody"] = json!({"content": content, "required": true});
    paths.insert(
        item,
        json!({
            "get": operation("get", &none, None),
            "put": operation("put", &writing, Some("application/json")),
            "patch": patch,
            "delete": operation("delete", &writing, None),
        }),
    );
}

/// Media types of patches a resource takes.
pub(super) fn patch_types(resource: &Resource) -> &'static [&'static str] {
    const ALL: &[&str] = &[
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
        "application/strategic-merge-patch+json",
    ];
    if resource.custom { &ALL[..3] } else { ALL }
}
