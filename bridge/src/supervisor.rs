//! A bridge's place in a session: has a client's calls decided, and reports how they ended.
//!
//! The types carry the order of things. A call is [proposed](Supervisor::propose), which gives a
//! [`PendingCall`]; waiting for its decision gives an [`AllowedCall`] or a [`Denial`]; only an
//! allowed call can report output and a result. A pending call that is dropped is withdrawn, and an
//! allowed call that is dropped without a result is reported as unknown.

mod agent_inputs;
mod leases;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pvp_agent::agent::Agent;
use pvp_agent::proposer::{
    ClientCall, GateProgress, PersonRequest, ProposalEvent, ProposalHandle, ProposeError, Proposer,
    RunReport,
};
use pvp_client::{ConnectError, ConnectOptions, Connection, Link};
use pvp_protocol::payload::{
    ClientOrigin, Degree, ExecutorInfo, FileContent, GateOutcome, GateResolve,
    InterruptAcknowledge, InterruptAction, OutputStream, RunOutcome, ToolOutput,
};
use pvp_protocol::{
    Action, Command, Digest, ExtraFields, JsonObject, MessageId, ParticipantId, RunMode, SessionId,
};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::reach::{self, CallReach};
use crate::translation::{CallPlace, TranslatedCall};
use leases::LeaseRenewal;

/// How often somebody who waits is told how long they have waited.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Bytes of output in one message.
const MAX_CHUNK_BYTES: usize = 32 * 1024;

/// A client under supervision.
#[derive(Debug, Clone)]
pub struct SupervisedClient {
    /// Its name, such as `codex`.
    pub name: String,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// The directory that it works in, as an absolute path without links.
    pub workspace: PathBuf,
    /// How sure it is that what is approved is what it runs.
    pub degree: Degree,
    /// Whether it can be given an edited call.
    pub takes_edits: bool,
}

/// One call as the client makes it.
#[derive(Debug, Clone)]
pub struct CallRequest {
    /// The client's own id of its conversation.
    pub conversation: String,
    /// The client's own id of the call; the same call is decided once.
    pub call_id: String,
    /// The subagent that makes it; `None` if the agent itself does.
    pub subagent: Option<String>,
    /// The call in the words of this protocol.
    pub call: TranslatedCall,
    /// The contents of the files that the call binds.
    pub file_contents: Vec<FileContent>,
}

/// A bridge in a session. Clones share one connection; dropping the last one ends it.
#[derive(Clone)]
pub struct Supervisor {
    client: Arc<SupervisedClient>,
    proposer: Proposer,
    leases: LeaseRenewal,
}

impl Supervisor {
    /// Joins a session for a client. The receiver gets what people ask of the agent: prompts, and
    /// interrupts, which the caller [acknowledges](Self::acknowledge) when it has acted on them.
    pub async fn connect(
        link: Link,
        client: SupervisedClient,
    ) -> Result<(Self, mpsc::Receiver<PersonRequest>), ConnectError> {
        let options = connect_options(&client);
        Self::connect_with(link, options, client).await
    }

    /// Like [`connect`](Self::connect), with options of the caller's; the executor is announced as
    /// in the options.
    pub async fn connect_with(
        link: Link,
        options: ConnectOptions,
        client: SupervisedClient,
    ) -> Result<(Self, mpsc::Receiver<PersonRequest>), ConnectError> {
        let (proposer, requests) = Proposer::connect_with_requests(link, options).await?;
        Ok((Self::with_proposer(proposer, client), requests))
    }

    /// Supervises a client over the connection of an agent that is in the session already.
    pub fn with_proposer(proposer: Proposer, client: SupervisedClient) -> Self {
        Self {
            client: Arc::new(client),
            leases: LeaseRenewal::keep(proposer.clone()),
            proposer,
        }
    }

    /// Supervises a client over the connection of an agent, whose executor runs what the client
    /// leaves to it. The agent must leave it to its caller to answer interrupts. Once the agent is
    /// dropped, nothing more is decided.
    pub fn over_agent(
        agent: &mut Agent,
        client: SupervisedClient,
    ) -> (Self, mpsc::Receiver<PersonRequest>) {
        let requests = agent_inputs::person_requests(agent.take_inputs());
        (
            Self::with_proposer(agent.proposer().clone(), client),
            requests,
        )
    }

