//! A table as it should be or as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use sha2::{Digest, Sha224};

use super::expr::{Expr, Verdict};

/// Address family of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `ip`.
    Ipv4,
    /// `ip6`.
    Ipv6,
}

impl Family {
    /// `NFPROTO_*`.
    pub fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 2,
            Self::Ipv6 => 10,
        }
    }

    /// As `nft` writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
        }
    }

    /// True for `ip6`.
    pub fn is_ipv6(self) -> bool {
        self == Self::Ipv6
    }
}

/// Flags of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableFlags {
    /// Only the socket that made or adopted the table may change it (Linux 5.12).
    pub owner: bool,
    /// The table stays when its owner's socket closes (Linux 6.9).
    pub persist: bool,
}

impl TableFlags {
    /// Owned, and staying when we stop.
    pub const OWNED: Self = Self {
        owner: true,
        persist: true,
    };
    /// Plain.
    pub const PLAIN: Self = Self {
        owner: false,
        persist: false,
    };

    pub(super) fn bits(self) -> u32 {
        u32::from(self.owner) << 1 | u32::from(self.persist) << 2
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Self {
            owner: bits & 2 != 0,
            persist: bits & 4 != 0,
        }
    }
}

/// Where a base chain hooks in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// `prerouting`.
    Prerouting,
    /// `input`.
    Input,
    /// `forward`.
    Forward,
    /// `output`.
    Output,
    /// `postrouting`.
    Postrouting,
}

impl Hook {
    pub(super) fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }

    pub(super) fn from_number(number: u32) -> Option<Self> {
        [
            Self::Prerouting,
            Self::Input,
            Self::Forward,
            Self::Output,
            Self::Postrouting,
        ]
        .into_iter()
        .find(|h| h.number() == number)
    }
}

/// What makes a chain a base chain. The policy is always accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseChain {
    /// `filter`, `nat` or `route`.
    pub kind: String,
    /// Hook.
    pub hook: Hook,
    /// Priority among the chains of the hook.
    pub priority: i32,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What it does.
    pub exprs: Vec<Expr>,
    /// Shown by `nft`; at most 128 octets. Holds a fingerprint of the rule and the object it comes from.
    pub comment: String,
}

/// Longest comment.
const COMMENT: usize = 128;

impl Rule {
    /// A rule whose comment is `m:<fingerprint> <origin>`. `origin` names the object and field.
    pub fn new(exprs: Vec<Expr>, origin: &str) -> Self {
        let mut digest = Sha224::new();
        for expr in &exprs {
            digest.update(expr.encoded());
        }
        let fingerprint: String = digest
            .finalize()
            .iter()
            .take(8)
            .map(|b| format!("{b:02x}"))
            .collect();
        let mut comment = format!("m:{fingerprint} {origin}");
        while comment.len() > COMMENT {
            comment.pop();
        }
        Self { exprs, comment }
    }
}

/// A chain and its rules in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Set for base chains.
    pub base: Option<BaseChain>,
    /// Rules.
    pub rules: Vec<Rule>,
}

/// Type of a set's key or of a map's value. The number is only for listing programs; the length is what counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyType {
    /// Number that `nft` knows the type by; concatenations have six bits per field.
    pub number: u32,
    /// Length in octets.
    pub length: u32,
}

impl KeyType {
    /// `ipv4_addr`.
    pub const IPV4: Self = Self {
        number: 7,
        length: 4,
    };
    /// `ipv6_addr`.
    pub const IPV6: Self = Self {
        number: 8,
        length: 16,
    };
    /// `inet_service`.
    pub const PORT: Self = Self {
        number: 13,
        length: 2,
    };
    /// `ifname`.
    pub const INTERFACE: Self = Self {
        number: 41,
        length: 16,
    };
    /// `verdict`, as a map's value.
    pub const VERDICT: Self = Self {
        number: 0xffff_ff00,
        length: 0,
    };

    /// The address type of a family.
    pub fn address(family: Family) -> Self {
        if family.is_ipv6() {
            Self::IPV6
        } else {
            Self::IPV4
        }
    }
}

/// What a map yields for a key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Data {
    /// Octets.
    Value(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
}

