//! The prompts that an agent behind an editor answers, and how their turns end.

use agent_client_protocol_schema::v1::{PromptResponse, StopReason};
use pvp_protocol::payload::{FinishReason, InterruptAction};
use serde_json::{Value, json};

use super::{EditorProxy, MAX_OPEN};
use crate::acp::wire::{AcpMessage, INVALID_PARAMS, RpcError};

/// How often an agent is told more within one turn.
const MAX_FOLLOW_UPS: u32 = 10;

pub(super) struct EditorTurn {
    /// The editor's id of its prompt.
    pub(super) editor_id: Value,
    /// The id of the prompt that the agent answers.
    pub(super) agent_id: Value,
    pub(super) follow_ups: u32,
    pub(super) interrupted: bool,
}

impl EditorProxy {
    pub(super) fn begin_turn(&mut self, id: &Value, params: &Value) -> Result<(), RpcError> {
        let conversation = params["sessionId"].as_str().unwrap_or_default().to_owned();
        if self.turns.contains_key(&conversation) || self.turns.len() >= MAX_OPEN {
            let why = "a prompt is being answered already; wait for its end, or cancel it";
            return Err(RpcError::new(INVALID_PARAMS, why));
        }
        self.recorder.prompt(&conversation, &prompt_text(params));
        let turn = EditorTurn {
            editor_id: id.clone(),
            agent_id: id.clone(),
            follow_ups: 0,
            interrupted: false,
        };
        self.turns.insert(conversation, turn);
        Ok(())
    }

    pub(super) fn on_turn_ended(&mut self, conversation: &str, outcome: Result<Value, RpcError>) {
        for event in self.desk.end_turn(conversation) {
            self.recorder.event(conversation, event);
        }
        let Some(turn) = self.turns.remove(conversation) else {
            return;
        };
        let finish = finish_reason(&turn, &outcome);
        let goes_on = finish != FinishReason::Interrupted && turn.follow_ups < MAX_FOLLOW_UPS;
        let more = goes_on.then(|| self.follow_up(conversation)).flatten();
        match more {
            Some(text) => {
                let prompt = json!([{ "type": "text", "text": text }]);
                let params = json!({ "sessionId": conversation, "prompt": prompt });
                let agent_id = self.ask_agent("session/prompt", params);
                self.show(conversation, &text);
                let turn = EditorTurn {
                    agent_id,
                    follow_ups: turn.follow_ups + 1,
                    ..turn
                };
                self.turns.insert(conversation.to_owned(), turn);
            }
            None => {
                self.recorder.end(conversation, finish);
                self.to_editor.respond(turn.editor_id, outcome);
                self.acknowledge();
            }
        }
    }

    /// What the agent is told before its turn is over: why calls were denied, and what other people
    /// said meanwhile.
    pub(super) fn follow_up(&mut self, conversation: &str) -> Option<String> {
        let reasons = self.desk.take_reasons(conversation);
        let said = self.prompts.drain(..);
        let texts: Vec<_> = reasons.into_iter().chain(said).collect();
        (!texts.is_empty()).then(|| texts.join("\n\n"))
    }

    /// Shows the person at the editor what the agent was told.
    pub(super) fn show(&mut self, conversation: &str, text: &str) {
        let content = json!({ "type": "text", "text": text });
        let update = json!({ "sessionUpdate": "user_message_chunk", "content": content });
        let params = json!({ "sessionId": conversation, "update": update });
        self.tell_editor(AcpMessage::notification("session/update", params));
    }

    /// Acknowledges interrupts once no turn is left.
    pub(super) fn acknowledge(&mut self) {
        if !self.turns.is_empty() {
            return;
        }
        self.kill_at = None;
        for interrupt in self.interrupts.drain(..) {
            let supervisor = self.desk.supervisor.clone();
            tokio::spawn(async move {
                supervisor
                    .acknowledge(&interrupt, InterruptAction::Stopped)
                    .await;
            });
        }
    }

    /// Asks the agent to end its turn. What it asked is answered as cancelled.
    pub(super) fn cancel(&mut self, conversation: &str) {
        if let Some(turn) = self.turns.get_mut(conversation) {
            turn.interrupted = true;
            self.desk.cancel(conversation);
        }
        let params = json!({ "sessionId": conversation });
        self.tell_agent(AcpMessage::notification("session/cancel", params));
    }
}

fn finish_reason(turn: &EditorTurn, outcome: &Result<Value, RpcError>) -> FinishReason {
    let response = outcome.as_ref().ok().cloned();
    let response = response.and_then(|it| serde_json::from_value::<PromptResponse>(it).ok());
    match response.map(|response| response.stop_reason) {
        _ if turn.interrupted => FinishReason::Interrupted,
        Some(StopReason::Cancelled) => FinishReason::Interrupted,
        Some(StopReason::MaxTokens) => FinishReason::MaxTokens,
        Some(_) => FinishReason::Complete,
        None => FinishReason::Error,
    }
}

/// The text of a prompt, with the names of what is attached.
fn prompt_text(params: &Value) -> String {
    let blocks = params["prompt"].as_array().into_iter().flatten();
    let text = |block: &Value| {
        let text = block["text"].as_str().map(str::to_owned);
        let link = || {
            block["uri"]
                .as_str()
                .or_else(|| block["resource"]["uri"].as_str())
        };
        text.or_else(|| link().map(|uri| format!("[{uri}]")))
    };
    blocks.filter_map(text).collect::<Vec<_>>().join("\n")
}
