//! Hours of the day in which a person is not notified, in their own time zone.

use jiff::Zoned;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use pvp_protocol::Timestamp;
use pvp_protocol::api::QuietHours;

/// Why quiet hours cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuietHoursError {
    #[error("`{0}` is not a time of day; write it as 22:00")]
    Time(String),
    #[error("there is no time zone `{0}`; use a name such as Europe/Berlin or UTC")]
    Zone(String),
    #[error("quiet hours begin and end at different times")]
    Empty,
}

/// Quiet hours that were checked.
#[derive(Debug, Clone, PartialEq)]
pub struct QuietPeriod {
    from: Time,
    to: Time,
    zone: TimeZone,
}

impl QuietPeriod {
    pub fn parse(hours: &QuietHours) -> Result<Self, QuietHoursError> {
        let (from, to) = (parse_time(&hours.from)?, parse_time(&hours.to)?);
        if from == to {
            return Err(QuietHoursError::Empty);
        }
        Ok(Self {
            from,
            to,
            zone: parse_zone(&hours.time_zone)?,
        })
    }

    /// When the quiet hours end that it is now; `None` if it is not quiet.
    pub fn end_of(&self, now: Timestamp) -> Option<Timestamp> {
        let millis = i64::try_from(now.as_millis()).ok()?;
        let instant = jiff::Timestamp::from_millisecond(millis).ok()?;
        let local = instant.to_zoned(self.zone.clone());
        if !self.includes(local.time()) {
            return None;
        }
        let tomorrow = local.tomorrow().ok()?;
        // When summer time begins, the end may be skipped; when it ends, it comes twice.
        let ends = [self.ends_on(&local)?, self.ends_on(&tomorrow)?];
        let end = ends.into_iter().flatten().find(|end| *end > local)?;
        let end = u64::try_from(end.timestamp().as_millisecond()).ok()?;
        Some(Timestamp::from_millis(end))
    }

    fn includes(&self, time: Time) -> bool {
        match self.from < self.to {
            true => self.from <= time && time < self.to,
            false => time >= self.from || time < self.to,
        }
    }

    /// When it is the hour of the end on a day, the first time and the last.
    fn ends_on(&self, day: &Zoned) -> Option<[Zoned; 2]> {
        let end = day.date().to_datetime(self.to);
        let end = self.zone.to_ambiguous_zoned(end);
        Some([end.clone().compatible().ok()?, end.later().ok()?])
    }
}

/// Reads `HH:MM`.
fn parse_time(text: &str) -> Result<Time, QuietHoursError> {
    let wrong = || QuietHoursError::Time(text.chars().take(20).collect());
    let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str| {
        let is_number = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse::<i8>().ok())?
    };
    let (hour, minute) = (
        number(hour).ok_or_else(wrong)?,
        number(minute).ok_or_else(wrong)?,
    );
    Time::new(hour, minute, 0, 0).map_err(|_| wrong())
}

