//! Label and field selectors as in query strings (Kubernetes: "Labels and Selectors", "Field Selectors").

use serde_json::Value;

use crate::resource::Resource;
use crate::status::ApiError;

#[derive(Debug, Clone, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

/// What a list or watch is limited to.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// Path, value, wanted equal.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    /// Parses `labelSelector` and `fieldSelector`; the resource says which fields may be used.
    pub(crate) fn parse(labels: &str, fields: &str, resource: &Resource) -> Result<Self, ApiError> {
        let labels = split(labels)
            .into_iter()
            .map(|r| requirement(&r).ok_or_else(|| unparsable(&r)))
            .collect::<Result<_, _>>()?;
        let fields = fields
            .split(',')
            .filter(|f| !f.trim().is_empty())
            .map(|f| field(f, resource))
            .collect::<Result<_, _>>()?;
        Ok(Self { labels, fields })
    }

    /// Whether everything matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name asked for, if `metadata.name=x` is among the fields.
    pub(crate) fn name(&self) -> Option<&str> {
        let found = self
            .fields
            .iter()
            .find(|(path, _, equal)| path == "metadata.name" && *equal);
        found.map(|(_, name, _)| name.as_str())
    }

    /// Whether `object`, in the served version, is selected.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        self.labels.iter().all(|r| r.matches(&label))
            && self
                .fields
                .iter()
                .all(|(path, wanted, equal)| (field_value(object, path) == *wanted) == *equal)
    }
}

impl Requirement {
    fn matches<'a>(&self, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(key, values) => label(key).is_none_or(|v| !values.iter().any(|w| w == v)),
            Self::Exists(key) => label(key).is_some(),
            Self::Absent(key) => label(key).is_none(),
            Self::Greater(key, n) => number(label(key)).is_some_and(|v| v > *n),
            Self::Less(key, n) => number(label(key)).is_some_and(|v| v < *n),
        }
    }
}

fn number(text: Option<&str>) -> Option<i64> {
    text?.parse().ok()
}

fn unparsable(text: &str) -> ApiError {
    ApiError::bad_request(format!(
        "unable to parse requirement: \"{text}\" is not a label selector"
    ))
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth, mut current) = (Vec::new(), 0, String::new());
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(std::mem::take(&mut current));
                continue;
            }
            _ => {}
        }
        current.push(c);
    }
    parts.push(current);
    parts.retain(|p| !p.trim().is_empty());
    parts
}

fn requirement(text: &str) -> Option<Requirement> {
    let text = text.trim();
    for (operator, build) in [
        (
            "!=",
            Requirement::NotIn as fn(String, Vec<String>) -> Requirement,
        ),
        ("==", Requirement::In),
        ("=", Requirement::In),
    ] {
        if let Some((key, value)) = text.split_once(operator) {
            let value = value.trim();
            return valid_value(value).then(|| Some(build(valid_key(key)?, vec![value.into()])))?;
        }
    }
    for (operator, greater) in [('>', true), ('<', false)] {
        if let Some((key, value)) = text.split_once(operator) {
            let (key, value) = (valid_key(key)?, value.trim().parse().ok()?);
            return Some(if greater {
                Requirement::Greater(key, value)
            } else {
                Requirement::Less(key, value)
            });
        }
    }
    if let Some(key) = text.strip_prefix('!') {
        return valid_key(key).map(Requirement::Absent);
    }
    let Some((head, list)) = text.split_once('(') else {
        return valid_key(text).map(Requirement::Exists);
    };
    let values: Vec<String> = list
        .trim_end()
        .strip_suffix(')')?
        .split(',')
        .map(|v| v.trim().to_owned())
        .collect();
    if !values.iter().all(|v| valid_value(v)) {
        return None;
    }
    let mut words = head.split_whitespace();
    let (key, operator) = (valid_key(words.next()?)?, words.next()?);
    match (operator, words.next()) {
        ("in", None) => Some(Requirement::In(key, values)),
        ("notin", None) => Some(Requirement::NotIn(key, values)),
        _ => None,
    }
}

fn valid_key(key: &str) -> Option<String> {
    let key = key.trim();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let good = key.chars().all(fits) && edge(key.chars().next()) && edge(key.chars().last());
    good.then(|| key.to_owned())
}

fn valid_value(value: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    value.len() <= 63 && value.chars().all(fits)
}

fn field(text: &str, resource: &Resource) -> Result<(String, String, bool), ApiError> {
    let text = text.trim();
    let (path, value, equal) = if let Some((path, value)) = text.split_once("!=") {
        (path, value, false)
    } else if let Some((path, value)) = text.split_once("==") {
        (path, value, true)
    } else if let Some((path, value)) = text.split_once('=') {
        (path, value, true)
    } else {
        return Err(ApiError::bad_request(format!(
            "invalid field selector: \"{text}\""
        )));
    };
    let path = path.trim();
    let known = path == "metadata.name"
        || (path == "metadata.namespace" && resource.namespaced)
        || resource.selectable.iter().any(|s| s == path);
    if !known {
        return Err(ApiError::bad_request(format!(
            "field label not supported: {path}"
        )));
    }
    Ok((path.to_owned(), value.to_owned(), equal))
}

fn field_value(object: &Value, path: &str) -> String {
    // `source` of an Event selects by its component.
    let path = if path == "source" {
        "source.component"
    } else {
        path
    };
    let found = path.split('.').try_fold(object, |v, name| v.get(name));
    match found {
        None | Some(Value::Null) => match path {
            "spec.unschedulable" | "spec.hostNetwork" => "false".into(),
            _ => String::new(),
        },
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::catalog::Live;
    use proptest::prelude::*;
    use serde_json::json;

    fn parse(labels: &str, fields: &str) -> Result<Selector, ApiError> {
        let live = Live::default().current();
        Selector::parse(labels, fields, live.find("", "v1", "pods").unwrap())
    }

    fn selects(labels: &str) -> bool {
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "1", "b.io/c": "x"}}});
        parse(labels, "").unwrap().matches(&pod)
    }

    #[test]
    fn label_operators() {
        for yes in [
            "",
            "a=1",
            "a==1",
            "a!=2",
            "z!=1",
            "a",
            "!z",
            "a in (1,2)",
            "a notin (3)",
            "z notin (1)",
            "a=1,b.io/c in (x, y)",
            "a>0",
            "a<2",
        ] {
            assert!(selects(yes), "{yes}");
        }
        for no in [
            "a=2",
            "z",
            "!a",
            "a in (2)",
            "a notin (1,2)",
            "a=1,z",
            "b.io/c>0",
        ] {
            assert!(!selects(no), "{no}");
        }
        for bad in ["a in 1", "=1", "a in (1", "a ~ b", "a within (1)", "a b"] {
            assert!(parse(bad, "").is_err(), "{bad}");
        }
    }

    #[test]
    fn field_selectors_know_only_declared_paths() {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "w"}});
        assert!(
            parse("", "spec.nodeName=w,metadata.name!=q")
                .unwrap()
                .matches(&pod)
        );
        assert!(!parse("", "spec.nodeName=x").unwrap().matches(&pod));
        assert!(parse("", "spec.hostNetwork=false").unwrap().matches(&pod));
        let error = parse("", "spec.foo=1").unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.foo");
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in ".{0,40}") {
            let _ = parse(&text, &text);
        }
    }
}
