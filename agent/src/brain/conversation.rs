//! What has been said between people, the model and its tools, kept within a budget.

use std::collections::BTreeSet;

use pvp_protocol::JsonObject;

use super::BrainEvent;
use super::words::CallResult;

/// Tokens that a part costs beside its text: roles, names, brackets.
const OVERHEAD: u64 = 8;

/// A call of a tool, as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// JSON, if the model kept to it.
    pub arguments: String,
}

impl ToolCall {
    /// The arguments, or a sentence for the model.
    pub fn read(&self) -> Result<JsonObject, String> {
        if self.arguments.trim().is_empty() {
            return Ok(JsonObject::new());
        }
        serde_json::from_str(&self.arguments).map_err(|error| {
            format!(
                "The arguments of this call are not a JSON object ({error}). Nothing was done. \
                 Send the call again, and shorter if it was cut off."
            )
        })
    }
}

/// A part of what the model answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// The seal is what the provider wants back with it; thinking without one is not sent back.
    Thinking {
        text: String,
        seal: Option<String>,
    },
    /// Thinking that the provider shows nobody, but wants back.
    Hidden(String),
    Text(String),
    /// A result lives in its call, so that neither is ever sent without the other.
    Call {
        call: ToolCall,
        result: Option<CallResult>,
    },
}

/// One turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    Person(String),
    Model(Vec<Part>),
}

/// Puts the events of an answer together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    parts: Vec<Part>,
}

impl Answer {
    pub fn take(&mut self, event: &BrainEvent) {
        match event {
            BrainEvent::Thinking(more) => match self.parts.last_mut() {
                Some(Part::Thinking { text, seal: None }) => text.push_str(more),
                _ => self.parts.push(Part::Thinking {
                    text: more.clone(),
                    seal: None,
                }),
            },
            BrainEvent::ThinkingSeal(value) => match self.parts.last_mut() {
                Some(Part::Thinking { seal, .. }) if seal.is_none() => *seal = Some(value.clone()),
                // A provider that shows no thinking still seals it.
                _ => self.parts.push(Part::Thinking {
                    text: String::new(),
                    seal: Some(value.clone()),
                }),
            },
            BrainEvent::HiddenThinking(data) => self.parts.push(Part::Hidden(data.clone())),
            BrainEvent::Text(more) => match self.parts.last_mut() {
                Some(Part::Text(text)) => text.push_str(more),
                _ => self.parts.push(Part::Text(more.clone())),
            },
            BrainEvent::Call(call) => self.parts.push(Part::Call {
                call: call.clone(),
                result: None,
            }),
            BrainEvent::Retrying { .. } | BrainEvent::Usage(_) | BrainEvent::Finished(_) => {}
        }
    }
}

/// A conversation that either provider accepts, whatever is done to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    system: String,
    turns: Vec<Turn>,
    forgot: bool,
}

impl Conversation {
    pub fn new(system: impl Into<String>) -> Self {
        Self {
            system: system.into(),
            turns: Vec::new(),
            forgot: false,
        }
    }

    /// What the model is told before anything else.
    pub fn system(&self) -> String {
        let note = if self.forgot {
            "\n\nThe beginning of this conversation is left out, because it became too long."
        } else {
            ""
        };
        format!("{}{note}", self.system)
    }

    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Whether it is the model's turn: someone spoke, or every call has its result.
    pub fn awaits_model(&self) -> bool {
        match self.turns.last() {
            None => false,
            Some(Turn::Person(_)) => true,
            Some(Turn::Model(parts)) => {
                parts.iter().any(|part| matches!(part, Part::Call { .. }))
                    && self.open_calls().is_empty()
            }
        }
    }

    /// Somebody says something. Calls that are still open will not be answered any more.
    pub fn ask(&mut self, text: impl Into<String>) {
        self.abandon("Nothing was done: someone spoke before this call was dealt with.");
        self.turns.push(Turn::Person(text.into()));
    }

