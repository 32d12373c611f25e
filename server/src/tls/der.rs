//! Reads from a certificate from when until when it is valid.

use pvp_protocol::Timestamp;

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;

/// From when until when a certificate in DER is valid; `None` if it says so in no way that is known
/// here.
pub(super) fn validity(certificate: &[u8]) -> Option<(Timestamp, Timestamp)> {
    let (certificate, _) = expect(SEQUENCE, certificate)?;
    let (mut fields, _) = expect(SEQUENCE, certificate)?;
    if let Some((_, rest)) = expect(EXPLICIT_VERSION, fields) {
        fields = rest;
    }
    // Serial number, signature algorithm and issuer come first.
    for kind in [INTEGER, SEQUENCE, SEQUENCE] {
        (_, fields) = expect(kind, fields)?;
    }
    let (validity, _) = expect(SEQUENCE, fields)?;
    let (from, rest) = time(validity)?;
    let (until, _) = time(rest)?;
    Some((from, until))
}

/// The content of a value of this kind, and what follows it.
fn expect(kind: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = value(bytes)?;
    (found == kind).then_some((content, rest))
}

/// The kind and the content of the first value, and what follows it.
fn value(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [kind, first, rest @ ..] = bytes else {
        return None;
    };
    let (length, rest) = match usize::from(*first) {
        short @ ..0x80 => (short, rest),
        // So many bytes of length follow; four are enough for any certificate.
        long => {
            let (digits, rest) = rest.split_at_checked(long & 0x7f)?;
            let is_usual = (1..=4).contains(&digits.len());
            let add = |length, digit: &u8| (length << 8) | usize::from(*digit);
            (is_usual.then(|| digits.iter().fold(0, add))?, rest)
        }
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*kind, content, rest))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn time(bytes: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (kind, content, rest) = value(bytes)?;
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    let year_digits = match kind {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    if text.len() != year_digits + 10 || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (year, others) = text.split_at(year_digits);
    let year = match (kind, year.parse::<u32>().ok()?) {
        (UTC_TIME, year @ 50..) => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let part = |at: usize| &others[at..at + 2];
    let (month, day, hour, minute, second) = (part(0), part(2), part(4), part(6), part(8));
    let text = format!("{year:04}-{month}-{day}T{hour}:{minute}:{second}.000Z");
    Some((Timestamp::parse(&text).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn certificate(until: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["h".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 2, 29);
        params.not_after = date_time_ymd(until, 12, 31);
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_validity_of_a_certificate_is_read() {
        // From 2050 on, years are written with four digits.
        for year in [2031, 2049, 2050, 2099] {
            let (from, until) = validity(&certificate(year)).unwrap();
            assert_eq!(from.to_string(), "2020-02-29T00:00:00.000Z");
            assert_eq!(until.to_string(), format!("{year}-12-31T00:00:00.000Z"));
        }
    }

    #[test]
    fn damaged_certificates_are_not_read() {
        let good = certificate(2031);
        for length in 0..good.len() {
            // Only what comes before is needed, and the lengths must fit.
            assert_eq!(validity(&good[..length]), None, "{length}");
        }
        for at in 0..200 {
            for byte in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = validity(&bad);
            }
        }
    }
}
