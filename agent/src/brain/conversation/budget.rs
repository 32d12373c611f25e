//! Keeping a conversation within what a model can read.

use super::{Conversation, Part, Turn};

/// Tokens that a part costs beside its text: roles, names, brackets.
const OVERHEAD: u64 = 8;

impl Conversation {
    /// About how many tokens this is; rather too many than too few.
    pub fn tokens(&self) -> u64 {
        tokens(&self.system) + self.turns.iter().map(turn_tokens).sum::<u64>()
    }

    /// Makes it fit into a number of tokens: old thinking goes, then old output is reduced to its
    /// digest, then the oldest turns go. It goes down to three quarters, so that what stays is the
    /// same for a while and a provider can remember having read it.
    pub fn fit(&mut self, budget: u64) {
        if self.tokens() <= budget {
            return;
        }
        let target = budget / 4 * 3;
        self.drop_old_thinking();
        let last = self.turns.len().saturating_sub(1);
        self.reduce(0..last, target);
        self.forget(target);
        let last = self.turns.len().saturating_sub(1);
        if self.tokens() > budget {
            self.reduce(last..last + 1, budget);
        }
    }

    fn drop_old_thinking(&mut self) {
        let current = self.last_prompt();
        for turn in &mut self.turns[..current] {
            if let Turn::Model(parts) = turn {
                parts.retain(|part| !matches!(part, Part::Thinking { .. } | Part::Hidden(_)));
            }
        }
        self.turns
            .retain(|turn| !matches!(turn, Turn::Model(parts) if parts.is_empty()));
    }

    fn reduce(&mut self, turns: std::ops::Range<usize>, target: u64) {
        let mut excess = self.tokens().saturating_sub(target);
        for turn in &mut self.turns[turns] {
            let Turn::Model(parts) = turn else { continue };
            for part in parts {
                if let Part::Call {
                    result: Some(result),
                    ..
                } = part
                    && excess > 0
                {
                    let before = tokens(&result.text);
                    result.reduce();
                    excess = excess.saturating_sub(before - tokens(&result.text));
                }
            }
        }
    }

    /// Leaves out the oldest turns, never the last prompt and never what came last.
    fn forget(&mut self, target: u64) {
        let mut excess = self.tokens().saturating_sub(target);
        while excess > 0 {
            let oldest = usize::from(self.last_prompt() == 0);
            if oldest + 1 >= self.turns.len() {
                return;
            }
            excess = excess.saturating_sub(turn_tokens(&self.turns.remove(oldest)));
            // A conversation begins with a person.
            while matches!(self.turns.first(), Some(Turn::Model(_))) {
                excess = excess.saturating_sub(turn_tokens(&self.turns.remove(0)));
            }
            self.forgot = true;
        }
    }

    fn last_prompt(&self) -> usize {
        let person = |turn: &Turn| matches!(turn, Turn::Person(_));
        self.turns.iter().rposition(person).unwrap_or(0)
    }
}

/// Code and logs have about three bytes a token.
pub(crate) fn tokens(text: &str) -> u64 {
    text.len().div_ceil(3) as u64 + OVERHEAD
}

fn turn_tokens(turn: &Turn) -> u64 {
    match turn {
        Turn::Person(text) => tokens(text),
        Turn::Model(parts) => parts.iter().map(part_tokens).sum(),
    }
}

fn part_tokens(part: &Part) -> u64 {
    match part {
        Part::Thinking { text, seal } => tokens(text) + seal.as_deref().map_or(0, tokens),
        Part::Hidden(text) | Part::Text(text) => tokens(text),
        Part::Call { call, result } => {
            let result = result.as_ref().map_or(OVERHEAD, |it| tokens(&it.text));
            tokens(&call.arguments) + tokens(&call.name) + result
        }
    }
}
