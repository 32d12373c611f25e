//! Hooks: a client runs a program before and after each call, and does what the program says.
//!
//! A hook's process lives as long as one question. It reads what the client says on standard input,
//! has the call decided by the server, and prints the answer in the client's own words. Whatever
//! goes wrong, the answer is a denial.

mod answer;
#[cfg(test)]
mod captured;
mod claude;
mod codex;
mod copilot;
mod decide;
mod event;
mod fails_open;
mod gemini;
mod open_calls;
mod opencode;
mod question;
mod report;

use std::path::Path;

use pvp_protocol::MessageId;
use serde_json::Value;

pub use answer::{HookAnswer, HookReply};
pub use event::{EndedCall, HookEvent, HookedCall};
pub use fails_open::HooksFrom;
pub use question::HookQuestion;

use crate::client_files::ClientFiles;
use crate::supervisor::proposal_id;
use decide::HookDesk;

/// How long a question may wait, in seconds. In milliseconds it fits into 32 bits with a sign; beyond
/// that some clients take it for over at once.
pub(crate) const LONGEST_WAIT_SECONDS: u64 = 2_000_000;

/// Why a call is not looked at.
pub const TOO_LONG: &str = "the call is longer than 16 MiB";

/// A client that has hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookClient {
    Claude,
    Codex,
    OpenCode,
    Gemini,
    Copilot,
}

impl HookClient {
    pub const ALL: [Self; 5] = [
        Self::Claude,
        Self::Codex,
        Self::OpenCode,
        Self::Gemini,
        Self::Copilot,
    ];

    /// The name of its program.
    pub fn name(self) -> &'static str {
        match self {
            HookClient::Claude => "claude",
            HookClient::Codex => "codex",
            HookClient::OpenCode => "opencode",
            HookClient::Gemini => "gemini",
            HookClient::Copilot => "copilot",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|client| client.name() == name)
    }

    /// Reads what the client says. `event` is the name of the event for clients that do not say it.
    pub fn parse(self, event: &str, input: &[u8]) -> Result<HookEvent, String> {
        let input: Value = serde_json::from_slice(input)
            .map_err(|error| format!("what the client said is not JSON: {error}"))?;
        self.parse_value(event, &input)
    }

    /// Like [`parse`](Self::parse), for what is JSON already.
    pub fn parse_value(self, event: &str, input: &Value) -> Result<HookEvent, String> {
        match self {
            HookClient::Claude => claude::parse(input),
            HookClient::Codex => codex::parse(input),
            HookClient::OpenCode => opencode::parse(input),
            HookClient::Gemini => gemini::parse(input),
            HookClient::Copilot => copilot::parse(event, input),
        }
    }

    /// Says an answer in the client's words.
    pub fn reply(self, answer: &HookAnswer) -> HookReply {
        match self {
            HookClient::Claude => claude::reply(answer),
            HookClient::Codex => codex::reply(answer),
            HookClient::OpenCode => opencode::reply(answer),
            HookClient::Gemini => gemini::reply(answer),
            HookClient::Copilot => copilot::reply(answer),
        }
    }
}

/// Answers one question of a client, whose files are in `directory`. Blocks until it is decided.
pub fn answer(client: HookClient, directory: &Path, event: &str, input: &[u8]) -> HookReply {
    let files = ClientFiles::at(directory);
    let answer = match client.parse(event, input) {
        Ok(event) => answer_event(client, files, event),
        Err(why) => HookAnswer::deny(&format!("Not allowed: {why}.")),
    };
    client.reply(&answer)
}

/// Answers what is too long to be read as it is, and of which the long texts were cut: only the end
/// of a call is taken so.
pub fn answer_cut(client: HookClient, directory: &Path, event: &str, input: &[u8]) -> HookReply {
    let answer = match client.parse(event, input) {
        Ok(HookEvent::AfterCall(mut ended)) => {
            let why = "the client's report was too long, so its texts were cut";
            ended.report.error.get_or_insert_with(|| why.to_owned());
            let event = HookEvent::AfterCall(ended);
            answer_event(client, ClientFiles::at(directory), event)
        }
        Ok(_) => HookAnswer::deny(&format!("Not allowed: {TOO_LONG}.")),
        Err(why) => HookAnswer::deny(&format!("Not allowed: {why}.")),
    };
    client.reply(&answer)
}

/// The answer for a client that nobody can be asked about: a question is denied.
pub fn without_session(client: HookClient, event: &str, input: &[u8], why: &str) -> HookReply {
    let answer = match client.parse(event, input) {
        Ok(HookEvent::BeforeCall(_)) | Err(_) => {
            HookAnswer::deny(&format!("Not allowed, because nobody can be asked: {why}."))
        }
        Ok(_) => HookAnswer::Nothing,
    };
    client.reply(&answer)
}

/// The answer of a hook beside another one of ours, which decides.
pub fn left_to_others(client: HookClient, event: &str, input: &[u8]) -> HookReply {
    let answer = match client.parse(event, input) {
        // Its plugin takes only an allowance for one; the other plugin still has to agree.
        Ok(HookEvent::BeforeCall(_)) if client == HookClient::OpenCode => {
            HookAnswer::Allow { edited: None }
        }
        Ok(_) => HookAnswer::Nothing,
        Err(why) => HookAnswer::deny(&format!("Not allowed: {why}.")),
    };
    client.reply(&answer)
}

/// Withdraws the call that a question is about, because the client no longer waits for the answer.
pub fn withdraw(client: HookClient, directory: &Path, event: &str, input: &[u8]) {
    if let Ok(HookEvent::BeforeCall(call)) = client.parse(event, input)
        && let Some(id) = id_of(client, &call)
        && let Ok(desk) = HookDesk::open(client, ClientFiles::at(directory))
    {
        desk.withdraw(&id);
    }
}

fn answer_event(client: HookClient, files: ClientFiles, event: HookEvent) -> HookAnswer {
    let is_question = matches!(event, HookEvent::BeforeCall(_));
    let desk = match HookDesk::open(client, files) {
        Ok(desk) => desk,
        Err(why) if is_question => {
            return HookAnswer::deny(&format!("Not allowed, because nobody can be asked: {why}."));
        }
        // Nothing runs because of this, and the lease closes what is open.
        Err(_) => return HookAnswer::Nothing,
    };
    match event {
        HookEvent::BeforeCall(call) => desk.before_call(&call),
        HookEvent::AfterCall(ended) => desk.after_call(&ended),
        HookEvent::BatchEnded { calls } => desk.batch_ended(&calls),
        HookEvent::Prompted { conversation, text } => desk.prompted(&conversation, text),
        HookEvent::Stopped { message } => desk.stopped(message.as_deref()),
        HookEvent::ConversationEnded => desk.conversation_ended(),
        HookEvent::OwnCall => desk.own_call(),
        HookEvent::Other => HookAnswer::Nothing,
    }
}

/// The id of the proposal of a call; `None` if the client gives its calls no ids.
fn id_of(client: HookClient, call: &HookedCall) -> Option<MessageId> {
    let call_id = call.call_id.as_deref()?;
    Some(proposal_id(client.name(), &call.conversation, call_id))
}
