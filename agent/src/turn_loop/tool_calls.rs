//! Runs the tool calls of one answer and turns their outcomes into results for the model.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use pvp_protocol::payload::OutputRead;
use pvp_protocol::{Assessment, FileTool, RunMode};
use tokio::sync::Notify;

use super::prompt_queue::Halt;
use super::{AgentEvent, AgentEventCallback, INTERRUPTED_RESULT};
use crate::agent::Agent;
use crate::brain::proposal_result::{AppliedEdit, CallResult};
use crate::brain::result_text::truncate_middle;
use crate::brain::tools::{FileCall, JobsCall, ShellCall, render_jobs};
use crate::brain::{ParsedToolCall, ProposalResult, ResultTextLimits, ToolCall, recall};
use crate::proposer::{ProposalEvent, ProposalHandle, ProposeError};
use crate::run_results::unknown_result;

/// Calls of one answer that are started.
const MAX_CALLS: usize = 64;

pub(super) struct ToolCallBatch<'a> {
    /// Proposes the commands and reads their output.
    agent: &'a Agent,
    /// How much of a command's output goes into a result.
    text_limits: ResultTextLimits,
    /// The tools that the prompt allows; `None` allows all.
    allowed_tools: Option<&'a [String]>,
    /// Receives what happens to proposals.
    on_event: &'a AgentEventCallback,
    /// How many proposals wait for votes.
    waiting_proposals: AtomicUsize,
    /// Notified when one more proposal waits for votes.
    proposal_waiting: Notify,
    /// Set by a pause: no further call is started.
    paused: AtomicBool,
    /// Set by a stop: no further call is started, and a proposal that is being sent is withdrawn.
    stopped: AtomicBool,
}

