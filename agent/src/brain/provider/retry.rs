//! Decides how long to wait before a request is retried, and when to give up.

use std::time::Duration;

use pvp_clock::Backoff;

use super::super::{BrainError, BrainErrorKind};

/// When to retry a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// How often to send the request, including the first time.
    pub max_attempts: u32,
    /// How long to wait between attempts, unless the provider asks for more.
    pub backoff: Backoff,
    /// If a provider asks for a longer wait than this, the request is not retried.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            backoff: Backoff {
                initial: Duration::from_secs(1),
                max: Duration::from_secs(30),
            },
            max_retry_after: Duration::from_secs(120),
        }
    }
}

impl RetryPolicy {
    /// The delay before the next attempt after this many failed ones; `None` gives up.
    pub(crate) fn delay_after(&self, attempts: u32, error: &BrainError) -> Option<Duration> {
        if attempts >= self.max_attempts || !error.is_retryable() {
            return None;
        }
        let delay = self.backoff.delay(attempts);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(after: Option<u64>) -> BrainError {
        let after = after.map(Duration::from_secs);
        BrainError::new(BrainErrorKind::Busy { after }, "busy")
    }

    #[test]
    fn delays_double_up_to_a_maximum_until_it_gives_up() {
        let retry_policy = RetryPolicy {
            max_attempts: 8,
            ..RetryPolicy::default()
        };
        let longest = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        for (attempts, longest) in (1..).zip(longest) {
            let delay = retry_policy.delay_after(attempts, &busy(None)).unwrap();
            assert!(
                (longest / 2..=longest).contains(&delay.as_millis()),
                "{delay:?}"
            );
        }
        assert_eq!(retry_policy.delay_after(8, &busy(None)), None);
    }

    #[test]
    fn a_requested_wait_is_honoured_unless_it_is_too_long() {
        let retry_policy = RetryPolicy::default();
        let wait = |after| retry_policy.delay_after(1, &busy(Some(after)));
        assert_eq!(wait(7), Some(Duration::from_secs(7)));
        assert!(wait(0) >= Some(Duration::from_millis(500)));
        assert_eq!(wait(120), Some(Duration::from_secs(120)));
        assert_eq!(wait(121), None);
    }

    #[test]
    fn permanent_errors_are_not_retried() {
        for trouble in [
            BrainErrorKind::Refused,
            BrainErrorKind::ContextTooLong,
            BrainErrorKind::ScriptFailed,
        ] {
            let error = BrainError::new(trouble, "no");
            assert_eq!(RetryPolicy::default().delay_after(1, &error), None);
        }
    }

    #[test]
    fn retry_headers_are_in_seconds_or_milliseconds() {
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
