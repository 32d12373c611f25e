//! What a client tells its hooks, in words that are the same for every client.

use std::path::PathBuf;

use pvp_protocol::JsonObject;
use serde_json::Value;

use crate::supervisor::CallReport;

/// Something that happens in a client.
#[derive(Debug, Clone, PartialEq)]
pub enum HookEvent {
    /// Asks whether a call may run.
    BeforeCall(HookedCall),
    /// A call has ended.
    AfterCall(EndedCall),
    /// Every call of a step of the model has ended, or was refused by the client itself.
    BatchEnded { calls: Vec<EndedCall> },
    /// The agent begins to work: on what a person typed into the client, or by itself.
    Prompted {
        conversation: String,
        text: Option<String>,
    },
    /// The agent has no more to do; `message` is what it said last.
    Stopped { message: Option<String> },
    /// The client, or its conversation, is over.
    ConversationEnded,
    /// A call of a tool that this program offers begins or has ended. It is decided elsewhere.
    OwnCall,
    /// Nothing that matters here.
    Other,
}

/// A call that the client asks about.
#[derive(Debug, Clone, PartialEq)]
pub struct HookedCall {
    /// The client's id of the conversation.
    pub conversation: String,
    /// The client's id of the call; not every client has one.
    pub call_id: Option<String>,
    /// The subagent that makes it.
    pub subagent: Option<String>,
    /// The directory that it is made in.
    pub cwd: PathBuf,
    /// The client's name of the tool.
    pub tool: String,
    /// The arguments, in the client's words.
    pub input: JsonObject,
}

/// A call that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedCall {
    pub call: HookedCall,
    pub report: CallReport,
}

/// A text field of what a client says.
pub(super) fn text(input: &Value, name: &str) -> Option<String> {
    input.get(name)?.as_str().map(str::to_owned)
}

/// A text field without which nothing can be decided.
pub(super) fn required(input: &Value, name: &str) -> Result<String, String> {
    text(input, name).ok_or_else(|| format!("the client does not say `{name}`"))
}

/// An object without which nothing can be decided.
pub(super) fn object(input: &Value, name: &str) -> Result<JsonObject, String> {
    let object = input.get(name).and_then(Value::as_object);
    let object = object.ok_or_else(|| format!("the client does not say `{name}`"))?;
    Ok(object.clone())
}

/// The directory of a call: an absolute path, as every client gives it.
pub(super) fn directory(input: &Value, name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(required(input, name)?);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(format!("`{name}` is not an absolute path")),
    }
}
