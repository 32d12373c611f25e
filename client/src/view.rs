//! What a person sees of a session, folded from the messages they are told.
//!
//! Pure: no clock, no I/O, no chance. The same messages give the same view in any language; the
//! golden transcripts in `tests/transcripts` say which. Whatever is told, in whatever order and
//! however often, a view stays of bounded size and never panics.
//!
//! A [`welcome`](pvp_protocol::payload::SessionWelcome) says how things stand at its `head`. The
//! history that is told after it, up to that head, is past: it fills the stream and the list of
//! commands, and whatever the welcome does not tell, but opens no card and moves nobody.

mod card;
mod commands;
mod conversation;
mod gates;
mod output;
mod participants;
mod proposal;
mod queries;
mod requested_action;
mod shared;
mod text;
mod timeline;
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

pub use card::{GateCard, VoteEligibility};
pub use commands::{MAX_HISTORY, MAX_PROPOSALS};
pub use conversation::{DraftView, InterruptView};
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

use text::{MAX_LINE_BYTES, truncate_line, truncate_optional_line};

/// What a person sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    pub session: Option<SessionId>,
    pub name: Option<String>,
    /// What I am here; unknown until I am welcomed.
    pub me: Option<SelfView>,
    pub config: SessionConfig,
    pub limits: Option<Limits>,
    pub extensions: Option<ProtocolExtensions>,
    /// The server's name and version.
    pub server: Option<String>,
    /// The seq of the last message that was told; resume after it.
    pub head: u64,
    /// Why nothing starts at the moment, if it does not: who is missed.
    pub paused: Option<String>,
    pub ended: Option<SessionEndView>,
    /// Where commands run unless they say otherwise.
    pub working_directory: Option<String>,
    pub people: BTreeMap<ParticipantId, ParticipantView>,
    pub stream: Timeline,
    /// Open gates, oldest first.
    pub gates: Vec<GateCard>,
    /// Commands in whatever state, oldest first.
    pub commands: VecDeque<ProposalView>,
    /// Closed cards, oldest first.
    pub resolved: VecDeque<ClosedGateCard>,
    /// Commands that are over, oldest first.
    pub history: VecDeque<CommandHistoryEntry>,
    /// Allow rules, oldest first; each says until when it holds.
    pub rules: VecDeque<AllowRuleView>,
    /// What others are typing, the latest of each.
    pub drafts: BTreeMap<ParticipantId, DraftView>,
    pub context: BTreeMap<String, ContextView>,
    /// Secrets that I know by name.
    pub secrets: BTreeMap<String, SecretView>,
    /// Interrupts that some agent has not acknowledged, oldest first.
    pub interrupts: VecDeque<InterruptView>,
    /// The head of the last welcome: what is told up to here is past.
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

/// The envelope of the message that is being folded.
struct MessageMeta<'a> {
    id: &'a MessageId,
    at: Timestamp,
    seq: Option<u64>,
    sender: &'a Sender,
    reference: Option<&'a MessageId>,
    /// Whether the last welcome already tells what came of it.
    is_history: bool,
}

impl MessageMeta<'_> {
    /// Whether it stands in the log; the rest is told once and forgotten.
    fn is_logged(&self) -> bool {
        self.seq.is_some()
    }

    fn participant(&self) -> Option<&ParticipantId> {
        match self.sender {
            Sender::System => None,
            Sender::Participant(id) => Some(id),
        }
    }
}

impl View {
    /// Takes the next message that was told. What was told before is ignored, and so is what
    /// belongs to another session.
    pub fn fold(&mut self, envelope: &Envelope) {
        let heading = &envelope.heading;
        let session = self.session.get_or_insert_with(|| heading.session.clone());
        let already_folded = envelope.seq.is_some_and(|seq| seq <= self.head);
        if already_folded || *session != heading.session {
            return;
        }
        self.head = envelope.seq.unwrap_or(self.head);
        let meta = MessageMeta {
            id: &heading.id,
            at: envelope.at,
            seq: envelope.seq,
            sender: &heading.sender,
            reference: heading.reference.as_ref(),
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
                self.fold_approval(meta, &vote.tool_proposal, &vote.approver, &vote.comment);
            }
            M::GateApprove(vote) => {
                self.fold_approval(meta, &vote.gate, &vote.approver, &vote.comment);
            }
            M::ToolReject(vote) => {
                self.fold_rejection(meta, &vote.tool_proposal, &vote.reason, &vote.suggestion);
            }
            M::GateReject(vote) => self.fold_rejection(meta, &vote.gate, &vote.reason, &None),
            M::GateAmend(amend) => self.fold_amend(meta, amend),
            M::GateTimeout(timeout) => self.fold_timeout(meta, timeout),
            M::GateResolve(resolve) => self.fold_resolve(meta, resolve),
            M::ToolExecute(execute) => self.fold_execute(meta, execute),
            M::ToolOutput(output) => self.fold_output(output),
            M::ToolResult(result) => self.fold_result(meta, result),
            M::ToolCancel(cancel) => self.fold_cancel(meta, cancel),
            M::Error(report) => self.fold_error(meta, report),
            // Answers to what a connection asked, and keys that show in the output they cause.
            M::SessionAck(_)
            | M::HeartbeatPing(_)
            | M::HeartbeatPong(_)
            | M::ToolInput(_)
            | M::OutputPage(_) => {}
        }
    }

    /// Adds a line to the stream, if what it is about is kept.
    fn push_logged_item(&mut self, meta: &MessageMeta<'_>, event: TimelineEvent) {
        if meta.is_logged() {
            self.push_item(meta, event);
        }
    }

    /// Adds a line to the stream.
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

/// Adds a line to a list of the newest few.
fn push_bounded<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    list.push_back(item);
    if list.len() > most {
        list.pop_front();
    }
}
