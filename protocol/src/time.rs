//! Moments: UTC milliseconds, written as ISO 8601 on the wire.

use std::fmt;

const MS_PER_DAY: u64 = 86_400_000;

/// The last moment that has a four-digit year, 9999-12-31T23:59:59.999Z.
const MAX_MS: u64 = 253_402_300_799_999;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// The text is not an ISO 8601 moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as 2026-01-31T12:00:00.000Z")]
pub struct TimestampError(String);

impl Timestamp {
    /// A moment from milliseconds since the epoch; far futures are held at the year 9999.
    pub fn from_millis(ms: u64) -> Self {
        Self(ms.min(MAX_MS))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// This moment and `ms` milliseconds.
    pub fn plus_millis(self, ms: u64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    /// This moment and `seconds` seconds.
    pub fn plus_seconds(self, seconds: u64) -> Self {
        self.plus_millis(seconds.saturating_mul(1000))
    }

    /// How long after `earlier` this is, in milliseconds; zero if it is not after.
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Reads `2026-01-31T12:00:00Z`, with or without a fraction of a second, `Z` or `±hh:mm`.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        parse_ms(text)
            .map(Self::from_millis)
            .ok_or_else(|| TimestampError(text.chars().take(64).collect()))
    }
}

fn parse_ms(text: &str) -> Option<u64> {
    if !text.is_ascii() {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        let digits = text.get(range)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let mark = |at: usize, c: u8| (*text.as_bytes().get(at)? == c).then_some(());
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    mark(4, b'-')?;
    mark(7, b'-')?;
    (mark(10, b'T').or(mark(10, b't')).or(mark(10, b' ')))?;
    mark(13, b':')?;
    mark(16, b':')?;
    if year < 1970 || !(1..=12).contains(&month) || day == 0 || day > days_in(year, month) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = &text[19..];
    let digits = rest.strip_prefix('.').map_or(0, |fraction| {
        fraction.bytes().take_while(u8::is_ascii_digit).count()
    });
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(_) if digits == 0 => return None,
        Some(after) => after.split_at(digits),
        None => ("", rest),
    };
    let ms = format!("{fraction:0<3}")[..3].parse::<u64>().ok()?;
    let offset_minutes: i64 = match zone {
        "Z" | "z" => 0,
        _ => {
            let at = 19 + rest.len() - zone.len();
            let sign = match zone.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            mark(at + 3, b':')?;
            if zone.len() != 6 {
                return None;
            }
            let minutes = number(at + 1..at + 3)? * 60 + number(at + 4..at + 6)?;
            sign * i64::try_from(minutes).ok()?
        }
    };
    let local = days_before(year, month, day) * MS_PER_DAY
        + hour * 3_600_000
        + minute * 60_000
        + second * 1000
        + ms;
    u64::try_from(i64::try_from(local).ok()? - offset_minutes * 60_000).ok()
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from the epoch to a civil date, counted in 400-year cycles that begin in March.
fn days_before(year: u64, month: u64, day: u64) -> u64 {
    let y = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (y / 400, y % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0 / MS_PER_DAY);
        let ms = self.0 % MS_PER_DAY;
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        let ms = ms % 1000;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z"
        )
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

texts! {
    Timestamp { "type": "string", "format": "date-time" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments_read_and_write() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_794_787_200_123, "2026-11-16T00:00:00.123Z"),
            (MAX_MS, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp::from_millis(ms).to_string(), text);
            assert_eq!(Timestamp::parse(text), Ok(Timestamp::from_millis(ms)));
        }
    }

    #[test]
    fn other_spellings_of_a_moment_are_read() {
        let noon = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
        for text in [
            "2026-01-31T12:00:00.0Z",
            "2026-01-31T14:00:00+02:00",
            "2026-01-31T12:00:00.000000Z",
        ] {
            assert_eq!(Timestamp::parse(text), Ok(noon), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "now",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "1969-12-31T23:59:59Z",
            "２０２６-01-01T00:00:00Z",
            "2026-01-01T00:00:00+0é00",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_survives_the_wire(ms in 0..=MAX_MS) {
            let moment = Timestamp::from_millis(ms);
            prop_assert_eq!(Timestamp::parse(&moment.to_string()), Ok(moment));
        }

        #[test]
        fn reading_never_panics(text in "\\PC{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
