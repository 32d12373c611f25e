//! Plays a story through the real session core and collects the messages that one viewer receives.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses its own part of this module"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy recognises test functions but not the helpers they call"
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
    ClientMessage, Digest, Envelope, EnvelopeHeader, ExtraFields, MessageId, ParticipantId, Sender,
    ServerMessage, SessionId, Timestamp,
};
use pvp_session::{
    Answer, DecisionContext, Entry, Identity, Input, Member, Session, SessionSettings, Stamped,
    SubmittedMessage,
};
use serde_json::Value;

pub use step::StoryStep;

static POLICY: LazyLock<Policy> = LazyLock::new(Policy::built_in);

/// When every story begins: 2026-01-01T00:00:00Z.
const STORY_START_MS: u64 = 1_767_225_600_000;

/// How many past messages a viewer receives when joining without a resume.
const DEFAULT_HISTORY: u64 = 500;

pub fn participant_id(name: &str) -> ParticipantId {
    ParticipantId::parse(name).unwrap()
}

pub fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

/// The time this many seconds after the start of the story.
pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(STORY_START_MS).plus_seconds(seconds)
}

/// Parses a client message from its wire type and payload.
pub fn client_message(kind: &str, payload: &Value) -> ClientMessage {
    ClientMessage::parse_payload(kind, &payload.to_string())
        .unwrap_or_else(|| panic!("`{kind}` is not for clients"))
        .unwrap_or_else(|error| panic!("`{kind}` {payload}: {error}"))
}

/// The identity that login would give to the participant of this announcement.
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

/// Folds the messages into a view.
pub fn fold_all<'a>(envelopes: impl IntoIterator<Item = &'a Envelope>) -> View {
    let mut view = View::default();
    envelopes
        .into_iter()
        .for_each(|envelope| view.fold(envelope));
    view
}

/// Whether the viewer's connection is up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ViewerConnection {
    Up,
    Down,
}

/// Plays the steps of a story against one session, as seen by one viewer.
pub struct StoryPlayer {
    /// The session core.
    pub session: Session,
    /// Every entry so far, whoever may see it.
    pub log: Vec<Entry>,
    /// The messages that the viewer has received.
    pub delivered: Vec<Envelope>,
    /// The time of the story; only a `Wait` step advances it.
    pub now: Timestamp,
    /// The core's answer to the last input; `None` before the first and after it was checked.
    pub last_answer: Option<Answer>,
    /// The server's settings.
    settings: SessionSettings,
    /// The participant whose messages are collected.
    viewer: ParticipantId,
    /// Whether the viewer is connected.
    viewer_connection: ViewerConnection,
    /// The last presence of each participant.
    presence: BTreeMap<ParticipantId, PresenceStatus>,
    /// The number of inputs so far, from which the random seeds are derived.
    seed_count: u64,
    /// The number of ephemeral messages so far, from which their ids are derived.
    ephemeral_count: u64,
}

impl StoryPlayer {
    pub fn new(viewer: &str, settings: SessionSettings) -> Self {
        Self {
            session: Session::new(SessionId::parse("story").unwrap()),
            log: Vec::new(),
            delivered: Vec::new(),
            now: at(0),
            last_answer: None,
            settings,
            viewer: participant_id(viewer),
            viewer_connection: ViewerConnection::Down,
            presence: BTreeMap::new(),
            seed_count: 0,
            ephemeral_count: 0,
        }
    }

    /// Plays a whole story.
    pub fn play_story(steps: &[StoryStep]) -> Self {
        let (viewer, settings) = steps
            .first()
            .and_then(StoryStep::viewer_and_settings)
            .unwrap();
        let mut player = Self::new(viewer, settings);
        for (step, next) in steps
            .iter()
            .zip(steps.iter().skip(1).map(Some).chain([None]))
        {
            player.play_step(step);
            let refused = matches!(player.last_answer, Some(Answer::Refused(_)));
            let expected = matches!(step, StoryStep::Expect { .. })
                || matches!(next, Some(StoryStep::Expect { .. }));
            assert!(
                !refused || expected,
                "{step:?} is refused: {:?}",
                player.last_answer
            );
            if expected && next.is_none_or(|next| !matches!(next, StoryStep::Expect { .. })) {
                player.last_answer = None;
            }
        }
        player
    }

