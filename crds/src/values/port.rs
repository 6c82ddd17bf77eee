//! What the int-or-string values of rules mean.

use std::fmt;

use super::IntOrString;

/// A port match of a rule, understood.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortMatch {
    /// Numbers from the first to the second, inclusive, at least 1.
    Range(u16, u16),
    /// Ports of this name, of whatever number an endpoint gives them.
    Named(String),
}

impl PortMatch {
    /// Understands a port: a number 1-65535, `"min:max"`, or a name of 1-128 characters `[a-zA-Z0-9_.-]`. A text of
    /// digits is a number.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub fn parse(value: &IntOrString) -> Result<Self, String> {
        match value {
            IntOrString::Int(number) => number_of(*number).map(|port| PortMatch::Range(port, port)),
            IntOrString::String(text) => PortMatch::parse_text(text),
        }
    }

    fn parse_text(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<i64>()
                .map_err(|_| "is not a port".to_owned())
                .and_then(number_of)
        };
        if let Some((min, max)) = text.split_once(':') {
            let (min, max) = (number(min)?, number(max)?);
            return if min <= max {
                Ok(PortMatch::Range(min, max))
            } else {
                Err("has a first port greater than the last".to_owned())
            };
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return number(text).map(|port| PortMatch::Range(port, port));
        }
        let name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(name) {
            Ok(PortMatch::Named(text.to_owned()))
        } else {
            Err("is neither a port, a range min:max nor a port name of 1-128 characters [a-zA-Z0-9_.-]".to_owned())
        }
    }

    /// True for a number or a range.
    pub fn is_numeric(&self) -> bool {
        matches!(self, PortMatch::Range(..))
    }
}

impl fmt::Display for PortMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortMatch::Range(min, max) if min == max => min.fmt(f),
            PortMatch::Range(min, max) => write!(f, "{min}:{max}"),
            PortMatch::Named(name) => f.write_str(name),
        }
    }
}

fn number_of(number: i64) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(port) if port > 0 => Ok(port),
        _ => Err("is not a port from 1 to 65535".to_owned()),
    }
}

/// Names of IP protocols that rules may use, with their numbers (IANA protocol numbers).
const PROTOCOLS: [(&str, u8); 6] = [
    ("TCP", 6),
    ("UDP", 17),
    ("ICMP", 1),
    ("ICMPv6", 58),
    ("SCTP", 132),
    ("UDPLite", 136),
];

/// Number of a protocol of a rule: a number 1-255, also as text, or one of `TCP UDP ICMP ICMPv6 SCTP UDPLite`, exactly
/// so spelled.
///
/// # Errors
/// What is wrong with the value.
pub fn protocol_number(value: &IntOrString) -> Result<u8, String> {
    let numeric = |number: i64| match u8::try_from(number) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("is not a protocol number from 1 to 255".to_owned()),
    };
    match value {
        IntOrString::Int(number) => numeric(*number),
        IntOrString::String(text) => match (
            PROTOCOLS.iter().find(|(name, _)| name == text),
            text.parse(),
        ) {
            (Some((_, number)), _) => Ok(*number),
            (None, Ok(number)) => numeric(number),
            _ => Err(
                "is neither a protocol number nor one of TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite"
                    .to_owned(),
            ),
        },
    }
}

/// True for protocols that have ports a rule can match: TCP, UDP, SCTP.
pub fn protocol_has_ports(number: u8) -> bool {
    matches!(number, 6 | 17 | 132)
}

/// Value of a DSCP: a number 0-63 or one of `DF EF AF11..AF43 CS0..CS6` (RFC 2474, RFC 2597, RFC 3246).
///
/// # Errors
/// What is wrong with the value.
pub fn dscp_value(value: &IntOrString) -> Result<u8, String> {
    let wrong =
        || "is neither a DSCP from 0 to 63 nor one of DF, EF, AF11-AF43, CS0-CS6".to_owned();
    let numeric = |number: i64| {
        u8::try_from(number)
            .ok()
            .filter(|number| *number < 64)
            .ok_or_else(wrong)
    };
    let text = match value {
        IntOrString::Int(number) => return numeric(*number),
        IntOrString::String(text) => text.as_str(),
    };
    match text.as_bytes() {
        b"DF" => Ok(0),
        b"EF" => Ok(46),
        [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => {
            Ok((class - b'0') * 8 + (drop - b'0') * 2)
        }
        [b'C', b'S', class @ b'0'..=b'6'] => Ok((class - b'0') * 8),
        _ => text.parse().map_err(|_| wrong()).and_then(numeric),
    }
}

/// Reads an AS number in plain or dotted form (RFC 5396): `65001`, `1.10`.
pub fn parse_as_number(text: &str) -> Option<u32> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((high, low)) if digits(high) && digits(low) => {
            let (high, low): (u16, u16) = (high.parse().ok()?, low.parse().ok()?);
            Some(u32::from(high) << 16 | u32::from(low))
        }
        None if digits(text) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_numbers_ranges_or_names() {
        let parse = |text: &str| PortMatch::parse(&text.into());
        assert_eq!(PortMatch::parse(&80.into()), Ok(PortMatch::Range(80, 80)));
        assert_eq!(parse("80"), Ok(PortMatch::Range(80, 80)));
        assert_eq!(parse("1000:2000"), Ok(PortMatch::Range(1000, 2000)));
        assert_eq!(parse("web"), Ok(PortMatch::Named("web".into())));
        for text in ["2000:1000", "0", "65536", "0:1", "", "a b", "1:", "-1"] {
            assert!(
                parse(text).is_err() || text == "-1",
                "{text:?} was accepted"
            );
        }
        assert_eq!(parse("-1"), Ok(PortMatch::Named("-1".into())));
        for number in [0, 65536, -1] {
            assert!(PortMatch::parse(&number.into()).is_err(), "{number}");
        }
        assert_eq!(parse("80").map(|port| port.to_string()), Ok("80".into()));
        assert_eq!(
            parse("80:81").map(|port| port.to_string()),
            Ok("80:81".into())
        );
    }

    #[test]
    fn protocols_are_case_sensitive_names_or_numbers() {
        let cases = [
            ("TCP", Some(6)),
            ("ICMPv6", Some(58)),
            ("17", Some(17)),
            ("tcp", None),
            ("0", None),
            ("256", None),
        ];
        for (text, number) in cases {
            assert_eq!(protocol_number(&text.into()).ok(), number, "{text}");
        }
        assert_eq!(protocol_number(&132.into()), Ok(132));
        assert!(protocol_number(&0.into()).is_err());
    }

    #[test]
    fn dscp_names_are_those_of_the_rfcs() {
        let cases = [
            ("DF", 0),
            ("EF", 46),
            ("AF11", 10),
            ("AF23", 22),
            ("AF43", 38),
            ("CS6", 48),
            ("63", 63),
        ];
        for (text, value) in cases {
            assert_eq!(dscp_value(&text.into()), Ok(value), "{text}");
        }
        for text in ["CS7", "AF14", "AF51", "64", "ef"] {
            assert!(dscp_value(&text.into()).is_err(), "{text}");
        }
    }

    #[test]
    fn dotted_as_numbers_are_two_16_bit_halves() {
        assert_eq!(parse_as_number("1.10"), Some(65546));
        assert_eq!(parse_as_number("65535.65535"), Some(u32::MAX));
        assert_eq!(parse_as_number("4200000000"), Some(4_200_000_000));
        for text in ["65536.1", "1.", ".1", "", "1.2.3", "+1", "4294967296"] {
            assert_eq!(parse_as_number(text), None, "{text:?}");
        }
    }
}
