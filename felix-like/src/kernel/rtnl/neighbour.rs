//! Permanent neighbour entries: which Ethernet address an IP address has, without asking the link.

use std::net::IpAddr;

use super::{Rtnl, family_of};
use crate::kernel::netlink::{Encoder, Message, Operation};
use crate::kernel::{KernelError, MacAddr};

const NDMSG: usize = 12;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NTF_PROXY: u8 = 0x08;

/// States we write or look for (linux/neighbour.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeighState {
    Permanent,
}

impl NeighState {
    pub(super) fn bits(self) -> u16 {
        match self {
            Self::Permanent => 0x80,
        }
    }
}

/// Which entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighKey {
    /// Interface index.
    pub link: u32,
    /// Address of the neighbour.
    pub ip: IpAddr,
}

/// An entry as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbour {
    /// Which entry.
    pub key: NeighKey,
    /// Its Ethernet address, when known.
    pub mac: Option<MacAddr>,
    /// Never expires and is never asked for.
    pub permanent: bool,
}

fn ndmsg(key: NeighKey, state: u16) -> [u8; NDMSG] {
    let mut fixed = [0; NDMSG];
    fixed[0] = family_of(key.ip);
    fixed[4..8].copy_from_slice(&key.link.to_ne_bytes());
    fixed[8..10].copy_from_slice(&state.to_ne_bytes());
    fixed
}

impl Neighbour {
    /// The operation that writes a permanent entry, replacing whatever is there.
    pub fn replace(key: NeighKey, mac: MacAddr) -> Operation {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        let fixed = ndmsg(key, NeighState::Permanent.bits());
        Operation(Encoder::single(libc::RTM_NEWNEIGH, flags, &fixed, |m| {
            m.ip(NDA_DST, key.ip);
            m.attr(NDA_LLADDR, &mac.0);
        }))
    }

    /// The operation that removes an entry.
    pub fn delete(key: NeighKey) -> Operation {
        Operation(Encoder::single(
            libc::RTM_DELNEIGH,
            0,
            &ndmsg(key, 0),
            |m| {
                m.ip(NDA_DST, key.ip);
            },
        ))
    }
}

impl Rtnl {
    /// Writes a permanent entry.
    pub fn replace_neighbour(&mut self, key: NeighKey, mac: MacAddr) -> Result<(), KernelError> {
        self.socket.request(Neighbour::replace(key, mac).0)
    }

    /// All entries of both families, without proxies.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, KernelError> {
        let mut all = Vec::new();
        for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
            let mut fixed = [0; NDMSG];
            fixed[0] = family;
            let request = Encoder::single(libc::RTM_GETNEIGH, 0, &fixed, |_| {});
            all.extend(
                self.socket
                    .dump(&request, |found: &mut Vec<Neighbour>, message| {
                        found.extend(decode_neighbour(message));
                    })?,
            );
        }
        Ok(all)
    }
}

/// Reads `RTM_NEWNEIGH` or `RTM_DELNEIGH` of an IP family.
pub(crate) fn decode_neighbour(message: &Message<'_>) -> Option<Neighbour> {
    if message.kind != libc::RTM_NEWNEIGH && message.kind != libc::RTM_DELNEIGH {
        return None;
    }
    let fixed = message.payload.get(..NDMSG)?;
    let family = i32::from(fixed[0]);
    if (family != libc::AF_INET && family != libc::AF_INET6) || fixed[10] & NTF_PROXY != 0 {
        return None;
    }
    let link = u32::from_ne_bytes(fixed[4..8].try_into().ok()?);
    let state = u16::from_ne_bytes(fixed[8..10].try_into().ok()?);
    let attrs = message.attrs(NDMSG);
    Some(Neighbour {
        key: NeighKey {
            link,
            ip: attrs.find(NDA_DST)?.ip()?,
        },
        mac: attrs.find(NDA_LLADDR).and_then(|a| a.mac()),
        permanent: state & NeighState::Permanent.bits() != 0,
    })
}
