//! Compresses a text once, as RFC 1951 and RFC 1952 describe it, with the fixed codes.

/// How far back a repetition may lie.
const WINDOW: usize = 32 * 1024;

/// The shortest and the longest repetition.
const MIN_MATCH: usize = 3;
const MAX_MATCH: usize = 258;

/// Earlier places that are compared before the best of them is taken.
const MAX_CANDIDATES: usize = 32;

const HASH_BITS: u32 = 15;

/// For each length code from 257 on: the shortest length, and how many extra bits follow.
const LENGTHS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// For each distance code: the shortest distance, and how many extra bits follow.
const DISTANCES: [(usize, u32); 30] = [
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 1),
    (7, 1),
    (9, 2),
    (13, 2),
    (17, 3),
    (25, 3),
    (33, 4),
    (49, 4),
    (65, 5),
    (97, 5),
    (129, 6),
    (193, 6),
    (257, 7),
    (385, 7),
    (513, 8),
    (769, 8),
    (1025, 9),
    (1537, 9),
    (2049, 10),
    (3073, 10),
    (4097, 11),
    (6145, 11),
    (8193, 12),
    (12289, 12),
    (16385, 13),
    (24577, 13),
];

/// The text as a gzip file.
pub(super) fn compress(text: &[u8]) -> Vec<u8> {
    // Deflate, no name, no time, an unknown system.
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut bits = BitWriter::default();
    // The only block, with the fixed codes.
    bits.push(1, 1);
    bits.push(1, 2);
    let mut earlier = EarlierPlaces::new(text.len());
    let mut at = 0;
    while at < text.len() {
        let found = earlier.longest_match(text, at);
        match found {
            Some((length, distance)) => bits.push_match(length, distance),
            None => bits.push_symbol(usize::from(text[at])),
        }
        let next = at + found.map_or(1, |(length, _)| length);
        (at..next).for_each(|place| earlier.insert(text, place));
        at = next;
    }
    bits.push_symbol(256);
    file.extend(bits.finish());
    file.extend(checksum(text).to_le_bytes());
    // The format wants it modulo 2^32.
    file.extend((text.len() as u32).to_le_bytes());
    file
}

/// Where the same three bytes came before.
struct EarlierPlaces {
    /// The last place of each hash.
    last: Vec<Option<usize>>,
    /// For each place, the one of the same hash before it.
    before: Vec<Option<usize>>,
}

impl EarlierPlaces {
    fn new(length: usize) -> Self {
        Self {
            last: vec![None; 1 << HASH_BITS],
            before: vec![None; length],
        }
    }

    fn hash(text: &[u8], at: usize) -> Option<usize> {
        let [a, b, c] = *text.get(at..at + MIN_MATCH)? else {
            return None;
        };
        let word = u32::from_le_bytes([a, b, c, 0]);
        usize::try_from(word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)).ok()
    }

    fn insert(&mut self, text: &[u8], at: usize) {
        if let Some(hash) = Self::hash(text, at) {
            self.before[at] = self.last[hash].replace(at);
        }
    }

    /// The longest repetition that begins here: its length and how far back it lies.
    fn longest_match(&self, text: &[u8], at: usize) -> Option<(usize, usize)> {
        let longest = MAX_MATCH.min(text.len() - at);
        let mut best: Option<(usize, usize)> = None;
        let mut candidate = Self::hash(text, at).and_then(|hash| self.last[hash]);
        for _ in 0..MAX_CANDIDATES {
            let Some(place) = candidate.filter(|place| at - place <= WINDOW) else {
                break;
            };
            let same = |length: &usize| text[place + length] == text[at + length];
            let length = (0..longest).take_while(same).count();
            if length >= MIN_MATCH && best.is_none_or(|(best, _)| length > best) {
                best = Some((length, at - place));
            }
            candidate = self.before[place];
        }
        best
    }
}

/// Writes bits, the lowest of each byte first.
#[derive(Default)]
struct BitWriter {
    bytes: Vec<u8>,
    pending: u64,
    count: u32,
}

impl BitWriter {
    fn push(&mut self, value: usize, bits: u32) {
        self.pending |= (value as u64) << self.count;
        self.count += bits;
        while self.count >= 8 {
            self.push_byte();
        }
    }

    fn push_byte(&mut self) {
        self.bytes.push(self.pending.to_le_bytes()[0]);
        self.pending >>= 8;
        self.count = self.count.saturating_sub(8);
    }

    /// Writes a code, whose highest bit comes first.
    fn push_code(&mut self, code: usize, bits: u32) {
        for bit in (0..bits).rev() {
            self.push((code >> bit) & 1, 1);
        }
    }

    fn push_symbol(&mut self, symbol: usize) {
        match symbol {
            0..144 => self.push_code(0b0011_0000 + symbol, 8),
            144..256 => self.push_code(0b1_1001_0000 + symbol - 144, 9),
            256..280 => self.push_code(symbol - 256, 7),
            _ => self.push_code(0b1100_0000 + symbol - 280, 8),
        }
    }

    fn push_match(&mut self, length: usize, distance: usize) {
        let (code, base, extra) = find_code(&LENGTHS, length);
        self.push_symbol(257 + code);
        self.push(length - base, extra);
        let (code, base, extra) = find_code(&DISTANCES, distance);
        self.push_code(code, 5);
        self.push(distance - base, extra);
    }

    fn finish(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.push_byte();
        }
        self.bytes
    }
}

/// The code of a value, the smallest value with this code, and how many extra bits it has.
fn find_code(codes: &[(usize, u32)], value: usize) -> (usize, usize, u32) {
    let code = codes.partition_point(|(base, _)| *base <= value) - 1;
    let (base, extra) = codes[code];
    (code, base, extra)
}

/// The CRC-32 of a text.
fn checksum(text: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in text {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of [`compress`] with `gzip`, which knows nothing of the code above.
    fn decompress(file: &[u8]) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text.gz");
        std::fs::write(&path, file).unwrap();
        let output = std::process::Command::new("gzip")
            .arg("-dc")
            .arg(&path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    #[test]
    fn gzip_reads_what_was_compressed() {
        let mut noise = 1_u32;
        let random: Vec<u8> = (0..70_000)
            .map(|_| {
                noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                noise.to_le_bytes()[3]
            })
            .collect();
        let far = [&random[..], &random[..40_000], &random[30_000..]].concat();
        for text in [
            &b""[..],
            b"a",
            b"abcabcabcabcabcabcabc",
            &[0xff; 1000],
            &random,
            &far,
            pvp_protocol::SCHEMA.as_bytes(),
        ] {
            assert_eq!(decompress(&compress(text)), text);
        }
        let schema = pvp_protocol::SCHEMA.as_bytes();
        assert!(compress(schema).len() < schema.len() / 4);
    }
}
