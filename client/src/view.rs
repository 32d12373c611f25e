//! What a person sees of a session, folded from the messages they are told.
//!
//! Pure: no clock, no I/O, no chance. The same messages give the same view in any language; the
//! golden transcripts in `tests/transcripts` say which. Whatever is told, in whatever order and
//! however often, a view stays of bounded size and never panics.
//!
//! A [`welcome`](pvp_protocol::payload::SessionWelcome) says how things stand at its `head`. The
//! history that is told after it, up to that head, is past: it fills the stream and the list of
//! commands, and whatever the welcome does not tell, but opens no card and moves nobody.

mod asked;
mod card;
mod gates;
mod output;
mod people;
mod proposal;
mod queries;
mod runs;
mod shared;
mod talk;
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

pub use asked::{Asked, CLOSED_COMMAND_BYTES, COMMAND_BYTES, Form};
pub use card::{Card, Standing};
pub use output::{HEAD_BYTES, Output, PIECES, Piece, StreamTotal, TAIL_BYTES};
pub use people::{Me, PEOPLE, Person};
pub use proposal::{CancelAsked, Finish, Origin, Past, Proposal, Resolution, Resolved, Run, State};
pub use runs::{HISTORY, PROPOSALS};
pub use shared::{Context, Rule, Secret};
pub use talk::{Draft, OpenInterrupt};
pub use text::visible;
pub use timeline::{ITEM_BYTES, ITEMS, Item, TEXT_BYTES, Text, Timeline, What};

use text::{LINE_BYTES, line, some_line};

/// What a person sees.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct View {
    pub session: Option<SessionId>,
    pub name: Option<String>,
    /// What I am here; unknown until I am welcomed.
    pub me: Option<Me>,
    pub config: SessionConfig,
    pub limits: Option<Limits>,
    pub extensions: Option<ProtocolExtensions>,
    /// The server's name and version.
    pub server: Option<String>,
    /// The seq of the last message that was told; resume after it.
    pub head: u64,
    /// Why nothing starts at the moment, if it does not: who is missed.
    pub paused: Option<String>,
    pub ended: Option<Ended>,
    /// Where commands run unless they say otherwise.
    pub working_directory: Option<String>,
    pub people: BTreeMap<ParticipantId, Person>,
    pub stream: Timeline,
    /// Open gates, oldest first.
    pub gates: Vec<Card>,
    /// Commands in whatever state, oldest first.
    pub commands: VecDeque<Proposal>,
    /// Closed cards, oldest first.
    pub resolved: VecDeque<Resolved>,
    /// Commands that are over, oldest first.
    pub history: VecDeque<Past>,
    /// Allow rules, oldest first; each says until when it holds.
    pub rules: VecDeque<Rule>,
    /// What others are typing, the latest of each.
    pub drafts: BTreeMap<ParticipantId, Draft>,
    pub context: BTreeMap<String, Context>,
    /// Secrets that I know by name.
    pub secrets: BTreeMap<String, Secret>,
    /// Interrupts that some agent has not acknowledged, oldest first.
    pub interrupts: VecDeque<OpenInterrupt>,
    /// The head of the last welcome: what is told up to here is past.
    #[serde(skip)]
    as_of: u64,
}

/// How the session ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ended {
    pub by: Sender,
    pub at: Timestamp,
    pub reason: String,
    pub final_state: FinalState,
}

/// The envelope of the message that is being folded.
struct Told<'a> {
    id: &'a MessageId,
    at: Timestamp,
    seq: Option<u64>,
    who: &'a Sender,
    reference: Option<&'a MessageId>,
    /// Whether the last welcome already tells what came of it.
    past: bool,
}

