//! OPEN (RFC 4271 section 4.2) with capabilities (RFC 5492) and long parameters (RFC 9072).

use std::net::Ipv4Addr;

use bytes::{BufMut, Bytes, BytesMut};

use super::as_path::AS_TRANS;
use super::header::{MessageType, put_header};
use super::notification::{code, open_error};
use super::reader::{Reader, Short};
use super::{Capability, GracefulRestartCapability, Notification};
use crate::{Families, Family};

const VERSION: u8 = 4;
const PARAMETER_CAPABILITIES: u8 = 2;
const EXTENDED: u8 = 255;

/// An OPEN message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// AS number: the 4-octet one when the capability is present.
    pub as_number: u32,
    /// Hold time proposed, in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// BGP identifier.
    pub identifier: Ipv4Addr,
    /// Capabilities in order.
    pub capabilities: Vec<Capability>,
}

fn error(subcode: u8, data: &[u8]) -> Notification {
    Notification::with_data(code::OPEN, subcode, Bytes::copy_from_slice(data))
}

impl From<Short> for Notification {
    fn from(_: Short) -> Self {
        Notification::new(code::OPEN, open_error::UNSPECIFIC)
    }
}

impl Open {
    /// Reads the body and checks everything that needs no configuration.
    ///
    /// # Errors
    /// The NOTIFICATION to send (RFC 4271 section 6.2).
    pub fn decode(body: &[u8]) -> Result<Self, Notification> {
        let mut reader = Reader::new(body);
        if reader.u8()? != VERSION {
            return Err(error(
                open_error::VERSION,
                &u16::from(VERSION).to_be_bytes(),
            ));
        }
        let short_as = reader.u16()?;
        let hold_time = reader.u16()?;
        let identifier = Ipv4Addr::from(reader.array::<4>()?);
        let capabilities = decode_parameters(&mut reader)?;
        if matches!(hold_time, 1 | 2) {
            return Err(error(open_error::HOLD_TIME, &hold_time.to_be_bytes()));
        }
        if identifier.is_unspecified() {
            return Err(error(open_error::IDENTIFIER, &identifier.octets()));
        }
        let as_number = capabilities
            .iter()
            .find_map(|capability| match capability {
                Capability::FourOctetAs(number) => Some(*number),
                _ => None,
            })
            .unwrap_or(u32::from(short_as));
        let open = Open {
            as_number,
            hold_time,
            identifier,
            capabilities,
        };
        if as_number == 0 {
            return Err(open.bad_peer_as());
        }
        Ok(open)
    }

    /// Writes the whole message.
    pub fn encode(&self) -> Bytes {
        let mut list = BytesMut::new();
        for capability in &self.capabilities {
            capability.encode(&mut list);
        }
        let mut parameters = BytesMut::new();
        if list.is_empty() {
            parameters.put_u8(0);
        } else if list.len() <= 253 {
            parameters.put_u8(list.len() as u8 + 2);
            parameters.put_u8(PARAMETER_CAPABILITIES);
            parameters.put_u8(list.len() as u8);
        } else {
            parameters.put_slice(&[EXTENDED, EXTENDED]);
            parameters.put_u16(list.len() as u16 + 3);
            parameters.put_u8(PARAMETER_CAPABILITIES);
            parameters.put_u16(list.len() as u16);
        }
        parameters.put_slice(&list);
        let mut out = BytesMut::with_capacity(28 + parameters.len());
        put_header(&mut out, MessageType::Open, 9 + parameters.len());
        out.put_u8(VERSION);
        out.put_u16(u16::try_from(self.as_number).unwrap_or(AS_TRANS as u16));
        out.put_u16(self.hold_time);
        out.put_slice(&self.identifier.octets());
        out.put_slice(&parameters);
        out.freeze()
    }

    /// True when the sender uses 4-octet AS numbers.
    pub fn is_four_octet(&self) -> bool {
        self.has(|capability| matches!(capability, Capability::FourOctetAs(_)))
    }

    /// Families offered; without any multiprotocol capability IPv4 is implied (RFC 4760 section 8).
    pub fn families(&self) -> Families {
        let multiprotocol = super::capability_code::MULTIPROTOCOL;
        let mut any = false;
        let mut families = Families::NONE;
        for capability in &self.capabilities {
            match capability {
                Capability::Multiprotocol(family) => {
                    any = true;
                    families.insert(*family);
                }
                Capability::Unknown { code, .. } if *code == multiprotocol => any = true,
                _ => {}
            }
        }
        if any {
            families
        } else {
            Families::from(Family::Ipv4)
        }
    }

    /// The graceful restart capability; the last one counts.
    pub fn graceful_restart(&self) -> Option<&GracefulRestartCapability> {
        self.capabilities
            .iter()
            .rev()
            .find_map(|capability| match capability {
                Capability::GracefulRestart(value) => Some(value),
                _ => None,
            })
    }

    /// True when a capability fits.
    pub fn has(&self, test: impl Fn(&Capability) -> bool) -> bool {
        self.capabilities.iter().any(test)
    }

    /// The answer to an AS number that is not the expected one: the received number, in the width
    /// it was received.
    pub fn bad_peer_as(&self) -> Notification {
        if self.is_four_octet() {
            error(open_error::PEER_AS, &self.as_number.to_be_bytes())
        } else {
            error(open_error::PEER_AS, &(self.as_number as u16).to_be_bytes())
        }
    }
}

