//! Message framing (RFC 4271 sections 4.1 and 6.1).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::notification::{code, header_error};
use super::{Notification, Open, RouteRefresh};

/// Octets of the message header.
pub const HEADER_LENGTH: usize = 19;
/// Longest message without RFC 8654.
pub const MAX_LENGTH: usize = 4096;
/// Longest message with RFC 8654; OPEN and KEEPALIVE stay at [`MAX_LENGTH`].
pub const MAX_EXTENDED_LENGTH: usize = 65535;

const MARKER: [u8; 16] = [0xFF; 16];

/// Type octet of the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageType {
    /// 1
    Open = 1,
    /// 2
    Update = 2,
    /// 3
    Notification = 3,
    /// 4
    Keepalive = 4,
    /// 5 (RFC 2918)
    RouteRefresh = 5,
}

impl MessageType {
    fn from_wire(octet: u8) -> Option<Self> {
        Some(match octet {
            1 => MessageType::Open,
            2 => MessageType::Update,
            3 => MessageType::Notification,
            4 => MessageType::Keepalive,
            5 => MessageType::RouteRefresh,
            _ => return None,
        })
    }

    fn length_is_legal(self, length: usize) -> bool {
        match self {
            MessageType::Open => (29..=MAX_LENGTH).contains(&length),
            MessageType::Update => length >= 23,
            MessageType::Notification => length >= 21,
            MessageType::Keepalive => length == 19,
            MessageType::RouteRefresh => length >= 23,
        }
    }
}

/// One message. The body of an UPDATE is read by [`super::Update::decode`], which needs to know the
/// session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// OPEN.
    Open(Open),
    /// Body of an UPDATE.
    Update(Bytes),
    /// NOTIFICATION.
    Notification(Notification),
    /// KEEPALIVE.
    Keepalive,
    /// ROUTE-REFRESH; `None` for a subtype or family this speaker ignores.
    RouteRefresh(Option<RouteRefresh>),
}

/// Takes the next complete message off the front of `buffer`; `None` when more octets are needed.
/// The header is judged as soon as it is there, so a bogus length never stalls a session.
///
/// # Errors
/// The NOTIFICATION to send; the connection cannot be read further.
pub fn next_message(
    buffer: &mut BytesMut,
    max_length: usize,
) -> Result<Option<Message>, Notification> {
    let Some(header) = buffer.first_chunk::<HEADER_LENGTH>() else {
        return Ok(None);
    };
    let (length, kind) = check_header(header, max_length)?;
    if buffer.len() < length {
        buffer.reserve(length - buffer.len());
        return Ok(None);
    }
    let whole = buffer.split_to(length).freeze();
    let mut body = whole.clone();
    body.advance(HEADER_LENGTH);
    decode_body(kind, whole, body).map(Some)
}

fn check_header(
    header: &[u8; HEADER_LENGTH],
    max_length: usize,
) -> Result<(usize, MessageType), Notification> {
    if header[..16] != MARKER {
        return Err(Notification::new(
            code::HEADER,
            header_error::NOT_SYNCHRONISED,
        ));
    }
    let length_octets = [header[16], header[17]];
    let length = usize::from(u16::from_be_bytes(length_octets));
    let bad_length = || {
        let data = Bytes::copy_from_slice(&length_octets);
        Notification::with_data(code::HEADER, header_error::LENGTH, data)
    };
    if !(HEADER_LENGTH..=max_length).contains(&length) {
        return Err(bad_length());
    }
    let Some(kind) = MessageType::from_wire(header[18]) else {
        let data = Bytes::copy_from_slice(&header[18..]);
        return Err(Notification::with_data(
            code::HEADER,
            header_error::TYPE,
            data,
        ));
    };
    if !kind.length_is_legal(length) {
        return Err(bad_length());
    }
    Ok((length, kind))
}

fn decode_body(kind: MessageType, whole: Bytes, body: Bytes) -> Result<Message, Notification> {
    Ok(match kind {
        MessageType::Open => Message::Open(Open::decode(&body)?),
        MessageType::Update => Message::Update(body),
        MessageType::Keepalive => Message::Keepalive,
        MessageType::RouteRefresh => Message::RouteRefresh(RouteRefresh::decode(&whole, &body)?),
        MessageType::Notification => {
            let bad = || Notification::new(code::HEADER, header_error::LENGTH);
            Message::Notification(Notification::decode(&body).ok_or_else(bad)?)
        }
    })
}

/// Writes a header for a body of `body_length` octets, at most 65516.
pub(super) fn put_header(out: &mut BytesMut, kind: MessageType, body_length: usize) {
    out.put_slice(&MARKER);
    out.put_u16((HEADER_LENGTH + body_length) as u16);
    out.put_u8(kind as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(length: u16, kind: u8) -> BytesMut {
        let mut octets = BytesMut::from(&MARKER[..]);
        octets.put_u16(length);
        octets.put_u8(kind);
        octets
    }

    fn error(mut octets: BytesMut) -> (u8, u8, Vec<u8>) {
        let notification = next_message(&mut octets, MAX_LENGTH).expect_err("must fail");
        (
            notification.code,
            notification.subcode,
            notification.data.to_vec(),
        )
    }

    #[test]
    fn header_errors_name_the_octets_at_fault() {
        assert_eq!(error(header(18, 2)), (1, 2, vec![0, 0x12]));
        assert_eq!(error(header(4097, 2)), (1, 2, vec![0x10, 0x01]));
        assert_eq!(error(header(19, 6)), (1, 3, vec![6]));
        assert_eq!(error(header(20, 4)), (1, 2, vec![0, 20]));
        assert_eq!(error(header(22, 2)), (1, 2, vec![0, 22]));
        assert_eq!(error(header(28, 1)), (1, 2, vec![0, 28]));
        assert_eq!(error(header(20, 3)), (1, 2, vec![0, 20]));
        assert_eq!(error(header(22, 5)), (1, 2, vec![0, 22]));
    }

    #[test]
    fn a_marker_not_all_ones_is_not_synchronised() {
        let mut octets = header(19, 4);
        octets[3] = 0;
        assert_eq!(error(octets), (1, 1, vec![]));
    }

    #[test]
    fn a_bogus_length_is_refused_before_the_body_arrives() {
        assert_eq!(error(header(65535, 2)).1, header_error::LENGTH);
    }

    #[test]
    fn an_open_stays_at_4096_octets_with_extended_messages() {
        let mut octets = header(4097, 1);
        assert!(next_message(&mut octets, MAX_EXTENDED_LENGTH).is_err());
        let mut octets = header(4097, 2);
        assert_eq!(next_message(&mut octets, MAX_EXTENDED_LENGTH), Ok(None));
    }

    #[test]
    fn messages_come_out_one_by_one() {
        let mut octets = header(19, 4);
        octets.extend_from_slice(&header(19, 4)[..10]);
        assert_eq!(
            next_message(&mut octets, MAX_LENGTH),
            Ok(Some(Message::Keepalive))
        );
        assert_eq!(next_message(&mut octets, MAX_LENGTH), Ok(None));
        assert_eq!(octets.len(), 10);
    }
}
