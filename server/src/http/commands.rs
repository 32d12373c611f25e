//! Routes for a session's commands: the history, newest first, and the output of one command.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use pvp_protocol::api::{CommandPage, CommandRecord, CommandResult, CommandStatus};
use pvp_protocol::payload::{OutputPage, OutputRead, OutputStream};
use pvp_protocol::{Action, ExtraFields, Refusal, Sender, ServerMessage, SessionId, Timestamp};
use pvp_session::{ProposalOutcome, ProposalRecord};

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, PathMessageId, StrictQuery, parameters};
use super::messages::read_entry_blocking;
use crate::directory::{SessionDirectory, log_unreadable};
use crate::output;
use crate::store::Store;

/// Commands in a page unless the caller gives a number, and the most they may ask for.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

/// The most commands that one search reads; the next page continues from there.
const MAX_SCANNED: usize = 2000;

parameters! {
    OutputParameters {
        /// `stdout` or `stderr`; both unless given.
        stream: OutputStream = "string",
        /// First line, counted from 0.
        offset: u64 = "integer",
        /// At most this many lines: 1000 unless given, 10000 at most.
        limit: u64 = "integer",
        /// Only the first lines.
        head: u64 = "integer",
        /// Only the last lines.
        tail: u64 = "integer",
        /// Only lines that contain this text.
        grep: String = "string",
        /// `text` for the bare lines instead of JSON.
        format: OutputFormat = "string",
    }
}

/// The format of the output in the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::http) enum OutputFormat {
    Json,
    Text,
}

pub(super) async fn read_output(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    PathMessageId(reference): PathMessageId,
    StrictQuery(query): StrictQuery<OutputParameters>,
) -> Result<Response, RefusalResponse> {
    directory
        .http_access(&session, login.map(|login| login.claims.participant))
        .await?;
    let read = OutputRead {
        reference,
        stream: query.stream,
        offset: query.offset,
        limit: query.limit,
        head: query.head,
        tail: query.tail,
        grep: query.grep,
        extra: ExtraFields::new(),
    };
    let page = output::read_page(&directory, &session, read).await?;
    Ok(match query.format {
        Some(OutputFormat::Text) => to_text(&page).into_response(),
        Some(OutputFormat::Json) | None => Json(page).into_response(),
    })
}

fn to_text(page: &OutputPage) -> String {
    page.lines
        .iter()
        .flat_map(|line| [line.text.as_str(), "\n"])
        .collect()
}

parameters! {
    HistoryParameters {
        /// Only commands proposed before this seq.
        before: u64 = "integer",
        /// At most this many: 1 to 200, 50 unless given.
        limit: usize = "integer",
        /// Only commands that contain this text.
        grep: String = "string",
        /// Only commands that have come this far.
        status: CommandStatus = "string",
    }
}

pub(super) async fn history(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<HistoryParameters>,
) -> Result<Json<CommandPage>, RefusalResponse> {
    directory
        .http_access(&session, login.map(|login| login.claims.participant))
        .await?;
    let before = query.before.unwrap_or(u64::MAX);
    let proposals = directory
        .query(&session, move |session| {
            session.proposals_before(before, MAX_SCANNED + 1)
        })
        .await
        .ok_or_else(log_unreadable)?;
    let permit = directory.read_permits.clone().acquire_owned().await;
    let store = directory.store.clone();
    let page = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        select_commands(&store, &session, &proposals, &query)
    });
    let page = page
        .await
        .map_err(|panic| Refusal::ReadFailed(panic.to_string()))?;
    Ok(Json(page.ok_or_else(log_unreadable)?))
}

/// The commands that match the query, and where the next page starts.
fn select_commands(
    store: &Store,
    session: &SessionId,
    proposals: &[ProposalRecord],
    query: &HistoryParameters,
) -> Option<CommandPage> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let mut commands = Vec::new();
    for (scanned, proposal) in proposals.iter().enumerate() {
        if commands.len() == limit || scanned == MAX_SCANNED {
            // The command before this one was the last one read.
            let next = Some(proposal.seqs.proposed + 1);
            return Some(CommandPage { commands, next });
        }
        let record = build_record(store, session, proposal)?;
        let matches = query.status.is_none_or(|status| status == record.status)
            && query
                .grep
                .as_ref()
                .is_none_or(|grep| record.command.contains(grep));
        if matches {
            commands.push(record);
        }
    }
    Some(CommandPage {
        commands,
        next: None,
    })
}

