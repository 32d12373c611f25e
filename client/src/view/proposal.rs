//! The views of a command through its whole life: assessed, waiting, running, ended.

use std::sync::Arc;

use pvp_protocol::payload::{
    AllowedBy, Approval, ClearedBy, GateOutcome, GateResolve, OutputStream, ResolutionCause,
    RunOutcome, RunningCommand, ToolExecute, ToolResult, ToolResultValue,
};
use pvp_protocol::{
    Category, ExecutionLimits, ExtraFields, MessageId, ParticipantId, Risk, RunMode,
    SandboxProfile, Sender, Timestamp,
};
use serde::Serialize;
use serde_json::Value;

use super::output::OutputView;
use super::requested_action::RequestedAction;
use super::shared::MAX_RULE_WORDS;
use super::text::{truncate_line, truncate_optional_line};
use super::version::{EarlierVersion, LoggedVersion, approvers};

/// Maximum number of approvals kept for one decision.
const MAX_APPROVALS: usize = 200;

/// The state of a command. The variants are in chronological order, and a command never
/// goes back, except from a trial that was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ProposalState {
    /// Assessed; a gate, a grant or the end follows at once.
    Judged,
    /// Waiting at a gate.
    Waiting,
    /// The gate has passed; the grant follows at once.
    Approved,
    /// Granted to its executor.
    Running,
    /// Ended, but how is unknown.
    Over,
    Blocked,
    Rejected,
    TimedOut,
    Cancelled,
    /// It ran and has a result.
    Finished,
}

impl ProposalState {
    /// The name in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether the command has ended.
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
    /// Approved, rejected, timed out or cancelled.
    pub outcome: GateOutcome,
    /// What closed the gate, such as the quorum or the deadline.
    pub how: ResolutionCause,
    /// When the gate closed.
    pub at: Timestamp,
    /// The approvals that counted.
    pub approvals: Vec<Approval>,
    /// Who rejected or cancelled it; `None` otherwise.
    pub by: Option<ParticipantId>,
    /// The reason given, if any.
    pub reason: Option<String>,
    /// What the rejecter suggests instead, if anything.
    pub suggestion: Option<String>,
    /// The allow rule whose author's vote approved it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<MessageId>,
}

impl ResolutionView {
    pub(crate) fn new(resolve: &GateResolve) -> Self {
        Self {
            outcome: resolve.outcome,
            how: resolve.how,
            at: resolve.at,
            approvals: bounded_approvals(&resolve.approvals),
            by: resolve.by.clone(),
            reason: truncate_optional_line(resolve.reason.as_ref()),
            suggestion: truncate_optional_line(resolve.suggestion.as_ref()),
            rule: resolve.rule.clone(),
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

fn bounded_rule(allowed_by: &AllowedBy) -> AllowedBy {
    let words = allowed_by.prefix.iter().take(MAX_RULE_WORDS);
    AllowedBy {
        participant: allowed_by.participant.clone(),
        prefix: words.map(|word| truncate_line(word)).collect(),
    }
}

/// A granted run. A welcome describes a running command only in part, so for a participant who
/// joins later the optional fields are `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunView {
    /// The agent that runs it.
    pub executor: ParticipantId,
    /// When it was granted.
    pub started_at: Timestamp,
    /// The id of the grant.
    pub grant: Option<MessageId>,
    /// What cleared it to run.
    pub cleared_by: Option<ClearedBy>,
    /// The approvals that cleared it; empty if no vote was needed.
    pub approvals: Vec<Approval>,
    /// The allow rule that cleared it, if one did.
    pub rule: Option<MessageId>,
    /// What that rule allows and who made it, if the server said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<AllowedBy>,
    /// The limits on time, output and other resources.
    pub limits: Option<ExecutionLimits>,
    /// The sandbox profile it runs under.
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
            allowed_by: grant.allowed_by.as_ref().map(bounded_rule),
            limits: grant.limits,
            profile: grant.profile,
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
            allowed_by: None,
            limits: None,
            profile: None,
            driver: None,
        }
    }
}

