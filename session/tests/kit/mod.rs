//! A room to test in: people and agents around one session, with every promise checked after
//! every step.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part of the kit"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "clippy knows test functions, but not what they call"
)]

pub mod audit;
pub mod line;
pub mod oracle;
pub mod step;
pub mod world;

use std::sync::LazyLock;

use pvp_policy::Policy;
use pvp_protocol::payload::Announce;
use pvp_protocol::{ClientMessage, Digest, MessageId, ParticipantId, SessionId, Timestamp};
use pvp_session::{
    Answer, Attendance, Entry, Identity, Input, Outcome, Said, Session, Settings, Stamped, Terms,
};
use serde_json::{Value, json};

use audit::Audit;
use line::Names;

pub static POLICY: LazyLock<Policy> = LazyLock::new(Policy::built_in);

/// When every test begins: 2026-01-01T00:00:00Z.
pub const BEGIN_MS: u64 = 1_767_225_600_000;

pub fn person(name: &str) -> ParticipantId {
    ParticipantId::parse(name).unwrap()
}

pub fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

/// The moment so many seconds after the beginning.
pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(BEGIN_MS).plus_seconds(seconds)
}

/// A different seed for every number.
pub fn seed(number: u64) -> [u8; 32] {
    *Digest::of(&[b"seed", &number.to_le_bytes()]).as_bytes()
}

/// A client's message, as its type and payload stand on the wire.
pub fn message(kind: &str, payload: &Value) -> ClientMessage {
    ClientMessage::read(kind, &payload.to_string())
        .unwrap_or_else(|| panic!("`{kind}` is not for clients"))
        .unwrap_or_else(|error| panic!("`{kind}` {payload}: {error}"))
}

/// What someone with these roles announces.
pub fn announcement(name: &str, kind: &str, roles: &[&str]) -> Value {
    json!({"id": name, "name": name, "type": kind, "roles": roles, "transport": "websocket"})
}

/// What an agent that runs commands announces.
pub fn executor(name: &str, ability: Value) -> Value {
    let mut announce = announcement(name, "agent", &[]);
    announce["executor"] = ability;
    announce
}

/// The identity that login would give to whoever announces this.
pub fn identity(announce: &Announce) -> Identity {
    Identity {
        participant: announce.id.clone(),
        name: None,
        kind: announce.kind,
        roles: announce.roles.iter().copied().collect(),
        capabilities: announce.capabilities.iter().flatten().copied().collect(),
    }
}

/// `tool.propose` of a shell line.
pub fn shell(agent: &str, line: &str) -> Value {
    json!({
        "tool_name": "shell", "arguments": {"full_command": line}, "agent": agent,
        "risk_level": "safe", "description": "because", "requires_approval": false,
        "category": "shell_execute"
    })
}

/// Compares a whole list of effects.
#[track_caller]
pub fn told(actual: Vec<String>, expected: &[&str]) {
    assert_eq!(actual, expected);
}

/// Compares a refusal.
#[track_caller]
pub fn says_no(actual: String, expected: &str) {
    assert_eq!(actual, expected);
}

/// One session and the people in it.
#[derive(Clone)]
pub struct Room {
    pub session: Session,
    pub settings: Settings,
    pub log: Vec<Entry>,
    pub now: Timestamp,
    audit: Audit,
    shadow: Session,
    names: Names,
    seeds: u64,
    messages: u64,
}

impl Room {
    /// A session that nobody has created.
    pub fn nowhere(settings: Settings) -> Self {
        let session = Session::new(SessionId::parse("room").unwrap());
        Self {
            audit: Audit::new(settings.clone()),
            shadow: session.clone(),
            session,
            settings,
            log: Vec::new(),
            now: at(0),
            names: Names::default(),
            seeds: 0,
            messages: 0,
        }
    }

    /// An empty room with this configuration.
    pub fn empty(settings: Settings, config: Value) -> Self {
        let mut room = Self::nowhere(settings);
        let outcome = room.create("ann", json!({"config": config}));
        assert!(matches!(outcome.answer, Answer::Accepted(Some(1))));
        room
    }

    /// The usual company: ann is admin, bob approver, cat navigator, dan driver, eve observer,
    /// and bot an agent that can hold reads to reading. The next entry is number 8.
    pub fn team(config: Value) -> Self {
        Self::team_under(Settings::default(), config)
    }

    pub fn team_under(settings: Settings, config: Value) -> Self {
        let mut room = Self::empty(settings, config);
        for (name, role) in [
            ("ann", "admin"),
            ("bob", "approver"),
            ("cat", "navigator"),
            ("dan", "driver"),
            ("eve", "observer"),
        ] {
            room.joins(announcement(name, "human", &[role]));
        }
        room.joins(executor(
            "bot",
            json!({"profiles": ["read"], "shell_exec": true}),
        ));
        assert_eq!(room.session.head(), 7);
        room
    }

    /// Decides one input and checks every promise.
    #[track_caller]
    pub fn apply(&mut self, input: Input) -> Outcome {
        self.seeds += 1;
        let before = self.session.clone();
        let stamped = Stamped {
            at: self.now,
            seed: seed(self.seeds),
            input,
        };
        let terms = Terms {
            policy: &POLICY,
            settings: &self.settings,
        };
        let outcome = self.session.apply(terms, stamped);
        if outcome.entries.is_empty() {
            assert_eq!(
                self.session, before,
                "nothing was recorded, so nothing changed"
            );
        }
        for entry in &outcome.entries {
            self.audit.invariant_entry(entry);
            audit::invariant_stored_form(&mut self.shadow, entry);
        }
        self.audit.invariant_nothing_half_done();
        assert_eq!(self.shadow, self.session, "replay equals live");
        self.log.extend(outcome.entries.iter().cloned());
        outcome
    }

