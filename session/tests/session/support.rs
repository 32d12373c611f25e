//! A session with participants for tests, in which every invariant is checked after every step.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part of the support code"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy knows test functions, but not what they call"
)]

pub mod auditor;
pub mod entry_format;
pub mod quorum_oracle;
pub mod simulation;
pub mod simulation_step;

use std::sync::LazyLock;

use pvp_policy::Policy;
use pvp_protocol::payload::Announce;
use pvp_protocol::{ClientMessage, Digest, MessageId, ParticipantId, SessionId, Timestamp};
use pvp_session::{
    Answer, AttendanceChange, Decision, DecisionContext, Entry, Identity, Input, Session,
    SessionSettings, Stamped, SubmittedMessage,
};
use serde_json::{Value, json};

use auditor::LogAuditor;
use entry_format::EntryFormatter;

pub static POLICY: LazyLock<Policy> = LazyLock::new(Policy::built_in);

/// The time at which every test starts: 2026-01-01T00:00:00Z.
pub const START_MS: u64 = 1_767_225_600_000;

pub fn participant_id(name: &str) -> ParticipantId {
    ParticipantId::parse(name).unwrap()
}

pub fn message_id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

/// The time `seconds` after the start.
pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(START_MS).plus_seconds(seconds)
}

/// A different seed for every number.
pub fn seed(number: u64) -> [u8; 32] {
    *Digest::of(&[b"seed", &number.to_le_bytes()]).as_bytes()
}

/// Parses a client's message from its type and payload.
pub fn client_message(kind: &str, payload: &Value) -> ClientMessage {
    ClientMessage::parse_payload(kind, &payload.to_string())
        .unwrap_or_else(|| panic!("`{kind}` is not for clients"))
        .unwrap_or_else(|error| panic!("`{kind}` {payload}: {error}"))
}

/// The announcement of someone with these roles.
pub fn announcement(name: &str, kind: &str, roles: &[&str]) -> Value {
    json!({"id": name, "name": name, "type": kind, "roles": roles, "transport": "websocket"})
}

/// The announcement of an agent that runs commands.
pub fn executor_announcement(name: &str, executor_info: Value) -> Value {
    let mut announce = announcement(name, "agent", &[]);
    announce["executor"] = executor_info;
    announce
}

/// The identity that allows exactly this announcement.
pub fn identity(announce: &Announce) -> Identity {
    Identity {
        participant: announce.id.clone(),
        name: None,
        kind: announce.kind,
        roles: announce.roles.iter().copied().collect(),
        capabilities: announce.capabilities.iter().flatten().copied().collect(),
        invited_by: None,
    }
}

/// `tool.propose` of a shell line.
pub fn shell_proposal(agent: &str, line: &str) -> Value {
    json!({
        "tool_name": "shell", "arguments": {"full_command": line}, "agent": agent,
        "risk_level": "safe", "description": "because", "requires_approval": false,
        "category": "shell_execute"
    })
}

/// Compares a whole decision.
#[track_caller]
pub fn assert_lines(actual: Vec<String>, expected: &[&str]) {
    assert_eq!(actual, expected);
}

/// Compares a refusal.
#[track_caller]
pub fn assert_refusal(actual: String, expected: &str) {
    assert_eq!(actual, expected);
}

/// One session, its log and the checks of its invariants.
#[derive(Clone)]
pub struct SessionFixture {
    /// The session under test.
    pub session: Session,
    /// The server's settings.
    pub settings: SessionSettings,
    /// All entries so far.
    pub log: Vec<Entry>,
    /// The current time.
    pub now: Timestamp,
    /// Checks the log.
    audit: LogAuditor,
    /// A second session, folded from the stored entries.
    replayed: Session,
    /// Formats entries as lines.
    formatter: EntryFormatter,
    /// How many seeds have been used.
    seeds: u64,
    /// How many message ids have been used.
    messages: u64,
}

impl SessionFixture {
    /// A session that has not been created.
    pub fn uncreated(settings: SessionSettings) -> Self {
        let session = Session::new(SessionId::parse("room").unwrap());
        Self {
            audit: LogAuditor::new(settings.clone()),
            replayed: session.clone(),
            session,
            settings,
            log: Vec::new(),
            now: at(0),
            formatter: EntryFormatter::default(),
            seeds: 0,
            messages: 0,
        }
    }

