//! Deciding: an input and the session as it is give the entries that follow.

mod agents;
mod context;
mod deadlines;
mod interrupts;
mod people;
mod proposals;
mod rules;
mod runs;
mod shell;
mod votes;

pub(crate) use people::WORKING_DIRECTORY;

use pvp_policy::Policy;
use pvp_protocol::{
    ClientMessage, Digest, Envelope, ExecutionLimits, Heading, Limits, MessageId, ParticipantId,
    Refusal, Sender, ServerMessage, Timestamp,
};

use crate::authority;
use crate::entry::{Audience, Entry, Private};
use crate::input::{Fresh, Input, Said, Stamped};
use crate::seen::Sighting;
use crate::state::Session;

/// What the server's owner has set, the same for every session.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub limits: Limits,
    /// Trusted loopback use: reads run without a sandbox, and whole outputs come in results.
    pub open: bool,
    /// Told to newcomers as `session:working_directory` until an executor says otherwise.
    pub working_directory: Option<String>,
    pub read: ExecutionLimits,
    pub write: ExecutionLimits,
    pub destructive: ExecutionLimits,
    /// Time limit of `mode: slow`.
    pub slow_timeout_ms: u64,
    /// Output of background and interactive runs that is recorded.
    pub background_output_bytes: u64,
    /// How long a grant may wait for its executor to begin.
    pub grant_life_seconds: u64,
}

const MIB: u64 = 1024 * 1024;

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            open: false,
            working_directory: None,
            read: ExecutionLimits {
                timeout_ms: 30_000,
                output_bytes: 10 * MIB,
            },
            write: ExecutionLimits {
                timeout_ms: 60_000,
                output_bytes: 5 * MIB,
            },
            destructive: ExecutionLimits {
                timeout_ms: 120_000,
                output_bytes: MIB,
            },
            slow_timeout_ms: 15 * 60_000,
            background_output_bytes: 64 * MIB,
            grant_life_seconds: 60,
        }
    }
}

/// What a decision may look up: the rules for commands, and the owner's settings.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    pub policy: &'a Policy,
    pub settings: &'a Settings,
}

/// Something told at once and never kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Whisper {
    pub envelope: Envelope,
    pub audience: Audience,
}

/// What the one who asked is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Accepted, as this seq if it is kept.
    Accepted(Option<u64>),
    /// The same message had been applied before, as this seq.
    Duplicate(u64),
    /// Not done. There may still be entries: a blocked proposal is recorded.
    Refused(Refusal),
}

/// What follows from an input.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub entries: Vec<Entry>,
    pub whisper: Option<Whisper>,
    pub answer: Answer,
}

impl Session {
    /// Decides what follows from an input, and becomes what those entries make of the session.
    ///
    /// The entries must be written before anyone hears of them. If they cannot be, throw this
    /// session away and fold it again from what was written.
    pub fn apply(&mut self, terms: Terms<'_>, stamped: Stamped<Input>) -> Outcome {
        let at = stamped.at.max(self.clock);
        let fresh = Fresh::new(at, stamped.seed);
        let mut decision = Decision {
            session: self,
            terms,
            at,
            fresh,
            heard: None,
            entries: Vec::new(),
            whisper: None,
        };
        let answer = match decision.decide(stamped.input) {
            Ok(answer) => answer,
            Err(refusal) => {
                debug_assert!(
                    decision.entries.is_empty(),
                    "refused after something was decided"
                );
                Answer::Refused(refusal)
            }
        };
        Outcome {
            entries: decision.entries,
            whisper: decision.whisper,
            answer,
        }
    }
}

/// A decision in the making. Whatever is said changes the session at once, so that what follows
/// from it is decided on the session as it then is.
pub(crate) struct Decision<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) terms: Terms<'a>,
    pub(crate) at: Timestamp,
    pub(crate) fresh: Fresh,
    /// The message that is being decided on, with its fingerprint.
    heard: Option<(MessageId, Digest)>,
    entries: Vec<Entry>,
    whisper: Option<Whisper>,
}

pub(crate) type Decided = Result<Answer, Refusal>;

