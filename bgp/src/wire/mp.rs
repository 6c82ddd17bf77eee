//! MP_REACH_NLRI and MP_UNREACH_NLRI (RFC 4760, RFC 2545, RFC 8950).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};

use super::notification::{code, update_error};
use super::reader::{Reader, Short};
use super::{NextHop, Nlri, Notification, UpdateContext, nlri};
use crate::Family;

/// Prefixes of one family and where they lead.
#[derive(Debug)]
pub(super) struct MpReach {
    pub(super) next_hop: NextHop,
    pub(super) prefixes: Vec<Nlri>,
}

fn fault(subcode: u8) -> Notification {
    Notification::new(code::UPDATE, subcode)
}

fn short(_: Short) -> Notification {
    fault(update_error::OPTIONAL)
}

/// Reads MP_REACH_NLRI; `None` for a family the session does not carry.
pub(super) fn decode_reach(
    value: &[u8],
    context: &UpdateContext,
) -> Result<Option<MpReach>, Notification> {
    let mut reader = Reader::new(value);
    let (afi, safi) = (reader.u16().map_err(short)?, reader.u8().map_err(short)?);
    let length = reader.u8().map_err(short)?;
    let next_hop = reader.take(usize::from(length)).map_err(short)?;
    reader.u8().map_err(short)?;
    let Some(family) = Family::from_wire(afi, safi).filter(|f| context.families.contains(*f))
    else {
        return Ok(None);
    };
    let next_hop = decode_next_hop(family, next_hop, context.extended_next_hop)
        .ok_or_else(|| fault(update_error::OPTIONAL))?;
    let mut prefixes = Vec::new();
    nlri::decode(
        reader.rest(),
        family,
        context.add_path.contains(family),
        &mut prefixes,
    )
    .map_err(|_| fault(update_error::NETWORK))?;
    Ok(Some(MpReach { next_hop, prefixes }))
}

/// Reads MP_UNREACH_NLRI; `None` for a family the session does not carry.
pub(super) fn decode_unreach(
    value: &[u8],
    context: &UpdateContext,
) -> Result<Option<(Family, Vec<Nlri>)>, Notification> {
    let mut reader = Reader::new(value);
    let (afi, safi) = (reader.u16().map_err(short)?, reader.u8().map_err(short)?);
    let Some(family) = Family::from_wire(afi, safi).filter(|f| context.families.contains(*f))
    else {
        return Ok(None);
    };
    let mut prefixes = Vec::new();
    nlri::decode(
        reader.rest(),
        family,
        context.add_path.contains(family),
        &mut prefixes,
    )
    .map_err(|_| fault(update_error::NETWORK))?;
    Ok(Some((family, prefixes)))
}

fn decode_next_hop(family: Family, octets: &[u8], extended: bool) -> Option<NextHop> {
    match (family, octets.len()) {
        (Family::Ipv4, 4) => {
            let octets: [u8; 4] = octets.try_into().ok()?;
            Some(NextHop::from(IpAddr::V4(Ipv4Addr::from(octets))))
        }
        (Family::Ipv6, 16 | 32) => decode_ipv6_next_hop(octets),
        (Family::Ipv4, 16 | 32) if extended => decode_ipv6_next_hop(octets),
        _ => None,
    }
}

/// 16 octets: one address. 32: a global and a link-local one; some speakers write the link-local
/// address twice, or nothing and the link-local one, when they have no global address.
fn decode_ipv6_next_hop(octets: &[u8]) -> Option<NextHop> {
    let address = |octets: &[u8]| <[u8; 16]>::try_from(octets).ok().map(Ipv6Addr::from);
    let (first, second) = octets.split_at_checked(16)?;
    let first = address(first)?;
    let next_hop = match address(second) {
        Some(second) if first.is_unspecified() || first.is_unicast_link_local() => {
            let only = if second.is_unicast_link_local() {
                second
            } else {
                first
            };
            NextHop::from(IpAddr::V6(only))
        }
        Some(second) => NextHop {
            address: IpAddr::V6(first),
            link_local: second.is_unicast_link_local().then_some(second),
        },
        None => NextHop::from(IpAddr::V6(first)),
    };
    Some(next_hop)
}

/// Writes the value of MP_REACH_NLRI up to the prefixes.
pub(super) fn encode_reach_head(family: Family, next_hop: &NextHop, out: &mut BytesMut) {
    out.put_u16(family.afi());
    out.put_u8(1);
    match (next_hop.address, next_hop.link_local) {
        (IpAddr::V4(address), _) => {
            out.put_u8(4);
            out.put_slice(&address.octets());
        }
        (IpAddr::V6(address), Some(link_local)) => {
            out.put_u8(32);
            out.put_slice(&address.octets());
            out.put_slice(&link_local.octets());
        }
        (IpAddr::V6(address), None) if address.is_unicast_link_local() => {
            out.put_u8(32);
            out.put_slice(&address.octets());
            out.put_slice(&address.octets());
        }
        (IpAddr::V6(address), None) => {
            out.put_u8(16);
            out.put_slice(&address.octets());
        }
    }
    out.put_u8(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::hex;

    #[test]
    fn link_local_next_hops_read_in_every_vendors_form() {
        let link_local = "fe800000000000000000000000000002";
        let zero = "00000000000000000000000000000000";
        let expected = NextHop::from("fe80::2".parse::<IpAddr>().unwrap());
        for form in [
            link_local.to_owned(),
            format!("{link_local}{link_local}"),
            format!("{zero}{link_local}"),
        ] {
            assert_eq!(decode_ipv6_next_hop(&hex(&form)), Some(expected), "{form}");
        }
    }

    #[test]
    fn an_ipv6_next_hop_for_ipv4_needs_the_capability() {
        let octets = hex("fd990000000000000000000000000002");
        assert!(decode_next_hop(Family::Ipv4, &octets, true).is_some());
        assert!(decode_next_hop(Family::Ipv4, &octets, false).is_none());
        assert!(decode_next_hop(Family::Ipv6, &octets[..5], true).is_none());
    }
}
