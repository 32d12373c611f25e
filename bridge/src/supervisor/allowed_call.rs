//! A call that may run, and how it ended.

use pvp_agent::proposer::{ProposalEvent, ProposalHandle, RunReport};
use pvp_protocol::payload::{OutputStream, RunOutcome, ToolOutput};
use pvp_protocol::{ExtraFields, JsonObject, MessageId, ParticipantId};
use tokio::time::Instant;

use super::Supervisor;
use super::unreported::UnreportedCall;
use crate::leases::HeldLease;

/// Bytes of output in one message.
const MAX_CHUNK_BYTES: usize = 32 * 1024;

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

impl CallReport {
    /// The client did not run what it was allowed to.
    pub fn not_run(why: impl Into<String>) -> Self {
        Self {
            error: Some(why.into()),
            outcome: Some(RunOutcome::NotRun),
            ..Self::default()
        }
    }

    /// The client may have run it, and nobody knows how it ended.
    pub fn unknown(why: &str) -> Self {
        Self {
            error: Some(format!("outcome unknown: {why}")),
            outcome: Some(RunOutcome::Unknown),
            ..Self::default()
        }
    }
}

impl From<CallReport> for RunReport {
    fn from(report: CallReport) -> Self {
        Self {
            success: report.success,
            exit_code: report.exit_code,
            stdout: report.stdout,
            stderr: report.stderr,
            error: report.error,
            outcome: report.outcome,
            ..Self::default()
        }
    }
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
    pub(super) fn new(
        mut guard: CallGuard,
        handle: ProposalHandle,
        approved_by: Vec<ParticipantId>,
        edited: Option<JsonObject>,
    ) -> Self {
        guard.state = CallState::Running;
        guard.unreported = Some(guard.supervisor.unreported.begin());
        Self {
            guard,
            handle,
            approved_by,
            edited,
            started: Instant::now(),
            sent: [0, 0],
        }
    }

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
        self.guard.lease = None;
        let elapsed = self.started.elapsed().as_millis();
        let report = RunReport {
            duration_ms: u64::try_from(elapsed).unwrap_or(u64::MAX),
            streamed: self.sent,
            ..report.into()
        };
        let proposer = &self.guard.supervisor.proposer;
        if let Err(error) = proposer.report(&self.guard.id, report).await {
            tracing::warn!(%error, "a result was not accepted");
        }
    }
}

/// How far a call has come, for when it is dropped.
pub(super) enum CallState {
    Pending,
    Running,
    Over,
}

/// Ends a call that is dropped: withdraws it, or reports that its outcome is unknown.
pub(super) struct CallGuard {
    supervisor: Supervisor,
    id: MessageId,
    pub(super) state: CallState,
    /// `None` once the call is over.
    lease: Option<HeldLease>,
    /// Once it may run, until its end is reported.
    unreported: Option<UnreportedCall>,
}

impl CallGuard {
    pub(super) fn new(supervisor: &Supervisor, id: MessageId) -> Self {
        Self {
            supervisor: supervisor.clone(),
            lease: Some(supervisor.leases.hold(id.clone())),
            id,
            state: CallState::Pending,
            unreported: None,
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.lease = None;
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
                let unreported = self.unreported.take();
                runtime.spawn(async move {
                    let report = CallReport::unknown("the client did not say");
                    if let Err(error) = proposer.report(&id, report.into()).await {
                        tracing::debug!(%error, "an unknown outcome was not reported");
                    }
                    drop(unreported);
                });
            }
        }
    }
}
