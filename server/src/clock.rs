//! The only module that reads the clock and the random source.

use std::time::{SystemTime, UNIX_EPOCH};

use pvp_protocol::{MessageId, Timestamp};
use pvp_session::Stamped;

/// The current time.
pub fn now() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

/// Bytes from the kernel's secure random source.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel's random source always answers");
    bytes
}

/// A fresh message id.
pub fn fresh_id() -> MessageId {
    MessageId::new_v7(now(), random_bytes())
}

/// Adds the current time and a random seed to an input.
pub(crate) fn stamp<T>(input: T) -> Stamped<T> {
    Stamped {
        at: now(),
        seed: random_bytes(),
        input,
    }
}