/// What the log says about a command.
fn build_record(
    store: &Store,
    session: &SessionId,
    proposal: &ProposalRecord,
) -> Option<CommandRecord> {
    let (mut record, tool) = read_proposal(store, session, proposal)?;
    let seqs = proposal.seqs;
    let end = proposal.closed.map(|(_, seq)| seq);
    let later = [seqs.amended, seqs.resolved, seqs.granted, end];
    for seq in later.into_iter().flatten() {
        let envelope = read_entry_blocking(store, session, seq)?;
        let (by, at) = (envelope.header.sender, envelope.at);
        apply_entry(&mut record, &tool, by, at, envelope.message);
    }
    Some(record)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only these two messages start a proposal"
)]
fn read_proposal(
    store: &Store,
    session: &SessionId,
    proposal: &ProposalRecord,
) -> Option<(CommandRecord, String)> {
    let envelope = read_entry_blocking(store, session, proposal.seqs.proposed)?;
    let (action, assessment, description, tool) = match envelope.message {
        ServerMessage::ToolPropose(propose) => (
            Action::from_arguments(&propose.tool_name, &propose.arguments).ok()?,
            propose.assessment?,
            propose.description,
            propose.tool_name,
        ),
        ServerMessage::ShellExec(exec) => (
            Action::from_shell_exec(&exec),
            exec.assessment?,
            "a person's own command".to_owned(),
            "shell".to_owned(),
        ),
        _ => return None,
    };
    let Sender::Participant(proposer) = envelope.header.sender else {
        return None;
    };
    let record = CommandRecord {
        tool_proposal: proposal.id.clone(),
        seq: proposal.seqs.proposed,
        at: envelope.at,
        proposer,
        command: action.command.summary(),
        cwd: action.cwd,
        description,
        category: assessment.category,
        risk: assessment.risk,
        rule: assessment.rule,
        status: command_status(proposal),
        edited_by: None,
        resolution: None,
        executor: None,
        cleared_by: None,
        approvals: Vec::new(),
        result: None,
    };
    Some((record, tool))
}

fn command_status(proposal: &ProposalRecord) -> CommandStatus {
    match proposal.closed {
        None if proposal.seqs.granted.is_some() => CommandStatus::Running,
        None => CommandStatus::Waiting,
        Some((ProposalOutcome::Blocked, _)) => CommandStatus::Blocked,
        Some((ProposalOutcome::Rejected, _)) => CommandStatus::Rejected,
        Some((ProposalOutcome::TimedOut, _)) => CommandStatus::TimedOut,
        Some((ProposalOutcome::Cancelled, _)) => CommandStatus::Cancelled,
        Some((ProposalOutcome::Finished, _)) => CommandStatus::Finished,
    }
}

/// Adds what one later entry says about the command.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "other entries say nothing about a command"
)]
fn apply_entry(
    record: &mut CommandRecord,
    tool: &str,
    by: Sender,
    at: Timestamp,
    message: ServerMessage,
) {
    match message {
        ServerMessage::GateAmend(amend) => {
            if let (Ok(action), Some(assessment)) = (
                Action::from_arguments(tool, &amend.arguments),
                amend.assessment,
            ) {
                record.command = action.command.summary();
                record.cwd = action.cwd;
                record.category = assessment.category;
                record.risk = assessment.risk;
                record.rule = assessment.rule;
            }
            if let Sender::Participant(by) = by {
                record.edited_by = Some(by);
            }
        }
        ServerMessage::GateResolve(resolve) => {
            record.approvals.clone_from(&resolve.approvals);
            record.resolution = Some(resolve);
        }
        ServerMessage::ToolExecute(execute) => {
            record.executor = Some(execute.grant.executor);
            record.cleared_by = Some(execute.grant.cleared_by);
            record.approvals = execute.grant.approvals;
        }
        ServerMessage::ToolResult(result) => {
            record.result = Some(CommandResult {
                at,
                success: result.success,
                exit_code: result.result.and_then(|body| body.exit_code),
                error: result.error,
                duration_ms: result.duration_ms,
                outcome: result.outcome,
            });
        }
        _ => {}
    }
}
