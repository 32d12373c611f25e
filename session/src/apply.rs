//! Decides what follows from an input, given the state of the session.

mod agents;
mod claims;
mod client_runs;
mod context;
mod deadlines;
mod executor_place;
mod interrupts;
mod participants;
mod proposals;
mod rules;
mod runs;
mod shell;
mod tokens;
mod trials;
mod votes;

pub(crate) use participants::WORKING_DIRECTORY_KEY;

use pvp_policy::Policy;
use pvp_protocol::{
    ClientMessage, Digest, Envelope, EnvelopeHeader, ExecutionLimits, Limits, MessageId,
    ParticipantId, Refusal, Sender, ServerMessage, Timestamp,
};

use crate::authority;
use crate::entry::{Audience, Entry, GrantNonce};
use crate::input::{Ceiling, IdGenerator, Input, Stamped, SubmittedMessage};
use crate::member::Member;
use crate::output_index::IndexChange;
use crate::proposal::ProposalOutcome;
use crate::recent_messages::MessageIdStatus;
use crate::state::Session;

/// The settings of the server's owner, the same for every session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSettings {
    /// What a session and its participants may use.
    pub limits: Limits,
    /// Trusted use on loopback: reads run without a sandbox, and results may contain the whole
    /// output.
    pub open_mode: bool,
    /// Sent to those who join as `session:working_directory`, until an executor announces another.
    pub working_directory: Option<String>,
    /// Unless there is a working directory for all, each session is told of its own below this one.
    pub workspaces: Option<String>,
    /// The limits of reads.
    pub read_limits: ExecutionLimits,
    /// The limits of writes.
    pub write_limits: ExecutionLimits,
    /// The limits of destructive commands.
    pub destructive_limits: ExecutionLimits,
    /// The time limit of `mode: slow`, in milliseconds.
    pub slow_timeout_ms: u64,
    /// How many bytes of the output of background and interactive runs are logged.
    pub background_output_bytes: u64,
    /// How long after a grant its executor may start the run.
    pub grant_lifetime_seconds: u64,
}

const MIB: u64 = 1024 * 1024;

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            open_mode: false,
            working_directory: None,
            workspaces: None,
            read_limits: ExecutionLimits {
                timeout_ms: 30_000,
                output_bytes: 10 * MIB,
            },
            write_limits: ExecutionLimits {
                timeout_ms: 60_000,
                output_bytes: 5 * MIB,
            },
            destructive_limits: ExecutionLimits {
                timeout_ms: 120_000,
                output_bytes: MIB,
            },
            slow_timeout_ms: 15 * 60_000,
            background_output_bytes: 64 * MIB,
            grant_lifetime_seconds: 60,
        }
    }
}

/// The sequence number of `session.create`, with which every log begins.
pub(crate) const CREATION_SEQ: u64 = 1;

/// What a decision depends on besides the session: the policy and the owner's settings.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    pub policy: &'a Policy,
    pub settings: &'a SessionSettings,
}

/// A message that is broadcast but not logged.
#[derive(Debug, Clone, PartialEq)]
pub struct Ephemeral {
    pub envelope: Envelope,
}

/// The answer to the sender of an input.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Accepted, with its sequence number if it is logged.
    Accepted(Option<u64>),
    /// The same message was applied before, with this sequence number.
    Duplicate(u64),
    /// Refused. There may still be entries, because a blocked proposal is logged.
    Refused(Refusal),
}

/// What follows from an input: new entries, perhaps an ephemeral message, and an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub entries: Vec<Entry>,
    /// What the entries add to the indexes of the log.
    pub index_changes: Vec<IndexChange>,
    pub ephemeral: Option<Ephemeral>,
    pub answer: Answer,
}

impl Session {
    /// Decides what follows from an input, and folds the new entries into this session.
    ///
    /// The entries must be written to the log before they are published. If writing fails, discard
    /// this session and fold it again from the log.
    pub fn apply(
        &mut self,
        decision_context: DecisionContext<'_>,
        stamped: Stamped<Input>,
    ) -> Decision {
        let at = stamped.at.max(self.last_entry_at);
        let id_generator = IdGenerator::new(at, stamped.seed);
        let mut builder = DecisionBuilder {
            session: self,
            decision_context,
            at,
            id_generator,
            current_message: None,
            sender: None,
            entries: Vec::new(),
            index_changes: Vec::new(),
            ephemeral: None,
        };
        let answer = match builder.decide(stamped.input) {
            Ok(answer) => answer,
            Err(refusal) => {
                debug_assert!(
                    builder.entries.is_empty(),
                    "refused after something was decided"
                );
                Answer::Refused(refusal)
            }
        };
        Decision {
            entries: builder.entries,
            index_changes: builder.index_changes,
            ephemeral: builder.ephemeral,
            answer,
        }
    }
}