impl Told<'_> {
    /// Whether it stands in the log; the rest is told once and forgotten.
    fn is_kept(&self) -> bool {
        self.seq.is_some()
    }

    fn by(&self) -> Option<&ParticipantId> {
        match self.who {
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
        let again = envelope.seq.is_some_and(|seq| seq <= self.head);
        if again || *session != heading.session {
            return;
        }
        self.head = envelope.seq.unwrap_or(self.head);
        let told = Told {
            id: &heading.id,
            at: envelope.at,
            seq: envelope.seq,
            who: &heading.sender,
            reference: heading.reference.as_ref(),
            past: envelope.seq.is_some_and(|seq| seq <= self.as_of),
        };
        self.note_life(&told);
        self.take(&told, &envelope.message);
    }

    fn take(&mut self, told: &Told<'_>, message: &ServerMessage) {
        use ServerMessage as M;
        match message {
            M::SessionWelcome(welcome) => self.fold_welcome(welcome),
            M::SessionCreate(create) => self.fold_create(told, create),
            M::SessionConfigUpdate(update) => self.fold_config(told, update),
            M::SessionEnd(end) => self.fold_end(told, end),
            M::SessionLeave(leave) => self.fold_leave(told, leave),
            M::Announce(announce) => self.fold_announce(told, announce),
            M::RoleChange(change) => self.fold_role_change(told, change),
            M::PresenceUpdate(presence) => self.fold_presence(told, presence),
            M::ContextAdd(add) => self.fold_context_add(told, add),
            M::ContextUpdate(update) => self.fold_context_update(told, update),
            M::ContextRemove(remove) => self.fold_context_remove(told, remove),
            M::SecretShare(share) => self.fold_secret_share(told, share),
            M::SecretRevoke(revoke) => self.fold_secret_revoke(told, revoke),
            M::PolicyAllow(allow) => self.fold_allow(told, allow),
            M::PolicyRevoke(revoke) => self.fold_allow_revoke(told, revoke),
            M::PromptDraft(draft) => self.fold_draft(told, draft),
            M::PromptSubmit(prompt) => self.fold_prompt(told, prompt),
            M::PromptAmend(amend) => self.fold_prompt_amend(told, amend),
            M::ThinkingStart(start) => self.fold_thinking_start(told, start),
            M::ThinkingChunk(chunk) => self.fold_thinking_chunk(told, &chunk.text),
            M::ThinkingEnd(end) => self.fold_thinking_end(told, end),
            M::ResponseStart(start) => self.fold_response_start(told, start),
            M::ResponseChunk(chunk) => self.fold_response_chunk(told, &chunk.text),
            M::ResponseEnd(end) => self.fold_response_end(told, end),
            M::InterruptRaise(interrupt) => self.fold_interrupt(told, interrupt),
            M::InterruptAcknowledge(acknowledge) => self.fold_acknowledge(told, acknowledge),
            M::ToolPropose(propose) => self.fold_propose(told, propose),
            M::ShellExec(exec) => self.fold_shell_exec(told, exec),
            M::GateRequest(request) => self.fold_gate_request(told, request),
            M::ToolApprove(vote) => {
                self.fold_approval(told, &vote.tool_proposal, &vote.approver, &vote.comment);
            }
            M::GateApprove(vote) => {
                self.fold_approval(told, &vote.gate, &vote.approver, &vote.comment);
            }
            M::ToolReject(vote) => {
                self.fold_rejection(told, &vote.tool_proposal, &vote.reason, &vote.suggestion);
            }
            M::GateReject(vote) => self.fold_rejection(told, &vote.gate, &vote.reason, &None),
            M::GateAmend(amend) => self.fold_amend(told, amend),
            M::GateTimeout(timeout) => self.fold_timeout(told, timeout),
            M::GateResolve(resolve) => self.fold_resolve(told, resolve),
            M::ToolExecute(execute) => self.fold_execute(told, execute),
            M::ToolOutput(output) => self.fold_output(output),
            M::ToolResult(result) => self.fold_result(told, result),
            M::ToolCancel(cancel) => self.fold_cancel(told, cancel),
            M::Error(report) => self.fold_error(told, report),
            // Answers to what a connection asked, and keys that show in the output they cause.
            M::SessionAck(_)
            | M::HeartbeatPing(_)
            | M::HeartbeatPong(_)
            | M::ToolInput(_)
            | M::OutputPage(_) => {}
        }
    }

    /// Adds a line to the stream, if what it is about is kept.
    fn tell(&mut self, told: &Told<'_>, what: What) {
        if told.is_kept() {
            self.tell_me(told, what);
        }
    }

    /// Adds a line to the stream.
    fn tell_me(&mut self, told: &Told<'_>, what: What) {
        self.stream.push(Item {
            id: told.id.clone(),
            seq: told.seq,
            at: told.at,
            who: told.who.clone(),
            what,
        });
    }

    fn fold_create(&mut self, told: &Told<'_>, create: &SessionCreate) {
        let name = some_line(create.name.as_ref());
        if !told.past {
            self.name.clone_from(&name);
            self.config = create.config.clone();
            self.after_people_changed();
        }
        self.tell(told, What::Created { name });
    }

    fn fold_config(&mut self, told: &Told<'_>, update: &SessionConfigUpdate) {
        let changes = serde_json::to_value(&update.changes).unwrap_or_default();
        let too_long = changes.to_string().len() > LINE_BYTES;
        let changes = if too_long { Value::Null } else { changes };
        let reason = line(&update.reason);
        self.tell(told, What::Configured { changes, reason });
        if !told.past {
            self.config = std::mem::take(&mut self.config).with_changes(&update.changes);
            self.after_people_changed();
        }
    }

    fn fold_end(&mut self, told: &Told<'_>, end: &SessionEnd) {
        let (reason, final_state) = (line(&end.reason), end.final_state);
        self.ended = Some(Ended {
            by: told.who.clone(),
            at: told.at,
            reason: reason.clone(),
            final_state,
        });
        self.tell(
            told,
            What::Ended {
                reason,
                final_state,
            },
        );
    }

    fn fold_error(&mut self, told: &Told<'_>, report: &ErrorReport) {
        let what = What::Error {
            code: report.code,
            message: line(&report.message),
            recoverable: report.recoverable,
            related_to: report.related_to.clone(),
        };
        self.tell_me(told, what);
    }
}

/// Adds a line to a list of the newest few.
fn push_newest<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    list.push_back(item);
    if list.len() > most {
        list.pop_front();
    }
}
