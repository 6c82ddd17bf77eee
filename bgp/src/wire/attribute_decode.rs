//! Path attributes from octets, with the reactions of RFC 7606.

use std::net::{IpAddr, Ipv4Addr};

use super::attribute_rules::{EXTENDED_LENGTH, OPTIONAL, Outcome, Rule, TRANSITIVE, kind, rule_of};
use super::mp::{self, MpReach};
use super::notification::{code, update_error};
use super::reader::{Reader, Short};
use super::{
    AS_TRANS, Aggregator, AsPath, AttributeFault, Attributes, Community, LargeCommunity, NextHop,
    Nlri, Notification, Origin, UnknownAttribute, UpdateContext,
};
use crate::Family;

/// What the attribute field of one UPDATE holds.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) attributes: Attributes,
    pub(super) has_origin: bool,
    pub(super) has_as_path: bool,
    pub(super) next_hop: Option<Ipv4Addr>,
    pub(super) reach: Option<MpReach>,
    pub(super) unreach: Option<(Family, Vec<Nlri>)>,
    /// Strongest reason to treat the message as a withdrawal.
    pub(super) withdraw: Option<AttributeFault>,
    /// Attributes left out because they were malformed.
    pub(super) discarded: u32,
    as4_path: Option<AsPath>,
    as4_aggregator: Option<Aggregator>,
}

/// Reads the whole field.
///
/// # Errors
/// Faults that reset the session. Lesser faults are in the result.
pub(super) fn decode(field: &[u8], context: &UpdateContext) -> Result<Decoded, Notification> {
    let mut decoded = Decoded::default();
    let mut seen = [false; 256];
    let mut reader = Reader::new(field);
    while !reader.is_empty() {
        let Ok((flags, kind, value)) = next_attribute(&mut reader) else {
            decoded.fault(
                "attribute list",
                "an attribute runs past the end of the list",
            );
            break;
        };
        if std::mem::replace(&mut seen[usize::from(kind)], true) {
            if matches!(kind, kind::MP_REACH | kind::MP_UNREACH) {
                return Err(Notification::new(
                    code::UPDATE,
                    update_error::ATTRIBUTE_LIST,
                ));
            }
            continue;
        }
        match rule_of(kind) {
            Some(rule) => decoded.known(rule, flags, value, context)?,
            None => decoded.unknown(flags, kind, value),
        }
    }
    decoded.merge_as4();
    Ok(decoded)
}

fn next_attribute<'a>(reader: &mut Reader<'a>) -> Result<(u8, u8, &'a [u8]), Short> {
    let flags = reader.u8()?;
    let kind = reader.u8()?;
    let length = if flags & EXTENDED_LENGTH != 0 {
        usize::from(reader.u16()?)
    } else {
        usize::from(reader.u8()?)
    };
    Ok((flags, kind, reader.take(length)?))
}

impl Decoded {
    fn fault(&mut self, attribute: &'static str, reason: impl Into<String>) {
        if self.withdraw.is_none() {
            self.withdraw = Some(AttributeFault {
                attribute,
                reason: reason.into(),
            });
        }
    }

    fn known(
        &mut self,
        rule: &'static Rule,
        flags: u8,
        value: &[u8],
        context: &UpdateContext,
    ) -> Result<(), Notification> {
        if (rule.internal_only && context.external) || (rule.two_octet_only && context.wide_as) {
            if !rule.length.fits(value.len()) || rule.two_octet_only {
                self.discarded += 1;
            }
            return Ok(());
        }
        let result = if flags & (OPTIONAL | TRANSITIVE) != rule.flags {
            // RFC 7606 section 3 (c): flags are judged before the value.
            match rule.malformed {
                Outcome::Reset => Err((Outcome::Reset, "wrong flags".to_owned())),
                _ => Err((Outcome::Withdraw, "wrong flags".to_owned())),
            }
        } else if !rule.length.fits(value.len()) {
            Err((rule.malformed, format!("length {}", value.len())))
        } else {
            self.value(rule, value, context)?
        };
        match result {
            Ok(()) => {}
            Err((Outcome::Discard, _)) => self.discarded += 1,
            Err((Outcome::Withdraw, reason)) => self.fault(rule.name, reason),
            Err((Outcome::Reset, _)) => {
                return Err(Notification::new(code::UPDATE, update_error::OPTIONAL));
            }
        }
        Ok(())
    }

