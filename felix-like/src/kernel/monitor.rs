//! The kernel's own notices of changes: links, addresses, neighbours, routes, interface settings.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::KernelError;
use super::netlink::{Message, NetlinkSocket, Protocol};
use super::rtnl::{
    Address, FdbKey, Link, NeighKey, Neighbour, RouteKey, RouteSpec, decode_address, decode_fdb,
    decode_link, decode_neighbour, decode_route,
};

const GROUP_LINK: u32 = 1;
const GROUP_NEIGH: u32 = 3;
const GROUP_IPV4_ADDRESS: u32 = 5;
const GROUP_IPV4_ROUTE: u32 = 7;
const GROUP_IPV6_ADDRESS: u32 = 9;
const GROUP_IPV6_ROUTE: u32 = 11;
const GROUP_IPV4_NETCONF: u32 = 24;
const GROUP_IPV6_NETCONF: u32 = 25;
const RTM_NEWNETCONF: u16 = 80;
const NETCONF_IFINDEX: u16 = 1;
const NETCONFMSG: usize = 4;

/// How often a monitor looks whether it should end.
const STOP_CHECK: Duration = Duration::from_millis(500);

/// A change in the kernel, whoever made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteEvent {
    /// A link appeared, changed or (`gone`) disappeared.
    Link {
        /// Its state now, or last.
        link: Link,
        /// It was deleted.
        gone: bool,
    },
    /// An address was added or (`gone`) removed.
    Address {
        /// The address.
        address: Address,
        /// It was removed.
        gone: bool,
        /// Port of the requester.
        port: u32,
    },
    /// A neighbour entry changed or (`gone`) was removed.
    Neighbour {
        /// Which.
        key: NeighKey,
        /// The entry; `None` when it was removed.
        entry: Option<Neighbour>,
        /// Port of the requester.
        port: u32,
    },
    /// A forwarding entry of a VXLAN device changed.
    Fdb(FdbEvent),
    /// A route of the main table was added, replaced or (`gone`) removed.
    Route {
        /// Which.
        key: RouteKey,
        /// Its content.
        spec: RouteSpec,
        /// It was removed.
        gone: bool,
        /// It replaced another of the same key.
        replaced: bool,
        /// Port of the requester; 0 when the kernel acted on its own.
        port: u32,
    },
    /// Forwarding, proxy ARP or reverse path filter of an interface changed.
    Setting {
        /// Interface index; all interfaces and the default have negative ones.
        link: i32,
        /// IPv6 rather than IPv4.
        ipv6: bool,
    },
    /// Notices were lost: everything has to be read again.
    Overrun,
}

/// A change of a forwarding entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FdbEvent {
    /// Which.
    pub key: FdbKey,
    /// Node it points to; `None` when it was removed.
    pub remote: Option<IpAddr>,
    /// Port of the requester.
    pub port: u32,
}

/// A socket that hears of every change; open it before reading the tables, so that nothing falls in between.
#[derive(Debug)]
pub struct RouteMonitor {
    socket: NetlinkSocket,
}

impl RouteMonitor {
    /// Subscribes in the calling thread's namespace.
    pub fn open(receive_buffer: usize) -> Result<Self, KernelError> {
        let mut socket = NetlinkSocket::open(Protocol::Route)?;
        socket.set_receive_buffer(receive_buffer)?;
        socket.set_time_limit(STOP_CHECK)?;
        for group in [
            GROUP_LINK,
            GROUP_NEIGH,
            GROUP_IPV4_ADDRESS,
            GROUP_IPV6_ADDRESS,
            GROUP_IPV4_ROUTE,
            GROUP_IPV6_ROUTE,
            GROUP_IPV4_NETCONF,
            GROUP_IPV6_NETCONF,
        ] {
            socket.join(group)?;
        }
        Ok(Self { socket })
    }

    /// Leaves out routes changed through this port, before they take room in the buffer.
    ///
    /// # Errors
    /// When the kernel refuses the filter.
    pub fn ignore_routes_of(&mut self, port: u32) -> Result<(), KernelError> {
        self.socket.ignore_routes_of(port)
    }

    /// Hands every event to `sink` until `stop` is set or the sink returns false. Routes and neighbours changed through
    /// one of `own_ports` are left out.
    pub fn run(
        mut self,
        own_ports: &[u32],
        stop: &Arc<AtomicBool>,
        mut sink: impl FnMut(RouteEvent) -> bool,
    ) {
        let mut open = true;
        while open && !stop.load(Ordering::Relaxed) {
            let received = self.socket.receive(|message| {
                if let Some(event) = decode(message, own_ports) {
                    open &= sink(event);
                }
            });
            match received {
                Ok(()) | Err(KernelError::Timeout(_)) => {}
                Err(KernelError::Overrun) => open &= sink(RouteEvent::Overrun),
                Err(error) => {
                    tracing::warn!(%error, "kernel notices: read failed");
                    open &= sink(RouteEvent::Overrun);
                    std::thread::sleep(STOP_CHECK);
                }
            }
        }
    }
}

fn decode(message: &Message<'_>, own_ports: &[u32]) -> Option<RouteEvent> {
    let port = message.port;
    let own = own_ports.contains(&port);
    match message.kind {
        libc::RTM_NEWLINK | libc::RTM_DELLINK => {
            // A bridge tells of its ports in its own family: not a change of the link itself.
            if message.payload.first().is_some_and(|f| *f != 0) {
                return None;
            }
            let link = decode_link(message)?;
            Some(RouteEvent::Link {
                link,
                gone: message.kind == libc::RTM_DELLINK,
            })
        }
        libc::RTM_NEWADDR | libc::RTM_DELADDR => {
            let address = decode_address(message)?;
            Some(RouteEvent::Address {
                address,
                gone: message.kind == libc::RTM_DELADDR,
                port,
            })
        }
        libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH if !own => {
            let gone = message.kind == libc::RTM_DELNEIGH;
            if let Some(entry) = decode_fdb(message) {
                let remote = (!gone).then_some(entry.remote);
                return Some(RouteEvent::Fdb(FdbEvent {
                    key: entry.key,
                    remote,
                    port,
                }));
            }
            let entry = decode_neighbour(message)?;
            Some(RouteEvent::Neighbour {
                key: entry.key,
                entry: (!gone).then_some(entry),
                port,
            })
        }
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE if !own => {
            let (key, spec) = decode_route(message)?;
            let gone = message.kind == libc::RTM_DELROUTE;
            let replaced = message.flags & libc::NLM_F_REPLACE as u16 != 0;
            Some(RouteEvent::Route {
                key,
                spec,
                gone,
                replaced,
                port,
            })
        }
        RTM_NEWNETCONF => {
            let ipv6 = message
                .payload
                .first()
                .is_some_and(|f| i32::from(*f) == libc::AF_INET6);
            let index = message.attrs(NETCONFMSG).find(NETCONF_IFINDEX)?.u32()?;
            Some(RouteEvent::Setting {
                link: index as i32,
                ipv6,
            })
        }
        _ => None,
    }
}
