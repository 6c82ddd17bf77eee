//! `get`: one object, several, all of a kind, or a watch of them.

use super::Namespace;
use crate::api::{Api, Connection, Kind, Method, Request};
use crate::failure::Failure;
use crate::manifest::Files;
use crate::output::{Format, Table, print_document};
use futures::StreamExt;
use serde_json::{Value, json};
use std::io::Write;

/// How many objects are asked for at once.
const CHUNK: &str = "500";

/// List objects or show them
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  margayctl get ippools\n  margayctl get ippool pods-v4 -o yaml\n  margayctl get bgppeers,bgpconfigurations\n  margayctl get pods -A -o wide\n  margayctl get ippools -w"
)]
pub(crate) struct Get {
    /// KIND [NAME...], KIND,KIND or KIND/NAME...
    #[arg(value_name = "KIND|KIND/NAME")]
    words: Vec<String>,
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    namespace: Namespace,
    /// All namespaces
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Only objects with matching labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Only objects with matching fields
    #[arg(long, value_name = "SELECTOR")]
    field_selector: Option<String>,
    /// table, wide, json, yaml, jsonl, name, jsonpath=..., custom-columns=...
    #[arg(short, long, default_value = "table")]
    output: Format,
    /// Leave the header of tables out
    #[arg(long)]
    no_headers: bool,
    /// Go on printing changes
    #[arg(short, long)]
    watch: bool,
    /// Succeed silently when a named object does not exist
    #[arg(long)]
    ignore_not_found: bool,
    /// Show metadata.managedFields
    #[arg(long)]
    show_managed_fields: bool,
}

/// One thing to read: a kind, and a name or all.
struct Target {
    kind: Kind,
    namespace: Option<String>,
    name: Option<String>,
}

impl Get {
    /// Runs the command.
    pub(crate) async fn run(&self, connection: &Connection) -> Result<u8, Failure> {
        let api = Api::connect(connection).await?;
        let targets = self.targets(&api)?;
        if self.watch {
            let [target] = targets.as_slice() else {
                return Err(Failure::Usage("-w watches one kind or one object".into()));
            };
            return self.watch(&api, target).await;
        }
        let tables = matches!(self.output, Format::Table | Format::Wide);
        let mut failures = Vec::new();
        let mut found = Vec::new();
        let mut printed = false;
        for target in &targets {
            match self.read(&api, target, tables).await {
                Ok(answer) if tables => printed |= self.print_table(&answer, printed)?,
                Ok(answer) => found.extend(objects(answer)),
                Err(e) if e.is_not_found() && self.ignore_not_found => {}
                Err(e) => failures.push(e),
            }
        }
        if !tables {
            let single = targets.len() == 1 && targets.iter().all(|t| t.name.is_some());
            if !(single && found.is_empty()) {
                self.print_objects(&api, found, single)?;
            }
        } else if !printed && failures.is_empty() {
            self.say_empty(&targets, &api);
        }
        Failure::all(failures).map(|()| 0)
    }

    fn targets(&self, api: &Api) -> Result<Vec<Target>, Failure> {
        let mut targets = Vec::new();
        let mut add = |kind: &Kind, name: Option<&str>| {
            let namespace = if self.all_namespaces && name.is_none() {
                None
            } else {
                self.namespace.of(api, kind)
            };
            targets.push(Target {
                kind: kind.clone(),
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
            });
        };
        if !self.files.files.is_empty() {
            for document in self.files.read()? {
                add(
                    super::identify(api, &document)?,
                    Some(super::named(&document)?),
                );
            }
            return Ok(targets);
        }
        let Some((first, rest)) = self.words.split_first() else {
            return Err(Failure::Usage(
                "which kind? for example: margayctl get ippools".into(),
            ));
        };
        if self.words.iter().any(|w| w.contains('/')) {
            for word in &self.words {
                let (kind, name) = word.split_once('/').ok_or_else(|| {
                    Failure::Usage(format!(
                        "{word:?}: either all words are KIND/NAME or none is"
                    ))
                })?;
                add(api.kinds().find(kind)?, Some(name));
            }
            return Ok(targets);
        }
        for kind in first.split(',') {
            let kind = api.kinds().find(kind)?;
            if rest.is_empty() {
                add(kind, None);
            }
            for name in rest {
                add(kind, Some(name));
            }
        }
        Ok(targets)
    }

    fn request<'a>(&'a self, target: &'a Target, table: bool) -> Request<'a> {
        let mut request = Request::new(
            Method::Get,
            &target.kind,
            target.namespace.as_deref(),
            target.name.as_deref(),
        );
        if table {
            request = request.for_table();
        }
        if target.name.is_none() {
            if let Some(selector) = &self.selector {
                request = request.query("labelSelector", selector);
            }
            if let Some(selector) = &self.field_selector {
                request = request.query("fieldSelector", selector);
            }
        }
        request
    }

