//! The tree of a selector: evaluation, transformation, normal form.

use std::collections::BTreeSet;
use std::fmt;

/// One node of a selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Expression {
    /// `all()`: everything.
    All,
    /// `global()`: evaluates like `all()`; alone in the namespaceSelector of a rule it means "without namespace".
    Global,
    /// `has(label)`: the label is present.
    Has(String),
    /// A label compared with one text. Only `!=` holds when the label is missing.
    Compare {
        /// Name of the label.
        label: String,
        /// How it is compared.
        operator: Comparison,
        /// With what.
        value: String,
    },
    /// `label in {...}`: the label is present with one of the values.
    In {
        /// Name of the label.
        label: String,
        /// The values.
        values: BTreeSet<String>,
    },
    /// `label not in {...}`: the label is missing or has none of the values.
    NotIn {
        /// Name of the label.
        label: String,
        /// The values.
        values: BTreeSet<String>,
    },
    /// `!`: the opposite.
    Not(Box<Expression>),
    /// `&&`: all of at least two parts.
    And(Vec<Expression>),
    /// `||`: any of at least two parts.
    Or(Vec<Expression>),
}

/// How a label is compared with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `contains`
    Contains,
    /// `starts with`
    StartsWith,
    /// `ends with`
    EndsWith,
}

impl Comparison {
    /// The operator in normal form.
    pub fn as_str(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Contains => "contains",
            Comparison::StartsWith => "starts with",
            Comparison::EndsWith => "ends with",
        }
    }

    fn holds(self, actual: Option<&str>, wanted: &str) -> bool {
        match (self, actual) {
            (Comparison::NotEqual, actual) => actual != Some(wanted),
            (_, None) => false,
            (Comparison::Equal, Some(actual)) => actual == wanted,
            (Comparison::Contains, Some(actual)) => actual.contains(wanted),
            (Comparison::StartsWith, Some(actual)) => actual.starts_with(wanted),
            (Comparison::EndsWith, Some(actual)) => actual.ends_with(wanted),
        }
    }
}

impl Expression {
    /// True when an object whose labels `lookup` answers satisfies the expression.
    pub fn matches<'a>(&self, lookup: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Expression::All | Expression::Global => true,
            Expression::Has(label) => lookup(label).is_some(),
            Expression::Compare {
                label,
                operator,
                value,
            } => operator.holds(lookup(label), value),
            Expression::In { label, values } => {
                lookup(label).is_some_and(|actual| values.contains(actual))
            }
            Expression::NotIn { label, values } => {
                lookup(label).is_none_or(|actual| !values.contains(actual))
            }
            Expression::Not(inner) => !inner.matches(lookup),
            Expression::And(parts) => parts.iter().all(|part| part.matches(lookup)),
            Expression::Or(parts) => parts.iter().any(|part| part.matches(lookup)),
        }
    }

    /// The opposite; two negations cancel.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Expression::Not(inner) => *inner,
            other => Expression::Not(Box::new(other)),
        }
    }

    /// The expression with `prefix` in front of every label name.
    #[must_use]
    pub fn with_label_prefix(&self, prefix: &str) -> Self {
        let prefixed = |label: &String| format!("{prefix}{label}");
        let each = |parts: &[Expression]| {
            parts
                .iter()
                .map(|part| part.with_label_prefix(prefix))
                .collect()
        };
        match self {
            Expression::All => Expression::All,
            Expression::Global => Expression::Global,
            Expression::Has(label) => Expression::Has(prefixed(label)),
            Expression::Compare {
                label,
                operator,
                value,
            } => Expression::Compare {
                label: prefixed(label),
                operator: *operator,
                value: value.clone(),
            },
            Expression::In { label, values } => Expression::In {
                label: prefixed(label),
                values: values.clone(),
            },
            Expression::NotIn { label, values } => Expression::NotIn {
                label: prefixed(label),
                values: values.clone(),
            },
            Expression::Not(inner) => Expression::Not(Box::new(inner.with_label_prefix(prefix))),
            Expression::And(parts) => Expression::And(each(parts)),
            Expression::Or(parts) => Expression::Or(each(parts)),
        }
    }

    /// True when `test` holds for any node of the tree.
    pub fn any(&self, test: &dyn Fn(&Expression) -> bool) -> bool {
        test(self)
            || match self {
                Expression::Not(inner) => inner.any(test),
                Expression::And(parts) | Expression::Or(parts) => {
                    parts.iter().any(|part| part.any(test))
                }
                _ => false,
            }
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::All => f.write_str("all()"),
            Expression::Global => f.write_str("global()"),
            Expression::Has(label) => write!(f, "has({label})"),
            Expression::Compare {
                label,
                operator,
                value,
            } => {
                write!(f, "{label} {} {}", operator.as_str(), Quoted(value))
            }
            Expression::In { label, values } => set(f, label, "in", values),
            Expression::NotIn { label, values } => set(f, label, "not in", values),
            Expression::Not(inner) => write!(f, "!{inner}"),
            Expression::And(parts) => group(f, parts, " && "),
            Expression::Or(parts) => group(f, parts, " || "),
        }
    }
}

fn set(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    operator: &str,
    values: &BTreeSet<String>,
) -> fmt::Result {
    write!(f, "{label} {operator} {{")?;
    for (index, value) in values.iter().enumerate() {
        write!(f, "{}{}", if index == 0 { "" } else { ", " }, Quoted(value))?;
    }
    f.write_str("}")
}

fn group(f: &mut fmt::Formatter<'_>, parts: &[Expression], separator: &str) -> fmt::Result {
    f.write_str("(")?;
    for (index, part) in parts.iter().enumerate() {
        write!(f, "{}{part}", if index == 0 { "" } else { separator })?;
    }
    f.write_str(")")
}

/// A string literal: `"` unless the text contains one.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        write!(f, "{quote}{}{quote}", self.0)
    }
}
