//! The address of a BGP peer.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Address of a peer: `192.0.2.1`, `192.0.2.1:1179`, `2001:db8::1`, `[2001:db8::1]:1179`, `fe80::1%eth0`,
/// `[fe80::1%eth0]:1179`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerAddress {
    /// The address.
    pub ip: IpAddr,
    /// The port, when written.
    pub port: Option<u16>,
    /// The interface of a link-local address.
    pub interface: Option<String>,
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = split(text)?;
        let port = match port {
            None => None,
            Some(port) => match port.parse::<u16>() {
                Ok(number) if number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => {
                    Some(number)
                }
                _ => return Err(format!("{port:?} is not a port from 1 to 65535")),
            },
        };
        let (address, interface) = match host.split_once('%') {
            Some((address, interface)) => (address, Some(interface)),
            None => (host, None),
        };
        let ip: IpAddr = address
            .parse()
            .map_err(|_| format!("{address:?} is not an IP address"))?;
        let link_local = matches!(ip, IpAddr::V6(ip) if is_link_local(&ip));
        match interface {
            Some(_) if !link_local => {
                Err("only an IPv6 link-local address takes an interface".to_owned())
            }
            Some("") => Err("the interface after % is empty".to_owned()),
            Some(interface) if interface.len() > 15 => {
                Err("the interface has more than 15 characters".to_owned())
            }
            None if link_local => {
                Err("an IPv6 link-local address needs its interface, as in fe80::1%eth0".to_owned())
            }
            interface => Ok(PeerAddress {
                ip,
                port,
                interface: interface.map(str::to_owned),
            }),
        }
    }
}

fn is_link_local(ip: &Ipv6Addr) -> bool {
    ip.segments()[0] & 0xffc0 == 0xfe80
}

/// Host and port of the text.
fn split(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or("the bracket is not closed")?;
        let port = tail
            .strip_prefix(':')
            .ok_or("brackets are only for an address with a port")?;
        return Ok((host, Some(port)));
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Ok((host, Some(port))),
        _ => Ok((text, None)),
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = self
            .interface
            .as_ref()
            .map(|interface| format!("%{interface}"))
            .unwrap_or_default();
        match (self.ip, self.port) {
            (IpAddr::V6(ip), Some(port)) => write!(f, "[{ip}{scope}]:{port}"),
            (ip, Some(port)) => write!(f, "{ip}:{port}"),
            (ip, None) => write!(f, "{ip}{scope}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_prints_as_it_was_written() {
        for text in [
            "192.0.2.1",
            "192.0.2.1:179",
            "2001:db8::1",
            "[2001:db8::1]:179",
            "fe80::1%eth0",
            "[fe80::1%eth0]:1179",
        ] {
            let address: PeerAddress = text
                .parse()
                .unwrap_or_else(|reason| panic!("{text}: {reason}"));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "host",
            "192.0.2.1:0",
            "192.0.2.1:65536",
            "192.0.2.1:",
            "[2001:db8::1]",
            "[2001:db8::1",
            "192.0.2.1%eth0",
            "fe80::1",
            "fe80::1%",
            "2001:db8::1%eth0",
            "192.0.2.1/32",
            "192.0.2.1:+1",
            "fe80::1%abcdefghijklmnop",
        ] {
            assert!(
                text.parse::<PeerAddress>().is_err(),
                "{text:?} was accepted"
            );
        }
    }
}
