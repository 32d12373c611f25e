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
    /// What was allowed to run.
    pub(super) command: Option<String>,
    /// Where it is reported, while it runs.
    pub(super) running: Option<CodexCall>,
    /// Whether people know that it ran unasked.
    is_noticed: bool,
}

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

    /// A call of an MCP tool that nobody was asked about yet.
    pub(super) fn find_unasked_tool(
        &self,
        thread: &str,
        server: &str,
        arguments: &Value,
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
                    && same_arguments
            })
            .map(|((_, id), item)| (item.body.get("startedAtMs").and_then(Value::as_i64), id))
            .collect();
        found.sort();
        found.first().map(|(_, id)| (*id).clone())
    }

    pub(super) fn output(&mut self, thread: &str, item: &str, delta: &str) {
        if let Some(Item {
            running: Some(running),
            ..
        }) = self.get(thread, item)
        {
            running.output(delta);
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

/// The items that are calls which Codex asks about.
fn is_call(item: &JsonObject) -> bool {
    ["commandExecution", "fileChange", "mcpToolCall"].contains(&text(item, "type"))
}

impl CodexBridge {
    pub(super) fn on_item_started(&mut self, thread: &str, params: &JsonObject) {
        let Some(Value::Object(body)) = params.get("item") else {
            return;
        };
        if text(body, "type") == "subAgentActivity" {
            let (agent, path) = (text(body, "agentThreadId"), text(body, "agentPath"));
            self.threads.name_subagent(agent, path);
        }
        if !is_call(body) {
            return;
        }
        let id = text(body, "id").to_owned();
        let Some(item) = self.items.entry(thread, &id) else {
            return self.tell_and_interrupt(thread, "it makes more calls than can be followed");
        };
        item.body = body.clone();
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
        if !is_call(body) {
            return;
        }
        let item = self.items.remove(thread, &id).unwrap_or_default();
        if let Some(question) = item.question {
            self.forget_question(question);
        }
        match item.running {
            Some(running) => {
                let mut report = calls::report(body);
                let ran = text(body, "command");
                if item
                    .command
                    .as_deref()
                    .is_some_and(|allowed| allowed != ran)
                {
                    report.success = false;
                    report.error =
                        Some(format!("the client says that it ran something else: {ran}"));
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
            _ => {
                let changes = body.get("changes").and_then(Value::as_array);
                let paths = changes.into_iter().flatten();
                let paths: Vec<_> = paths
                    .filter_map(|change| change.get("path")?.as_str())
                    .take(8)
                    .collect();
                format!("it changed {}", paths.join(", "))
            }
        };
        self.tell_and_interrupt(thread, &what);
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
    }
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
        _ => {
            let ran = |name: &str| body.get(name).is_some_and(|it| !it.is_null());
            text(body, "status") == "declined"
                || !ran("exitCode") && !ran("processId") && !ran("aggregatedOutput")
        }
    }
}
