//! What Codex says it does: its calls from their start to their end, and those that nobody allowed.

use std::collections::HashMap;

use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use super::super::calls;
use super::super::decide::CodexCall;
use super::super::wire::text;
use super::{CodexBridge, OwnRequest};
use crate::headless::ClientEvent;

/// Calls that are followed at the same time.
const MAX_ITEMS: usize = 1024;

/// A call that Codex has begun.
#[derive(Default)]
pub(super) struct Item {
    /// What Codex says about it.
    pub(super) body: JsonObject,
    /// How often Codex has asked about it.
    pub(super) questions: u32,
    /// The question about it that is not answered.
    pub(super) question: Option<u64>,
    /// What was allowed to run, as [`calls::runs`] says it.
    pub(super) allowed: Option<Value>,
    /// Where it is reported, while it runs.
    pub(super) running: Option<CodexCall>,
    /// Whether people know that it ran unasked.
    is_noticed: bool,
    /// The beginning of what it has printed: at its end, Codex sometimes says that there was nothing.
    printed: String,
}

/// Bytes of what a call prints that are kept until it ends; a result has no more.
const MAX_PRINTED_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub(super) struct Items(HashMap<(String, String), Item>);

impl Items {
    pub(super) fn get(&mut self, thread: &str, item: &str) -> Option<&mut Item> {
        self.0.get_mut(&(thread.to_owned(), item.to_owned()))
    }

    /// The call, which is followed from here on; `None` if there are too many.
    pub(super) fn entry(&mut self, thread: &str, item: &str) -> Option<&mut Item> {
        let key = (thread.to_owned(), item.to_owned());
        if self.0.len() >= MAX_ITEMS && !self.0.contains_key(&key) {
            return None;
        }
        Some(self.0.entry(key).or_default())
    }

    fn remove(&mut self, thread: &str, item: &str) -> Option<Item> {
        self.0.remove(&(thread.to_owned(), item.to_owned()))
    }

    /// The call of an MCP tool that nobody was asked about yet and that a question is about. The
    /// question names the tool only in its message.
    pub(super) fn find_unasked_tool(
        &self,
        thread: &str,
        server: &str,
        arguments: &Value,
        message: &str,
    ) -> Option<String> {
        let mut found: Vec<_> = self
            .0
            .iter()
            .filter(|((of, _), item)| {
                let same_arguments = match item.body.get("arguments") {
                    None | Some(Value::Null) => arguments.is_null() || *arguments == json!({}),
                    Some(own) => own == arguments,
                };
                of == thread
                    && item.questions == 0
                    && text(&item.body, "type") == "mcpToolCall"
                    && text(&item.body, "server") == server
                    && message.contains(&format!("\"{}\"", text(&item.body, "tool")))
                    && same_arguments
            })
            .map(|((_, id), item)| {
                (
                    item.body.get("startedAtMs").and_then(Value::as_i64),
                    id,
                    item,
                )
            })
            .collect();
        found.sort_by_key(|(started, id, _)| (*started, *id));
        let (_, first, item) = found.first()?;
        let tool = text(&item.body, "tool");
        let is_clear = found
            .iter()
            .all(|(_, _, item)| text(&item.body, "tool") == tool);
        is_clear.then(|| (*first).clone())
    }

    pub(super) fn output(&mut self, thread: &str, item: &str, delta: &str) {
        if let Some(Item {
            running: Some(running),
            printed,
            ..
        }) = self.get(thread, item)
        {
            running.output(delta);
            let room = MAX_PRINTED_BYTES - printed.len();
            printed.push_str(&delta[..delta.floor_char_boundary(room)]);
        }
    }

    /// Whether what a call prints is no surprise.
    pub(super) fn may_print(&mut self, thread: &str, item: &str) -> bool {
        let item = self.get(thread, item);
        item.is_some_and(|item| item.running.is_some() || item.is_noticed)
    }

    /// Forgets the calls of a conversation: it is not known how they ended.
    pub(super) fn forget_thread(&mut self, thread: &str) {
        self.0.retain(|(of, _), _| of != thread);
    }
}

