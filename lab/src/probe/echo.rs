//! ICMP and ICMPv6 echo on a raw socket (RFC 792, RFC 4443 section 4).

use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto,
    setsockopt, socket,
};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

const V4_REQUEST: u8 = 8;
const V4_REPLY: u8 = 0;
const V6_REQUEST: u8 = 128;
const V6_REPLY: u8 = 129;
const HEADER: usize = 8;

/// Identifies one request: the identifier and sequence number of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tag {
    pub(super) id: u16,
    pub(super) sequence: u16,
}

/// A socket for echo requests of one family, in the namespace where it was opened.
#[derive(Debug)]
pub(super) struct EchoSocket {
    socket: OwnedFd,
    v6: bool,
}

impl EchoSocket {
    /// Opens the socket in the namespace of the calling thread.
    pub(super) fn open(v6: bool) -> io::Result<Self> {
        let (family, protocol) = if v6 {
            (AddressFamily::Inet6, SockProtocol::IcmpV6)
        } else {
            (AddressFamily::Inet, SockProtocol::Icmp)
        };
        let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        Ok(Self { socket, v6 })
    }

    /// Sends one request. An unreachable destination is an error of the same name.
    pub(super) fn send(&self, to: IpAddr, tag: Tag) -> io::Result<()> {
        let packet = request(self.v6, tag);
        let to = SockaddrStorage::from(SocketAddr::new(to, 0));
        sendto(self.socket.as_raw_fd(), &packet, &to, MsgFlags::empty())?;
        Ok(())
    }

    /// Waits for the next reply to anybody in this namespace; `None` after `limit`.
    pub(super) fn receive(&self, limit: Duration) -> io::Result<Option<Tag>> {
        let microseconds = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX).max(1);
        setsockopt(
            &self.socket,
            ReceiveTimeout,
            &TimeVal::microseconds(microseconds),
        )?;
        let mut buffer = [0_u8; 1500];
        match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Ok(length) => Ok(reply(self.v6, &buffer[..length])),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

fn request(v6: bool, tag: Tag) -> [u8; HEADER + 8] {
    let mut packet = [0_u8; HEADER + 8];
    packet[0] = if v6 { V6_REQUEST } else { V4_REQUEST };
    packet[4..6].copy_from_slice(&tag.id.to_be_bytes());
    packet[6..8].copy_from_slice(&tag.sequence.to_be_bytes());
    if !v6 {
        // The kernel fills in the ICMPv6 checksum of a raw socket itself (RFC 3542 section 3.1), ICMP's it does not.
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

fn reply(v6: bool, packet: &[u8]) -> Option<Tag> {
    // A raw IPv4 socket delivers the IP header too, an IPv6 one does not.
    let skip = if v6 {
        0
    } else {
        usize::from(packet.first()? & 0x0f) * 4
    };
    let message = packet.get(skip..)?;
    if message.len() < HEADER || message[0] != if v6 { V6_REPLY } else { V4_REPLY } {
        return None;
    }
    let word = |i: usize| u16::from_be_bytes([message[i], message[i + 1]]);
    Some(Tag {
        id: word(4),
        sequence: word(6),
    })
}

/// Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_checksum_sums_to_zero() {
        let packet = request(
            false,
            Tag {
                id: 0xbeef,
                sequence: 513,
            },
        );
        assert_eq!(checksum(&packet), 0);
    }

    #[test]
    fn only_replies_are_taken_and_the_ip_header_is_skipped() {
        let tag = Tag { id: 7, sequence: 9 };
        let mut v4 = vec![0x45; 20];
        v4.extend(request(false, tag));
        assert_eq!(reply(false, &v4), None);
        v4[20] = V4_REPLY;
        assert_eq!(reply(false, &v4), Some(tag));
        let mut v6 = request(true, tag);
        assert_eq!(reply(true, &v6), None);
        v6[0] = V6_REPLY;
        assert_eq!(reply(true, &v6), Some(tag));
        assert_eq!(reply(false, &[]), None);
        assert_eq!(reply(true, &[V6_REPLY; 7]), None);
    }
}
