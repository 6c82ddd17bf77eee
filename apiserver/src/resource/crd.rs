//! From a CustomResourceDefinition to what it serves.

use std::sync::Arc;

use serde_json::{Value, json};

use super::columns::{Column, ColumnSource};
use super::{Conversion, Resource, StatusRule};
use crate::schema::Schema;

/// Resources of all served versions. A definition this server cannot read serves nothing.
pub fn resources(crd: &Value) -> Vec<Resource> {
    let spec = &crd["spec"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let texts =
        |v: &Value| -> Vec<String> { v.as_array().into_iter().flatten().map(text).collect() };
    let names = &spec["names"];
    let (group, plural, kind) = (
        text(&spec["group"]),
        text(&names["plural"]),
        text(&names["kind"]),
    );
    if crd["metadata"]["deletionTimestamp"].is_string() || plural.is_empty() || kind.is_empty() {
        return Vec::new();
    }
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let storage_version = versions
        .iter()
        .find(|v| v["storage"] == true)
        .map(|v| text(&v["name"]))
        .unwrap_or_default();
    let several = versions.len() > 1;
    let storage: Arc<str> = format!("{plural}.{group}").into();
    versions
        .into_iter()
        .filter(|v| v["served"] == true)
        .map(|v| {
            let status = &v["subresources"]["status"];
            Resource {
                group: group.clone(),
                version: text(&v["name"]),
                storage_version: storage_version.clone(),
                kind: kind.clone(),
                list_kind: match &names["listKind"] {
                    Value::String(k) if !k.is_empty() => k.clone(),
                    _ => format!("{kind}List"),
                },
                plural: plural.clone(),
                singular: match &names["singular"] {
                    Value::String(s) if !s.is_empty() => s.clone(),
                    _ => kind.to_lowercase(),
                },
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: spec["scope"] == "Namespaced",
                status: if status.is_object() {
                    StatusRule::Separate
                } else {
                    StatusRule::Plain
                },
                generation: true,
                storage: Arc::clone(&storage),
                columns: columns(&v["additionalPrinterColumns"]),
                schema: Arc::new(Schema::custom(
                    v["schema"]["openAPIV3Schema"].clone(),
                    &group,
                    &text(&v["name"]),
                    &kind,
                )),
                selectable: v["selectableFields"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|f| text(&f["jsonPath"]).trim_start_matches('.').to_owned())
                    .collect(),
                conversion: if several {
                    Conversion::ApiVersion
                } else {
                    Conversion::None
                },
                custom: true,
            }
        })
        .collect()
}

fn columns(declared: &Value) -> Vec<Column> {
    let Some(declared) = declared.as_array().filter(|c| !c.is_empty()) else {
        return vec![Column::name(), Column::age()];
    };
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut columns = vec![Column::name()];
    columns.extend(declared.iter().map(|c| Column {
        name: text(&c["name"]),
        kind: text(&c["type"]),
        format: text(&c["format"]),
        description: text(&c["description"]),
        priority: c["priority"].as_i64().unwrap_or(0),
        source: ColumnSource::path(&text(&c["jsonPath"])),
    }));
    columns
}

/// Fills in what the server decides about a definition: names, conditions, stored versions.
pub fn establish(crd: &mut Value, now: &str) {
    let kind = crd["spec"]["names"]["kind"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if let Some(names) = crd["spec"]["names"].as_object_mut() {
        names
            .entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
        names
            .entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
    }
    if let Some(spec) = crd["spec"].as_object_mut() {
        spec.entry("conversion")
            .or_insert_with(|| json!({"strategy": "None"}));
    }
    let names = crd["spec"]["names"].clone();
    let storage = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|v| v["storage"] == true)
        .map_or(Value::Null, |v| v["name"].clone());
    let mut stored = crd["status"]["storedVersions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if storage.is_string() && !stored.contains(&storage) {
        stored.push(storage);
    }
    let since = crd["status"]["conditions"][0]["lastTransitionTime"]
        .as_str()
        .unwrap_or(now)
        .to_owned();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": since})
    };
    crd["status"] = json!({
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted",
                "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widget() -> Value {
        json!({"metadata": {"name": "widgets.example.org"}, "spec": {"group": "example.org",
            "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]}]}})
    }

    #[test]
    fn declared_columns_replace_the_age() {
        let resources = resources(&widget());
        let names: Vec<_> = resources[0]
            .columns
            .iter()
            .map(|c| c.name.as_str())
            .collect();
        assert_eq!(names, ["Name", "Size"]);
        assert_eq!(&*resources[0].storage, "widgets.example.org");
        assert_eq!(resources[0].singular, "widget");
    }

    #[test]
    fn establishing_twice_changes_nothing() {
        let mut crd = widget();
        establish(&mut crd, "2026-01-01T00:00:00Z");
        let once = crd.clone();
        establish(&mut crd, "2027-01-01T00:00:00Z");
        assert_eq!(crd, once);
        assert_eq!(crd["status"]["conditions"][1]["type"], "Established");
    }
}