/// What an item is about.
enum ItemKind {
    /// A call that Codex asks about.
    Call,
    /// What it says, thinks or is told, and what its subagents do, who ask for themselves.
    Talk,
    /// What the model's provider does by itself.
    ByProvider,
    /// Anything else: nobody was asked about it.
    Unknown,
}

impl ItemKind {
    fn of(item: &JsonObject) -> Self {
        match text(item, "type") {
            "commandExecution" | "fileChange" | "mcpToolCall" => Self::Call,
            "userMessage"
            | "hookPrompt"
            | "agentMessage"
            | "functionCallOutput"
            | "plan"
            | "reasoning"
            | "collabAgentToolCall"
            | "subAgentActivity"
            | "sleep"
            | "enteredReviewMode"
            | "exitedReviewMode"
            | "contextCompaction" => Self::Talk,
            "webSearch" | "imageGeneration" => Self::ByProvider,
            _ => Self::Unknown,
        }
    }
}

/// Characters of what Codex did unasked that are told.
const MAX_TOLD_CHARS: usize = 500;

impl CodexBridge {
    pub(super) fn on_item_started(&mut self, thread: &str, params: &JsonObject) {
        let Some(Value::Object(body)) = params.get("item") else {
            return;
        };
        if text(body, "type") == "subAgentActivity" {
            let (agent, path) = (text(body, "agentThreadId"), text(body, "agentPath"));
            self.threads.name_subagent(agent, path);
        }
        match ItemKind::of(body) {
            ItemKind::Call => self.on_call_started(thread, body),
            ItemKind::Unknown => {
                let id = text(body, "id");
                if let Some(item) = self.items.entry(thread, id) {
                    item.body = body.clone();
                }
                self.notice_unasked(thread, id);
            }
            ItemKind::Talk | ItemKind::ByProvider => {}
        }
    }

    fn on_call_started(&mut self, thread: &str, body: &JsonObject) {
        let id = text(body, "id").to_owned();
        let Some(item) = self.items.entry(thread, &id) else {
            return self.tell_and_interrupt(thread, "it makes more calls than can be followed");
        };
        let is_other = !item.body.is_empty() && calls::runs(&item.body) != calls::runs(body);
        item.body = body.clone();
        if let (true, Some(question)) = (is_other, item.question) {
            let why = "Not run: the call was changed while people looked at it. Make it again.";
            return self.decline(question, why);
        }
        // A command that was asked about has no process before the answer.
        let runs = body.get("processId").is_some_and(|it| !it.is_null());
        if runs && item.running.is_none() {
            self.notice_unasked(thread, &id);
        }
    }

    /// A patch that changes while people look at it is not the one that they decide on.
    pub(super) fn on_patch_updated(&mut self, thread: &str, params: &JsonObject) {
        let id = text(params, "itemId");
        let changes = params.get("changes").cloned().unwrap_or_default();
        let Some(item) = self.items.get(thread, id) else {
            return;
        };
        if item.body.get("changes") == Some(&changes) {
            return;
        }
        item.body.insert("changes".to_owned(), changes);
        if let Some(question) = item.question {
            let why = "Not run: the change was changed while people looked at it. Make it again.";
            self.decline(question, why);
        }
    }

    pub(super) async fn on_item_ended(&mut self, thread: &str, params: &JsonObject) {
        let Some(Value::Object(body)) = params.get("item") else {
            return;
        };
        let id = text(body, "id").to_owned();
        if text(body, "type") == "agentMessage" && self.threads.is_spoken_to(thread) {
            if !self.told_messages.contains(&id) {
                self.tell_message(thread, &id, text(body, "text")).await;
            }
            self.last_message
                .send_replace(text(body, "text").to_owned());
        }
        match ItemKind::of(body) {
            ItemKind::Talk => return,
            ItemKind::ByProvider => return self.tell_by_provider(body),
            ItemKind::Call | ItemKind::Unknown => {}
        }
        let item = self.items.remove(thread, &id).unwrap_or_default();
        if let Some(question) = item.question {
            self.forget_question(question);
        }
        match item.running {
            Some(running) => {
                let mut report = calls::report(body);
                if report.stdout.is_empty() {
                    report.stdout = item.printed;
                }
                let ran = calls::runs(body);
                if item.allowed.is_some_and(|allowed| allowed != ran) {
                    let shown = shortened(&shown_value(&ran));
                    report.success = false;
                    report.error = Some(format!(
                        "the client says that it ran something else: {shown}"
                    ));
                }
                self.unreported.push(running.finish(report));
            }
            None if item.is_noticed || was_not_run(body) => {}
            None => self.tell_unasked(thread, body),
        }
    }

