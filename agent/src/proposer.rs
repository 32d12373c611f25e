//! Proposes commands and other tool calls, hears what becomes of them, and reports results that
//! were obtained elsewhere.
//!
//! A proposer works over one connection and one [`View`](pvp_client::View). It runs nothing, and
//! needs no executor, sandbox or policy. A proposer that stands alone checks one thing by itself: it
//! passes a grant on only if the grant is for exactly what it [wrote down](crate::shown_actions)
//! when it proposed, or for a recorded edit of that. In an [`Agent`](crate::agent::Agent), the
//! executor checks this and more.

mod gate_progress;
mod report;
mod task;
mod tracker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pvp_client::{ConnectError, ConnectOptions, Connection, Link, SendError, fresh_id};
use pvp_protocol::payload::{
    ClientOrigin, Degree, ErrorReport, FileContent, GateResolve, InterruptRaise, OutputPage,
    OutputRead, OutputStream, PromptAmend, PromptSubmit, RunBy, ToolPropose, ToolRenew, ToolResult,
};
use pvp_protocol::{
    Action, ActionError, Assessment, ErrorCode, ExtraFields, JsonObject, MessageId, ParticipantId,
    Risk, SessionId, Timestamp, ToolCategory,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::bound_files::ShownFiles;

pub use gate_progress::GateProgress;
pub use report::{RunReport, output_messages};
use task::ProposerTask;
pub(crate) use tracker::{ProposalTracker, ProposerRequest};

/// Bytes of events that may wait to be read, for each proposal. Further ones are dropped, except
/// the last; by default no command's output is longer than this.
const MAX_UNREAD_BYTES: usize = 64 * 1024 * 1024;

/// Requests of people that may wait to be read; further ones are dropped while the queue is full.
const MAX_PERSON_REQUESTS: usize = 256;

/// What an event counts for besides its text, in bytes.
const EVENT_OVERHEAD_BYTES: usize = 512;

/// Why something was not proposed, reported or read. Nothing was sent unless the server refused it.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    #[error("blocked by rule `{rule}`: {reason}")]
    Blocked { rule: String, reason: String },
    #[error("{0}")]
    BadArguments(#[from] ActionError),
    #[error("{0}")]
    BadDirectory(String),
    #[error("{0}")]
    BadFile(String),
    #[error("it was not proposed, because that could not be written to the journal: {0}")]
    NotRecorded(String),
    #[error("this call was proposed before; each call is decided once")]
    Repeated,
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("the connection to the session has ended")]
    Closed,
}

impl From<SendError> for ProposeError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Refused(report) => ProposeError::Refused(report),
            SendError::Closed | SendError::Dropped => ProposeError::Closed,
        }
    }
}

/// What happens to a proposal, in order; the last event is `Finished`, `NotRun` or `Lost`.
#[derive(Debug, Clone, PartialEq)]
pub enum ProposalEvent {
    /// The server's assessment.
    Assessed(Box<Assessment>),
    /// A gate was opened; `quorum` says which votes it waits for.
    GateOpened {
        quorum: String,
    },
    /// Someone edited it; `action` is what would run from here on, `command` the same for people.
    Edited {
        by: Option<ParticipantId>,
        command: String,
        action: Box<Action>,
        reason: Option<String>,
    },
    /// It was approved: exactly this action may run, once, if it starts in time.
    Granted {
        approved_by: Vec<ParticipantId>,
        action: Box<Action>,
        expires_at: Timestamp,
    },
    /// The command runs under this process id; a background job's output also goes to `file`.
    Started {
        pid: u32,
        file: Option<PathBuf>,
    },
    Output {
        stream: OutputStream,
        text: String,
    },
    /// Someone wants it to stop. Whoever runs it stops it and reports the result; an executor does
    /// so without being told.
    CancelRequested {
        by: Option<ParticipantId>,
        reason: Option<String>,
    },
    Finished(Box<ToolResult>),
    /// It does not run; the payload says how its gate closed: rejected, timed out or cancelled, by
    /// whom and why.
    NotRun(Box<GateResolve>),
    /// It is over, but how is not known: the server no longer has that part of the log.
    Lost,
}