    /// A session without participants and with this configuration.
    pub fn created(settings: SessionSettings, config: Value) -> Self {
        let mut fixture = Self::uncreated(settings);
        let decision = fixture.create("ann", json!({"config": config}));
        assert!(matches!(decision.answer, Answer::Accepted(Some(1))));
        fixture
    }

    /// The usual team: ann is admin, bob approver, cat navigator, dan driver, eve observer, and bot
    /// an agent that can sandbox reads. The next entry is number 8.
    pub fn team(config: Value) -> Self {
        Self::team_with_settings(SessionSettings::default(), config)
    }

    pub fn team_with_settings(settings: SessionSettings, config: Value) -> Self {
        let mut fixture = Self::created(settings, config);
        for (name, role) in [
            ("ann", "admin"),
            ("bob", "approver"),
            ("cat", "navigator"),
            ("dan", "driver"),
            ("eve", "observer"),
        ] {
            fixture.joins(announcement(name, "human", &[role]));
        }
        fixture.joins(executor_announcement(
            "bot",
            json!({"profiles": ["read"], "shell_exec": true}),
        ));
        assert_eq!(fixture.session.head(), 7);
        fixture
    }

    /// Applies one input and checks every invariant.
    #[track_caller]
    pub fn apply(&mut self, input: Input) -> Decision {
        self.seeds += 1;
        let before = self.session.clone();
        let stamped = Stamped {
            at: self.now,
            seed: seed(self.seeds),
            input,
        };
        let decision_context = DecisionContext {
            policy: &POLICY,
            settings: &self.settings,
        };
        let decision = self.session.apply(decision_context, stamped);
        if decision.entries.is_empty() {
            assert_eq!(
                self.session, before,
                "nothing was recorded, so nothing changed"
            );
        }
        for entry in &decision.entries {
            self.audit.invariant_entry(entry);
            auditor::invariant_stored_form(&mut self.replayed, entry);
        }
        self.audit.invariant_nothing_half_done();
        assert_eq!(self.replayed, self.session, "replay equals live");
        auditor::invariant_snapshot(&self.session);
        self.log.extend(decision.entries.iter().cloned());
        decision
    }

    /// A decision as lines: each entry, then the ephemeral message, then the answer.
    pub fn lines(&mut self, decision: &Decision) -> Vec<String> {
        let mut lines: Vec<_> = decision
            .entries
            .iter()
            .map(|entry| self.formatter.format_entry(entry))
            .collect();
        if let Some(ephemeral) = &decision.ephemeral {
            lines.push(format!(
                "~ {}",
                self.formatter.format_envelope(&ephemeral.envelope)
            ));
        }
        lines.push(entry_format::format_answer(&decision.answer));
        lines
    }

    #[track_caller]
    pub fn create(&mut self, by: &str, create: Value) -> Decision {
        let id = self.next_id();
        let create = serde_json::from_value(create).unwrap();
        self.apply(Input::Create {
            by: participant_id(by),
            id,
            create,
        })
    }

    /// Joins with an identity that allows exactly what is announced.
    #[track_caller]
    pub fn joins(&mut self, announce: Value) -> Vec<String> {
        let announce: Announce = serde_json::from_value(announce).unwrap();
        let identity = identity(&announce);
        self.joins_as(identity, announce)
    }

    /// Applies one input without any checks, for tests that need very many.
    pub fn apply_unchecked(&mut self, input: Input) -> Decision {
        self.seeds += 1;
        let stamped = Stamped {
            at: self.now,
            seed: seed(self.seeds),
            input,
        };
        let decision_context = DecisionContext {
            policy: &POLICY,
            settings: &self.settings,
        };
        self.session.apply(decision_context, stamped)
    }

    #[track_caller]
    pub fn joins_as(&mut self, identity: Identity, announce: Announce) -> Vec<String> {
        let id = self.next_id();
        let decision = self.apply(Input::Join {
            identity,
            announce,
            id,
        });
        self.lines(&decision)
    }

    /// Someone sends a message with a fresh id.
    #[track_caller]
    pub fn sends(&mut self, who: &str, kind: &str, payload: Value) -> Vec<String> {
        let id = self.next_id();
        self.sends_with_id(id.as_str(), who, kind, payload)
    }