    /// The model answered. Returns its calls, under ids that are unique in this conversation.
    pub fn answer(&mut self, answer: Answer) -> Vec<ToolCall> {
        self.abandon("Nothing was done: this call was given up.");
        let mut parts = answer.parts;
        let mut used = self.call_ids();
        for part in &mut parts {
            if let Part::Call { call, .. } = part {
                call.id = unused(&used, &call.id);
                used.insert(call.id.clone());
            }
        }
        if !parts.is_empty() {
            self.turns.push(Turn::Model(parts));
        }
        self.open_calls()
    }

    /// Calls of the last answer that have no result.
    pub fn open_calls(&self) -> Vec<ToolCall> {
        let Some(Turn::Model(parts)) = self.turns.last() else {
            return Vec::new();
        };
        let open = |part: &Part| match part {
            Part::Call { call, result: None } => Some(call.clone()),
            Part::Call { .. } | Part::Thinking { .. } | Part::Hidden(_) | Part::Text(_) => None,
        };
        parts.iter().filter_map(open).collect()
    }

    /// Gives an open call its result; `false` if there is no such call.
    pub fn result(&mut self, id: &str, outcome: CallResult) -> bool {
        let Some(Turn::Model(parts)) = self.turns.last_mut() else {
            return false;
        };
        for part in parts {
            if let Part::Call { call, result } = part
                && call.id == id
                && result.is_none()
            {
                *result = Some(outcome);
                return true;
            }
        }
        false
    }

    /// Gives every open call the same result.
    pub fn abandon(&mut self, why: &str) {
        for call in self.open_calls() {
            self.result(&call.id, CallResult::failed(why));
        }
    }

    /// The newest result of a call.
    pub fn last_result(&self) -> Option<&CallResult> {
        self.turns.iter().rev().find_map(|turn| match turn {
            Turn::Person(_) => None,
            Turn::Model(parts) => parts.iter().rev().find_map(|part| match part {
                Part::Call { result, .. } => result.as_ref(),
                Part::Thinking { .. } | Part::Hidden(_) | Part::Text(_) => None,
            }),
        })
    }

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

    fn call_ids(&self) -> BTreeSet<String> {
        let mut ids = BTreeSet::new();
        for turn in &self.turns {
            if let Turn::Model(parts) = turn {
                ids.extend(parts.iter().filter_map(|part| match part {
                    Part::Call { call, .. } => Some(call.id.clone()),
                    Part::Thinking { .. } | Part::Hidden(_) | Part::Text(_) => None,
                }));
            }
        }
        ids
    }
}

