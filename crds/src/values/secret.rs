//! References to keys of Secrets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a password is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BGPPassword {
    /// Selects a key of a Secret in the namespace of the node agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<SecretKeySelector>,
}

/// A key of a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKeySelector {
    /// Key of the Secret to read.
    pub key: String,
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
    /// True when the Secret or the key may be missing; the password is then not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}
