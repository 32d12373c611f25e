//! The only code that reads the system clock and the random source.
//!
//! The pure crates take the time, ids and seeds as input; whoever calls them gets those here.

mod steady;

use std::sync::LazyLock;
use std::time::Duration;

use pvp_protocol::{MessageId, Timestamp};

use steady::SteadyClock;

static CLOCK: LazyLock<SteadyClock> =
    LazyLock::new(|| SteadyClock::start(steady::wall_time, steady::time_since_boot));

/// The current time: the time of day when this was first asked for, and what has passed since. It
/// never goes backwards, and setting the machine's clock does not move it, so that a deadline is
/// neither extended nor missed by that.
pub fn now() -> Timestamp {
    CLOCK.at(steady::time_since_boot())
}

/// Moves the clock forward, if it is behind this time. For a server whose machine had its clock set
/// back while it was down: what it wrote last is the earliest that it can be now.
pub fn not_before(time: Timestamp) {
    CLOCK.not_before(time, steady::time_since_boot());
}

/// By how much the machine's clock now differs from [`now`], in milliseconds: it was set, or
/// [`not_before`] moved this one.
pub fn difference_from_wall() -> i64 {
    let (wall, now) = (steady::wall_time(), now());
    let millis = |difference: u64| i64::try_from(difference).unwrap_or(i64::MAX);
    millis(wall.millis_since(now)) - millis(now.millis_since(wall))
}

/// Unpredictable bytes from the kernel.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    try_random_bytes().expect("the kernel's random source always answers")
}

/// The same for callers that can go on without, or can say what is wrong.
pub fn try_random_bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// A new message id (UUIDv7).
pub fn fresh_id() -> MessageId {
    MessageId::new_v7(now(), random_bytes())
}

/// Exponential backoff: each delay is twice the one before, up to a maximum, and shortened by a
/// random part of up to one half, so that clients that lost the same server do not return at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub initial: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Backoff {
    /// The delay after this many failures in a row, counted from 1, with fresh jitter.
    pub fn delay(&self, failures: u32) -> Duration {
        // Without randomness the delays are merely not spread.
        let jitter = u32::from_le_bytes(try_random_bytes().unwrap_or([u8::MAX; 4]));
        self.delay_with_jitter(failures, f64::from(jitter) / f64::from(u32::MAX))
    }

    /// The same with a given jitter between 0 (half the delay) and 1 (all of it).
    pub fn delay_with_jitter(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1);
        self.initial
            .saturating_mul(2_u32.saturating_pow(doublings))
            .min(self.max)
            .mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// The failures in a row of one thing that is tried again and again.
#[derive(Debug)]
pub struct BackoffState {
    backoff: Backoff,
    failures: u32,
}

impl BackoffState {
    pub fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            failures: 0,
        }
    }

    /// Counts a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        self.backoff.delay(self.failures)
    }

    /// It worked, so the next failure is the first again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff {
        initial: Duration::from_millis(250),
        max: Duration::from_secs(15),
    };

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays =
            |jitter| (1..=8).map(move |n| BACKOFF.delay_with_jitter(n, jitter).as_millis());
        let longest: Vec<_> = delays(1.0).collect();
        assert_eq!(longest, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        let shortest: Vec<_> = delays(0.0).collect();
        assert_eq!(shortest, [125, 250, 500, 1000, 2000, 4000, 7500, 7500]);
        assert_eq!(BACKOFF.delay_with_jitter(u32::MAX, 1.0), BACKOFF.max);
    }

    #[test]
    fn jitter_keeps_a_delay_between_half_and_all_of_it() {
        let delays: Vec<_> = (0..1000).map(|_| BACKOFF.delay(1)).collect();
        let range = Duration::from_millis(125)..=Duration::from_millis(250);
        assert!(delays.iter().all(|delay| range.contains(delay)));
        assert!(delays.iter().any(|delay| *delay != delays[0]));
    }

    #[test]
    fn delays_start_over_after_a_success() {
        let mut state = BackoffState::new(BACKOFF);
        for _ in 0..100 {
            state.next_delay();
        }
        assert!(state.next_delay() >= BACKOFF.max / 2);
        state.reset();
        assert!(state.next_delay() <= BACKOFF.initial);
    }

    #[test]
    fn ids_sort_by_time_and_never_repeat() {
        let first = fresh_id();
        let later: Vec<_> = (0..100).map(|_| fresh_id()).collect();
        assert!(!later.contains(&first));
        assert!(first.as_str()[..8] <= later[0].as_str()[..8]);
    }
}