    pub fn play_step(&mut self, step: &StoryStep) {
        match step {
            StoryStep::Wait { ms } => self.now = self.now.plus_millis(*ms),
            StoryStep::Drop => {
                self.viewer_connection = ViewerConnection::Down;
                self.presence
                    .insert(self.viewer.clone(), PresenceStatus::Disconnected);
            }
            StoryStep::Ping => self.send_ephemeral(HeartbeatPing::default()),
            StoryStep::Presence { who, status } => {
                self.update_presence(&participant_id(who), *status)
            }
            StoryStep::Expect { answer } => {
                let answer_text = format_answer(self.last_answer.as_ref().unwrap());
                assert!(
                    answer_text.starts_with(answer.as_str()),
                    "heard {answer_text}"
                );
            }
            StoryStep::Join {
                announce,
                after,
                history,
                ..
            } => {
                let before = self.log.len() as u64;
                self.apply_step(step);
                self.update_presence(&announce.id, PresenceStatus::Active);
                if announce.id == self.viewer {
                    self.join_viewer(before, *after, history.unwrap_or(DEFAULT_HISTORY));
                } else {
                    self.deliver_after(before);
                }
            }
            StoryStep::Create { .. }
            | StoryStep::Say { .. }
            | StoryStep::Quiet { .. }
            | StoryStep::Back { .. }
            | StoryStep::LeaseEnds { .. }
            | StoryStep::Tick => {
                let before = self.log.len() as u64;
                self.apply_step(step);
                self.reply_to_viewer(step);
                self.deliver_after(before);
            }
        }
    }

    fn apply_step(&mut self, step: &StoryStep) {
        let input = step
            .to_input(self.now, |proposal| self.digest(proposal))
            .unwrap();
        self.apply(input);
    }

    /// Applies one input and logs the entries, without delivering them.
    pub fn apply(&mut self, input: Input) {
        self.seed_count += 1;
        let seed = *Digest::of(&[b"story", &self.seed_count.to_le_bytes()]).as_bytes();
        let context = DecisionContext {
            policy: &POLICY,
            settings: &self.settings,
        };
        let stamped = Stamped {
            at: self.now,
            seed,
            input,
        };
        let decision = self.session.apply(context, stamped);
        self.log.extend(decision.entries);
        self.last_answer = Some(decision.answer);
        if let (Some(ephemeral), ViewerConnection::Up) =
            (decision.ephemeral, self.viewer_connection)
        {
            self.delivered.push(ephemeral.envelope);
        }
    }

    pub fn submit(&mut self, by: &str, submitted: SubmittedMessage) {
        self.apply(Input::Submit {
            by: participant_id(by),
            ceiling: None,
            submitted,
        });
    }

    /// The digest of a proposal's current action.
    pub fn digest(&self, proposal: &str) -> String {
        let proposal = self.session.proposal(&id(proposal)).unwrap();
        proposal.assessment.digest.to_string()
    }

