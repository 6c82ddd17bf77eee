//! One blocking netlink socket: send a request, wait for its acknowledgement, read a dump.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use netlink_sys::Socket;
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use super::encode::Encoder;
use super::parse::{Attrs, Message, Messages, u32_at};
use crate::kernel::{KernelError, Netns};

/// Bytes read at once; the kernel builds dump datagrams of at most 32 KiB, events are smaller.
const READ_SIZE: usize = 256 << 10;
/// How often an inconsistent dump is read again.
const DUMP_ATTEMPTS: usize = 5;
/// How long a request may take.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Which part of the kernel the socket talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses, routes, neighbours.
    Route,
    /// nf_tables and conntrack.
    Netfilter,
}

/// A netlink socket that belongs to the namespace it was opened in.
#[derive(Debug)]
pub struct NetlinkSocket {
    pub(super) socket: Socket,
    port: u32,
    seq: u32,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// Opens a socket in the calling thread's namespace.
    pub fn open(protocol: Protocol) -> Result<Self, KernelError> {
        let number = match protocol {
            Protocol::Route => libc::NETLINK_ROUTE,
            Protocol::Netfilter => libc::NETLINK_NETFILTER,
        };
        let mut socket = Socket::new(number as isize)?;
        let port = socket.bind_auto()?.port_number();
        socket.set_ext_ack(true)?;
        socket.set_cap_ack(true)?;
        if protocol == Protocol::Route {
            // Lets the kernel filter dumps by table, protocol and interface (Linux 4.20).
            socket.set_netlink_get_strict_chk(true)?;
        }
        let mut this = Self {
            socket,
            port,
            seq: 1,
            buffer: vec![0; READ_SIZE],
        };
        this.set_receive_buffer(8 << 20)?;
        this.set_send_buffer(1 << 20)?;
        this.set_time_limit(TIME_LIMIT)?;
        Ok(this)
    }

    /// Opens a socket in another namespace. It stays there, whichever thread uses it.
    pub fn open_in(netns: &Netns, protocol: Protocol) -> Result<Self, KernelError> {
        netns
            .run(move || Self::open(protocol))
            .map_err(|e| KernelError::Socket(e.to_string()))?
    }

    /// Port id: the kernel puts it on the events that this socket's requests cause.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Sets the receive buffer in bytes, beyond the system-wide limit where allowed.
    pub fn set_receive_buffer(&mut self, bytes: usize) -> Result<(), KernelError> {
        if setsockopt(&self.socket, sockopt::RcvBufForce, &bytes).is_err() {
            setsockopt(&self.socket, sockopt::RcvBuf, &bytes)?;
        }
        Ok(())
    }

    /// Sets the send buffer in bytes: one request, however many messages, must fit.
    pub fn set_send_buffer(&mut self, bytes: usize) -> Result<(), KernelError> {
        if setsockopt(&self.socket, sockopt::SndBufForce, &bytes).is_err() {
            setsockopt(&self.socket, sockopt::SndBuf, &bytes)?;
        }
        Ok(())
    }

