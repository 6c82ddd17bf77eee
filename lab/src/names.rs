//! Names and places: everything of a lab is called `mgy-LAB-...` or lies below `/run/margay-lab/LAB`.

use crate::error::{Error, Kind, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Folder of all labs.
pub const ROOT: &str = "/run/margay-lab";
/// Folder of named network namespaces, shared with iproute2 (ip-netns(8)).
pub const NETNS_DIR: &str = "/run/netns";
/// First letters of every network namespace of every lab.
pub const PREFIX: &str = "mgy-";
/// Environment variable that every process of a lab carries, with the name of the lab.
pub const MARK: &str = "MARGAY_LAB";

/// Name of a lab: 1 to 24 lower-case letters and digits. No dash, so that no lab's names begin like another's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

impl LabName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Kind::Usage`] when it is empty, too long or has other characters.
    pub fn new(name: &str) -> Result<Self> {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if (1..=24).contains(&name.len()) && name.chars().all(good) {
            Ok(Self(name.to_owned()))
        } else {
            let why = "must be 1 to 24 lower-case letters and digits";
            Err(Error::new(format!("lab name {name:?}"), why).kind(Kind::Usage))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Folder of the lab; a private tmpfs while the lab runs.
    pub fn dir(&self) -> PathBuf {
        PathBuf::from(ROOT).join(&self.0)
    }

    /// First letters of the lab's network namespaces.
    pub fn netns_prefix(&self) -> String {
        format!("{PREFIX}{}-", self.0)
    }

    /// Network namespace of a member: `fabric`, `n1`, `tor1`, or a pod such as `n1-p1`.
    pub fn netns(&self, member: &str) -> String {
        format!("{}{member}", self.netns_prefix())
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for LabName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(&name)
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> Self {
        name.0
    }
}

/// Path of a named network namespace.
pub fn netns_path(name: &str) -> PathBuf {
    PathBuf::from(NETNS_DIR).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_name_has_no_dash_so_prefixes_of_two_labs_never_overlap() {
        assert!(LabName::new("demo").is_ok());
        for bad in ["", "a-b", "A", "a.b", "../x", &"x".repeat(25)] {
            assert_eq!(LabName::new(bad).unwrap_err().kind, Kind::Usage, "{bad}");
        }
    }

    #[test]
    fn members_are_named_after_the_lab() {
        let lab = LabName::new("l1").unwrap();
        assert_eq!(lab.netns("n1-p1"), "mgy-l1-n1-p1");
        assert_eq!(lab.dir(), PathBuf::from("/run/margay-lab/l1"));
    }
}
