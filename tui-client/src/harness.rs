//! Drives the app in tests: delivers messages and keys, and returns the screen as text.

use crossterm::event::{KeyEvent, KeyModifiers};
use pvp_protocol::{
    Digest, Limits, ParticipantKind, Role, SessionConfig, Timestamp, WireMessage, capabilities_of,
    parse_server_message,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Size;
use serde_json::{Value, json};

use crate::app::{App, AppEffect, AppInput};
use crate::config::TuiConfig;
use crate::keys::KeyChord;

/// The time at which every test begins.
pub(crate) const NOON: &str = "2026-01-01T12:00:00.000Z";

pub(crate) struct AppHarness {
    pub(crate) app: App,
    pub(crate) effects: Vec<AppEffect>,
    pub(crate) now: Timestamp,
    seq: u64,
}

impl AppHarness {
    /// A session in which ann drives and administers, bob approves, and bot is an agent.
    pub(crate) fn new(width: u16, height: u16) -> Self {
        Self::with_config(TuiConfig::default(), width, height)
    }

    pub(crate) fn with_config(config: TuiConfig, width: u16, height: u16) -> Self {
        let mut harness = Self::before_welcome(config, width, height);
        harness.welcome(&["driver", "admin"]);
        harness
    }

    /// An app that has received no message.
    pub(crate) fn before_welcome(config: TuiConfig, width: u16, height: u16) -> Self {
        let now = Timestamp::parse(NOON).unwrap();
        let app = App::new(config, Size { width, height }, now);
        let (effects, seq) = (Vec::new(), 0);
        Self {
            app,
            effects,
            now,
            seq,
        }
    }

    pub(crate) fn welcome(&mut self, roles: &[&str]) {
        self.welcome_with_gates(roles, &[]);
    }

    /// Delivers a welcome to a session in which these commands wait.
    pub(crate) fn welcome_with_gates(&mut self, roles: &[&str], waiting: &[&str]) {
        let gates = waiting.iter().enumerate().map(|(number, command)| {
            json!({
                "gate": format!("gate-{number}"),
                "request": self.gate_request_payload(&format!("old-{number}"), command, "write"),
                "action": { "command": { "form": "shell", "line": command } },
                "assessment": Self::assessment(command, "write"), "proposer": "bot",
                "description": "", "approvals": [], "escalated": false,
            })
        });
        let gates: Vec<_> = gates.collect();
        let person = |id: &str, kind: &str, roles: &[&str], presence: &str| {
            json!({
                "id": id, "name": id, "type": kind, "roles": roles, "transport": "websocket",
                "presence": presence,
                "executor": (kind == "agent").then(|| json!({ "profiles": ["read"], "shell_exec": true, "working_directory": "/srv/shop" })),
            })
        };
        let own_roles: Vec<Role> = roles.iter().map(|role| role.parse().unwrap()).collect();
        let capabilities = capabilities_of(ParticipantKind::Human, &own_roles, &[]);
        let welcome = json!({
            "participant": "ann", "roles": roles, "capabilities": capabilities, "name": "The shop",
            "config": SessionConfig::default(), "head": self.seq,
            "people": [
                person("ann", "human", roles, "active"),
                person("bob", "human", &["approver"], "idle"),
                person("bot", "agent", &["driver"], "active"),
            ],
            "gates": gates, "running": [], "limits": Limits::default(), "server": "pvp 0.1.0",
            "extensions": {
                "supports_shell_exec": true, "supports_amend": true, "supports_allow_rules": true,
                "supports_resume": true, "supports_output_read": true, "supports_forks": false,
            },
        });
        self.deliver_ephemeral("system", "session.welcome", welcome);
    }

    fn deliver_envelope(
        &mut self,
        seq: Option<u64>,
        id: &str,
        sender: &str,
        kind: &str,
        payload: Value,
    ) {
        let mut envelope = json!({
            "v": 1, "id": id, "ts": self.now.to_string(), "session": "shop", "sender": sender,
            "type": kind, "payload": payload,
        });
        if let Some(seq) = seq {
            envelope["seq"] = seq.into();
        }
        let limits = Limits {
            message_bytes: usize::MAX,
            ..Limits::default()
        };
        let envelope =
            parse_server_message(&envelope.to_string(), &limits).map_err(|it| it.refusal);
        let envelope = envelope.unwrap().expect("a known type");
        self.input(AppInput::Message(Box::new(envelope)));
    }

    /// Delivers an ephemeral message.
    pub(crate) fn deliver_ephemeral(&mut self, sender: &str, kind: &str, payload: Value) {
        self.deliver_envelope(None, "ephemeral", sender, kind, payload);
    }

    /// Delivers a logged message; returns its id.
    pub(crate) fn deliver(&mut self, sender: &str, kind: &str, payload: Value) -> String {
        self.seq += 1;
        let id = format!("m{}", self.seq);
        self.deliver_envelope(Some(self.seq), &id, sender, kind, payload);
        id
    }

    /// Delivers a message with the id and number of the last one, as after a lost connection.
    pub(crate) fn deliver_again(&mut self, sender: &str, kind: &str, payload: Value) {
        let id = format!("m{}", self.seq);
        self.deliver_envelope(Some(self.seq), &id, sender, kind, payload);
    }

    pub(crate) fn input(&mut self, input: AppInput) {
        let effects = self.app.update(self.now, input);
        self.effects.extend(effects);
    }

    pub(crate) fn advance_clock(&mut self, ms: u64) {
        self.now = self.now.plus_millis(ms);
        self.input(AppInput::Tick);
    }

    pub(crate) fn digest(command: &str) -> Digest {
        Digest::of(&[command.as_bytes()])
    }

    pub(crate) fn assessment(command: &str, category: &str) -> Value {
        let risk = match category {
            "read" => "safe",
            "write" => "low",
            _ => "high",
        };
        json!({
            "category": category, "risk": risk, "rule": "shop.rule", "reason": "it changes the shop",
            "profile": "none", "digest": Self::digest(command), "policy": "test",
        })
    }

    pub(crate) fn proposal_payload(command: &str, category: &str) -> Value {
        json!({
            "tool_name": "shell", "arguments": { "full_command": command }, "agent": "bot",
            "risk_level": "safe", "description": "keep the shop tidy", "requires_approval": false,
            "category": "shell_execute", "assessment": Self::assessment(command, category),
        })
    }

    pub(crate) fn propose(&mut self, command: &str, category: &str) -> String {
        let propose = Self::proposal_payload(command, category);
        self.deliver("bot", "tool.propose", propose)
    }

    fn gate_request_payload(&self, proposal: &str, command: &str, category: &str) -> Value {
        json!({
            "action_type": "tool", "action_ref": proposal, "quorum": { "type": "any", "count": 1 },
            "timeout_seconds": 300, "message": "?", "category": category,
            "digest": Self::digest(command), "deadline": self.now.plus_seconds(300),
            "on_timeout": "reject", "voters": ["ann", "bob"],
        })
    }

    /// Proposes a command and opens its gate; returns the ids of both.
    pub(crate) fn open_gate(&mut self, command: &str, category: &str) -> (String, String) {
        let propose = Self::proposal_payload(command, category);
        self.open_gate_for(propose, command, category)
    }

    /// Delivers this proposal and opens its gate; returns the ids of both.
    pub(crate) fn open_gate_for(
        &mut self,
        propose: Value,
        command: &str,
        category: &str,
    ) -> (String, String) {
        let proposal = self.deliver("bot", "tool.propose", propose);
        let request = self.gate_request_payload(&proposal, command, category);
        let gate = self.deliver("system", "gate.request", request);
        (proposal, gate)
    }

    pub(crate) fn resolve(&mut self, proposal: &str, gate: &str, outcome: &str, by: &str) {
        let (how, who) = match outcome {
            "approved" => (
                "quorum",
                json!({ "approvals": [{ "participant": by, "at": self.now }] }),
            ),
            _ => ("rejection", json!({ "by": by, "reason": "not today" })),
        };
        let mut resolve = json!({
            "gate": gate, "tool_proposal": proposal, "outcome": outcome, "how": how, "at": self.now,
        });
        for (key, value) in who.as_object().unwrap() {
            resolve[key] = value.clone();
        }
        self.deliver("system", "gate.resolve", resolve);
    }

    pub(crate) fn execute(&mut self, proposal: &str, command: &str, cleared_by: &str, more: Value) {
        let mut action = json!({ "command": { "form": "shell", "line": command } });
        for (key, value) in more.as_object().unwrap() {
            action[key] = value.clone();
        }
        let grant = json!({
            "id": format!("grant-{proposal}"), "executor": "bot", "digest": Self::digest(command),
            "profile": "none", "action": action, "limits": { "timeout_ms": 1, "output_bytes": 1 },
            "expires_at": NOON, "cleared_by": cleared_by, "driver": more["driver"],
            "rule": more["rule"], "allowed_by": more["allowed_by"],
        });
        let execute = json!({ "tool_proposal": proposal, "approved_by": [], "grant": grant });
        self.deliver("system", "tool.execute", execute);
    }

    pub(crate) fn output(&mut self, proposal: &str, stream: &str, text: &str) {
        let output =
            json!({ "tool_proposal": proposal, "stream": stream, "text": text, "complete": false });
        self.deliver("bot", "tool.output", output);
    }

    pub(crate) fn finish_run(&mut self, proposal: &str, exit_code: i64) {
        let result = json!({
            "tool_proposal": proposal, "success": exit_code == 0, "duration_ms": 1250,
            "output_ref": proposal, "result": { "exitCode": exit_code },
        });
        self.deliver("bot", "tool.result", result);
    }

    /// Presses keys, written as in the settings, and draws a frame before each.
    pub(crate) fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.draw();
            let chord = KeyChord::parse(key).unwrap();
            let mut modifiers = KeyModifiers::NONE;
            modifiers.set(KeyModifiers::CONTROL, chord.has_ctrl());
            modifiers.set(KeyModifiers::ALT, chord.has_alt());
            modifiers.set(KeyModifiers::SHIFT, chord.has_shift());
            self.input(AppInput::Key(KeyEvent::new(chord.code(), modifiers)));
        }
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            let key = if c == ' ' {
                "space".to_owned()
            } else {
                c.to_string()
            };
            self.press(&[&key]);
        }
    }

    /// Answers the last message that the app sent.
    pub(crate) fn reply_to_last(&mut self, answer: Result<&str, &str>) {
        let sent = self.effects.iter().rev().find_map(|effect| match effect {
            AppEffect::Send(request_id, _) => Some(*request_id),
            AppEffect::Copy(_)
            | AppEffect::FetchOutput { .. }
            | AppEffect::SearchOutput { .. }
            | AppEffect::CreateInvitation(_)
            | AppEffect::AppendHistory(_)
            | AppEffect::Notify
            | AppEffect::Redraw
            | AppEffect::Suspend
            | AppEffect::Quit => None,
        });
        let answer = answer.map(|id| pvp_protocol::MessageId::parse(id).unwrap());
        let answer = answer.map_err(str::to_owned);
        self.input(AppInput::RequestDone(
            sent.expect("something was sent"),
            answer,
        ));
    }

    /// The messages that the app sent, as JSON, in order.
    pub(crate) fn sent_messages(&self) -> Vec<Value> {
        let sent = self.effects.iter().filter_map(|effect| match effect {
            AppEffect::Send(_, message) => Some((message.kind(), message)),
            AppEffect::Copy(_)
            | AppEffect::FetchOutput { .. }
            | AppEffect::SearchOutput { .. }
            | AppEffect::CreateInvitation(_)
            | AppEffect::AppendHistory(_)
            | AppEffect::Notify
            | AppEffect::Redraw
            | AppEffect::Suspend
            | AppEffect::Quit => None,
        });
        sent.map(|(kind, payload)| json!({ "type": kind, "payload": payload }))
            .collect()
    }

    pub(crate) fn buffer(&mut self) -> Buffer {
        let Size { width, height } = self.app.size;
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let mut drawn = Default::default();
        terminal
            .draw(|frame| drawn = crate::draw::draw(&self.app, frame))
            .unwrap();
        self.app.record_drawn(drawn);
        terminal.backend().buffer().clone()
    }

    /// Draws the screen; returns it as text, one line per row.
    pub(crate) fn draw(&mut self) -> String {
        crate::offscreen::buffer_text(&self.buffer())
    }
}
