//! What one participant sees of a session, folded from the messages they receive.
//!
//! The view is pure: no clock, no I/O, no randomness. The same messages give the same view in every
//! language; the golden transcripts in `tests/transcripts` define the result. Whatever messages
//! arrive, in whatever order and however often, a view has a bounded size and never panics.
//!
//! A [`welcome`](pvp_protocol::payload::SessionWelcome) states the session's state at its `head`.
//! Messages received after it, up to that head, are history: they fill in the timeline, the list of
//! commands and the details that the welcome leaves out, but they open no card and change no
//! participant.

mod card;
mod commands;
mod conversation;
mod diff;
mod gates;
mod output;
mod participants;
mod proposal;
mod queries;
mod requested_action;
mod shared;
mod suggested_prefix;
mod text;
mod timeline;
mod tool_call;
mod version;
mod welcome;

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::payload::{
    ErrorReport, FinalState, ProtocolExtensions, SessionConfigUpdate, SessionCreate, SessionEnd,
};
use pvp_protocol::{
    Envelope, Limits, MessageId, ParticipantId, Sender, ServerMessage, SessionConfig, SessionId,
    Timestamp,
};
use serde::Serialize;
use serde_json::Value;

pub use card::{GateCard, PrefixOffer, VoteEligibility};
pub use commands::{MAX_HISTORY, MAX_PROPOSALS};
pub use conversation::{DraftView, InterruptView};
pub use diff::{DiffHunk, DiffLine, DiffLineKind};
pub use output::{
    MAX_OUTPUT_CHUNKS, OUTPUT_HEAD_BYTES, OUTPUT_TAIL_BYTES, OutputChunk, OutputView, StreamTotal,
};
pub use participants::{MAX_PARTICIPANTS, ParticipantView, SelfView};
pub use proposal::{
    CancelRequestView, ClosedGateCard, CommandHistoryEntry, CommandOrigin, ProposalState,
    ProposalView, ResolutionView, RunResultView, RunView,
};
pub use requested_action::{
    CommandForm, MAX_CLOSED_COMMAND_BYTES, MAX_COMMAND_BYTES, RequestedAction,
};
pub use shared::{AllowRuleView, ContextView, SecretView};
pub use text::escape_invisible;
pub use timeline::{
    MAX_ITEM_BYTES, MAX_ITEMS, MAX_TEXT_BYTES, Timeline, TimelineEvent, TimelineItem, TruncatedText,
};
pub use tool_call::{
    ArgumentView, CallLine, CallLineKind, ChangeBasis, FileChangeView, StatedDiff, ToolCallView,
    command_headline, parse_tool_summary,
};
pub use version::{CommandVersion, EarlierVersion};

use text::{MAX_LINE_BYTES, truncate_line, truncate_optional_line};

/// What one participant sees of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    /// The session; `None` before the first message. Messages of other sessions are ignored.
    pub session: Option<SessionId>,
    /// The session's name, if it has one.
    pub name: Option<String>,
    /// The participant whose view this is; `None` before the first welcome.
    pub me: Option<SelfView>,
    /// What this client's token allows, if that is less than what its participant may do.
    #[serde(skip)]
    own_limits: Option<participants::OwnLimits>,
    /// The session's configuration.
    pub config: SessionConfig,
    /// The server's limits; `None` before the first welcome.
    pub limits: Option<Limits>,
    /// The protocol extensions that the server supports; `None` before the first welcome.
    pub extensions: Option<ProtocolExtensions>,
    /// The server's name and version; `None` before the first welcome.
    pub server: Option<String>,
    /// The sequence number of the last message folded, to resume after; 0 if there is none.
    pub head: u64,
    /// The absent participants that the session waits for before it starts another command; `None`
    /// if it is not paused.
    pub paused: Option<String>,
    /// How the session ended; `None` while it is open.
    pub ended: Option<SessionEndView>,
    /// Where commands run by default; `None` if the server has not said.
    pub working_directory: Option<String>,
    /// The participants, including those who have left.
    pub people: BTreeMap<ParticipantId, ParticipantView>,
    /// What happened, item by item.
    pub stream: Timeline,
    /// Open gates, oldest first.
    pub gates: Vec<GateCard>,
    /// Commands in every state, oldest first.
    pub commands: VecDeque<ProposalView>,
    /// Closed cards, oldest first.
    pub resolved: VecDeque<ClosedGateCard>,
    /// Commands that have ended, one line each, oldest first.
    pub history: VecDeque<CommandHistoryEntry>,
    /// Allow rules, oldest first; some may have expired.
    pub rules: VecDeque<AllowRuleView>,
    /// What others are typing, the latest draft of each.
    pub drafts: BTreeMap<ParticipantId, DraftView>,
    /// Shared context by key, without the content.
    pub context: BTreeMap<String, ContextView>,
    /// Secrets by name, without their values.
    pub secrets: BTreeMap<String, SecretView>,
    /// Interrupts that some agent has not acknowledged, oldest first.
    pub interrupts: VecDeque<InterruptView>,
    /// The head of the last welcome; messages up to it are history.
    #[serde(skip)]
    welcome_head: u64,
}

