//! Random choices that are the same on every machine for the same seed.

use crate::support::env_number;

/// An xorshift generator.
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Begins with `PVP_SEED`, or with this seed.
    pub(super) fn from_environment(seed: u64) -> Self {
        Self::new(env_number("PVP_SEED").unwrap_or(seed))
    }

    fn new(seed: u64) -> Self {
        // Spread over all bits, because similar seeds would begin with similar choices; never zero,
        // which would stay zero.
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { state }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// A number below `count`, which is not zero.
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.next() as usize % count
    }

    pub(super) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(super) fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    /// A piece of a list in which blanks separate pieces; `piece_text` says how pieces are written.
    pub(super) fn piece(&mut self, list: &str) -> String {
        let count = list.split_whitespace().count();
        let piece = list.split_whitespace().nth(self.below(count));
        piece_text(piece.unwrap_or_default())
    }

    pub(super) fn pick_string(&mut self, choices: &[String]) -> String {
        choices[self.below(choices.len())].clone()
    }

    pub(super) fn pick_char(&mut self, choices: &str) -> Option<char> {
        let choices: Vec<char> = choices.chars().collect();
        (!choices.is_empty()).then(|| choices[self.below(choices.len())])
    }
}

/// The text of a piece, in which signs stand for nothing at all and for every kind of blank.
fn piece_text(piece: &str) -> String {
    let blank = |sign: char| match sign {
        '∅' => None,
        '␣' => Some(' '),
        '⏎' => Some('\n'),
        '⇥' => Some('\t'),
        '␍' => Some('\r'),
        '⍽' => Some('\u{a0}'),
        other => Some(other),
    };
    piece.chars().filter_map(blank).collect()
}
