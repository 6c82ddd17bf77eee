//! What is served: legacy and aggregated discovery.

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::negotiate::Accept;
use super::reply::{self, Body};
use crate::resource::Resource;
use crate::resource::catalog::{Catalog, Version};
use crate::status::ApiError;

/// Clients compare the media type literally.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Verbs of every resource.
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// The Kubernetes version whose API is spoken.
const MINOR: &str = "37";

/// `/version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1",
        "minor": MINOR,
        "gitVersion": format!("v1.{MINOR}.0+margay.{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/`.
pub(super) fn root(catalog: &Catalog) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".into(), "/apis".into()];
    for (group, versions) in &catalog.groups {
        if !group.is_empty() {
            paths.push(format!("/apis/{group}"));
            paths.extend(versions.iter().map(|(v, _)| format!("/apis/{group}/{v}")));
        }
    }
    paths.extend(
        [
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned),
    );
    json!({ "paths": paths })
}

/// `/api`.
pub(super) fn api(catalog: &Catalog, accept: &Accept) -> Result<Response<Body>, ApiError> {
    if accept.aggregated_discovery() {
        return Ok(aggregated(catalog, |group| group.is_empty()));
    }
    Ok(reply::json(&json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })))
}

/// `/apis`.
pub(super) fn apis(catalog: &Catalog, accept: &Accept) -> Result<Response<Body>, ApiError> {
    if accept.aggregated_discovery() {
        return Ok(aggregated(catalog, |group| !group.is_empty()));
    }
    let groups: Vec<Value> = catalog
        .groups
        .iter()
        .filter(|(g, _)| !g.is_empty())
        .map(|(g, versions)| group_json(g, versions))
        .collect();
    Ok(reply::json(
        &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}),
    ))
}

fn group_json(group: &str, versions: &[Version]) -> Value {
    let version = |v: &str| json!({"groupVersion": format!("{group}/{v}"), "version": v});
    json!({
        "name": group,
        "versions": versions.iter().map(|(v, _)| version(v)).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(|(v, _)| version(v)),
    })
}

/// `/apis/GROUP`.
pub(super) fn group(catalog: &Catalog, group: &str) -> Result<Response<Body>, ApiError> {
    let versions = catalog
        .groups
        .get(group)
        .ok_or_else(ApiError::no_such_path)?;
    let mut answer = group_json(group, versions);
    answer["kind"] = "APIGroup".into();
    answer["apiVersion"] = "v1".into();
    Ok(reply::json(&answer))
}

/// `/api/v1`, `/apis/GROUP/VERSION`.
pub(super) fn group_version(
    catalog: &Catalog,
    group: &str,
    version: &str,
) -> Result<Response<Body>, ApiError> {
    let found = catalog
        .groups
        .get(group)
        .and_then(|v| v.iter().find(|(v, _)| v == version));
    let (_, list) = found.ok_or_else(ApiError::no_such_path)?;
    let mut resources = Vec::new();
    for r in list {
        let mut entry = json!({
            "name": r.plural,
            "singularName": r.singular,
            "namespaced": r.namespaced,
            "kind": r.kind,
            "verbs": VERBS,
        });
        if !r.short_names.is_empty() {
            entry["shortNames"] = json!(r.short_names);
        }
        if !r.categories.is_empty() {
            entry["categories"] = json!(r.categories);
        }
        resources.push(entry);
        if r.has_status() {
            resources.push(json!({
                "name": format!("{}/status", r.plural),
                "singularName": "",
                "namespaced": r.namespaced,
                "kind": r.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Ok(reply::json(&json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    })))
}

fn aggregated(catalog: &Catalog, wanted: impl Fn(&str) -> bool) -> Response<Body> {
    let groups: Vec<Value> = catalog
        .groups
        .iter()
        .filter(|(g, _)| wanted(g))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, list)| {
                    json!({
                        "version": version,
                        "freshness": "Current",
                        "resources": list.iter().map(|r| aggregated_resource(r)).collect::<Vec<_>>(),
                    })
                })
                .collect();
            json!({"metadata": {"name": group, "creationTimestamp": null}, "versions": versions})
        })
        .collect();
    let answer = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups,
    });
    reply::bytes(200, AGGREGATED, Bytes::from(answer.to_string()))
}

fn aggregated_resource(r: &Resource) -> Value {
    let kind = json!({"group": r.group, "version": r.version, "kind": r.kind});
    let mut entry = json!({
        "resource": r.plural,
        "responseKind": kind,
        "scope": if r.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": r.singular,
        "verbs": VERBS,
    });
    if !r.short_names.is_empty() {
        entry["shortNames"] = json!(r.short_names);
    }
    if !r.categories.is_empty() {
        entry["categories"] = json!(r.categories);
    }
    if r.has_status() {
        entry["subresources"] = json!([{
            "subresource": "status",
            "responseKind": kind,
            "verbs": ["get", "patch", "update"],
        }]);
    }
    entry
}
