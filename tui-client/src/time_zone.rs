//! Where the clock on the wall is: the log is in universal time, people are not.

use jiff::tz::TimeZone;
use pvp_protocol::Timestamp;

/// In whose time of day things are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisplayTimeZone(TimeZone);

impl Default for DisplayTimeZone {
    /// Universal time, the same on every machine.
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl DisplayTimeZone {
    /// The time of whoever sits here: `TZ`, else what the machine is set to, else universal time.
    pub fn local() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// The time of day.
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
    fn the_time_of_day_is_that_of_the_place_summer_and_winter() {
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