    /// An outcome as lines: each entry, then what is whispered, then the answer.
    pub fn lines(&mut self, outcome: &Outcome) -> Vec<String> {
        let mut lines: Vec<_> = outcome
            .entries
            .iter()
            .map(|entry| self.names.entry(entry))
            .collect();
        if let Some(whisper) = &outcome.whisper {
            lines.push(format!("~ {}", self.names.envelope(&whisper.envelope)));
        }
        lines.push(line::answer(&outcome.answer));
        lines
    }

    #[track_caller]
    pub fn create(&mut self, by: &str, create: Value) -> Outcome {
        let id = self.next_id();
        let create = serde_json::from_value(create).unwrap();
        self.apply(Input::Create {
            by: person(by),
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

    /// Decides one input without any checks, for tests that need very many.
    pub fn apply_unchecked(&mut self, input: Input) -> Outcome {
        self.seeds += 1;
        let stamped = Stamped {
            at: self.now,
            seed: seed(self.seeds),
            input,
        };
        let terms = Terms {
            policy: &POLICY,
            settings: &self.settings,
        };
        self.session.apply(terms, stamped)
    }

    #[track_caller]
    pub fn joins_as(&mut self, identity: Identity, announce: Announce) -> Vec<String> {
        let id = self.next_id();
        let outcome = self.apply(Input::Join {
            identity,
            announce,
            id,
        });
        self.lines(&outcome)
    }

    /// Someone says something under an id of its own.
    #[track_caller]
    pub fn says(&mut self, who: &str, kind: &str, payload: Value) -> Vec<String> {
        let id = self.next_id();
        self.says_as(id.as_str(), who, kind, payload)
    }

    /// Someone says something under this id.
    #[track_caller]
    pub fn says_as(&mut self, name: &str, who: &str, kind: &str, payload: Value) -> Vec<String> {
        let outcome = self.say(who, Said::new(id(name), message(kind, &payload)));
        self.lines(&outcome)
    }

    #[track_caller]
    pub fn say(&mut self, who: &str, said: Said) -> Outcome {
        self.apply(Input::Say {
            by: person(who),
            said,
        })
    }

    /// Someone says something that is refused: no entry, no change; returns the answer.
    #[track_caller]
    pub fn refused(&mut self, who: &str, kind: &str, payload: Value) -> String {
        let id = self.next_id();
        self.refused_as(id.as_str(), who, kind, payload)
    }

    #[track_caller]
    pub fn refused_as(&mut self, id: &str, who: &str, kind: &str, payload: Value) -> String {
        let mut lines = self.says_as(id, who, kind, payload);
        assert_eq!(lines.len(), 1, "refused without effects: {lines:?}");
        let answer = lines.remove(0);
        answer
            .strip_prefix("= refused ")
            .unwrap_or_else(|| panic!("expected a refusal, not `{answer}`"))
            .to_owned()
    }

    #[track_caller]
    pub fn proposes(&mut self, name: &str, command: &str) -> Vec<String> {
        self.says_as(name, "bot", "tool.propose", shell("bot", command))
    }

    #[track_caller]
    pub fn approves(&mut self, who: &str, gate: &str) -> Vec<String> {
        self.says(who, "gate.approve", json!({"gate": gate, "approver": who}))
    }

    #[track_caller]
    pub fn rejects(&mut self, who: &str, gate: &str) -> Vec<String> {
        let ballot = json!({"gate": gate, "rejector": who, "reason": "no"});
        self.says(who, "gate.reject", ballot)
    }

    #[track_caller]
    pub fn configures(&mut self, changes: Value) -> Vec<String> {
        let update = json!({"changes": changes, "reason": "test"});
        self.says("ann", "session.config_update", update)
    }

    #[track_caller]
    pub fn leaves(&mut self, who: &str) -> Vec<String> {
        self.says(who, "session.leave", json!({}))
    }

    /// Time goes on, and nothing else happens.
    pub fn later(&mut self, seconds: u64) {
        self.now = self.now.plus_seconds(seconds);
    }

    /// Time goes on, and the clock is looked at.
    #[track_caller]
    pub fn ticks(&mut self, seconds: u64) -> Vec<String> {
        self.later(seconds);
        let outcome = self.apply(Input::Tick);
        self.lines(&outcome)
    }

    #[track_caller]
    pub fn goes_quiet(&mut self, who: &str) -> Vec<String> {
        self.attends(who, Attendance::TimedOut)
    }

    #[track_caller]
    pub fn is_back(&mut self, who: &str) -> Vec<String> {
        self.attends(who, Attendance::Back)
    }

    #[track_caller]
    fn attends(&mut self, who: &str, attendance: Attendance) -> Vec<String> {
        let outcome = self.apply(Input::Attendance {
            participant: person(who),
            attendance,
            last_active: self.now,
        });
        self.lines(&outcome)
    }

    /// The digest of what a proposal, as it stands, would do.
    pub fn digest(&self, proposal: &str) -> String {
        let proposal = self.session.proposal(&id(proposal)).unwrap();
        proposal.assessment.digest.to_string()
    }

    /// The id of the open gate of a proposal.
    pub fn gate_id(&self, proposal: &str) -> String {
        let proposal = id(proposal);
        let gates = self.session.open_gates();
        let (_, gate) = gates.iter().find(|(p, _)| p.id == proposal).unwrap();
        gate.id.to_string()
    }

    pub fn next_id(&mut self) -> MessageId {
        self.messages += 1;
        id(&format!("m{}", self.messages))
    }
}
