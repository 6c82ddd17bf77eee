//! Makes the CustomResourceDefinition documents out of the Rust types and a hand-written overlay per kind.
//!
//! Types, bounds, patterns and descriptions come from the Rust types, through `schemars`; names, scope and the status
//! subresource from the derive of the kind; everything that spans fields - CEL rules, defaults, printer columns,
//! selectable fields - from `overlays/<plural>.yaml`, which is merged over the rest. `cargo run -p margay-crds --bin
//! margay-crd-gen` writes the documents to `manifests/`; a test compares them.

mod kinds;
mod normalise;
mod overlay;

use serde_json::{Map, Value, json};

use kinds::KINDS;

/// One document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Name of the file.
    pub file: String,
    /// The document, YAML.
    pub yaml: String,
}

/// Why the documents cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// An overlay is not what it should be.
    #[error("overlay {file}: {reason}")]
    Overlay {
        /// Name of the overlay.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A value cannot be printed.
    #[error("cannot print {file}: {reason}")]
    Print {
        /// Name of the document.
        file: String,
        /// What is wrong.
        reason: String,
    },
}

/// Makes all documents, in the order of their file names.
///
/// # Errors
/// An overlay is malformed.
pub fn manifests() -> Result<Vec<Manifest>, GenerateError> {
    let mut all = Vec::with_capacity(KINDS.len());
    for kind in KINDS {
        let document = kind.document()?;
        let group = document["spec"]["group"].as_str().unwrap_or_default();
        let file = format!("{group}_{}.yaml", kind.plural);
        let yaml = serde_saphyr::to_string(&document).map_err(|error| GenerateError::Print {
            file: file.clone(),
            reason: error.to_string(),
        })?;
        all.push(Manifest { file, yaml });
    }
    all.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(all)
}

/// The text of `manifests/all.rs`: the table of embedded documents.
pub fn table(manifests: &[Manifest]) -> String {
    let mut text = String::from("// Written by margay-crd-gen.\n&[\n");
    for manifest in manifests {
        let file = &manifest.file;
        text.push_str(&format!("    ({file:?}, include_str!({file:?})),\n"));
    }
    text.push_str("]\n");
    text
}

/// Puts the parts of one document together.
fn document(crd: &Value, spec: Value, status: Option<Value>, overlay: &overlay::Overlay) -> Value {
    let mut properties = Map::new();
    properties.insert(
        "apiVersion".into(),
        json!({ "type": "string", "description": "Group and version of this representation of the object." }),
    );
    properties.insert(
        "kind".into(),
        json!({ "type": "string", "description": "Kind of the object." }),
    );
    properties.insert("metadata".into(), json!({ "type": "object" }));
    properties.insert("spec".into(), normalise::schema(spec));
    if let Some(status) = status {
        properties.insert("status".into(), normalise::schema(status));
    }
    let mut schema = json!({
        "type": "object",
        "required": ["metadata", "spec"],
        "properties": properties,
    });
    overlay::merge(&mut schema, overlay.schema.clone());

    let crd_spec = &crd["spec"];
    let mut version = json!({
        "name": crd_spec["versions"][0]["name"],
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": schema },
    });
    if crd_spec["versions"][0]["subresources"]["status"].is_object() {
        version["subresources"] = json!({ "status": {} });
    }
    if !overlay.columns.is_empty() {
        version["additionalPrinterColumns"] = json!(overlay.columns);
    }
    if !overlay.selectable_fields.is_empty() {
        let fields: Vec<Value> = overlay
            .selectable_fields
            .iter()
            .map(|path| json!({ "jsonPath": path }))
            .collect();
        version["selectableFields"] = json!(fields);
    }
    let kind = crd_spec["names"]["kind"].as_str().unwrap_or_default();
    let mut names = json!({
        "kind": kind,
        "listKind": format!("{kind}List"),
        "plural": crd_spec["names"]["plural"],
        "singular": crd_spec["names"]["singular"],
    });
    if crd_spec["names"]["shortNames"]
        .as_array()
        .is_some_and(|short| !short.is_empty())
    {
        names["shortNames"] = crd_spec["names"]["shortNames"].clone();
    }
    sorted(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": crd["metadata"]["name"] },
        "spec": {
            "group": crd_spec["group"],
            "names": names,
            "preserveUnknownFields": false,
            "scope": crd_spec["scope"],
            "versions": [version],
        },
    }))
}

/// Orders the keys of all objects, so that the text depends on the content only.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut pairs: Vec<_> = map.into_iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(
                pairs
                    .into_iter()
                    .map(|(key, value)| (key, sorted(value)))
                    .collect(),
            )
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}
