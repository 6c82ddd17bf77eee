//! The `CNI_*` variables (CNI specification, section "Parameters"), checked in the order of the reference skeleton.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{CniError, Code};

/// Longest interface name the kernel takes (`IFNAMSIZ` less the terminating zero).
pub const MAX_IFNAME: usize = 15;

/// What the runtime asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Command {
    /// Connect a container.
    Add,
    /// Disconnect it; must not fail when it is gone already.
    Del,
    /// Is it still as ADD left it?
    Check,
    /// Remove what is not in a list.
    Gc,
    /// Would ADD work now?
    Status,
    /// Which versions are spoken?
    Version,
}

impl Command {
    /// Exact upper-case words only.
    pub fn parse(word: &str) -> Option<Command> {
        Some(match word {
            "ADD" => Command::Add,
            "DEL" => Command::Del,
            "CHECK" => Command::Check,
            "GC" => Command::Gc,
            "STATUS" => Command::Status,
            "VERSION" => Command::Version,
            _ => return None,
        })
    }

    /// The word of the specification.
    pub fn as_str(self) -> &'static str {
        match self {
            Command::Add => "ADD",
            Command::Del => "DEL",
            Command::Check => "CHECK",
            Command::Gc => "GC",
            Command::Status => "STATUS",
            Command::Version => "VERSION",
        }
    }
}

/// The checked variables of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// `CNI_CONTAINERID`; empty for GC, STATUS and VERSION.
    pub container_id: String,
    /// `CNI_NETNS`, a path; empty on DEL means the namespace is gone.
    pub netns: String,
    /// `CNI_IFNAME`, the interface inside the container.
    pub ifname: String,
    /// `CNI_ARGS`, unparsed; see [`crate::args`].
    pub args: String,
    /// `CNI_PATH`, a colon list; needed only to run another plugin.
    pub path: String,
    /// `CNI_NETNS_OVERRIDE`: accept a namespace that is the plugin's own.
    pub netns_override: bool,
}

impl Environment {
    /// Reads and checks the variables. `None` when there is no `CNI_COMMAND`: a human runs the program.
    ///
    /// # Errors
    /// Code 4; all missing variables are named in one error.
    pub fn from_vars<I>(vars: I) -> Result<Option<Environment>, CniError>
    where
        I: IntoIterator<Item = (String, String)>,
    {
        let vars: BTreeMap<String, String> = vars
            .into_iter()
            .filter(|(name, _)| name.starts_with("CNI_"))
            .collect();
        let get = |name: &str| vars.get(name).cloned().unwrap_or_default();
        let word = get("CNI_COMMAND");
        if word.is_empty() {
            return Ok(None);
        }
        let command = Command::parse(&word).ok_or_else(|| {
            CniError::new(
                Code::BAD_ENVIRONMENT,
                format!("unknown CNI_COMMAND: {word}"),
            )
        })?;
        let environment = Environment {
            command,
            container_id: get("CNI_CONTAINERID"),
            netns: get("CNI_NETNS"),
            ifname: get("CNI_IFNAME"),
            args: get("CNI_ARGS"),
            path: get("CNI_PATH"),
            netns_override: is_true(&get("CNI_NETNS_OVERRIDE")),
        };
        environment.check()?;
        Ok(Some(environment))
    }

    fn check(&self) -> Result<(), CniError> {
        let (id, netns) = match self.command {
            Command::Add | Command::Check => (true, true),
            Command::Del => (true, false),
            Command::Gc | Command::Status | Command::Version => (false, false),
        };
        let missing: Vec<&str> = [
            ("CNI_CONTAINERID", id && self.container_id.is_empty()),
            ("CNI_NETNS", netns && self.netns.is_empty()),
            ("CNI_IFNAME", id && self.ifname.is_empty()),
        ]
        .into_iter()
        .filter_map(|(name, missing)| missing.then_some(name))
        .collect();
        if !missing.is_empty() {
            return Err(CniError::new(
                Code::BAD_ENVIRONMENT,
                format!("required env variables [{}] missing", missing.join(",")),
            ));
        }
        if id {
            check_container_id(&self.container_id)?;
            check_ifname(&self.ifname)?;
        }
        Ok(())
    }

