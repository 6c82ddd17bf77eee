//! rtnetlink: links, addresses, neighbours and routes of one namespace.

mod address;
mod link;
mod neighbour;
mod route;
mod vxlan;

use crate::kernel::netlink::{NetlinkSocket, Operation, Protocol};
use crate::kernel::{KernelError, Netns};

pub use address::{Address, AddressFlags};
pub use link::{Link, LinkChange, VethEnd, VethPair};
pub use neighbour::{NeighKey, Neighbour};
pub use route::{Hop, RouteKey, RouteSpec, RouteType, Scope};
pub use vxlan::{FdbEntry, FdbKey, VxlanDevice};

pub(crate) use address::decode_address;
pub(crate) use link::decode_link;
pub(crate) use neighbour::decode_neighbour;
pub(crate) use route::decode_route;
pub(crate) use vxlan::decode_fdb;

/// Requests to one namespace's links, addresses, neighbours and routes. Blocking; one owner, one thread at a time.
#[derive(Debug)]
pub struct Rtnl {
    pub(crate) socket: NetlinkSocket,
}

impl Rtnl {
    /// A socket in the calling thread's namespace.
    pub fn open() -> Result<Self, KernelError> {
        Ok(Self {
            socket: NetlinkSocket::open(Protocol::Route)?,
        })
    }

    /// A socket in another namespace.
    pub fn open_in(netns: &Netns) -> Result<Self, KernelError> {
        Ok(Self {
            socket: NetlinkSocket::open_in(netns, Protocol::Route)?,
        })
    }

    /// Port id that the kernel puts on events caused by this socket.
    pub fn port(&self) -> u32 {
        self.socket.port()
    }

    /// Performs many repeatable operations; the results are in the same order.
    pub fn batch(&mut self, operations: &[Operation]) -> Vec<Result<(), KernelError>> {
        self.socket.batch(operations)
    }
}

/// `AF_INET` or `AF_INET6` of an address.
pub(crate) fn family_of(ip: std::net::IpAddr) -> u8 {
    if ip.is_ipv4() {
        libc::AF_INET as u8
    } else {
        libc::AF_INET6 as u8
    }
}
