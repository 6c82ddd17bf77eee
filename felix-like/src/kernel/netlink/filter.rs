//! A socket filter that keeps the notices of our own route changes away: writing a hundred thousand routes would
//! otherwise fill the event socket with as many notices that nobody needs.
#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use super::NetlinkSocket;
use crate::kernel::KernelError;

const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offsets in the message header.
const TYPE: u32 = 4;
const PORT: u32 = 12;
const ACCEPT: u32 = u32::MAX;
const DROP: u32 = 0;

impl NetlinkSocket {
    /// Drops `RTM_NEWROUTE` and `RTM_DELROUTE` that carry this port, before they take room in the receive buffer.
    pub fn ignore_routes_of(&mut self, port: u32) -> Result<(), KernelError> {
        // The filter loads in network order what the header holds in host order.
        let half = |value: u16| u32::from(u16::from_be_bytes(value.to_ne_bytes()));
        let word = u32::from_be_bytes(port.to_ne_bytes());
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut program = [
            step(LOAD_HALF, 0, 0, TYPE),
            step(JUMP_EQUAL, 1, 0, half(libc::RTM_NEWROUTE)),
            step(JUMP_EQUAL, 0, 2, half(libc::RTM_DELROUTE)),
            step(LOAD_WORD, 0, 0, PORT),
            step(JUMP_EQUAL, 1, 0, word),
            step(RETURN, 0, 0, ACCEPT),
            step(RETURN, 0, 0, DROP),
        ];
        let program = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the option takes a `sock_fprog`; its pointer refers to `len` instructions that outlive the call, and
        // the kernel copies and checks them.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                std::ptr::from_ref(&program).cast(),
                size_of::<libc::sock_fprog>() as libc::socklen_t,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error().into())
        }
    }
}
