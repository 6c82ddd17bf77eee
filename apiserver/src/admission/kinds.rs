//! The few rules of single kinds that schemas cannot say.

use serde_json::{Value, json};

use super::{Part, Request, policies};
use crate::resource::{Resource, crd};
use crate::status::FieldCause;

/// Fills in what the server decides for some kinds.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>, request: &Request<'_>) {
    match (
        request.resource.group.as_str(),
        request.resource.kind.as_str(),
    ) {
        ("", "Namespace") => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            match old {
                None => {
                    object["spec"] = json!({"finalizers": ["kubernetes"]});
                    object["status"] = json!({"phase": "Active"});
                }
                // What empties the namespace before it goes is not for every writer to remove.
                Some(old) if request.part != Part::Finalize => {
                    object["spec"] = old["spec"].clone();
                }
                Some(_) => {}
            }
        }
        ("", "Pod") if old.is_none() => object["status"] = json!({"phase": "Pending"}),
        ("", "Service") if old.is_none() => object["status"] = json!({"loadBalancer": {}}),
        ("", "Secret") => string_data(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") if request.part == Part::Main => {
            crd::establish(object, request.now);
        }
        _ => {}
    }
}

/// `stringData` is a convenience for writers; only `data` is stored.
fn string_data(secret: &mut Value) {
    use base64::Engine as _;
    let Some(map) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(given)) = map.shift_remove("stringData") else {
        return;
    };
    let data = map.entry("data").or_insert_with(|| json!({}));
    for (key, value) in given {
        let encoded =
            base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data[key.as_str()] = encoded.into();
    }
}

/// Violations of kind rules.
pub(super) fn check(object: &Value, old: Option<&Value>, resource: &Resource) -> Vec<FieldCause> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object, old),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            policies::unsupported(object)
        }
        ("", "Secret" | "ConfigMap") => immutable(object, old),
        ("", "Pod") => pod(object, old),
        _ => Vec::new(),
    }
}

fn definition(crd: &Value, old: Option<&Value>) -> Vec<FieldCause> {
    let spec = &crd["spec"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut causes = Vec::new();
    let wanted = format!(
        "{}.{}",
        text(&spec["names"]["plural"]),
        text(&spec["group"])
    );
    if crd["metadata"]["name"] != wanted.as_str() {
        let why = format!("must be spec.names.plural+\".\"+spec.group: \"{wanted}\"");
        causes.push(FieldCause::invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            why,
        ));
    }
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(FieldCause::invalid("spec.versions", &spec["versions"], why));
    }
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(FieldCause::required(path, "schemas are required"));
        }
    }
    if !matches!(spec["scope"].as_str(), Some("Namespaced" | "Cluster")) {
        causes.push(FieldCause {
            reason: "FieldValueNotSupported",
            field: "spec.scope".into(),
            message: format!(
                "Unsupported value: {}: supported values: \"Cluster\", \"Namespaced\"",
                spec["scope"]
            ),
        });
    }
    if let Some(old) = old {
        for pointer in [
            "/spec/group",
            "/spec/scope",
            "/spec/names/plural",
            "/spec/names/kind",
        ] {
            if old.pointer(pointer) != crd.pointer(pointer) {
                let path = pointer.trim_start_matches('/').replace('/', ".");
                let value = crd.pointer(pointer).unwrap_or(&Value::Null);
                causes.push(FieldCause::invalid(path, value, "field is immutable"));
            }
        }
    }
    causes
}

fn immutable(object: &Value, old: Option<&Value>) -> Vec<FieldCause> {
    let Some(old) = old.filter(|o| o["immutable"] == true) else {
        return Vec::new();
    };
    let why = "field is immutable when `immutable` is set";
    ["immutable", "data", "binaryData"]
        .into_iter()
        .filter(|f| old.get(f) != object.get(f))
        .map(|f| FieldCause::forbidden(f, why))
        .collect()
}

/// A pod stays on the node it was bound to.
fn pod(pod: &Value, old: Option<&Value>) -> Vec<FieldCause> {
    let Some(bound) = old
        .and_then(|o| o["spec"]["nodeName"].as_str())
        .filter(|n| !n.is_empty())
    else {
        return Vec::new();
    };
    if pod["spec"]["nodeName"] == bound {
        return Vec::new();
    }
    vec![FieldCause::forbidden(
        "spec.nodeName",
        "a bound pod cannot move to another node",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_is_encoded_into_data() {
        let mut secret = json!({"data": {"a": "eA=="}, "stringData": {"b": "y"}});
        string_data(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "eA==", "b": "eQ=="}}));
    }
}