    /// Reads a target whole, chunk by chunk.
    async fn read(&self, api: &Api, target: &Target, table: bool) -> Result<Value, Failure> {
        if target.name.is_some() {
            return api.send(self.request(target, table)).await;
        }
        let rows = if table { "rows" } else { "items" };
        let mut whole = api
            .send(self.request(target, table).query("limit", CHUNK))
            .await?;
        while let Some(token) = next_chunk(&whole) {
            let request = self
                .request(target, table)
                .query("limit", CHUNK)
                .query("continue", token);
            let mut chunk = api.send(request).await?;
            let more = chunk
                .get_mut(rows)
                .and_then(Value::as_array_mut)
                .map(std::mem::take)
                .unwrap_or_default();
            if let Some(all) = whole.get_mut(rows).and_then(Value::as_array_mut) {
                all.extend(more);
            }
            if let Some(metadata) = chunk.get_mut("metadata") {
                whole["metadata"] = metadata.take();
            }
        }
        Ok(whole)
    }

    fn print_table(&self, answer: &Value, separate: bool) -> Result<bool, Failure> {
        let Some(table) = ServerTable::new(
            answer,
            matches!(self.output, Format::Wide),
            self.all_namespaces,
        ) else {
            return Err(Failure::new(
                "cannot print the answer",
                "the server did not send a table",
            ));
        };
        let mut printed = table.table();
        for row in table.rows(answer) {
            printed.row(row);
        }
        if printed.is_empty() {
            return Ok(false);
        }
        let mut out = std::io::stdout().lock();
        if separate {
            writeln!(out)?;
        }
        printed.print(&mut out, !self.no_headers)?;
        Ok(true)
    }

    fn print_objects(&self, api: &Api, mut found: Vec<Value>, single: bool) -> Result<(), Failure> {
        if !self.show_managed_fields {
            for object in &mut found {
                if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.shift_remove("managedFields");
                }
            }
        }
        let mut out = std::io::stdout().lock();
        match &self.output {
            Format::Name => {
                for object in &found {
                    let text = |p: &str| {
                        object
                            .pointer(p)
                            .and_then(Value::as_str)
                            .unwrap_or_default()
                    };
                    let kind = api.kinds().find_for(text("/apiVersion"), text("/kind"));
                    let word =
                        kind.map_or_else(|| text("/kind").to_lowercase(), Kind::qualified_singular);
                    writeln!(out, "{word}/{}", text("/metadata/name"))?;
                }
                Ok(())
            }
            Format::Columns(columns) => {
                Ok(columns.table(&found)?.print(&mut out, !self.no_headers)?)
            }
            format => {
                let value = match (single, found.len()) {
                    (true, 1) => found.remove(0),
                    _ => {
                        json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": found})
                    }
                };
                print_document(&mut out, format, &value).map(|_| ())
            }
        }
    }

    fn say_empty(&self, targets: &[Target], api: &Api) {
        let namespaced = targets.iter().any(|t| t.kind.namespaced) && !self.all_namespaces;
        if namespaced {
            let namespace = self
                .namespace
                .namespace
                .as_deref()
                .unwrap_or_else(|| api.default_namespace());
            eprintln!("No resources found in {namespace} namespace.");
        } else {
            eprintln!("No resources found");
        }
    }

    async fn watch(&self, api: &Api, target: &Target) -> Result<u8, Failure> {
        let tables = matches!(self.output, Format::Table | Format::Wide);
        if !tables && !matches!(self.output, Format::JsonLines) {
            return Err(Failure::Usage("-w prints a table or -o jsonl".into()));
        }
        let list = self.read(api, target, tables).await?;
        let version = list
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
            .unwrap_or("0")
            .to_owned();
        let shape = ServerTable::new(
            &list,
            matches!(self.output, Format::Wide),
            self.all_namespaces,
        );
        if tables {
            self.print_table(&list, false)?;
        } else {
            for object in objects(list) {
                writeln!(std::io::stdout(), "{object}")?;
            }
        }
        let field = target.name.as_ref().map(|n| format!("metadata.name={n}"));
        let collection = Target {
            kind: target.kind.clone(),
            namespace: target.namespace.clone(),
            name: None,
        };
        let mut request = self
            .request(&collection, tables)
            .query("watch", "true")
            .query("resourceVersion", version);
        if let Some(field) = field {
            request = request.query("fieldSelector", field);
        }
        let mut events = api.watch(request).await?;
        loop {
            let event = tokio::select! {
                _ = tokio::signal::ctrl_c() => return Ok(130),
                event = events.next() => event,
            };
            let Some(event) = event else { return Ok(0) };
            let event = event?;
            match (
                event.get("type").and_then(Value::as_str),
                event.get("object"),
            ) {
                (Some("BOOKMARK"), _) | (_, None) => {}
                (Some("ERROR"), Some(status)) => {
                    let message = status
                        .get("message")
                        .and_then(Value::as_str)
                        .unwrap_or("unknown reason");
                    return Err(Failure::new("the watch ended", message));
                }
                (_, Some(object)) => match &shape {
                    Some(shape) if tables => {
                        let mut table = shape.table();
                        shape
                            .rows(object)
                            .into_iter()
                            .for_each(|row| table.row(row));
                        table.print(&mut std::io::stdout(), false)?;
                    }
                    _ => writeln!(std::io::stdout(), "{event}")?,
                },
            }
        }
    }
}