impl Decision<'_> {
    fn decide(&mut self, input: Input) -> Decided {
        match input {
            Input::Create { by, id, create } => self.create(&by, id, create),
            Input::Join {
                identity,
                announce,
                id,
            } => self.join(&identity, announce, id),
            Input::Say { by, said } => self.say(&by, said),
            Input::Attendance {
                participant,
                attendance,
                last_active,
            } => Ok(self.attendance(&participant, attendance, last_active)),
            Input::Tick => {
                self.tick();
                Ok(Answer::Accepted(None))
            }
        }
    }

    fn say(&mut self, by: &ParticipantId, said: Said) -> Decided {
        let Some(member) = self.session.people.get(by).filter(|member| !member.left) else {
            return Err(Refusal::NotJoined);
        };
        authority::check(by, member, &said.message)?;
        let digest = said.digest(by);
        self.heard = Some((said.id.clone(), digest));
        match self.session.seen.look(&said.id, &digest) {
            Sighting::Same(seq) => return Ok(self.repeated(&said.id, seq)),
            Sighting::Other => return Err(Refusal::IdReused(said.id)),
            Sighting::New => {}
        }
        // Proposals and gates outlive the memory of recent messages.
        if self.session.gates.contains_key(&said.id)
            || self.session.proposals.contains_key(&said.id)
        {
            return Err(Refusal::IdReused(said.id));
        }
        if let Some(closed) = self.session.closed.get(&said.id) {
            return Err(Refusal::ProposedBefore(said.id, closed.ending.to_string()));
        }
        if self.session.has_ended() && !speaks_of_a_run(&said.message) {
            return Err(Refusal::SessionEnded(self.session.id.clone()));
        }
        if said.fork.is_some() {
            return Err(forks());
        }
        self.dispatch(by, said)
    }

    fn dispatch(&mut self, by: &ParticipantId, said: Said) -> Decided {
        use ClientMessage as M;
        match said.message.clone() {
            M::SessionCreate(_) => Err(Refusal::SessionExists(self.session.id.clone())),
            M::SessionJoin(_) => Err(Refusal::InvalidState(
                "you have joined this session already".to_owned(),
            )),
            M::SessionLeave(leave) => Ok(self.leave(by, &said, leave)),
            M::SessionEnd(end) => Ok(self.end(by, &said, end)),
            M::SessionConfigUpdate(update) => self.config_update(by, &said, update),
            M::Announce(announce) => self.announce_again(by, &said, announce),
            M::RoleChange(change) => self.role_change(by, &said, change),
            M::PresenceUpdate(presence) => Ok(self.whisper(by, said, presence)),
            M::PromptDraft(draft) => Ok(self.whisper(by, said, draft)),
            M::ContextAdd(add) => self.context_add(by, &said, add),
            M::ContextUpdate(update) => self.context_update(by, &said, update),
            M::ContextRemove(remove) => self.context_remove(by, &said, remove),
            M::SecretShare(share) => self.secret_share(by, &said, share),
            M::SecretRevoke(revoke) => self.secret_revoke(by, &said, revoke),
            M::PromptSubmit(prompt) => self.prompt_submit(by, &said, prompt),
            M::PromptAmend(amend) => self.prompt_amend(by, &said, amend),
            M::ThinkingStart(start) => self.thinking_start(by, &said, start),
            M::ThinkingChunk(chunk) => self.thinking_goes_on(by, &said, chunk),
            M::ThinkingEnd(end) => self.thinking_goes_on(by, &said, end),
            M::ResponseStart(start) => self.response_start(by, &said, start),
            M::ResponseChunk(chunk) => self.response_goes_on(by, &said, chunk),
            M::ResponseEnd(end) => self.response_goes_on(by, &said, end),
            M::ToolPropose(proposal) => self.propose(by, &said, proposal),
            M::ToolApprove(vote) => self.approve(by, &said, votes::Ballot::from(vote)),
            M::GateApprove(vote) => self.approve(by, &said, votes::Ballot::from(vote)),
            M::ToolReject(vote) => self.reject(by, &said, votes::Ballot::from(vote)),
            M::GateReject(vote) => self.reject(by, &said, votes::Ballot::from(vote)),
            M::GateAmend(amend) => self.amend(by, &said, amend),
            M::ToolOutput(output) => self.output(by, &said, output),
            M::ToolResult(result) => self.result(by, &said, result),
            M::ToolCancel(cancel) => self.cancel(by, &said, cancel),
            M::ToolInput(input) => self.input(by, &said, input),
            M::ShellExec(exec) => self.shell_exec(by, &said, exec),
            M::PolicyAllow(allow) => self.policy_allow(by, &said, allow),
            M::PolicyRevoke(revoke) => self.policy_revoke(by, &said, revoke),
            M::InterruptRaise(interrupt) => self.interrupt(by, &said, interrupt),
            M::InterruptAcknowledge(acknowledgement) => {
                self.acknowledge(by, &said, acknowledgement)
            }
            M::Error(report) => Ok(self.relay(by, &said, report)),
            M::ForkCreate(_) | M::ForkSwitch(_) | M::MergePropose(_) | M::MergeExecute(_) => {
                Err(forks())
            }
            // The edge answers these itself; here they change nothing.
            M::HeartbeatPing(_) | M::HeartbeatPong(_) | M::OutputRead(_) => {
                Ok(Answer::Accepted(None))
            }
        }
    }

    /// A repeated message is acknowledged, unless what it asked for was refused on the record.
    fn repeated(&self, id: &MessageId, seq: u64) -> Answer {
        match self.session.closed.get(id) {
            Some(closed) if closed.ending == crate::proposal::Ending::Blocked => Answer::Refused(
                Refusal::ProposedBefore(id.clone(), closed.ending.to_string()),
            ),
            Some(_) | None => Answer::Duplicate(seq),
        }
    }

    /// Relays what someone said, to everyone.
    fn relay(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        message: impl Into<ServerMessage>,
    ) -> Answer {
        self.relay_to(by, said, message, Audience::everyone())
    }

    /// Relays what someone said, to those who may see it.
    fn relay_to(
        &mut self,
        by: &ParticipantId,
        said: &Said,
        message: impl Into<ServerMessage>,
        audience: Audience,
    ) -> Answer {
        let origin = match &self.heard {
            Some((id, digest)) if *id == said.id => *digest,
            Some(_) | None => said.digest(by),
        };
        let heading = self.heading(by, said);
        let seq = self.append(heading, message.into(), audience, None, Some(origin));
        Answer::Accepted(Some(seq))
    }

    fn heading(&self, by: &ParticipantId, said: &Said) -> Heading {
        Heading {
            id: said.id.clone(),
            session: self.session.id.clone(),
            sender: Sender::Participant(by.clone()),
            reference: said.reference.clone(),
            causal_refs: said.causal_refs.clone(),
            fork: said.fork.clone(),
        }
    }

    /// The server says something to everyone.
    fn tell(&mut self, message: impl Into<ServerMessage>, about: Option<MessageId>) -> MessageId {
        self.tell_to(message, about, Audience::everyone(), None)
    }

    fn tell_to(
        &mut self,
        message: impl Into<ServerMessage>,
        about: Option<MessageId>,
        audience: Audience,
        private: Option<Private>,
    ) -> MessageId {
        let id = self.fresh.id();
        let heading = Heading {
            id: id.clone(),
            session: self.session.id.clone(),
            sender: Sender::System,
            reference: about,
            causal_refs: Vec::new(),
            fork: None,
        };
        self.append(heading, message.into(), audience, private, None);
        id
    }

    /// Told at once, never kept.
    fn whisper(
        &mut self,
        by: &ParticipantId,
        said: Said,
        message: impl Into<ServerMessage>,
    ) -> Answer {
        let heading = self.heading(by, &said);
        let envelope = Envelope {
            heading,
            at: self.at,
            seq: None,
            message: message.into(),
        };
        self.whisper = Some(Whisper {
            envelope,
            audience: Audience::everyone(),
        });
        Answer::Accepted(None)
    }

    fn append(
        &mut self,
        heading: Heading,
        message: ServerMessage,
        audience: Audience,
        private: Option<Private>,
        origin: Option<Digest>,
    ) -> u64 {
        let seq = self.session.head + 1;
        let envelope = Envelope {
            heading,
            at: self.at,
            seq: Some(seq),
            message,
        };
        let entry = Entry {
            envelope,
            audience,
            private,
            origin,
        };
        self.session.evolve(&entry);
        self.entries.push(entry);
        seq
    }

    /// New work waits while the session is paused.
    fn not_paused(&self) -> Result<(), Refusal> {
        self.session
            .paused()
            .map_or(Ok(()), |who| Err(Refusal::SessionPaused(who)))
    }
}

/// What was running when a session ended may still be accounted for.
fn speaks_of_a_run(message: &ClientMessage) -> bool {
    matches!(
        message,
        ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_)
    )
}

fn forks() -> Refusal {
    Refusal::InvalidState("forks and merges are not available on this server".to_owned())
}
