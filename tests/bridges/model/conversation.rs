//! Where in its script a conversation is.

use serde_json::Value;

use super::{ModelDialect, SCRIPT_ENDED, SIDE_ANSWER, ScriptedCall, ScriptedTurn, SeenResult};

const SUBAGENT_MARKER: &str = "SUBAGENT-SCRIPT:";

/// Stands in an argument before a JSON pointer into the result of the call before.
const RESULT_MARKER: &str = "RESULT:";

/// Words of the last message with which a client asks for something beside its conversation, though
/// it offers the tools as always.
const SIDE_REQUESTS: &[&str] = &[
    "[SUGGESTION MODE:",
    "Generate a concise, single-line task title",
    "Managed memory has TWO directories.",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptedConversation {
    Main,
    /// Of a subagent with its own script.
    Subagent,
    /// A title, a suggestion, a probe: it has no script.
    Side,
}

/// A part of what was said, in the order in which it was.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    User(String),
    Assistant(String),
    Call { id: String, name: String },
    Result(SeenResult),
}

/// A request in the words that the dialects share.
pub(super) struct Parsed {
    /// The API that was spoken.
    pub(super) dialect: ModelDialect,
    /// The model that was asked for.
    pub(super) model: String,
    /// The system prompt.
    pub(super) system: String,
    /// What was said so far.
    pub(super) history: Vec<Part>,
    /// The names of the tools.
    pub(super) tools: Vec<String>,
    /// The tools as the client describes them.
    pub(super) tool_definitions: Value,
}

/// Says an answer in the words of a dialect.
pub(super) type Encode = Box<dyn Fn(&ScriptedAnswer) -> super::http::ModelHttpResponse>;

/// What the model says.
pub(super) enum ScriptedAnswer {
    Text(String),
    /// The calls with their identifiers.
    Calls(Vec<(String, ScriptedCall)>),
}

impl ScriptedAnswer {
    pub(super) fn turn(&self) -> ScriptedTurn {
        match self {
            Self::Text(text) => ScriptedTurn::Text(text.clone()),
            Self::Calls(calls) => {
                ScriptedTurn::Calls(calls.iter().map(|(_, call)| call.clone()).collect())
            }
        }
    }
}

pub(super) fn next_turn(
    request: &Parsed,
    script: &[ScriptedTurn],
) -> (ScriptedConversation, ScriptedAnswer) {
    if is_side_request(request) {
        return (
            ScriptedConversation::Side,
            ScriptedAnswer::Text(SIDE_ANSWER.to_owned()),
        );
    }
    match subagent_script(&request.history) {
        Some((name, script)) => (
            ScriptedConversation::Subagent,
            answer(&name, &script, &request.history),
        ),
        None => (
            ScriptedConversation::Main,
            answer("main", script, &request.history),
        ),
    }
}

/// Gives each result the name of its call; only some dialects repeat it.
pub(super) fn named(mut history: Vec<Part>) -> Vec<Part> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for part in &mut history {
        match part {
            Part::Call { id, name } => calls.push((id.clone(), name.clone())),
            Part::Result(result) => {
                let call = calls.iter().find(|(id, _)| *id == result.call_id);
                if let Some((_, name)) = call {
                    result.name.clone_from(name);
                }
            }
            Part::User(_) | Part::Assistant(_) => {}
        }
    }
    history
}

fn is_side_request(request: &Parsed) -> bool {
    let last = request.history.iter().rev().find_map(|part| match part {
        Part::User(text) => Some(text),
        Part::Assistant(_) | Part::Call { .. } | Part::Result(_) => None,
    });
    let asks = |text: &String| SIDE_REQUESTS.iter().any(|words| text.contains(words));
    request.tools.is_empty() || last.is_some_and(asks)
}

/// The script in the first message, with a name that no other script has.
fn subagent_script(history: &[Part]) -> Option<(String, Vec<ScriptedTurn>)> {
    let first_messages = history.iter().map_while(|part| match part {
        Part::User(text) => Some(text),
        Part::Assistant(_) | Part::Call { .. } | Part::Result(_) => None,
    });
    let (_, json) = first_messages
        .filter_map(|text| text.split_once(SUBAGENT_MARKER))
        .last()?;
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Vec<ScriptedTurn>>();
    let script = values.next()?.unwrap_or_else(|error| {
        vec![ScriptedTurn::Text(format!(
            "this script is not valid: {error}"
        ))]
    });
    let sum = json.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    Some((format!("sub{sum:x}"), script))
}

fn answer(name: &str, script: &[ScriptedTurn], history: &[Part]) -> ScriptedAnswer {
    let index = turns_taken(name, script, history);
    match script.get(index) {
        None => ScriptedAnswer::Text(SCRIPT_ENDED.to_owned()),
        Some(ScriptedTurn::Text(text)) => ScriptedAnswer::Text(text.clone()),
        Some(ScriptedTurn::Calls(calls)) => {
            let last = last_result(history);
            let calls = calls.iter().cloned().map(|mut call| {
                fill_in(&mut call.arguments, &last);
                call
            });
            let calls = calls.enumerate();
            ScriptedAnswer::Calls(
                calls
                    .map(|(position, call)| (format!("call_{name}_{index}_{position}"), call))
                    .collect(),
            )
        }
    }
}

/// The newest result, if it is JSON.
fn last_result(history: &[Part]) -> Value {
    let mut newest_first = history.iter().rev();
    let text = newest_first.find_map(|part| match part {
        Part::Result(result) => Some(result.text.as_str()),
        Part::User(_) | Part::Assistant(_) | Part::Call { .. } => None,
    });
    let parsed = text.map(serde_json::from_str);
    parsed.and_then(Result::ok).unwrap_or_default()
}

/// Puts what a result says where the script refers to it.
fn fill_in(arguments: &mut Value, result: &Value) {
    match arguments {
        Value::String(text) => {
            let found = text.strip_prefix(RESULT_MARKER);
            if let Some(found) = found.and_then(|pointer| result.pointer(pointer)) {
                *arguments = found.clone();
            }
        }
        Value::Array(elements) => elements.iter_mut().for_each(|it| fill_in(it, result)),
        Value::Object(fields) => fields.values_mut().for_each(|it| fill_in(it, result)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// How many turns of the script the history shows.
fn turns_taken(name: &str, script: &[ScriptedTurn], history: &[Part]) -> usize {
    let mut taken = 0;
    for part in history {
        let turn = match part {
            Part::Call { id, .. } => turn_of_call(name, id),
            Part::Assistant(text) => position_of_text(script, taken, text),
            Part::User(_) | Part::Result(_) => None,
        };
        if let Some(turn) = turn {
            taken = taken.max(turn + 1);
        }
    }
    taken
}

fn turn_of_call(name: &str, id: &str) -> Option<usize> {
    let (_, rest) = id.split_once(&format!("call_{name}_"))?;
    rest.split('_').next()?.parse().ok()
}

fn position_of_text(script: &[ScriptedTurn], from: usize, said: &str) -> Option<usize> {
    let rest = script.iter().enumerate().skip(from);
    rest.filter_map(|(index, turn)| match turn {
        ScriptedTurn::Text(text) => Some((index, text)),
        ScriptedTurn::Calls(_) => None,
    })
    .find(|(_, text)| text.trim() == said.trim())
    .map(|(index, _)| index)
}

/// The text of content that is a string or a list of parts with texts.
pub(super) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => content.to_string(),
    }
}

/// The elements of a list; none if it is not one.
pub(super) fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
