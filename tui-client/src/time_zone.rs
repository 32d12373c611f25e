//! Shows times in the user's time zone; the log is in UTC.

use jiff::tz::TimeZone;
use pvp_protocol::Timestamp;

/// The time zone in which times are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayTimeZone(TimeZone);

impl Default for DisplayTimeZone {
    /// UTC, the same on every machine.
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl DisplayTimeZone {
    /// The user's time zone: `TZ`, else the machine's setting, else UTC.
    pub fn local() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// The time of day as `HH:MM:SS`.
    pub(crate) fn time_of_day(&self, at: Timestamp) -> String {
        let at = i64::try_from(at.as_millis()).ok();
        let at = at.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let at = at.unwrap_or_default().to_zoned(self.0.clone());
        at.strftime("%H:%M:%S").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_follows_the_zone_in_summer_and_winter() {
        let winter = Timestamp::from_millis(1_768_478_400_000);
        let summer = Timestamp::from_millis(1_784_116_800_000);
        assert_eq!(DisplayTimeZone::default().time_of_day(winter), "12:00:00");
        let vienna = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let vienna = DisplayTimeZone(vienna);
        assert_eq!(vienna.time_of_day(winter), "13:00:00");
        assert_eq!(vienna.time_of_day(summer), "14:00:00");
        assert_eq!(
            vienna.time_of_day(Timestamp::from_millis(u64::MAX)),
            "01:00:00"
        );
    }
}