/// An element of a set or map. Ordered by key, and where ranges touch, the end of the one comes before the begin of the
/// next: the kernel takes the two in this order only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Key, padded fields one after the other for concatenations.
    pub key: Vec<u8>,
    /// In interval sets: the first key that no longer belongs to the range begun before.
    pub range_end: bool,
    /// In maps.
    pub data: Option<Data>,
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let order = |e: &Self| (!e.range_end, e.data.clone());
        self.key
            .cmp(&other.key)
            .then_with(|| order(self).cmp(&order(other)))
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Element {
    /// One address.
    pub fn address(ip: IpAddr) -> Self {
        let key = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        Self {
            key,
            range_end: false,
            data: None,
        }
    }

    /// The two elements (one when the range ends with the address space) that stand for a prefix in an interval set.
    pub fn range(net: &IpNet) -> Vec<Self> {
        let start = Self::address(net.network());
        let next = match net.broadcast() {
            IpAddr::V4(last) => u32::from(last)
                .checked_add(1)
                .map(|n| n.to_be_bytes().to_vec()),
            IpAddr::V6(last) => u128::from(last)
                .checked_add(1)
                .map(|n| n.to_be_bytes().to_vec()),
        };
        let end = next.map(|key| Self {
            key,
            range_end: true,
            data: None,
        });
        std::iter::once(start).chain(end).collect()
    }
}

/// A set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Type of the keys.
    pub key: KeyType,
    /// Type of the values, for maps.
    pub data: Option<KeyType>,
    /// Holds ranges rather than single keys.
    pub interval: bool,
    /// Elements.
    pub elements: BTreeSet<Element>,
}

impl Set {
    /// Address ranges. Prefixes inside others are left out: an interval set refuses overlaps.
    pub fn prefixes(family: Family, nets: impl IntoIterator<Item = IpNet>) -> Self {
        let wanted = |n: &IpNet| n.addr().is_ipv6() == family.is_ipv6();
        let mut nets: Vec<IpNet> = nets.into_iter().filter(wanted).map(|n| n.trunc()).collect();
        nets.sort_unstable_by_key(|n| (n.network(), n.prefix_len()));
        nets.dedup();
        let mut elements = BTreeSet::new();
        let mut last: Option<IpNet> = None;
        for net in nets {
            if last.is_some_and(|l| l.contains(&net)) {
                continue;
            }
            elements.extend(Element::range(&net));
            last = Some(net);
        }
        Self {
            key: KeyType::address(family),
            data: None,
            interval: true,
            elements,
        }
    }

    /// Single addresses.
    pub fn addresses(family: Family, ips: impl IntoIterator<Item = IpAddr>) -> Self {
        let wanted = |ip: &IpAddr| ip.is_ipv6() == family.is_ipv6();
        let elements = ips
            .into_iter()
            .filter(wanted)
            .map(Element::address)
            .collect();
        Self {
            key: KeyType::address(family),
            data: None,
            interval: false,
            elements,
        }
    }

    /// True when the two can hold the same elements, so that one can become the other in place.
    pub(super) fn same_shape(&self, other: &Self) -> bool {
        self.key == other.key && self.data == other.data && self.interval == other.interval
    }
}

/// The content of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Family.
    pub family: Family,
    /// Name.
    pub name: String,
    /// Chains by name.
    pub chains: BTreeMap<String, Chain>,
    /// Sets and maps by name.
    pub sets: BTreeMap<String, Set>,
}

impl Table {
    /// A table without content.
    pub fn new(family: Family, name: &str) -> Self {
        Self {
            family,
            name: name.to_owned(),
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
        }
    }

    /// `ip margay`.
    pub fn title(&self) -> String {
        format!("{} {}", self.family.name(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_inside_others_are_left_out_and_a_range_ends_before_its_neighbour_begins() {
        let nets = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.0.0.0/24",
            "11.0.0.0/8",
            "fd00::/8",
        ];
        let set = Set::prefixes(Family::Ipv4, nets.iter().map(|n| n.parse().unwrap()));
        let shown: Vec<(u8, bool)> = set
            .elements
            .iter()
            .map(|e| (e.key[0], e.range_end))
            .collect();
        assert_eq!(shown, [(10, false), (11, true), (11, false), (12, true)]);
    }

    #[test]
    fn a_range_that_ends_with_the_address_space_has_no_end() {
        assert_eq!(Element::range(&"0.0.0.0/0".parse().unwrap()).len(), 1);
        assert_eq!(Element::range(&"ff00::/8".parse().unwrap()).len(), 1);
        assert_eq!(Element::range(&"254.0.0.0/8".parse().unwrap()).len(), 2);
    }

    #[test]
    fn a_comment_names_the_origin_and_is_never_too_long() {
        let rule = Rule::new(vec![Expr::Counter], &"x".repeat(300));
        assert_eq!(rule.comment.len(), 128);
        assert!(rule.comment.starts_with("m:"));
        assert_ne!(
            Rule::new(vec![Expr::Counter], "o").comment,
            Rule::new(vec![Expr::Verdict(Verdict::Accept)], "o").comment
        );
    }
}
