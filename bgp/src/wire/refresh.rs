//! ROUTE-REFRESH (RFC 2918, RFC 7313).

use bytes::{BufMut, Bytes, BytesMut};

use super::Notification;
use super::header::{MessageType, put_header};
use super::notification::{code, header_error};
use super::reader::Reader;
use crate::Family;

/// Subtype of a ROUTE-REFRESH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefreshKind {
    /// 0: send everything again.
    Request,
    /// 1: beginning of a refresh.
    Begin,
    /// 2: end of a refresh.
    End,
}

/// A ROUTE-REFRESH of a family this speaker carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteRefresh {
    /// The family.
    pub family: Family,
    /// Subtype.
    pub kind: RefreshKind,
}

impl RouteRefresh {
    /// Reads the body; `None` for an unknown subtype or family, which is ignored.
    ///
    /// # Errors
    /// 7/1 with the whole message for begin and end of a wrong length (RFC 7313 section 5), 1/2 for
    /// a body too short to tell.
    pub fn decode(whole: &Bytes, body: &[u8]) -> Result<Option<Self>, Notification> {
        let short = |_| Notification::new(code::HEADER, header_error::LENGTH);
        let mut reader = Reader::new(body);
        let afi = reader.u16().map_err(short)?;
        let kind = reader.u8().map_err(short)?;
        let safi = reader.u8().map_err(short)?;
        let kind = match kind {
            0 => RefreshKind::Request,
            1 => RefreshKind::Begin,
            2 => RefreshKind::End,
            _ => return Ok(None),
        };
        if kind != RefreshKind::Request && !reader.is_empty() {
            return Err(Notification::with_data(
                code::ROUTE_REFRESH,
                1,
                whole.clone(),
            ));
        }
        Ok(Family::from_wire(afi, safi).map(|family| RouteRefresh { family, kind }))
    }

    /// Writes the whole message.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(23);
        put_header(&mut out, MessageType::RouteRefresh, 4);
        out.put_u16(self.family.afi());
        out.put_u8(match self.kind {
            RefreshKind::Request => 0,
            RefreshKind::Begin => 1,
            RefreshKind::End => 2,
        });
        out.put_u8(1);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::hex;

    #[test]
    fn begin_and_end_of_refresh_have_their_subtypes() {
        let begin = RouteRefresh {
            family: Family::Ipv4,
            kind: RefreshKind::Begin,
        };
        assert_eq!(begin.encode(), hex("M 0017 05 0001 01 01"));
        let end = RouteRefresh {
            family: Family::Ipv4,
            kind: RefreshKind::End,
        };
        assert_eq!(end.encode(), hex("M 0017 05 0001 02 01"));
    }

    #[test]
    fn unknown_subtypes_and_families_are_ignored_and_a_long_begin_is_an_error() {
        let whole = Bytes::from_static(b"whole");
        assert_eq!(RouteRefresh::decode(&whole, &[0, 1, 9, 1]), Ok(None));
        assert_eq!(RouteRefresh::decode(&whole, &[0, 25, 0, 65]), Ok(None));
        let error = RouteRefresh::decode(&whole, &[0, 1, 1, 1, 0]).unwrap_err();
        assert_eq!((error.code, error.subcode, error.data), (7, 1, whole));
    }
}
