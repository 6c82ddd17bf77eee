//! The hand-written half of a document.

use serde::Deserialize;
use serde_json::Value;

use super::GenerateError;

/// Names, in a schema of an overlay, a shared piece that is merged in at that place.
const INCLUDE: &str = "$include";

/// Content of `overlays/<plural>.yaml`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Overlay {
    /// Printer columns, as in the document.
    pub(super) columns: Vec<Value>,
    /// Paths that field selectors may use.
    pub(super) selectable_fields: Vec<String>,
    /// Merged over the schema of the whole object.
    pub(super) schema: Value,
}

/// Reads an overlay and puts the shared pieces in.
pub(super) fn read(
    file: &str,
    text: &str,
    shared: &[(&str, &str)],
) -> Result<Overlay, GenerateError> {
    let wrong = |reason: String| GenerateError::Overlay {
        file: file.to_owned(),
        reason,
    };
    let mut overlay: Overlay =
        serde_saphyr::from_str(text).map_err(|error| wrong(error.to_string()))?;
    include(&mut overlay.schema, shared).map_err(wrong)?;
    Ok(overlay)
}

fn include(value: &mut Value, shared: &[(&str, &str)]) -> Result<(), String> {
    match value {
        Value::Object(map) => {
            let name = map.remove(INCLUDE);
            for child in map.values_mut() {
                include(child, shared)?;
            }
            if let Some(name) = name {
                let text = shared
                    .iter()
                    .find(|(known, _)| name == *known)
                    .map(|(_, text)| text);
                let text = text.ok_or_else(|| format!("includes {name}, which is not known"))?;
                let mut piece: Value =
                    serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
                include(&mut piece, shared)?;
                merge(&mut piece, value.take());
                *value = piece;
            }
        }
        Value::Array(items) => {
            for item in items {
                include(item, shared)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Merges `over` into `base`: objects key by key, null removes, everything else replaces.
pub(super) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    base.remove(&key);
                } else {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (_, Value::Null) => {}
        (base, over) => *base = over,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_shared_piece_is_merged_under_what_surrounds_the_include() {
        let text = "schema: {properties: {a: {$include: piece, maxItems: 3}}}";
        let overlay = read("x", text, &[("piece", "{maxItems: 5, type: array}")]).expect("reads");
        assert_eq!(
            overlay.schema,
            json!({ "properties": { "a": { "maxItems": 3, "type": "array" } } })
        );
        assert!(read("x", text, &[]).is_err());
    }

    #[test]
    fn null_removes() {
        let mut base = json!({ "a": 1, "b": { "c": 2 } });
        merge(&mut base, json!({ "a": null, "b": { "d": 3 } }));
        assert_eq!(base, json!({ "b": { "c": 2, "d": 3 } }));
    }
}
