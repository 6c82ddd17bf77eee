//! Maps keyed by prefixes, numbers and addresses. Keys are short, tables are large and peers choose
//! the keys: a folded multiplication with a random seed per process is fast and not predictable.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map with the fast hasher.
pub(crate) type FastMap<K, V> = HashMap<K, V, FastState>;
/// A set with the fast hasher.
pub(crate) type FastSet<K> = HashSet<K, FastState>;

/// Makes hashers that share the seed of the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastState(u64);

impl Default for FastState {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        FastState(*SEED.get_or_init(|| RandomState::new().hash_one(0u8)))
    }
}

impl BuildHasher for FastState {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        FastHasher(self.0)
    }
}

#[derive(Debug)]
pub(crate) struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        const FACTOR: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        let product = u128::from(self.0 ^ word).wrapping_mul(FACTOR);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, octets: &[u8]) {
        let mut chunks = octets.chunks_exact(8);
        for chunk in &mut chunks {
            // A chunk has exactly eight octets.
            self.mix(
                chunk
                    .iter()
                    .fold(0, |word, octet| word << 8 | u64::from(*octet)),
            );
        }
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let word = rest
                .iter()
                .fold(rest.len() as u64, |w, o| w << 8 | u64::from(*o));
            self.mix(word);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.mix(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.mix(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.mix(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
