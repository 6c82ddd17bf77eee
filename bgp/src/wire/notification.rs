//! NOTIFICATION (RFC 4271 section 4.5) and the names of its codes.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::header::{MessageType, put_header};

/// Error codes.
#[allow(missing_docs)]
pub mod code {
    pub const HEADER: u8 = 1;
    pub const OPEN: u8 = 2;
    pub const UPDATE: u8 = 3;
    pub const HOLD_TIMER: u8 = 4;
    pub const FSM: u8 = 5;
    pub const CEASE: u8 = 6;
    pub const ROUTE_REFRESH: u8 = 7;
    pub const SEND_HOLD_TIMER: u8 = 8;
}

/// Subcodes of a header error.
#[allow(missing_docs)]
pub mod header_error {
    pub const NOT_SYNCHRONISED: u8 = 1;
    pub const LENGTH: u8 = 2;
    pub const TYPE: u8 = 3;
}

/// Subcodes of an OPEN error.
#[allow(missing_docs)]
pub mod open_error {
    pub const UNSPECIFIC: u8 = 0;
    pub const VERSION: u8 = 1;
    pub const PEER_AS: u8 = 2;
    pub const IDENTIFIER: u8 = 3;
    pub const PARAMETER: u8 = 4;
    pub const HOLD_TIME: u8 = 6;
    pub const CAPABILITY: u8 = 7;
}

/// Subcodes of an UPDATE error.
#[allow(missing_docs)]
pub mod update_error {
    pub const ATTRIBUTE_LIST: u8 = 1;
    pub const NEXT_HOP: u8 = 8;
    pub const OPTIONAL: u8 = 9;
    pub const NETWORK: u8 = 10;
}

/// Subcodes of a state machine error (RFC 6608).
#[allow(missing_docs)]
pub mod fsm_error {
    pub const OPEN_SENT: u8 = 1;
    pub const OPEN_CONFIRM: u8 = 2;
    pub const ESTABLISHED: u8 = 3;
}

/// Subcodes of a Cease (RFC 4486, RFC 8538).
#[allow(missing_docs)]
pub mod cease {
    pub const MAX_PREFIXES: u8 = 1;
    pub const SHUTDOWN: u8 = 2;
    pub const DECONFIGURED: u8 = 3;
    pub const RESET: u8 = 4;
    pub const REJECTED: u8 = 5;
    pub const CONFIGURATION: u8 = 6;
    pub const COLLISION: u8 = 7;
    pub const HARD_RESET: u8 = 9;
}

/// A NOTIFICATION message: the last word on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Error code, see [`code`].
    pub code: u8,
    /// Subcode.
    pub subcode: u8,
    /// What was wrong, as the code defines.
    pub data: Bytes,
}

impl Notification {
    /// A NOTIFICATION without data.
    pub fn new(code: u8, subcode: u8) -> Self {
        Notification {
            code,
            subcode,
            data: Bytes::new(),
        }
    }

    /// A NOTIFICATION with data.
    pub fn with_data(code: u8, subcode: u8, data: impl Into<Bytes>) -> Self {
        Notification {
            code,
            subcode,
            data: data.into(),
        }
    }

    /// Administrative shutdown or reset with a text for the other operator (RFC 9003), cut at 255
    /// octets.
    pub fn shutdown(subcode: u8, text: &str) -> Self {
        let mut end = text.len().min(255);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if end == 0 {
            return Notification::new(code::CEASE, subcode);
        }
        let mut data = BytesMut::with_capacity(end + 1);
        data.put_u8(end as u8);
        data.put_slice(&text.as_bytes()[..end]);
        Notification::with_data(code::CEASE, subcode, data.freeze())
    }

    /// Reads the body; `None` when it is shorter than two octets.
    pub fn decode(body: &Bytes) -> Option<Self> {
        match body[..] {
            [code, subcode, ..] => Some(Notification {
                code,
                subcode,
                data: body.slice(2..),
            }),
            _ => None,
        }
    }

    /// Writes the whole message. Data beyond the maximum message length is cut off.
    pub fn encode(&self) -> Bytes {
        let data = &self.data[..self.data.len().min(4096 - 21)];
        let mut out = BytesMut::with_capacity(21 + data.len());
        put_header(&mut out, MessageType::Notification, 2 + data.len());
        out.put_u8(self.code);
        out.put_u8(self.subcode);
        out.put_slice(data);
        out.freeze()
    }

