//! How a command ends when it does not succeed: what is printed and which exit code follows.

use kube::core::Status;

/// Exit code of a command that did what it was asked.
pub(crate) const DONE: u8 = 0;
/// Exit code of a failed command.
pub(crate) const FAILED: u8 = 1;
/// Exit code of a command line that cannot be understood.
pub(crate) const USAGE: u8 = 2;
/// Exit code of a command that worked but whose answer is bad.
pub(crate) const BAD_ANSWER: u8 = 3;
/// Exit code of a command that could not ask everybody it had to.
pub(crate) const INCONCLUSIVE: u8 = 4;

/// Exit code of a command that was interrupted from the terminal.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The words of the command line do not make sense together.
    #[error("error: {0}")]
    Usage(String),
    /// Something could not be done.
    #[error("error: {what}: {why}{}", hint.as_ref().map(|h| format!("\nhint: {h}")).unwrap_or_default())]
    Failed {
        /// What was tried.
        what: String,
        /// Why it did not work.
        why: String,
        /// What to do next, if that is known.
        hint: Option<String>,
    },
    /// The API server refused; printed the way kubectl prints it.
    #[error("{}", server_text(.0))]
    Server(Box<Status>),
    /// Several independent things failed; each is printed on its own line.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Many(Vec<Failure>),
    /// The reader of our output went away (`margayctl ... | head`).
    #[error("the output was closed")]
    OutputClosed,
}

impl Failure {
    /// A failure that says what was tried and why it did not work.
    pub(crate) fn new(what: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::Failed {
            what: what.into(),
            why: why.to_string(),
            hint: None,
        }
    }

    /// The same with a next step for the reader.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        match self {
            Self::Failed { what, why, .. } => Self::Failed {
                what,
                why,
                hint: Some(hint.into()),
            },
            other => other,
        }
    }

    /// The exit code this failure ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => USAGE,
            Self::OutputClosed => DONE,
            _ => FAILED,
        }
    }

    /// One failure out of a list: nothing, the only one, or all of them.
    pub(crate) fn all(mut failures: Vec<Self>) -> Result<(), Self> {
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            _ => Err(Self::Many(failures)),
        }
    }

    /// Whether the server said that the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Server(status) if status.code == 404)
    }

    /// Whether the server said that the object was changed meanwhile.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Server(status) if status.code == 409 && status.reason == "Conflict")
    }
}

fn server_text(status: &Status) -> String {
    match (status.reason.as_str(), status.message.as_str()) {
        ("", message) => format!("Error from server: {message}"),
        ("Invalid", message) => message.to_owned(),
        (reason, message) => format!("Error from server ({reason}): {message}"),
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Server(status),
            other => Self::new("cannot talk to the Kubernetes API", chain(&other))
                .hint("check --kubeconfig and --context, and that the server is running"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::new("cannot write the output", error)
        }
    }
}

/// An error with the errors below it, outermost first, each text once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(inner) = next {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        next = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_refusals_read_as_kubectl_prints_them() {
        let mut status = Status {
            code: 404,
            ..Status::default()
        };
        status.reason = "NotFound".into();
        status.message = "ippools.projectcalico.org \"x\" not found".into();
        let failure = Failure::from(kube::Error::Api(Box::new(status)));
        assert_eq!(
            failure.to_string(),
            "Error from server (NotFound): ippools.projectcalico.org \"x\" not found"
        );
        assert!(failure.is_not_found());
        assert_eq!(failure.exit_code(), FAILED);
    }

    #[test]
    fn a_hint_follows_the_error_on_its_own_line() {
        let failure = Failure::new("cannot read a.yaml", "no such file").hint("check -f");
        assert_eq!(
            failure.to_string(),
            "error: cannot read a.yaml: no such file\nhint: check -f"
        );
    }
}
