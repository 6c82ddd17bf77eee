//! The three-way merge of client-side apply: what the file said last time, what the server has,
//! what the file says now. The result is a JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Annotation in which the applied file is kept, shared with kubectl so that both can take turns.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The patch that makes `live` say what `wanted` says, deleting what `last` said and `wanted` no
/// longer does. Fields that only `live` has stay. `None` if nothing would change.
pub(crate) fn three_way(last: Option<&Value>, live: &Value, wanted: &Value) -> Option<Value> {
    let empty = Value::Object(Map::new());
    diff(last.unwrap_or(&empty), live, wanted)
}

fn diff(last: &Value, live: &Value, wanted: &Value) -> Option<Value> {
    let (Some(live_map), Some(wanted_map)) = (live.as_object(), wanted.as_object()) else {
        return (live != wanted).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for (key, wanted_value) in wanted_map {
        match (wanted_value, live_map.get(key)) {
            (Value::Null, None) => {}
            (Value::Null, Some(_)) => {
                patch.insert(key.clone(), Value::Null);
            }
            (_, None) => {
                patch.insert(key.clone(), wanted_value.clone());
            }
            (_, Some(live_value)) => {
                let last_value = last.get(key).unwrap_or(&Value::Null);
                if let Some(change) = diff(last_value, live_value, wanted_value) {
                    patch.insert(key.clone(), change);
                }
            }
        }
    }
    if let Some(last_map) = last.as_object() {
        for key in last_map.keys() {
            if !wanted_map.contains_key(key) && live_map.contains_key(key) {
                patch.insert(key.clone(), Value::Null);
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// What a live object remembers of the last applied file.
pub(crate) fn last_applied(live: &Value) -> Option<Value> {
    let text = live
        .get("metadata")?
        .get("annotations")?
        .get(LAST_APPLIED)?
        .as_str()?;
    serde_json::from_str(text).ok()
}

/// The object of a file with the file itself in the annotation, as kubectl writes it.
pub(crate) fn remembering(wanted: &Value) -> Value {
    let mut bare = wanted.clone();
    if let Some(annotations) = bare
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.shift_remove(LAST_APPLIED);
    }
    ensure_object(&mut bare, "metadata");
    if let Some(metadata) = bare.get_mut("metadata") {
        ensure_object(metadata, "annotations");
    }
    let text = format!("{}\n", sorted(&bare));
    if let Some(annotations) = bare
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.insert(LAST_APPLIED.to_owned(), Value::String(text));
    }
    bare
}

fn ensure_object(value: &mut Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        let entry = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
        if !entry.is_object() {
            *entry = Value::Object(Map::new());
        }
    }
}

/// The same value with all keys in order, so that equal files make equal annotations.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            Value::Object(
                keys.into_iter()
                    .filter_map(|k| Some((k.clone(), sorted(map.get(k)?))))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_differences_are_sent_and_foreign_fields_stay() {
        let last = json!({"spec": {"a": 1, "b": 2}});
        let live = json!({"spec": {"a": 1, "b": 2, "defaulted": true}, "status": {"x": 1}});
        let wanted = json!({"spec": {"a": 5}});
        assert_eq!(
            three_way(Some(&last), &live, &wanted),
            Some(json!({"spec": {"a": 5, "b": null}}))
        );
        assert_eq!(three_way(Some(&last), &live, &last), None);
    }

    #[test]
    fn without_a_memory_nothing_is_deleted() {
        let live = json!({"spec": {"a": 1, "b": 2}});
        assert_eq!(three_way(None, &live, &json!({"spec": {"a": 1}})), None);
    }

    #[test]
    fn lists_are_replaced_whole_and_null_deletes() {
        let live = json!({"spec": {"l": [1, 2], "x": 1}});
        let wanted = json!({"spec": {"l": [2], "x": null, "y": null}});
        assert_eq!(
            three_way(None, &live, &wanted),
            Some(json!({"spec": {"l": [2], "x": null}}))
        );
    }

    #[test]
    fn the_memory_does_not_remember_itself() {
        let once = remembering(&json!({"kind": "X", "metadata": {"name": "a"}}));
        assert_eq!(remembering(&once), once);
        assert_eq!(last_applied(&once).unwrap()["metadata"]["name"], "a");
    }
}
