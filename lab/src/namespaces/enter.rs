//! Starting a process inside namespaces.
#![allow(unsafe_code)]

use nix::fcntl::{FcntlArg, fcntl};
use nix::sched::CloneFlags;
use nix::unistd::dup2_raw;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// First descriptor of the socket hand-over protocol (sd_listen_fds(3)).
const FIRST_SOCKET: RawFd = 3;
/// Most sockets that can be handed over.
const MAX_SOCKETS: usize = 4;

/// Where a process starts.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Network namespace file; `None` = where we are.
    pub(crate) netns: Option<PathBuf>,
    /// Mount namespace file; `None` = where we are.
    pub(crate) mntns: Option<PathBuf>,
    /// Sockets the process finds at descriptors 3, 4, ...
    pub(crate) sockets: Vec<OwnedFd>,
    /// Leave the session of the caller, so that closing a terminal does not end the process.
    pub(crate) detach: bool,
}

/// Makes `command` start there. The namespaces are opened now; a missing one is reported now.
pub(crate) fn place(command: &mut Command, into: Placement) -> io::Result<()> {
    let open = |path: Option<PathBuf>| path.map(File::open).transpose();
    let (netns, mntns) = (open(into.netns)?, open(into.mntns)?);
    let (sockets, detach) = (into.sockets, into.detach);
    let enter = move || {
        if let Some(file) = &netns {
            enter_namespace(file, CloneFlags::CLONE_NEWNET)?;
        }
        if let Some(file) = &mntns {
            enter_namespace(file, CloneFlags::CLONE_NEWNS)?;
        }
        hand_over(&sockets)?;
        if detach {
            nix::unistd::setsid()?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls only: it neither allocates nor takes locks.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

/// Duplicates the sockets to 3, 4, ... without close-on-exec. Only for a forked child.
fn hand_over(sockets: &[OwnedFd]) -> io::Result<()> {
    // First out of the way of the numbers they shall get.
    let least = FIRST_SOCKET + RawFd::try_from(MAX_SOCKETS).unwrap_or(0);
    let mut moved = [-1; MAX_SOCKETS];
    for (slot, socket) in moved.iter_mut().zip(sockets) {
        *slot = fcntl(socket, FcntlArg::F_DUPFD_CLOEXEC(least))?;
    }
    for (slot, target) in moved
        .iter()
        .zip(FIRST_SOCKET..)
        .filter(|(slot, _)| **slot >= 0)
    {
        // SAFETY: `slot` was opened just above and is not closed before exec.
        let slot = unsafe { BorrowedFd::borrow_raw(*slot) };
        // SAFETY: the child owns all its descriptors; replacing number `target` cannot break a Rust owner, because
        // none of the parent's owners runs in the child. The result stays open on purpose until exec.
        let _ = unsafe { dup2_raw(slot, target) }?.into_raw_fd();
    }
    Ok(())
}

/// Moves the calling thread into a namespace. Only for a forked child or a thread that does nothing else any more.
#[expect(
    clippy::disallowed_methods,
    reason = "the lab's own children and throw-away threads"
)]
pub(super) fn enter_namespace(file: &File, which: CloneFlags) -> io::Result<()> {
    Ok(nix::sched::setns(file, which)?)
}