    /// How long one read waits.
    pub fn set_time_limit(&mut self, limit: Duration) -> Result<(), KernelError> {
        let limit = TimeVal::milliseconds(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        setsockopt(&self.socket, sockopt::ReceiveTimeout, &limit)?;
        Ok(())
    }

    /// Joins a multicast group.
    pub fn join(&mut self, group: u32) -> Result<(), KernelError> {
        Ok(self.socket.add_membership(group)?)
    }

    pub(super) fn next_seq(&mut self, count: u32) -> u32 {
        let first = self.seq;
        self.seq = self.seq.wrapping_add(count).max(1);
        first
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), KernelError> {
        loop {
            match nix::sys::socket::send(self.socket.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(nix::Error::EINTR) => {}
                Err(e @ (nix::Error::EMSGSIZE | nix::Error::EPERM | nix::Error::EACCES)) => {
                    return Err(KernelError::errno(e as i32));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads one datagram and hands out its messages. `Timeout` when nothing came, `Overrun` when datagrams were lost.
    pub fn receive(&mut self, mut each: impl FnMut(&Message<'_>)) -> Result<(), KernelError> {
        let length = loop {
            let fd = self.socket.as_raw_fd();
            match nix::sys::socket::recv(fd, &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Ok(length) => break length,
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN) => {
                    return Err(KernelError::Timeout(TIME_LIMIT.as_millis() as u64));
                }
                Err(nix::Error::ENOBUFS) => return Err(KernelError::Overrun),
                Err(e) => return Err(e.into()),
            }
        };
        let Some(datagram) = self.buffer.get(..length) else {
            self.buffer.resize(length.next_power_of_two(), 0);
            return Err(KernelError::Overrun);
        };
        for message in Messages(datagram) {
            each(&message);
        }
        Ok(())
    }

    /// Throws away what is waiting to be read: old answers would leave no room for new ones.
    pub(super) fn drain(&mut self) {
        loop {
            let fd = self.socket.as_raw_fd();
            match nix::sys::socket::recv(fd, &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(_) | Err(nix::Error::EINTR | nix::Error::ENOBUFS) => {}
                Err(_) => return,
            }
        }
    }

    /// Sends one request and waits until the kernel has done it.
    pub fn request(&mut self, request: Encoder) -> Result<(), KernelError> {
        self.query(request, |_| {})
    }

    /// Sends one request that is answered with messages and an acknowledgement.
    pub fn query(
        &mut self,
        mut request: Encoder,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<(), KernelError> {
        let seq = self.next_seq(1);
        request.number(seq, libc::NLM_F_ACK as u16, true);
        self.send(request.bytes())?;
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let mut outcome = None;
            self.receive(|message| {
                if message.seq != seq || outcome.is_some() {
                    return;
                }
                match acknowledgement(message) {
                    Some(result) => outcome = Some(result),
                    None => each(message),
                }
            })?;
            if let Some(result) = outcome {
                return result;
            }
            if Instant::now() > deadline {
                return Err(KernelError::Timeout(TIME_LIMIT.as_millis() as u64));
            }
        }
    }

    /// Reads a whole table. `collect` builds the result from scratch each time, because a table that changes while it
    /// is read is read again.
    pub fn dump<T: Default>(
        &mut self,
        request: &Encoder,
        mut collect: impl FnMut(&mut T, &Message<'_>),
    ) -> Result<T, KernelError> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut found = T::default();
            match self.dump_once(request, |message| collect(&mut found, message)) {
                Ok(true) => return Ok(found),
                Ok(false) => {}
                Err(e) if e.is(libc::EINTR) => {}
                // A strict dump of an empty table is answered with "no such entry".
                Err(e) if e.is(libc::ENOENT) => return Ok(T::default()),
                Err(e) => return Err(e),
            }
        }
        Err(KernelError::Interrupted)
    }

    /// True when the dump was consistent.
    fn dump_once(
        &mut self,
        request: &Encoder,
        mut each: impl FnMut(&Message<'_>),
    ) -> Result<bool, KernelError> {
        let seq = self.next_seq(1);
        let mut request = request.clone();
        request.number(seq, libc::NLM_F_DUMP as u16, true);
        self.send(request.bytes())?;
        let mut consistent = true;
        loop {
            let mut outcome = None;
            self.receive(|message| {
                if message.seq != seq || outcome.is_some() {
                    return;
                }
                if message.flags & libc::NLM_F_DUMP_INTR as u16 != 0 {
                    consistent = false;
                }
                match acknowledgement(message) {
                    Some(result) => outcome = Some(result),
                    None => each(message),
                }
            })?;
            if let Some(result) = outcome {
                return result.map(|()| consistent);
            }
        }
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The end of an answer: `NLMSG_ERROR` (which is also the acknowledgement) or `NLMSG_DONE`.
pub(super) fn acknowledgement(message: &Message<'_>) -> Option<Result<(), KernelError>> {
    const DONE: u16 = libc::NLMSG_DONE as u16;
    const ERROR: u16 = libc::NLMSG_ERROR as u16;
    /// `NLM_F_ACK_TLVS`, `NLM_F_CAPPED`.
    const HAS_TLVS: u16 = 0x200;
    match message.kind {
        DONE => {
            let code = u32_at(message.payload, 0).map_or(0, |w| w as i32);
            Some(if code < 0 {
                Err(KernelError::errno(-code))
            } else {
                Ok(())
            })
        }
        ERROR => {
            let Some(code) = u32_at(message.payload, 0).map(|w| w as i32) else {
                return Some(Err(KernelError::Malformed("an error without its number")));
            };
            if code == 0 {
                return Some(Ok(()));
            }
            let mut detail = String::new();
            if message.flags & HAS_TLVS != 0 {
                // The original header follows the number, then text (1) and offset (2).
                let tlvs = Attrs(message.payload.get(20..).unwrap_or_default());
                detail = tlvs.find(1).map(|a| a.text()).unwrap_or_default();
            }
            Some(Err(KernelError::Errno {
                errno: code.saturating_neg(),
                detail,
            }))
        }
        _ => None,
    }
}