    /// The operator's text of a shutdown or reset (RFC 9003), control characters removed.
    pub fn shutdown_text(&self) -> Option<String> {
        if self.code != code::CEASE || !matches!(self.subcode, cease::SHUTDOWN | cease::RESET) {
            return None;
        }
        let (length, text) = self.data.split_first()?;
        let text = text.get(..usize::from(*length))?;
        let text: String = String::from_utf8_lossy(text)
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        (!text.is_empty()).then_some(text)
    }

    fn words(&self) -> (&'static str, &'static str) {
        let main = match self.code {
            code::HEADER => "message header error",
            code::OPEN => "OPEN error",
            code::UPDATE => "UPDATE error",
            code::HOLD_TIMER => "hold timer expired",
            code::FSM => "state machine error",
            code::CEASE => "Cease",
            code::ROUTE_REFRESH => "ROUTE-REFRESH error",
            code::SEND_HOLD_TIMER => "send hold timer expired",
            _ => "unknown error",
        };
        let sub = match (self.code, self.subcode) {
            (code::HEADER, 1) => "connection not synchronised",
            (code::HEADER, 2) => "bad message length",
            (code::HEADER, 3) => "bad message type",
            (code::OPEN, 1) => "unsupported version",
            (code::OPEN, 2) => "bad peer AS",
            (code::OPEN, 3) => "bad BGP identifier",
            (code::OPEN, 4) => "unsupported optional parameter",
            (code::OPEN, 6) => "unacceptable hold time",
            (code::OPEN, 7) => "unsupported capability",
            (code::OPEN, 11) => "role mismatch",
            (code::UPDATE, 1) => "malformed attribute list",
            (code::UPDATE, 2) => "unrecognised well-known attribute",
            (code::UPDATE, 3) => "missing well-known attribute",
            (code::UPDATE, 4) => "attribute flags",
            (code::UPDATE, 5) => "attribute length",
            (code::UPDATE, 6) => "invalid ORIGIN",
            (code::UPDATE, 8) => "invalid NEXT_HOP",
            (code::UPDATE, 9) => "optional attribute",
            (code::UPDATE, 10) => "invalid network field",
            (code::UPDATE, 11) => "malformed AS_PATH",
            (code::FSM, 1) => "unexpected message in OpenSent",
            (code::FSM, 2) => "unexpected message in OpenConfirm",
            (code::FSM, 3) => "unexpected message in Established",
            (code::CEASE, 1) => "maximum number of prefixes reached",
            (code::CEASE, 2) => "administrative shutdown",
            (code::CEASE, 3) => "peer de-configured",
            (code::CEASE, 4) => "administrative reset",
            (code::CEASE, 5) => "connection rejected",
            (code::CEASE, 6) => "other configuration change",
            (code::CEASE, 7) => "connection collision resolution",
            (code::CEASE, 8) => "out of resources",
            (code::CEASE, 9) => "hard reset",
            (code::CEASE, 10) => "BFD down",
            _ => "",
        };
        (main, sub)
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (main, sub) = self.words();
        f.write_str(main)?;
        if !sub.is_empty() {
            write!(f, ": {sub}")?;
        }
        write!(f, " ({}/{})", self.code, self.subcode)?;
        match self.shutdown_text() {
            Some(text) => write!(f, " \"{text}\""),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shutdown_carries_its_text() {
        let message = Notification::shutdown(cease::SHUTDOWN, "maintenance");
        let octets = message.encode();
        assert_eq!(octets[16..], *b"\x00\x21\x03\x06\x02\x0bmaintenance");
        assert_eq!(
            message.to_string(),
            "Cease: administrative shutdown (6/2) \"maintenance\""
        );
    }

    #[test]
    fn a_shutdown_text_longer_than_its_data_is_ignored_and_control_characters_are_dropped() {
        let malformed = Notification::with_data(code::CEASE, cease::SHUTDOWN, &b"\x20abc"[..]);
        assert_eq!(malformed.shutdown_text(), None);
        let control = Notification::with_data(code::CEASE, cease::RESET, &b"\x04a\x1b\nb"[..]);
        assert_eq!(control.shutdown_text().as_deref(), Some("ab"));
    }

    #[test]
    fn a_long_shutdown_text_is_cut_between_characters() {
        let message = Notification::shutdown(cease::SHUTDOWN, &"é".repeat(200));
        assert_eq!(message.data[0], 254);
        assert_eq!(
            message.shutdown_text().map(|text| text.chars().count()),
            Some(127)
        );
    }
}
