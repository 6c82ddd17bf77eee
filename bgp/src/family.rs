//! Address families: IPv4 and IPv6 unicast (RFC 4760).

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// An address family with SAFI 1 (unicast), the only SAFI this speaker carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4 unicast, AFI 1.
    Ipv4,
    /// IPv6 unicast, AFI 2.
    Ipv6,
}

impl Family {
    /// Both families in AFI order.
    pub const ALL: [Family; 2] = [Family::Ipv4, Family::Ipv6];

    /// Family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Family::Ipv4
        } else {
            Family::Ipv6
        }
    }

    /// Family of a prefix.
    pub fn of_prefix(prefix: &IpNet) -> Self {
        match prefix {
            IpNet::V4(_) => Family::Ipv4,
            IpNet::V6(_) => Family::Ipv6,
        }
    }

    /// AFI number of the wire.
    pub const fn afi(self) -> u16 {
        match self {
            Family::Ipv4 => 1,
            Family::Ipv6 => 2,
        }
    }

    /// Family of an AFI and SAFI pair; `None` for what this speaker does not carry.
    pub const fn from_wire(afi: u16, safi: u8) -> Option<Self> {
        match (afi, safi) {
            (1, 1) => Some(Family::Ipv4),
            (2, 1) => Some(Family::Ipv6),
            _ => None,
        }
    }

    /// Longest prefix length: 32 or 128.
    pub const fn max_prefix_len(self) -> u8 {
        match self {
            Family::Ipv4 => 32,
            Family::Ipv6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        })
    }
}

/// A set of [`Family`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Families(u8);

impl Families {
    /// The empty set.
    pub const NONE: Families = Families(0);
    /// IPv4 only.
    pub const IPV4: Families = Families(1);
    /// IPv6 only.
    pub const IPV6: Families = Families(2);
    /// Both.
    pub const BOTH: Families = Families(3);

    const fn bit(family: Family) -> u8 {
        match family {
            Family::Ipv4 => 1,
            Family::Ipv6 => 2,
        }
    }

    /// True when the set has the family.
    pub const fn contains(self, family: Family) -> bool {
        self.0 & Self::bit(family) != 0
    }

    /// Adds a family.
    pub fn insert(&mut self, family: Family) {
        self.0 |= Self::bit(family);
    }

    /// Takes a family out.
    pub fn remove(&mut self, family: Family) {
        self.0 &= !Self::bit(family);
    }

    /// Families in both sets.
    pub const fn intersection(self, other: Families) -> Families {
        Families(self.0 & other.0)
    }

    /// True when no family is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The families in AFI order.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL
            .into_iter()
            .filter(move |family| self.contains(*family))
    }
}

impl From<Family> for Families {
    fn from(family: Family) -> Self {
        Families(Self::bit(family))
    }
}

impl FromIterator<Family> for Families {
    fn from_iter<I: IntoIterator<Item = Family>>(families: I) -> Self {
        let mut set = Families::NONE;
        families.into_iter().for_each(|family| set.insert(family));
        set
    }
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_families_keeps_what_was_inserted() {
        let mut set = Families::IPV4;
        set.insert(Family::Ipv6);
        assert_eq!(set, Families::BOTH);
        set.remove(Family::Ipv4);
        assert_eq!(set.iter().collect::<Vec<_>>(), vec![Family::Ipv6]);
        assert!(set.intersection(Families::IPV4).is_empty());
    }
}
