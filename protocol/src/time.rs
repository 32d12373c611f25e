//! Timestamps: UTC milliseconds, written as ISO 8601 on the wire.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::{DateTime, date};
use jiff::fmt::StdFmtWrite;
use jiff::fmt::temporal::{DateTimeParser, DateTimePrinter, PiecesOffset};

/// The last time with a four-digit year, 9999-12-31T23:59:59.999Z.
const MAX_MS: u64 = 253_402_300_799_999;

const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

const PARSER: DateTimeParser = DateTimeParser::new();
const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

/// The text is not an ISO 8601 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as 2026-01-31T12:00:00.000Z")]
pub struct TimestampError(String);

impl Timestamp {
    /// A timestamp from milliseconds since the epoch, capped at the end of the year 9999.
    pub fn from_millis(ms: u64) -> Self {
        Self(ms.min(MAX_MS))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// The time `ms` milliseconds later.
    pub fn plus_millis(self, ms: u64) -> Self {
        Self::from_millis(self.0.saturating_add(ms))
    }

    /// The time `seconds` seconds earlier, but not before the epoch.
    pub fn minus_seconds(self, seconds: u64) -> Self {
        Self(self.0.saturating_sub(seconds.saturating_mul(1000)))
    }

    /// The time `seconds` seconds later.
    pub fn plus_seconds(self, seconds: u64) -> Self {
        self.plus_millis(seconds.saturating_mul(1000))
    }

    /// Milliseconds since `earlier`; zero if this is not later.
    pub fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Parses `2026-01-31T12:00:00Z`, with or without a fraction of a second, `Z` or `±hh:mm`.
    /// Times before 1970 are refused.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        parse_ms(text)
            .map(Self::from_millis)
            .ok_or_else(|| TimestampError(text.chars().take(64).collect()))
    }
}

fn parse_ms(text: &str) -> Option<u64> {
    let text = normalized(text)?;
    let pieces = PARSER.parse_pieces(&text).ok()?;
    let offset = match pieces.offset()? {
        PiecesOffset::Zulu => 0,
        PiecesOffset::Numeric(numeric) => numeric.offset().seconds(),
        _ => return None,
    };
    let local = pieces.date().to_datetime(pieces.time()?);
    let since_epoch = local.duration_since(EPOCH) - SignedDuration::from_secs(offset.into());
    (!since_epoch.is_negative()).then_some(())?;
    u64::try_from(since_epoch.as_millis()).ok()
}

/// The text if it has the form of RFC 3339, with at most nine digits of a fraction. The parser
/// knows many more forms.
fn normalized(text: &str) -> Option<String> {
    let digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let form = |pattern: &str, from: usize| {
        pattern.bytes().enumerate().all(|(at, expected)| {
            let found = text.as_bytes().get(from + at).copied();
            match expected {
                b'0' => digit(from + at),
                b'T' => matches!(found, Some(b'T' | b't' | b' ')),
                b'+' => matches!(found, Some(b'+' | b'-')),
                expected => found == Some(expected),
            }
        })
    };
    if !form("0000-00-00T00:00:00", 0) {
        return None;
    }
    let (seconds, rest) = text.split_at(19);
    let (fraction, offset) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("0", rest),
    };
    let known_offset = matches!(offset, "Z" | "z")
        || offset.len() == 6 && form("+00:00", text.len() - 6) && offset[1..3] <= *"23";
    if fraction.is_empty() || !known_offset {
        return None;
    }
    let fraction = &fraction[..fraction.len().min(9)];
    Some(format!("{seconds}.{fraction}{offset}"))
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = i64::try_from(self.0).map_err(|_| fmt::Error)?;
        let datetime = EPOCH.checked_add(SignedDuration::from_millis(ms));
        PRINTER
            .print_datetime(&datetime.map_err(|_| fmt::Error)?, StdFmtWrite(&mut *f))
            .map_err(|_| fmt::Error)?;
        f.write_str("Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

string_types! {
    Timestamp { "type": "string", "format": "date-time" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_parse_and_print() {
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
    fn other_spellings_of_a_time_are_parsed() {
        let noon = Timestamp::parse("2026-01-31T12:00:00Z").unwrap();
        for text in [
            "2026-01-31T12:00:00.0Z",
            "2026-01-31T14:00:00+02:00",
            "2026-01-31T12:00:00.000000Z",
            "2026-01-31T12:00:00.0000000000000000Z",
            "2026-01-31t12:00:00z",
            "2026-01-31 12:00:00-00:00",
        ] {
            assert_eq!(Timestamp::parse(text), Ok(noon), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_refused() {
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
            "2026-01-01T00:00:00+99:99",
            "2026-01-01T00:00:00-12:60",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00Z[Europe/Berlin",
            "2026-01-01T00:00:00Z[UTC]",
            "20260101T000000Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00Z",
            "2026-01-01T00:00:00,5Z",
            "2026-01-01T00:00:00+02",
            "2026-01-01T00:00:00+0200",
            "2026-01-01T00:00:00+02:00:30",
            "+002026-01-01T00:00:00Z",
            "2026-W01-1T00:00:00Z",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_timestamp_survives_a_round_trip(ms in 0..=MAX_MS) {
            let timestamp = Timestamp::from_millis(ms);
            prop_assert_eq!(Timestamp::parse(&timestamp.to_string()), Ok(timestamp));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
