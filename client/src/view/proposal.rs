//! One command from its first word to its last: judged, waiting, running, over.

use std::sync::Arc;

use pvp_protocol::payload::{
    Approval, ClearedBy, GateOutcome, GateResolve, OutputStream, ResolutionCause, RunOutcome,
    RunningCommand, ToolExecute, ToolResult,
};
use pvp_protocol::{
    Category, ExecutionLimits, ExtraFields, MessageId, ParticipantId, Risk, RunMode,
    SandboxProfile, Sender, Timestamp,
};
use serde::Serialize;
use serde_json::Value;

use super::output::OutputView;
use super::requested_action::RequestedAction;
use super::text::{truncate_line, truncate_optional_line};

/// Most approvals that are kept of one decision.
const MAX_APPROVALS: usize = 200;

/// How far a command has come. The order is that of a command's life, and it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// The verdict is there; what follows from it comes at once.
    Judged,
    /// At a gate.
    Waiting,
    /// The gate has passed; the grant comes at once.
    Approved,
    /// Granted to its executor.
    Running,
    /// It is over; how it ended was not told.
    Over,
    Blocked,
    Rejected,
    TimedOut,
    Cancelled,
    /// It ran, and there is a result.
    Finished,
}

impl ProposalState {
    /// Whether nothing more will happen to it.
    pub fn is_over(self) -> bool {
        self >= ProposalState::Over
    }
}

/// Who asked for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandOrigin {
    /// An agent proposed it.
    Agent,
    /// A person typed it.
    Person,
}

/// How a gate closed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResolutionView {
    pub outcome: GateOutcome,
    pub how: ResolutionCause,
    pub at: Timestamp,
    pub approvals: Vec<Approval>,
    /// Who rejected or cancelled it.
    pub by: Option<ParticipantId>,
    pub reason: Option<String>,
    pub suggestion: Option<String>,
}

impl ResolutionView {
    pub(super) fn new(resolve: &GateResolve) -> Self {
        Self {
            outcome: resolve.outcome,
            how: resolve.how,
            at: resolve.at,
            approvals: bounded_approvals(&resolve.approvals),
            by: resolve.by.clone(),
            reason: truncate_optional_line(resolve.reason.as_ref()),
            suggestion: truncate_optional_line(resolve.suggestion.as_ref()),
        }
    }
}

fn bounded_approvals(given: &[Approval]) -> Vec<Approval> {
    let bounded = |approval: &Approval| Approval {
        comment: truncate_optional_line(approval.comment.as_ref()),
        ..approval.clone()
    };
    given.iter().take(MAX_APPROVALS).map(bounded).collect()
}

/// A granted run. What a newcomer is not told of one that was running is unknown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    pub executor: ParticipantId,
    pub started_at: Timestamp,
    pub grant: Option<MessageId>,
    pub cleared_by: Option<ClearedBy>,
    pub approvals: Vec<Approval>,
    /// The allow rule that cleared it.
    pub rule: Option<MessageId>,
    pub limits: Option<ExecutionLimits>,
    /// The sandbox it runs in.
    pub profile: Option<SandboxProfile>,
    /// Who may type, in `pty` mode.
    pub driver: Option<ParticipantId>,
}

impl RunView {
    pub(super) fn from_grant(execute: &ToolExecute, at: Timestamp) -> Self {
        let grant = &execute.grant;
        Self {
            executor: grant.executor.clone(),
            started_at: at,
            grant: Some(grant.id.clone()),
            cleared_by: Some(grant.cleared_by),
            approvals: bounded_approvals(&grant.approvals),
            rule: grant.rule.clone(),
            limits: Some(grant.limits),
            profile: Some(grant.profile),
            driver: grant.driver.clone(),
        }
    }

    pub(super) fn from_welcome(running: &RunningCommand) -> Self {
        Self {
            executor: running.executor.clone(),
            started_at: running.since,
            grant: None,
            cleared_by: None,
            approvals: Vec::new(),
            rule: None,
            limits: None,
            profile: None,
            driver: None,
        }
    }
}

/// That someone asked for it to be withdrawn or stopped.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CancelRequestView {
    pub by: Sender,
    pub at: Timestamp,
    pub reason: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResultView {
    pub at: Timestamp,
    pub success: bool,
    pub exit_code: Option<i64>,
    pub signal: Option<String>,
    pub error: Option<String>,
    pub duration_ms: u64,
    /// Nobody saw it end; it may or may not have run to its end.
    pub outcome_unknown: bool,
    /// The executor did not keep all of the output.
    pub truncated: bool,
    /// Why the executor ended it, if it did.
    pub kill_reason: Option<String>,
    /// Under which id the whole output can be read.
    pub output_ref: Option<String>,
}

impl RunResultView {
    pub(super) fn new(result: &ToolResult, at: Timestamp) -> Self {
        let body = result.result.as_ref();
        let extra_field = |name: &str| {
            let inside = body.and_then(|body| body.extra.get(name));
            inside.or_else(|| result.extra.get(name))
        };
        Self {
            at,
            success: result.success,
            exit_code: body.and_then(|body| body.exit_code),
            signal: extra_field("signal").and_then(scalar_text),
            error: truncate_optional_line(result.error.as_ref()),
            duration_ms: result.duration_ms,
            outcome_unknown: result.outcome == Some(RunOutcome::Unknown),
            truncated: extra_field("truncated").is_some_and(any_flag_set),
            kill_reason: extra_field("kill_reason").and_then(scalar_text),
            output_ref: output_ref(&result.extra),
        }
    }
}

