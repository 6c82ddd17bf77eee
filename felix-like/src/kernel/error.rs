//! Why the kernel did not do what it was asked.

use std::io;

use thiserror::Error;

/// Outcome of a netlink request that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KernelError {
    /// The kernel answered with an error number.
    #[error("{}{}", io::Error::from_raw_os_error(*errno), if detail.is_empty() { String::new() } else { format!(": {detail}") })]
    Errno {
        /// Positive error number.
        errno: i32,
        /// The kernel's own words (extended acknowledgement), often empty.
        detail: String,
    },
    /// No answer within the time limit. Whether the request took effect is unknown.
    #[error("the kernel did not answer within {0} ms; whether the request took effect is unknown")]
    Timeout(u64),
    /// Answers were lost because the receive buffer was full. Whether the request took effect is unknown.
    #[error(
        "answers of the kernel were lost (receive buffer full); whether the request took effect is unknown"
    )]
    Overrun,
    /// A dump changed while it was read, several times over.
    #[error("the table changed each time while it was read")]
    Interrupted,
    /// An answer could not be understood.
    #[error("malformed netlink answer: {0}")]
    Malformed(&'static str),
    /// The socket failed.
    #[error("netlink socket: {0}")]
    Socket(String),
}

impl KernelError {
    /// An error number without the kernel's words.
    pub fn errno(errno: i32) -> Self {
        Self::Errno {
            errno,
            detail: String::new(),
        }
    }

    /// True when the kernel answered with exactly this error number.
    pub fn is(&self, wanted: i32) -> bool {
        matches!(self, Self::Errno { errno, .. } if *errno == wanted)
    }

    /// True when it is unknown whether the request took effect.
    pub fn effect_unknown(&self) -> bool {
        matches!(
            self,
            Self::Timeout(_) | Self::Overrun | Self::Socket(_) | Self::Malformed(_)
        )
    }

    /// The thing to be removed or changed is not there.
    pub fn is_absent(&self) -> bool {
        [
            libc::ENOENT,
            libc::ESRCH,
            libc::ENODEV,
            libc::EADDRNOTAVAIL,
            libc::ENXIO,
        ]
        .iter()
        .any(|e| self.is(*e))
    }

    /// The interface is down or has gone: not a failure, the event that says so is on its way.
    pub fn is_link_gone(&self) -> bool {
        [libc::ENETDOWN, libc::ENODEV, libc::ENXIO]
            .iter()
            .any(|e| self.is(*e))
    }

    /// The kernel lacks the feature.
    pub fn is_unsupported(&self) -> bool {
        [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT]
            .iter()
            .any(|e| self.is(*e))
    }
}

impl From<io::Error> for KernelError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error.to_string())
    }
}

impl From<nix::Error> for KernelError {
    fn from(error: nix::Error) -> Self {
        Self::Socket(error.to_string())
    }
}
