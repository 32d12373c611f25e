//! Keeps a conversation within the context of a model.

use serde_json::json;

use super::super::result_text::truncate_middle;
use super::{AnswerPart, Conversation, ConversationTurn};

/// The approximate number of bytes in a token, which errs on the low side.
const BYTES_PER_TOKEN: u64 = 3;

/// A text is not cut below this many bytes.
const MIN_TEXT_BYTES: usize = 256;

/// Tokens that a part costs in addition to its text: roles, names, brackets.
const PART_OVERHEAD_TOKENS: u64 = 8;

impl Conversation {
    /// An estimate of the number of tokens, which errs on the high side.
    pub fn tokens(&self) -> u64 {
        estimate_tokens(&self.system_prompt) + self.turns.iter().map(turn_tokens).sum::<u64>()
    }

    /// Makes the conversation fit into a number of tokens: drops old thinking, then shortens old
    /// results, then drops the oldest turns, and at last cuts what is left. It shrinks to three
    /// quarters of the budget, so that the rest stays the same for a while and the provider's cache
    /// can reuse it. Only the system prompt is never cut.
    pub fn fit(&mut self, budget: u64) {
        if self.tokens() <= budget {
            return;
        }
        let target = budget / 4 * 3;
        self.drop_old_thinking();
        let last = self.turns.len().saturating_sub(1);
        self.shorten_results(0..last, target);
        self.drop_oldest_turns(target);
        let last = self.turns.len().saturating_sub(1);
        if self.tokens() > budget {
            self.shorten_results(last..self.turns.len(), budget);
        }
        self.truncate_texts(budget);
    }

    fn drop_old_thinking(&mut self) {
        let current = self.current_exchange_start();
        for turn in &mut self.turns[..current] {
            if let ConversationTurn::Model(parts) = turn {
                parts.retain(|part| {
                    !matches!(
                        part,
                        AnswerPart::Thinking { .. } | AnswerPart::RedactedThinking(_)
                    )
                });
            }
        }
        self.turns
            .retain(|turn| !matches!(turn, ConversationTurn::Model(parts) if parts.is_empty()));
    }

    fn shorten_results(&mut self, turns: std::ops::Range<usize>, target: u64) {
        let mut excess = self.tokens().saturating_sub(target);
        for turn in &mut self.turns[turns] {
            let ConversationTurn::Model(parts) = turn else {
                continue;
            };
            for part in parts {
                if let AnswerPart::Call {
                    result: Some(result),
                    ..
                } = part
                    && excess > 0
                {
                    let before = estimate_tokens(&result.text);
                    result.shorten();
                    excess = excess.saturating_sub(before - estimate_tokens(&result.text));
                }
            }
        }
    }

    /// Drops the oldest turns, but never the last prompt and never the last turn.
    fn drop_oldest_turns(&mut self, target: u64) {
        let mut excess = self.tokens().saturating_sub(target);
        while excess > 0 {
            let oldest = usize::from(self.last_prompt_index() == 0);
            if oldest + 1 >= self.turns.len() {
                return;
            }
            excess = excess.saturating_sub(turn_tokens(&self.turns.remove(oldest)));
            // A conversation starts with a person.
            while matches!(self.turns.first(), Some(ConversationTurn::Model(_))) {
                excess = excess.saturating_sub(turn_tokens(&self.turns.remove(0)));
            }
            self.truncated = true;
        }
    }

    /// Cuts the longest texts, to less and less, until everything fits.
    fn truncate_texts(&mut self, budget: u64) {
        let mut max_bytes =
            usize::try_from(budget.saturating_mul(BYTES_PER_TOKEN)).unwrap_or(usize::MAX);
        while self.tokens() > budget && max_bytes > MIN_TEXT_BYTES {
            max_bytes = (max_bytes / 2).max(MIN_TEXT_BYTES);
            for turn in &mut self.turns {
                match turn {
                    ConversationTurn::Person(text) => *text = truncate_middle(text, max_bytes),
                    ConversationTurn::Model(parts) => parts
                        .iter_mut()
                        .for_each(|part| truncate_part(part, max_bytes)),
                }
            }
        }
    }

    /// The index of the first turn of the current exchange.
    ///
    /// A prompt added to results belongs to it. Providers require thinking back until it ends.
    fn current_exchange_start(&self) -> usize {
        let called = |part: &AnswerPart| matches!(part, AnswerPart::Call { .. });
        let earlier = |turn: &ConversationTurn| match turn {
            ConversationTurn::Person(_) => true,
            ConversationTurn::Model(parts) => parts.iter().any(called),
        };
        let prompt = self.last_prompt_index();
        let before = self.turns[..prompt].iter().rev();
        prompt - before.take_while(|turn| earlier(turn)).count()
    }

    fn last_prompt_index(&self) -> usize {
        let is_prompt = |turn: &ConversationTurn| matches!(turn, ConversationTurn::Person(_));
        self.turns.iter().rposition(is_prompt).unwrap_or(0)
    }
}

/// Cuts what may be cut: a provider wants its own thinking back unchanged, and arguments are JSON.
fn truncate_part(part: &mut AnswerPart, max_bytes: usize) {
    match part {
        AnswerPart::Thinking { .. } | AnswerPart::RedactedThinking(_) => {}
        AnswerPart::Text(text) => *text = truncate_middle(text, max_bytes),
        AnswerPart::Call { call, result } => {
            if call.arguments.len() > max_bytes {
                let left_out = format!("{} bytes", call.arguments.len());
                call.arguments = json!({ "left_out": left_out }).to_string();
            }
            if let Some(result) = result {
                result.text = truncate_middle(&result.text, max_bytes);
            }
        }
    }
}

/// An estimate of the number of tokens of a text, for code and logs.
pub(crate) fn estimate_tokens(text: &str) -> u64 {
    (text.len() as u64).div_ceil(BYTES_PER_TOKEN) + PART_OVERHEAD_TOKENS
}

fn turn_tokens(turn: &ConversationTurn) -> u64 {
    match turn {
        ConversationTurn::Person(text) => estimate_tokens(text),
        ConversationTurn::Model(parts) => parts.iter().map(part_tokens).sum(),
    }
}

fn part_tokens(part: &AnswerPart) -> u64 {
    match part {
        AnswerPart::Thinking { text, signature } => {
            estimate_tokens(text) + signature.as_deref().map_or(0, estimate_tokens)
        }
        AnswerPart::RedactedThinking(text) | AnswerPart::Text(text) => estimate_tokens(text),
        AnswerPart::Call { call, result } => {
            let result = result
                .as_ref()
                .map_or(PART_OVERHEAD_TOKENS, |result| estimate_tokens(&result.text));
            estimate_tokens(&call.arguments) + estimate_tokens(&call.name) + result
        }
    }
}
