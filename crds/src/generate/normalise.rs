//! Turns what `schemars` derives into a structural schema in the form the API server wants.

use serde_json::{Map, Value, json};

/// Marks, in a Rust type, a list whose null items mean something.
const KEEP_NULLABLE_ITEMS: &str = "x-keep-nullable-items";
/// Formats that are kept; the others (`uint8`, `double`, ...) mean nothing or something else to the API server.
const FORMATS: &[&str] = &["int64", "date-time", "cidr"];

/// The structural form of a derived schema: no null alternatives, no derived defaults, no type names, integral bounds.
pub(super) fn schema(value: Value) -> Value {
    let Value::Object(mut map) = value else {
        return json!({});
    };
    for key in ["$schema", "title", "default", "definitions", "$defs"] {
        map.remove(key);
    }
    unwrap_option(&mut map);
    if let Some(format) = map.get("format")
        && !format
            .as_str()
            .is_some_and(|format| FORMATS.contains(&format))
    {
        map.remove("format");
    }
    if let Some(Value::String(description)) = map.get_mut("description") {
        *description = paragraphs(description);
    }
    for key in ["minimum", "maximum"] {
        if let Some(number) = map.get_mut(key).and_then(integral) {
            map.insert(key.into(), number);
        }
    }
    let nullable_items = map.remove(KEEP_NULLABLE_ITEMS).is_some();
    if let Some(items) = map.remove("items") {
        let mut items = schema(items);
        if nullable_items {
            items["nullable"] = json!(true);
        }
        map.insert("items".into(), items);
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        let properties: Map<_, _> = properties
            .into_iter()
            .map(|(name, value)| (name, schema(value)))
            .collect();
        map.insert("properties".into(), Value::Object(properties));
    }
    match map.remove("additionalProperties") {
        Some(values @ Value::Object(_))
            if values.as_object().is_some_and(|values| !values.is_empty()) =>
        {
            map.insert("additionalProperties".into(), schema(values));
        }
        _ => {}
    }
    if map
        .get("required")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty)
    {
        map.remove("required");
    }
    Value::Object(map)
}

/// Removes the null alternative `schemars` gives optional fields: an absent field is enough.
fn unwrap_option(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get("type") {
        let types: Vec<_> = types.iter().filter(|one| *one != "null").cloned().collect();
        if let [one] = types.as_slice() {
            map.insert("type".into(), one.clone());
        }
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let Some(Value::Array(alternatives)) = map.get("anyOf") else {
        return;
    };
    let kept: Vec<_> = alternatives
        .iter()
        .filter(|one| one["type"] != "null")
        .cloned()
        .collect();
    if kept.len() == alternatives.len() {
        return;
    }
    map.remove("anyOf");
    if let [Value::Object(only)] = kept.as_slice() {
        for (key, value) in only {
            map.entry(key.clone()).or_insert_with(|| value.clone());
        }
        unwrap_option(map);
    } else {
        map.insert("anyOf".into(), Value::Array(kept));
    }
}

fn integral(value: &mut Value) -> Option<Value> {
    let number = value.as_f64()?;
    // Bounds are small whole numbers, exactly representable both ways.
    (number.fract() == 0.0).then(|| json!(number as i64))
}

/// Joins the lines of a doc comment, keeps its paragraphs.
fn paragraphs(text: &str) -> String {
    let joined: Vec<_> = text
        .split("\n\n")
        .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    joined.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optional_enum_has_neither_null_nor_nullable() {
        let derived = json!({
            "anyOf": [{ "type": "string", "enum": ["A", "B"] }, { "type": "null" }],
            "description": "One\ntwo.\n\nThree.",
            "default": null,
        });
        assert_eq!(
            schema(derived),
            json!({ "type": "string", "enum": ["A", "B"], "description": "One two.\n\nThree." })
        );
    }

    #[test]
    fn bounds_become_whole_numbers_and_foreign_formats_vanish() {
        let derived = json!({ "type": ["integer", "null"], "format": "uint8", "minimum": 0.0, "maximum": 255.0 });
        assert_eq!(
            schema(derived),
            json!({ "type": "integer", "minimum": 0, "maximum": 255 })
        );
    }

    #[test]
    fn int_or_string_keeps_both_alternatives() {
        let derived = json!({
            "anyOf": [
                { "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true },
                { "type": "null" },
            ],
        });
        assert_eq!(
            schema(derived),
            json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
        );
    }
}
