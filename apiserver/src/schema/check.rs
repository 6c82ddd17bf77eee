//! JSON-schema validation with the limits Kubernetes knows, and the wording of its refusals.

use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::{Compiled, Extra, ListKind, Node, Type, compile, formats};
use crate::status::FieldCause;

/// Reason of a value that has another JSON type than the schema.
pub const WRONG_TYPE: &str = "FieldValueTypeInvalid";

/// Constraints of one node.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    allowed: Vec<Value>,
    pattern: Option<String>,
    regex: OnceLock<Option<Regex>>,
    format: Option<String>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: bool,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
    unique: bool,
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Box<Node>>,
}

impl PartialEq for Limits {
    fn eq(&self, other: &Self) -> bool {
        (&self.allowed, &self.pattern, &self.format)
            == (&other.allowed, &other.pattern, &other.format)
            && (self.minimum, self.maximum, self.min_length, self.max_length)
                == (
                    other.minimum,
                    other.maximum,
                    other.min_length,
                    other.max_length,
                )
            && (&self.all_of, &self.any_of, &self.one_of, &self.not)
                == (&other.all_of, &other.any_of, &other.one_of, &other.not)
    }
}

impl Limits {
    /// Reads the constraints of a schema; `None` if it has none.
    pub(super) fn parse(map: &Map<String, Value>) -> Option<Self> {
        const NAMES: [&str; 18] = [
            "enum",
            "pattern",
            "format",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "uniqueItems",
            "allOf",
            "anyOf",
            "oneOf",
        ];
        if !NAMES.iter().any(|n| map.contains_key(*n)) && !map.contains_key("not") {
            return None;
        }
        let number = |name: &str| map.get(name).and_then(Value::as_f64);
        let size = |name: &str| map.get(name).and_then(Value::as_u64).map(|n| n as usize);
        let text = |name: &str| map.get(name).and_then(Value::as_str).map(str::to_owned);
        let flag = |name: &str| map.get(name) == Some(&Value::Bool(true));
        // Branches only constrain; they never declare fields.
        let nodes = |name: &str| -> Vec<Node> {
            let list = map.get(name).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .map(|s| compile::node(s, false))
                .collect()
        };
        Some(Self {
            allowed: map
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            pattern: text("pattern"),
            regex: OnceLock::new(),
            format: text("format"),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
            unique: flag("uniqueItems"),
            all_of: nodes("allOf"),
            any_of: nodes("anyOf"),
            one_of: nodes("oneOf"),
            not: map.get("not").map(|s| Box::new(compile::node(s, false))),
        })
    }
}

/// All violations of the schema.
pub fn check(schema: &Compiled, object: &Value) -> Vec<FieldCause> {
    let mut causes = Vec::new();
    walk(
        schema,
        schema.root(),
        object,
        &mut String::new(),
        &mut causes,
    );
    causes
}

