//! UPDATE (RFC 4271 sections 4.3 and 6.3, RFC 7606).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::attribute_decode;
use super::notification::{code, update_error};
use super::reader::Reader;
use super::{Attributes, NextHop, Nlri, Notification, nlri};
use crate::{Families, Family};

/// What reading an UPDATE needs to know of its session.
#[derive(Debug, Clone, Default)]
pub struct UpdateContext {
    /// The peer is in another AS.
    pub external: bool,
    /// AS numbers have four octets (RFC 6793).
    pub wide_as: bool,
    /// Families carried; others are ignored.
    pub families: Families,
    /// Families whose prefixes carry path identifiers.
    pub add_path: Families,
    /// IPv6 next hops are legal for IPv4 (RFC 8950).
    pub extended_next_hop: bool,
    /// Own address of the connection: illegal as a next hop.
    pub local_address: Option<IpAddr>,
}

impl UpdateContext {
    /// Refuses next hops that cannot lead anywhere (RFC 4271 section 6.3).
    pub(super) fn judge_next_hop(&self, address: IpAddr) -> Result<(), String> {
        let wrong = match address {
            IpAddr::V4(v4) => {
                v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast() || class_e(v4)
            }
            IpAddr::V6(v6) => v6.is_unspecified() || v6.is_multicast(),
        };
        if wrong {
            return Err(format!("{address} is not a next hop"));
        }
        if self.local_address == Some(address) {
            return Err(format!("{address} is this speaker"));
        }
        Ok(())
    }
}

fn class_e(address: Ipv4Addr) -> bool {
    address.octets()[0] >= 240
}

/// Why prefixes count as withdrawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeFault {
    /// Name of the attribute.
    pub attribute: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for AttributeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.attribute, self.reason)
    }
}

/// Announced prefixes with one next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reachable {
    /// Where they lead.
    pub next_hop: NextHop,
    /// The prefixes.
    pub prefixes: Vec<Nlri>,
}

/// A decoded UPDATE. Apply `withdrawn` first: a prefix in both is announced (RFC 4271 section 4.3).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    /// Withdrawn prefixes; with [`Update::fault`] also the announced ones.
    pub withdrawn: Vec<Nlri>,
    /// Announced prefixes.
    pub reachable: Vec<Reachable>,
    /// Attributes of the announced prefixes; the next hop is in [`Reachable`].
    pub attributes: Attributes,
    /// Set when announced prefixes were treated as withdrawn (RFC 7606).
    pub fault: Option<AttributeFault>,
    /// Attributes left out because they were malformed (RFC 7606).
    pub discarded: u32,
    /// The message is an End-of-RIB marker (RFC 4724 section 2).
    pub end_of_rib: Option<Family>,
}

impl Update {
    /// Reads the body of an UPDATE.
    ///
    /// # Errors
    /// The NOTIFICATION that resets the session.
    pub fn decode(body: &[u8], context: &UpdateContext) -> Result<Self, Notification> {
        let malformed = || Notification::new(code::UPDATE, update_error::ATTRIBUTE_LIST);
        let network = || Notification::new(code::UPDATE, update_error::NETWORK);
        let mut reader = Reader::new(body);
        let mut section = || {
            let length = reader.u16().map_err(|_| malformed())?;
            reader.take(usize::from(length)).map_err(|_| malformed())
        };
        let withdrawn_field = section()?;
        let attribute_field = section()?;
        let nlri_field = reader.rest();

        let add_path = context.add_path.contains(Family::Ipv4);
        let mut withdrawn = Vec::new();
        nlri::decode(withdrawn_field, Family::Ipv4, add_path, &mut withdrawn)
            .map_err(|_| network())?;
        let mut announced = Vec::new();
        nlri::decode(nlri_field, Family::Ipv4, add_path, &mut announced).map_err(|_| network())?;
        if !context.families.contains(Family::Ipv4) {
            // Not negotiated: such prefixes are ignored (RFC 4760 section 8).
            withdrawn.clear();
            announced.clear();
        }

        let mut decoded = attribute_decode::decode(attribute_field, context)?;
        let end_of_rib = match &decoded.unreach {
            _ if body == [0, 0, 0, 0] => Some(Family::Ipv4),
            Some((family, prefixes))
                if prefixes.is_empty() && withdrawn_field.is_empty() && nlri_field.is_empty() =>
            {
                // Nothing but an empty MP_UNREACH_NLRI: 6 octets, or 7 with an extended length.
                (attribute_field.len() <= 7).then_some(*family)
            }
            _ => None,
        };

        let reach = decoded
            .reach
            .take()
            .filter(|reach| !reach.prefixes.is_empty());
        if announced.is_empty() && reach.is_none() && decoded.withdraw.is_some() {
            return Err(malformed());
        }
        if reach.is_some() || !announced.is_empty() {
            decoded.require_well_known(!announced.is_empty());
        }
        let mut update = Update {
            withdrawn,
            end_of_rib,
            ..Update::default()
        };
        update.withdrawn.extend(
            decoded
                .unreach
                .take()
                .into_iter()
                .flat_map(|(_, nlri)| nlri),
        );
        update.discarded = decoded.discarded;
        update.fault = decoded.withdraw.take();
        if update.fault.is_some() {
            update.withdrawn.extend(announced);
            update
                .withdrawn
                .extend(reach.into_iter().flat_map(|reach| reach.prefixes));
            return Ok(update);
        }
        if let (Some(next_hop), false) = (decoded.legacy_next_hop(), announced.is_empty()) {
            update.reachable.push(Reachable {
                next_hop,
                prefixes: announced,
            });
        }
        if let Some(reach) = reach {
            update.reachable.push(Reachable {
                next_hop: reach.next_hop,
                prefixes: reach.prefixes,
            });
        }
        update.attributes = decoded.attributes;
        Ok(update)
    }
}

impl attribute_decode::Decoded {
    /// RFC 7606 section 3 (d): a missing well-known attribute counts as a withdrawal.
    fn require_well_known(&mut self, legacy_prefixes: bool) {
        let missing = if !self.has_origin {
            "ORIGIN"
        } else if !self.has_as_path {
            "AS_PATH"
        } else if legacy_prefixes && self.next_hop.is_none() {
            "NEXT_HOP"
        } else {
            return;
        };
        if self.withdraw.is_none() {
            let reason = "missing".to_owned();
            self.withdraw = Some(AttributeFault {
                attribute: missing,
                reason,
            });
        }
    }
}