    /// The variables as the agent's request carries them.
    pub fn to_map(&self) -> BTreeMap<String, String> {
        [
            ("CNI_CONTAINERID", &self.container_id),
            ("CNI_NETNS", &self.netns),
            ("CNI_IFNAME", &self.ifname),
            ("CNI_ARGS", &self.args),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect()
    }
}

/// Boolean words of CNI: `1`, `true` in any case; everything else is false.
pub(crate) fn is_true(word: &str) -> bool {
    word == "1" || word.eq_ignore_ascii_case("true")
}

/// Whether a text is `[a-zA-Z0-9][a-zA-Z0-9_.-]*`, the form of container IDs and network names.
pub fn is_identifier(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

fn check_container_id(id: &str) -> Result<(), CniError> {
    if is_identifier(id) {
        return Ok(());
    }
    Err(CniError::new(Code::BAD_ENVIRONMENT, "invalid characters in containerID").with_details(id))
}

/// Checks an interface name the way the kernel does.
///
/// # Errors
/// Code 4 with the offending name in the details.
pub fn check_ifname(name: &str) -> Result<(), CniError> {
    let problem = if name.is_empty() {
        "interface name is empty"
    } else if name.len() > MAX_IFNAME {
        "interface name is too long"
    } else if name == "." || name == ".." {
        "interface name is . or .."
    } else if name
        .chars()
        .any(|c| c == '/' || c == ':' || c.is_whitespace())
    {
        "interface name contains / or : or whitespace characters"
    } else {
        return Ok(());
    };
    Err(CniError::new(Code::BAD_ENVIRONMENT, problem).with_details(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<Environment>, CniError> {
        Environment::from_vars(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        )
    }

    #[test]
    fn no_command_means_a_human() {
        assert_eq!(read(&[("PATH", "/bin")]), Ok(None));
        assert_eq!(read(&[("CNI_COMMAND", ""), ("CNI_NETNS", "x")]), Ok(None));
    }

    #[test]
    fn missing_variables_are_reported_together_and_in_order() {
        let error = read(&[
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", ""),
        ])
        .expect_err("missing");
        assert_eq!(error.code, Code::BAD_ENVIRONMENT);
        assert_eq!(
            error.msg,
            "required env variables [CNI_NETNS,CNI_IFNAME] missing"
        );
        let error = read(&[("CNI_COMMAND", "DEL")]).expect_err("missing");
        assert_eq!(
            error.msg,
            "required env variables [CNI_CONTAINERID,CNI_IFNAME] missing"
        );
    }

    #[test]
    fn gc_status_and_version_need_nothing() {
        for word in ["GC", "STATUS", "VERSION"] {
            assert!(read(&[("CNI_COMMAND", word)]).expect(word).is_some());
        }
    }

    #[test]
    fn commands_are_exact_words() {
        for word in ["add", "ADD ", "UPDATE"] {
            let error = read(&[("CNI_COMMAND", word)]).expect_err(word);
            assert_eq!(error.msg, format!("unknown CNI_COMMAND: {word}"));
        }
    }

    #[test]
    fn bad_names_are_refused() {
        let with = |id: &str, ifname: &str| {
            read(&[
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", id),
                ("CNI_NETNS", "/run/netns/p1"),
                ("CNI_IFNAME", ifname),
            ])
        };
        assert!(with("c1", "eth0").is_ok());
        for ifname in [
            "abcdefghijklmnop",
            "a:b",
            "..",
            ".",
            "a/b",
            "a b",
            "a\u{a0}b",
        ] {
            assert_eq!(
                with("c1", ifname).expect_err(ifname).code,
                Code::BAD_ENVIRONMENT
            );
        }
        let error = with("-x", "eth0").expect_err("bad id");
        assert_eq!(
            (error.msg.as_str(), error.details.as_str()),
            ("invalid characters in containerID", "-x")
        );
    }
}
