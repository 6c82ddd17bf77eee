//! Addresses of the underlay: one flat network behind the fabric's bridge.
//!
//! | Who | IPv4 | IPv6 |
//! |---|---|---|
//! | fabric (API server) | 10.20.0.1 | fd20::1 |
//! | router `tor1` | 10.20.0.2 | fd20::2 |
//! | node `nI` | 10.20.1.I | fd20::1:I |
//! | a network behind the router, announced by it | 198.51.100.1 | 2001:db8:51::1 |

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Prefix length of the IPv4 underlay.
pub const V4_LEN: u8 = 16;
/// Prefix length of the IPv6 underlay.
pub const V6_LEN: u8 = 64;
/// The IPv4 underlay.
pub const V4_NET: &str = "10.20.0.0/16";
/// The IPv6 underlay.
pub const V6_NET: &str = "fd20::/64";
/// Most nodes a lab can have.
pub const MAX_NODES: usize = 250;
/// Port of the API server on the fabric.
pub const API_PORT: u16 = 6443;
/// AS number of the nodes.
pub const NODE_AS: u32 = 64512;
/// AS number of the router.
pub const TOR_AS: u32 = 65010;

/// Address families of a lab.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Families {
    /// IPv4 only.
    #[default]
    V4,
    /// IPv6 only: neither nodes nor pods have an IPv4 address.
    V6,
    /// Both.
    Dual,
}

impl Families {
    /// Whether IPv4 is on.
    pub fn v4(self) -> bool {
        self != Self::V6
    }

    /// Whether IPv6 is on.
    pub fn v6(self) -> bool {
        self != Self::V4
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
            Self::Dual => "IPv4 and IPv6",
        }
    }

    fn pick(self, v4: Ipv4Addr, v6: Ipv6Addr) -> Vec<IpAddr> {
        let v4 = self.v4().then_some(IpAddr::V4(v4));
        let v6 = self.v6().then_some(IpAddr::V6(v6));
        v4.into_iter().chain(v6).collect()
    }

    /// Addresses of the fabric, where nodes find the API server.
    pub fn fabric(self) -> Vec<IpAddr> {
        self.pick(
            Ipv4Addr::new(10, 20, 0, 1),
            Ipv6Addr::new(0xfd20, 0, 0, 0, 0, 0, 0, 1),
        )
    }

    /// Addresses of the top-of-rack router on the underlay.
    pub fn tor(self) -> Vec<IpAddr> {
        self.pick(
            Ipv4Addr::new(10, 20, 0, 2),
            Ipv6Addr::new(0xfd20, 0, 0, 0, 0, 0, 0, 2),
        )
    }

    /// Addresses of the network behind the router, which it announces.
    pub fn behind_tor(self) -> Vec<IpAddr> {
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 1);
        self.pick(Ipv4Addr::new(198, 51, 100, 1), v6)
    }

    /// Addresses of node number `i`, counted from 1 to [`MAX_NODES`].
    pub fn node(self, i: u8) -> Vec<IpAddr> {
        let v6 = Ipv6Addr::new(0xfd20, 0, 0, 0, 0, 0, 1, u16::from(i));
        self.pick(Ipv4Addr::new(10, 20, 1, i), v6)
    }
}

/// Length of the underlay prefix an address lies in.
pub fn prefix_len(ip: &IpAddr) -> u8 {
    if ip.is_ipv4() { V4_LEN } else { V6_LEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_only_lab_has_no_ipv4_address_anywhere() {
        let all = [
            Families::V6.fabric(),
            Families::V6.tor(),
            Families::V6.node(7),
        ]
        .concat();
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(IpAddr::is_ipv6));
    }

    #[test]
    fn underlay_addresses_lie_in_the_underlay_network() {
        let v4: ipnet::IpNet = V4_NET.parse().unwrap();
        let v6: ipnet::IpNet = V6_NET.parse().unwrap();
        for ip in [
            Families::Dual.node(250),
            Families::Dual.tor(),
            Families::Dual.fabric(),
        ]
        .concat()
        {
            assert!(v4.contains(&ip) || v6.contains(&ip), "{ip}");
        }
        assert_eq!(v4.prefix_len(), V4_LEN);
        assert_eq!(v6.prefix_len(), V6_LEN);
    }
}