fn walk(
    schema: &Compiled,
    node: &Node,
    value: &Value,
    path: &mut String,
    causes: &mut Vec<FieldCause>,
) {
    let node = schema.resolve(node);
    if value.is_null() && node.nullable {
        return;
    }
    if let Some(wrong) = wrong_type(node, value) {
        causes.push(FieldCause {
            reason: WRONG_TYPE,
            ..FieldCause::invalid(field(path), value, wrong)
        });
        return;
    }
    if let Some(limits) = &node.limits {
        limits.check(schema, value, path, causes);
    }
    let length = path.len();
    match value {
        Value::Object(map) => {
            for name in node.required.iter().filter(|n| !map.contains_key(*n)) {
                let missing = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                causes.push(FieldCause::required(missing, ""));
            }
            for (name, child) in map {
                let child_schema = match (node.properties.get(name), &node.extra) {
                    (Some(property), _) => property,
                    (None, Extra::Values(values)) => values,
                    _ => continue,
                };
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                walk(schema, child_schema, child, path, causes);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            for (index, child) in list.iter().enumerate() {
                path.push_str(&format!("[{index}]"));
                if let Some(items) = &node.items {
                    walk(schema, items, child, path, causes);
                }
                if duplicate(&node.list, &list[..index], child) {
                    causes.push(FieldCause {
                        reason: "FieldValueDuplicate",
                        field: path.clone(),
                        message: format!("Duplicate value: {child}"),
                    });
                }
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn field(path: &str) -> String {
    if path.is_empty() {
        "<nil>".into()
    } else {
        path.into()
    }
}

fn duplicate(kind: &ListKind, before: &[Value], value: &Value) -> bool {
    match kind {
        ListKind::Atomic => false,
        ListKind::Set => before.contains(value),
        ListKind::Map(keys) => before
            .iter()
            .any(|other| keys.iter().all(|k| other.get(k) == value.get(k))),
    }
}

fn wrong_type(node: &Node, value: &Value) -> Option<String> {
    let is = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() && n.as_f64().is_none_or(|f| f.fract() != 0.0) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if node.int_or_string {
        let fits = matches!(is, "integer" | "string" | "number");
        return (!fits).then(|| format!("must be of type integer or string: \"{is}\""));
    }
    let (name, fits) = match node.kind? {
        Type::Object => ("object", is == "object"),
        Type::Array => ("array", is == "array"),
        Type::String => ("string", is == "string"),
        Type::Integer => ("integer", is == "integer"),
        Type::Number => ("number", is == "integer" || is == "number"),
        Type::Boolean => ("boolean", is == "boolean"),
    };
    (!fits).then(|| format!("must be of type {name}: \"{is}\""))
}

impl Limits {
    fn check(
        &self,
        schema: &Compiled,
        value: &Value,
        path: &mut String,
        out: &mut Vec<FieldCause>,
    ) {
        let mut bad = |why: String| out.push(FieldCause::invalid(field(path), value, why));
        if let Some(pattern) = &self.pattern
            && let Value::String(text) = value
        {
            let regex = self.regex.get_or_init(|| Regex::new(pattern).ok());
            if regex.as_ref().is_some_and(|r| !r.is_match(text)) {
                bad(format!("should match '{pattern}'"));
            }
        }
        if let Some(format) = &self.format
            && !formats::fits(format, value)
        {
            bad(format!("must be of type {format}: {value}"));
        }
        if let Some(number) = value.as_f64() {
            self.number(number, &mut bad);
        }
        self.sizes(value, &mut bad);
        if self.unique
            && let Value::Array(list) = value
            && list.iter().enumerate().any(|(i, v)| list[..i].contains(v))
        {
            bad("shouldn't contain duplicates".into());
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            let allowed: Vec<String> = self.allowed.iter().map(Value::to_string).collect();
            out.push(FieldCause {
                reason: "FieldValueNotSupported",
                field: field(path),
                message: format!(
                    "Unsupported value: {value}: supported values: {}",
                    allowed.join(", ")
                ),
            });
        }
        self.branches(schema, value, path, out);
    }

    fn number(&self, number: f64, bad: &mut dyn FnMut(String)) {
        if let Some(least) = self.minimum {
            if number < least {
                bad(format!("should be greater than or equal to {least}"));
            } else if self.exclusive_minimum && number == least {
                bad(format!("should be greater than {least}"));
            }
        }
        if let Some(most) = self.maximum {
            if number > most {
                bad(format!("should be less than or equal to {most}"));
            } else if self.exclusive_maximum && number == most {
                bad(format!("should be less than {most}"));
            }
        }
        if let Some(step) = self.multiple_of
            && step > 0.0
            && number % step != 0.0
        {
            bad(format!("should be a multiple of {step}"));
        }
    }

    fn sizes(&self, value: &Value, bad: &mut dyn FnMut(String)) {
        let (size, least, most, unit) = match value {
            Value::String(s) => (
                s.chars().count(),
                self.min_length,
                self.max_length,
                "chars long",
            ),
            Value::Array(l) => (l.len(), self.min_items, self.max_items, "items"),
            Value::Object(m) => (
                m.len(),
                self.min_properties,
                self.max_properties,
                "properties",
            ),
            _ => return,
        };
        let verb = if value.is_string() { "be" } else { "have" };
        if let Some(least) = least.filter(|l| size < *l) {
            bad(format!("should {verb} at least {least} {unit}"));
        }
        if let Some(most) = most.filter(|m| size > *m) {
            bad(format!("should {verb} at most {most} {unit}"));
        }
    }

    fn branches(
        &self,
        schema: &Compiled,
        value: &Value,
        path: &mut String,
        out: &mut Vec<FieldCause>,
    ) {
        let fits = |node: &Node, path: &mut String| {
            let mut causes = Vec::new();
            walk(schema, node, value, path, &mut causes);
            causes.is_empty()
        };
        for node in &self.all_of {
            walk(schema, node, value, path, out);
        }
        let any = self.any_of.iter().filter(|n| fits(n, path)).count();
        let one = self.one_of.iter().filter(|n| fits(n, path)).count();
        let not = self.not.as_ref().is_some_and(|n| fits(n, path));
        let mut bad = |why: &str| out.push(FieldCause::invalid(field(path), value, why));
        if !self.any_of.is_empty() && any == 0 {
            bad("must validate at least one schema (anyOf)");
        }
        if !self.one_of.is_empty() && one != 1 {
            bad("must validate one and only one schema (oneOf)");
        }
        if not {
            bad("must not validate the schema (not)");
        }
    }
}

/// A CEL rule's refusal as a cause.
pub(super) fn cel_cause(object: &Value, error: &kube_cel::ValidationError) -> FieldCause {
    let pointer = error.field_path.trim_start_matches('.');
    let mut value = object;
    for part in pointer.split(['.', '[']).filter(|p| !p.is_empty()) {
        let part = part.trim_end_matches(']').trim_matches('"');
        value = match value {
            Value::Array(list) => part.parse().ok().and_then(|i: usize| list.get(i)),
            other => other.get(part),
        }
        .unwrap_or(&Value::Null);
    }
    FieldCause::invalid(field(pointer), value, &error.message)
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    fn causes(schema: Value, object: Value) -> Vec<String> {
        let schema = parse(schema);
        let found = check(schema.compiled(), &object);
        found
            .into_iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect()
    }

    #[test]
    fn each_limit_names_field_and_value() {
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {
            "type": "object", "required": ["cidr"], "properties": {
                "cidr": {"type": "string", "format": "cidr"},
                "mode": {"type": "string", "enum": ["Always", "Never"]},
                "size": {"type": "integer", "minimum": 20, "maximum": 32},
                "uses": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 2,
                    "items": {"type": "string"}},
                "time": {"type": "string", "pattern": "^[0-9]+s$"}}}}});
        assert_eq!(causes(schema.clone(), json!({})), ["spec: Required value"]);
        let bad =
            json!({"spec": {"mode": "Maybe", "size": 33, "uses": ["a", "a", "b"], "time": "x"}});
        assert_eq!(
            causes(schema.clone(), bad),
            [
                "spec.cidr: Required value",
                "spec.mode: Unsupported value: \"Maybe\": supported values: \"Always\", \"Never\"",
                "spec.size: Invalid value: 33: should be less than or equal to 32",
                "spec.uses: Invalid value: array: should have at most 2 items",
                "spec.uses[1]: Duplicate value: \"a\"",
                "spec.time: Invalid value: \"x\": should match '^[0-9]+s$'",
            ]
        );
        let wrong = json!({"spec": {"cidr": "10.0.0.1", "size": "26"}});
        assert_eq!(
            causes(schema, wrong),
            [
                "spec.cidr: Invalid value: \"10.0.0.1\": must be of type cidr: \"10.0.0.1\"",
                "spec.size: Invalid value: \"26\": must be of type integer: \"string\"",
            ]
        );
    }

    #[test]
    fn int_or_string_with_any_of_takes_both() {
        let schema = json!({"type": "object", "properties": {"port": {
            "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true}}});
        assert!(causes(schema.clone(), json!({"port": 1})).is_empty());
        assert!(causes(schema.clone(), json!({"port": "a"})).is_empty());
        assert_eq!(causes(schema, json!({"port": true})).len(), 1);
    }
}
