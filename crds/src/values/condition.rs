//! Conditions of a status.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One aspect of the current state of an object, in the form of Kubernetes' `metav1.Condition`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// When the condition last changed from one status to another, RFC 3339.
    #[serde(default)]
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// What the transition means, for humans.
    #[serde(default)]
    #[schemars(length(max = 32768))]
    pub message: String,
    /// Generation of the object the condition was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "int64"), range(min = 0))]
    pub observed_generation: Option<i64>,
    /// CamelCase identifier of the cause of the last transition.
    #[serde(default)]
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// Status of the condition.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// Type of the condition in CamelCase.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub kind: String,
}
