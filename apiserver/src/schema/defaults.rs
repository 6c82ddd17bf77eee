//! Values of absent fields.

use serde_json::Value;

use super::{Compiled, Extra, Node, Type};

/// Fills in defaults, also inside defaults.
pub fn apply(schema: &Compiled, object: &mut Value) {
    walk(schema, schema.root(), object);
}

fn walk(schema: &Compiled, node: &Node, value: &mut Value) {
    let node = schema.resolve(node);
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let target = schema.resolve(property);
                let default = property.default.as_ref().or(target.default.as_ref());
                let Some(default) = default else { continue };
                match map.get(name) {
                    None => {
                        map.insert(name.clone(), default.clone());
                    }
                    // A null that is no value means "not set" (CRD defaulting and nullable).
                    Some(Value::Null) if !target.nullable => {
                        map.insert(name.clone(), default.clone());
                    }
                    Some(_) => {}
                }
            }
            for (name, child) in map.iter_mut() {
                match (node.properties.get(name), &node.extra) {
                    (Some(property), _) => walk(schema, property, child),
                    (None, Extra::Values(values)) => walk(schema, values, child),
                    _ => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items {
                list.iter_mut().for_each(|child| walk(schema, items, child));
            }
        }
        _ => {}
    }
}

/// Drops nulls that are no values, as a decoder into a typed struct would.
pub fn drop_nulls(schema: &Compiled, object: &mut Value) {
    nulls(schema, schema.root(), object);
}

fn nulls(schema: &Compiled, node: &Node, value: &mut Value) {
    let node = schema.resolve(node);
    match value {
        Value::Object(map) => {
            map.retain(|name, child| {
                let known = node.properties.get(name).map(|p| schema.resolve(p));
                !child.is_null() || known.is_none_or(|p| p.nullable || p.kind.is_none())
            });
            for (name, child) in map.iter_mut() {
                match (node.properties.get(name), &node.extra) {
                    (Some(property), _) => nulls(schema, property, child),
                    (None, Extra::Values(values)) => nulls(schema, values, child),
                    _ => {}
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = &node.items
                && schema.resolve(items).kind == Some(Type::Object)
            {
                list.iter_mut()
                    .for_each(|child| nulls(schema, items, child));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_apply_only_below_objects_that_exist() {
        let schema = parse(
            json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {
                "selector": {"type": "string", "default": "all()"},
                "inner": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}},
                "given": {"type": "object", "default": {}, "properties": {
                    "b": {"type": "integer", "default": 2}}}}}}}),
        );
        let mut object = json!({"spec": {"selector": null}});
        apply(schema.compiled(), &mut object);
        assert_eq!(
            object,
            json!({"spec": {"selector": "all()", "given": {"b": 2}}})
        );
        let mut without = json!({});
        apply(schema.compiled(), &mut without);
        assert_eq!(without, json!({}));
    }
}
