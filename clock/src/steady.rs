//! A clock that setting the machine's clock does not move.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pvp_protocol::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// The time of day.
pub(crate) fn wall_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::from_millis(millis(since_epoch.unwrap_or_default()))
}

/// The time since the machine was started, asleep or not. Nobody can set it.
pub(crate) fn time_since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The time of day at one moment, and what has passed since.
pub(crate) struct SteadyClock {
    /// The time of day when the machine was started, as far as this clock is concerned, in
    /// milliseconds since the epoch.
    boot_millis: AtomicU64,
}

impl SteadyClock {
    pub(crate) fn new(wall: Timestamp, since_boot: Duration) -> Self {
        let boot = wall.as_millis().saturating_sub(millis(since_boot));
        Self {
            boot_millis: AtomicU64::new(boot),
        }
    }

    pub(crate) fn at(&self, since_boot: Duration) -> Timestamp {
        let boot = self.boot_millis.load(Ordering::Relaxed);
        Timestamp::from_millis(boot.saturating_add(millis(since_boot)))
    }

    /// Moves the clock forward, if it is behind this time.
    pub(crate) fn not_before(&self, time: Timestamp, since_boot: Duration) {
        let boot = time.as_millis().saturating_sub(millis(since_boot));
        self.boot_millis.fetch_max(boot, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn minutes(count: u32) -> Timestamp {
        Timestamp::from_millis(millis(MINUTE * count))
    }

    #[test]
    fn only_what_passes_since_the_machine_was_started_moves_the_clock() {
        // The machine runs for ten minutes, and its clock says that it is minute 1,000.
        let clock = SteadyClock::new(minutes(1000), MINUTE * 10);
        assert_eq!(clock.at(MINUTE * 10), minutes(1000));
        // Its clock may be set to anything meanwhile: nobody looks at it.
        assert_eq!(clock.at(MINUTE * 15), minutes(1005));
    }

    #[test]
    fn the_clock_is_moved_forward_and_never_back() {
        let clock = SteadyClock::new(minutes(1000), MINUTE * 10);
        // The machine's clock was set back while the server was down.
        clock.not_before(minutes(1060), MINUTE * 10);
        assert_eq!(clock.at(MINUTE * 10), minutes(1060));
        assert_eq!(
            clock.at(MINUTE * 11),
            minutes(1061),
            "it does not stand still"
        );
        clock.not_before(minutes(3), MINUTE * 11);
        assert_eq!(clock.at(MINUTE * 11), minutes(1061));
    }

    #[test]
    fn a_machine_without_the_time_of_day_counts_from_the_epoch() {
        let clock = SteadyClock::new(Timestamp::from_millis(0), MINUTE);
        assert_eq!(clock.at(MINUTE * 2), minutes(2));
    }
}