    /// The client under supervision.
    pub fn client(&self) -> &SupervisedClient {
        &self.client
    }

    /// Says that the client of a call is still there; an error says that the server is not.
    pub async fn renew(&self, call: &MessageId) -> Result<(), ProposeError> {
        self.proposer.renew(vec![call.clone()]).await
    }

    pub fn participant(&self) -> &ParticipantId {
        self.proposer.participant()
    }

    pub fn session(&self) -> &SessionId {
        self.proposer.session()
    }

    /// The connection, for sending other messages.
    pub fn connection(&self) -> &Connection {
        self.proposer.connection()
    }

    /// Waits until the session is over for this participant.
    pub fn stopped(&self) -> impl Future<Output = Option<String>> + Send + 'static {
        self.proposer.stopped()
    }

    /// Where a call is made that is made in the client's own directory.
    pub fn place(&self) -> CallPlace {
        CallPlace {
            workspace: self.client.workspace.clone(),
            cwd: self.client.workspace.clone(),
        }
    }

    /// Proposes a call. Whatever goes wrong is a denial: nothing runs because of an error.
    pub async fn propose(&self, request: CallRequest) -> Result<PendingCall, Denial> {
        let requires_approval = match reach::check(&request.call, &self.client.workspace) {
            CallReach::AsShown => false,
            CallReach::Ask => true,
            CallReach::Refused(why) => return Err(Denial::failed(&why)),
        };
        let id = proposal_id(&self.client.name, &request.conversation, &request.call_id);
        let call = ClientCall {
            id,
            tool_name: request.call.tool_name.clone(),
            category: request.call.category,
            arguments: request.call.arguments.clone(),
            purpose: request.call.purpose.clone(),
            requires_approval,
            file_contents: request.file_contents,
            degree: self.client.degree,
            origin: ClientOrigin {
                client: self.client.name.clone(),
                version: self.client.version.clone(),
                session: Some(request.conversation),
                call: Some(request.call_id),
                subagent: request.subagent,
            },
        };
        let handle = self.proposer.propose_client_call(call).await;
        let handle = handle.map_err(Denial::from)?;
        Ok(PendingCall::new(self, handle, request.call))
    }

    /// Acknowledges an interrupt that was acted on.
    pub async fn acknowledge(&self, interrupt: &MessageId, action: InterruptAction) {
        let acknowledge = InterruptAcknowledge {
            interrupt: interrupt.clone(),
            by: self.participant().clone(),
            action_taken: action,
            ignore_reason: None,
            extra: ExtraFields::new(),
        };
        if let Err(error) = self.connection().send_and_wait(acknowledge).await {
            tracing::warn!(%error, "an interrupt was not acknowledged");
        }
    }

    /// Leaves the session, which withdraws what waits and closes what runs as unknown.
    pub async fn leave(self, why: &str) -> Result<(), ProposeError> {
        self.proposer.leave(why).await
    }
}

/// The id of the proposal of a call: the same call always has the same one.
pub fn proposal_id(client: &str, conversation: &str, call_id: &str) -> MessageId {
    let parts = [client, conversation, call_id].map(str::as_bytes);
    let digest = Digest::of(&[b"pvp.client-call.v1", parts[0], parts[1], parts[2]]).to_string();
    let hex: String = digest.chars().filter(char::is_ascii_hexdigit).collect();
    MessageId::parse(&format!("call-{}", &hex[..32])).expect("hex is a plain word")
}

/// How a bridge joins a session for a client.
pub fn connect_options(client: &SupervisedClient) -> ConnectOptions {
    ConnectOptions {
        executor: Some(executor_info(client)),
        metadata: Some(metadata(client)),
        ..ConnectOptions::default()
    }
}

/// What a bridge announces about its client: it confines nothing.
pub fn executor_info(client: &SupervisedClient) -> ExecutorInfo {
    ExecutorInfo {
        profiles: Vec::new(),
        trials: false,
        shell_exec: false,
        edits: client.takes_edits,
        working_directory: client.workspace.to_str().map(str::to_owned),
        runner: Vec::new(),
        shell: None,
        read_roots: false,
    }
}

