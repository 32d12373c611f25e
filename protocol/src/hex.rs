//! Bytes as hexadecimal digits.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// The bytes as lower-case hexadecimal digits.
pub fn encode(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Reads exactly `N` bytes of hexadecimal digits in either case.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .ok()?
        .try_into()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_anything_else_is_refused() {
        assert_eq!(encode(&[0, 0xaf, 9]), "00af09");
        assert_eq!(decode("00aF09"), Some([0, 0xaf, 9]));
        for bad in [
            "", "00af0", "00af0900", "00af0g", "00 f09", "+0af09", "０0af09",
        ] {
            assert_eq!(decode::<3>(bad), None, "{bad}");
        }
    }
}
