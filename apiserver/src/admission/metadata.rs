//! Object metadata: names, what only the server sets, finalizers (Kubernetes "Object Names and IDs", "Finalizers").

use rand::Rng as _;
use serde_json::{Map, Value};

use super::{Part, Request};
use crate::resource::Resource;
use crate::status::{ApiError, FieldCause};

/// Alphabet of generated suffixes: no vowels or lookalikes, so that no words appear.
const SUFFIX: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// Kubernetes' limit for all annotations of an object together, in bytes.
const ANNOTATIONS: usize = 256 * 1024;
/// Fields only the server sets.
const SERVER_SET: [&str; 7] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "resourceVersion",
];

/// Sets what a new object gets from the server.
pub(super) fn prepare_create(object: &mut Value, request: &Request<'_>) -> Result<(), ApiError> {
    let namespace = request.namespace;
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(ApiError::bad_request("metadata is not an object"));
    };
    if metadata
        .get("resourceVersion")
        .and_then(Value::as_str)
        .is_some_and(|v| !v.is_empty())
    {
        return Err(ApiError::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    for field in SERVER_SET {
        metadata.shift_remove(field);
    }
    namespaced(metadata, request.resource, namespace)?;
    let text = |m: &Map<String, Value>, f: &str| {
        m.get(f)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if text(metadata, "name").is_empty() {
        let prefix = text(metadata, "generateName");
        if prefix.is_empty() {
            let cause = FieldCause::required("metadata.name", "name or generateName is required");
            let Resource { group, kind, .. } = request.resource;
            return Err(ApiError::invalid(group, kind, "", vec![cause]));
        }
        metadata.insert("name".into(), generate_name(&prefix).into());
    }
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), request.now.into());
    Ok(())
}

fn generate_name(prefix: &str) -> String {
    let mut rng = rand::rng();
    let suffix: String = (0..5)
        .map(|_| char::from(SUFFIX[rng.random_range(0..SUFFIX.len())]))
        .collect();
    let prefix: String = prefix.chars().take(58).collect();
    prefix + &suffix
}

fn namespaced(
    metadata: &mut Map<String, Value>,
    resource: &Resource,
    namespace: &str,
) -> Result<(), ApiError> {
    let given = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !resource.namespaced {
        metadata.shift_remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != namespace {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace".into(), namespace.into());
    Ok(())
}

/// Checks the optimistic lock and keeps what a writer may not change.
pub(super) fn prepare_update(
    old: &Value,
    object: &mut Value,
    request: &Request<'_>,
) -> Result<(), ApiError> {
    let Resource {
        group,
        plural,
        kind,
        ..
    } = request.resource;
    let old_metadata = &old["metadata"];
    let name = old_metadata["name"].as_str().unwrap_or_default();
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return Err(ApiError::bad_request("metadata is not an object"));
    };
    let text = |f: &str| {
        metadata
            .get(f)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let given = text("name");
    if !given.is_empty() && given != name {
        return Err(ApiError::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let revision = text("resourceVersion");
    if revision.is_empty() && request.resource.custom {
        let why = "must be specified for an update";
        let cause = FieldCause::invalid("metadata.resourceVersion", &0.into(), why);
        return Err(ApiError::invalid(group, kind, name, vec![cause]));
    }
    if !revision.is_empty() && old_metadata["resourceVersion"] != revision.as_str() {
        return Err(ApiError::conflict(
            group,
            plural,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        ));
    }
    let uid = text("uid");
    if !uid.is_empty() && old_metadata["uid"] != uid.as_str() {
        let actual = old_metadata["uid"].as_str().unwrap_or_default();
        return Err(ApiError::conflict(
            group,
            plural,
            name,
            &format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
            ),
        ));
    }
    metadata.insert("name".into(), name.into());
    namespaced(metadata, request.resource, request.namespace)?;
    for field in SERVER_SET {
        match old_metadata.get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.shift_remove(field),
        };
    }
    if old_metadata["deletionTimestamp"].is_string() && request.part == Part::Main {
        let added = added_finalizers(&old_metadata["finalizers"], metadata.get("finalizers"));
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
            );
            let cause = FieldCause::forbidden("metadata.finalizers", &why);
            return Err(ApiError::invalid(group, kind, name, vec![cause]));
        }
    }
    Ok(())
}

