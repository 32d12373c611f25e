//! What people ask of Codex from elsewhere: prompts become turns, interrupts end them.

use std::time::Duration;

use pvp_agent::proposer::{PersonRequest, PersonRequestKind};
use pvp_protocol::payload::{FinishReason, InterruptUrgency};
use pvp_protocol::{JsonObject, MessageId};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::methods;
use super::{BridgeEnd, CodexBridge, OwnRequest};
use crate::headless::{ClientEvent, ClientInstruction};
use crate::supervisor::heeded;

/// Prompts that may wait; further ones are dropped.
const MAX_HELD: usize = 64;

/// How long Codex may take to end its turns after an interrupt, before it is stopped.
const INTERRUPT_GRACE: Duration = Duration::from_secs(10);

impl CodexBridge {
    pub(super) async fn on_person(&mut self, request: PersonRequest) {
        match request.kind {
            // It was typed into the screen.
            PersonRequestKind::Prompt(prompt) if prompt.origin.is_some() => {}
            PersonRequestKind::Prompt(prompt) => {
                self.say(format!("{} says: {}", request.name, prompt.content));
            }
            PersonRequestKind::Amend(amend) => {
                let said = &amend.amendment;
                self.say(format!("{} says: (a correction) {said}", request.name));
            }
            PersonRequestKind::Interrupt(interrupt) => {
                self.held_prompts.clear();
                self.interrupts.push((request.id, interrupt.urgency));
                self.interrupt_turns();
                self.acknowledge_interrupts().await;
            }
        }
    }

    pub(super) fn on_instruction(&mut self, instruction: ClientInstruction) {
        match instruction {
            ClientInstruction::Prompt(text) => self.say(text),
            ClientInstruction::Interrupt => {
                self.held_prompts.clear();
                self.interrupt_turns();
            }
            ClientInstruction::Kill => self.end = Some(BridgeEnd::AppServerGone),
        }
    }

    /// Says something to the agent: during its turn, or as the beginning of one.
    pub(super) fn say(&mut self, text: String) {
        let Some(thread) = self.threads.main().map(str::to_owned) else {
            if self.held_prompts.len() < MAX_HELD {
                self.held_prompts.push_back(text);
            }
            return;
        };
        let input = json!([{ "type": "text", "text": text }]);
        match self.threads.get(&thread).turn {
            Some(turn) => {
                let params = json!({ "threadId": thread, "expectedTurnId": turn, "input": input });
                self.ask("turn/steer", params, OwnRequest::Steer { thread, text });
            }
            None => {
                let mut params = JsonObject::new();
                params.insert("threadId".to_owned(), thread.into());
                params.insert("input".to_owned(), input);
                methods::ask_about_everything(&mut params);
                self.ask("turn/start", Value::Object(params), OwnRequest::Other);
            }
        }
    }

    /// Says what had to wait for a conversation.
    pub(super) fn say_held(&mut self) {
        if self.threads.main().is_some() && !self.held_prompts.is_empty() {
            let texts: Vec<_> = self.held_prompts.drain(..).collect();
            self.say(texts.join("\n\n"));
        }
    }

    pub(super) fn interrupt_turns(&mut self) {
        for (thread, turn) in self.threads.turns() {
            let params = json!({ "threadId": thread, "turnId": turn });
            self.ask("turn/interrupt", params, OwnRequest::Other);
        }
        self.expect_end_of_turns();
    }

    /// Ends Codex if it does not end the turns that it was told to end.
    pub(super) fn expect_end_of_turns(&mut self) {
        if !self.threads.turns().is_empty() {
            self.kill_at.get_or_insert(Instant::now() + INTERRUPT_GRACE);
        }
    }

    /// Acknowledges interrupts once no turn is going on.
    pub(super) async fn acknowledge_interrupts(&mut self) {
        if !self.threads.turns().is_empty() {
            return;
        }
        self.kill_at = None;
        for (id, urgency) in std::mem::take(&mut self.interrupts) {
            acknowledge(self, &id, urgency);
        }
    }

    /// Begins to speak to an app-server that no screen speaks to.
    pub(super) fn begin_headless(&mut self) {
        let info = json!({ "name": "pvp", "title": "PVP", "version": env!("CARGO_PKG_VERSION") });
        let params = json!({ "clientInfo": info, "capabilities": { "experimentalApi": true } });
        self.ask("initialize", params, OwnRequest::Initialize);
    }

    pub(super) fn start_own_thread(&mut self, settings: Option<&Value>) {
        let workspace = self.supervisor.place().workspace;
        let mut params = JsonObject::new();
        params.insert("cwd".to_owned(), workspace.to_string_lossy().into());
        for (name, value) in [
            ("model", &self.thread_settings.model),
            ("sandbox", &self.thread_settings.sandbox),
        ] {
            if let Some(value) = value {
                params.insert(name.to_owned(), value.as_str().into());
            }
        }
        let chosen = settings.and_then(|settings| settings.pointer("/config/sandbox_mode"));
        if chosen.is_none_or(Value::is_null) && !params.contains_key("sandbox") {
            // People decide about each call; otherwise nothing that they approve could be written.
            params.insert("sandbox".to_owned(), "workspace-write".into());
        }
        match self.supervise_thread(&mut params, settings) {
            Ok(()) => self.ask(
                "thread/start",
                Value::Object(params),
                OwnRequest::StartThread,
            ),
            Err(why) => self.fail(&why),
        }
    }

    /// Ends because Codex cannot work, and says why.
    pub(super) fn fail(&mut self, why: &str) {
        tracing::error!(why, "Codex cannot work");
        let told = [
            ClientEvent::Text(format!("[{why}]")),
            ClientEvent::TurnEnded(FinishReason::Error),
        ];
        for event in told {
            let _ = self.spoken.try_send(event);
        }
        self.end.get_or_insert(BridgeEnd::AppServerGone);
    }
}

fn acknowledge(bridge: &CodexBridge, id: &MessageId, urgency: InterruptUrgency) {
    let (supervisor, id) = (bridge.supervisor.clone(), id.clone());
    tokio::spawn(async move { supervisor.acknowledge(&id, heeded(urgency)).await });
}