    /// Someone sends a message with this id.
    #[track_caller]
    pub fn sends_with_id(
        &mut self,
        name: &str,
        who: &str,
        kind: &str,
        payload: Value,
    ) -> Vec<String> {
        let decision = self.submit(
            who,
            SubmittedMessage::new(message_id(name), client_message(kind, &payload)),
        );
        self.lines(&decision)
    }

    #[track_caller]
    pub fn submit(&mut self, who: &str, submitted: SubmittedMessage) -> Decision {
        self.apply(Input::Submit {
            by: participant_id(who),
            ceiling: None,
            submitted,
        })
    }

    /// Someone sends a message that is refused, without an entry or a change. Returns the answer.
    #[track_caller]
    pub fn refused(&mut self, who: &str, kind: &str, payload: Value) -> String {
        let id = self.next_id();
        self.refused_with_id(id.as_str(), who, kind, payload)
    }

    #[track_caller]
    pub fn refused_with_id(&mut self, id: &str, who: &str, kind: &str, payload: Value) -> String {
        let mut lines = self.sends_with_id(id, who, kind, payload);
        assert_eq!(lines.len(), 1, "refused without effects: {lines:?}");
        let answer = lines.remove(0);
        answer
            .strip_prefix("= refused ")
            .unwrap_or_else(|| panic!("expected a refusal, not `{answer}`"))
            .to_owned()
    }

    #[track_caller]
    pub fn proposes(&mut self, name: &str, command: &str) -> Vec<String> {
        self.sends_with_id(name, "bot", "tool.propose", shell_proposal("bot", command))
    }

    #[track_caller]
    pub fn approves(&mut self, who: &str, gate: &str) -> Vec<String> {
        self.sends(who, "gate.approve", json!({"gate": gate, "approver": who}))
    }

    #[track_caller]
    pub fn rejects(&mut self, who: &str, gate: &str) -> Vec<String> {
        let ballot = json!({"gate": gate, "rejector": who, "reason": "no"});
        self.sends(who, "gate.reject", ballot)
    }

    #[track_caller]
    pub fn configures(&mut self, changes: Value) -> Vec<String> {
        let update = json!({"changes": changes, "reason": "test"});
        self.sends("ann", "session.config_update", update)
    }

    #[track_caller]
    pub fn leaves(&mut self, who: &str) -> Vec<String> {
        self.sends(who, "session.leave", json!({}))
    }

    /// Advances the time.
    pub fn advance(&mut self, seconds: u64) {
        self.now = self.now.plus_seconds(seconds);
    }

    /// Advances the time and lets deadlines act.
    #[track_caller]
    pub fn advances_and_ticks(&mut self, seconds: u64) -> Vec<String> {
        self.advance(seconds);
        let decision = self.apply(Input::Tick);
        self.lines(&decision)
    }

    #[track_caller]
    pub fn times_out(&mut self, who: &str) -> Vec<String> {
        self.attendance(who, AttendanceChange::TimedOut)
    }

    #[track_caller]
    pub fn comes_back(&mut self, who: &str) -> Vec<String> {
        self.attendance(who, AttendanceChange::Back)
    }

    #[track_caller]
    fn attendance(&mut self, who: &str, attendance: AttendanceChange) -> Vec<String> {
        let decision = self.apply(Input::Attendance {
            participant: participant_id(who),
            attendance,
            last_active: self.now,
        });
        self.lines(&decision)
    }

    /// The digest of a proposal's current action.
    pub fn digest(&self, proposal: &str) -> String {
        let proposal = self.session.proposal(&message_id(proposal)).unwrap();
        proposal.assessment.digest.to_string()
    }

    /// The id of the open gate of a proposal.
    pub fn gate_id(&self, proposal: &str) -> String {
        let proposal = message_id(proposal);
        let gates = self.session.open_gates();
        let (_, gate) = gates.iter().find(|(p, _)| p.id == proposal).unwrap();
        gate.id.to_string()
    }

    pub fn next_id(&mut self) -> MessageId {
        self.messages += 1;
        message_id(&format!("m{}", self.messages))
    }
}
