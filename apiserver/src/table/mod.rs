//! `meta.k8s.io/v1 Table`: what `kubectl get` prints. Cells are printed as sent, so ages are rendered here.

pub mod age;
pub mod path;

use serde_json::{Value, json};

use crate::resource::Resource;
use crate::resource::columns::{Column, ColumnSource};

/// What a row carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Metadata as PartialObjectMetadata (the default).
    Metadata,
    /// The whole object.
    Object,
}

/// Column definitions.
pub fn definitions(resource: &Resource) -> Value {
    resource
        .columns
        .iter()
        .map(|c| {
            json!({"name": c.name, "type": c.kind, "format": c.format,
                "description": c.description, "priority": c.priority})
        })
        .collect()
}

/// A row.
pub fn row(resource: &Resource, object: &Value, include: Include, now: jiff::Timestamp) -> Value {
    let cells: Vec<Value> = resource
        .columns
        .iter()
        .map(|c| cell(c, object, now))
        .collect();
    let mut row = json!({ "cells": cells });
    match include {
        Include::None => row["object"] = Value::Null,
        Include::Metadata => row["object"] = partial_metadata(object),
        Include::Object => row["object"] = object.clone(),
    }
    row
}

/// A Table. `metadata` is that of the list or of the object.
pub fn table(definitions: Option<Value>, rows: Vec<Value>, metadata: Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions.unwrap_or_else(|| json!([])),
        "rows": rows,
    })
}

/// Metadata only.
pub fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

fn cell(column: &Column, object: &Value, now: jiff::Timestamp) -> Value {
    let value = match &column.source {
        ColumnSource::Cell(cell) => cell(object),
        ColumnSource::Path(path) => path.cell(object),
    };
    match (column.kind.as_str(), value) {
        ("date", Value::String(time)) => age::since(&time, now).into(),
        ("date", Value::Null) if column.name == "Age" => "<unknown>".into(),
        ("string", Value::Null) => "".into(),
        ("string", Value::String(text)) => text.into(),
        ("string", other) => other.to_string().into(),
        (_, other) => other,
    }
}
