//! What can go wrong with a lab: what was tried, why it failed, what to do about it.

use std::fmt::{self, Display};

/// Which sort of trouble, for callers that react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The machine lacks something a lab needs.
    Preflight,
    /// A lab of this name exists already, with another shape.
    Exists,
    /// What is left of a lab of this name does not work any more.
    Leftover,
    /// There is no such lab, node, pod or router.
    NotFound,
    /// Something did not happen in time.
    Timeout,
    /// A request makes no sense.
    Usage,
    /// Anything else: the kernel, a process or the API refused.
    Failed,
}

/// A failed lab operation. Prints as one line; the remedy is separate.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Error {
    /// Sort of trouble.
    pub kind: Kind,
    /// What was tried.
    pub what: String,
    /// Why it did not work.
    pub why: String,
    /// What to do next, if that is known.
    pub remedy: Option<String>,
}

/// Result of a lab operation.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of kind [`Kind::Failed`].
    pub fn new(what: impl Into<String>, why: impl Display) -> Self {
        Self {
            kind: Kind::Failed,
            what: what.into(),
            why: why.to_string(),
            remedy: None,
        }
    }

    /// The same with another kind.
    pub(crate) fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// The same with a next step for the reader.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// An error with the errors below it, outermost first.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn std::error::Error);

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(inner) = next {
            let inner_text = inner.to_string();
            if !text.contains(&inner_text) {
                text = format!("{text}: {inner_text}");
            }
            next = inner.source();
        }
        f.write_str(&text)
    }
}

/// Attaches what was tried to an error of another library.
pub(crate) trait Tried<T> {
    /// The value, or an [`Error`] that says what was tried.
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: std::error::Error> Tried<T> for std::result::Result<T, E> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::new(what(), Chain(&e)))
    }
}
