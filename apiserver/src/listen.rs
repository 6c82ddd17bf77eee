//! Sockets the server accepts on: opened here, or handed over by the parent (`sd_listen_fds(3)`: descriptors from 3
//! on, announced by `LISTEN_FDS`, meant for the process `LISTEN_PID`). A handed-over socket may belong to another
//! network namespace.
#![allow(unsafe_code)]

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// First descriptor of the protocol.
const FIRST: RawFd = 3;

/// Listeners of the protocol; empty when none were handed to this process.
///
/// Call once, before anything else opens or closes descriptors.
pub(crate) fn inherited() -> Result<Vec<TcpListener>, String> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<i32>().ok());
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else {
        return Ok(Vec::new());
    };
    if u32::try_from(pid) != Ok(std::process::id()) {
        return Ok(Vec::new());
    }
    (FIRST..FIRST.saturating_add(count)).map(adopt).collect()
}

fn adopt(descriptor: RawFd) -> Result<TcpListener, String> {
    let failed = |what: String| format!("inherited descriptor {descriptor}: {what}");
    // SAFETY: the parent announced the descriptor as ours, nothing in this process owns it, and it is adopted once.
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    nix::sys::socket::getsockopt(&owned, nix::sys::socket::sockopt::AcceptConn)
        .map_err(|e| failed(e.to_string()))?
        .then_some(())
        .ok_or_else(|| failed("is not a listening socket".into()))?;
    let flags = nix::fcntl::FdFlag::FD_CLOEXEC;
    nix::fcntl::fcntl(&owned, nix::fcntl::FcntlArg::F_SETFD(flags))
        .map_err(|e| failed(e.to_string()))?;
    let listener = TcpListener::from(owned);
    listener
        .set_nonblocking(true)
        .map_err(|e| failed(e.to_string()))?;
    Ok(listener)
}

/// Opens a listener.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let listener =
        TcpListener::bind(address).map_err(|e| format!("cannot listen on {address}: {e}"))?;
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    Ok(listener)
}
