//! Who set which field: `metadata.managedFields`, and server-side apply on top of it (Kubernetes "Server-Side Apply",
//! structured-merge-diff).
//!
//! * [`fields`]: sets of field paths and their `FieldsV1` form.
//! * [`walk`]: the set of an object, the difference of two objects, merging and removing.
//! * this file: the rules. A writer owns what it changes; an applier owns what its configuration names, gives up what
//!   it no longer names, and conflicts with owners of fields it wants to have another value.

pub mod fields;
pub mod walk;

use serde_json::{Value, json};

use super::{Part, Request};
use crate::status::{ApiError, FieldCause};
use fields::FieldSet;

/// Paths nobody owns: identity and what the server keeps.
const NOBODYS: &[&[&str]] = &[
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:deletionTimestamp"],
    &["f:metadata", "f:deletionGracePeriodSeconds"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
];

/// Manager of what was there before the first apply.
const BEFORE: &str = "before-first-apply";

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
struct Owner {
    manager: String,
    /// `Apply` or `Update`.
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    fields: FieldSet,
}

impl Owner {
    fn new(request: &Request<'_>, operation: &str) -> Self {
        Self {
            manager: request.manager.to_owned(),
            operation: operation.to_owned(),
            api_version: request.resource.api_version(),
            subresource: if request.part == Part::Status {
                "status".into()
            } else {
                String::new()
            },
            time: request.now.to_owned(),
            fields: FieldSet::default(),
        }
    }

    fn is(&self, other: &Self) -> bool {
        (
            &self.manager,
            &self.operation,
            &self.api_version,
            &self.subresource,
        ) == (
            &other.manager,
            &other.operation,
            &other.api_version,
            &other.subresource,
        )
    }

    fn parse(entry: &Value) -> Option<Self> {
        let text = |f: &str| entry[f].as_str().unwrap_or_default().to_owned();
        Some(Self {
            manager: text("manager"),
            operation: text("operation"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: text("time"),
            fields: FieldSet::from_json(entry.get("fieldsV1")?)?,
        })
    }

    fn to_json(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
        });
        if !self.subresource.is_empty() {
            entry["subresource"] = self.subresource.as_str().into();
        }
        entry
    }

    /// As shown in conflicts.
    fn title(&self) -> String {
        let operation = if self.operation == "Apply" {
            ""
        } else {
            " using "
        };
        let version = if self.operation == "Apply" {
            ""
        } else {
            &self.api_version
        };
        format!("\"{}\"{operation}{version}", self.manager)
    }
}

fn owners(object: Option<&Value>) -> Vec<Owner> {
    let list = object.and_then(|o| o["metadata"]["managedFields"].as_array());
    list.into_iter()
        .flatten()
        .filter_map(Owner::parse)
        .collect()
}

fn store(object: &mut Value, mut owners: Vec<Owner>) {
    owners.retain(|o| !o.fields.is_empty());
    // Appliers first, then by time, as clients expect to read them.
    owners.sort_by(|a, b| {
        (&a.operation, &a.time, &a.manager).cmp(&(&b.operation, &b.time, &b.manager))
    });
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.shift_remove("managedFields");
        if !owners.is_empty() {
            let list = owners.iter().map(Owner::to_json).collect();
            metadata.insert("managedFields".into(), Value::Array(list));
        }
    }
}

fn strip(mut fields: FieldSet) -> FieldSet {
    for path in NOBODYS {
        fields.remove(path);
    }
    fields
}

