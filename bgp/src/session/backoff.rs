//! Waits between dials (RFC 4271 section 8.1.1: DampPeerOscillations and jitter).

use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;

use crate::Timers;

/// Waits after errors double up to a maximum and are forgotten after a quiet time.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    last: Option<(Instant, Duration)>,
}

impl Backoff {
    /// Records an error and returns the wait before the next dial.
    pub(crate) fn error(&mut self, now: Instant, timers: &Timers, random: &mut StdRng) -> Duration {
        let wait = match self.last {
            Some((at, wait)) if now.saturating_duration_since(at) < timers.error_forget => {
                (wait * 2).min(timers.error_wait_max)
            }
            _ => timers.error_wait,
        };
        self.last = Some((now, wait));
        jitter(wait, random)
    }
}

/// 0.75 to 1.0 of a time.
pub(crate) fn jitter(base: Duration, random: &mut StdRng) -> Duration {
    base.mul_f64(random.random_range(0.75..=1.0))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn waits_double_to_a_maximum_and_are_forgotten() {
        let mut random = StdRng::seed_from_u64(1);
        let mut backoff = Backoff::default();
        let timers = Timers::default();
        let start = Instant::now();
        for expected in [5u64, 10, 20, 30, 30] {
            let expected = Duration::from_secs(expected);
            let wait = backoff.error(start, &timers, &mut random);
            assert!(
                wait <= expected && wait >= expected.mul_f64(0.75),
                "{wait:?}"
            );
        }
        let later = start + Duration::from_secs(301);
        assert!(backoff.error(later, &timers, &mut random) <= Duration::from_secs(5));
    }
}
