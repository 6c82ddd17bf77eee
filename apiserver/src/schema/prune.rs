//! Unknown fields: found for strict writers, removed for the others (structural schema pruning).

use serde_json::Value;

use super::{Compiled, Extra, Node};

/// Removes fields the schema does not know and returns their paths, e.g. `spec.x` or `spec.list[0].x`.
pub fn prune(schema: &Compiled, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(
        schema,
        schema.root(),
        object,
        &mut String::new(),
        &mut unknown,
    );
    unknown
}

fn walk(
    schema: &Compiled,
    node: &Node,
    value: &mut Value,
    path: &mut String,
    unknown: &mut Vec<String>,
) {
    let node = schema.resolve(node);
    let length = path.len();
    match value {
        Value::Object(map) => {
            let keep = |name: &str| {
                node.properties.contains_key(name)
                    || !matches!(node.extra, Extra::Unknown)
                    || (node.embedded && matches!(name, "apiVersion" | "kind" | "metadata"))
            };
            map.retain(|name, _| {
                let keep = keep(name);
                if !keep {
                    unknown.push(join(path, name));
                }
                keep
            });
            for (name, child) in map.iter_mut() {
                let schema_of_child = match (node.properties.get(name), &node.extra) {
                    (Some(property), _) => property,
                    (None, Extra::Values(values)) => values,
                    _ => continue,
                };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                walk(schema, schema_of_child, child, path, unknown);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            let Some(items) = &node.items else { return };
            for (index, child) in list.iter_mut().enumerate() {
                path.push_str(&format!("[{index}]"));
                walk(schema, items, child, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_named_and_removed_at_every_depth() {
        let schema = parse(
            json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"list": {"type": "array", "items": {"type": "object",
                "properties": {"a": {"type": "string"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "map": {"type": "object", "additionalProperties": {"type": "string"}}}}}}),
        );
        let mut object = json!({"apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": "a", "bogus": 1, "labels": {"x": "y"}},
            "spec": {"x": 1, "list": [{"a": "1"}, {"b": 2}], "free": {"q": 1}, "map": {"k": "v"}}});
        let mut unknown = prune(schema.compiled(), &mut object);
        unknown.sort();
        assert_eq!(unknown, ["metadata.bogus", "spec.list[1].b", "spec.x"]);
        assert_eq!(
            object["spec"],
            json!({"list": [{"a": "1"}, {}], "free": {"q": 1}, "map": {"k": "v"}})
        );
        assert_eq!(object["metadata"]["labels"]["x"], "y");
    }
}
