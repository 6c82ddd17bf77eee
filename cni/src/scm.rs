//! Passing the network namespace over the socket (`SCM_RIGHTS`, unix(7)).
//!
//! The agent never needs to see the path of a pod's namespace, so its container needs no `/run/netns` mount, and a
//! dead namespace is not pinned by one.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Most descriptors taken from one message; more than one is refused, but they must be received to be closed.
const MAX_FDS: usize = 16;

/// Writes all of `bytes`; `fd` travels with the first of them.
///
/// # Errors
/// Those of sendmsg(2); a broken pipe is an error and never a signal.
pub fn send(mut stream: &UnixStream, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let raw: Vec<i32> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let rights = if raw.is_empty() {
        &rights[..0]
    } else {
        &rights[..]
    };
    let sent = loop {
        let parts = [IoSlice::new(bytes)];
        match sendmsg::<()>(
            stream.as_raw_fd(),
            &parts,
            rights,
            MsgFlags::MSG_NOSIGNAL,
            None,
        ) {
            Ok(sent) => break sent,
            Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    stream.write_all(&bytes[sent..])
}

/// Reads some bytes and the descriptor that came with them, if any. Zero bytes mean the end.
///
/// # Errors
/// Those of recvmsg(2); `WouldBlock` on a non-blocking socket; `InvalidData` when more than one descriptor came.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = nix::cmsg_space!([i32; MAX_FDS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            for raw in received {
                // SAFETY: the kernel has just installed this descriptor for us and nobody else knows its number.
                fds.push(unsafe { OwnedFd::from_raw_fd(raw) });
            }
        }
    }
    if fds.len() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "more than one file descriptor",
        ));
    }
    Ok((message.bytes, fds.pop()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn descriptor_travels_with_the_first_byte() {
        let (left, right) = UnixStream::pair().expect("pair");
        let (mut inner, passed) = UnixStream::pair().expect("pair");
        send(&left, b"hello", Some(passed.as_fd())).expect("send");
        drop(passed);
        let mut buffer = [0; 16];
        let (read, fd) = receive(&right, &mut buffer).expect("receive");
        assert_eq!(&buffer[..read], b"hello");
        let mut received = UnixStream::from(fd.expect("descriptor"));
        inner.write_all(b"x").expect("write");
        let mut byte = [0];
        received.read_exact(&mut byte).expect("the same socket");
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn message_without_descriptor() {
        let (left, right) = UnixStream::pair().expect("pair");
        send(&left, b"abc", None).expect("send");
        drop(left);
        let mut buffer = [0; 2];
        assert!(matches!(receive(&right, &mut buffer), Ok((2, None))));
        assert!(matches!(receive(&right, &mut buffer), Ok((1, None))));
        assert!(matches!(receive(&right, &mut buffer), Ok((0, None))));
    }
}
