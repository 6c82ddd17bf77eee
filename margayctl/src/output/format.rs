//! `-o`: the formats every command knows.

use super::{CustomColumns, Template};
use crate::failure::Failure;
use serde_json::{Value, json};
use std::io::Write;

/// What `-o` asked for.
#[derive(Debug, Clone)]
pub(crate) enum Format {
    /// A table.
    Table,
    /// A table with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// One compact JSON object per line.
    JsonLines,
    /// `kind.group/name` lines.
    Name,
    /// kubectl's path templates.
    Path(Template),
    /// Columns chosen by the user.
    Columns(CustomColumns),
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(
            match text
                .split_once('=')
                .map_or((text, None), |(a, b)| (a, Some(b)))
            {
                ("table" | "", None) => Self::Table,
                ("wide", None) => Self::Wide,
                ("json", None) => Self::Json,
                ("yaml", None) => Self::Yaml,
                ("jsonl", None) => Self::JsonLines,
                ("name", None) => Self::Name,
                ("jsonpath", Some(template)) => Self::Path(template.parse()?),
                ("jsonpath-file", Some(path)) => {
                    let text = std::fs::read_to_string(path)
                        .map_err(|e| format!("cannot read {path}: {e}"))?;
                    Self::Path(text.parse()?)
                }
                ("custom-columns", Some(columns)) => Self::Columns(columns.parse()?),
                _ => {
                    return Err(format!(
                        "unknown output format {text:?}; one of table, wide, json, yaml, jsonl, name, jsonpath=TEMPLATE, jsonpath-file=FILE, custom-columns=NAME:.path,..."
                    ));
                }
            },
        )
    }
}

/// Prints an object or a list in a format that shows objects. `false` if the format is a table.
pub(crate) fn print_document(
    out: &mut impl Write,
    format: &Format,
    value: &Value,
) -> Result<bool, Failure> {
    match format {
        Format::Json => {
            let text = serde_json::to_string_pretty(value)
                .map_err(|e| Failure::new("cannot print JSON", e))?;
            writeln!(out, "{}", text)?;
        }
        Format::Yaml => {
            let text =
                serde_saphyr::to_string(value).map_err(|e| Failure::new("cannot print YAML", e))?;
            out.write_all(text.as_bytes())?;
            if !text.ends_with('\n') {
                out.write_all(b"\n")?;
            }
        }
        Format::JsonLines => {
            match value.get("items").and_then(Value::as_array) {
                Some(items) => {
                    for item in items {
                        writeln!(out, "{item}")?;
                    }
                }
                None => writeln!(out, "{value}")?,
            };
        }
        Format::Path(template) => {
            out.write_all(template.render(value)?.as_bytes())?;
        }
        Format::Table | Format::Wide | Format::Name | Format::Columns(_) => return Ok(false),
    }
    Ok(true)
}

/// The document of a command that does not print Kubernetes objects.
pub(crate) fn document(kind: &str, items: Vec<Value>) -> Value {
    json!({"apiVersion": "cli.margay.io/v1", "kind": kind, "items": items})
}