fn parse_zone(name: &str) -> Result<TimeZone, QuietHoursError> {
    let wrong = || QuietHoursError::Zone(name.chars().take(64).collect());
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
    if name.len() > 64 || !name.chars().all(is_name_char) {
        return Err(wrong());
    }
    TimeZone::get(name).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(from: &str, to: &str, zone: &str) -> QuietHours {
        QuietHours {
            from: from.to_owned(),
            to: to.to_owned(),
            time_zone: zone.to_owned(),
        }
    }

    fn end(hours: &QuietHours, now: &str) -> Option<String> {
        let period = QuietPeriod::parse(hours).unwrap();
        let end = period.end_of(Timestamp::parse(now).unwrap());
        end.map(|end| end.to_string().replace(".000Z", "Z"))
    }

    #[test]
    fn quiet_hours_are_those_of_the_persons_time_zone() {
        let berlin = hours("22:00", "07:00", "Europe/Berlin");
        let utc = hours("12:30", "13:15", "UTC");
        let nepal = hours("00:00", "06:00", "Asia/Kathmandu");
        let new_york = hours("23:00", "05:30", "America/New_York");
        for (hours, now, quiet_until) in [
            // Winter: UTC+1.
            (&berlin, "2026-01-10T20:59:59Z", None),
            (
                &berlin,
                "2026-01-10T21:00:00Z",
                Some("2026-01-11T06:00:00Z"),
            ),
            (
                &berlin,
                "2026-01-11T05:59:59Z",
                Some("2026-01-11T06:00:00Z"),
            ),
            (&berlin, "2026-01-11T06:00:00Z", None),
            (&berlin, "2026-01-11T12:00:00Z", None),
            // Summer: UTC+2.
            (
                &berlin,
                "2026-07-10T20:00:00Z",
                Some("2026-07-11T05:00:00Z"),
            ),
            (&berlin, "2026-07-11T05:00:00Z", None),
            // The night in which summer time begins has 8 quiet hours, the one in which it ends 10.
            (
                &berlin,
                "2026-03-28T21:00:00Z",
                Some("2026-03-29T05:00:00Z"),
            ),
            (
                &berlin,
                "2026-10-24T20:00:00Z",
                Some("2026-10-25T06:00:00Z"),
            ),
            (&utc, "2026-01-10T12:29:59Z", None),
            (&utc, "2026-01-10T12:30:00Z", Some("2026-01-10T13:15:00Z")),
            (&utc, "2026-01-10T13:15:00Z", None),
            // UTC+5:45.
            (&nepal, "2026-01-10T18:15:00Z", Some("2026-01-11T00:15:00Z")),
            (&nepal, "2026-01-10T18:14:59Z", None),
            (
                &new_york,
                "2026-12-31T04:00:00Z",
                Some("2026-12-31T10:30:00Z"),
            ),
        ] {
            assert_eq!(end(hours, now).as_deref(), quiet_until, "{hours:?} {now}");
        }
    }

    #[test]
    fn an_end_that_summer_time_skips_comes_an_hour_later() {
        // On 2026-03-29 there is no 02:30 in Berlin.
        let berlin = hours("22:00", "02:30", "Europe/Berlin");
        let quiet_until = end(&berlin, "2026-03-28T23:00:00Z");
        assert_eq!(quiet_until.as_deref(), Some("2026-03-29T01:30:00Z"));
    }

    #[test]
    fn an_end_that_comes_twice_ends_the_hours_each_time() {
        // On 2026-10-25 it is 02:30 in Berlin at 00:30 and at 01:30 UTC.
        let berlin = hours("22:00", "02:30", "Europe/Berlin");
        for (now, quiet_until) in [
            ("2026-10-25T00:15:00Z", Some("2026-10-25T00:30:00Z")),
            ("2026-10-25T00:30:00Z", None),
            ("2026-10-25T01:15:00Z", Some("2026-10-25T01:30:00Z")),
            ("2026-10-25T01:30:00Z", None),
        ] {
            assert_eq!(end(&berlin, now).as_deref(), quiet_until, "{now}");
        }
    }

    #[test]
    fn what_is_no_time_or_zone_is_refused() {
        let time = |text: &str| QuietHoursError::Time(text.to_owned());
        let zone = |text: &str| QuietHoursError::Zone(text.to_owned());
        for (from, to, name, problem) in [
            ("22", "07:00", "UTC", time("22")),
            ("24:00", "07:00", "UTC", time("24:00")),
            ("22:60", "07:00", "UTC", time("22:60")),
            ("2:00", "07:00", "UTC", time("2:00")),
            ("22:00", "+7:00", "UTC", time("+7:00")),
            ("22:00", "7 am", "UTC", time("7 am")),
            ("22:00", "22:00", "UTC", QuietHoursError::Empty),
            ("22:00", "07:00", "", zone("")),
            ("22:00", "07:00", "Mars/Olympus", zone("Mars/Olympus")),
            (
                "22:00",
                "07:00",
                "../../etc/passwd",
                zone("../../etc/passwd"),
            ),
        ] {
            assert_eq!(QuietPeriod::parse(&hours(from, to, name)), Err(problem));
        }
    }
}
