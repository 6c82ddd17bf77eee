//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A 48-bit Ethernet address, written `ee:ee:ee:ee:ee:ee`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MacAddr(pub [u8; 6]);

/// Text that is not six hexadecimal octets joined by colons.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not an Ethernet address: six hexadecimal octets joined by colons are needed")]
pub struct MacError(String);

impl MacAddr {
    /// True for an address an interface can have: not all zero and not a group address (IEEE 802 section 8.2).
    pub fn is_usable(self) -> bool {
        self.0 != [0; 6] && self.0[0] & 1 == 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MacAddr {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let bad = || MacError(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts
                .next()
                .filter(|p| (1..=2).contains(&p.len()))
                .ok_or_else(bad)?;
            if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() {
            Err(bad())
        } else {
            Ok(Self(octets))
        }
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for MacAddr {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, MacError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        let mac: MacAddr = "0a:1B:2c:3d:4e:5f".parse().unwrap();
        assert_eq!(mac.to_string(), "0a:1b:2c:3d:4e:5f");
        for bad in [
            "",
            "0a:1b:2c:3d:4e",
            "0a:1b:2c:3d:4e:5f:60",
            "0a:1b:2c:3d:4e:+5",
            "0a1b2c3d4e5f",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn group_and_zero_addresses_are_not_usable() {
        assert!(!MacAddr([0; 6]).is_usable());
        assert!(!MacAddr([1, 0, 0, 0, 0, 1]).is_usable());
        assert!(MacAddr([0xee; 6]).is_usable());
    }
}
