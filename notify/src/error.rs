//! Why something was not delivered, and whether trying again may help.

use std::time::Duration;

use http::StatusCode;

/// Why an attempt to deliver something failed. The text is for the person whose channel it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// The receiver no longer exists, and says so.
    #[error("it no longer exists ({0})")]
    Gone(String),
    /// It would fail again.
    #[error("{0}")]
    Permanent(String),
    /// It may work later.
    #[error("{why}")]
    Transient {
        why: String,
        /// How long the receiver asks to wait.
        retry_after: Option<Duration>,
    },
}

impl DeliveryError {
    pub(crate) fn transient(why: impl Into<String>) -> Self {
        Self::Transient {
            why: why.into(),
            retry_after: None,
        }
    }

    /// The same, with a wait of at most so long.
    pub fn waiting_at_most(self, longest: Duration) -> Self {
        match self {
            Self::Transient { why, retry_after } => Self::Transient {
                why,
                retry_after: retry_after.map(|wait| wait.min(longest)),
            },
            Self::Gone(_) | Self::Permanent(_) => self,
        }
    }

    /// What a status without success means.
    pub(crate) fn from_status(status: StatusCode, retry_after: Option<Duration>) -> Self {
        let why = format!("it answered {}", status.as_u16());
        match status.as_u16() {
            404 | 410 => Self::Gone(why),
            300..400 => Self::Permanent(format!(
                "{why}, a redirect, which is not followed; use the address that it leads to"
            )),
            408 | 425 | 429 | 500..600 => Self::Transient { why, retry_after },
            _ => Self::Permanent(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_to_try_again() {
        let error =
            |status: u16| DeliveryError::from_status(StatusCode::from_u16(status).unwrap(), None);
        for gone in [404, 410] {
            assert!(matches!(error(gone), DeliveryError::Gone(_)), "{gone}");
        }
        for permanent in [300, 301, 302, 307, 308, 400, 401, 403, 405, 413, 422] {
            let error = error(permanent);
            assert!(matches!(error, DeliveryError::Permanent(_)), "{permanent}");
        }
        for transient in [408, 425, 429, 500, 502, 503, 504] {
            let error = error(transient);
            assert!(
                matches!(error, DeliveryError::Transient { .. }),
                "{transient}"
            );
        }
    }
}
