//! The one socket that commits. Owned tables accept changes from the socket that owns them only, and our own commits
//! are told apart by the thread that makes them: so one value of this type, used by one thread, does all of it.

use std::fmt::Write;

use thiserror::Error;

use super::message::{Batch, GETGEN, NEWGEN, TABLE_LABEL};
use super::{FIXED, nfgenmsg};
use crate::kernel::netlink::{Encoder, NetlinkSocket, Protocol};
use crate::kernel::{KernelError, Netns};

/// Room in the send buffer beyond the transaction itself.
const SLACK: usize = 256 << 10;
const GEN_ID: u16 = 1;
/// Refused messages named in an error.
const NAMED: usize = 5;

/// Why a transaction was not applied; nothing of it was.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitError {
    /// Somebody changed the ruleset in between: read, compare and try again.
    #[error("the ruleset changed in between")]
    Stale,
    /// The kernel refuses some of the messages.
    #[error("the kernel refuses {}", describe(.0))]
    Refused(Vec<(String, KernelError)>),
    /// The outcome is unknown or the socket failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl CommitError {
    /// True when it is the table itself that the kernel cannot make: it lacks the family or the flags.
    pub fn is_unsupported_table(&self) -> bool {
        let Self::Refused(list) = self else {
            return false;
        };
        list.iter().any(|(what, error)| {
            what.starts_with(TABLE_LABEL) && (error.is_unsupported() || error.is(libc::EINVAL))
        })
    }

    /// True when one of the messages was refused with this number.
    pub fn is(&self, errno: i32) -> bool {
        matches!(self, Self::Refused(list) if list.iter().any(|(_, e)| e.is(errno)))
    }
}

fn describe(refused: &[(String, KernelError)]) -> String {
    let mut text = String::new();
    for (index, (what, error)) in refused.iter().take(NAMED).enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        let _ = write!(text, "{separator}{what}: {error}");
    }
    if refused.len() > NAMED {
        let _ = write!(text, "; and {} more", refused.len() - NAMED);
    }
    text
}

/// Reads and commits rulesets of one namespace.
#[derive(Debug)]
pub struct NftSocket {
    pub(super) socket: NetlinkSocket,
    send_buffer: usize,
}

impl NftSocket {
    /// A socket in the calling thread's namespace.
    pub fn open() -> Result<Self, KernelError> {
        Ok(Self {
            socket: NetlinkSocket::open(Protocol::Netfilter)?,
            send_buffer: 0,
        })
    }

    /// A socket in another namespace.
    pub fn open_in(netns: &Netns) -> Result<Self, KernelError> {
        Ok(Self {
            socket: NetlinkSocket::open_in(netns, Protocol::Netfilter)?,
            send_buffer: 0,
        })
    }

    /// Number of the ruleset's current generation; each commit by anybody raises it.
    pub fn generation(&mut self) -> Result<u32, KernelError> {
        let mut generation = None;
        self.socket.query(
            Encoder::single(GETGEN, 0, &nfgenmsg(0), |_| {}),
            |message| {
                if message.kind == NEWGEN {
                    generation = message.attrs(FIXED).find(GEN_ID).and_then(|a| a.be32());
                }
            },
        )?;
        generation.ok_or(KernelError::Malformed("a generation without its number"))
    }

    /// Applies a transaction as a whole; an empty one succeeds at once. With `generation`, only if the ruleset still
    /// is of that generation.
    ///
    /// # Errors
    /// [`CommitError`]; nothing was applied unless the outcome is unknown.
    pub fn commit(&mut self, batch: &Batch, generation: Option<u32>) -> Result<(), CommitError> {
        if batch.is_empty() {
            return Ok(());
        }
        let whole = batch.framed(generation);
        // The transaction is one datagram and must fit.
        if whole.len() + SLACK > self.send_buffer {
            self.send_buffer = (whole.len() + SLACK).next_power_of_two();
            self.socket.set_send_buffer(self.send_buffer)?;
        }
        let results = self.socket.transaction(whole)?;
        // The frame's first message stands for the whole: its only error is the generation's.
        if let Some(Err(error)) = results.first() {
            if error.is(libc::ERESTART) || error.is(libc::EAGAIN) {
                return Err(CommitError::Stale);
            }
            return Err(CommitError::Refused(vec![(
                "the transaction".into(),
                error.clone(),
            )]));
        }
        let refused: Vec<(String, KernelError)> = results
            .into_iter()
            .skip(1)
            .enumerate()
            .filter_map(|(index, result)| Some((batch.label(index).to_owned(), result.err()?)))
            .collect();
        if refused.is_empty() {
            Ok(())
        } else {
            Err(CommitError::Refused(refused))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::nft::{Batch, Expr, Family, Rule, TableFlags};

    #[test]
    fn only_a_refused_table_means_that_the_kernel_lacks_something() {
        let mut batch = Batch::new();
        batch.table(Family::Ipv6, "margay", TableFlags::OWNED);
        batch.rule(
            Family::Ipv6,
            "margay",
            "c",
            &Rule::new(vec![Expr::Counter], "o"),
        );
        let refused = |index: usize, errno| {
            CommitError::Refused(vec![(batch.label(index).into(), KernelError::errno(errno))])
        };
        assert!(refused(0, libc::EOPNOTSUPP).is_unsupported_table());
        assert!(refused(0, libc::EAFNOSUPPORT).is_unsupported_table());
        assert!(!refused(0, libc::EPERM).is_unsupported_table());
        assert!(!refused(1, libc::EINVAL).is_unsupported_table());
        assert!(!CommitError::Stale.is_unsupported_table());
    }
}
