//! How long to wait before a provider is asked again, and when to give up.

use std::time::Duration;

use super::super::{BrainError, Trouble};

/// How patient to be with a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How often to ask, the first time included.
    pub tries: u32,
    /// The first wait; each further one is twice as long.
    pub first: Duration,
    pub longest: Duration,
    /// A provider that wants a longer wait than this is not waited for.
    pub longest_asked: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            tries: 5,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            longest_asked: Duration::from_secs(120),
        }
    }
}

impl Patience {
    /// The wait after the try of this number, counted from 1; `None` is to give up. `dice` is
    /// between 0 and 1.
    pub(crate) fn wait(&self, tried: u32, error: &BrainError, dice: f64) -> Option<Duration> {
        if tried >= self.tries || !error.worth_trying_again() {
            return None;
        }
        let whole = self
            .first
            .saturating_mul(2_u32.saturating_pow(tried - 1))
            .min(self.longest);
        let ours = whole.mul_f64(0.5 + dice.clamp(0.0, 1.0) / 2.0);
        match error.trouble {
            Trouble::Busy { after: Some(after) } if after > self.longest_asked => None,
            Trouble::Busy { after: Some(after) } => Some(after.max(ours)),
            Trouble::Busy { after: None }
            | Trouble::Lost
            | Trouble::Nonsense
            | Trouble::TooLong
            | Trouble::Refused
            | Trouble::Script => Some(ours),
        }
    }
}

/// What `retry-after-ms` or `retry-after` asks for. A date is not understood: that would need two
/// clocks to agree.
pub(crate) fn asked(header: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let number = |name: &str| header(name)?.trim().parse::<f64>().ok();
    let seconds = match number("retry-after-ms") {
        Some(milliseconds) => milliseconds / 1000.0,
        None => number("retry-after")?,
    };
    Duration::try_from_secs_f64(seconds).ok()
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

    fn busy(after: Option<u64>) -> BrainError {
        let after = after.map(Duration::from_secs);
        BrainError::new(Trouble::Busy { after }, "busy")
    }

    #[test]
    fn waits_double_with_jitter_up_to_a_bound_and_then_it_gives_up() {
        let patience = Patience {
            tries: 8,
            ..Patience::default()
        };
        let waits = |dice: f64| -> Vec<_> {
            (1..=8)
                .map(|tried| {
                    patience
                        .wait(tried, &busy(None), dice)
                        .map(|it| it.as_millis())
                })
                .collect()
        };
        let whole = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].map(Some);
        assert_eq!(waits(1.0), [&whole[..], &[None]].concat());
        let half = [500, 1000, 2000, 4000, 8000, 15_000, 15_000].map(Some);
        assert_eq!(waits(0.0), [&half[..], &[None]].concat());
    }

    #[test]
    fn a_wait_that_is_asked_for_is_kept_unless_it_is_too_long() {
        let patience = Patience::default();
        let wait = |after| patience.wait(1, &busy(Some(after)), 1.0);
        assert_eq!(wait(7), Some(Duration::from_secs(7)));
        assert_eq!(wait(0), Some(Duration::from_secs(1)));
        assert_eq!(wait(120), Some(Duration::from_secs(120)));
        assert_eq!(wait(121), None);
    }

    #[test]
    fn what_will_not_change_is_not_tried_again() {
        for trouble in [Trouble::Refused, Trouble::TooLong, Trouble::Script] {
            let error = BrainError::new(trouble, "no");
            assert_eq!(Patience::default().wait(1, &error, 0.5), None);
        }
    }

    #[test]
    fn headers_ask_in_seconds_or_in_milliseconds() {
        let ask = |name: &'static str, value: &'static str| {
            asked(|header| (header == name).then(|| value.to_owned()))
        };
        assert_eq!(ask("retry-after", "3"), Some(Duration::from_secs(3)));
        assert_eq!(
            ask("retry-after-ms", "250"),
            Some(Duration::from_millis(250))
        );
        assert_eq!(ask("retry-after", "-1"), None);
        assert_eq!(ask("retry-after", "1e400"), None);
        assert_eq!(ask("retry-after", "NaN"), None);
        assert_eq!(ask("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"), None);
    }
}
