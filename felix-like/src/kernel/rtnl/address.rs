//! Interface addresses.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Rtnl, family_of};
use crate::kernel::KernelError;
use crate::kernel::netlink::{Encoder, Message};

const IFADDRMSG: usize = 8;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const IFA_F_NODAD: u32 = 0x02;
const IFA_F_TENTATIVE: u32 = 0x40;

/// An address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Interface index.
    pub link: u32,
    /// The address itself with its prefix length.
    pub address: IpNet,
    /// Duplicate address detection has not finished (RFC 4862 section 5.4).
    pub tentative: bool,
}

/// How an address is added.
#[derive(Debug, Clone, Copy, Default)]
pub struct AddressFlags {
    /// Use it at once, without duplicate address detection (IPv6 only).
    pub no_dad: bool,
}

fn ifaddrmsg(link: u32, address: IpNet) -> [u8; IFADDRMSG] {
    let mut fixed = [0; IFADDRMSG];
    fixed[0] = family_of(address.addr());
    fixed[1] = address.prefix_len();
    fixed[4..8].copy_from_slice(&link.to_ne_bytes());
    fixed
}

impl Rtnl {
    /// Adds an address; one that is there already is accepted.
    pub fn add_address(
        &mut self,
        link: u32,
        address: IpNet,
        flags: AddressFlags,
    ) -> Result<(), KernelError> {
        let create = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        let request = Encoder::single(libc::RTM_NEWADDR, create, &ifaddrmsg(link, address), |m| {
            m.ip(IFA_LOCAL, address.addr());
            m.ip(IFA_ADDRESS, address.addr());
            if flags.no_dad && address.addr().is_ipv6() {
                m.u32(IFA_FLAGS, IFA_F_NODAD);
            }
        });
        self.socket.request(request)
    }

    /// Removes an address; true when it was there.
    pub fn delete_address(&mut self, link: u32, address: IpNet) -> Result<bool, KernelError> {
        let request = Encoder::single(libc::RTM_DELADDR, 0, &ifaddrmsg(link, address), |m| {
            m.ip(IFA_LOCAL, address.addr());
        });
        match self.socket.request(request) {
            Ok(()) => Ok(true),
            Err(e) if e.is_absent() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// All addresses of the namespace.
    pub fn addresses(&mut self) -> Result<Vec<Address>, KernelError> {
        self.dump_addresses(0)
    }

    /// The addresses of one link; none when there is no such link.
    pub fn addresses_of(&mut self, link: u32) -> Result<Vec<Address>, KernelError> {
        match self.dump_addresses(link) {
            Err(e) if e.is(libc::ENODEV) => Ok(Vec::new()),
            other => other,
        }
    }

    fn dump_addresses(&mut self, link: u32) -> Result<Vec<Address>, KernelError> {
        let mut fixed = [0; IFADDRMSG];
        fixed[4..8].copy_from_slice(&link.to_ne_bytes());
        let request = Encoder::single(libc::RTM_GETADDR, 0, &fixed, |_| {});
        self.socket
            .dump(&request, |addresses: &mut Vec<Address>, message| {
                addresses.extend(decode_address(message).filter(|a| link == 0 || a.link == link));
            })
    }
}

/// Reads `RTM_NEWADDR` or `RTM_DELADDR`.
pub(crate) fn decode_address(message: &Message<'_>) -> Option<Address> {
    if message.kind != libc::RTM_NEWADDR && message.kind != libc::RTM_DELADDR {
        return None;
    }
    let fixed = message.payload.get(..IFADDRMSG)?;
    let link = u32::from_ne_bytes(fixed[4..8].try_into().ok()?);
    let attrs = message.attrs(IFADDRMSG);
    // On point-to-point links IFA_ADDRESS is the far end.
    let ip: IpAddr = attrs
        .find(IFA_LOCAL)
        .or_else(|| attrs.find(IFA_ADDRESS))?
        .ip()?;
    let flags = attrs
        .find(IFA_FLAGS)
        .and_then(|a| a.u32())
        .unwrap_or(u32::from(fixed[2]));
    Some(Address {
        link,
        address: IpNet::new(ip, fixed[1]).ok()?,
        tentative: flags & IFA_F_TENTATIVE != 0,
    })
}