    /// Reads a value of legal length.
    #[allow(clippy::type_complexity)]
    fn value(
        &mut self,
        rule: &Rule,
        value: &[u8],
        context: &UpdateContext,
    ) -> Result<Result<(), (Outcome, String)>, Notification> {
        let malformed = |reason: String| Ok(Err((rule.malformed, reason)));
        let attributes = &mut self.attributes;
        match rule.kind {
            kind::ORIGIN => {
                attributes.origin = match value {
                    [0] => Origin::Igp,
                    [1] => Origin::Egp,
                    [2] => Origin::Incomplete,
                    _ => return malformed(format!("value {}", value[0])),
                };
                self.has_origin = true;
            }
            kind::AS_PATH => match AsPath::decode(value, context.wide_as) {
                // RFC 9774: sets are withdrawn when they come from another AS.
                Ok(path) if context.external && path.has_set() => {
                    return malformed("AS_SET".to_owned());
                }
                Ok(path) => {
                    attributes.as_path = path;
                    self.has_as_path = true;
                }
                Err(error) => return malformed(error.to_string()),
            },
            kind::NEXT_HOP => {
                let address = Ipv4Addr::from(octets::<4>(value));
                match context.judge_next_hop(IpAddr::V4(address)) {
                    Ok(()) => self.next_hop = Some(address),
                    Err(reason) => return malformed(reason),
                }
            }
            kind::MED => attributes.med = Some(number(value)),
            kind::LOCAL_PREF => attributes.local_pref = Some(number(value)),
            kind::ATOMIC_AGGREGATE => attributes.atomic_aggregate = true,
            kind::AGGREGATOR => match aggregator(value, context.wide_as) {
                Some(aggregator) => attributes.aggregator = Some(aggregator),
                None => return malformed("length or AS 0".to_owned()),
            },
            kind::COMMUNITIES => {
                attributes.communities = sorted(
                    value
                        .chunks_exact(4)
                        .map(|octets| Community(number(octets))),
                );
            }
            kind::ORIGINATOR_ID => {
                attributes.originator_id = Some(Ipv4Addr::from(octets::<4>(value)));
            }
            kind::CLUSTER_LIST => {
                let ids = value
                    .chunks_exact(4)
                    .map(|id| Ipv4Addr::from(octets::<4>(id)));
                attributes.cluster_list = ids.collect();
            }
            kind::EXTENDED_COMMUNITIES => {
                attributes.extended_communities = sorted(value.chunks_exact(8).map(octets::<8>));
            }
            kind::IPV6_EXTENDED_COMMUNITIES => {
                attributes.ipv6_extended_communities =
                    sorted(value.chunks_exact(20).map(octets::<20>));
            }
            kind::LARGE_COMMUNITIES => {
                attributes.large_communities =
                    sorted(value.chunks_exact(12).map(|octets| LargeCommunity {
                        global: number(&octets[..4]),
                        local1: number(&octets[4..8]),
                        local2: number(&octets[8..]),
                    }));
            }
            kind::ONLY_TO_CUSTOMER => attributes.only_to_customer = Some(number(value)),
            kind::AS4_PATH => match AsPath::decode(value, true) {
                Ok(path) => self.as4_path = Some(path),
                Err(error) => return malformed(error.to_string()),
            },
            kind::AS4_AGGREGATOR => match aggregator(value, true) {
                Some(aggregator) => self.as4_aggregator = Some(aggregator),
                None => return malformed("AS 0".to_owned()),
            },
            kind::MP_REACH => {
                self.reach = mp::decode_reach(value, context)?;
                if let Some(reach) = &self.reach
                    && let Err(reason) = context.judge_next_hop(reach.next_hop.address)
                {
                    return Ok(Err((Outcome::Withdraw, reason)));
                }
            }
            kind::MP_UNREACH => self.unreach = mp::decode_unreach(value, context)?,
            _ => {}
        }
        Ok(Ok(()))
    }

    fn unknown(&mut self, flags: u8, kind: u8, value: &[u8]) {
        match (flags & OPTIONAL != 0, flags & TRANSITIVE != 0) {
            (true, true) => {
                let value = Box::from(value);
                self.attributes
                    .unknown
                    .push(UnknownAttribute { kind, value });
                self.attributes
                    .unknown
                    .sort_by_key(|attribute| attribute.kind);
            }
            (true, false) => {}
            (false, _) => self.fault("unknown", format!("unrecognised well-known type {kind}")),
        }
    }

    /// RFC 6793 section 4.2.3.
    fn merge_as4(&mut self) {
        if let (Some(two), Some(four)) = (self.attributes.aggregator, self.as4_aggregator) {
            if two.as_number != AS_TRANS {
                return;
            }
            self.attributes.aggregator = Some(four);
        }
        if let Some(as4) = self.as4_path.take() {
            let path = std::mem::take(&mut self.attributes.as_path);
            self.attributes.as_path = path.merge_as4(as4);
        }
    }

    /// The next hop of prefixes in the NLRI field.
    pub(super) fn legacy_next_hop(&self) -> Option<NextHop> {
        self.next_hop
            .map(|address| NextHop::from(IpAddr::V4(address)))
    }
}

/// The first `N` octets; callers have checked the length.
fn octets<const N: usize>(value: &[u8]) -> [u8; N] {
    value.first_chunk::<N>().copied().unwrap_or([0; N])
}

fn number(value: &[u8]) -> u32 {
    u32::from_be_bytes(octets(value))
}

fn aggregator(value: &[u8], wide: bool) -> Option<Aggregator> {
    let (as_number, rest) = match (wide, value.len()) {
        (true, 8) => (number(value), &value[4..]),
        (false, 6) => (u32::from(u16::from_be_bytes(octets(value))), &value[2..]),
        _ => return None,
    };
    (as_number != 0).then(|| Aggregator {
        as_number,
        identifier: Ipv4Addr::from(octets::<4>(rest)),
    })
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values
}