/// How the session ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionEndView {
    pub by: Sender,
    pub at: Timestamp,
    pub reason: String,
    pub final_state: FinalState,
}

/// The parts of the envelope that folding a message needs.
struct MessageMeta<'a> {
    /// The message's id.
    id: &'a MessageId,
    /// When the server stamped it.
    at: Timestamp,
    /// Its sequence number in the log; `None` if it is ephemeral.
    seq: Option<u64>,
    /// Who sent it.
    sender: &'a Sender,
    /// The message that it refers to, if any.
    reference: Option<&'a MessageId>,
    /// Whether the last welcome already includes its effects.
    is_history: bool,
}

impl MessageMeta<'_> {
    /// Whether the message is in the log; otherwise it is ephemeral.
    fn is_logged(&self) -> bool {
        self.seq.is_some()
    }

    /// The participant who sent it; `None` for the server itself.
    fn participant(&self) -> Option<&ParticipantId> {
        match self.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id),
        }
    }
}

impl View {
    /// The last entry that is known to be there, whether it has arrived or not.
    pub fn known_head(&self) -> u64 {
        self.head.max(self.welcome_head)
    }

    /// Folds the next message. A message that was folded before, or that belongs to another
    /// session, is ignored.
    pub fn fold(&mut self, envelope: &Envelope) {
        let header = &envelope.header;
        let session = self.session.get_or_insert_with(|| header.session.clone());
        let already_folded = envelope.seq.is_some_and(|seq| seq <= self.head);
        if already_folded || *session != header.session {
            return;
        }
        self.head = envelope.seq.unwrap_or(self.head);
        let meta = MessageMeta {
            id: &header.id,
            at: envelope.at,
            seq: envelope.seq,
            sender: &header.sender,
            reference: header.reference.as_ref(),
            is_history: envelope.seq.is_some_and(|seq| seq <= self.welcome_head),
        };
        self.record_activity(&meta);
        self.fold_message(&meta, &envelope.message);
    }

    fn fold_message(&mut self, meta: &MessageMeta<'_>, message: &ServerMessage) {
        use ServerMessage as M;
        match message {
            M::SessionWelcome(welcome) => self.fold_welcome(welcome),
            M::SessionCreate(create) => self.fold_create(meta, create),
            M::SessionConfigUpdate(update) => self.fold_config(meta, update),
            M::SessionEnd(end) => self.fold_end(meta, end),
            M::SessionLeave(leave) => self.fold_leave(meta, leave),
            M::Announce(announce) => self.fold_announce(meta, announce),
            M::RoleChange(change) => self.fold_role_change(meta, change),
            M::PresenceUpdate(presence) => self.fold_presence(meta, presence),
            M::ContextAdd(add) => self.fold_context_add(meta, add),
            M::ContextUpdate(update) => self.fold_context_update(meta, update),
            M::ContextRemove(remove) => self.fold_context_remove(meta, remove),
            M::SecretShare(share) => self.fold_secret_share(meta, share),
            M::SecretRevoke(revoke) => self.fold_secret_revoke(meta, revoke),
            M::PolicyAllow(allow) => self.fold_allow(meta, allow),
            M::PolicyRevoke(revoke) => self.fold_allow_revoke(meta, revoke),
            M::PromptDraft(draft) => self.fold_draft(meta, draft),
            M::PromptSubmit(prompt) => self.fold_prompt(meta, prompt),
            M::PromptAmend(amend) => self.fold_prompt_amend(meta, amend),
            M::ThinkingStart(start) => self.fold_thinking_start(meta, start),
            M::ThinkingChunk(chunk) => self.fold_thinking_chunk(meta, &chunk.text),
            M::ThinkingEnd(end) => self.fold_thinking_end(meta, end),
            M::ResponseStart(start) => self.fold_response_start(meta, start),
            M::ResponseChunk(chunk) => self.fold_response_chunk(meta, &chunk.text),
            M::ResponseEnd(end) => self.fold_response_end(meta, end),
            M::InterruptRaise(interrupt) => self.fold_interrupt(meta, interrupt),
            M::InterruptAcknowledge(acknowledge) => self.fold_acknowledge(meta, acknowledge),
            M::ToolPropose(propose) => self.fold_propose(meta, propose),
            M::ShellExec(exec) => self.fold_shell_exec(meta, exec),
            M::GateRequest(request) => self.fold_gate_request(meta, request),
            M::ToolApprove(vote) => {
                let (id, digest) = (&vote.tool_proposal, vote.digest);
                self.fold_approval(meta, id, digest, &vote.approver, &vote.comment);
            }
            M::GateApprove(vote) => {
                let (id, digest) = (&vote.gate, vote.digest);
                self.fold_approval(meta, id, digest, &vote.approver, &vote.comment);
            }
            M::ToolReject(vote) => {
                let (id, digest) = (&vote.tool_proposal, vote.digest);
                self.fold_rejection(meta, id, digest, &vote.reason, &vote.suggestion);
            }
            // The server repeats for others in published words what it says as `gate.resolve`.
            M::GateReject(_) if meta.participant().is_none() => {}
            M::GateReject(vote) => {
                self.fold_rejection(meta, &vote.gate, vote.digest, &vote.reason, &None);
            }
            M::GateAmend(amend) => self.fold_amend(meta, amend),
            M::GateTimeout(timeout) => self.fold_timeout(meta, timeout),
            M::GateResolve(resolve) => self.fold_resolve(meta, resolve),
            M::ToolExecute(execute) => self.fold_execute(meta, execute),
            M::ToolOutput(output) => self.fold_output(output),
            M::ToolResult(result) => self.fold_result(meta, result),
            M::ToolDiscard(discard) => self.fold_discard(meta, discard),
            M::ToolCancel(cancel) => self.fold_cancel(meta, cancel),
            M::Error(report) => self.fold_error(meta, report),
            // Replies to requests of the connection, keystrokes, whose effect shows in the output,
            // and that a client is away for a while, which changes nothing for those who vote.
            M::SessionAck(_)
            | M::HeartbeatPing(_)
            | M::HeartbeatPong(_)
            | M::ToolInput(_)
            | M::ToolDefer(_)
            | M::OutputPage(_) => {}
        }
    }