    /// Acts on a call that runs although nobody was asked.
    pub(super) fn notice_unasked(&mut self, thread: &str, id: &str) {
        let Some(item) = self.items.get(thread, id) else {
            return self.tell_and_interrupt(thread, "it ran a command that it did not announce");
        };
        if item.is_noticed {
            return;
        }
        item.is_noticed = true;
        let body = item.body.clone();
        self.tell_unasked(thread, &body);
    }

    fn tell_unasked(&mut self, thread: &str, body: &JsonObject) {
        let what = match text(body, "type") {
            "commandExecution" => format!("it ran `{}`", calls::line_of(text(body, "command"))),
            "mcpToolCall" => {
                let (server, tool) = (text(body, "server"), text(body, "tool"));
                format!("it called the tool `{tool}` of `{server}`")
            }
            "fileChange" => {
                let changes = body.get("changes").and_then(Value::as_array);
                let paths = changes.into_iter().flatten();
                let paths: Vec<_> = paths
                    .filter_map(|change| change.get("path")?.as_str())
                    .take(8)
                    .collect();
                format!("it changed {}", paths.join(", "))
            }
            other => format!("it did something that PVP does not know (`{other}`)"),
        };
        self.tell_and_interrupt(thread, &shortened(&what));
    }

    /// Tells what the model's provider did by itself. It cannot be stopped any more.
    fn tell_by_provider(&mut self, body: &JsonObject) {
        let what = match text(body, "type") {
            "webSearch" => {
                let action = body.get("action").filter(|action| !action.is_null());
                let query = Value::from(text(body, "query"));
                format!(
                    "searched the web: {}",
                    shown_value(action.unwrap_or(&query))
                )
            }
            _ => format!("made an image: {}", text(body, "savedPath")),
        };
        let told = format!(
            "\n[PVP: nobody is asked when Codex's provider {}]\n",
            shortened(&what)
        );
        if self.spoken.try_send(ClientEvent::Text(told)).is_err() {
            tracing::error!(what, "what Codex's provider did is not in the record");
        }
    }

    /// Tells everybody what Codex did without asking, and ends its turn.
    pub(super) fn tell_and_interrupt(&mut self, thread: &str, what: &str) {
        tracing::error!(what, "Codex did something without asking");
        let told = format!("\n[PVP: Codex asked nobody when {what}. Its turn is interrupted.]\n");
        if self.spoken.try_send(ClientEvent::Text(told)).is_err() {
            tracing::error!("what Codex did without asking is not in the record");
        }
        self.warn(
            thread,
            &format!("Codex asked nobody when {what}; its turn is interrupted"),
        );
        let turn = self.threads.get(thread).turn.unwrap_or_default();
        let params = json!({ "threadId": thread, "turnId": turn });
        self.ask("turn/interrupt", params, OwnRequest::Other);
        self.expect_end_of_turns();
    }
}

/// A value as people read it.
fn shown_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

fn shortened(text: &str) -> String {
    let plain = text
        .chars()
        .filter(|char| !char.is_control() || *char == '\n');
    plain.take(MAX_TOLD_CHARS).collect()
}

/// Whether Codex says that it did not do what it had begun.
fn was_not_run(body: &JsonObject) -> bool {
    match text(body, "type") {
        // A failed call of a tool may have been refused before it was made, which has no duration.
        "mcpToolCall" => {
            text(body, "status") == "failed"
                && body.get("result").is_none_or(Value::is_null)
                && body.get("durationMs").and_then(Value::as_i64).unwrap_or(0) == 0
        }
        "fileChange" => text(body, "status") != "completed",
        "commandExecution" => {
            let ran = |name: &str| body.get(name).is_some_and(|it| !it.is_null());
            text(body, "status") == "declined"
                || !ran("exitCode") && !ran("processId") && !ran("aggregatedOutput")
        }
        _ => false,
    }
}
