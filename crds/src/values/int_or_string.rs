//! Values users may write as a number or as text.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A number or a text, kept as written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IntOrString {
    /// Written as a number.
    Int(i64),
    /// Written as text.
    String(String),
}

/// IP protocol of a rule: a number 1-255 or one of `TCP UDP ICMP ICMPv6 SCTP UDPLite`.
pub type Protocol = IntOrString;

/// Port of a rule: a number, a range `"min:max"` or the name of a port.
pub type Port = IntOrString;

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        IntOrString::String(text.to_owned())
    }
}

impl From<i64> for IntOrString {
    fn from(number: i64) -> Self {
        IntOrString::Int(number)
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(number) => number.fmt(f),
            IntOrString::String(text) => f.write_str(text),
        }
    }
}

impl JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "x-kubernetes-int-or-string": true,
        })
    }
}
