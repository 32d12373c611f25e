//! Runs tool calls through an agent and words their results for the model.
//!
//! Whoever has a model, the [turn loop](crate::turn_loop) or a bridge to a client that brings its
//! own, starts a call, which proposes it, and then waits for its result.

use pvp_protocol::payload::{ClientOrigin, OutputRead};
use pvp_protocol::{Assessment, FileTool, MessageId, RunMode, SandboxProfile};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::brain::proposal_result::{AppliedEdit, CallResult};
use crate::brain::result_text::truncate_middle;
use crate::brain::tools::{
    FileCall, FileToolOffer, JobsCall, ReadApproval, ShellCall, render_jobs,
};
use crate::brain::{
    ParsedToolCall, ProposalResult, ResultTextLimits, ToolCall, ToolContext, recall,
};
use crate::proposer::{GateProgress, ProposalEvent, ProposalHandle, ProposeError};
use crate::run_results::unknown_result;

/// What happens to a call before its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallEvent {
    /// It is about to be proposed.
    Proposed { command: String, purpose: String },
    /// A gate was opened for it.
    GateOpened { quorum: String },
    /// It no longer waits for votes.
    GateClosed,
    /// It has ended or was not run; `how` is the first line of its result.
    Ended { command: String, how: String },
}

/// Called with every event of a call.
pub type CallEventCallback<'a> = &'a (dyn Fn(CallEvent) + Send + Sync);

/// Runs calls for a model.
#[derive(Clone, Copy)]
pub struct CallRunner<'a> {
    /// Proposes the commands and reads their output.
    pub agent: &'a Agent,
    /// How much of a command's output goes into a result.
    pub text_limits: ResultTextLimits,
    /// The client that makes the calls; `None` if the agent itself does.
    pub origin: Option<&'a ClientOrigin>,
    /// Receives what happens to the calls.
    pub on_event: CallEventCallback<'a>,
}

/// A call that was started.
pub struct StartedCall(StartedState);

enum StartedState {
    Finished(CallResult),
    Proposed(ProposableCall, ProposalHandle),
    Recall(OutputRead),
    Jobs(JobsCall),
}

impl StartedCall {
    /// A call that was not started; the model reads why.
    pub fn failed(why: &str) -> Self {
        Self(StartedState::Finished(CallResult::failed(why)))
    }

    /// The proposal, if the call is one.
    pub fn proposal(&self) -> Option<&MessageId> {
        match &self.0 {
            StartedState::Proposed(_, proposal) => Some(&proposal.id),
            StartedState::Finished(_) | StartedState::Recall(_) | StartedState::Jobs(_) => None,
        }
    }

    /// What its gate waits for, if the call is a proposal.
    pub fn gate_progress(&self) -> Option<watch::Receiver<Option<GateProgress>>> {
        match &self.0 {
            StartedState::Proposed(_, proposal) => Some(proposal.gate_progress()),
            StartedState::Finished(_) | StartedState::Recall(_) | StartedState::Jobs(_) => None,
        }
    }
}

/// What the descriptions of the tools say about an agent's executor.
pub fn tool_context(agent: &Agent) -> ToolContext {
    let settings = agent.settings();
    let profiles = settings.executor_info().profiles;
    ToolContext {
        working_directory: settings.workspace.display().to_string(),
        read_approval: match profiles.contains(&SandboxProfile::Read) {
            true => ReadApproval::NotRequired,
            false => ReadApproval::Required,
        },
        file_tools: match settings.runner.is_empty() {
            true => FileToolOffer::Offered,
            false => FileToolOffer::NotOffered,
        },
    }
}

impl CallRunner<'_> {
    /// Parses a call and proposes it, if it is a proposal. Once this has returned, the proposal is
    /// in the log, or it was refused.
    pub async fn start(&self, call: &ToolCall) -> StartedCall {
        StartedCall(match ParsedToolCall::parse(call) {
            Ok(ParsedToolCall::Shell(shell)) => self.propose(ProposableCall::Shell(shell)).await,
            Ok(ParsedToolCall::File(file)) => self.propose(ProposableCall::File(file)).await,
            Ok(ParsedToolCall::Recall(read)) => StartedState::Recall(read),
            Ok(ParsedToolCall::Jobs(jobs)) => StartedState::Jobs(jobs),
            Err(why) => StartedState::Finished(CallResult::failed(&why)),
        })
    }

    /// Waits for the result of a call.
    pub async fn finish(&self, started: StartedCall) -> CallResult {
        match started.0 {
            StartedState::Finished(result) => result,
            StartedState::Recall(read) => self.read_output(read).await,
            StartedState::Jobs(jobs) => self.list_or_stop_jobs(jobs).await,
            StartedState::Proposed(call, proposal) => {
                let mut progress = ProposalProgress::default();
                let proposal_result = self
                    .track_proposal(proposal, call.mode(), &mut progress)
                    .await;
                if progress.is_waiting {
                    (self.on_event)(CallEvent::GateClosed);
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

    async fn propose(&self, call: ProposableCall) -> StartedState {
        (self.on_event)(CallEvent::Proposed {
            command: call.summary(),
            purpose: call.purpose().to_owned(),
        });
        let (agent, origin) = (self.agent, self.origin.cloned());
        let proposed = match &call {
            ProposableCall::Shell(shell) => {
                let arguments = shell.propose_arguments();
                agent
                    .propose_even_if_blocked(arguments, &shell.purpose, origin)
                    .await
            }
            ProposableCall::File(file) => {
                agent
                    .propose_file_tool(&file.file_tool, &file.purpose, origin)
                    .await
            }
        };
        let proposal_result = match proposed {
            Ok(proposal) => return StartedState::Proposed(call, proposal),
            Err(ProposeError::Blocked { rule, reason }) => ProposalResult::Blocked { rule, reason },
            Err(error) => ProposalResult::Refused {
                why: error.to_string(),
            },
        };
        StartedState::Finished(self.finish_command(&call, &proposal_result, None))
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
        (self.on_event)(CallEvent::Ended {
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
                    // Of the gates of one proposal, the last one counts.
                    if std::mem::replace(&mut progress.is_waiting, true) {
                        (self.on_event)(CallEvent::GateClosed);
                    }
                    (self.on_event)(CallEvent::GateOpened { quorum });
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
                        (self.on_event)(CallEvent::GateClosed);
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
