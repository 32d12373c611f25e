//! How long to wait before connecting again.

use std::time::Duration;

/// The first wait, and the longest.
const INITIAL_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_secs(15);

/// Waits that double, each between half and the whole of its length, so that a crowd that lost
/// the same server does not come back as one.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The next wait. `dice` is between 0 and 1.
    pub(crate) fn next_delay(&mut self, jitter: f64) -> Duration {
        let delay = INITIAL_DELAY
            .saturating_mul(2_u32.saturating_pow(self.attempts))
            .min(MAX_DELAY);
        self.attempts = self.attempts.saturating_add(1);
        delay.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }

    /// It worked: the next loss is the first again.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

/// A number between 0 and 1.
pub(crate) fn random_jitter() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness the waits are merely not spread.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_maximum_and_start_over_after_success() {
        let mut backoff = Backoff::default();
        let longest: Vec<_> = (0..8)
            .map(|_| backoff.next_delay(1.0).as_millis())
            .collect();
        assert_eq!(longest, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        for _ in 0..100 {
            backoff.next_delay(0.0);
        }
        assert_eq!(backoff.next_delay(0.0).as_millis(), 7500);
        backoff.reset();
        assert_eq!(backoff.next_delay(0.0).as_millis(), 125);
    }
}