impl ProposalEvent {
    /// About how many bytes the event takes.
    fn size(&self) -> usize {
        let text = match self {
            ProposalEvent::Edited {
                command, reason, ..
            } => 3 * command.len() + reason.as_ref().map_or(0, String::len),
            ProposalEvent::Output { text, .. } => text.len(),
            ProposalEvent::CancelRequested { reason, .. } => reason.as_ref().map_or(0, String::len),
            ProposalEvent::Assessed(_)
            | ProposalEvent::GateOpened { .. }
            | ProposalEvent::Granted { .. }
            | ProposalEvent::Started { .. }
            | ProposalEvent::Finished(_)
            | ProposalEvent::NotRun(_)
            | ProposalEvent::Lost => 0,
        };
        text + EVENT_OVERHEAD_BYTES
    }
}

/// Where the events of one proposal go.
pub(crate) struct EventSender {
    events: mpsc::UnboundedSender<ProposalEvent>,
    unread_bytes: Arc<AtomicUsize>,
    gate_progress: watch::Sender<Option<GateProgress>>,
}

impl EventSender {
    /// Sends an event, unless too many wait to be read.
    fn send(&self, event: ProposalEvent) {
        let bytes = event.size();
        if self.unread_bytes.load(Ordering::Relaxed) + bytes <= MAX_UNREAD_BYTES {
            self.send_last(event);
        }
    }

    /// Sends an event that is never dropped.
    fn send_last(&self, event: ProposalEvent) {
        self.unread_bytes.fetch_add(event.size(), Ordering::Relaxed);
        // The caller may have dropped its handle.
        let _ = self.events.send(event);
    }

    fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Says what the gate waits for; `None` if no gate is open.
    fn set_gate_progress(&self, progress: Option<GateProgress>) {
        self.gate_progress.send_if_modified(|current| {
            let changed = *current != progress;
            *current = progress;
            changed
        });
    }
}

/// A proposal that was sent, and the events about it.
#[derive(Debug)]
pub struct ProposalHandle {
    /// The proposal's id; its result is reported and its output read by the same id.
    pub id: MessageId,
    events: mpsc::UnboundedReceiver<ProposalEvent>,
    unread_bytes: Arc<AtomicUsize>,
    gate_progress: watch::Receiver<Option<GateProgress>>,
}

impl ProposalHandle {
    fn new(id: MessageId) -> (EventSender, Self) {
        let (sender, events) = mpsc::unbounded_channel();
        let unread_bytes = Arc::new(AtomicUsize::new(0));
        let (progress_sender, gate_progress) = watch::channel(None);
        let sender = EventSender {
            events: sender,
            unread_bytes: unread_bytes.clone(),
            gate_progress: progress_sender,
        };
        let handle = Self {
            id,
            events,
            unread_bytes,
            gate_progress,
        };
        (sender, handle)
    }

    /// The next event; `None` after the last one, or when the session is over for this participant.
    /// Cancel safe: dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ProposalEvent> {
        let event = self.events.recv().await?;
        self.unread_bytes.fetch_sub(event.size(), Ordering::Relaxed);
        Some(event)
    }

    /// What its gate waits for, as it changes; `None` while no gate is open.
    pub fn gate_progress(&self) -> watch::Receiver<Option<GateProgress>> {
        self.gate_progress.clone()
    }

    /// Waits for the last event: the result, or why the command did not run.
    pub async fn outcome(mut self) -> Option<ProposalEvent> {
        let mut last = None;
        while let Some(event) = self.next().await {
            last = Some(event);
        }
        last
    }
}

