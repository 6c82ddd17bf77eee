//! Why an object does not take effect on this node.

use std::fmt;

/// An object at fault. The order is by object, so that a list of them is stable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Problem {
    /// Kind of the object: `BGPPeer`, `IPPool`, ...
    pub kind: &'static str,
    /// Name of the object.
    pub name: String,
    /// CamelCase reason of the Event: `BGPPeerRejected`, `PoolInvalid`, ...
    pub reason: &'static str,
    /// Field at fault, empty when the object as a whole is.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    /// A BGPPeer that is not used. `word` is the machine-readable cause, put in front of the message.
    pub(super) fn peer(name: &str, word: &str, field: &str, message: impl fmt::Display) -> Self {
        Problem {
            kind: "BGPPeer",
            name: name.to_owned(),
            reason: "BGPPeerRejected",
            field: field.to_owned(),
            message: format!("{word}: {message}"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.name, self.reason)?;
        if !self.field.is_empty() {
            write!(f, " ({})", self.field)?;
        }
        write!(f, ": {}", self.message)
    }
}
