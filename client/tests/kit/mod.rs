//! A stage: a story played through the real session core, and what one viewer is told of it.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part of the kit"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy knows test functions, but not what they call"
)]

pub mod step;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use pvp_client::View;
use pvp_policy::Policy;
use pvp_protocol::payload::{
    Announce, ErrorReport, HeartbeatPing, PresenceStatus, PresenceUpdate, SessionAck,
};
use pvp_protocol::{
    ClientMessage, Digest, Envelope, ExtraFields, Heading, MessageId, ParticipantId, Sender,
    ServerMessage, SessionId, Timestamp,
};
use pvp_session::{
    Answer, DecisionContext, Entry, Identity, Input, Member, Session, SessionSettings, Stamped,
    Submitted,
};
use serde_json::Value;

pub use step::Step;

static POLICY: LazyLock<Policy> = LazyLock::new(Policy::built_in);

/// When every story begins: 2026-01-01T00:00:00Z.
const BEGIN_MS: u64 = 1_767_225_600_000;

/// How much history a newcomer is told.
const HISTORY: u64 = 500;

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

/// A client's message, as its type and payload stand on the wire.
pub fn message(kind: &str, payload: &Value) -> ClientMessage {
    ClientMessage::parse_payload(kind, &payload.to_string())
        .unwrap_or_else(|| panic!("`{kind}` is not for clients"))
        .unwrap_or_else(|error| panic!("`{kind}` {payload}: {error}"))
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

/// Folds what was told into a view.
pub fn view<'a>(told: impl IntoIterator<Item = &'a Envelope>) -> View {
    let mut view = View::default();
    told.into_iter().for_each(|envelope| view.fold(envelope));
    view
}

/// Whether the viewer's connection is up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Up,
    Down,
}

/// One session, its log, and one viewer.
pub struct Stage {
    pub session: Session,
    pub log: Vec<Entry>,
    pub told: Vec<Envelope>,
    pub now: Timestamp,
    pub heard: Option<Answer>,
    settings: SessionSettings,
    viewer: ParticipantId,
    line: Line,
    presence: BTreeMap<ParticipantId, PresenceStatus>,
    seeds: u64,
    unkept: u64,
}

impl Stage {
    pub fn new(viewer: &str, settings: SessionSettings) -> Self {
        Self {
            session: Session::new(SessionId::parse("story").unwrap()),
            log: Vec::new(),
            told: Vec::new(),
            now: at(0),
            heard: None,
            settings,
            viewer: person(viewer),
            line: Line::Down,
            presence: BTreeMap::new(),
            seeds: 0,
            unkept: 0,
        }
    }

