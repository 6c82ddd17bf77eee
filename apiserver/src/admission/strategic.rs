//! Strategic merge patch of core kinds (Kubernetes "Update API Objects in Place Using kubectl patch"): lists with a
//! merge key merge by it, and directives say what null cannot.

use serde_json::{Map, Value};

use crate::schema::{Compiled, ListKind, Node};
use crate::status::ApiError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// Applies `patch`.
pub fn strategic_merge(
    schema: &Compiled,
    object: &Value,
    patch: &Value,
) -> Result<Value, ApiError> {
    let Value::Object(patch) = patch else {
        return Err(ApiError::bad_request(
            "a strategic merge patch is a JSON object",
        ));
    };
    let original = object.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge(
        schema,
        Some(schema.root()),
        original,
        patch,
    )?))
}

fn merge(
    schema: &Compiled,
    node: Option<&Node>,
    mut object: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, ApiError> {
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("replace") => {
            let mut next = patch.clone();
            next.shift_remove(PATCH);
            return Ok(next);
        }
        Some("delete") => return Ok(Map::new()),
        None | Some("merge") => {}
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "unknown directive $patch: {other}"
            )));
        }
    }
    if let Some(Value::Array(keep)) = patch.get(RETAIN_KEYS) {
        object.retain(|name, _| keep.iter().any(|k| k == name));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE) {
            if let (Some(Value::Array(have)), Value::Array(gone)) = (object.get_mut(list), value) {
                have.retain(|v| !gone.contains(v));
            }
            continue;
        }
        if name.starts_with('$') {
            continue;
        }
        if value.is_null() {
            object.shift_remove(name);
            continue;
        }
        let node = node.and_then(|n| schema.field(n, name));
        let next = match (object.get(name), value) {
            (Some(Value::Object(old)), Value::Object(patch)) => {
                Value::Object(merge(schema, node, old.clone(), patch)?)
            }
            (None, Value::Object(patch)) => Value::Object(merge(schema, node, Map::new(), patch)?),
            (old, Value::Array(patch)) => {
                let old = old.and_then(Value::as_array).cloned().unwrap_or_default();
                Value::Array(merge_list(schema, node, old, patch)?)
            }
            _ => value.clone(),
        };
        object.insert(name.clone(), next);
    }
    for (name, value) in patch {
        if let (Some(list), Value::Array(order)) = (name.strip_prefix(ORDER), value)
            && let Some(Value::Array(have)) = object.get_mut(list)
        {
            let key = node
                .and_then(|n| schema.field(n, list))
                .and_then(|n| n.merge_key.as_deref());
            sort(have, order, key);
        }
    }
    Ok(object)
}

fn merge_list(
    schema: &Compiled,
    node: Option<&Node>,
    old: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, ApiError> {
    let directive = |v: &Value| v.get(PATCH).and_then(Value::as_str).map(str::to_owned);
    let replace = patch
        .iter()
        .any(|v| directive(v).as_deref() == Some("replace"));
    let plain = || {
        patch
            .iter()
            .filter(|v| directive(v).as_deref() != Some("replace"))
            .cloned()
    };
    let Some(node) = node.filter(|_| !replace) else {
        return Ok(plain().collect());
    };
    let Some(key) = &node.merge_key else {
        if node.list != ListKind::Set {
            return Ok(plain().collect());
        }
        let mut next = old;
        next.extend(
            patch
                .iter()
                .filter(|v| !next.contains(v))
                .cloned()
                .collect::<Vec<_>>(),
        );
        return Ok(next);
    };
    let item = schema.element(node);
    let mut next = old;
    for element in patch {
        let Some(wanted) = element.get(key) else {
            return Err(ApiError::bad_request(format!(
                "map: {element} does not contain declared merge key: {key}"
            )));
        };
        let at = next.iter().position(|v| v.get(key) == Some(wanted));
        if directive(element).as_deref() == Some("delete") {
            next.retain(|v| v.get(key) != Some(wanted));
            continue;
        }
        let Value::Object(element) = element else {
            continue;
        };
        let base = at
            .and_then(|at| next[at].as_object().cloned())
            .unwrap_or_default();
        let merged = Value::Object(merge(schema, item, base, element)?);
        match at {
            Some(at) => next[at] = merged,
            None => next.push(merged),
        }
    }
    Ok(next)
}

/// Elements named in `order` come in that order; the others keep their place relative to each other, behind.
fn sort(list: &mut [Value], order: &[Value], key: Option<&str>) {
    let rank = |v: &Value| {
        let id = key.map_or(Some(v), |k| v.get(k));
        order
            .iter()
            .position(|o| key.map_or(Some(o), |k| o.get(k)) == id)
            .unwrap_or(usize::MAX)
    };
    list.sort_by_key(rank);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::catalog::Live;
    use serde_json::json;

    fn patched(object: Value, patch: Value) -> Value {
        let catalog = Live::default().current();
        let schema = catalog.find("", "v1", "pods").unwrap().schema.compiled();
        strategic_merge(schema, &object, &patch).unwrap()
    }

    #[test]
    fn lists_merge_by_key_and_others_are_replaced() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}],
            "tolerations": [{"key": "k"}]}});
        let patch = json!({"spec": {"containers": [{"name": "b", "image": "2"},
            {"name": "a", "args": ["y"]}], "tolerations": [{"key": "z"}]}});
        assert_eq!(
            patched(pod, patch),
            json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["y"]},
                {"name": "b", "image": "2"}], "tolerations": [{"key": "z"}]}})
        );
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let pod = json!({"metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"],
            "labels": {"$patch": "replace", "y": "2"}},
            "spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
                "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}]}});
        assert_eq!(
            patched(pod, patch),
            json!({"metadata": {"finalizers": ["b"], "labels": {"y": "2"}},
                "spec": {"containers": [{"name": "c"}, {"name": "b"}]}})
        );
    }

    #[test]
    fn conditions_merge_by_type_and_null_removes() {
        let catalog = Live::default().current();
        let schema = catalog.find("", "v1", "nodes").unwrap().schema.compiled();
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]},
            "metadata": {"annotations": {"a": "1"}}});
        let patch = json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]},
            "metadata": {"annotations": {"a": null}}});
        let next = strategic_merge(schema, &node, &patch).unwrap();
        assert_eq!(next["status"]["conditions"].as_array().unwrap().len(), 2);
        assert_eq!(next["metadata"]["annotations"], json!({}));
    }
}
