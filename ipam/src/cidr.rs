//! Arithmetic on blocks: ordinals, addresses, the n-th block of a pool.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Address family of a pool, a block or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order in which addresses are assigned.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// Family of an address.
    pub fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// Family of a network.
    pub fn of_net(net: &IpNet) -> Self {
        Family::of(net.network())
    }

    /// Bits of an address: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// `4` or `6`, as in labels and messages.
    pub fn digit(self) -> &'static str {
        match self {
            Family::V4 => "4",
            Family::V6 => "6",
        }
    }
}

/// An address as a number.
pub fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    }
}

/// The address of a family with the given number; high bits that do not fit are cut off.
pub fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::from(
            u32::try_from(number & u128::from(u32::MAX)).unwrap_or(0),
        )),
        Family::V6 => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

/// Number of addresses in a block. Blocks have at most 4096; larger networks count as `usize::MAX`.
pub fn block_len(block: &IpNet) -> usize {
    let bits = u32::from(block.max_prefix_len() - block.prefix_len());
    1usize.checked_shl(bits).unwrap_or(usize::MAX)
}

/// Position of an address in a network, from 0; absent when it lies outside.
pub fn ordinal(net: &IpNet, ip: IpAddr) -> Option<usize> {
    if !net.contains(&ip) {
        return None;
    }
    usize::try_from(number(ip) - number(net.network())).ok()
}

/// The address at a position of a network.
pub fn nth_address(net: &IpNet, ordinal: usize) -> IpAddr {
    address(
        Family::of_net(net),
        number(net.network()).wrapping_add(ordinal as u128),
    )
}

/// The block of the given prefix length an address lies in; absent when the length does not fit the family.
pub fn block_of(ip: IpAddr, prefix_len: u8) -> Option<IpNet> {
    IpNet::new(ip, prefix_len).ok().map(|net| net.trunc())
}

/// The n-th block of a pool.
pub fn nth_block(pool: &IpNet, prefix_len: u8, n: u128) -> Option<IpNet> {
    let family = Family::of_net(pool);
    let shift = u32::from(family.bits().checked_sub(prefix_len)?);
    let offset = n.checked_shl(shift).unwrap_or(0);
    block_of(
        address(family, number(pool.network()).wrapping_add(offset)),
        prefix_len,
    )
}

/// True when two networks share an address.
pub fn overlaps(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    #[test]
    fn ordinals_and_addresses_are_inverse_in_both_families() {
        for block in [
            "10.244.41.192/26",
            "fd00:10:244::40/122",
            "10.9.9.9/32",
            "fd00::7/128",
        ] {
            let block = net(block);
            for n in 0..block_len(&block) {
                assert_eq!(ordinal(&block, nth_address(&block, n)), Some(n));
            }
        }
        assert_eq!(
            ordinal(&net("10.0.0.0/26"), "10.0.0.64".parse().expect("address")),
            None
        );
        assert_eq!(
            ordinal(&net("10.0.0.0/26"), "fd00::1".parse().expect("address")),
            None
        );
    }

    #[test]
    fn the_last_block_of_a_huge_pool_is_reachable() {
        let pool = net("fd00::/16");
        let last = nth_block(&pool, 122, (1u128 << 106) - 1).expect("fits");
        assert_eq!(
            last,
            net("fd00:ffff:ffff:ffff:ffff:ffff:ffff:ffc0/122").trunc()
        );
        assert!(!pool.contains(&nth_block(&net("fd01::/16"), 122, 0).expect("fits")));
    }
}