    /// Plays a whole story.
    pub fn play(steps: &[Step]) -> Self {
        let (viewer, settings) = steps.first().and_then(Step::setting).unwrap();
        let mut stage = Self::new(viewer, settings);
        for (step, next) in steps
            .iter()
            .zip(steps.iter().skip(1).map(Some).chain([None]))
        {
            stage.step(step);
            let refused = matches!(stage.heard, Some(Answer::Refused(_)));
            let expected =
                matches!(step, Step::Expect { .. }) || matches!(next, Some(Step::Expect { .. }));
            assert!(
                !refused || expected,
                "{step:?} is refused: {:?}",
                stage.heard
            );
            if expected && next.is_none_or(|next| !matches!(next, Step::Expect { .. })) {
                stage.heard = None;
            }
        }
        stage
    }

    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Wait { ms } => self.now = self.now.plus_millis(*ms),
            Step::Drop => {
                self.line = Line::Down;
                self.presence
                    .insert(self.viewer.clone(), PresenceStatus::Disconnected);
            }
            Step::Ping => self.whisper(HeartbeatPing::default()),
            Step::Presence { who, status } => self.notice(&person(who), *status),
            Step::Expect { answer } => {
                let heard = answer_line(self.heard.as_ref().unwrap());
                assert!(heard.starts_with(answer.as_str()), "heard {heard}");
            }
            Step::Join {
                announce,
                after,
                history,
                ..
            } => {
                let before = self.log.len() as u64;
                self.decide(step);
                self.notice(&announce.id, PresenceStatus::Active);
                if announce.id == self.viewer {
                    self.enter(before, *after, history.unwrap_or(HISTORY));
                } else {
                    self.tell_after(before);
                }
            }
            Step::Create { .. }
            | Step::Say { .. }
            | Step::Quiet { .. }
            | Step::Back { .. }
            | Step::Tick => {
                let before = self.log.len() as u64;
                self.decide(step);
                self.answer(step);
                self.tell_after(before);
            }
        }
    }

    fn decide(&mut self, step: &Step) {
        let input = step
            .input(self.now, |proposal| self.digest(proposal))
            .unwrap();
        self.apply(input);
    }

    /// Decides one input and writes it down, without telling anyone.
    pub fn apply(&mut self, input: Input) {
        self.seeds += 1;
        let seed = *Digest::of(&[b"story", &self.seeds.to_le_bytes()]).as_bytes();
        let terms = DecisionContext {
            policy: &POLICY,
            settings: &self.settings,
        };
        let stamped = Stamped {
            at: self.now,
            seed,
            input,
        };
        let outcome = self.session.apply(terms, stamped);
        self.log.extend(outcome.entries);
        self.heard = Some(outcome.answer);
        if let (Some(whisper), Line::Up) = (outcome.ephemeral, self.line) {
            self.told.push(whisper.envelope);
        }
    }

    pub fn say(&mut self, by: &str, said: Submitted) {
        self.apply(Input::Submit {
            by: person(by),
            submitted: said,
        });
    }

    /// The digest of what a proposal, as it stands, would do.
    pub fn digest(&self, proposal: &str) -> String {
        let proposal = self.session.proposal(&id(proposal)).unwrap();
        proposal.assessment.digest.to_string()
    }

    /// What a server tells someone who joins: welcome, answer, people, history, directory, present.
    fn enter(&mut self, before: u64, after: Option<u64>, history: u64) {
        self.line = Line::Up;
        let Some(Answer::Accepted(seq)) = self.heard.clone() else {
            panic!("the viewer is refused: {:?}", self.heard);
        };
        let welcome = self.welcome();
        self.whisper(welcome);
        self.whisper(SessionAck {
            id: id("join"),
            seq,
            duplicate: false,
        });
        if let Some(after) = after {
            return self.tell_after(after);
        }
        let announcements = self.session.announcements();
        let others = announcements.filter(|other| other.id != self.viewer);
        for other in others.cloned().collect::<Vec<_>>() {
            let sender = Sender::Participant(other.id.clone());
            self.whisper_by(sender, other);
        }
        let present = self.tell_between(before.saturating_sub(history), before);
        if let Some(directory) = self.session.working_directory_context().cloned() {
            self.whisper(directory);
        }
        self.tell_after(present);
    }

    pub fn welcome(&self) -> ServerMessage {
        let presence = |id: &ParticipantId| {
            self.presence
                .get(id)
                .copied()
                .unwrap_or(PresenceStatus::Disconnected)
        };
        let limits = &self.settings.limits;
        let welcome = self
            .session
            .welcome(&self.viewer, limits, presence, "pvp".to_owned());
        welcome.unwrap().into()
    }

    /// A welcome as it would be told at this moment.
    pub fn welcome_envelope(&self) -> Envelope {
        self.unkept(Sender::System, id("welcome"), self.welcome())
    }

    fn notice(&mut self, who: &ParticipantId, status: PresenceStatus) {
        if self.presence.insert(who.clone(), status) != Some(status) {
            let (participant, last_active) = (who.clone(), self.now);
            let extra = ExtraFields::new();
            self.whisper(PresenceUpdate {
                participant,
                status,
                last_active,
                extra,
            });
        }
    }

    fn answer(&mut self, step: &Step) {
        let Step::Say { by, id: name, .. } = step else {
            return;
        };
        if *by != self.viewer.as_str() {
            return;
        }
        let name = id(name);
        match self.heard.clone().unwrap() {
            Answer::Accepted(seq) => self.whisper(SessionAck {
                id: name,
                seq,
                duplicate: false,
            }),
            Answer::Duplicate(seq) => {
                let seq = Some(seq);
                self.whisper(SessionAck {
                    id: name,
                    seq,
                    duplicate: true,
                });
            }
            Answer::Refused(refusal) => self.whisper(ErrorReport {
                code: refusal.code(),
                message: refusal.to_string(),
                recoverable: refusal.is_recoverable(),
                details: None,
                related_to: Some(name),
                extra: ExtraFields::new(),
            }),
        }
    }

    fn whisper(&mut self, message: impl Into<ServerMessage>) {
        self.whisper_by(Sender::System, message);
    }

    fn whisper_by(&mut self, sender: Sender, message: impl Into<ServerMessage>) {
        if self.line == Line::Up {
            self.unkept += 1;
            let id = id(&format!("u{}", self.unkept));
            self.told.push(self.unkept(sender, id, message.into()));
        }
    }

    fn unkept(&self, sender: Sender, id: MessageId, message: ServerMessage) -> Envelope {
        let heading = Heading {
            id,
            session: self.session.id().clone(),
            sender,
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        };
        Envelope {
            heading,
            at: self.now,
            seq: None,
            message,
        }
    }

    fn tell_after(&mut self, seq: u64) {
        self.tell_between(seq, u64::MAX);
    }

    fn tell_between(&mut self, after: u64, until: u64) -> u64 {
        if self.line == Line::Up {
            let entries = self.log.iter();
            let wanted = entries.filter(|entry| entry.seq() > after && entry.seq() <= until);
            let seen: Vec<_> = wanted.filter_map(|entry| self.seen(entry)).collect();
            self.told.extend(seen);
        }
        until
    }

    /// An entry as the viewer is told it, if they may see it.
    pub fn seen(&self, entry: &Entry) -> Option<Envelope> {
        let may_approve = self
            .session
            .member(&self.viewer)
            .is_some_and(Member::may_vote);
        let mut envelope = entry.envelope.clone();
        if let (ServerMessage::ToolExecute(execute), Some(private)) =
            (&mut envelope.message, &entry.private)
            && private.to == self.viewer
        {
            execute.grant.nonce = Some(private.nonce.clone());
        }
        entry
            .audience
            .includes(&self.viewer, may_approve)
            .then_some(envelope)
    }
}

fn answer_line(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(Some(seq)) => format!("accepted {seq}"),
        Answer::Accepted(None) => "accepted".to_owned(),
        Answer::Duplicate(seq) => format!("duplicate {seq}"),
        Answer::Refused(refusal) => format!("refused {:?}: {refusal}", refusal.code()),
    }
}
