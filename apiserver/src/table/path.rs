//! The part of JSONPath that printer columns use: `.a.b`, `.a[0]`, `.a[*].b`, `['key']`, `[?(@.type=="Ready")]`.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    All,
    /// `[?(@.path == "text")]`
    Where(Vec<String>, String),
}

/// A parsed path. What cannot be parsed yields nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Path {
    steps: Vec<Step>,
    valid: bool,
}

impl Path {
    /// Parses `text`, with or without braces.
    pub fn parse(text: &str) -> Self {
        let text = text.trim().trim_start_matches('{').trim_end_matches('}');
        match steps(text) {
            Some(steps) => Self { steps, valid: true },
            None => Self::default(),
        }
    }

    /// All values at the path.
    pub fn values<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        if !self.valid {
            return Vec::new();
        }
        let mut values = vec![object];
        for step in &self.steps {
            values = values.into_iter().flat_map(|v| step.apply(v)).collect();
        }
        values
    }

    /// The cell: nothing, one value, or several joined by commas.
    pub fn cell(&self, object: &Value) -> Value {
        let values = self.values(object);
        match values.as_slice() {
            [] => Value::Null,
            [one] => (*one).clone(),
            many => many
                .iter()
                .map(|v| plain(v))
                .collect::<Vec<_>>()
                .join(",")
                .into(),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Step {
    fn apply<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Field(name) => value.get(name).into_iter().collect(),
            Self::Index(index) => {
                let Some(list) = value.as_array() else {
                    return Vec::new();
                };
                let at = if *index < 0 {
                    list.len() as i64 + index
                } else {
                    *index
                };
                usize::try_from(at)
                    .ok()
                    .and_then(|i| list.get(i))
                    .into_iter()
                    .collect()
            }
            Self::All => match value {
                Value::Array(list) => list.iter().collect(),
                Value::Object(map) => map.values().collect(),
                _ => Vec::new(),
            },
            Self::Where(path, wanted) => value
                .as_array()
                .into_iter()
                .flatten()
                .filter(|item| {
                    let found = path.iter().try_fold(*item, |v, name| v.get(name));
                    found.is_some_and(|v| plain(v) == *wanted)
                })
                .collect(),
        }
    }
}

fn steps(mut text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    text = text.strip_prefix('$').unwrap_or(text);
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix('[') {
            let end = closing_bracket(rest)?;
            steps.push(bracket(&rest[..end])?);
            text = &rest[end + 1..];
            continue;
        }
        let rest = text.strip_prefix('.').unwrap_or(text);
        let (name, after) = field(rest)?;
        if !name.is_empty() {
            steps.push(if name == "*" {
                Step::All
            } else {
                Step::Field(name)
            });
        }
        text = after;
    }
    Some(steps)
}

/// A name up to `.` or `[`; a backslash escapes a dot.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return Some((name, &text[at..])),
            c => name.push(c),
        }
    }
    Some((name, ""))
}

fn closing_bracket(text: &str) -> Option<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, ']') => return Some(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if c == q => quote = None,
            _ => {}
        }
    }
    None
}

fn bracket(inside: &str) -> Option<Step> {
    let inside = inside.trim();
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(condition) = inside.strip_prefix("?(").and_then(|c| c.strip_suffix(')')) {
        let (left, right) = condition.split_once("==")?;
        let path = left
            .trim()
            .strip_prefix("@.")?
            .split('.')
            .map(str::to_owned)
            .collect();
        return Some(Step::Where(path, unquote(right.trim())?));
    }
    match unquote(inside) {
        Some(name) if inside.starts_with(['"', '\'']) => Some(Step::Field(name)),
        _ => inside.parse().ok().map(Step::Index),
    }
}

fn unquote(text: &str) -> Option<String> {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.strip_suffix(quote).map(str::to_owned);
        }
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_printer_columns() {
        let object = json!({"spec": {"cidr": "10.0.0.0/8", "a.b": 1, "list": [{"n": "x"}, {"n": "y"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"},
                {"type": "Other", "status": "False"}]}});
        for (path, cell) in [
            (".spec.cidr", json!("10.0.0.0/8")),
            ("{.spec.cidr}", json!("10.0.0.0/8")),
            (".spec['a.b']", json!(1)),
            (".spec.a\\.b", json!(1)),
            (".spec.list[*].n", json!("x,y")),
            (".spec.list[1].n", json!("y")),
            (".spec.list[-1].n", json!("y")),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                json!("True"),
            ),
            (
                ".status.conditions[?(@.type=='Other')].status",
                json!("False"),
            ),
            (".spec.absent", Value::Null),
            (".spec[", Value::Null),
        ] {
            assert_eq!(Path::parse(path).cell(&object), cell, "{path}");
        }
    }
}
