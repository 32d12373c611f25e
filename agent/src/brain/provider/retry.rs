//! Decides how long to wait before a request is retried, and when to give up.

use std::time::Duration;

use super::super::{BrainError, BrainErrorKind};

/// When to retry a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often to send the request, including the first time.
    pub max_attempts: u32,
    /// The first delay; each further one is twice as long.
    pub initial_delay: Duration,
    pub max_delay: Duration,
    /// If a provider asks for a longer wait than this, the request is not retried.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            max_retry_after: Duration::from_secs(120),
        }
    }
}

impl RetryPolicy {
    /// The delay after this attempt, counted from 1; `None` to give up. `jitter` is between 0 and
    /// 1.
    pub(crate) fn delay_after(
        &self,
        attempts: u32,
        error: &BrainError,
        jitter: f64,
    ) -> Option<Duration> {
        if attempts >= self.max_attempts || !error.is_retryable() {
            return None;
        }
        let full_delay = self
            .initial_delay
            .saturating_mul(2_u32.saturating_pow(attempts - 1))
            .min(self.max_delay);
        let delay = full_delay.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0);
        match error.kind {
            BrainErrorKind::Busy { after: Some(after) } if after > self.max_retry_after => None,
            BrainErrorKind::Busy { after: Some(after) } => Some(after.max(delay)),
            BrainErrorKind::Busy { after: None }
            | BrainErrorKind::ConnectionLost
            | BrainErrorKind::InvalidResponse
            | BrainErrorKind::ContextTooLong
            | BrainErrorKind::Refused
            | BrainErrorKind::ScriptFailed => Some(delay),
        }
    }
}

/// The delay in `retry-after-ms` or `retry-after`. A date is not supported: that would need two
/// clocks to agree.
pub(crate) fn retry_after(header: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let number = |name: &str| header(name)?.trim().parse::<f64>().ok();
    let seconds = match number("retry-after-ms") {
        Some(milliseconds) => milliseconds / 1000.0,
        None => number("retry-after")?,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// A random number between 0 and 1.
pub(crate) fn random_fraction() -> f64 {
    let mut bytes = [0; 4];
    // Without randomness the delays are only not spread.
    let _ = getrandom::fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(after: Option<u64>) -> BrainError {
        let after = after.map(Duration::from_secs);
        BrainError::new(BrainErrorKind::Busy { after }, "busy")
    }

    #[test]
    fn delays_double_with_jitter_up_to_a_maximum_and_then_it_gives_up() {
        let retry_policy = RetryPolicy {
            max_attempts: 8,
            ..RetryPolicy::default()
        };
        let waits = |dice: f64| -> Vec<_> {
            (1..=8)
                .map(|tried| {
                    retry_policy
                        .delay_after(tried, &busy(None), dice)
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
    fn a_requested_wait_is_kept_unless_it_is_too_long() {
        let retry_policy = RetryPolicy::default();
        let wait = |after| retry_policy.delay_after(1, &busy(Some(after)), 1.0);
        assert_eq!(wait(7), Some(Duration::from_secs(7)));
        assert_eq!(wait(0), Some(Duration::from_secs(1)));
        assert_eq!(wait(120), Some(Duration::from_secs(120)));
        assert_eq!(wait(121), None);
    }

    #[test]
    fn a_permanent_error_is_not_retried() {
        for trouble in [
            BrainErrorKind::Refused,
            BrainErrorKind::ContextTooLong,
            BrainErrorKind::ScriptFailed,
        ] {
            let error = BrainError::new(trouble, "no");
            assert_eq!(RetryPolicy::default().delay_after(1, &error, 0.5), None);
        }
    }

    #[test]
    fn headers_give_the_wait_in_seconds_or_milliseconds() {
        let ask = |name: &'static str, value: &'static str| {
            retry_after(|header| (header == name).then(|| value.to_owned()))
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
