//! kubectl's path templates: text with `{.path}` expressions, `{range}` ... `{end}`.
//!
//! The paths inside the braces are translated to RFC 9535 and evaluated by a library; the
//! template language around them is kubectl's own.

use crate::failure::Failure;
use jsonpath_rust::JsonPath;
use serde_json::Value;

/// A parsed template.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Path(String),
    Range(String, Vec<Part>),
}

impl std::str::FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // kubectl takes a bare path too.
        let text = if text.contains('{') {
            text.to_owned()
        } else {
            format!("{{{text}}}")
        };
        let mut tokens = tokens(&text)?.into_iter();
        let (parts, ended) = parse(&mut tokens)?;
        if ended {
            return Err("{end} without {range}".into());
        }
        let template = Self { parts };
        template.check()?;
        Ok(template)
    }
}

enum Token {
    Text(String),
    Expression(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        if open > 0 {
            tokens.push(Token::Text(rest[..open].to_owned()));
        }
        let inside = &rest[open + 1..];
        let close =
            closing_brace(inside).ok_or_else(|| format!("unclosed {{ at {:?}", &rest[open..]))?;
        tokens.push(Token::Expression(inside[..close].trim().to_owned()));
        rest = &inside[close + 1..];
    }
    if !rest.is_empty() {
        tokens.push(Token::Text(rest.to_owned()));
    }
    Ok(tokens)
}

fn closing_brace(text: &str) -> Option<usize> {
    let mut quote = None;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (None, '}') => return Some(i),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), _) if q == c => quote = None,
            _ => {}
        }
    }
    None
}

fn parse(tokens: &mut impl Iterator<Item = Token>) -> Result<(Vec<Part>, bool), String> {
    let mut parts = Vec::new();
    while let Some(token) = tokens.next() {
        match token {
            Token::Text(text) => parts.push(Part::Text(text)),
            Token::Expression(e) if e == "end" => return Ok((parts, true)),
            Token::Expression(e) => match e.strip_prefix("range ") {
                Some(path) => {
                    let (body, ended) = parse(tokens)?;
                    if !ended {
                        return Err("{range} without {end}".into());
                    }
                    parts.push(Part::Range(standard_path(path.trim()), body));
                }
                None if e.starts_with('"') || e.starts_with('\'') => {
                    parts.push(Part::Text(unquote(&e)))
                }
                None => parts.push(Part::Path(standard_path(&e))),
            },
        }
    }
    Ok((parts, false))
}

fn unquote(text: &str) -> String {
    let inner = text.trim_matches(|c| c == '"' || c == '\'');
    inner
        .replace("\\n", "\n")
        .replace("\\t", "\t")
        .replace("\\\\", "\\")
}

/// `.metadata.labels.a\.b` and `.items[*].x` in the form of RFC 9535.
fn standard_path(path: &str) -> String {
    let path = path.trim();
    let path = path
        .strip_prefix('$')
        .or_else(|| path.strip_prefix('@'))
        .unwrap_or(path);
    let mut out = String::from("$");
    let mut chars = path.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '.' || matches!(chars.peek(), Some('.' | '*' | '[') | None) {
            if c == '.' && matches!(chars.peek(), None | Some('[')) {
                continue;
            }
            out.push(c);
            if c == '[' {
                copy_bracket(&mut chars, &mut out);
            }
            continue;
        }
        let mut name = String::new();
        while let Some(&next) = chars.peek() {
            if next == '.' || next == '[' {
                break;
            }
            chars.next();
            if next == '\\' {
                name.extend(chars.next());
            } else {
                name.push(next);
            }
        }
        out.push_str(&format!("['{}']", name.replace('\'', "\\'")));
    }
    out
}

fn copy_bracket(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    let mut depth = 1;
    let mut quote = None;
    for c in chars.by_ref() {
        out.push(c);
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), _) if q == c => quote = None,
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

impl Template {
    fn check(&self) -> Result<(), String> {
        fn walk(parts: &[Part]) -> Result<(), String> {
            for part in parts {
                match part {
                    Part::Text(_) => {}
                    Part::Path(path) => probe(path)?,
                    Part::Range(path, body) => {
                        probe(path)?;
                        walk(body)?;
                    }
                }
            }
            Ok(())
        }
        fn probe(path: &str) -> Result<(), String> {
            Value::Null
                .query(path)
                .map(|_| ())
                .map_err(|e| format!("unrecognised path {path}: {e}"))
        }
        walk(&self.parts)
    }

    /// The text this template makes of a value.
    pub(crate) fn render(&self, value: &Value) -> Result<String, Failure> {
        let mut out = String::new();
        render(&self.parts, value, &mut out)?;
        Ok(out)
    }
}

fn render(parts: &[Part], value: &Value, out: &mut String) -> Result<(), Failure> {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Path(path) => {
                let found: Vec<String> = query(value, path)?.into_iter().map(plain).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range(path, body) => {
                for item in query(value, path)? {
                    render(body, item, out)?;
                }
            }
        }
    }
    Ok(())
}

/// What a standard path finds in a value.
pub(super) fn query<'v>(value: &'v Value, path: &str) -> Result<Vec<&'v Value>, Failure> {
    value
        .query(path)
        .map_err(|e| Failure::Usage(format!("cannot follow the path {path}: {e}")))
}

/// A path as users write it, in standard form.
pub(super) fn translate(path: &str) -> String {
    standard_path(path.trim().trim_start_matches('{').trim_end_matches('}'))
}

/// A value as text: strings bare, everything else as JSON.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(s) => s.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(template: &str) -> String {
        let value = json!({"items": [
            {"metadata": {"name": "a", "labels": {"k8s.io/x": "1"}}, "spec": {"n": 1, "up": true}},
            {"metadata": {"name": "b"}, "spec": {"n": 2, "up": false}},
        ]});
        template
            .parse::<Template>()
            .unwrap()
            .render(&value)
            .unwrap()
    }

    #[test]
    fn paths_ranges_filters_and_escaped_dots_work_as_in_kubectl() {
        assert_eq!(run("{.items[*].metadata.name}"), "a b");
        assert_eq!(run(".items[0].spec.n"), "1");
        assert_eq!(run(r"{.items[0].metadata.labels.k8s\.io/x}"), "1");
        assert_eq!(
            run("{range .items[*]}{.metadata.name}={.spec.n}{\"\\n\"}{end}"),
            "a=1\nb=2\n"
        );
        assert_eq!(run(r#"{.items[?(@.metadata.name=="b")].spec.n}"#), "2");
        assert_eq!(run("{.items[*].spec.missing}"), "");
    }

    #[test]
    fn broken_templates_are_refused_when_they_are_parsed() {
        for bad in ["{.a", "{range .items[*]}x", "{end}", "{.items[}"] {
            assert!(bad.parse::<Template>().is_err(), "{bad}");
        }
    }
}
