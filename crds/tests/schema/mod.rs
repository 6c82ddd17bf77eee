//! What a Kubernetes API server does with an object of a custom kind: defaults, structural validation, CEL rules.

use std::collections::BTreeSet;

use serde_json::Value;

/// The schema of the served version of a CRD document.
pub(crate) fn of(document: &str) -> Value {
    let document: Value = serde_saphyr::from_str(document).expect("the document is YAML");
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// The object as it would be stored, or every reason for refusing it.
pub(crate) fn admit(
    schema: &Value,
    object: &Value,
    old: Option<&Value>,
) -> Result<Value, Vec<String>> {
    let object = kube_cel::apply_defaults(schema, object);
    let mut reasons = Vec::new();
    structure(schema, &object, "", &mut reasons);
    // Rules are not run on an object whose shape they cannot rely on.
    let blocking = [
        "Required value",
        "must be of type",
        "must be of format",
        "may not be longer",
        "must have at most",
    ];
    if reasons
        .iter()
        .any(|reason| blocking.iter().any(|kind| reason.contains(kind)))
    {
        return Err(reasons);
    }
    let rules = kube_cel::compile_schema(schema);
    if let Err(errors) = kube_cel::validate_compiled(&rules, &object, old) {
        reasons.extend(
            errors
                .iter()
                .map(|error| format!("{}: {}", error.field_path, error.message)),
        );
    }
    if reasons.is_empty() {
        Ok(object)
    } else {
        Err(reasons)
    }
}

fn structure(schema: &Value, value: &Value, path: &str, reasons: &mut Vec<String>) {
    let mut refuse = |reason: String| reasons.push(format!("{path}: {reason}"));
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let fits = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ if schema["x-kubernetes-int-or-string"] == true => value.is_i64() || value.is_string(),
        _ => true,
    };
    if !fits {
        return refuse(format!("must be of type {}", schema["type"]));
    }
    if schema["enum"]
        .as_array()
        .is_some_and(|allowed| !allowed.contains(value))
    {
        refuse(format!("Unsupported value: {value}"));
    }
    if let Some(number) = value.as_f64() {
        if schema["minimum"]
            .as_f64()
            .is_some_and(|least| number < least)
        {
            refuse(format!("must be at least {}", schema["minimum"]));
        }
        if schema["maximum"]
            .as_f64()
            .is_some_and(|greatest| number > greatest)
        {
            refuse(format!("must be at most {}", schema["maximum"]));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if schema["maxLength"]
            .as_u64()
            .is_some_and(|greatest| length > greatest)
        {
            refuse(format!("may not be longer than {}", schema["maxLength"]));
        }
        if let Some(pattern) = schema["pattern"].as_str()
            && !regex::Regex::new(pattern)
                .expect("the pattern compiles")
                .is_match(text)
        {
            refuse(format!("must match {pattern}"));
        }
        if schema["format"] == "cidr" && !is_cidr(text) {
            refuse("must be of format cidr".into());
        }
    }
    if let Some(items) = value.as_array() {
        if schema["minItems"]
            .as_u64()
            .is_some_and(|least| (items.len() as u64) < least)
        {
            refuse(format!("must have at least {} items", schema["minItems"]));
        }
        if schema["maxItems"]
            .as_u64()
            .is_some_and(|greatest| items.len() as u64 > greatest)
        {
            refuse(format!("must have at most {} items", schema["maxItems"]));
        }
        let distinct: BTreeSet<String> = items.iter().map(Value::to_string).collect();
        if schema["x-kubernetes-list-type"] == "set" && distinct.len() != items.len() {
            refuse("Duplicate value".into());
        }
        for (index, item) in items.iter().enumerate() {
            structure(&schema["items"], item, &format!("{path}[{index}]"), reasons);
        }
    }
    if let Some(map) = value.as_object() {
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !map.contains_key(name) {
                reasons.push(format!("{path}.{name}: Required value"));
            }
        }
        for (name, child) in map {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            if let Some(property) = schema["properties"].get(name) {
                structure(property, child, &path, reasons);
            } else if schema["additionalProperties"].is_object() {
                structure(&schema["additionalProperties"], child, &path, reasons);
            } else if !path.starts_with("metadata.") {
                reasons.push(format!("{path}: unknown field"));
            }
        }
    }
}

/// Go's `net.ParseCIDR`: an address without leading zeros, a slash, a prefix length.
fn is_cidr(text: &str) -> bool {
    text.split_once('/')
        .is_some_and(|(address, _)| address.parse::<std::net::IpAddr>().is_ok())
        && text.parse::<ipnet::IpNet>().is_ok()
}