fn metadata(client: &SupervisedClient) -> JsonObject {
    let mut metadata = JsonObject::new();
    metadata.insert("client".to_owned(), client.name.clone().into());
    if let Some(version) = &client.version {
        metadata.insert("client_version".to_owned(), version.clone().into());
    }
    metadata
}

/// Why a call may not run, in words for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    pub kind: DenialKind,
    /// Who denied it and why, and what to do instead.
    pub reason: String,
}

/// What denied a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialKind {
    /// A rule of the policy.
    Blocked,
    /// A person.
    Rejected,
    /// Nobody decided in time.
    TimedOut,
    /// It was withdrawn: by an interrupt, by a person, or because the session ended.
    Cancelled,
    /// The server refused it, or could not be reached.
    Failed,
}

impl From<ProposeError> for Denial {
    fn from(error: ProposeError) -> Self {
        let kind = match &error {
            ProposeError::Blocked { .. } => DenialKind::Blocked,
            ProposeError::BadArguments(_)
            | ProposeError::BadDirectory(_)
            | ProposeError::BadFile(_)
            | ProposeError::NotRecorded(_)
            | ProposeError::Repeated
            | ProposeError::Refused(_)
            | ProposeError::Closed => DenialKind::Failed,
        };
        let reason = match &error {
            ProposeError::Blocked { rule, reason } => {
                format!("Blocked by rule `{rule}`: {reason}. It never runs; do something else.")
            }
            ProposeError::BadArguments(_)
            | ProposeError::BadDirectory(_)
            | ProposeError::BadFile(_)
            | ProposeError::NotRecorded(_)
            | ProposeError::Repeated
            | ProposeError::Refused(_)
            | ProposeError::Closed => format!("Not allowed: {error}."),
        };
        Self { kind, reason }
    }
}

impl Denial {
    fn failed(reason: &str) -> Self {
        Self {
            kind: DenialKind::Failed,
            reason: reason.to_owned(),
        }
    }

    fn from_resolution(resolve: &GateResolve) -> Self {
        let kind = match resolve.outcome {
            GateOutcome::Rejected => DenialKind::Rejected,
            GateOutcome::TimedOut => DenialKind::TimedOut,
            GateOutcome::Cancelled | GateOutcome::Approved => DenialKind::Cancelled,
        };
        Self {
            kind,
            reason: resolve.denial_text(),
        }
    }
}

/// What was decided about a call.
pub enum CallDecision {
    Allowed(Box<AllowedCall>),
    Denied(Denial),
}

/// A call that was proposed and may not be decided yet. Dropping it withdraws it.
pub struct PendingCall {
    /// Withdraws it if it is dropped.
    guard: CallGuard,
    /// What becomes of it.
    handle: ProposalHandle,
    /// The call as it was proposed.
    call: TranslatedCall,
    /// The votes that it waits for; `None` before its gate is open.
    waits_for: Option<String>,
    /// When it was proposed.
    since: Instant,
    /// When somebody who waits is told again.
    next_progress: Instant,
    /// What was decided, until it is taken.
    decided: Option<CallVerdict>,
}

/// A decision as the session says it.
enum CallVerdict {
    Granted(Box<Action>, Vec<ParticipantId>),
    Denied(Denial),
}

impl PendingCall {
    fn new(supervisor: &Supervisor, handle: ProposalHandle, call: TranslatedCall) -> Self {
        let now = Instant::now();
        Self {
            guard: CallGuard::new(supervisor, handle.id.clone()),
            handle,
            call,
            waits_for: None,
            since: now,
            next_progress: now + PROGRESS_INTERVAL,
            decided: None,
        }
    }

    /// The id of the proposal.
    pub fn id(&self) -> &MessageId {
        &self.handle.id
    }

    /// What its gate waits for, as it changes; `None` while no gate is open.
    pub fn gate_progress(&self) -> watch::Receiver<Option<GateProgress>> {
        self.handle.gate_progress()
    }

    /// What it waits for and since when, every few seconds and when that changes; `None` once it is
    /// decided. Cancel safe: dropping the future loses nothing.
    pub async fn progress(&mut self) -> Option<String> {
        while self.decided.is_none() {
            tokio::select! {
                event = self.handle.next() => {
                    if self.on_event(event) {
                        return Some(self.progress_text());
                    }
                }
                () = tokio::time::sleep_until(self.next_progress) => {
                    self.next_progress = Instant::now() + PROGRESS_INTERVAL;
                    return Some(self.progress_text());
                }
            }
        }
        None
    }

