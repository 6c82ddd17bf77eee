//! Reading manifests: files, directories and standard input, YAML or JSON, many documents.
//!
//! Documents are read without types first, with YAML 1.1 scalars, because that is what kubectl
//! and the API server make of the same text: `cidr: no` is a boolean and must be refused as one.

use crate::failure::Failure;
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest input that is read, in bytes.
const MAX_INPUT: u64 = 64 << 20;

/// Which manifests a command works on.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Files {
    /// A manifest file, a directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) files: Vec<String>,
    /// Read directories below the given ones too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// One object of a manifest.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// The object.
    pub(crate) object: Value,
    /// Where it came from: `file.yaml` or `file.yaml, document 2`.
    pub(crate) origin: String,
}

impl Document {
    /// A string field at the top or below `metadata`.
    fn text(&self, pointer: &str) -> Option<&str> {
        self.object.pointer(pointer).and_then(Value::as_str)
    }

    /// `apiVersion`.
    pub(crate) fn api_version(&self) -> &str {
        self.text("/apiVersion").unwrap_or_default()
    }

    /// `kind`.
    pub(crate) fn kind(&self) -> &str {
        self.text("/kind").unwrap_or_default()
    }

    /// `metadata.name`.
    pub(crate) fn name(&self) -> Option<&str> {
        self.text("/metadata/name")
    }

    /// `metadata.namespace`.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.text("/metadata/namespace")
    }
}

impl Files {
    /// Reads every document of every file, in order. Lists (`kind: List`) are taken apart.
    pub(crate) fn read(&self) -> Result<Vec<Document>, Failure> {
        if self.files.is_empty() {
            return Err(Failure::Usage(
                "must specify one of -f: a file, a directory or -".into(),
            ));
        }
        let mut documents = Vec::new();
        for file in &self.files {
            if file == "-" {
                documents.extend(parse(
                    &read_all(std::io::stdin().lock(), "standard input")?,
                    "standard input",
                )?);
                continue;
            }
            for path in expand(Path::new(file), self.recursive)? {
                let shown = path.display().to_string();
                let input = std::fs::File::open(&path)
                    .map_err(|e| Failure::new(format!("cannot read {shown}"), e))?;
                documents.extend(parse(&read_all(input, &shown)?, &shown)?);
            }
        }
        if documents.is_empty() {
            return Err(Failure::new(
                "no objects passed",
                format!("nothing but empty documents in {}", self.files.join(", ")),
            ));
        }
        Ok(documents)
    }
}

fn read_all(input: impl Read, shown: &str) -> Result<String, Failure> {
    let mut text = String::new();
    input
        .take(MAX_INPUT + 1)
        .read_to_string(&mut text)
        .map_err(|e| Failure::new(format!("cannot read {shown}"), e))?;
    if text.len() as u64 > MAX_INPUT {
        return Err(Failure::new(
            format!("cannot read {shown}"),
            "it is larger than 64 MiB",
        ));
    }
    Ok(text)
}

fn expand(path: &Path, recursive: bool) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e: std::io::Error| {
        Failure::new(format!("the path \"{}\" cannot be read", path.display()), e)
    };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .map_err(failed)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        if entry.is_dir() {
            if recursive {
                found.extend(expand(&entry, true)?);
            }
        } else if entry
            .extension()
            .is_some_and(|x| x == "yaml" || x == "yml" || x == "json")
        {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Takes a text apart into objects.
pub(crate) fn parse(text: &str, shown: &str) -> Result<Vec<Document>, Failure> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_nodes: 5_000_000,
            max_events: 20_000_000,
            max_documents: 100_000,
        },
    };
    let values: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|e| Failure::new(format!("error parsing {shown}"), e))?;
    let many = values.len() > 1;
    let mut documents = Vec::new();
    for (i, value) in values.into_iter().enumerate() {
        let origin = if many {
            format!("{shown}, document {}", i + 1)
        } else {
            shown.to_owned()
        };
        take_apart(value, origin, &mut documents)?;
    }
    Ok(documents)
}

fn take_apart(value: Value, origin: String, documents: &mut Vec<Document>) -> Result<(), Failure> {
    let object = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        _ => {
            return Err(Failure::new(
                format!("error parsing {origin}"),
                "the document is not an object",
            ));
        }
    };
    let is_list = object
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|k| k.ends_with("List"))
        && object.get("items").is_some_and(Value::is_array);
    if is_list {
        let items = object
            .get("items")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        for (i, item) in items.into_iter().enumerate() {
            take_apart(item, format!("{origin}, item {}", i + 1), documents)?;
        }
        return Ok(());
    }
    let mut object = Value::Object(object);
    margay_crds::model::canonicalise(&mut object);
    let document = Document { object, origin };
    for (field, value) in [
        ("apiVersion", document.api_version()),
        ("kind", document.kind()),
    ] {
        if value.is_empty() {
            return Err(Failure::new(
                format!("error validating {}", document.origin),
                format!("{field} not set"),
            ));
        }
    }
    documents.push(document);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_comments_and_empty_documents_are_taken_apart() {
        let text = "# only a comment\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n---\n---\napiVersion: v1\nkind: Node\nmetadata:\n  name: c\n";
        let names: Vec<_> = parse(text, "f")
            .unwrap()
            .iter()
            .map(|d| d.name().unwrap_or_default().to_owned())
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        let text =
            "apiVersion: v3\nkind: X\nspec: {yes: true, a: no, b: \"no\", c: 0o17, d: 010}\n";
        let object = parse(text, "f").unwrap().remove(0).object;
        assert_eq!(object["spec"]["a"], Value::Bool(false));
        assert_eq!(object["spec"]["b"], Value::String("no".into()));
        assert_eq!(object["spec"]["d"], serde_json::json!(8));
    }

    #[test]
    fn a_duplicate_key_and_a_missing_kind_are_errors_that_name_the_place() {
        let twice = parse("apiVersion: v1\nkind: A\nkind: B\n", "dup.yaml")
            .unwrap_err()
            .to_string();
        assert!(twice.contains("dup.yaml") && twice.contains('3'), "{twice}");
        let none = parse("apiVersion: v1\nmetadata: {name: x}\n", "k.yaml")
            .unwrap_err()
            .to_string();
        assert!(
            none.contains("k.yaml") && none.contains("kind not set"),
            "{none}"
        );
    }

    #[test]
    fn an_alias_bomb_and_deep_nesting_end_with_an_error() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..10 {
            let refs = vec![format!("*a{}", i - 1); 9].join(",");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        assert!(parse(&bomb, "bomb").is_err());
        assert!(parse(&"[".repeat(20_000), "deep").is_err());
    }

    #[test]
    fn a_directory_is_read_in_order_and_below_only_when_asked() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let doc = |name: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n");
        std::fs::write(dir.path().join("a.yaml"), doc("a")).unwrap();
        std::fs::write(dir.path().join("b.txt"), "not a manifest").unwrap();
        std::fs::write(dir.path().join("sub/c.yaml"), doc("c")).unwrap();
        let read = |recursive| {
            let files = vec![dir.path().display().to_string()];
            Files { files, recursive }
                .read()
                .unwrap()
                .iter()
                .map(|d| d.name().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(read(false), ["a"]);
        assert_eq!(read(true), ["a", "c"]);
    }
}
