//! Damping of fights: when another program keeps undoing a repair, repairing at once only feeds the fight.

use crate::map::HashMap;
use std::collections::VecDeque;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// This many repairs within [`SHORT`] start damping.
const SHORT_LIMIT: usize = 5;
const SHORT: Duration = Duration::from_secs(10);
/// This many repairs within [`LONG`] start damping.
const LONG_LIMIT: usize = 10;
const LONG: Duration = Duration::from_secs(60);
/// Interval of repairs while damped.
const PACE: Duration = Duration::from_secs(5);
/// Damping ends after this long without a foreign change.
const QUIET: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct History {
    changes: VecDeque<Instant>,
    damped: bool,
    last_repair: Option<Instant>,
}

/// Remembers how often each key had to be repaired.
#[derive(Debug)]
pub struct Damping<K> {
    keys: HashMap<K, History>,
}

impl<K> Default for Damping<K> {
    fn default() -> Self {
        Self {
            keys: HashMap::default(),
        }
    }
}

impl<K: Hash + Eq + Clone> Damping<K> {
    /// A foreign change of `key` was noticed at `now`: when may it be repaired?
    pub fn changed(&mut self, key: &K, now: Instant) -> Instant {
        let history = self.keys.entry(key.clone()).or_default();
        if history
            .changes
            .back()
            .is_some_and(|last| now.duration_since(*last) >= QUIET)
        {
            *history = History::default();
        }
        history.changes.push_back(now);
        while history
            .changes
            .front()
            .is_some_and(|t| now.duration_since(*t) > LONG)
        {
            history.changes.pop_front();
        }
        let recent = history
            .changes
            .iter()
            .filter(|t| now.duration_since(**t) <= SHORT)
            .count();
        history.damped |= recent > SHORT_LIMIT || history.changes.len() > LONG_LIMIT;
        if !history.damped {
            history.last_repair = Some(now);
            return now;
        }
        // While damped the pending repair keeps its time however often the item changes in between.
        let due = match history.last_repair {
            Some(last) if last > now => last,
            Some(last) => (last + PACE).max(now),
            None => now,
        };
        history.last_repair = Some(due);
        due
    }

    /// Number of keys that somebody else keeps changing, forgetting the quiet ones.
    pub fn contended(&mut self, now: Instant) -> usize {
        self.keys.retain(|_, history| {
            history
                .changes
                .back()
                .is_some_and(|last| now.duration_since(*last) < QUIET)
        });
        self.keys.values().filter(|h| h.damped).count()
    }

    /// Keys that somebody else keeps changing.
    pub fn contended_keys(&self) -> impl Iterator<Item = &K> {
        self.keys.iter().filter(|(_, h)| h.damped).map(|(k, _)| k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_repairs_are_immediate_then_one_every_five_seconds_until_a_quiet_minute() {
        let mut damping = Damping::default();
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        for i in 0..5 {
            assert_eq!(damping.changed(&"k", at(i * 100)), at(i * 100));
        }
        assert_eq!(damping.changed(&"k", at(500)), at(5_400));
        assert_eq!(
            damping.changed(&"k", at(600)),
            at(5_400),
            "the pending repair keeps its time"
        );
        assert_eq!(damping.changed(&"k", at(5_500)), at(10_400));
        assert_eq!(damping.contended(at(5_500)), 1);
        assert_eq!(
            damping.changed(&"other", at(5_500)),
            at(5_500),
            "other keys are not held up"
        );
        let later = at(5_500) + QUIET;
        assert_eq!(damping.contended(later), 0);
        assert_eq!(damping.changed(&"k", later), later);
    }

    #[test]
    fn eleven_changes_within_a_minute_are_damped_even_when_spread_out() {
        let mut damping = Damping::default();
        let start = Instant::now();
        let at = |s: u64| start + Duration::from_secs(s);
        for i in 0..10 {
            assert_eq!(damping.changed(&1, at(i * 3)), at(i * 3));
        }
        assert_eq!(damping.changed(&1, at(30)), at(32));
    }
}