fn next_chunk(list: &Value) -> Option<String> {
    list.pointer("/metadata/continue")
        .and_then(Value::as_str)
        .filter(|t| !t.is_empty())
        .map(str::to_owned)
}

/// The objects of an answer, each with its apiVersion and kind.
fn objects(mut answer: Value) -> Vec<Value> {
    let text = |v: &Value, key: &str| {
        v.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let api_version = text(&answer, "apiVersion");
    let kind = text(&answer, "kind").trim_end_matches("List").to_owned();
    match answer
        .get_mut("items")
        .and_then(Value::as_array_mut)
        .map(std::mem::take)
    {
        None => vec![answer],
        Some(items) => items
            .into_iter()
            .map(|item| {
                let mut whole = json!({"apiVersion": api_version, "kind": kind});
                if let (Some(whole), Value::Object(fields)) = (whole.as_object_mut(), item) {
                    whole.extend(fields);
                }
                whole
            })
            .collect(),
    }
}

/// The columns of a table the server sent.
struct ServerTable {
    columns: Vec<(usize, String)>,
    namespace: bool,
}

impl ServerTable {
    fn new(answer: &Value, wide: bool, namespace: bool) -> Option<Self> {
        let definitions = answer.get("columnDefinitions")?.as_array()?;
        let columns = definitions
            .iter()
            .enumerate()
            .filter(|(_, d)| wide || d.get("priority").and_then(Value::as_i64).unwrap_or(0) == 0)
            .map(|(i, d)| {
                (
                    i,
                    d.get("name")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                        .to_uppercase(),
                )
            })
            .collect();
        Some(Self { columns, namespace })
    }

    fn table(&self) -> Table {
        let mut names: Vec<&str> = self.columns.iter().map(|(_, name)| name.as_str()).collect();
        if self.namespace {
            names.insert(0, "NAMESPACE");
        }
        Table::new(&names)
    }

    fn rows(&self, answer: &Value) -> Vec<Vec<String>> {
        let rows = answer
            .get("rows")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        rows.iter()
            .map(|row| {
                let cells = row
                    .get("cells")
                    .and_then(Value::as_array)
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let cell = |i: usize| match cells.get(i) {
                    None | Some(Value::Null) => "<none>".to_owned(),
                    Some(Value::String(s)) => s.clone(),
                    Some(other) => other.to_string(),
                };
                let mut printed: Vec<String> = self.columns.iter().map(|(i, _)| cell(*i)).collect();
                if self.namespace {
                    let namespace = row
                        .pointer("/object/metadata/namespace")
                        .and_then(Value::as_str);
                    printed.insert(0, namespace.unwrap_or_default().to_owned());
                }
                printed
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_columns_only_show_when_asked_and_namespaces_come_first() {
        let answer = json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "Age", "priority": 0}, {"name": "IP", "priority": 1}],
            "rows": [{"cells": ["a", "5s", "10.0.0.1"], "object": {"metadata": {"namespace": "shop"}}}],
        });
        let narrow = ServerTable::new(&answer, false, false).unwrap();
        assert_eq!(narrow.rows(&answer), [["a", "5s"]]);
        let wide = ServerTable::new(&answer, true, true).unwrap();
        assert_eq!(wide.rows(&answer), [["shop", "a", "5s", "10.0.0.1"]]);
    }

    #[test]
    fn items_of_a_list_carry_their_own_kind() {
        let list = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPoolList", "items": [{"metadata": {"name": "p"}}]});
        let items = objects(list);
        assert_eq!(items[0]["kind"], "IPPool");
        assert_eq!(items[0]["apiVersion"], "projectcalico.org/v3");
    }
}