fn output_ref(extra: &ExtraFields) -> Option<String> {
    extra.get("output_ref").and_then(scalar_text)
}

/// A text or a number, as text.
fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(truncate_line(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether a flag, or any of several flags, is set.
fn any_flag_set(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => *flag,
        Value::Object(flags) => flags.values().any(|flag| *flag == Value::Bool(true)),
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

/// One command, whatever has become of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProposalView {
    pub id: MessageId,
    /// When it was asked for; unknown if that was before what was told.
    pub seq: Option<u64>,
    pub at: Option<Timestamp>,
    pub origin: CommandOrigin,
    #[serde(flatten)]
    pub requested: Arc<RequestedAction>,
    pub state: ProposalState,
    pub gate: Option<MessageId>,
    pub resolution: Option<ResolutionView>,
    pub run: Option<RunView>,
    pub cancel: Option<CancelRequestView>,
    pub output: OutputView,
    pub finish: Option<RunResultView>,
}

impl ProposalView {
    pub(super) fn new(
        id: &MessageId,
        origin: CommandOrigin,
        requested: Arc<RequestedAction>,
    ) -> Self {
        Self {
            id: id.clone(),
            seq: None,
            at: None,
            origin,
            requested,
            state: ProposalState::Judged,
            gate: None,
            resolution: None,
            run: None,
            cancel: None,
            output: OutputView::default(),
            finish: None,
        }
    }

    /// Moves on; what has come further stays there.
    pub(super) fn advance_to(&mut self, state: ProposalState) {
        self.state = self.state.max(state);
    }

    /// Whether it has been granted and not ended.
    pub fn is_running(&self) -> bool {
        self.state == ProposalState::Running
    }

    /// Whether it runs, or ran, beside everything else and without a time limit.
    pub fn is_background(&self) -> bool {
        self.requested.mode == RunMode::Background
    }

    /// Milliseconds that it has been running, or ran.
    pub fn elapsed_ms(&self, now: Timestamp) -> Option<u64> {
        match &self.finish {
            Some(finish) => Some(finish.duration_ms),
            None => self
                .run
                .as_ref()
                .map(|run| now.millis_since(run.started_at)),
        }
    }

    /// Ends the run. A result may bring output of which nothing was streamed.
    pub(super) fn record_result(&mut self, result: &ToolResult, at: Timestamp) {
        self.finish = Some(RunResultView::new(result, at));
        if let Some(body) = &result.result {
            for (stream, text) in [
                (OutputStream::Stdout, &body.stdout),
                (OutputStream::Stderr, &body.stderr),
            ] {
                if self.output.total(stream).bytes == 0 {
                    self.output.append(stream, None, text);
                }
            }
        }
        self.state = ProposalState::Finished;
    }
}

/// A card that is closed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClosedGateCard {
    pub gate: MessageId,
    pub proposal: MessageId,
    pub command: String,
    pub shown: String,
    pub category: Option<Category>,
    pub risk: Option<Risk>,
    #[serde(flatten)]
    pub resolution: ResolutionView,
}

/// A command that is over, as a line of the session's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommandHistoryEntry {
    pub proposal: MessageId,
    pub at: Option<Timestamp>,
    pub origin: CommandOrigin,
    pub proposer: Option<ParticipantId>,
    pub executor: Option<ParticipantId>,
    pub command: String,
    pub shown: String,
    pub category: Option<Category>,
    pub rule: Option<String>,
    pub outcome: ProposalState,
    pub cleared_by: Option<ClearedBy>,
    pub approvers: Vec<ParticipantId>,
    pub success: Option<bool>,
    pub exit_code: Option<i64>,
    pub duration_ms: Option<u64>,
    pub output_ref: Option<String>,
}

impl CommandHistoryEntry {
    pub(super) fn new(proposal: &ProposalView) -> Self {
        let ProposalView {
            requested,
            run,
            finish,
            resolution,
            ..
        } = proposal;
        let voted = resolution.as_ref().map(|resolution| &resolution.approvals);
        let approvals = run.as_ref().map(|run| &run.approvals).or(voted);
        let finish = finish.as_ref();
        let assessment = requested.assessment.as_ref();
        Self {
            proposal: proposal.id.clone(),
            at: proposal.at,
            origin: proposal.origin,
            proposer: requested.proposer.clone(),
            executor: run.as_ref().map(|run| run.executor.clone()),
            command: truncate_line(&requested.command),
            shown: truncate_line(&requested.shown),
            category: requested.category(),
            rule: assessment.map(|assessment| assessment.rule.clone()),
            outcome: proposal.state,
            cleared_by: run.as_ref().and_then(|run| run.cleared_by),
            approvers: approvals
                .into_iter()
                .flatten()
                .map(|a| a.participant.clone())
                .collect(),
            success: finish.map(|finish| finish.success),
            exit_code: finish.and_then(|finish| finish.exit_code),
            duration_ms: finish.map(|finish| finish.duration_ms),
            output_ref: finish.and_then(|finish| finish.output_ref.clone()),
        }
    }
}