fn added_finalizers(old: &Value, new: Option<&Value>) -> Vec<String> {
    let list = |v: &Value| -> Vec<String> {
        v.as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let old = list(old);
    new.map(list)
        .unwrap_or_default()
        .into_iter()
        .filter(|f| !old.contains(f))
        .collect()
}

/// Whether somebody still has to clean up before the object may go. A namespace's own finalizers count.
pub fn has_finalizers(object: &Value) -> bool {
    let any = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty())
    };
    any("/metadata/finalizers") || (object["kind"] == "Namespace" && any("/spec/finalizers"))
}

/// Violations of the rules for metadata.
pub(super) fn check(object: &Value, resource: &Resource) -> Vec<FieldCause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if let Err(why) = check_name(name, resource) {
        causes.push(FieldCause::invalid("metadata.name", &metadata["name"], why));
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !is_qualified_name(key) {
            causes.push(FieldCause::invalid(
                "metadata.labels",
                &key.as_str().into(),
                QUALIFIED,
            ));
        }
        if value.as_str().is_some_and(|v| !is_label_value(v)) {
            causes.push(FieldCause::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
    let mut total = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        total += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(&key.to_lowercase()) {
            causes.push(FieldCause::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                QUALIFIED,
            ));
        }
    }
    if total > ANNOTATIONS {
        causes.push(FieldCause {
            reason: "FieldValueTooLong",
            field: "metadata.annotations".into(),
            message: format!("Too long: may not be more than {ANNOTATIONS} bytes"),
        });
    }
    for (index, owner) in metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(FieldCause::required(path, "must not be empty"));
            }
        }
    }
    causes
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name', or '123-abc')";
const SERVICE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123')";
const SEGMENT: &str = "may not be '.' or '..' or contain '/' or '%'";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc'), with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue', or 'my_value', or '12345')";

fn check_name(name: &str, resource: &Resource) -> Result<(), &'static str> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => is_label(name).then_some(()).ok_or(LABEL),
        ("", "services") => {
            let alphabetic = name.starts_with(|c: char| c.is_ascii_lowercase());
            (is_label(name) && alphabetic).then_some(()).ok_or(SERVICE)
        }
        ("rbac.authorization.k8s.io", _) => {
            let bad = name.is_empty() || matches!(name, "." | "..") || name.contains(['/', '%']);
            (!bad).then_some(()).ok_or(SEGMENT)
        }
        _ => is_subdomain(name).then_some(()).ok_or(SUBDOMAIN),
    }
}

fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&text.len())
        && text.chars().all(fits)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    let part = |p: &str| {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !p.is_empty() && p.chars().all(fits) && !p.starts_with('-') && !p.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| edge(c) || matches!(c, '-' | '_' | '.');
    text.len() <= 63
        && text.chars().all(inner)
        && (text.is_empty() || (text.starts_with(edge) && text.ends_with(edge)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "a.b-c", "10.0.0.0-26", &"a".repeat(253)] {
            assert!(is_subdomain(good), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", "a/b", &"a".repeat(254)] {
            assert!(!is_subdomain(bad), "{bad}");
        }
        assert!(is_qualified_name("projectcalico.org/ds_1.x"));
        assert!(!is_qualified_name("a/b/c"));
        assert!(!is_qualified_name("/c"));
        assert!(is_label_value(""));
        assert!(!is_label_value("-a"));
    }

    #[test]
    fn generated_names_keep_the_prefix_and_differ() {
        let (a, b) = (generate_name("pod-"), generate_name("pod-"));
        assert!(a.starts_with("pod-") && a.len() == 9);
        assert_ne!(a, b);
        assert_eq!(generate_name(&"x".repeat(100)).len(), 63);
    }
}