/// A request to withdraw or stop a command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CancelRequestView {
    pub by: Sender,
    pub at: Timestamp,
    pub reason: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunResultView {
    /// When the result was reported.
    pub at: Timestamp,
    /// Whether the executor reports success.
    pub success: bool,
    /// The exit code; `None` if the command did not exit by itself.
    pub exit_code: Option<i64>,
    /// The signal that ended the command, if one did.
    pub signal: Option<String>,
    /// What went wrong, if anything.
    pub error: Option<String>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// The executor was lost, so the command may or may not have run to its end.
    pub outcome_unknown: bool,
    /// The client was allowed to run it and did not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
    /// A client ran it, and only its own word says how it ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub attested: bool,
    /// The executor did not keep all of the output.
    pub truncated: bool,
    /// Why the executor stopped the command, if it did.
    pub kill_reason: Option<String>,
    /// It returned something other than the result of a command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub returned_value: bool,
    /// The id to read the whole output by; `None` if the executor gave none.
    pub output_ref: Option<String>,
}

impl RunResultView {
    pub(crate) fn new(result: &ToolResult, at: Timestamp) -> Self {
        let body = result.command();
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
            not_run: result.outcome == Some(RunOutcome::NotRun),
            attested: result.attested,
            truncated: extra_field("truncated").is_some_and(any_flag_set),
            kill_reason: extra_field("kill_reason").and_then(scalar_text),
            returned_value: matches!(&result.result, Some(ToolResultValue::Other(_))),
            output_ref: output_ref(&result.extra),
        }
    }
}

fn output_ref(extra: &ExtraFields) -> Option<String> {
    extra.get("output_ref").and_then(scalar_text)
}

/// A JSON string or number as text.
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

/// One command, in any state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProposalView {
    /// The proposal's id.
    pub id: MessageId,
    /// The sequence number of the proposal; `None` if it was before the messages received.
    pub seq: Option<u64>,
    /// When it was proposed; `None` if that was before the messages received.
    pub at: Option<Timestamp>,
    /// Whether an agent or a person asked for it.
    pub origin: CommandOrigin,
    /// The action.
    #[serde(flatten)]
    pub requested: Arc<RequestedAction>,
    /// How far it has come.
    pub state: ProposalState,
    /// The gate that it waits or waited at, if there is one.
    pub gate: Option<MessageId>,
    /// How its gate closed; `None` if it has not, or if there is no gate.
    pub resolution: Option<ResolutionView>,
    /// The run; `None` until it is granted.
    pub run: Option<RunView>,
    /// The last request to cancel it, if any.
    pub cancel: Option<CancelRequestView>,
    /// What it has printed.
    pub output: OutputView,
    /// The result; `None` until it has finished.
    pub finish: Option<RunResultView>,
    /// The versions that edits have replaced, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<EarlierVersion>,
    /// The command as of the last message folded.
    #[serde(skip)]
    pub(super) logged: LoggedVersion,
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
            earlier: Vec::new(),
            logged: LoggedVersion::default(),
        }
    }

    /// Moves on to a state, unless the command is already past it.
    pub(super) fn advance_to(&mut self, state: ProposalState) {
        self.state = self.state.max(state);
    }

    /// Whether it has been granted and has not ended.
    pub fn is_running(&self) -> bool {
        self.state == ProposalState::Running
    }

    /// Whether it runs, or ran, in the background without a time limit.
    pub fn is_background(&self) -> bool {
        self.requested.mode == RunMode::Background
    }

    /// Milliseconds that it has been running, or ran; `None` if it was not granted.
    pub fn elapsed_ms(&self, now: Timestamp) -> Option<u64> {
        match &self.finish {
            Some(finish) => Some(finish.duration_ms),
            None => self
                .run
                .as_ref()
                .map(|run| now.millis_since(run.started_at)),
        }
    }

    /// Records the result. A result may carry output of a stream that was never streamed.
    pub(super) fn record_result(&mut self, result: &ToolResult, at: Timestamp) {
        self.finish = Some(RunResultView::new(result, at));
        self.record_returned(result);
        self.state = ProposalState::Finished;
    }

    /// Records as output what a result brings that was not streamed.
    pub(super) fn record_returned(&mut self, result: &ToolResult) {
        let [stdout, stderr] = match &result.result {
            Some(ToolResultValue::Command(body)) => [body.stdout.clone(), body.stderr.clone()],
            Some(ToolResultValue::Other(Value::String(text))) => [text.clone(), String::new()],
            Some(ToolResultValue::Other(value)) => [format!("{value:#}"), String::new()],
            None => return,
        };
        for (stream, text) in [
            (OutputStream::Stdout, stdout),
            (OutputStream::Stderr, stderr),
        ] {
            if self.output.total(stream).bytes == 0 {
                self.output.append(stream, None, &text);
            }
        }
    }
}