/// Small servers give the same id, or none, to every call.
fn unused(used: &BTreeSet<String>, id: &str) -> String {
    let id = if id.is_empty() { "call" } else { id };
    if !used.contains(id) {
        return id.to_owned();
    }
    let mut number = 2_u64;
    loop {
        let fresh = format!("{id}_{number}");
        if !used.contains(&fresh) {
            return fresh;
        }
        number += 1;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn call(id: &str) -> BrainEvent {
        BrainEvent::Call(ToolCall {
            id: id.to_owned(),
            name: "shell".to_owned(),
            arguments: r#"{"command":"ls"}"#.to_owned(),
        })
    }

    fn answer(events: &[BrainEvent]) -> Answer {
        let mut answer = Answer::default();
        for event in events {
            answer.take(event);
        }
        answer
    }

    fn result(text: &str) -> CallResult {
        CallResult {
            text: text.to_owned(),
            brief: "Exit code: 0".to_owned(),
            ..CallResult::failed("")
        }
    }

    fn long_story(rounds: usize) -> Conversation {
        let mut conversation = Conversation::new("Be careful.");
        conversation.ask("look around");
        for round in 0..rounds {
            let id = format!("c{round}");
            conversation.answer(answer(&[BrainEvent::Thinking("hm".into()), call(&id)]));
            assert!(conversation.result(&id, result(&"x".repeat(3000))));
        }
        conversation
    }

    #[test]
    fn an_answer_joins_its_pieces_and_keeps_their_order() {
        let events = [
            BrainEvent::Thinking("a".into()),
            BrainEvent::Thinking("b".into()),
            BrainEvent::ThinkingSeal("s".into()),
            BrainEvent::Thinking("c".into()),
            BrainEvent::Text("d".into()),
            BrainEvent::Text("e".into()),
        ];
        let thinking = |text: &str, seal: Option<&str>| Part::Thinking {
            text: text.to_owned(),
            seal: seal.map(str::to_owned),
        };
        let whole = [
            thinking("ab", Some("s")),
            thinking("c", None),
            Part::Text("de".into()),
        ];
        assert_eq!(answer(&events).parts, whole);
    }

    #[test]
    fn calls_get_ids_of_their_own() {
        let mut conversation = Conversation::new("");
        conversation.ask("go");
        let first = conversation.answer(answer(&[call("a"), call("a"), call("")]));
        let ids = |calls: &[ToolCall]| -> Vec<String> {
            calls.iter().map(|call| call.id.clone()).collect()
        };
        assert_eq!(ids(&first), ["a", "a_2", "call"]);
        conversation.abandon("stopped");
        let second = conversation.answer(answer(&[call("a")]));
        assert_eq!(ids(&second), ["a_3"]);
    }

    #[test]
    fn a_prompt_closes_calls_that_are_open() {
        let mut conversation = Conversation::new("");
        conversation.ask("go");
        conversation.answer(answer(&[call("a"), call("b")]));
        assert!(!conversation.awaits_model());
        assert!(conversation.result("b", result("done")));
        assert!(!conversation.result("b", result("twice")));
        assert!(!conversation.awaits_model());
        conversation.ask("wait");
        assert_eq!(conversation.open_calls(), []);
        assert!(conversation.awaits_model());
        assert_eq!(conversation.last_result().unwrap().text, "done");
    }

    #[test]
    fn old_output_is_reduced_before_anything_is_forgotten() {
        let mut conversation = long_story(10);
        let newest = conversation.last_result().cloned();
        conversation.fit(5000);
        assert!(conversation.tokens() <= 5000);
        assert_eq!(conversation.turns().len(), 11);
        assert_eq!(conversation.last_result().cloned(), newest);
        assert_eq!(conversation.system(), "Be careful.");
        let again = conversation.clone();
        conversation.fit(5000);
        assert_eq!(conversation, again);
    }

    #[test]
    fn then_the_oldest_turns_go_but_never_the_prompt() {
        let mut conversation = long_story(40);
        conversation.fit(1500);
        assert!(conversation.tokens() <= 1500);
        assert_eq!(
            conversation.turns()[0],
            Turn::Person("look around".to_owned())
        );
        assert!(conversation.turns().len() < 41);
        assert!(conversation.system().contains("left out"));
        conversation.ask("and now?");
        conversation.fit(100);
        assert_eq!(conversation.turns(), [Turn::Person("and now?".to_owned())]);
    }

    proptest! {
        #[test]
        fn whatever_happens_a_conversation_stays_well_formed(
            steps in prop::collection::vec((0..5_u8, 0..4000_usize), 1..60), budget in 0..6000_u64,
        ) {
            let mut conversation = Conversation::new("s");
            conversation.ask("begin");
            for (step, size) in steps {
                match step {
                    0 => conversation.ask("p".repeat(size)),
                    1 => drop(conversation.answer(answer(&[call("a"), BrainEvent::Text("t".repeat(size)), call("b")]))),
                    2 => drop(conversation.answer(answer(&[BrainEvent::Thinking("t".repeat(size))]))),
                    3 => if let Some(open) = conversation.open_calls().first() {
                        conversation.result(&open.id, result(&"r".repeat(size)));
                    },
                    _ => conversation.fit(budget),
                }
                invariant_begins_with_a_person(&conversation);
                invariant_only_the_last_answer_has_open_calls(&conversation);
            }
        }
    }

    fn invariant_begins_with_a_person(conversation: &Conversation) {
        assert!(matches!(
            conversation.turns().first(),
            Some(Turn::Person(_))
        ));
    }

    fn invariant_only_the_last_answer_has_open_calls(conversation: &Conversation) {
        let all = conversation.turns().len();
        for turn in &conversation.turns()[..all - 1] {
            if let Turn::Model(parts) = turn {
                let open = |part: &Part| matches!(part, Part::Call { result: None, .. });
                assert!(!parts.iter().any(open));
            }
        }
    }
}