    /// Delivers what a server sends to someone who joins: the welcome, the ack, the announcements,
    /// the history, the working directory, and the entries since.
    fn join_viewer(&mut self, before: u64, after: Option<u64>, history: u64) {
        self.viewer_connection = ViewerConnection::Up;
        let Some(Answer::Accepted(seq)) = self.last_answer.clone() else {
            panic!("the viewer is refused: {:?}", self.last_answer);
        };
        let welcome = self.welcome();
        self.send_ephemeral(welcome);
        self.send_ephemeral(SessionAck {
            id: id("join"),
            seq,
            duplicate: false,
        });
        if let Some(after) = after {
            return self.deliver_after(after);
        }
        let announcements = self.session.announcements();
        let others = announcements.filter(|other| other.id != self.viewer);
        for other in others.cloned().collect::<Vec<_>>() {
            let sender = Sender::Participant(other.id.clone());
            self.send_ephemeral_from(sender, other);
        }
        let present = self.deliver_between(before.saturating_sub(history), before);
        if let Some(directory) = self.session.working_directory_context().cloned() {
            self.send_ephemeral(directory);
        }
        self.deliver_after(present);
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

    /// A welcome as the server would send it at this moment.
    pub fn welcome_envelope(&self) -> Envelope {
        self.ephemeral_envelope(Sender::System, id("welcome"), self.welcome())
    }

    fn update_presence(&mut self, who: &ParticipantId, status: PresenceStatus) {
        if self.presence.insert(who.clone(), status) != Some(status) {
            let (participant, last_active) = (who.clone(), self.now);
            let extra = ExtraFields::new();
            self.send_ephemeral(PresenceUpdate {
                participant,
                status,
                last_active,
                extra,
            });
        }
    }

    fn reply_to_viewer(&mut self, step: &StoryStep) {
        let StoryStep::Say { by, id: name, .. } = step else {
            return;
        };
        if *by != self.viewer.as_str() {
            return;
        }
        let name = id(name);
        match self.last_answer.clone().unwrap() {
            Answer::Accepted(seq) => self.send_ephemeral(SessionAck {
                id: name,
                seq,
                duplicate: false,
            }),
            Answer::Duplicate(seq) => {
                let seq = Some(seq);
                self.send_ephemeral(SessionAck {
                    id: name,
                    seq,
                    duplicate: true,
                });
            }
            Answer::Refused(refusal) => self.send_ephemeral(ErrorReport {
                code: refusal.code(),
                message: refusal.to_string(),
                recoverable: refusal.is_recoverable(),
                details: None,
                related_to: Some(name),
                extra: ExtraFields::new(),
            }),
        }
    }

    fn send_ephemeral(&mut self, message: impl Into<ServerMessage>) {
        self.send_ephemeral_from(Sender::System, message);
    }

    fn send_ephemeral_from(&mut self, sender: Sender, message: impl Into<ServerMessage>) {
        if self.viewer_connection == ViewerConnection::Up {
            self.ephemeral_count += 1;
            let id = id(&format!("u{}", self.ephemeral_count));
            self.delivered
                .push(self.ephemeral_envelope(sender, id, message.into()));
        }
    }

    fn ephemeral_envelope(
        &self,
        sender: Sender,
        id: MessageId,
        message: ServerMessage,
    ) -> Envelope {
        let header = EnvelopeHeader {
            id,
            session: self.session.id().clone(),
            sender,
            reference: None,
            causal_refs: Vec::new(),
            fork: None,
        };
        Envelope {
            header,
            at: self.now,
            seq: None,
            message,
        }
    }

    fn deliver_after(&mut self, seq: u64) {
        self.deliver_between(seq, u64::MAX);
    }

    fn deliver_between(&mut self, after: u64, until: u64) -> u64 {
        if self.viewer_connection == ViewerConnection::Up {
            let entries = self.log.iter();
            let in_range = entries.filter(|entry| entry.seq() > after && entry.seq() <= until);
            let seen: Vec<_> = in_range
                .filter_map(|entry| self.visible_envelope(entry))
                .collect();
            self.delivered.extend(seen);
        }
        until
    }

    /// An entry as the viewer receives it; `None` if they may not see it.
    pub fn visible_envelope(&self, entry: &Entry) -> Option<Envelope> {
        let may_approve = self
            .session
            .member(&self.viewer)
            .is_some_and(Member::may_vote);
        let mut envelope = entry.envelope.clone();
        if let (ServerMessage::ToolExecute(execute), Some(private)) =
            (&mut envelope.message, &entry.grant_nonce)
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

fn format_answer(answer: &Answer) -> String {
    match answer {
        Answer::Accepted(Some(seq)) => format!("accepted {seq}"),
        Answer::Accepted(None) => "accepted".to_owned(),
        Answer::Duplicate(seq) => format!("duplicate {seq}"),
        Answer::Refused(refusal) => format!("refused {:?}: {refusal}", refusal.code()),
    }
}
