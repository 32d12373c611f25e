//! What time it is for the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pvp_protocol::Timestamp;

/// The server's clock, as far as its last welcome tells: deadlines are by that clock, and the clock
/// of this machine may differ.
#[derive(Debug, Clone, Default)]
pub(super) struct ServerClock {
    /// How far the server's clock is ahead, in milliseconds.
    lead: Arc<AtomicI64>,
}

impl ServerClock {
    pub(super) fn set(&self, server_time: Timestamp) {
        self.set_at(server_time, pvp_clock::now());
    }

    fn set_at(&self, server_time: Timestamp, here: Timestamp) {
        let millis = |difference: u64| i64::try_from(difference).unwrap_or(i64::MAX);
        let lead = millis(server_time.millis_since(here)) - millis(here.millis_since(server_time));
        self.lead.store(lead, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.at(pvp_clock::now())
    }

    fn at(&self, here: Timestamp) -> Timestamp {
        let lead = self.lead.load(Ordering::Relaxed);
        match u64::try_from(lead) {
            Ok(ahead) => here.plus_millis(ahead),
            Err(_) => Timestamp::from_millis(here.as_millis().saturating_sub(lead.unsigned_abs())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_the_last_welcome_whatever_the_clock_here_says() {
        let clock = ServerClock::default();
        let at = Timestamp::from_millis;
        assert_eq!(clock.at(at(5000)), at(5000), "before the first welcome");
        for (server, here) in [(9_000_000, 5000), (1000, 5000), (5000, 5000)] {
            clock.set_at(at(server), at(here));
            assert_eq!(clock.at(at(here + 60_000)), at(server + 60_000));
        }
        clock.set_at(at(0), at(5000));
        assert_eq!(clock.at(at(1000)), at(0), "never before the epoch");
    }
}