/// Builds a decision. Each entry is folded into the session as soon as it is appended, so that
/// later entries of the same decision are decided on the new state.
pub(crate) struct DecisionBuilder<'a> {
    /// The session that is decided on.
    pub(crate) session: &'a mut Session,
    /// The policy and the owner's settings.
    pub(crate) decision_context: DecisionContext<'a>,
    /// The time of the decision.
    pub(crate) at: Timestamp,
    /// Makes fresh ids and nonces.
    pub(crate) id_generator: IdGenerator,
    /// The message that is being decided on, with its digest; `None` for other inputs.
    current_message: Option<(MessageId, Digest)>,
    /// Who sent it, with no more rights than their token gives; `None` for other inputs.
    sender: Option<Member>,
    /// The entries so far.
    entries: Vec<Entry>,
    /// What they add to the indexes of the log.
    index_changes: Vec<IndexChange>,
    /// The message to broadcast without logging, if any.
    ephemeral: Option<Ephemeral>,
}

pub(crate) type AnswerResult = Result<Answer, Refusal>;

impl DecisionBuilder<'_> {
    fn decide(&mut self, input: Input) -> AnswerResult {
        match input {
            Input::Create { by, id, create } => self.session_create(&by, id, create),
            Input::Join {
                identity,
                announce,
                id,
            } => self.session_join(&identity, announce, id),
            Input::Submit {
                by,
                ceiling,
                submitted,
            } => self.submit(&by, ceiling.as_deref(), submitted),
            Input::TokenEnded {
                participant,
                remaining,
                reason,
            } => Ok(self.end_token(&participant, remaining.as_ref(), reason)),
            Input::Attendance {
                participant,
                attendance,
                last_active,
            } => Ok(self.record_attendance(&participant, attendance, last_active)),
            Input::ConnectionLost { participant } => Ok(self.lose_connection(&participant)),
            Input::ConnectionRestored { participant } => Ok(self.restore_connection(&participant)),
            Input::LeaseExpired { proposal } => Ok(self.expire_lease(&proposal)),
            Input::Tick => {
                self.tick();
                Ok(Answer::Accepted(None))
            }
        }
    }

    fn submit(
        &mut self,
        by: &ParticipantId,
        ceiling: Option<&Ceiling>,
        submitted: SubmittedMessage,
    ) -> AnswerResult {
        let Some(member) = self.session.members.get(by).filter(|member| !member.left) else {
            return Err(Refusal::NotJoined);
        };
        let sender = match ceiling {
            Some(ceiling) => member.bounded_by(ceiling)?,
            None => member.clone(),
        };
        authority::authorize(by, &sender, &submitted.message)?;
        self.sender = Some(sender);
        let digest = submitted.digest(by);
        self.current_message = Some((submitted.id.clone(), digest));
        match self.session.recent_messages.status(&submitted.id, &digest) {
            MessageIdStatus::Duplicate(seq) => return Ok(self.answer_duplicate(&submitted.id, seq)),
            MessageIdStatus::Conflict => return Err(Refusal::IdReused(submitted.id)),
            MessageIdStatus::New => {}
        }
        // Ids of proposals and gates are remembered longer than those of recent messages.
        if self.session.proposal_by_gate.contains_key(&submitted.id)
            || self.session.proposals.contains_key(&submitted.id)
        {
            return Err(Refusal::IdReused(submitted.id));
        }
        if let Some(closed) = self.session.closed_proposals.get(&submitted.id) {
            let outcome = closed.outcome_text();
            return Err(Refusal::AlreadyProposed(submitted.id, outcome));
        }
        if self.session.has_ended() && !is_run_report(&submitted.message) {
            return Err(Refusal::SessionEnded(self.session.id.clone()));
        }
        if submitted.fork.is_some() {
            return Err(forks_unavailable());
        }
        self.dispatch(by, submitted)
    }

    fn dispatch(&mut self, by: &ParticipantId, submitted: SubmittedMessage) -> AnswerResult {
        use ClientMessage as M;
        match submitted.message.clone() {
            // Published clients create a session that they are in: nothing changes.
            M::SessionCreate(_) if self.decision_context.settings.open_mode => {
                Ok(Answer::Duplicate(CREATION_SEQ))
            }
            M::SessionCreate(_) => Err(Refusal::SessionExists(self.session.id.clone())),
            M::SessionJoin(_) => Err(Refusal::InvalidState(
                "you have joined this session already".to_owned(),
            )),
            M::SessionLeave(leave) => self.session_leave(by, &submitted, leave),
            M::SessionEnd(end) => Ok(self.session_end(by, &submitted, end)),
            M::SessionConfigUpdate(update) => self.session_config_update(by, &submitted, update),
            M::Announce(announce) => self.announce(by, &submitted, announce),
            M::RoleChange(change) => self.role_change(by, &submitted, change),
            M::PresenceUpdate(presence) => Ok(self.broadcast_ephemeral(by, submitted, presence)),
            M::PromptDraft(draft) => Ok(self.broadcast_ephemeral(by, submitted, draft)),
            M::ContextAdd(add) => self.context_add(by, &submitted, add),
            M::ContextUpdate(update) => self.context_update(by, &submitted, update),
            M::ContextRemove(remove) => self.context_remove(by, &submitted, remove),
            M::SecretShare(share) => self.secret_share(by, &submitted, share),
            M::SecretRevoke(revoke) => self.secret_revoke(by, &submitted, revoke),
            M::PromptSubmit(prompt) => self.prompt_submit(by, &submitted, prompt),
            M::PromptAmend(amend) => self.prompt_amend(by, &submitted, amend),
            M::ThinkingStart(start) => self.thinking_start(by, &submitted, start),
            M::ThinkingChunk(chunk) => self.thinking_continue(by, &submitted, chunk),
            M::ThinkingEnd(end) => self.thinking_continue(by, &submitted, end),
            M::ResponseStart(start) => self.response_start(by, &submitted, start),
            M::ResponseChunk(chunk) => self.response_continue(by, &submitted, chunk),
            M::ResponseEnd(end) => self.response_end(by, &submitted, end),
            M::ToolPropose(proposal) => self.tool_propose(by, &submitted, proposal),
            M::ToolApprove(vote) => self.approve(by, &submitted, votes::Ballot::from(vote)),
            M::GateApprove(vote) => self.approve(by, &submitted, votes::Ballot::from(vote)),
            M::ToolReject(vote) => self.reject(by, &submitted, votes::Ballot::from(vote)),
            M::GateReject(vote) => self.reject(by, &submitted, votes::Ballot::from(vote)),
            M::GateAmend(amend) => self.gate_amend(by, &submitted, amend),
            M::ToolOutput(output) => self.tool_output(by, &submitted, output),
            M::ToolResult(result) => self.tool_result(by, &submitted, result),
            M::ToolDiscard(discard) => self.tool_discard(by, &submitted, discard),
            M::ToolCancel(cancel) => self.tool_cancel(by, &submitted, cancel),
            M::ToolInput(input) => self.tool_input(by, &submitted, input),
            M::ToolRenew(renew) => self.tool_renew(by, &renew),
            M::ToolDefer(defer) => self.tool_defer(by, &submitted, defer),
            M::ShellExec(exec) => self.shell_exec(by, &submitted, exec),
            M::PolicyAllow(allow) => self.policy_allow(by, &submitted, allow),
            M::PolicyRevoke(revoke) => self.policy_revoke(by, &submitted, revoke),
            M::InterruptRaise(interrupt) => self.interrupt_raise(by, &submitted, interrupt),
            M::InterruptAcknowledge(acknowledgement) => {
                self.interrupt_acknowledge(by, &submitted, acknowledgement)
            }
            M::Error(report) => Ok(self.relay(by, &submitted, report)),
            M::ForkCreate(_) | M::ForkSwitch(_) | M::MergePropose(_) | M::MergeExecute(_) => {
                Err(forks_unavailable())
            }
            // The server answers these itself; they do not change the session.
            M::HeartbeatPing(_) | M::HeartbeatPong(_) | M::OutputRead(_) => {
                Ok(Answer::Accepted(None))
            }
        }
    }

    /// The sender of the message, with no more rights than their token gives.
    fn sender(&self) -> Result<&Member, Refusal> {
        self.sender.as_ref().ok_or(Refusal::NotJoined)
    }

    /// A repeated message is acknowledged, unless it is a proposal that was logged as blocked.
    fn answer_duplicate(&self, id: &MessageId, seq: u64) -> Answer {
        let closed = self.session.closed_proposals.recent(id);
        match closed.and_then(|record| record.closed) {
            Some((outcome @ ProposalOutcome::Blocked, _)) => {
                Answer::Refused(Refusal::AlreadyProposed(id.clone(), outcome.to_string()))
            }
            Some(_) | None => Answer::Duplicate(seq),
        }
    }

    /// Appends a participant's message for everyone.
    fn relay(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        message: impl Into<ServerMessage>,
    ) -> Answer {
        self.relay_to(by, submitted, message, Audience::everyone())
    }

    /// Appends a participant's message for those who may see it.
    fn relay_to(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        message: impl Into<ServerMessage>,
        audience: Audience,
    ) -> Answer {
        let origin = match &self.current_message {
            Some((id, digest)) if *id == submitted.id => *digest,
            Some(_) | None => submitted.digest(by),
        };
        let header = self.header(by, submitted);
        let seq = self.append(header, message.into(), audience, None, Some(origin));
        Answer::Accepted(Some(seq))
    }

    fn header(&self, by: &ParticipantId, submitted: &SubmittedMessage) -> EnvelopeHeader {
        EnvelopeHeader {
            id: submitted.id.clone(),
            session: self.session.id.clone(),
            sender: Sender::Participant(by.clone()),
            reference: submitted.reference.clone(),
            causal_refs: submitted.causal_refs.clone(),
            fork: submitted.fork.clone(),
        }
    }

    /// Appends a message of the server for everyone.
    fn append_system(
        &mut self,
        message: impl Into<ServerMessage>,
        about: Option<MessageId>,
    ) -> MessageId {
        self.append_system_to(message, about, Audience::everyone(), None)
    }

    fn append_system_to(
        &mut self,
        message: impl Into<ServerMessage>,
        about: Option<MessageId>,
        audience: Audience,
        private: Option<GrantNonce>,
    ) -> MessageId {
        let id = self.id_generator.next_id();
        let header = EnvelopeHeader {
            id: id.clone(),
            session: self.session.id.clone(),
            sender: Sender::System,
            reference: about,
            causal_refs: Vec::new(),
            fork: None,
        };
        self.append(header, message.into(), audience, private, None);
        id
    }

    /// Broadcasts a message without logging it.
    fn broadcast_ephemeral(
        &mut self,
        by: &ParticipantId,
        submitted: SubmittedMessage,
        message: impl Into<ServerMessage>,
    ) -> Answer {
        let header = self.header(by, &submitted);
        let envelope = Envelope {
            header,
            at: self.at,
            seq: None,
            message: message.into(),
        };
        self.ephemeral = Some(Ephemeral { envelope });
        Answer::Accepted(None)
    }

    fn append(
        &mut self,
        header: EnvelopeHeader,
        message: ServerMessage,
        audience: Audience,
        private: Option<GrantNonce>,
        origin: Option<Digest>,
    ) -> u64 {
        let seq = self.session.head + 1;
        let envelope = Envelope {
            header,
            at: self.at,
            seq: Some(seq),
            message,
        };
        let entry = Entry {
            envelope,
            audience,
            grant_nonce: private,
            submitted_digest: origin,
        };
        let index_change = self
            .session
            .fold_entry(&entry)
            .expect("an entry that was just decided can be applied");
        self.index_changes.extend(index_change);
        self.entries.push(entry);
        seq
    }

    /// Refuses new work while the session is paused.
    fn check_not_paused(&self) -> Result<(), Refusal> {
        self.session
            .paused_for()
            .map_or(Ok(()), |who| Err(Refusal::SessionPaused(who)))
    }
}

/// Whether this reports on a run, which is accepted even after the session has ended.
fn is_run_report(message: &ClientMessage) -> bool {
    matches!(
        message,
        ClientMessage::ToolOutput(_) | ClientMessage::ToolResult(_) | ClientMessage::ToolDiscard(_)
    )
}

fn forks_unavailable() -> Refusal {
    Refusal::InvalidState("forks and merges are not available on this server".to_owned())
}
