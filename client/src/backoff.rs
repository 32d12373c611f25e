//! How long to wait before connecting again.

use std::time::Duration;

/// The first wait, and the longest.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);

/// Waits that double, each between half and the whole of its length, so that a crowd that lost
/// the same server does not come back as one.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The next wait. `dice` is between 0 and 1.
    pub(crate) fn next(&mut self, dice: f64) -> Duration {
        let whole = FIRST
            .saturating_mul(2_u32.saturating_pow(self.tries))
            .min(LONGEST);
        self.tries = self.tries.saturating_add(1);
        whole.mul_f64(0.5 + dice.clamp(0.0, 1.0) / 2.0)
    }

    /// It worked: the next loss is the first again.
    pub(crate) fn reset(&mut self) {
        self.tries = 0;
    }
}

/// A number between 0 and 1.
pub(crate) fn dice() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness the waits are merely not spread.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_again_after_success() {
        let mut backoff = Backoff::default();
        let longest: Vec<_> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(longest, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        for _ in 0..100 {
            backoff.next(0.0);
        }
        assert_eq!(backoff.next(0.0).as_millis(), 7500);
        backoff.reset();
        assert_eq!(backoff.next(0.0).as_millis(), 125);
    }
}
