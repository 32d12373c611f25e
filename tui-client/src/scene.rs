//! A screen without a terminal: told messages and keys go in, the picture comes out as text.

use crossterm::event::{KeyEvent, KeyModifiers};
use pvp_protocol::{Digest, Limits, SessionConfig, Timestamp, WireMessage, parse_server_message};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Size;
use serde_json::{Value, json};

use crate::app::{App, Effect, Input};
use crate::config::Config;
use crate::keys::Chord;

/// Noon of a day.
pub(crate) const NOON: &str = "2026-01-01T12:00:00.000Z";

pub(crate) struct Scene {
    pub(crate) app: App,
    pub(crate) effects: Vec<Effect>,
    pub(crate) now: Timestamp,
    seq: u64,
}

impl Scene {
    /// A session in which ann drives and administers, bob approves, and bot is an agent.
    pub(crate) fn new(width: u16, height: u16) -> Self {
        Self::with(Config::default(), width, height)
    }

    pub(crate) fn with(config: Config, width: u16, height: u16) -> Self {
        let mut scene = Self::empty(config, width, height);
        scene.welcome(&["driver", "admin"]);
        scene
    }

    /// A screen before anything was told.
    pub(crate) fn empty(config: Config, width: u16, height: u16) -> Self {
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
        self.welcome_to(roles, &[]);
    }

    /// A welcome to a session in which these commands wait.
    pub(crate) fn welcome_to(&mut self, roles: &[&str], waiting: &[&str]) {
        let gates = waiting.iter().enumerate().map(|(number, command)| {
            json!({
                "gate": format!("gate-{number}"),
                "request": self.request(&format!("old-{number}"), command, "write"),
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
        let welcome = json!({
            "participant": "ann", "roles": roles, "capabilities": [], "name": "The shop",
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
        self.whisper("system", "session.welcome", welcome);
    }

    fn envelope(&mut self, seq: Option<u64>, id: &str, sender: &str, kind: &str, payload: Value) {
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
        self.input(Input::Told(Box::new(envelope)));
    }

    /// Tells something that is not kept.
    pub(crate) fn whisper(&mut self, sender: &str, kind: &str, payload: Value) {
        self.envelope(None, "whisper", sender, kind, payload);
    }

    /// Tells something; gives its id.
    pub(crate) fn tell(&mut self, sender: &str, kind: &str, payload: Value) -> String {
        self.seq += 1;
        let id = format!("m{}", self.seq);
        self.envelope(Some(self.seq), &id, sender, kind, payload);
        id
    }

    /// Tells what was told last once more, as after a connection that broke.
    pub(crate) fn tell_again(&mut self, sender: &str, kind: &str, payload: Value) {
        let id = format!("m{}", self.seq);
        self.envelope(Some(self.seq), &id, sender, kind, payload);
    }

    pub(crate) fn input(&mut self, input: Input) {
        let effects = self.app.update(self.now, input);
        self.effects.extend(effects);
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now = self.now.plus_millis(ms);
        self.input(Input::Tick);
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

    fn proposal(command: &str, category: &str) -> Value {
        json!({
            "tool_name": "shell", "arguments": { "full_command": command }, "agent": "bot",
            "risk_level": "safe", "description": "keep the shop tidy", "requires_approval": false,
            "category": "shell_execute", "assessment": Self::assessment(command, category),
        })
    }

    pub(crate) fn propose(&mut self, command: &str, category: &str) -> String {
        let propose = Self::proposal(command, category);
        self.tell("bot", "tool.propose", propose)
    }

    fn request(&self, proposal: &str, command: &str, category: &str) -> Value {
        json!({
            "action_type": "tool", "action_ref": proposal, "quorum": { "type": "any", "count": 1 },
            "timeout_seconds": 300, "message": "?", "category": category,
            "digest": Self::digest(command), "deadline": self.now.plus_seconds(300),
            "on_timeout": "reject", "voters": ["ann", "bob"],
        })
    }

    /// A command that waits; gives the ids of proposal and gate.
    pub(crate) fn gate(&mut self, command: &str, category: &str) -> (String, String) {
        let propose = Self::proposal(command, category);
        self.gate_of(propose, command, category)
    }

    /// The gate of a proposal.
    pub(crate) fn gate_of(
        &mut self,
        propose: Value,
        command: &str,
        category: &str,
    ) -> (String, String) {
        let proposal = self.tell("bot", "tool.propose", propose);
        let request = self.request(&proposal, command, category);
        let gate = self.tell("system", "gate.request", request);
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
        self.tell("system", "gate.resolve", resolve);
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
        });
        let execute = json!({ "tool_proposal": proposal, "approved_by": [], "grant": grant });
        self.tell("system", "tool.execute", execute);
    }

    pub(crate) fn output(&mut self, proposal: &str, stream: &str, text: &str) {
        let output =
            json!({ "tool_proposal": proposal, "stream": stream, "text": text, "complete": false });
        self.tell("bot", "tool.output", output);
    }

    pub(crate) fn result(&mut self, proposal: &str, exit_code: i64) {
        let result = json!({
            "tool_proposal": proposal, "success": exit_code == 0, "duration_ms": 1250,
            "output_ref": proposal, "result": { "exitCode": exit_code },
        });
        self.tell("bot", "tool.result", result);
    }

    /// Presses keys, each as the table writes it.
    pub(crate) fn press(&mut self, keys: &[&str]) {
        for key in keys {
            self.draw();
            let chord = Chord::parse(key).unwrap();
            let mut held = KeyModifiers::NONE;
            held.set(KeyModifiers::CONTROL, chord.has_ctrl());
            held.set(KeyModifiers::ALT, chord.has_alt());
            held.set(KeyModifiers::SHIFT, chord.has_shift());
            self.input(Input::Key(KeyEvent::new(chord.code(), held)));
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

    /// Answers the last message that was sent.
    pub(crate) fn answer(&mut self, answer: Result<&str, &str>) {
        let sent = self.effects.iter().rev().find_map(|effect| match effect {
            Effect::Send(ticket, _) => Some(*ticket),
            Effect::Copy(_)
            | Effect::Fetch { .. }
            | Effect::Find { .. }
            | Effect::Invite(_)
            | Effect::Keep(_)
            | Effect::Call
            | Effect::Redraw
            | Effect::Suspend
            | Effect::Quit => None,
        });
        let answer = answer.map(|id| pvp_protocol::MessageId::parse(id).unwrap());
        let answer = answer.map_err(str::to_owned);
        self.input(Input::Answered(sent.expect("something was sent"), answer));
    }

    /// What was sent, as JSON, in order.
    pub(crate) fn sent(&self) -> Vec<Value> {
        let sent = self.effects.iter().filter_map(|effect| match effect {
            Effect::Send(_, message) => Some((message.kind(), message)),
            Effect::Copy(_)
            | Effect::Fetch { .. }
            | Effect::Find { .. }
            | Effect::Invite(_)
            | Effect::Keep(_)
            | Effect::Call
            | Effect::Redraw
            | Effect::Suspend
            | Effect::Quit => None,
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
        self.app.drawn(drawn);
        terminal.backend().buffer().clone()
    }

    /// The picture, one line a row.
    pub(crate) fn draw(&mut self) -> String {
        crate::offscreen::picture(&self.buffer())
    }
}
