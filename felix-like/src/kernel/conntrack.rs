//! Connection tracking: finding flows and forgetting them one by one.
//!
//! A delete request without a tuple would flush the whole table, of both families. So flows are always read first and
//! deleted by the tuple, zone and id that were read.

use std::net::IpAddr;

use super::netlink::{Attr, Encoder, Message, NetlinkSocket, Operation, Protocol};
use super::{KernelError, Netns};

const SUBSYSTEM: u16 = 1 << 8;
const NEW: u16 = SUBSYSTEM;
const GET: u16 = SUBSYSTEM | 1;
const DELETE: u16 = SUBSYSTEM | 2;
const FIXED: usize = 4;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const ID: u16 = 12;
const ZONE: u16 = 18;
const TUPLE_IP: u16 = 1;

/// Both directions of a tracked flow, as far as addresses go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Source of the first packet.
    pub source: IpAddr,
    /// Destination of the first packet.
    pub destination: IpAddr,
    /// Source of replies: the destination after translation.
    pub reply_source: IpAddr,
    /// Destination of replies: the source after translation.
    pub reply_destination: IpAddr,
}

impl Flow {
    /// True when an address takes part on our side of any translation.
    pub fn involves(&self, ip: IpAddr) -> bool {
        [self.source, self.destination, self.reply_source].contains(&ip)
    }

    /// True when the source is not translated.
    pub fn keeps_source(&self) -> bool {
        self.source == self.reply_destination
    }
}

/// Requests to one namespace's connection tracking.
#[derive(Debug)]
pub struct Conntrack {
    socket: NetlinkSocket,
}

impl Conntrack {
    /// A socket in the calling thread's namespace.
    pub fn open() -> Result<Self, KernelError> {
        Ok(Self {
            socket: NetlinkSocket::open(Protocol::Netfilter)?,
        })
    }

    /// A socket in another namespace.
    pub fn open_in(netns: &Netns) -> Result<Self, KernelError> {
        Ok(Self {
            socket: NetlinkSocket::open_in(netns, Protocol::Netfilter)?,
        })
    }

    /// Forgets the flows of a family that `wanted` picks; returns how many.
    ///
    /// # Errors
    /// When the table cannot be read, or a flow not be deleted for another reason than that it has ended.
    pub fn forget(
        &mut self,
        ipv6: bool,
        wanted: impl Fn(&Flow) -> bool,
    ) -> Result<usize, KernelError> {
        let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
        let fixed = [family, 0, 0, 0];
        let request = Encoder::single(GET, 0, &fixed, |_| {});
        let doomed: Vec<Operation> =
            self.socket.dump(&request, |doomed: &mut Vec<_>, message| {
                if let Some(flow) = decode(message)
                    && wanted(&flow)
                {
                    doomed.extend(delete(fixed, message));
                }
            })?;
        let mut forgotten = 0;
        for result in self.socket.batch(&doomed) {
            match result {
                Ok(()) => forgotten += 1,
                Err(e) if e.is_absent() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(forgotten)
    }

    /// All flows of a family.
    pub fn flows(&mut self, ipv6: bool) -> Result<Vec<Flow>, KernelError> {
        let family = if ipv6 { libc::AF_INET6 } else { libc::AF_INET } as u8;
        let request = Encoder::single(GET, 0, &[family, 0, 0, 0], |_| {});
        self.socket
            .dump(&request, |flows: &mut Vec<Flow>, message| {
                flows.extend(decode(message))
            })
    }
}

/// A request that deletes exactly the flow of a message; none when its tuple is missing.
fn delete(fixed: [u8; FIXED], message: &Message<'_>) -> Option<Operation> {
    let attrs = message.attrs(FIXED);
    let tuple = attrs.find(TUPLE_ORIGINAL).filter(|t| !t.data.is_empty())?;
    let id = attrs.find(ID)?;
    Some(Operation(Encoder::single(DELETE, 0, &fixed, |m| {
        m.nest(TUPLE_ORIGINAL, |t| t.raw(tuple.data));
        if let Some(zone) = attrs.find(ZONE) {
            m.attr(ZONE, zone.data);
        }
        m.attr(ID, id.data);
    })))
}

fn decode(message: &Message<'_>) -> Option<Flow> {
    if message.kind != NEW {
        return None;
    }
    let attrs = message.attrs(FIXED);
    let (source, destination) = addresses(&attrs.find(TUPLE_ORIGINAL)?)?;
    let (reply_source, reply_destination) = addresses(&attrs.find(TUPLE_REPLY)?)?;
    Some(Flow {
        source,
        destination,
        reply_source,
        reply_destination,
    })
}

/// Source and destination of a tuple; their numbers are 1 and 2 for IPv4, 3 and 4 for IPv6.
fn addresses(tuple: &Attr<'_>) -> Option<(IpAddr, IpAddr)> {
    let ip = tuple.nested().find(TUPLE_IP)?;
    let pick = |a, b| ip.nested().find(a).or_else(|| ip.nested().find(b))?.ip();
    Some((pick(1, 3)?, pick(2, 4)?))
}