/// A call that an agent client runs by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientCall {
    /// The id of the proposal; the same call has the same id, so that it is decided once.
    pub id: MessageId,
    /// The tool; `shell` runs commands.
    pub tool_name: String,
    /// The kind of tool.
    pub category: ToolCategory,
    /// The tool's arguments.
    pub arguments: JsonObject,
    /// What the agent says it does.
    pub purpose: String,
    /// Whether it needs a vote even if the policy would let it run.
    pub requires_approval: bool,
    /// The contents of the files that the arguments bind.
    pub file_contents: Vec<FileContent>,
    /// How sure it is that what is approved is what runs.
    pub degree: Degree,
    /// The client, and what it calls the call.
    pub origin: ClientOrigin,
}

/// A call as its proposer describes it.
pub(crate) struct ToolRequest<'a> {
    pub(crate) tool_name: &'a str,
    pub(crate) category: ToolCategory,
    /// The proposer's own estimate, which can only raise the server's.
    pub(crate) risk: Risk,
    pub(crate) arguments: JsonObject,
    /// The agent client that makes the call; `None` if the agent itself does.
    pub(crate) origin: Option<ClientOrigin>,
}

/// What a person asks of a proposer that stands alone.
#[derive(Debug, Clone, PartialEq)]
pub struct PersonRequest {
    /// The id of the message.
    pub id: MessageId,
    /// Who sent it.
    pub by: ParticipantId,
    /// Their name.
    pub name: String,
    /// What they ask.
    pub kind: PersonRequestKind,
}

/// What a person asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum PersonRequestKind {
    /// An answer to a prompt.
    Prompt(Box<PromptSubmit>),
    /// A change of an earlier prompt.
    Amend(Box<PromptAmend>),
    /// That it pauses or stops. Nobody has acknowledged it yet.
    Interrupt(Box<InterruptRaise>),
}

/// A participant who proposes. When it is dropped, the connection ends once everything that was
/// sent is answered; the participant stays in the session, and so do its proposals.
#[derive(Clone)]
pub struct Proposer {
    connection: Connection,
    requests: mpsc::Sender<ProposerRequest>,
    /// Closes when the task has ended; holds why the server refused the participant, if it did.
    stopped: watch::Receiver<Option<String>>,
}

impl Proposer {
    /// Joins a session to propose in it. Nothing is run here: whoever runs what is granted reports
    /// the result with [`report`](Self::report).
    pub async fn connect(link: Link, options: ConnectOptions) -> Result<Self, ConnectError> {
        let (proposer, _) = Self::connect_with_requests(link, options).await?;
        Ok(proposer)
    }

    /// Like [`connect`](Self::connect), with what people ask of this participant.
    pub async fn connect_with_requests(
        link: Link,
        options: ConnectOptions,
    ) -> Result<(Self, mpsc::Receiver<PersonRequest>), ConnectError> {
        let (connection, events) = Connection::open(link, options).await?;
        let (requests, request_receiver) = mpsc::channel(16);
        let (stopped_sender, stopped) = watch::channel(None);
        let (people, people_receiver) = mpsc::channel(MAX_PERSON_REQUESTS);
        let task = ProposerTask::new(connection.clone(), people);
        tokio::spawn(async move {
            let refusal = task.run(request_receiver, events).await;
            stopped_sender.send_replace(refusal);
        });
        let proposer = Self::new(connection, requests, stopped);
        Ok((proposer, people_receiver))
    }

    /// A proposer whose requests another task answers.
    pub(crate) fn new(
        connection: Connection,
        requests: mpsc::Sender<ProposerRequest>,
        stopped: watch::Receiver<Option<String>>,
    ) -> Self {
        Self {
            connection,
            requests,
            stopped,
        }
    }

    pub fn participant(&self) -> &ParticipantId {
        self.connection.participant()
    }

    pub fn session(&self) -> &SessionId {
        self.connection.session()
    }

