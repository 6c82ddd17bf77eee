//! From an OpenAPI v3 document to [`Compiled`].

use serde_json::{Map, Value};

use super::check::Limits;
use super::core_kinds::REF;
use super::{Compiled, Definitions, Extra, ListKind, Node, Type};

/// Compiles definition `name`. In core kinds an object without declared fields holds anything.
pub(super) fn compile(name: &str, definitions: &Definitions, custom: bool) -> Compiled {
    let definitions = definitions
        .iter()
        .map(|(n, schema)| (n.clone(), node(schema, custom && n == name)))
        .collect();
    Compiled {
        root: Node {
            reference: Some(name.to_owned()),
            ..Node::default()
        },
        definitions,
    }
}

/// Compiles one schema. `structural` = CRD rules: fields that are not declared are unknown.
pub(super) fn node(schema: &Value, structural: bool) -> Node {
    let Some(map) = schema.as_object() else {
        return Node {
            extra: Extra::Anything,
            ..Node::default()
        };
    };
    if let Some(reference) = reference(map) {
        return Node {
            reference: Some(reference),
            default: map.get("default").cloned(),
            ..Node::default()
        };
    }
    let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
    let text = |name: &str| map.get(name).and_then(Value::as_str);
    let properties: std::collections::BTreeMap<_, _> = map
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(name, schema)| (name.clone(), node(schema, structural)))
        .collect();
    let kind = type_of(map);
    let embedded = flag("x-kubernetes-embedded-resource");
    let keeps = flag("x-kubernetes-preserve-unknown-fields")
        || (!structural && properties.is_empty())
        || kind.is_none() && properties.is_empty();
    let extra = match map.get("additionalProperties") {
        Some(Value::Bool(true)) => Extra::Anything,
        Some(schema @ Value::Object(_)) => Extra::Values(Box::new(node(schema, structural))),
        _ if keeps => Extra::Anything,
        _ => Extra::Unknown,
    };
    Node {
        reference: None,
        kind,
        int_or_string: flag("x-kubernetes-int-or-string"),
        nullable: flag("nullable"),
        properties,
        extra,
        items: map
            .get("items")
            .map(|items| Box::new(node(items, structural))),
        required: strings(map.get("required")),
        default: map.get("default").cloned(),
        list: match text("x-kubernetes-list-type") {
            Some("set") => ListKind::Set,
            Some("map") => ListKind::Map(strings(map.get("x-kubernetes-list-map-keys"))),
            _ => ListKind::Atomic,
        },
        merge_key: text("x-kubernetes-patch-merge-key").map(str::to_owned),
        atomic: text("x-kubernetes-map-type") == Some("atomic"),
        embedded,
        limits: Limits::parse(map).map(Box::new),
    }
}

fn reference(map: &Map<String, Value>) -> Option<String> {
    let direct = map.get("$ref").and_then(Value::as_str);
    let wrapped = || match map
        .get("allOf")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([one]) => one.get("$ref").and_then(Value::as_str),
        _ => None,
    };
    direct
        .or_else(wrapped)
        .map(|r| r.strip_prefix(REF).unwrap_or(r).to_owned())
}

fn type_of(map: &Map<String, Value>) -> Option<Type> {
    match map.get("type").and_then(Value::as_str)? {
        "object" => Some(Type::Object),
        "array" => Some(Type::Array),
        "string" => Some(Type::String),
        "integer" => Some(Type::Integer),
        "number" => Some(Type::Number),
        "boolean" => Some(Type::Boolean),
        _ => None,
    }
}

pub(super) fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
