//! Keeping a conversation within what a model can read.

use serde_json::json;

use super::super::digest::ends;
use super::{Conversation, Part, Turn};

/// Bytes of a token, about; rather too few than too many.
const BYTES: u64 = 3;

/// Bytes that are left of a text at least.
const SHORTEST: usize = 256;

/// Tokens that a part costs beside its text: roles, names, brackets.
const OVERHEAD: u64 = 8;

impl Conversation {
    /// About how many tokens this is; rather too many than too few.
    pub fn tokens(&self) -> u64 {
        tokens(&self.system) + self.turns.iter().map(turn_tokens).sum::<u64>()
    }

    /// Makes it fit into a number of tokens: old thinking goes, then old output is reduced to its
    /// digest, then the oldest turns go, and at last what is left is cut. It goes down to three
    /// quarters, so that what stays is the same for a while and a provider can remember having read
    /// it. Only what the model is told before anything else always stays whole.
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
            self.reduce(last..self.turns.len(), budget);
        }
        self.shorten(budget);
    }

    fn drop_old_thinking(&mut self) {
        let current = self.current();
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

    /// Cuts the longest texts, shorter and shorter, until all fit.
    fn shorten(&mut self, budget: u64) {
        let mut most = usize::try_from(budget.saturating_mul(BYTES)).unwrap_or(usize::MAX);
        while self.tokens() > budget && most > SHORTEST {
            most = (most / 2).max(SHORTEST);
            for turn in &mut self.turns {
                match turn {
                    Turn::Person(text) => *text = ends(text, most),
                    Turn::Model(parts) => parts.iter_mut().for_each(|part| cut(part, most)),
                }
            }
        }
    }

    /// Where the exchange begins that is under way. A prompt that joined results is part of it, and
    /// a provider wants its own thinking back until it ends.
    fn current(&self) -> usize {
        let called = |part: &Part| matches!(part, Part::Call { .. });
        let earlier = |turn: &Turn| match turn {
            Turn::Person(_) => true,
            Turn::Model(parts) => parts.iter().any(called),
        };
        let prompt = self.last_prompt();
        let before = self.turns[..prompt].iter().rev();
        prompt - before.take_while(|turn| earlier(turn)).count()
    }

    fn last_prompt(&self) -> usize {
        let person = |turn: &Turn| matches!(turn, Turn::Person(_));
        self.turns.iter().rposition(person).unwrap_or(0)
    }
}

/// Cuts what may be cut: a provider wants its own thinking back unchanged, and arguments are JSON.
fn cut(part: &mut Part, most: usize) {
    match part {
        Part::Thinking { .. } | Part::Hidden(_) => {}
        Part::Text(text) => *text = ends(text, most),
        Part::Call { call, result } => {
            if call.arguments.len() > most {
                let left_out = format!("{} bytes", call.arguments.len());
                call.arguments = json!({ "left_out": left_out }).to_string();
            }
            if let Some(result) = result {
                result.text = ends(&result.text, most);
            }
        }
    }
}

/// About how many tokens a text is, as code and logs are.
pub(crate) fn tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(BYTES) + OVERHEAD
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
