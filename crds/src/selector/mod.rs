//! The label selector language of policies, pools, peers and node-scoped settings.
//!
//! ```text
//! selector   = [ or ]                      ; empty text = all()
//! or         = and *( "||" and )
//! and        = operation *( "&&" operation )
//! operation  = *"!" primary
//! primary    = "(" or ")" | "has(" label ")" | "all(" ")" | "global(" ")" | comparison
//! comparison = label ( "==" | "!=" | "contains" | "starts with" | "ends with" ) string
//!            | label ( "in" | "not in" ) "{" [ string *( "," string ) [ "," ] ] "}"
//! ```
//!
//! A label is 1-512 characters of `[A-Za-z0-9_./-]`; there are no reserved words, operator words count only after a
//! label and functions only when glued to their parenthesis. A string is enclosed in `"` or `'` and has no escapes.
//! Only spaces and tabs may separate tokens. Comparison is byte by byte.

mod endpoints;
mod expression;
mod parser;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha224};

pub use endpoints::{
    EntitySelection, NAMESPACE_LABEL, SERVICE_ACCOUNT_LABEL, entity_selection, policy_selector,
};
pub use expression::{Comparison, Expression};
pub use parser::SelectorError;

/// A parsed selector. Two selectors are equal when their normal forms are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector(Expression);

impl Selector {
    /// Reads the text of a selector; empty text is `all()`. White space around the text is ignored.
    ///
    /// # Errors
    /// The text is not a selector; the error tells the position and what was expected there.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        parser::parse(text).map(Selector)
    }

    /// The selector that matches everything.
    pub fn all() -> Self {
        Selector(Expression::All)
    }

    /// True when an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_by(&|key| labels.get(key).map(String::as_str))
    }

    /// True when an object is selected whose labels `lookup` answers; for labels that come from several places, such
    /// as an endpoint's own and those of its profiles.
    pub fn matches_by<'a>(&self, lookup: &dyn Fn(&str) -> Option<&'a str>) -> bool {
        self.0.matches(lookup)
    }

    /// The expression.
    pub fn expression(&self) -> &Expression {
        &self.0
    }

    /// True for exactly `all()`.
    pub fn is_all(&self) -> bool {
        self.0 == Expression::All
    }

    /// True for exactly `global()`.
    pub fn is_global(&self) -> bool {
        self.0 == Expression::Global
    }

    /// True when `global()` occurs anywhere in it.
    pub fn mentions_global(&self) -> bool {
        self.0.any(&|part| *part == Expression::Global)
    }

    /// The same selector with `prefix` put in front of every label name, as namespace selectors need it to look at
    /// labels inherited from a Namespace (`pcns.`) or a ServiceAccount (`pcsa.`).
    #[must_use]
    pub fn with_label_prefix(&self, prefix: &str) -> Self {
        Selector(self.0.with_label_prefix(prefix))
    }

    /// The selector that matches what both match.
    #[must_use]
    pub fn and(self, other: Selector) -> Self {
        Selector(Expression::And(vec![self.0, other.0]))
    }

    /// The selector that matches what this one does not.
    #[must_use]
    pub fn negated(self) -> Self {
        Selector(self.0.negated())
    }

    /// Short identifier of the normal form: `s:` and 38 characters of `[A-Za-z0-9_-]`. Selectors that differ only in
    /// spelling share it.
    pub fn uid(&self) -> String {
        let digest = Sha224::digest(format!("s:{self}"));
        format!("s:{}", URL_SAFE_NO_PAD.encode(digest))
    }
}

impl From<Expression> for Selector {
    fn from(expression: Expression) -> Self {
        Selector(expression)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        Selector::parse(text)
    }
}

impl fmt::Display for Selector {
    /// The normal form: every group in parentheses, one spelling per operator, sets sorted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