impl<'a> ToolCallBatch<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        text_limits: ResultTextLimits,
        allowed_tools: Option<&'a [String]>,
        on_event: &'a AgentEventCallback,
    ) -> Self {
        Self {
            agent,
            text_limits,
            allowed_tools,
            on_event,
            waiting_proposals: AtomicUsize::new(0),
            proposal_waiting: Notify::new(),
            paused: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts no further calls; after a stop, also withdraws a proposal that is just being sent.
    pub(super) fn halt(&self, halt: Halt) {
        let which = match halt {
            Halt::Pause => &self.paused,
            Halt::Stop => &self.stopped,
        };
        which.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn is_halted(&self) -> bool {
        self.is_stopped() || self.paused.load(Ordering::Relaxed)
    }

    /// Whether a proposal waits for votes.
    pub(super) fn has_waiting_proposals(&self) -> bool {
        self.waiting_proposals.load(Ordering::Relaxed) > 0
    }

    /// Waits until one more proposal waits for votes.
    pub(super) async fn proposal_started_waiting(&self) {
        self.proposal_waiting.notified().await;
    }

    /// Proposes in the order of the calls, then waits for all of them concurrently.
    pub(super) async fn run(&self, calls: &[ToolCall]) -> Vec<CallResult> {
        let mut started = Vec::new();
        for (number, call) in calls.iter().enumerate() {
            started.push(if self.is_halted() {
                StartedCall::Finished(CallResult::failed(INTERRUPTED_RESULT))
            } else if number >= MAX_CALLS {
                StartedCall::Finished(CallResult::failed(&format!(
                    "Nothing was done: only the first {MAX_CALLS} calls of an answer are begun. Call \
                     again in a later answer."
                )))
            } else {
                self.start(call).await
            });
        }
        join_all(started.into_iter().map(|call| self.finish(call))).await
    }

    async fn start(&self, call: &ToolCall) -> StartedCall {
        if let Some(allowed) = self.allowed_tools
            && !allowed.contains(&call.name)
        {
            return StartedCall::Finished(CallResult::failed(&format!(
                "The tool `{}` is not allowed for this prompt. Nothing was done.",
                call.name
            )));
        }
        match ParsedToolCall::parse(call) {
            Ok(ParsedToolCall::Shell(shell)) => self.propose(ProposableCall::Shell(shell)).await,
            Ok(ParsedToolCall::File(file)) => self.propose(ProposableCall::File(file)).await,
            Ok(ParsedToolCall::Recall(read)) => StartedCall::Recall(read),
            Ok(ParsedToolCall::Jobs(jobs)) => StartedCall::Jobs(jobs),
            Err(why) => StartedCall::Finished(CallResult::failed(&why)),
        }
    }

    async fn finish(&self, started: StartedCall) -> CallResult {
        match started {
            StartedCall::Finished(result) => result,
            StartedCall::Recall(read) => self.read_output(read).await,
            StartedCall::Jobs(jobs) => self.list_or_stop_jobs(jobs).await,
            StartedCall::Proposed(call, proposal) => {
                let mut progress = ProposalProgress::default();
                let proposal_result = self
                    .track_proposal(proposal, call.mode(), &mut progress)
                    .await;
                if progress.is_waiting {
                    self.waiting_proposals.fetch_sub(1, Ordering::Relaxed);
                }
                self.finish_command(&call, &proposal_result, progress.assessment.as_deref())
            }
        }
    }

    async fn read_output(&self, read: OutputRead) -> CallResult {
        match self.agent.read_output(read.clone()).await {
            Ok(page) => CallResult::success(recall::render_page(&read, &page)),
            Err(error) => CallResult::failed(&format!("The output cannot be read: {error}.")),
        }
    }

    async fn list_or_stop_jobs(&self, jobs: JobsCall) -> CallResult {
        let done = match &jobs {
            JobsCall::List => self.agent.jobs().await.map(|jobs| render_jobs(&jobs)),
            JobsCall::Stop(reference) => {
                let stopped = self.agent.stop_job(reference, "the agent stopped it").await;
                stopped.map(|how| {
                    let how = how.unwrap_or_else(|| "it is being stopped".to_owned());
                    format!("ref \"{reference}\" has ended, with all that it started: {how}")
                })
            }
        };
        match done {
            Ok(text) => CallResult::success(text),
            Err(error) => CallResult::failed(&format!("That did not work: {error}.")),
        }
    }

    async fn propose(&self, call: ProposableCall) -> StartedCall {
        (self.on_event)(AgentEvent::Proposed {
            command: call.summary(),
            purpose: call.purpose().to_owned(),
        });
        let agent = self.agent;
        let proposed = match &call {
            ProposableCall::Shell(shell) => {
                let arguments = shell.propose_arguments();
                agent
                    .propose_even_if_blocked(arguments, &shell.purpose)
                    .await
            }
            ProposableCall::File(file) => {
                agent
                    .propose_file_tool(&file.file_tool, &file.purpose)
                    .await
            }
        };
        let proposal_result = match proposed {
            Ok(proposal) => {
                if self.is_stopped() {
                    self.withdraw(&proposal).await;
                }
                return StartedCall::Proposed(call, proposal);
            }
            Err(ProposeError::Blocked { rule, reason }) => ProposalResult::Blocked { rule, reason },
            Err(error) => ProposalResult::Refused {
                why: error.to_string(),
            },
        };
        StartedCall::Finished(self.finish_command(&call, &proposal_result, None))
    }

    /// Withdraws a proposal that was sent after a stop; the session has withdrawn only those before
    /// it.
    async fn withdraw(&self, proposal: &ProposalHandle) {
        let why = Some("people stopped the agent".to_owned());
        if let Err(error) = self.agent.connection().cancel(&proposal.id, why).await {
            tracing::warn!(%error, "could not withdraw a proposal");
        }
    }

    fn finish_command(
        &self,
        call: &ProposableCall,
        proposal_result: &ProposalResult,
        assessment: Option<&Assessment>,
    ) -> CallResult {
        let text_limits = match call.is_file_read() {
            true => self.text_limits.for_file(),
            false => self.text_limits,
        };
        let result = proposal_result.to_call_result(assessment, text_limits);
        (self.on_event)(AgentEvent::CommandEnded {
            command: call.summary(),
            how: truncate_middle(result.text.lines().next().unwrap_or_default(), 1000),
        });
        result
    }

    /// Follows a proposal until its result is known; for a background job, until it has started.
    async fn track_proposal(
        &self,
        mut proposal: ProposalHandle,
        mode: RunMode,
        progress: &mut ProposalProgress,
    ) -> ProposalResult {
        while let Some(event) = proposal.next().await {
            match event {
                ProposalEvent::Assessed(assessment) => progress.assessment = Some(assessment),
                ProposalEvent::GateOpened { quorum } => {
                    if !std::mem::replace(&mut progress.is_waiting, true) {
                        self.waiting_proposals.fetch_add(1, Ordering::Relaxed);
                        self.proposal_waiting.notify_one();
                    }
                    (self.on_event)(AgentEvent::GateOpened { quorum });
                }
                ProposalEvent::Edited {
                    by,
                    command,
                    reason,
                    action: _,
                } => {
                    progress.edit = Some(AppliedEdit {
                        by,
                        command,
                        reason,
                    });
                }
                ProposalEvent::Granted { .. } => {
                    if std::mem::replace(&mut progress.is_waiting, false) {
                        self.waiting_proposals.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                ProposalEvent::Started { pid, file } if mode == RunMode::Background => {
                    return ProposalResult::Started {
                        reference: proposal.id,
                        pid: Some(pid),
                        file: file.map(|file| file.display().to_string()),
                        edit: progress.edit.take(),
                    };
                }
                ProposalEvent::Started { .. }
                | ProposalEvent::Output { .. }
                | ProposalEvent::CancelRequested { .. } => {}
                ProposalEvent::Finished(result) => {
                    let edit = progress.edit.take();
                    return ProposalResult::Ran { result, edit };
                }
                ProposalEvent::NotRun(resolve) => return ProposalResult::NotApproved(resolve),
                ProposalEvent::Lost => {
                    let why = "the server no longer has the log in which it was proposed";
                    let result = Box::new(unknown_result(proposal.id, why));
                    let edit = progress.edit.take();
                    return ProposalResult::Ran { result, edit };
                }
            }
        }
        let why = "the session is over".to_owned();
        ProposalResult::Refused { why }
    }
}

/// A call that was started.
enum StartedCall {
    Finished(CallResult),
    Proposed(ProposableCall, ProposalHandle),
    Recall(OutputRead),
    Jobs(JobsCall),
}

/// A call that people may decide on.
enum ProposableCall {
    Shell(ShellCall),
    File(FileCall),
}

impl ProposableCall {
    /// One line that describes it to people.
    fn summary(&self) -> String {
        match self {
            Self::Shell(shell) => shell.command.clone(),
            Self::File(file) => file.summary(),
        }
    }

    fn purpose(&self) -> &str {
        match self {
            Self::Shell(shell) => &shell.purpose,
            Self::File(file) => &file.purpose,
        }
    }

    fn mode(&self) -> RunMode {
        match self {
            Self::Shell(shell) => shell.mode,
            Self::File(_) => RunMode::Normal,
        }
    }

    fn is_file_read(&self) -> bool {
        match self {
            Self::Shell(_) => false,
            Self::File(file) => matches!(file.file_tool, FileTool::Read { .. }),
        }
    }
}

/// What is known about a proposal so far.
#[derive(Default)]
struct ProposalProgress {
    assessment: Option<Box<Assessment>>,
    edit: Option<AppliedEdit>,
    is_waiting: bool,
}
