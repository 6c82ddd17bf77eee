//! Socket options that no safe crate offers: TCP-MD5 keys and the least hop limit accepted.
#![allow(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use socket2::SockAddr;

use crate::Password;

/// `IPV6_MINHOPCOUNT` of linux/in6.h.
const IPV6_MINHOPCOUNT: libc::c_int = 73;

/// `struct tcp_md5sig` of linux/tcp.h.
#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: i32,
    key: [u8; 80],
}

/// Sets the TCP-MD5 key for a peer (RFC 2385), on a listener or before connecting; `None` removes
/// it.
pub(super) fn set_md5_key(
    socket: BorrowedFd<'_>,
    peer: IpAddr,
    key: Option<&Password>,
) -> io::Result<()> {
    let key = key.map_or(&[][..], Password::expose);
    let address = SockAddr::from(std::net::SocketAddr::new(peer, 0));
    // SAFETY: all fields are integers or arrays of them, for which zero is a value.
    let mut option: TcpMd5Sig = unsafe { std::mem::zeroed() };
    // SAFETY: `SockAddr` holds a `sockaddr_storage` of which the first `len` octets are valid, and
    // `address` is a `sockaddr_storage`.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut option.address).cast::<u8>(),
            address.len() as usize,
        );
    }
    option.key_length = u16::try_from(key.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    option
        .key
        .get_mut(..key.len())
        .ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(key);
    set(socket, libc::IPPROTO_TCP, libc::TCP_MD5SIG, &option)
}

/// Drops packets that arrive with a lower hop limit (RFC 5082 section 3).
pub(super) fn set_min_hop_limit(socket: BorrowedFd<'_>, ipv4: bool, limit: u8) -> io::Result<()> {
    let limit = libc::c_int::from(limit);
    if ipv4 {
        set(socket, libc::IPPROTO_IP, libc::IP_MINTTL, &limit)
    } else {
        set(socket, libc::IPPROTO_IPV6, IPV6_MINHOPCOUNT, &limit)
    }
}

fn set<T>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed; the pointer and length describe
    // `value`, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Name of an interface of this network namespace.
pub(super) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has IF_NAMESIZE octets, as the function demands.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    let end = name.iter().position(|octet| *octet == 0)?;
    String::from_utf8(name[..end].to_vec()).ok()
}

/// Index of an interface of this network namespace.
pub(super) fn interface_index(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the pointer is a terminated string that lives over the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_has_the_size_the_kernel_expects() {
        assert_eq!(size_of::<TcpMd5Sig>(), 216);
    }

    #[test]
    fn the_loopback_interface_has_index_1() {
        assert_eq!(interface_index("lo"), Some(1));
        assert_eq!(interface_name(1).as_deref(), Some("lo"));
        assert_eq!(interface_index("no-such-interface"), None);
    }
}