    /// Waits for the decision.
    pub async fn decision(mut self) -> CallDecision {
        while self.progress().await.is_some() {}
        match self.decided.take() {
            Some(CallVerdict::Granted(action, approved_by)) => self.allow(&action, approved_by),
            Some(CallVerdict::Denied(denial)) => {
                self.guard.state = CallState::Over;
                CallDecision::Denied(denial)
            }
            None => CallDecision::Denied(Denial::failed("Not allowed: it was not decided.")),
        }
    }

    /// Whether there is something new to tell.
    fn on_event(&mut self, event: Option<ProposalEvent>) -> bool {
        let verdict = match event {
            Some(ProposalEvent::GateOpened { quorum }) => {
                self.waits_for = Some(quorum);
                return true;
            }
            Some(
                ProposalEvent::Assessed(_)
                | ProposalEvent::Edited { .. }
                | ProposalEvent::Started { .. }
                | ProposalEvent::Output { .. }
                | ProposalEvent::CancelRequested { .. },
            ) => return false,
            Some(ProposalEvent::Granted {
                approved_by,
                action,
                ..
            }) => CallVerdict::Granted(action, approved_by),
            Some(ProposalEvent::NotRun(resolve)) => {
                CallVerdict::Denied(Denial::from_resolution(&resolve))
            }
            Some(ProposalEvent::Finished(result)) => {
                let why = result.error.as_deref().unwrap_or("it has ended already");
                CallVerdict::Denied(Denial::failed(&format!("Not allowed: {why}.")))
            }
            Some(ProposalEvent::Lost) | None => {
                let why = "Not allowed: the session is over for this agent.";
                CallVerdict::Denied(Denial::failed(why))
            }
        };
        self.decided = Some(verdict);
        false
    }

    fn progress_text(&self) -> String {
        let waits_for = self.waits_for.as_deref().unwrap_or("the server");
        let seconds = self.since.elapsed().as_secs();
        format!("waiting for {waits_for}, {seconds} s")
    }

    fn allow(self, action: &Action, approved_by: Vec<ParticipantId>) -> CallDecision {
        let proposed = Action::from_arguments(&self.call.tool_name, &self.call.arguments);
        let edited = (proposed.as_ref() != Ok(action)).then(|| arguments_of(action));
        let mut guard = self.guard;
        guard.state = CallState::Running;
        CallDecision::Allowed(Box::new(AllowedCall {
            guard,
            handle: self.handle,
            approved_by,
            edited,
            started: Instant::now(),
            sent: [0, 0],
        }))
    }
}

/// The arguments of `tool.propose` that describe an action.
fn arguments_of(action: &Action) -> JsonObject {
    let mut arguments = JsonObject::new();
    let mut insert = |name: &str, value: serde_json::Value| {
        arguments.insert(name.to_owned(), value);
    };
    match &action.command {
        Command::Tool { arguments, .. } => return arguments.clone(),
        Command::Shell { line } | Command::LoginShell { line } => {
            insert("full_command", line.as_str().into());
        }
        Command::Argv { command, args } => {
            insert("command", command.as_str().into());
            insert("args", args.clone().into());
        }
    }
    if let Some(cwd) = &action.cwd {
        insert("cwd", cwd.as_str().into());
    }
    if action.mode != RunMode::Normal {
        insert("mode", action.mode.as_str().into());
    }
    if !action.env.is_empty() {
        insert("env", serde_json::to_value(&action.env).unwrap_or_default());
    }
    if !action.files.is_empty() {
        let files = serde_json::to_value(&action.files).unwrap_or_default();
        insert("files", files);
    }
    arguments
}

/// How a call ended that its client ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallReport {
    /// Whether it did what it should.
    pub success: bool,
    /// The exit code; `None` if it has none, or if the client does not say.
    pub exit_code: Option<i64>,
    /// What it printed or returned and was not sent with [`AllowedCall::output`].
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
    /// What went wrong besides the exit code.
    pub error: Option<String>,
    /// Set if it is not known how it ended, or if the client did not run it.
    pub outcome: Option<RunOutcome>,
    /// Whether it goes on in the background of the client.
    pub in_background: bool,
}