    /// The connection, for sending other messages.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Waits until the session is over for this participant. Returns why the server no longer lets
    /// it in, if that is the reason.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        let mut stopped = self.stopped.clone();
        async move {
            // The sender is dropped after its last value.
            while stopped.changed().await.is_ok() {}
            stopped.borrow().clone()
        }
    }

    /// Proposes a shell command line, with its purpose.
    pub async fn propose_shell(
        &self,
        line: &str,
        purpose: &str,
    ) -> Result<ProposalHandle, ProposeError> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        self.propose(arguments, purpose).await
    }

    /// Proposes a command with the arguments of `tool.propose`, and its purpose.
    pub async fn propose(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<ProposalHandle, ProposeError> {
        self.propose_tool("shell", ToolCategory::ShellExecute, arguments, purpose)
            .await
    }

    /// Proposes a call of any tool. A call that the server blocks is in the log all the same.
    pub async fn propose_tool(
        &self,
        tool_name: &str,
        category: ToolCategory,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<ProposalHandle, ProposeError> {
        let request = ToolRequest {
            tool_name,
            category,
            // This claim can only raise the risk; `Safe` leaves the assessment to the server.
            risk: Risk::Safe,
            arguments,
            origin: None,
        };
        self.propose_with_contents(request, purpose, ShownFiles::default())
            .await
    }

    /// Like [`propose_tool`](Self::propose_tool), with what people are shown of files.
    pub(crate) async fn propose_with_contents(
        &self,
        request: ToolRequest<'_>,
        purpose: &str,
        shown_files: ShownFiles,
    ) -> Result<ProposalHandle, ProposeError> {
        let ToolRequest {
            tool_name,
            category,
            risk,
            arguments,
            origin,
        } = request;
        let propose = ToolPropose {
            tool_name: tool_name.to_owned(),
            arguments,
            agent: self.participant().clone(),
            risk_level: risk,
            description: purpose.to_owned(),
            requires_approval: false,
            suggested_approvers: None,
            category,
            file_contents: shown_files.contents,
            deleted_files: shown_files.deleted,
            assessment: None,
            streaming: false,
            runs: RunBy::Executor,
            degree: None,
            // Nobody comes back for the call of a client that is gone.
            lease: origin.is_some(),
            origin,
            extra: ExtraFields::new(),
        };
        self.send_proposal(fresh_id(), propose).await
    }

    /// Proposes a call that an agent client runs by itself once it is granted. Whoever proposes it
    /// [renews](Self::renew) it while the client is there, and reports how it ended.
    pub async fn propose_client_call(
        &self,
        call: ClientCall,
    ) -> Result<ProposalHandle, ProposeError> {
        let propose = ToolPropose {
            tool_name: call.tool_name,
            arguments: call.arguments,
            agent: self.participant().clone(),
            risk_level: Risk::Safe,
            description: call.purpose,
            requires_approval: call.requires_approval,
            suggested_approvers: None,
            category: call.category,
            file_contents: call.file_contents,
            deleted_files: Vec::new(),
            assessment: None,
            streaming: false,
            runs: RunBy::Client,
            degree: Some(call.degree),
            origin: Some(call.origin),
            lease: false,
            extra: ExtraFields::new(),
        };
        self.send_proposal(call.id, propose).await
    }

    /// Says that the client of these calls is still there.
    pub async fn renew(&self, tool_proposals: Vec<MessageId>) -> Result<(), ProposeError> {
        let renew = ToolRenew {
            tool_proposals,
            extra: ExtraFields::new(),
        };
        self.connection.send_and_wait(renew).await?;
        Ok(())
    }

    async fn send_proposal(
        &self,
        id: MessageId,
        propose: ToolPropose,
    ) -> Result<ProposalHandle, ProposeError> {
        let action = Action::from_arguments(&propose.tool_name, &propose.arguments)?;
        let action = Box::new(action);
        let (events, mut handle) = ProposalHandle::new(id);
        let (registered, registration) = oneshot::channel();
        self.request(ProposerRequest::Track {
            id: handle.id.clone(),
            action,
            runs: propose.runs,
            events,
            registered,
        })
        .await?;
        let registered = registration.await.map_err(|_| ProposeError::Closed)?;
        let last_before = registered.map_err(ProposeError::NotRecorded)?;
        let id = handle.id.clone();
        let receipt = self.connection.send_with_id(id, None, propose).await?;
        match receipt.ack().await {
            // A message whose answer was lost with the connection is sent again, and arrives twice.
            // Only what was in the log before it was sent is another one.
            Ok(ack) if ack.duplicate && ack.seq.is_none_or(|seq| seq <= last_before) => {
                Err(ProposeError::Repeated)
            }
            Ok(_) => Ok(handle),
            Err(SendError::Refused(report)) if report.code == ErrorCode::GateFailed => {
                Err(blocked(&mut handle, *report).await)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Withdraws a proposal, or asks whoever runs it to stop.
    pub async fn cancel(&self, proposal: &MessageId, why: &str) -> Result<(), ProposeError> {
        let receipt = self.connection.cancel(proposal, Some(why.to_owned()));
        receipt.await?.ack().await?;
        Ok(())
    }

    /// Reads lines of a command's output, by the id of its proposal.
    pub async fn read_output(&self, read: OutputRead) -> Result<OutputPage, ProposeError> {
        loop {
            let id = fresh_id();
            let (page, answer) = oneshot::channel();
            self.request(ProposerRequest::TrackOutputRead {
                id: id.clone(),
                page,
            })
            .await?;
            let receipt = self.connection.send_with_id(id, None, read.clone()).await?;
            match receipt.ack().await {
                Ok(_) => return answer.await.map_err(|_| ProposeError::Closed),
                // The connection was lost meanwhile. Reading has no effect, so it is safe to
                // repeat.
                Err(SendError::Dropped) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Leaves the session, which withdraws what was proposed and not decided.
    pub async fn leave(self, why: &str) -> Result<(), ProposeError> {
        Ok(self.connection.leave(Some(why.to_owned())).await?)
    }

    async fn request(&self, request: ProposerRequest) -> Result<(), ProposeError> {
        let sent = self.requests.send(request).await;
        sent.map_err(|_| ProposeError::Closed)
    }
}

/// The error for a proposal that the server blocked. The log says which rule did; the entry may
/// arrive after the refusal.
async fn blocked(handle: &mut ProposalHandle, report: ErrorReport) -> ProposeError {
    while let Some(event) = handle.next().await {
        if let ProposalEvent::Assessed(assessment) = event {
            let (rule, reason) = (assessment.rule, assessment.reason);
            return ProposeError::Blocked { rule, reason };
        }
    }
    ProposeError::Refused(Box::new(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_that_nobody_reads_are_bounded_and_the_last_one_arrives() {
        let (sender, mut handle) = ProposalHandle::new(MessageId::parse("p1").unwrap());
        let text = "x".repeat(1024 * 1024);
        let output = || ProposalEvent::Output {
            stream: OutputStream::Stdout,
            text: text.clone(),
        };
        for _ in 0..100 {
            sender.send(output());
        }
        assert!(sender.unread_bytes.load(Ordering::Relaxed) <= MAX_UNREAD_BYTES);
        // Whoever reads makes room.
        for _ in 0..2 {
            assert_eq!(handle.next().await, Some(output()));
        }
        sender.send(ProposalEvent::GateOpened {
            quorum: "one".to_owned(),
        });
        sender.send_last(ProposalEvent::Lost);
        drop(sender);
        let mut left = Vec::new();
        while let Some(event) = handle.next().await {
            left.push(event);
        }
        assert_eq!(handle.unread_bytes.load(Ordering::Relaxed), 0);
        assert!(matches!(
            left[left.len() - 2..],
            [ProposalEvent::GateOpened { .. }, ProposalEvent::Lost]
        ));
    }
}
