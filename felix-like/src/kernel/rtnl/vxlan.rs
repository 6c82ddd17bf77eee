//! VXLAN devices and their forwarding entries.

use std::net::IpAddr;

use super::Rtnl;
use super::link::new_device;
use super::neighbour::NeighState;
use crate::kernel::netlink::{Attrs, Encoder, Message};
use crate::kernel::{KernelError, MacAddr};

const VXLAN_ID: u16 = 1;
const VXLAN_GROUP: u16 = 2;
const VXLAN_LINK: u16 = 3;
const VXLAN_LOCAL: u16 = 4;
const VXLAN_LEARNING: u16 = 7;
const VXLAN_L2MISS: u16 = 13;
const VXLAN_PORT: u16 = 15;
const VXLAN_GROUP6: u16 = 16;
const VXLAN_LOCAL6: u16 = 17;
const VXLAN_GBP: u16 = 23;
const VXLAN_COLLECT_METADATA: u16 = 25;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDMSG: usize = 12;
const NTF_SELF: u8 = 2;

/// Attributes of a VXLAN device that cannot be changed once it exists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VxlanDevice {
    /// Network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Index of the device below.
    pub parent: u32,
    /// Source address of the outer packets.
    pub local: Option<IpAddr>,
    /// Multicast group or default destination.
    pub group: Option<IpAddr>,
    /// Learns forwarding entries from traffic.
    pub learning: bool,
    /// Asks user space for unknown neighbours.
    pub l2miss: bool,
    /// Takes tunnel data from the route instead of fixed attributes.
    pub external: bool,
    /// Group based policy extension.
    pub gbp: bool,
}

pub(super) fn decode_vxlan(attrs: Attrs<'_>) -> VxlanDevice {
    let mut device = VxlanDevice::default();
    for attr in attrs {
        match attr.kind {
            VXLAN_ID => device.vni = attr.u32().unwrap_or_default(),
            VXLAN_LINK => device.parent = attr.u32().unwrap_or_default(),
            VXLAN_LOCAL | VXLAN_LOCAL6 => device.local = attr.ip(),
            VXLAN_GROUP | VXLAN_GROUP6 => device.group = attr.ip(),
            VXLAN_PORT => device.port = attr.be16().unwrap_or_default(),
            VXLAN_LEARNING => device.learning = attr.u8() == Some(1),
            VXLAN_L2MISS => device.l2miss = attr.u8() == Some(1),
            VXLAN_COLLECT_METADATA => device.external = attr.u8() == Some(1),
            VXLAN_GBP => device.gbp = true,
            _ => {}
        }
    }
    device
}

/// A forwarding entry of a VXLAN device: frames for an Ethernet address go to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdbEntry {
    /// Which.
    pub key: FdbKey,
    /// Node to send it to.
    pub remote: IpAddr,
}

/// Which forwarding entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FdbKey {
    /// Index of the VXLAN device.
    pub link: u32,
    /// Destination of the frame.
    pub mac: MacAddr,
}

fn bridge_ndmsg(link: u32) -> [u8; NDMSG] {
    let mut fixed = [0; NDMSG];
    fixed[0] = libc::AF_BRIDGE as u8;
    fixed[4..8].copy_from_slice(&link.to_ne_bytes());
    fixed[8..10].copy_from_slice(&NeighState::Permanent.bits().to_ne_bytes());
    fixed[10] = NTF_SELF;
    fixed
}

impl Rtnl {
    /// Makes a VXLAN device, down.
    pub fn create_vxlan(
        &mut self,
        name: &str,
        mac: MacAddr,
        mtu: u32,
        device: &VxlanDevice,
    ) -> Result<(), KernelError> {
        let request = new_device(name, "vxlan", Some(mac), Some(mtu), |data| {
            data.u32(VXLAN_ID, device.vni);
            data.u32(VXLAN_LINK, device.parent);
            match device.local {
                Some(IpAddr::V4(local)) => data.attr(VXLAN_LOCAL, &local.octets()),
                Some(IpAddr::V6(local)) => data.attr(VXLAN_LOCAL6, &local.octets()),
                None => {}
            }
            data.be16(VXLAN_PORT, device.port);
            data.u8(VXLAN_LEARNING, u8::from(device.learning));
        });
        self.socket.request(request)
    }