fn decode_parameters(reader: &mut Reader<'_>) -> Result<Vec<Capability>, Notification> {
    let length = reader.u8()?;
    let extended = length == EXTENDED && reader.rest().first() == Some(&EXTENDED);
    let length = if extended {
        reader.u8()?;
        usize::from(reader.u16()?)
    } else {
        usize::from(length)
    };
    if reader.len() != length {
        return Err(error(open_error::UNSPECIFIC, &[]));
    }
    let mut capabilities = Vec::new();
    while !reader.is_empty() {
        let start = reader.rest();
        let kind = reader.u8()?;
        let length = if extended {
            usize::from(reader.u16()?)
        } else {
            usize::from(reader.u8()?)
        };
        let value = reader.take(length)?;
        if kind != PARAMETER_CAPABILITIES {
            let whole = &start[..start.len() - reader.len()];
            return Err(error(open_error::PARAMETER, whole));
        }
        let mut list = Reader::new(value);
        while !list.is_empty() {
            let code = list.u8()?;
            let length = usize::from(list.u8()?);
            capabilities.push(Capability::decode(code, list.take(length)?)?);
        }
    }
    Ok(capabilities)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::hex;
    use crate::wire::{GracefulRestartFamily, MAX_LENGTH, Message, next_message};

    fn decode(octets: &str) -> Result<Open, Notification> {
        let mut buffer = BytesMut::from(&hex(octets)[..]);
        match next_message(&mut buffer, MAX_LENGTH)? {
            Some(Message::Open(open)) => Ok(open),
            other => panic!("{other:?}"),
        }
    }

    const BIRD: &str = "M 003f 01 04 fc00 00f0 0ac00002 22 02 20 01 04 00010001 02 00 40 06 0078 \
                        00010100 41 04 0000fc00 45 04 00010103 46 00 47 00";

    #[test]
    fn the_open_of_bird_reads_and_writes_back_the_same() {
        let open = decode(BIRD).unwrap();
        assert_eq!(open.as_number, 64512);
        assert_eq!(open.hold_time, 240);
        assert_eq!(open.identifier, Ipv4Addr::new(10, 192, 0, 2));
        assert_eq!(open.families(), Families::IPV4);
        assert_eq!(
            open.graceful_restart(),
            Some(&GracefulRestartCapability {
                restarted: false,
                notification: false,
                time: 120,
                families: vec![GracefulRestartFamily {
                    family: Family::Ipv4,
                    forwarding: false
                }],
            })
        );
        assert!(open.has(|c| *c == Capability::EnhancedRefresh));
        assert_eq!(open.encode(), hex(BIRD));
    }

    #[test]
    fn version_3_is_answered_with_4() {
        let error = decode("M 001d 01 03 fc00 00f0 0ac00002 00").unwrap_err();
        assert_eq!(error.encode(), hex("M 0017 03 02 01 0004"));
    }

    #[test]
    fn hold_time_1_is_refused_and_3_accepted() {
        let error = decode("M 001d 01 04 fc00 0001 0ac00002 00").unwrap_err();
        assert_eq!(error.encode(), hex("M 0017 03 02 06 0001"));
        assert_eq!(
            decode("M 001d 01 04 fc00 0003 0ac00002 00")
                .unwrap()
                .hold_time,
            3
        );
    }

    #[test]
    fn a_capability_of_illegal_length_is_unspecific() {
        let error = decode("M 0024 01 04 fc00 00f0 0ac00002 07 02 05 41 03 000000").unwrap_err();
        assert_eq!((error.code, error.subcode, error.data.len()), (2, 0, 0));
    }

    #[test]
    fn an_unknown_parameter_is_echoed() {
        let error = decode("M 0021 01 04 fc00 00f0 0ac00002 04 01 02 abcd").unwrap_err();
        assert_eq!(
            (error.code, error.subcode, &error.data[..]),
            (2, 4, &hex("01 02 abcd")[..])
        );
    }

    #[test]
    fn identifier_zero_and_as_zero_are_refused() {
        let error = decode("M 001d 01 04 fc00 00f0 00000000 00").unwrap_err();
        assert_eq!(
            (error.subcode, error.data.len()),
            (open_error::IDENTIFIER, 4)
        );
        let error = decode("M 001d 01 04 0000 00f0 0ac00002 00").unwrap_err();
        assert_eq!(
            (error.subcode, &error.data[..]),
            (open_error::PEER_AS, &[0u8, 0][..])
        );
    }

    #[test]
    fn capabilities_may_be_spread_over_parameters_and_ipv4_is_implied() {
        let open =
            decode("M 0027 01 04 fc00 00f0 0ac00002 0a 02 02 02 00 02 04 80 02 abcd").unwrap();
        assert_eq!(open.capabilities.len(), 2);
        assert_eq!(open.families(), Families::IPV4);
    }

    #[test]
    fn a_long_list_takes_the_extended_form() {
        let value = Bytes::from(vec![7; 200]);
        let open = Open {
            as_number: 70000,
            hold_time: 90,
            identifier: Ipv4Addr::new(1, 2, 3, 4),
            capabilities: vec![
                Capability::FourOctetAs(70000),
                Capability::Unknown {
                    code: 200,
                    value: value.clone(),
                },
                Capability::Unknown { code: 201, value },
            ],
        };
        let octets = open.encode();
        assert_eq!(octets[20..22], 23456u16.to_be_bytes());
        assert_eq!(octets[28..30], [255, 255]);
        assert_eq!(Open::decode(&octets[19..]), Ok(open));
    }
}
