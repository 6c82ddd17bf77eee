//! The `peerIP` notation: `10.0.0.1`, `10.0.0.1:1179`, `[fd00::1]:1179`, `fe80::1%eth0`, `[fe80::1%eth0]:179`.

use std::net::IpAddr;
use std::str::FromStr;

/// A parsed `peerIP`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerAddress {
    /// Address of the peer.
    pub ip: IpAddr,
    /// Interface of a link-local address (RFC 4007 section 11).
    pub interface: Option<String>,
    /// Port, when the text names one.
    pub port: Option<u16>,
}

impl PeerAddress {
    /// True for fe80::/10, which means nothing without an interface.
    pub fn is_link_local(&self) -> bool {
        matches!(self.ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
    }
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = split_port(text)?;
        let (address, interface) = match host.split_once('%') {
            Some((address, zone)) if is_interface_name(zone) => (address, Some(zone.to_owned())),
            Some((_, zone)) => return Err(format!("{zone:?} is not an interface name")),
            None => (host, None),
        };
        let ip: IpAddr = address
            .parse()
            .map_err(|_| format!("{text:?} is not an address or address:port"))?;
        if interface.is_some() && ip.is_ipv4() {
            return Err(format!("{text:?}: an IPv4 address takes no interface"));
        }
        Ok(PeerAddress {
            ip,
            interface,
            port,
        })
    }
}

/// Splits `host` and `port`; a bare IPv6 address has colons of its own and therefore needs brackets to carry a port.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| format!("{text:?} has no closing bracket"))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, port),
            None if rest.is_empty() => return Ok((host, None)),
            None => return Err(format!("{text:?} has text after the bracket")),
        }
    } else if text.matches(':').count() == 1 {
        text.split_once(':').unwrap_or((text, ""))
    } else {
        return Ok((text, None));
    };
    match port.parse::<u16>() {
        Ok(0) | Err(_) => Err(format!("{port:?} is not a port from 1 to 65535")),
        Ok(port) => Ok((host, Some(port))),
    }
}

/// Linux interface names: 1 to 15 octets, no slash, no white space.
fn is_interface_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !name.contains(|c: char| c == '/' || c == '%' || c.is_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_parses() {
        let parse = |text: &str| {
            text.parse::<PeerAddress>()
                .map(|a| (a.ip.to_string(), a.interface, a.port))
        };
        assert_eq!(parse("10.0.0.1"), Ok(("10.0.0.1".into(), None, None)));
        assert_eq!(
            parse("10.0.0.1:166"),
            Ok(("10.0.0.1".into(), None, Some(166)))
        );
        assert_eq!(parse("fd00::1"), Ok(("fd00::1".into(), None, None)));
        assert_eq!(
            parse("[fd00::1]:1179"),
            Ok(("fd00::1".into(), None, Some(1179)))
        );
        assert_eq!(
            parse("fe80::1%eth0"),
            Ok(("fe80::1".into(), Some("eth0".into()), None))
        );
        assert_eq!(
            parse("[fe80::1%eth0]:179"),
            Ok(("fe80::1".into(), Some("eth0".into()), Some(179)))
        );
    }

    #[test]
    fn malformed_text_is_refused_with_the_part_at_fault() {
        for (text, part) in [
            ("", "not an address"),
            ("tor-1", "tor-1"),
            ("10.0.0.1:0", "port"),
            ("10.0.0.1:70000", "70000"),
            ("[fd00::1", "bracket"),
            ("[fd00::1]x", "bracket"),
            ("10.0.0.1%eth0", "IPv4"),
            ("fe80::1%", "interface"),
            ("10.0.0.0/24", "10.0.0.0/24"),
        ] {
            let error = text.parse::<PeerAddress>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