    /// Writes a permanent forwarding entry, replacing the one for the same MAC address.
    pub fn replace_fdb(&mut self, entry: &FdbEntry) -> Result<(), KernelError> {
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
        self.socket.request(Encoder::single(
            libc::RTM_NEWNEIGH,
            flags,
            &bridge_ndmsg(entry.key.link),
            |m| {
                m.attr(NDA_LLADDR, &entry.key.mac.0);
                m.ip(NDA_DST, entry.remote);
            },
        ))
    }

    /// Removes a forwarding entry; true when it was there.
    pub fn delete_fdb(&mut self, entry: &FdbEntry) -> Result<bool, KernelError> {
        let request = Encoder::single(libc::RTM_DELNEIGH, 0, &bridge_ndmsg(entry.key.link), |m| {
            m.attr(NDA_LLADDR, &entry.key.mac.0);
            m.ip(NDA_DST, entry.remote);
        });
        match self.socket.request(request) {
            Ok(()) => Ok(true),
            Err(e) if e.is_absent() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Forwarding entries of a VXLAN device that name a node; multicast and default entries are left out.
    pub fn fdb(&mut self, link: u32) -> Result<Vec<FdbEntry>, KernelError> {
        // A strict dump takes nothing but the family and, as ifindex, the device.
        let mut fixed = [0; NDMSG];
        fixed[0] = libc::AF_BRIDGE as u8;
        fixed[4..8].copy_from_slice(&link.to_ne_bytes());
        let request = Encoder::single(libc::RTM_GETNEIGH, 0, &fixed, |_| {});
        self.socket
            .dump(&request, |entries: &mut Vec<FdbEntry>, message| {
                entries.extend(decode_fdb(message).filter(|e| e.key.link == link));
            })
    }

    /// Makes an IPIP device with the given local address.
    ///
    /// # Errors
    /// `EOPNOTSUPP` on a kernel without the `ipip` module.
    pub fn create_ipip(&mut self, name: &str, local: IpAddr) -> Result<(), KernelError> {
        self.socket.request(encode_ipip(name, local))
    }
}

/// The request that makes an IPIP device.
pub(super) fn encode_ipip(name: &str, local: IpAddr) -> Encoder {
    const IPTUN_LOCAL: u16 = 2;
    const IPTUN_TTL: u16 = 4;
    new_device(name, "ipip", None, None, |data| {
        data.ip(IPTUN_LOCAL, local);
        data.u8(IPTUN_TTL, 0);
    })
}

/// Reads a bridge-family neighbour message of a VXLAN device.
pub(crate) fn decode_fdb(message: &Message<'_>) -> Option<FdbEntry> {
    let fixed = message.payload.get(..NDMSG)?;
    if fixed[0] != libc::AF_BRIDGE as u8 {
        return None;
    }
    let link = u32::from_ne_bytes(fixed[4..8].try_into().ok()?);
    let attrs = message.attrs(NDMSG);
    let mac = attrs.find(NDA_LLADDR)?.mac().filter(|m| m.is_usable())?;
    let remote = attrs.find(NDA_DST)?.ip()?;
    Some(FdbEntry {
        key: FdbKey { link, mac },
        remote,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ipip_request_names_its_kind_and_local_address() {
        let request = encode_ipip("tunl1", "10.0.0.1".parse().unwrap());
        let bytes = request.bytes();
        assert_eq!(bytes.len(), 80);
        assert!(bytes.windows(4).any(|w| w == b"ipip"));
        assert!(bytes.windows(8).any(|w| w == [8, 0, 2, 0, 10, 0, 0, 1]));
    }
}
