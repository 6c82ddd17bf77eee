//! Reading netlink messages without copying. Lengths come from outside: nothing here panics or reads past its slice.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::kernel::MacAddr;

const TYPE_MASK: u16 = 0x3fff;

/// One message of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Type (`RTM_*`, or subsystem and message of nfnetlink).
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Sequence number of the request it answers, or of the request that caused the event.
    pub seq: u32,
    /// Port of the requester; 0 when the kernel acted on its own.
    pub port: u32,
    /// What follows the header.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Attributes after a fixed part of `fixed` bytes.
    pub fn attrs(&self, fixed: usize) -> Attrs<'a> {
        Attrs(
            self.payload
                .get(fixed.next_multiple_of(4)..)
                .unwrap_or_default(),
        )
    }
}

/// The messages of one datagram.
#[derive(Debug, Clone, Copy)]
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.get(..16)?;
        let length = u32_at(header, 0)? as usize;
        let whole = self.0.get(..length).filter(|w| w.len() >= 16)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: u16_at(header, 4)?,
            flags: u16_at(header, 6)?,
            seq: u32_at(header, 8)?,
            port: u32_at(header, 12)?,
            payload: &whole[16..],
        })
    }
}

/// One attribute.
#[derive(Debug, Clone, Copy)]
pub struct Attr<'a> {
    /// Type without the nested and byte-order bits.
    pub kind: u16,
    /// Payload.
    pub data: &'a [u8],
}

impl<'a> Attr<'a> {
    /// First octet.
    pub fn u8(&self) -> Option<u8> {
        self.data.first().copied()
    }

    /// 16 bits in host order.
    pub fn u16(&self) -> Option<u16> {
        u16_at(self.data, 0)
    }

    /// 16 bits in network order.
    pub fn be16(&self) -> Option<u16> {
        self.u16().map(u16::from_be)
    }

    /// 32 bits in host order.
    pub fn u32(&self) -> Option<u32> {
        u32_at(self.data, 0)
    }

    /// 32 bits in network order.
    pub fn be32(&self) -> Option<u32> {
        self.u32().map(u32::from_be)
    }

    /// 64 bits in network order.
    pub fn be64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.data.get(..8)?.try_into().ok()?))
    }

    /// Text up to the first NUL; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        let end = self
            .data
            .iter()
            .position(|b| *b == 0)
            .unwrap_or(self.data.len());
        String::from_utf8_lossy(&self.data[..end]).into_owned()
    }

    /// An address by its length.
    pub fn ip(&self) -> Option<IpAddr> {
        match self.data.len() {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(self.data).ok()?).into()),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(self.data).ok()?).into()),
            _ => None,
        }
    }

    /// An Ethernet address.
    pub fn mac(&self) -> Option<MacAddr> {
        Some(MacAddr(self.data.try_into().ok()?))
    }

    /// The attributes inside.
    pub fn nested(&self) -> Attrs<'a> {
        Attrs(self.data)
    }
}

/// A run of attributes.
#[derive(Debug, Clone, Copy)]
pub struct Attrs<'a>(pub &'a [u8]);

impl<'a> Attrs<'a> {
    /// First attribute of a type.
    pub fn find(self, kind: u16) -> Option<Attr<'a>> {
        let mut attrs = self;
        attrs.by_ref().find(|a| a.kind == kind)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & TYPE_MASK;
        let data = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Attr { kind, data })
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::netlink::Encoder;

    #[test]
    fn what_was_written_is_read_back() {
        let mut encoder = Encoder::new();
        encoder.message(20, 5, &[1, 2, 3], |m| {
            m.string(1, "eth0");
            m.nest(2, |n| n.be32(3, 7));
        });
        encoder.message(21, 0, &[], |m| m.u32(4, 9));
        let messages: Vec<_> = Messages(encoder.bytes()).collect();
        assert_eq!(messages.len(), 2);
        assert_eq!((messages[0].kind, messages[0].flags), (20, 5));
        let attrs = messages[0].attrs(3);
        assert_eq!(attrs.find(1).unwrap().text(), "eth0");
        assert_eq!(
            attrs.find(2).unwrap().nested().find(3).unwrap().be32(),
            Some(7)
        );
        assert_eq!(messages[1].attrs(0).find(4).unwrap().u32(), Some(9));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_always_end(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut total = 0;
            for message in Messages(&bytes) {
                total += 16 + message.payload.len();
                for attr in message.attrs(12) {
                    let _ = (attr.ip(), attr.mac(), attr.be64(), attr.text(), attr.nested().count());
                }
            }
            prop_assert!(total <= bytes.len());
        }
    }
}
