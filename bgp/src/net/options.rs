//! Socket options of BGP connections.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;

use super::sys;
use crate::Ttl;

/// Class selector 6, as routing protocols use (RFC 4594 section 3.1).
const TRAFFIC_CLASS: u32 = 0xC0;

/// Hop limit of sessions over routers.
const MULTIHOP: u32 = 64;

/// Marks packets as network control traffic.
pub(super) fn set_class(socket: &impl AsFd, ipv4: bool) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if ipv4 {
        socket.set_tos_v4(TRAFFIC_CLASS)
    } else {
        socket.set_tclass_v6(TRAFFIC_CLASS)
    }
}

/// Options of a connection: before connecting, or before the first read of an accepted one.
pub(super) fn set_connection(
    socket: &impl AsFd,
    ipv4: bool,
    ttl: Ttl,
    hold: Duration,
) -> io::Result<()> {
    let reference = SockRef::from(socket);
    reference.set_tcp_nodelay(true)?;
    if !hold.is_zero() {
        reference.set_tcp_user_timeout(Some(hold))?;
    }
    let sent = match ttl {
        Ttl::Multihop => MULTIHOP,
        Ttl::Direct => 1,
        Ttl::Security(_) => 255,
    };
    if ipv4 {
        reference.set_ttl_v4(sent)?;
    } else {
        reference.set_unicast_hops_v6(sent)?;
    }
    if let Ttl::Security(hops) = ttl {
        // 256 minus the number of hops.
        sys::set_min_hop_limit(socket.as_fd(), ipv4, 0u8.wrapping_sub(hops))?;
    }
    set_class(socket, ipv4)
}
