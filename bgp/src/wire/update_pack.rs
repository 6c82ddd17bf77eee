//! UPDATE messages out of prefixes and attributes (RFC 4271 section 4.3, RFC 7606 section 5.1): one
//! kind of content per message, MP attributes first, as many prefixes as fit.

use std::net::IpAddr;

use bytes::{BufMut, Bytes, BytesMut};

use super::attribute_encode::{self, put_attribute};
use super::attribute_rules::{EXTENDED_LENGTH, OPTIONAL, kind};
use super::header::{HEADER_LENGTH, MessageType, put_header};
use super::{Attributes, NextHop, Nlri, mp, nlri};
use crate::{Families, Family};

/// What writing an UPDATE needs to know of its session.
#[derive(Debug, Clone, Copy)]
pub struct PackContext {
    /// The peer reads 4-octet AS numbers.
    pub wide_as: bool,
    /// Families whose prefixes carry path identifiers.
    pub add_path: Families,
    /// Longest message.
    pub max_length: usize,
}

/// Room for the two length fields of an UPDATE.
const LENGTH_FIELDS: usize = 4;

/// Writes announcements of prefixes of one family that share their attributes. Returns false, and
/// writes nothing, when the attributes leave no room for a prefix.
pub fn pack_announcements(
    family: Family,
    attributes: &Attributes,
    prefixes: &[Nlri],
    context: &PackContext,
    out: &mut Vec<Bytes>,
) -> bool {
    let legacy = match (family, attributes.next_hop.address) {
        (Family::Ipv4, IpAddr::V4(address)) => Some(address),
        _ => None,
    };
    let add_path = context.add_path.contains(family);
    let mut block = BytesMut::new();
    attribute_encode::encode(attributes, legacy, context.wide_as, &mut block);
    let head = if legacy.is_some() {
        0
    } else {
        4 + reach_head_length(&attributes.next_hop)
    };
    let fixed = HEADER_LENGTH + LENGTH_FIELDS + block.len() + head;
    let longest = 1 + usize::from(family.max_prefix_len() / 8) + if add_path { 4 } else { 0 };
    if fixed + longest > context.max_length {
        return false;
    }
    for chunk in chunks(prefixes, add_path, context.max_length - fixed) {
        let length: usize = chunk
            .iter()
            .map(|nlri| nlri::encoded_length(nlri, add_path))
            .sum();
        let mut message = BytesMut::with_capacity(fixed + length);
        put_header(
            &mut message,
            MessageType::Update,
            fixed - HEADER_LENGTH + length,
        );
        message.put_u16(0);
        if legacy.is_some() {
            message.put_u16(block.len() as u16);
            message.put_slice(&block);
            chunk
                .iter()
                .for_each(|nlri| nlri::encode(nlri, add_path, &mut message));
        } else {
            message.put_u16((block.len() + head + length) as u16);
            put_long_attribute(kind::MP_REACH, head - 4 + length, &mut message);
            mp::encode_reach_head(family, &attributes.next_hop, &mut message);
            chunk
                .iter()
                .for_each(|nlri| nlri::encode(nlri, add_path, &mut message));
            message.put_slice(&block);
        }
        finish(&mut message);
        out.push(message.freeze());
    }
    true
}

/// Writes withdrawals of prefixes of one family.
pub fn pack_withdrawals(
    family: Family,
    prefixes: &[Nlri],
    context: &PackContext,
    out: &mut Vec<Bytes>,
) {
    let add_path = context.add_path.contains(family);
    let head = if family == Family::Ipv4 { 0 } else { 4 + 3 };
    let fixed = HEADER_LENGTH + LENGTH_FIELDS + head;
    for chunk in chunks(prefixes, add_path, context.max_length - fixed) {
        let length: usize = chunk
            .iter()
            .map(|nlri| nlri::encoded_length(nlri, add_path))
            .sum();
        let mut message = BytesMut::with_capacity(fixed + length);
        put_header(
            &mut message,
            MessageType::Update,
            fixed - HEADER_LENGTH + length,
        );
        if family == Family::Ipv4 {
            message.put_u16(length as u16);
            chunk
                .iter()
                .for_each(|nlri| nlri::encode(nlri, add_path, &mut message));
            message.put_u16(0);
        } else {
            message.put_u16(0);
            message.put_u16((head + length) as u16);
            put_long_attribute(kind::MP_UNREACH, 3 + length, &mut message);
            message.put_u16(family.afi());
            message.put_u8(1);
            chunk
                .iter()
                .for_each(|nlri| nlri::encode(nlri, add_path, &mut message));
        }
        finish(&mut message);
        out.push(message.freeze());
    }
}

/// The End-of-RIB marker of a family (RFC 4724 section 2).
pub fn end_of_rib(family: Family) -> Bytes {
    let mut out = BytesMut::with_capacity(29);
    if family == Family::Ipv4 {
        put_header(&mut out, MessageType::Update, 4);
        out.put_u32(0);
    } else {
        put_header(&mut out, MessageType::Update, 10);
        out.put_u16(0);
        out.put_u16(6);
        put_attribute(OPTIONAL, kind::MP_UNREACH, &mut out, |out| {
            out.put_u16(family.afi());
            out.put_u8(1);
        });
    }
    out.freeze()
}

/// A KEEPALIVE.
pub fn keepalive() -> Bytes {
    let mut out = BytesMut::with_capacity(HEADER_LENGTH);
    put_header(&mut out, MessageType::Keepalive, 0);
    out.freeze()
}

fn reach_head_length(next_hop: &NextHop) -> usize {
    let address = match (next_hop.address, next_hop.link_local) {
        (IpAddr::V4(_), _) => 4,
        (IpAddr::V6(_), Some(_)) => 32,
        (IpAddr::V6(address), None) if address.is_unicast_link_local() => 32,
        (IpAddr::V6(_), None) => 16,
    };
    5 + address
}

/// An MP attribute whose value follows, in the short form when it is short: room for the extended
/// form has been set aside.
fn put_long_attribute(kind: u8, length: usize, out: &mut BytesMut) {
    match u8::try_from(length) {
        Ok(length) => out.put_slice(&[OPTIONAL, kind, length]),
        Err(_) => {
            out.put_slice(&[OPTIONAL | EXTENDED_LENGTH, kind]);
            out.put_u16(length as u16);
        }
    }
}

/// Corrects the lengths of a message whose MP attribute took the short form.
fn finish(message: &mut BytesMut) {
    let actual = message.len();
    let written = usize::from(u16::from_be_bytes([message[16], message[17]]));
    if actual != written {
        message[16..18].copy_from_slice(&(actual as u16).to_be_bytes());
        let attributes = actual - HEADER_LENGTH - LENGTH_FIELDS;
        message[21..23].copy_from_slice(&(attributes as u16).to_be_bytes());
    }
}

/// Splits prefixes so that each part fits `room` octets.
fn chunks(mut prefixes: &[Nlri], add_path: bool, room: usize) -> impl Iterator<Item = &[Nlri]> {
    std::iter::from_fn(move || {
        let mut used = 0;
        let fits = |nlri: &&Nlri| {
            used += nlri::encoded_length(nlri, add_path);
            used <= room
        };
        let count = prefixes.iter().take_while(fits).count();
        if count == 0 {
            return None;
        }
        let (chunk, rest) = prefixes.split_at(count);
        prefixes = rest;
        Some(chunk)
    })
}