/// Records a create, update or patch: what changed between `old` and `object` belongs to the writer.
pub(super) fn record_update(object: &mut Value, old: Option<&Value>, request: &Request<'_>) {
    let given = object["metadata"]
        .get("managedFields")
        .and_then(Value::as_array);
    let mut owners = match given {
        // An empty list is how a client asks to start over.
        Some(list)
            if list
                .iter()
                .all(|e| e.as_object().is_none_or(serde_json::Map::is_empty)) =>
        {
            Vec::new()
        }
        Some(_) => owners(Some(object)),
        None => owners(old),
    };
    let schema = request.resource.schema.compiled();
    let empty = json!({});
    let diff = walk::compare(schema, old.unwrap_or(&empty), object);
    let changed = strip(diff.changed());
    let removed = strip(diff.removed);
    for owner in &mut owners {
        owner.fields.subtract(&changed);
        owner.fields.subtract(&removed);
    }
    if !changed.is_empty() {
        let mut writer = Owner::new(request, "Update");
        if let Some(at) = owners.iter().position(|o| o.is(&writer)) {
            writer.fields = owners.remove(at).fields;
        }
        writer.fields.add(&changed);
        owners.push(writer);
    }
    store(object, owners);
}

/// Applies a configuration to `live`. The result carries the new owners; nothing else is admitted yet.
///
/// # Errors
/// 409 with one cause per field when others own fields that would change and `force` is not set.
pub(super) fn apply(
    live: Option<&Value>,
    config: &Value,
    request: &Request<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let schema = request.resource.schema.compiled();
    let empty = json!({});
    let base = live.unwrap_or(&empty);
    let mut owners = owners(live);
    if owners.is_empty() && live.is_some() {
        let mut before = Owner::new(request, "Update");
        before.manager = BEFORE.into();
        before.fields = strip(walk::compare(schema, &empty, base).changed());
        owners.push(before);
    }
    let mut applier = Owner::new(request, "Apply");
    let previous = owners
        .iter()
        .position(|o| o.is(&applier))
        .map(|at| owners.remove(at));
    applier.fields = strip(walk::field_set(schema, config));
    let mut next = walk::merge(schema, base, config);
    if let Some(previous) = &previous {
        let mut given_up = previous.fields.clone();
        given_up.subtract(&applier.fields);
        for owner in &owners {
            given_up.subtract(&owner.fields);
        }
        walk::remove(schema, &mut next, &given_up);
    }
    let diff = walk::compare(schema, base, &next);
    let changed = strip(diff.changed());
    let conflicts = conflicts(&owners, &changed, &applier);
    if !conflicts.is_empty() && !force {
        return Err(conflict(conflicts));
    }
    for owner in &mut owners {
        owner.fields.subtract(&changed);
        owner.fields.subtract(&diff.removed);
    }
    if let Some(previous) = previous
        && previous.fields == applier.fields
    {
        applier.time = previous.time;
    }
    owners.push(applier);
    store(&mut next, owners);
    Ok(next)
}

fn conflicts(owners: &[Owner], changed: &FieldSet, applier: &Owner) -> Vec<(String, String)> {
    let mut conflicts = Vec::new();
    for owner in owners.iter().filter(|o| !o.is(applier)) {
        let shared = owner.fields.intersection(changed);
        conflicts.extend(shared.paths().into_iter().map(|path| (owner.title(), path)));
    }
    conflicts
}

