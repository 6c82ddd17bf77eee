//! Path attributes to octets, in ascending type order (RFC 4271 appendix F.3).

use bytes::{BufMut, BytesMut};

use super::attribute_rules::{EXTENDED_LENGTH, OPTIONAL, PARTIAL, TRANSITIVE, kind, rule_of};
use super::{AS_TRANS, Attributes, Origin};

/// Writes every attribute but MP_REACH_NLRI. `next_hop` is the legacy NEXT_HOP, if the message
/// carries one; `wide_as` says that the peer reads 4-octet AS numbers.
pub(super) fn encode(
    attributes: &Attributes,
    next_hop: Option<std::net::Ipv4Addr>,
    wide_as: bool,
    out: &mut BytesMut,
) {
    let mut writer = Writer {
        out,
        unknown: attributes.unknown.iter().peekable(),
    };
    writer.put(kind::ORIGIN, |out| {
        out.put_u8(match attributes.origin {
            Origin::Igp => 0,
            Origin::Egp => 1,
            Origin::Incomplete => 2,
        });
    });
    writer.put(kind::AS_PATH, |out| attributes.as_path.encode(wide_as, out));
    if let Some(next_hop) = next_hop {
        writer.put(kind::NEXT_HOP, |out| out.put_slice(&next_hop.octets()));
    }
    if let Some(med) = attributes.med {
        writer.put(kind::MED, |out| out.put_u32(med));
    }
    if let Some(local_pref) = attributes.local_pref {
        writer.put(kind::LOCAL_PREF, |out| out.put_u32(local_pref));
    }
    if attributes.atomic_aggregate {
        writer.put(kind::ATOMIC_AGGREGATE, |_| {});
    }
    let mut as4_aggregator = None;
    if let Some(aggregator) = attributes.aggregator {
        writer.put(kind::AGGREGATOR, |out| {
            match u16::try_from(aggregator.as_number) {
                _ if wide_as => out.put_u32(aggregator.as_number),
                Ok(number) => out.put_u16(number),
                Err(_) => {
                    out.put_u16(AS_TRANS as u16);
                    as4_aggregator = Some(aggregator);
                }
            }
            out.put_slice(&aggregator.identifier.octets());
        });
    }
    writer.list(
        kind::COMMUNITIES,
        &attributes.communities,
        |community, out| {
            out.put_u32(community.0);
        },
    );
    if let Some(originator) = attributes.originator_id {
        writer.put(kind::ORIGINATOR_ID, |out| {
            out.put_slice(&originator.octets())
        });
    }
    writer.list(kind::CLUSTER_LIST, &attributes.cluster_list, |id, out| {
        out.put_slice(&id.octets());
    });
    writer.list(
        kind::EXTENDED_COMMUNITIES,
        &attributes.extended_communities,
        |community, out| out.put_slice(community),
    );
    if !wide_as && attributes.as_path.needs_wide() {
        writer.put(kind::AS4_PATH, |out| attributes.as_path.encode(true, out));
    }
    if let Some(aggregator) = as4_aggregator {
        writer.put(kind::AS4_AGGREGATOR, |out| {
            out.put_u32(aggregator.as_number);
            out.put_slice(&aggregator.identifier.octets());
        });
    }
    writer.list(
        kind::IPV6_EXTENDED_COMMUNITIES,
        &attributes.ipv6_extended_communities,
        |community, out| out.put_slice(community),
    );
    writer.list(
        kind::LARGE_COMMUNITIES,
        &attributes.large_communities,
        |community, out| {
            out.put_u32(community.global);
            out.put_u32(community.local1);
            out.put_u32(community.local2);
        },
    );
    if let Some(number) = attributes.only_to_customer {
        writer.put(kind::ONLY_TO_CUSTOMER, |out| out.put_u32(number));
    }
    writer.unknown_below(u16::from(u8::MAX) + 1);
}

struct Writer<'a, 'b> {
    out: &'a mut BytesMut,
    unknown: std::iter::Peekable<std::slice::Iter<'b, super::UnknownAttribute>>,
}

impl Writer<'_, '_> {
    fn put(&mut self, kind: u8, value: impl FnOnce(&mut BytesMut)) {
        self.unknown_below(u16::from(kind));
        put_attribute(
            rule_of(kind).map_or(0, |rule| rule.flags),
            kind,
            self.out,
            value,
        );
    }

    fn list<T>(&mut self, kind: u8, values: &[T], each: impl Fn(&T, &mut BytesMut)) {
        if !values.is_empty() {
            self.put(kind, |out| values.iter().for_each(|value| each(value, out)));
        }
    }

    fn unknown_below(&mut self, kind: u16) {
        while let Some(attribute) = self.unknown.next_if(|a| u16::from(a.kind) < kind) {
            let flags = OPTIONAL | TRANSITIVE | PARTIAL;
            put_attribute(flags, attribute.kind, self.out, |out| {
                out.put_slice(&attribute.value);
            });
        }
    }
}

/// Writes one attribute; the extended length form only when needed.
pub(super) fn put_attribute(
    flags: u8,
    kind: u8,
    out: &mut BytesMut,
    value: impl FnOnce(&mut BytesMut),
) {
    let start = out.len();
    out.put_slice(&[flags, kind, 0]);
    value(out);
    let length = out.len() - start - 3;
    if let Ok(short) = u8::try_from(length) {
        out[start + 2] = short;
    } else {
        let value = out.split_off(start + 3);
        out.truncate(start);
        out.put_slice(&[flags | EXTENDED_LENGTH, kind]);
        // A message has at most 65535 octets.
        out.put_u16(length as u16);
        out.unsplit(value);
    }
}
