//! Links: reading them, making veth pairs, changing and deleting.

use std::os::fd::{AsFd, AsRawFd};

use super::Rtnl;
use super::vxlan::{VxlanDevice, decode_vxlan};
use crate::kernel::netlink::{Attr, Encoder, Message};
use crate::kernel::{KernelError, MacAddr, Netns};

const IFINFOMSG: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
pub(super) const IFLA_INFO_KIND: u16 = 1;
pub(super) const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

/// A network interface as the kernel describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// `IFF_*`.
    pub flags: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// Hardware address, where it is an Ethernet one.
    pub mac: Option<MacAddr>,
    /// Kind of virtual device (`veth`, `vxlan`, `bridge`), none for hardware.
    pub kind: Option<String>,
    /// Alias.
    pub alias: Option<String>,
    /// Index of the peer or of the device below.
    pub parent: Option<u32>,
    /// The peer is in another namespace.
    pub parent_elsewhere: bool,
    /// VXLAN attributes, on VXLAN devices.
    pub vxlan: Option<VxlanDevice>,
}

impl Link {
    /// Administratively up.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Up and able to carry traffic.
    pub fn is_running(&self) -> bool {
        self.is_up() && self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// Is the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }
}

/// One end of a veth pair to be made.
#[derive(Debug, Clone)]
pub struct VethEnd {
    /// Name, at most 15 bytes.
    pub name: String,
    /// Hardware address; random when absent.
    pub mac: Option<MacAddr>,
}

/// A veth pair: one end here, the other born in another namespace, so it never has to be moved or renamed.
#[derive(Debug, Clone)]
pub struct VethPair {
    /// End in the socket's namespace.
    pub near: VethEnd,
    /// End in `far_netns`.
    pub far: VethEnd,
    /// Namespace of the far end.
    pub far_netns: Netns,
    /// MTU of both ends.
    pub mtu: u32,
    /// Transmit and receive queues of both ends.
    pub queues: u32,
}

/// Changes to a link; absent fields stay as they are.
#[derive(Debug, Clone, Default)]
pub struct LinkChange {
    /// Set up or down.
    pub up: Option<bool>,
    /// New alias.
    pub alias: Option<String>,
    /// New hardware address.
    pub mac: Option<MacAddr>,
    /// New MTU.
    pub mtu: Option<u32>,
    /// Take the link-local address from the hardware address (true) or generate none (false).
    pub ipv6_link_local: Option<bool>,
}

fn ifinfomsg(index: u32, flags: u32, change: u32) -> [u8; IFINFOMSG] {
    let mut fixed = [0; IFINFOMSG];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&change.to_ne_bytes());
    fixed
}