/// A closed gate card.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClosedGateCard {
    /// The gate's id.
    pub gate: MessageId,
    /// The id of the proposal that waited at the gate.
    pub proposal: MessageId,
    /// The command, truncated to one line's length.
    pub command: String,
    /// The command with invisible characters escaped, truncated likewise.
    pub shown: String,
    /// The assessed category; `None` if the assessment is unknown.
    pub category: Option<Category>,
    /// The assessed risk; `None` if the assessment is unknown.
    pub risk: Option<Risk>,
    /// How the gate closed.
    #[serde(flatten)]
    pub resolution: ResolutionView,
}

/// A command that has ended, as one line of the session's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommandHistoryEntry {
    /// The proposal's id.
    pub proposal: MessageId,
    /// When it was proposed; `None` if that was before the messages received.
    pub at: Option<Timestamp>,
    /// Whether an agent or a person asked for it.
    pub origin: CommandOrigin,
    /// Who asked for it; `None` if that is unknown.
    pub proposer: Option<ParticipantId>,
    /// The agent that ran it; `None` if it was not granted.
    pub executor: Option<ParticipantId>,
    /// The command, truncated to one line's length.
    pub command: String,
    /// The command with invisible characters escaped, truncated likewise.
    pub shown: String,
    /// The assessed category; `None` if the assessment is unknown.
    pub category: Option<Category>,
    /// It only reads, and is a `write` because of what it reads.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sensitive_read: bool,
    /// The policy rule that decided the category; `None` if the assessment is unknown.
    pub rule: Option<String>,
    /// The state in which it ended.
    pub outcome: ProposalState,
    /// What cleared it to run; `None` if it was not granted or that is unknown.
    pub cleared_by: Option<ClearedBy>,
    /// Who approved it.
    pub approvers: Vec<ParticipantId>,
    /// The allow rule that cleared it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<AllowedBy>,
    /// What was proposed, with invisible characters escaped, if an edit changed it; empty if the
    /// proposal was not received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposed: Option<Arc<str>>,
    /// Who edited it last; `None` if nobody did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edited_by: Option<ParticipantId>,
    /// Whether it succeeded; `None` if there is no result.
    pub success: Option<bool>,
    /// The exit code; `None` if there is no result or it did not exit by itself.
    pub exit_code: Option<i64>,
    /// How long it ran, in milliseconds; `None` if there is no result.
    pub duration_ms: Option<u64>,
    /// The id to read the whole output by; `None` if there is none.
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
            sensitive_read: assessment.is_some_and(|assessment| assessment.sensitive_read),
            rule: assessment.map(|assessment| assessment.rule.clone()),
            outcome: proposal.state,
            cleared_by: run.as_ref().and_then(|run| run.cleared_by),
            approvers: approvals.map_or_else(Vec::new, |given| approvers(given)),
            allowed_by: run.as_ref().and_then(|run| run.allowed_by.clone()),
            proposed: proposal
                .earlier
                .first()
                .map(|it| Arc::clone(&it.command.shown)),
            edited_by: requested.edited_by.clone(),
            success: finish.map(|finish| finish.success),
            exit_code: finish.and_then(|finish| finish.exit_code),
            duration_ms: finish.map(|finish| finish.duration_ms),
            output_ref: finish.and_then(|finish| finish.output_ref.clone()),
        }
    }
}
