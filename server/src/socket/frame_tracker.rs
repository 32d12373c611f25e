//! Finds where frames end in a stream of bytes.

const TWO_BYTE_LENGTH: u8 = 126;
const EIGHT_BYTE_LENGTH: u8 = 127;
const MAX_HEADER_BYTES: usize = 2 + 8 + 4;

/// Reads frame headers, so that a parser can be given one frame and nothing after it.
/// It validates nothing; the parser does that.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    header: [u8; MAX_HEADER_BYTES],
    header_seen: usize,
    payload_left: u64,
}

impl FrameTracker {
    /// Consumes bytes up to the end of the current part (header or payload) of the current frame,
    /// and returns how many. Never 0 unless the input is empty.
    pub(super) fn consume(&mut self, input: &[u8]) -> usize {
        if self.payload_left > 0 {
            let consumed = self.payload_left.min(input.len() as u64);
            self.payload_left -= consumed;
            return consumed as usize;
        }
        let consumed = input.len().min(self.header_length() - self.header_seen);
        let seen = self.header_seen + consumed;
        self.header[self.header_seen..seen].copy_from_slice(&input[..consumed]);
        self.header_seen = seen;
        if seen >= 2 && seen == self.header_length() {
            self.payload_left = self.payload_length();
            self.header_seen = 0;
        }
        consumed
    }

    /// The length of the header, as far as it is known from the bytes seen so far.
    fn header_length(&self) -> usize {
        if self.header_seen < 2 {
            return 2;
        }
        let mask = if self.header[1] & 0x80 == 0 { 0 } else { 4 };
        match self.header[1] & 0x7f {
            TWO_BYTE_LENGTH => 4 + mask,
            EIGHT_BYTE_LENGTH => 10 + mask,
            _ => 2 + mask,
        }
    }

    fn payload_length(&self) -> u64 {
        let long = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        match self.header[1] & 0x7f {
            TWO_BYTE_LENGTH => long(&self.header[2..4]),
            EIGHT_BYTE_LENGTH => long(&self.header[2..10]),
            short => u64::from(short),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(mut input: &[u8]) -> Vec<usize> {
        let mut tracker = FrameTracker::default();
        let mut parts = Vec::new();
        while !input.is_empty() {
            let consumed = tracker.consume(input);
            input = &input[consumed..];
            parts.push(consumed);
        }
        parts
    }

    #[test]
    fn a_part_never_crosses_into_the_next_frame() {
        let short = [&[0x81, 0x83, 1, 2, 3, 4][..], b"abc"].concat();
        let empty = [0x89, 0x00];
        let medium = [&[0x81, 126, 0, 200][..], &[0; 200]].concat();
        let long = [
            &[0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0, 9, 9, 9, 9][..],
            &[0; 65_536],
        ]
        .concat();
        let stream = [&short[..], &empty, &medium, &long, &short].concat();
        assert_eq!(
            parts(&stream),
            [2, 4, 3, 2, 2, 2, 200, 2, 12, 65_536, 2, 4, 3]
        );
    }
}
