//! Errors as the runtime sees them: a number, one sentence for the user, and details.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::version::CniVersion;

/// Error code of the CNI specification (section "Error"), 100 and above are the plugin's own.
///
/// A newtype and not an enum, because an agent of a later version may send a code this executable does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(pub u32);

impl Code {
    /// The configuration's `cniVersion` is not supported, or too low for the command.
    pub const INCOMPATIBLE_VERSION: Code = Code(1);
    /// A configuration field has a value that is known and not supported; the message names key and value.
    pub const UNSUPPORTED_FIELD: Code = Code(2);
    /// The container is not known; the runtime need not clean up. Never an answer to ADD.
    pub const UNKNOWN_CONTAINER: Code = Code(3);
    /// A `CNI_*` variable is missing or malformed.
    pub const BAD_ENVIRONMENT: Code = Code(4);
    /// Reading standard input or a state file failed.
    pub const IO: Code = Code(5);
    /// Standard input is not JSON, or too long.
    pub const DECODE: Code = Code(6);
    /// The configuration or a pod annotation is invalid.
    pub const INVALID_CONFIG: Code = Code(7);
    /// `CNI_NETNS` is not a network namespace, missing, or the plugin's own (constant of the reference library).
    pub const INVALID_NETNS: Code = Code(8);
    /// A passing condition: the runtime should try again.
    pub const TRY_AGAIN: Code = Code(11);
    /// STATUS: ADD would not work now.
    pub const UNAVAILABLE: Code = Code(50);
    /// STATUS: ADD would not work now and connectivity of existing pods may be affected.
    pub const UNAVAILABLE_LIMITED: Code = Code(51);
    /// The connection test (`-t`) failed.
    pub const TEST_FAILED: Code = Code(100);
    /// No address is available.
    pub const NO_ADDRESS: Code = Code(101);
    /// The interface exists and is not ours.
    pub const INTERFACE_EXISTS: Code = Code(102);
    /// The kernel refused or lacks something; details name the step.
    pub const KERNEL: Code = Code(103);
    /// The pod is another one, or belongs to another node.
    pub const IDENTITY: Code = Code(104);
    /// A defect of the plugin.
    pub const INTERNAL: Code = Code(999);
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An error for the runtime. `msg` ends up in the pod's event, so it is written for a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniError {
    /// What kind of error.
    pub code: Code,
    /// One sentence.
    pub msg: String,
    /// What helps to find the cause; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// An error without details.
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        CniError {
            code,
            msg: msg.into(),
            details: String::new(),
        }
    }

    /// The same error with details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Shorthand for [`Code::INVALID_CONFIG`].
    pub fn invalid(msg: impl Into<String>) -> Self {
        CniError::new(Code::INVALID_CONFIG, msg)
    }

    /// Shorthand for [`Code::TRY_AGAIN`].
    pub fn try_again(msg: impl Into<String>) -> Self {
        CniError::new(Code::TRY_AGAIN, msg)
    }

    /// Shorthand for [`Code::KERNEL`].
    pub fn kernel(msg: impl Into<String>) -> Self {
        CniError::new(Code::KERNEL, msg)
    }

    /// The document printed on standard output.
    pub fn to_json(&self, version: CniVersion) -> Value {
        let mut document = json!({
            "cniVersion": version.as_str(),
            "code": self.code.0,
            "msg": self.msg,
        });
        if !self.details.is_empty() {
            document["details"] = Value::from(self.details.as_str());
        }
        document
    }
}

impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.msg, self.code)?;
        if !self.details.is_empty() {
            write!(f, ": {}", self.details)?;
        }
        Ok(())
    }
}

impl std::error::Error for CniError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_left_out_when_empty() {
        let error = CniError::try_again("later");
        assert_eq!(
            error.to_json(CniVersion::V1_0_0).to_string(),
            r#"{"cniVersion":"1.0.0","code":11,"msg":"later"}"#
        );
        let error = error.with_details("why");
        assert_eq!(error.to_json(CniVersion::V1_0_0)["details"], "why");
    }
}