fn conflict(conflicts: Vec<(String, String)>) -> ApiError {
    let count = conflicts.len();
    let plural = if count == 1 { "" } else { "s" };
    let mut by_owner: Vec<(String, Vec<String>)> = Vec::new();
    for (owner, path) in &conflicts {
        match by_owner.iter_mut().find(|(o, _)| o == owner) {
            Some((_, paths)) => paths.push(path.clone()),
            None => by_owner.push((owner.clone(), vec![path.clone()])),
        }
    }
    let message = match by_owner.as_slice() {
        [(owner, paths)] if paths.len() == 1 => {
            format!(
                "Apply failed with {count} conflict{plural}: conflict with {owner}: {}",
                paths[0]
            )
        }
        _ => {
            let lines: Vec<String> = by_owner
                .iter()
                .map(|(owner, paths)| format!("conflicts with {owner}:\n- {}", paths.join("\n- ")))
                .collect();
            format!(
                "Apply failed with {count} conflict{plural}: {}",
                lines.join("\n")
            )
        }
    };
    let causes = conflicts
        .into_iter()
        .map(|(owner, path)| FieldCause {
            reason: "FieldManagerConflict",
            field: path,
            message: format!("conflict with {owner}"),
        })
        .collect();
    ApiError::apply_conflict(message, causes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::FieldValidation;
    use crate::resource::Resource;
    use crate::resource::catalog::Live;
    use std::sync::Arc;

    fn services() -> Arc<Resource> {
        Arc::clone(
            Live::default()
                .current()
                .find("", "v1", "services")
                .unwrap(),
        )
    }

    fn request<'a>(resource: &'a Resource, manager: &'a str) -> Request<'a> {
        Request {
            resource,
            namespace: "default",
            part: Part::Main,
            validation: FieldValidation::Ignore,
            manager,
            now: "2026-01-01T00:00:00Z",
        }
    }

    fn config(labels: Value, ports: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": labels},
            "spec": {"ports": ports}})
    }

    #[test]
    fn applying_twice_changes_nothing() {
        let resource = services();
        let wanted = config(
            json!({"a": "1"}),
            json!([{"port": 80, "protocol": "TCP", "name": "x"}]),
        );
        let first = apply(None, &wanted, &request(&resource, "ada"), false).unwrap();
        let second = apply(Some(&first), &wanted, &request(&resource, "ada"), false).unwrap();
        assert_eq!(first, second);
        let fields = &first["metadata"]["managedFields"][0]["fieldsV1"];
        let port = &fields["f:spec"]["f:ports"][r#"k:{"port":80,"protocol":"TCP"}"#];
        assert_eq!(port["f:name"], json!({}));
        assert!(fields["f:metadata"].get("f:name").is_none());
    }

    #[test]
    fn what_is_no_longer_named_goes_unless_somebody_else_owns_it() {
        let resource = services();
        let wanted = config(json!({"a": "1", "b": "1"}), json!([]));
        let live = apply(None, &wanted, &request(&resource, "ada"), false).unwrap();
        let shared = config(json!({"b": "1"}), json!([]));
        let live = apply(Some(&live), &shared, &request(&resource, "bob"), false).unwrap();
        let less = config(json!({}), json!([]));
        let live = apply(Some(&live), &less, &request(&resource, "ada"), false).unwrap();
        assert_eq!(live["metadata"]["labels"], json!({"b": "1"}));
    }

    #[test]
    fn another_value_for_an_owned_field_conflicts_and_force_takes_over() {
        let resource = services();
        let ada = config(
            json!({"a": "1"}),
            json!([{"port": 80, "protocol": "TCP", "name": "x"}]),
        );
        let live = apply(None, &ada, &request(&resource, "ada"), false).unwrap();
        let bob = config(
            json!({"a": "2"}),
            json!([{"port": 81, "protocol": "TCP", "name": "y"}]),
        );
        let error = apply(Some(&live), &bob, &request(&resource, "bob"), false).unwrap_err();
        assert_eq!(error.code, 409);
        assert_eq!(
            error.message,
            "Apply failed with 1 conflict: conflict with \"ada\": .metadata.labels.a"
        );
        let live = apply(Some(&live), &bob, &request(&resource, "bob"), true).unwrap();
        assert_eq!(live["metadata"]["labels"]["a"], "2");
        assert_eq!(live["spec"]["ports"].as_array().unwrap().len(), 2);
        let again = apply(Some(&live), &ada, &request(&resource, "ada"), false).unwrap_err();
        assert!(again.message.contains("\"bob\""));
    }

    #[test]
    fn an_update_takes_ownership_of_what_it_changes() {
        let resource = services();
        let ada = config(json!({"a": "1", "b": "1"}), json!([]));
        let live = apply(None, &ada, &request(&resource, "ada"), false).unwrap();
        let mut edited = live.clone();
        edited["metadata"]["labels"]["a"] = "2".into();
        record_update(&mut edited, Some(&live), &request(&resource, "editor"));
        let error = apply(Some(&edited), &ada, &request(&resource, "ada"), false).unwrap_err();
        assert_eq!(
            error.message,
            "Apply failed with 1 conflict: conflict with \"editor\" using v1: .metadata.labels.a"
        );
    }
}
