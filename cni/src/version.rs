//! Versions of the CNI specification and what differs between them.

use serde_json::{Value, json};

use crate::error::{CniError, Code};

/// A version this plugin speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(
    non_camel_case_types,
    missing_docs,
    reason = "the names are the versions"
)]
pub enum CniVersion {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

/// Which of the three result layouts a version uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `ip4` and `ip6` blocks, no interfaces (0.1.0, 0.2.0).
    Blocks,
    /// `ips` with a `version` key (0.3.0 to 0.4.0).
    VersionedIps,
    /// `ips` without it (1.0.0 and later).
    Ips,
}

impl CniVersion {
    /// All supported versions, oldest first.
    pub const SUPPORTED: [CniVersion; 7] = [
        CniVersion::V0_1_0,
        CniVersion::V0_2_0,
        CniVersion::V0_3_0,
        CniVersion::V0_3_1,
        CniVersion::V0_4_0,
        CniVersion::V1_0_0,
        CniVersion::V1_1_0,
    ];

    /// The newest supported version.
    pub const NEWEST: CniVersion = CniVersion::V1_1_0;

    /// The version as written in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            CniVersion::V0_1_0 => "0.1.0",
            CniVersion::V0_2_0 => "0.2.0",
            CniVersion::V0_3_0 => "0.3.0",
            CniVersion::V0_3_1 => "0.3.1",
            CniVersion::V0_4_0 => "0.4.0",
            CniVersion::V1_0_0 => "1.0.0",
            CniVersion::V1_1_0 => "1.1.0",
        }
    }

    /// Reads `cniVersion` of a configuration. Absent or empty means the oldest result layout; 0.2.0 is then reported,
    /// which is what Calico's plugin prints.
    ///
    /// # Errors
    /// Code 1 for a version that is not supported.
    pub fn of_config(text: Option<&str>) -> Result<CniVersion, CniError> {
        let text = text.unwrap_or("");
        if text.is_empty() {
            return Ok(CniVersion::V0_2_0);
        }
        CniVersion::SUPPORTED
            .into_iter()
            .find(|v| v.as_str() == text)
            .ok_or_else(|| {
                let supported: Vec<_> = CniVersion::SUPPORTED.iter().map(|v| v.as_str()).collect();
                CniError::new(Code::INCOMPATIBLE_VERSION, "incompatible CNI versions").with_details(
                    format!(
                        "config is {text:?}, plugin supports [{}]",
                        supported.join(" ")
                    ),
                )
            })
    }

    /// The result layout of this version.
    pub fn shape(self) -> Shape {
        match self {
            CniVersion::V0_1_0 | CniVersion::V0_2_0 => Shape::Blocks,
            CniVersion::V0_3_0 | CniVersion::V0_3_1 | CniVersion::V0_4_0 => Shape::VersionedIps,
            CniVersion::V1_0_0 | CniVersion::V1_1_0 => Shape::Ips,
        }
    }

    /// The answer to VERSION.
    pub fn report() -> Value {
        let supported: Vec<_> = CniVersion::SUPPORTED.iter().map(|v| v.as_str()).collect();
        json!({ "cniVersion": CniVersion::NEWEST.as_str(), "supportedVersions": supported })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_version_is_the_oldest_layout() {
        assert_eq!(
            CniVersion::of_config(None).expect("absent").shape(),
            Shape::Blocks
        );
        assert_eq!(
            CniVersion::of_config(Some("")).expect("empty"),
            CniVersion::V0_2_0
        );
    }

    #[test]
    fn unknown_version_names_both_sides() {
        let error = CniVersion::of_config(Some("9.9.9")).expect_err("unknown");
        assert_eq!(error.code, Code::INCOMPATIBLE_VERSION);
        assert!(error.details.contains("9.9.9") && error.details.contains("1.1.0"));
    }
}
