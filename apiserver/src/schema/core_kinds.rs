//! Schemas of the core kinds, generated from their Rust types, plus what the types do not say: how lists merge, and
//! the few defaults that are part of list keys or that every reader expects (Kubernetes OpenAPI extensions
//! `x-kubernetes-list-type`, `x-kubernetes-patch-merge-key`, `x-kubernetes-map-type`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::Definitions;

/// Generates the document of a kind.
pub type Generate = fn() -> schemars::Schema;

/// Prefix of references in served documents.
pub const REF: &str = "#/components/schemas/";

/// Definition name of object metadata.
pub const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Document of `T`.
pub fn generate<T: JsonSchema>() -> schemars::Schema {
    SchemaGenerator::default().into_root_schema_for::<T>()
}

/// Document of object metadata, the part custom kinds share with core kinds.
pub fn generate_object_meta() -> schemars::Schema {
    generate::<ObjectMeta>()
}

/// How one list merges.
struct Merge {
    /// Last part of the definition's name.
    owner: &'static str,
    field: &'static str,
    /// Empty = set of scalars.
    keys: &'static [&'static str],
}

const fn merge(owner: &'static str, field: &'static str, keys: &'static [&'static str]) -> Merge {
    Merge { owner, field, keys }
}

/// Lists that are not atomic. The first key is also the key of strategic merge patches.
const MERGES: &[Merge] = &[
    merge("meta.v1.ObjectMeta", "ownerReferences", &["uid"]),
    merge("meta.v1.ObjectMeta", "finalizers", &[]),
    merge("core.v1.PodSpec", "containers", &["name"]),
    merge("core.v1.PodSpec", "initContainers", &["name"]),
    merge("core.v1.PodSpec", "ephemeralContainers", &["name"]),
    merge("core.v1.PodSpec", "volumes", &["name"]),
    merge("core.v1.PodSpec", "imagePullSecrets", &["name"]),
    merge("core.v1.PodSpec", "hostAliases", &["ip"]),
    merge("core.v1.PodSpec", "resourceClaims", &["name"]),
    merge("core.v1.PodSpec", "schedulingGates", &["name"]),
    merge(
        "core.v1.PodSpec",
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    merge("core.v1.PodStatus", "conditions", &["type"]),
    merge("core.v1.PodStatus", "podIPs", &["ip"]),
    merge("core.v1.PodStatus", "resourceClaimStatuses", &["name"]),
    merge("core.v1.Container", "env", &["name"]),
    merge("core.v1.Container", "ports", &["containerPort", "protocol"]),
    merge("core.v1.Container", "volumeMounts", &["mountPath"]),
    merge("core.v1.Container", "volumeDevices", &["devicePath"]),
    merge("core.v1.EphemeralContainer", "env", &["name"]),
    merge(
        "core.v1.EphemeralContainer",
        "ports",
        &["containerPort", "protocol"],
    ),
    merge("core.v1.EphemeralContainer", "volumeMounts", &["mountPath"]),
    merge(
        "core.v1.EphemeralContainer",
        "volumeDevices",
        &["devicePath"],
    ),
    merge("core.v1.ResourceRequirements", "claims", &["name"]),
    merge("core.v1.ServiceSpec", "ports", &["port", "protocol"]),
    merge("core.v1.ServiceStatus", "conditions", &["type"]),
    merge("core.v1.NodeSpec", "podCIDRs", &[]),
    // The published key is `type` alone, which is not unique: a dual-stack node has two addresses of type InternalIP.
    merge("core.v1.NodeStatus", "addresses", &["type", "address"]),
    merge("core.v1.NodeStatus", "conditions", &["type"]),
    merge("core.v1.NamespaceStatus", "conditions", &["type"]),
    merge("core.v1.ServiceAccount", "secrets", &["name"]),
    merge("discovery.v1.Endpoint", "addresses", &[]),
    merge("apps.v1.DaemonSetStatus", "conditions", &["type"]),
    merge("apps.v1.DeploymentStatus", "conditions", &["type"]),
    merge("v1.CustomResourceDefinitionStatus", "conditions", &["type"]),
];

/// Objects that are one value to writers.
const ATOMIC_OBJECTS: &[&str] = &[
    "meta.v1.LabelSelector",
    "core.v1.ConfigMapKeySelector",
    "core.v1.LocalObjectReference",
    "core.v1.NodeSelector",
    "core.v1.NodeSelectorTerm",
    "core.v1.ObjectFieldSelector",
    "core.v1.ObjectReference",
    "core.v1.ResourceFieldSelector",
    "core.v1.SecretKeySelector",
    "core.v1.SecretReference",
    "core.v1.TypedLocalObjectReference",
    "rbac.v1.RoleRef",
];

/// Definitions that stand for any JSON value, whatever type they are declared with.
const ANYTHING: &[&str] = &["apiextensions.v1.JSON"];

/// Defaults: owner, field, JSON.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("core.v1.ServicePort", "protocol", r#""TCP""#),
    ("core.v1.ServiceSpec", "type", r#""ClusterIP""#),
    ("core.v1.ServiceSpec", "sessionAffinity", r#""None""#),
    ("core.v1.ContainerPort", "protocol", r#""TCP""#),
    ("core.v1.PodSpec", "restartPolicy", r#""Always""#),
    ("core.v1.PodSpec", "dnsPolicy", r#""ClusterFirst""#),
    ("core.v1.PodSpec", "schedulerName", r#""default-scheduler""#),
    ("core.v1.PodSpec", "terminationGracePeriodSeconds", "30"),
    ("core.v1.PodSpec", "enableServiceLinks", "true"),
    ("core.v1.PodSpec", "securityContext", "{}"),
    ("core.v1.Container", "resources", "{}"),
    (
        "core.v1.Container",
        "terminationMessagePath",
        r#""/dev/termination-log""#,
    ),
    ("core.v1.Container", "terminationMessagePolicy", r#""File""#),
    ("core.v1.Secret", "type", r#""Opaque""#),
    ("networking.v1.NetworkPolicyPort", "protocol", r#""TCP""#),
];

/// Name of the kind's definition and all definitions, as OpenAPI v3.
pub fn definitions(generate: Generate) -> (String, Definitions) {
    let mut root = generate().to_value();
    let mut definitions = Definitions::new();
    let name = root["title"].as_str().unwrap_or_default().to_owned();
    if let Some(map) = root.as_object_mut() {
        if let Some(Value::Object(shared)) = map.remove("$defs") {
            definitions = shared;
        }
        map.remove("$schema");
        map.remove("title");
    }
    definitions.insert(name.clone(), root);
    for (name, definition) in &mut definitions {
        to_openapi(definition);
        annotate(name, definition);
    }
    (name, definitions)
}

/// Definitions of `apiVersion` and `kind`.
pub fn type_meta() -> (Value, Value) {
    let text = |description: &str| json!({"description": description, "type": "string"});
    (
        text(
            "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources",
        ),
        text(
            "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds",
        ),
    )
}

/// JSON schema references become OpenAPI ones; OpenAPI 3.0 ignores what stands next to a `$ref`.
fn to_openapi(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            map.values_mut().for_each(to_openapi);
            if let Some(Value::String(reference)) = map.get("$ref") {
                let target = format!("{REF}{}", reference.trim_start_matches("#/$defs/"));
                map.remove("$ref");
                if map.is_empty() {
                    map.insert("$ref".into(), target.into());
                } else {
                    map.insert("allOf".into(), json!([{"$ref": target}]));
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(to_openapi),
        _ => {}
    }
}

fn annotate(name: &str, definition: &mut Value) {
    let owned_by = |owner: &str| name.strip_suffix(owner).is_some_and(|p| p.ends_with('.'));
    if ANYTHING.iter().any(|o| owned_by(o))
        && let Some(map) = definition.as_object_mut()
    {
        map.shift_remove("type");
    }
    if ATOMIC_OBJECTS.iter().any(|o| owned_by(o)) {
        definition["x-kubernetes-map-type"] = "atomic".into();
    }
    for Merge { field, keys, .. } in MERGES.iter().filter(|m| owned_by(m.owner)) {
        let Some(list) = definition["properties"]
            .get_mut(*field)
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        list.insert("x-kubernetes-patch-strategy".into(), "merge".into());
        match keys.first() {
            None => {
                list.insert("x-kubernetes-list-type".into(), "set".into());
            }
            Some(key) => {
                list.insert("x-kubernetes-list-type".into(), "map".into());
                list.insert("x-kubernetes-list-map-keys".into(), json!(keys));
                list.insert("x-kubernetes-patch-merge-key".into(), json!(key));
            }
        }
    }
    for (_, field, default) in DEFAULTS.iter().filter(|(owner, ..)| owned_by(owner)) {
        if let Some(property) = definition["properties"].get_mut(*field)
            && let Ok(default) = serde_json::from_str(default)
        {
            property["default"] = default;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, Service};

    #[test]
    fn every_reference_resolves() {
        fn check(value: &Value, definitions: &Definitions) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(r)) = map.get("$ref") {
                        assert!(
                            definitions.contains_key(r.strip_prefix(REF).unwrap()),
                            "{r}"
                        );
                    }
                    map.values().for_each(|v| check(v, definitions));
                }
                Value::Array(list) => list.iter().for_each(|v| check(v, definitions)),
                _ => {}
            }
        }
        let (name, definitions) = definitions(generate::<Pod>);
        assert_eq!(name, "io.k8s.api.core.v1.Pod");
        definitions.values().for_each(|d| check(d, &definitions));
    }

    #[test]
    fn merge_table_names_existing_fields() {
        let (_, pod) = definitions(generate::<Pod>);
        let (_, service) = definitions(generate::<Service>);
        for Merge { owner, field, .. } in MERGES {
            for definitions in [&pod, &service] {
                let found = definitions.iter().find(|(name, _)| name.ends_with(owner));
                if let Some((_, definition)) = found {
                    let list = &definition["properties"][field];
                    assert_eq!(list["type"], "array", "{owner}.{field}");
                }
            }
        }
    }
}
