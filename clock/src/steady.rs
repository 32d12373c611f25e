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

/// How often the two clocks are read at most until they were read at the same time.
const MAX_READINGS: usize = 16;

impl SteadyClock {
    /// A clock that starts with the time of day. A busy machine may stop a program between reading
    /// one clock and the other, which would put this one behind for as long as the program runs.
    pub(crate) fn start(
        wall_time: impl Fn() -> Timestamp,
        since_boot: impl Fn() -> Duration,
    ) -> Self {
        let readings = (0..MAX_READINGS).map(|_| {
            let before = since_boot();
            let wall = wall_time();
            let after = since_boot();
            (after.saturating_sub(before), wall, before)
        });
        let mut best = None;
        for reading in readings {
            let is_better = best.is_none_or(|best: (Duration, _, _)| reading.0 < best.0);
            if is_better {
                best = Some(reading);
            }
            if reading.0 < Duration::from_millis(1) {
                break;
            }
        }
        let (_, wall, since_boot) = best.expect("it is read at least once");
        Self::new(wall, since_boot)
    }

    fn new(wall: Timestamp, since_boot: Duration) -> Self {
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
    fn being_stopped_between_two_readings_does_not_put_the_clock_behind() {
        let moment = std::cell::Cell::new(0_u64);
        let readings = std::cell::Cell::new(0);
        // The program is stopped for a second in each of its first readings.
        let since_boot = || {
            readings.set(readings.get() + 1);
            moment.set(moment.get() + if readings.get() < 6 { 1000 } else { 0 });
            Duration::from_millis(moment.get())
        };
        let wall_time = || Timestamp::from_millis(1_000_000 + moment.get());
        let clock = SteadyClock::start(wall_time, since_boot);
        assert_eq!(clock.at(Duration::ZERO), Timestamp::from_millis(1_000_000));
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