    /// Adds an item to the timeline if the message is logged.
    fn push_logged_item(&mut self, meta: &MessageMeta<'_>, event: TimelineEvent) {
        if meta.is_logged() {
            self.push_item(meta, event);
        }
    }

    /// Adds an item to the timeline.
    fn push_item(&mut self, meta: &MessageMeta<'_>, event: TimelineEvent) {
        self.stream.push(TimelineItem {
            id: meta.id.clone(),
            seq: meta.seq,
            at: meta.at,
            who: meta.sender.clone(),
            event,
        });
    }

    fn fold_create(&mut self, meta: &MessageMeta<'_>, create: &SessionCreate) {
        let name = truncate_optional_line(create.name.as_ref());
        if !meta.is_history {
            self.name.clone_from(&name);
            self.config = create.config.clone();
            self.recompute_derived();
        }
        self.push_logged_item(meta, TimelineEvent::Created { name });
    }

    fn fold_config(&mut self, meta: &MessageMeta<'_>, update: &SessionConfigUpdate) {
        let changes = serde_json::to_value(&update.changes).unwrap_or_default();
        let too_long = changes.to_string().len() > MAX_LINE_BYTES;
        let changes = if too_long { Value::Null } else { changes };
        let reason = truncate_line(&update.reason);
        self.push_logged_item(meta, TimelineEvent::Configured { changes, reason });
        if !meta.is_history {
            self.config = std::mem::take(&mut self.config).with_changes(&update.changes);
            self.recompute_derived();
        }
    }

    fn fold_end(&mut self, meta: &MessageMeta<'_>, end: &SessionEnd) {
        let (reason, final_state) = (truncate_line(&end.reason), end.final_state);
        self.ended = Some(SessionEndView {
            by: meta.sender.clone(),
            at: meta.at,
            reason: reason.clone(),
            final_state,
        });
        self.push_logged_item(
            meta,
            TimelineEvent::Ended {
                reason,
                final_state,
            },
        );
    }

    fn fold_error(&mut self, meta: &MessageMeta<'_>, report: &ErrorReport) {
        let event = TimelineEvent::Error {
            code: report.code,
            message: truncate_line(&report.message),
            recoverable: report.recoverable,
            related_to: report.related_to.clone(),
        };
        self.push_item(meta, event);
    }
}

/// Appends an item to a bounded list, dropping the oldest if it is full.
fn push_bounded<T>(list: &mut VecDeque<T>, item: T, max: usize) {
    list.push_back(item);
    if list.len() > max {
        list.pop_front();
    }
}
