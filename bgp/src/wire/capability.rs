//! Capabilities of an OPEN (RFC 5492).

use bytes::{BufMut, Bytes, BytesMut};

use super::reader::{Reader, Short};
use crate::Family;

/// Capability codes.
#[allow(missing_docs)]
pub mod capability_code {
    pub const MULTIPROTOCOL: u8 = 1;
    pub const ROUTE_REFRESH: u8 = 2;
    pub const EXTENDED_NEXT_HOP: u8 = 5;
    pub const EXTENDED_MESSAGE: u8 = 6;
    pub const GRACEFUL_RESTART: u8 = 64;
    pub const FOUR_OCTET_AS: u8 = 65;
    pub const ENHANCED_REFRESH: u8 = 70;
}

/// One family in a graceful restart capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GracefulRestartFamily {
    /// The family.
    pub family: Family,
    /// F bit: forwarding state was preserved over the restart.
    pub forwarding: bool,
}

/// Graceful restart capability (RFC 4724 section 3, RFC 8538 section 2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GracefulRestartCapability {
    /// R bit: the sender has restarted.
    pub restarted: bool,
    /// N bit: also for sessions that end with a NOTIFICATION.
    pub notification: bool,
    /// Restart time in seconds, 12 bits.
    pub time: u16,
    /// Families whose routes are to be kept.
    pub families: Vec<GracefulRestartFamily>,
}

/// One capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capability {
    /// A family of routes (RFC 4760); families this speaker does not carry are [`Self::Unknown`].
    Multiprotocol(Family),
    /// RFC 2918.
    RouteRefresh,
    /// IPv4 routes with IPv6 next hops (RFC 8950).
    ExtendedNextHop,
    /// RFC 8654.
    ExtendedMessage,
    /// RFC 4724.
    GracefulRestart(GracefulRestartCapability),
    /// RFC 6793.
    FourOctetAs(u32),
    /// RFC 7313.
    EnhancedRefresh,
    /// Anything else, kept as received.
    Unknown {
        /// Code.
        code: u8,
        /// Value.
        value: Bytes,
    },
}

impl Capability {
    /// Reads one value; `Err` when its length is illegal.
    pub(super) fn decode(code: u8, value: &[u8]) -> Result<Self, Short> {
        let unknown = || Capability::Unknown {
            code,
            value: Bytes::copy_from_slice(value),
        };
        let empty = |capability| {
            if value.is_empty() {
                Ok(capability)
            } else {
                Err(Short)
            }
        };
        match code {
            capability_code::MULTIPROTOCOL => {
                let [high, low, _, safi] = *value.first_chunk::<4>().ok_or(Short)?;
                if value.len() != 4 {
                    return Err(Short);
                }
                let family = Family::from_wire(u16::from_be_bytes([high, low]), safi);
                Ok(family.map_or_else(unknown, Capability::Multiprotocol))
            }
            capability_code::ROUTE_REFRESH => empty(Capability::RouteRefresh),
            capability_code::EXTENDED_MESSAGE => empty(Capability::ExtendedMessage),
            capability_code::ENHANCED_REFRESH => empty(Capability::EnhancedRefresh),
            capability_code::EXTENDED_NEXT_HOP => {
                if !value.len().is_multiple_of(6) {
                    return Err(Short);
                }
                let ours = value
                    .chunks_exact(6)
                    .any(|tuple| tuple == [0, 1, 0, 1, 0, 2]);
                Ok(if ours {
                    Capability::ExtendedNextHop
                } else {
                    unknown()
                })
            }
            capability_code::FOUR_OCTET_AS => {
                let octets: [u8; 4] = value.try_into().map_err(|_| Short)?;
                Ok(Capability::FourOctetAs(u32::from_be_bytes(octets)))
            }
            capability_code::GRACEFUL_RESTART => decode_graceful_restart(value),
            _ => Ok(unknown()),
        }
    }

    fn code(&self) -> u8 {
        match self {
            Capability::Multiprotocol(_) => capability_code::MULTIPROTOCOL,
            Capability::RouteRefresh => capability_code::ROUTE_REFRESH,
            Capability::ExtendedNextHop => capability_code::EXTENDED_NEXT_HOP,
            Capability::ExtendedMessage => capability_code::EXTENDED_MESSAGE,
            Capability::GracefulRestart(_) => capability_code::GRACEFUL_RESTART,
            Capability::FourOctetAs(_) => capability_code::FOUR_OCTET_AS,
            Capability::EnhancedRefresh => capability_code::ENHANCED_REFRESH,
            Capability::Unknown { code, .. } => *code,
        }
    }

    /// Writes code, length and value.
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u8(self.code());
        let length_at = out.len();
        out.put_u8(0);
        match self {
            Capability::Multiprotocol(family) => {
                out.put_u16(family.afi());
                out.put_u16(1);
            }
            Capability::ExtendedNextHop => out.put_slice(&[0, 1, 0, 1, 0, 2]),
            Capability::FourOctetAs(number) => out.put_u32(*number),
            Capability::GracefulRestart(capability) => encode_graceful_restart(capability, out),
            Capability::Unknown { value, .. } => out.put_slice(&value[..value.len().min(255)]),
            Capability::RouteRefresh
            | Capability::ExtendedMessage
            | Capability::EnhancedRefresh => {}
        }
        // Every value above has at most 255 octets.
        out[length_at] = (out.len() - length_at - 1) as u8;
    }
}

fn decode_graceful_restart(value: &[u8]) -> Result<Capability, Short> {
    let mut reader = Reader::new(value);
    let head = reader.u16()?;
    let mut families = Vec::new();
    while !reader.is_empty() {
        let (afi, safi, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
        if let Some(family) = Family::from_wire(afi, safi) {
            families.push(GracefulRestartFamily {
                family,
                forwarding: flags & 0x80 != 0,
            });
        }
    }
    Ok(Capability::GracefulRestart(GracefulRestartCapability {
        restarted: head & 0x8000 != 0,
        notification: head & 0x4000 != 0,
        time: head & 0x0FFF,
        families,
    }))
}

fn encode_graceful_restart(capability: &GracefulRestartCapability, out: &mut BytesMut) {
    let bit = |flag: bool, value: u16| if flag { value } else { 0 };
    out.put_u16(
        bit(capability.restarted, 0x8000)
            | bit(capability.notification, 0x4000)
            | capability.time.min(0x0FFF),
    );
    for entry in &capability.families {
        out.put_u16(entry.family.afi());
        out.put_u8(1);
        out.put_u8(if entry.forwarding { 0x80 } else { 0 });
    }
}