pub(super) fn create_flags() -> u16 {
    (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16
}

/// A `RTM_NEWLINK` that makes a device of a kind.
pub(super) fn new_device(
    name: &str,
    kind: &str,
    mac: Option<MacAddr>,
    mtu: Option<u32>,
    data: impl FnOnce(&mut Encoder),
) -> Encoder {
    Encoder::single(
        libc::RTM_NEWLINK,
        create_flags(),
        &ifinfomsg(0, 0, 0),
        |m| {
            m.string(IFLA_IFNAME, name);
            if let Some(mac) = mac {
                m.attr(IFLA_ADDRESS, &mac.0);
            }
            if let Some(mtu) = mtu {
                m.u32(IFLA_MTU, mtu);
            }
            m.nest(IFLA_LINKINFO, |info| {
                info.string(IFLA_INFO_KIND, kind);
                info.nest(IFLA_INFO_DATA, data);
            });
        },
    )
}

impl Rtnl {
    /// All links.
    pub fn links(&mut self) -> Result<Vec<Link>, KernelError> {
        let request = Encoder::single(libc::RTM_GETLINK, 0, &ifinfomsg(0, 0, 0), |_| {});
        self.socket
            .dump(&request, |links: &mut Vec<Link>, message| {
                links.extend(decode_link(message));
            })
    }

    /// The link of a name, if there is one.
    pub fn link_by_name(&mut self, name: &str) -> Result<Option<Link>, KernelError> {
        self.get_link(Encoder::single(
            libc::RTM_GETLINK,
            0,
            &ifinfomsg(0, 0, 0),
            |m| {
                m.string(IFLA_IFNAME, name);
            },
        ))
    }

    /// The link of an index, if there is one.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, KernelError> {
        self.get_link(Encoder::single(
            libc::RTM_GETLINK,
            0,
            &ifinfomsg(index, 0, 0),
            |_| {},
        ))
    }

    fn get_link(&mut self, request: Encoder) -> Result<Option<Link>, KernelError> {
        let mut link = None;
        match self
            .socket
            .query(request, |message| link = decode_link(message))
        {
            Ok(()) => Ok(link),
            Err(e) if e.is(libc::ENODEV) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a veth pair, both ends down.
    ///
    /// # Errors
    /// `EEXIST` when either name is taken in its namespace.
    pub fn create_veth(&mut self, pair: &VethPair) -> Result<(), KernelError> {
        let netns = pair.far_netns.as_fd().as_raw_fd();
        let end = |m: &mut Encoder, end: &VethEnd| {
            m.string(IFLA_IFNAME, &end.name);
            m.u32(IFLA_MTU, pair.mtu);
            if let Some(mac) = end.mac {
                m.attr(IFLA_ADDRESS, &mac.0);
            }
            if pair.queues > 1 {
                m.u32(IFLA_NUM_TX_QUEUES, pair.queues);
                m.u32(IFLA_NUM_RX_QUEUES, pair.queues);
            }
        };
        let request = Encoder::single(
            libc::RTM_NEWLINK,
            create_flags(),
            &ifinfomsg(0, 0, 0),
            |m| {
                end(m, &pair.near);
                m.nest(IFLA_LINKINFO, |info| {
                    info.string(IFLA_INFO_KIND, "veth");
                    info.nest(IFLA_INFO_DATA, |data| {
                        data.nest(VETH_INFO_PEER, |peer| {
                            peer.raw(&ifinfomsg(0, 0, 0));
                            end(peer, &pair.far);
                            peer.attr(IFLA_NET_NS_FD, &netns.to_ne_bytes());
                        });
                    });
                });
            },
        );
        self.socket.request(request)
    }

    /// Makes a bridge.
    pub fn create_bridge(&mut self, name: &str) -> Result<(), KernelError> {
        self.socket
            .request(new_device(name, "bridge", None, None, |_| {}))
    }

    /// Changes a link.
    pub fn change_link(&mut self, index: u32, change: &LinkChange) -> Result<(), KernelError> {
        let up = libc::IFF_UP as u32;
        let fixed = match change.up {
            Some(true) => ifinfomsg(index, up, up),
            Some(false) => ifinfomsg(index, 0, up),
            None => ifinfomsg(index, 0, 0),
        };
        self.socket
            .request(Encoder::single(libc::RTM_NEWLINK, 0, &fixed, |m| {
                if let Some(mac) = change.mac {
                    m.attr(IFLA_ADDRESS, &mac.0);
                }
                if let Some(mtu) = change.mtu {
                    m.u32(IFLA_MTU, mtu);
                }
                if let Some(alias) = &change.alias {
                    m.attr(IFLA_IFALIAS, alias.as_bytes());
                }
                if let Some(from_mac) = change.ipv6_link_local {
                    m.nest(IFLA_AF_SPEC, |spec| {
                        spec.nest(libc::AF_INET6 as u16, |v6| {
                            v6.u8(IFLA_INET6_ADDR_GEN_MODE, u8::from(!from_mac));
                        });
                    });
                }
            }))
    }

    /// Deletes a link; true when it was there.
    pub fn delete_link(&mut self, index: u32) -> Result<bool, KernelError> {
        let request = Encoder::single(libc::RTM_DELLINK, 0, &ifinfomsg(index, 0, 0), |_| {});
        match self.socket.request(request) {
            Ok(()) => Ok(true),
            Err(e) if e.is(libc::ENODEV) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Reads `RTM_NEWLINK` or `RTM_DELLINK`.
pub(crate) fn decode_link(message: &Message<'_>) -> Option<Link> {
    if message.kind != libc::RTM_NEWLINK && message.kind != libc::RTM_DELLINK {
        return None;
    }
    let fixed = message.payload.get(..IFINFOMSG)?;
    let mut link = Link {
        index: u32::from_ne_bytes(fixed[4..8].try_into().ok()?),
        flags: u32::from_ne_bytes(fixed[8..12].try_into().ok()?),
        ..Link::default()
    };
    for attr in message.attrs(IFINFOMSG) {
        match attr.kind {
            IFLA_IFNAME => link.name = attr.text(),
            IFLA_MTU => link.mtu = attr.u32()?,
            IFLA_ADDRESS => link.mac = attr.mac(),
            IFLA_LINK => link.parent = attr.u32().filter(|i| *i != 0),
            IFLA_LINK_NETNSID => link.parent_elsewhere = true,
            IFLA_IFALIAS => link.alias = Some(attr.text()).filter(|a| !a.is_empty()),
            IFLA_LINKINFO => decode_kind(&mut link, &attr),
            _ => {}
        }
    }
    Some(link)
}

fn decode_kind(link: &mut Link, info: &Attr<'_>) {
    link.kind = info.nested().find(IFLA_INFO_KIND).map(|a| a.text());
    if link.kind.as_deref() == Some("vxlan") {
        link.vxlan = info
            .nested()
            .find(IFLA_INFO_DATA)
            .map(|data| decode_vxlan(data.nested()));
    }
}
