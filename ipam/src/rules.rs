//! The cluster's settings of address assignment and the node's own.

use std::time::Duration;

use jiff::SignedDuration;
use margay_crds::{IPAMConfiguration, IPAMConfigurationSpec};

/// Blocks a node may own when nobody says otherwise.
pub const DEFAULT_MAX_BLOCKS: usize = 20;

/// The cluster's settings, from the IPAMConfiguration `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Nodes never take addresses from blocks of others.
    pub strict_affinity: bool,
    /// Nodes may claim blocks.
    pub auto_allocate_blocks: bool,
    /// Greatest number of blocks of a node and family; absent means [`DEFAULT_MAX_BLOCKS`] or what a request says.
    pub max_blocks: Option<usize>,
    /// For how long a released address is not assigned again by anybody.
    pub cooldown: SignedDuration,
}

impl Default for Rules {
    /// The settings in force without the object.
    fn default() -> Self {
        Rules::new(None)
    }
}

impl Rules {
    /// The settings of the object, or those in force without it.
    pub fn new(object: Option<&IPAMConfiguration>) -> Self {
        let absent = IPAMConfigurationSpec::default();
        let spec = object.map_or(&absent, |object| &object.spec);
        let seconds = spec.ip_cooldown_seconds.unwrap_or(0).clamp(0, 1200);
        let max = spec.max_blocks_per_host.unwrap_or(0);
        Rules {
            strict_affinity: spec.strict_affinity,
            auto_allocate_blocks: spec.auto_allocate_blocks,
            max_blocks: usize::try_from(max).ok().filter(|max| *max > 0),
            cooldown: SignedDuration::from_secs(i64::from(seconds)),
        }
    }

    /// Greatest number of blocks, for a request with a limit of its own.
    pub fn block_limit(&self, requested: Option<usize>) -> usize {
        match (requested, self.max_blocks) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => DEFAULT_MAX_BLOCKS,
        }
    }

    /// What in the settings contradicts itself, in words.
    pub fn contradictions(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        if !self.strict_affinity && !self.auto_allocate_blocks {
            found.push(
                "IPAMConfiguration default: spec.autoAllocateBlocks: false needs spec.strictAffinity: true",
            );
        }
        if !self.strict_affinity && self.max_blocks.is_some() {
            found.push(
                "IPAMConfiguration default: spec.maxBlocksPerHost above 0 needs spec.strictAffinity: true",
            );
        }
        found
    }
}

/// When IPAMHandle objects are kept for pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Handles {
    /// Not for pods: their blocks say all there is to know. Tunnels and specific addresses always have one.
    #[default]
    Never,
    /// For every address.
    Always,
}

/// Settings of the node agent (annotations `margay.io/ipam-*` of the FelixConfiguration).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Addresses per family kept for quick hand-out, 0 to 32.
    pub reserve: usize,
    /// For how long a released address is not handed out again by this node.
    pub reuse_floor: Duration,
    /// When IPAMHandle objects are kept.
    pub handles: Handles,
    /// Longest time until an assignment that was made from the reserve is written to its block.
    pub flush_interval: Duration,
    /// Without contact to the API server for this long, nothing is handed out any more.
    pub fence: Duration,
    /// A block that has been empty for this long is given back, unless it is the node's only one.
    pub empty_block_age: Duration,
    /// An empty block of another node may be taken over when it was claimed this long ago.
    pub claim_age: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            reserve: 8,
            reuse_floor: Duration::from_secs(30),
            handles: Handles::Never,
            flush_interval: Duration::from_secs(10),
            fence: Duration::from_secs(600),
            empty_block_age: Duration::from_secs(900),
            claim_age: Duration::from_secs(60),
        }
    }
}

impl Settings {
    /// Every assignment and release goes to the API server at once, with handles: what programs expect that know
    /// nothing of reserves.
    pub fn write_through() -> Self {
        Settings {
            reserve: 0,
            reuse_floor: Duration::ZERO,
            handles: Handles::Always,
            ..Settings::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_block_limit_wins_and_twenty_is_the_default() {
        let rules = |max| Rules {
            max_blocks: max,
            ..Rules::default()
        };
        assert_eq!(rules(Some(2)).block_limit(Some(3)), 2);
        assert_eq!(rules(Some(2)).block_limit(None), 2);
        assert_eq!(rules(None).block_limit(Some(3)), 3);
        assert_eq!(rules(None).block_limit(None), 20);
    }

    #[test]
    fn contradictions_are_named_by_field() {
        let spec = IPAMConfigurationSpec {
            auto_allocate_blocks: false,
            max_blocks_per_host: Some(3),
            ..IPAMConfigurationSpec::default()
        };
        let found = Rules::new(Some(&IPAMConfiguration::new("default", spec))).contradictions();
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("autoAllocateBlocks") && found[1].contains("maxBlocksPerHost"));
        assert!(Rules::default().contradictions().is_empty());
    }
}