/// A call that may run, once. Dropping it without a result reports its outcome as unknown.
pub struct AllowedCall {
    /// Reports it as unknown if it is dropped.
    guard: CallGuard,
    /// What becomes of it.
    handle: ProposalHandle,
    /// Who approved it; empty if no vote was needed.
    pub approved_by: Vec<ParticipantId>,
    /// The arguments as somebody edited them; `None` if nobody did. If the client cannot run exactly
    /// this, it must not run anything.
    pub edited: Option<JsonObject>,
    /// When it was allowed.
    started: Instant,
    /// Bytes that were sent of each stream.
    sent: [u64; 2],
}

impl AllowedCall {
    /// The id of the proposal.
    pub fn id(&self) -> &MessageId {
        &self.handle.id
    }

    /// Waits until somebody wants the call to stop; forever if nobody does. Cancel safe.
    pub async fn stop_requested(&mut self) -> Option<String> {
        loop {
            match self.handle.next().await {
                Some(ProposalEvent::CancelRequested { reason, .. }) => return reason,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Sends output as it comes. What the server does not take any more is dropped.
    pub async fn output(&mut self, stream: OutputStream, text: &str) {
        let sent = match stream {
            OutputStream::Stdout => &mut self.sent[0],
            OutputStream::Stderr => &mut self.sent[1],
        };
        let mut rest = text;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(rest.floor_char_boundary(MAX_CHUNK_BYTES));
            let output = ToolOutput {
                tool_proposal: self.handle.id.clone(),
                stream,
                text: chunk.to_owned(),
                complete: false,
                offset: Some(*sent),
                extra: ExtraFields::new(),
            };
            *sent += chunk.len() as u64;
            rest = after;
            let connection = self.guard.supervisor.connection();
            if let Err(error) = connection.send(output).await {
                tracing::warn!(%error, "output was not sent");
                return;
            }
        }
    }

    /// Reports how it ended.
    pub async fn finish(mut self, report: CallReport) {
        self.guard.state = CallState::Over;
        self.guard.supervisor.leases.remove(&self.guard.id);
        let elapsed = self.started.elapsed().as_millis();
        let report = RunReport {
            success: report.success,
            exit_code: report.exit_code,
            stdout: report.stdout,
            stderr: report.stderr,
            error: report.error,
            duration_ms: u64::try_from(elapsed).unwrap_or(u64::MAX),
            outcome: report.outcome,
            streamed: self.sent,
        };
        let proposer = &self.guard.supervisor.proposer;
        if let Err(error) = proposer.report(&self.guard.id, report).await {
            tracing::warn!(%error, "a result was not accepted");
        }
    }
}

/// How far a call has come, for when it is dropped.
enum CallState {
    Pending,
    Running,
    Over,
}

/// Ends a call that is dropped: withdraws it, or reports that its outcome is unknown.
struct CallGuard {
    supervisor: Supervisor,
    id: MessageId,
    state: CallState,
}

impl CallGuard {
    fn new(supervisor: &Supervisor, id: MessageId) -> Self {
        supervisor.leases.add(id.clone());
        Self {
            supervisor: supervisor.clone(),
            id,
            state: CallState::Pending,
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.supervisor.leases.remove(&self.id);
        let (proposer, id) = (self.supervisor.proposer.clone(), self.id.clone());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        match self.state {
            CallState::Over => {}
            CallState::Pending => {
                runtime.spawn(async move {
                    if let Err(error) = proposer.cancel(&id, "the client withdrew it").await {
                        tracing::debug!(%error, "a call was not withdrawn");
                    }
                });
            }
            CallState::Running => {
                runtime.spawn(async move {
                    let report = RunReport {
                        error: Some("outcome unknown: the client did not say".to_owned()),
                        outcome: Some(RunOutcome::Unknown),
                        ..RunReport::default()
                    };
                    if let Err(error) = proposer.report(&id, report).await {
                        tracing::debug!(%error, "an unknown outcome was not reported");
                    }
                });
            }
        }
    }
}
