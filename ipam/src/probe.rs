//! The order in which a node tries the blocks of a pool.
//!
//! Start and stride come from the SHA-256 of the node name. The number of blocks is a power of two and the stride is
//! odd, so each block comes up exactly once; two nodes that meet at one block part again at the next, where a stride
//! of one would make them collide all along.

use ipnet::IpNet;
use sha2::{Digest, Sha256};

use crate::cidr::{Family, nth_block, number};

/// Iterator over all blocks of a pool in the order of one node.
#[derive(Debug, Clone)]
pub struct Probe {
    pool: IpNet,
    block_size: u8,
    mask: u128,
    index: u128,
    stride: u128,
    done: bool,
    tried: u128,
}

impl Probe {
    /// Blocks of prefix length `block_size` in `pool`, in the order of `host`. Pools of single-address blocks start at a
    /// random place, so that one address is not taken again right after its release.
    pub fn new(host: &str, pool: IpNet, block_size: u8) -> Self {
        let digest = Sha256::digest(host.as_bytes());
        let half = |from: usize| {
            digest[from..from + 16]
                .iter()
                .fold(0u128, |value, byte| (value << 8) | u128::from(*byte))
        };
        let single = block_size == Family::of_net(&pool).bits();
        let start = if single { rand::random() } else { half(0) };
        Probe::with(pool, block_size, start, half(16))
    }

    /// How many blocks come before this one, counted from the start.
    pub fn rank(&self, block: &IpNet) -> u128 {
        let shift = u32::from(
            Family::of_net(&self.pool)
                .bits()
                .saturating_sub(self.block_size),
        );
        let offset = number(block.network()).wrapping_sub(number(self.pool.network()));
        let index = offset.checked_shr(shift).unwrap_or(0);
        // The inverse of the odd stride modulo a power of two, by Newton's iteration.
        let inverse = (0..7).fold(self.stride, |x, _| {
            x.wrapping_mul(2u128.wrapping_sub(self.stride.wrapping_mul(x)))
        });
        index.wrapping_sub(self.index).wrapping_mul(inverse) & self.mask
    }

    fn with(pool: IpNet, block_size: u8, start: u128, stride: u128) -> Self {
        let bits = u32::from(block_size.saturating_sub(pool.prefix_len()));
        let mask = 1u128
            .checked_shl(bits)
            .map_or(u128::MAX, |count| count.wrapping_sub(1));
        Probe {
            pool,
            block_size,
            mask,
            index: start & mask,
            stride: (stride & mask) | 1,
            done: block_size < pool.prefix_len(),
            tried: 0,
        }
    }
}

impl Iterator for Probe {
    type Item = IpNet;

    fn next(&mut self) -> Option<IpNet> {
        if self.done {
            return None;
        }
        let block = nth_block(&self.pool, self.block_size, self.index);
        self.index = self.index.wrapping_add(self.stride) & self.mask;
        self.done = self.tried == self.mask;
        self.tried = self.tried.wrapping_add(1);
        block
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn first(host: &str, pool: &str, size: u8, count: usize) -> Vec<String> {
        let pool = pool.parse().expect("a network");
        Probe::new(host, pool, size)
            .take(count)
            .map(|block| block.to_string())
            .collect()
    }

    #[test]
    fn reference_orders() {
        assert_eq!(
            first("worker-1", "10.244.0.0/16", 26, 4),
            [
                "10.244.41.192/26",
                "10.244.232.0/26",
                "10.244.166.64/26",
                "10.244.100.128/26"
            ]
        );
        assert_eq!(
            first("worker-2", "10.244.0.0/16", 26, 2),
            ["10.244.9.0/26", "10.244.248.64/26"]
        );
        assert_eq!(
            first("node-a", "10.244.0.0/16", 26, 2),
            ["10.244.251.192/26", "10.244.218.0/26"]
        );
        assert_eq!(
            first("worker-1", "fd00:10:244::/48", 122, 1),
            ["fd00:10:244:cf50:df0a:9d5a:3f07:29c0/122"]
        );
        assert_eq!(
            first("worker-1", "10.0.0.0/28", 30, 9),
            ["10.0.0.12/30", "10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30"]
        );
        assert_eq!(
            first("worker-2", "10.0.0.0/28", 30, 9),
            ["10.0.0.0/30", "10.0.0.4/30", "10.0.0.8/30", "10.0.0.12/30"]
        );
    }

    #[test]
    fn a_pool_of_two_to_the_106_blocks_is_not_enumerated() {
        assert_eq!(first("worker-1", "fd00::/16", 122, 3).len(), 3);
    }

    #[test]
    fn a_pool_smaller_than_a_block_has_none() {
        assert!(first("worker-1", "10.0.0.0/27", 26, 9).is_empty());
    }

    proptest! {
        #[test]
        fn each_block_comes_up_exactly_once(start: u128, stride: u128, bits in 0u8..9) {
            let pool: IpNet = "10.0.0.0/16".parse().expect("a network");
            let blocks: Vec<IpNet> = Probe::with(pool, 16 + bits, start, stride).collect();
            prop_assert_eq!(blocks.len(), 1 << bits);
            prop_assert_eq!(blocks.iter().collect::<BTreeSet<_>>().len(), 1 << bits);
            prop_assert!(blocks.iter().all(|block| pool.contains(block)));
            let probe = Probe::with(pool, 16 + bits, start, stride);
            for (rank, block) in blocks.iter().enumerate() {
                prop_assert_eq!(probe.rank(block), rank as u128);
            }
        }
    }
}
