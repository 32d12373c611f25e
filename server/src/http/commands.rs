//! Routes for a session's commands: the history, newest first, and the output of one command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use pvp_protocol::api::{CommandPage, CommandRecord, CommandResult, CommandStatus, EarlierCommand};
use pvp_protocol::payload::{
    Approval, GateAmend, GateOutcome, OutputPage, OutputRead, OutputStream,
};
use pvp_protocol::{
    Action, Digest, Envelope, ExtraFields, MessageId, ParticipantId, Refusal, Sender,
    ServerMessage, SessionId, Timestamp,
};
use pvp_session::{ProposalOutcome, ProposalRecord};

use super::extractors::{AuthorizedSession, PathMessageId, StrictQuery, parameters};
use super::{RefusalResponse, messages, proposals};
use crate::admission::Allowance;
use crate::directory::{SessionDirectory, log_unreadable};
use crate::output;

/// Commands in a page unless the caller gives a number, and the most they may ask for.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 200;

/// The most commands that one search reads; the next page continues from there.
const MAX_SCANNED: usize = 2000;

/// How many commands are read from the log at a time.
const COMMANDS_PER_READ: usize = 64;

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
    let kind = login.as_ref().map(|login| login.claims.kind);
    let access = directory
        .http_access(&session, login.map(|login| login.claims.participant))
        .await?;
    let reference = proposals::whole_id(&directory, &session, reference).await?;
    if let Some(viewer) = &access.viewer {
        // It costs as much as the message that asks for the same on a connection.
        let allowance = Allowance {
            viewer,
            kind,
            limits: &directory.settings.limits,
        };
        allowance.charge(None)?;
    }
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
    let proposals = proposals_before(&directory, &session, before, MAX_SCANNED + 1).await?;
    let page = select_commands(&directory, &session, &proposals, &query).await?;
    Ok(Json(page))
}

/// The last `limit` proposals with a sequence number below `before`, newest first.
async fn proposals_before(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    before: u64,
    limit: usize,
) -> Result<Vec<ProposalRecord>, Refusal> {
    let open = directory.query(session, |session| session.open_proposals());
    let open = open.await.ok_or_else(log_unreadable)?;
    // After the open ones: a proposal that is closed in between is then in both, not in neither.
    let closed = directory
        .store
        .closed_proposals(session, before, limit)
        .await?;
    let mut proposals: BTreeMap<u64, ProposalRecord> = BTreeMap::new();
    for proposal in open.into_iter().chain(closed) {
        if proposal.seqs.proposed < before {
            proposals.insert(proposal.seqs.proposed, proposal);
        }
    }
    Ok(proposals.into_values().rev().take(limit).collect())
}

/// The commands that match the query, and where the next page starts.
async fn select_commands(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    proposals: &[ProposalRecord],
    query: &HistoryParameters,
) -> Result<CommandPage, Refusal> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let has_text = |record: &CommandRecord, text: &str| {
        let mut earlier = record.earlier.iter();
        record.command.contains(text) || earlier.any(|it| it.command.contains(text))
    };
    let matches = |record: &CommandRecord| {
        let grep = query.grep.as_ref();
        query.status.is_none_or(|status| status == record.status)
            && grep.is_none_or(|grep| has_text(record, grep))
    };
    let mut commands = Vec::new();
    let mut scanned = 0;
    for chunk in proposals.chunks(COMMANDS_PER_READ) {
        let seqs = chunk.iter().flat_map(seqs_of).collect();
        let entries = messages::read_entries(directory, session, seqs).await?;
        for proposal in chunk {
            if commands.len() == limit || scanned == MAX_SCANNED {
                // The command before this one was the last one read.
                let next = Some(proposal.seqs.proposed + 1);
                return Ok(CommandPage { commands, next });
            }
            scanned += 1;
            let record = build_record(&entries, proposal).ok_or_else(log_unreadable)?;
            commands.extend(matches(&record).then_some(record));
        }
    }
    Ok(CommandPage {
        commands,
        next: None,
    })
}

/// The newest proposals, at most `limit`, each with what the log says about it.
pub(super) async fn newest_commands(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    limit: usize,
) -> Result<Vec<(ProposalRecord, CommandRecord)>, Refusal> {
    let proposals = proposals_before(directory, session, u64::MAX, limit).await?;
    let mut commands = Vec::new();
    for chunk in proposals.chunks(COMMANDS_PER_READ) {
        let seqs = chunk.iter().flat_map(seqs_of).collect();
        let entries = messages::read_entries(directory, session, seqs).await?;
        for proposal in chunk {
            let record = build_record(&entries, proposal).ok_or_else(log_unreadable)?;
            commands.push((proposal.clone(), record));
        }
    }
    Ok(commands)
}

/// What the log says about one command.
pub(super) async fn read_record(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    proposal: &ProposalRecord,
) -> Result<CommandRecord, Refusal> {
    let seqs = seqs_of(proposal).collect();
    let entries = messages::read_entries(directory, session, seqs).await?;
    build_record(&entries, proposal).ok_or_else(log_unreadable)
}

/// The entries that say what there is to know about a command, in order.
fn seqs_of(proposal: &ProposalRecord) -> impl Iterator<Item = u64> + use<> {
    let seqs = proposal.seqs;
    let end = proposal.closed.map(|(_, seq)| seq);
    let later = [seqs.amended, seqs.resolved, seqs.granted, end];
    let mut all: BTreeSet<u64> = later.into_iter().flatten().collect();
    // Who voted on a command that nobody edited is in its resolution and its grant.
    if seqs.amended.is_some() {
        all.extend(proposal.steps.seqs());
    }
    std::iter::once(seqs.proposed).chain(all)
}

/// What the log says about a command.
fn build_record(
    entries: &BTreeMap<u64, Envelope>,
    proposal: &ProposalRecord,
) -> Option<CommandRecord> {
    let mut seqs = seqs_of(proposal);
    let proposed = entries.get(&seqs.next()?)?;
    if !is_about(proposed, proposal) {
        return None;
    }
    let mut builder = RecordBuilder::new(proposed.clone(), proposal)?;
    let closed_by = proposal.closed.map(|(_, seq)| seq);
    for seq in seqs {
        let envelope = entries.get(&seq)?.clone();
        // The index says where to look; what happened is what the entry says.
        let ended_otherwise = Some(seq) == closed_by
            && closing_status(&envelope.message) != Some(builder.record.status);
        if ended_otherwise || !is_about(&envelope, proposal) {
            return None;
        }
        builder.apply(envelope);
    }
    Some(builder.record)
}

/// A record, and what it takes to read the entries that follow the proposal.
struct RecordBuilder {
    record: CommandRecord,
    /// The tool that was proposed.
    tool: String,
    /// The digest of the command as it is so far.
    digest: Digest,
    /// The approvals of the command as it is so far.
    approvals: Vec<Approval>,
}

impl RecordBuilder {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only these two messages start a proposal"
    )]
    fn new(envelope: Envelope, proposal: &ProposalRecord) -> Option<Self> {
        let (mut degree, mut origin) = (None, None);
        let (action, assessment, description, tool) = match envelope.message {
            ServerMessage::ToolPropose(propose) => {
                (degree, origin) = (propose.degree, propose.origin);
                (
                    Action::from_arguments(&propose.tool_name, &propose.arguments).ok()?,
                    propose.assessment?,
                    propose.description,
                    propose.tool_name,
                )
            }
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
            short_id: proposal.id.short().to_owned(),
            seq: proposal.seqs.proposed,
            at: envelope.at,
            proposer,
            command: action.command.summary(),
            tool: (tool != "shell").then(|| tool.clone()),
            earlier: Vec::new(),
            cwd: action.cwd,
            description,
            category: assessment.category,
            sensitive_read: assessment.sensitive_read,
            risk: assessment.risk,
            rule: assessment.rule,
            status: command_status(proposal),
            edited_by: None,
            resolution: None,
            degree,
            origin,
            executor: None,
            cleared_by: None,
            allowed_by: None,
            approvals: Vec::new(),
            result: None,
        };
        Some(Self {
            record,
            tool,
            digest: assessment.digest,
            approvals: Vec::new(),
        })
    }

    /// Adds what one later entry says about the command.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other entries say nothing about a command"
    )]
    fn apply(&mut self, envelope: Envelope) {
        let (by, at) = (envelope.header.sender, envelope.at);
        let record = &mut self.record;
        match envelope.message {
            ServerMessage::GateApprove(vote) => self.add_vote(vote.approver, at, vote.comment),
            ServerMessage::ToolApprove(vote) => self.add_vote(vote.approver, at, vote.comment),
            ServerMessage::GateAmend(amend) => self.edit(by, at, amend),
            ServerMessage::GateResolve(resolve) => {
                record.approvals.clone_from(&resolve.approvals);
                record.resolution = Some(resolve);
            }
            ServerMessage::ToolExecute(execute) => {
                record.executor = Some(execute.grant.executor);
                record.cleared_by = Some(execute.grant.cleared_by);
                record.allowed_by = execute.grant.allowed_by;
                record.approvals = execute.grant.approvals;
            }
            ServerMessage::ToolResult(result) => {
                record.result = Some(CommandResult {
                    at,
                    success: result.success,
                    exit_code: result.exit_code(),
                    error: result.error,
                    duration_ms: result.duration_ms,
                    outcome: result.outcome,
                    attested: result.attested,
                });
            }
            _ => {}
        }
    }

    /// Counts a vote, the last of each person.
    fn add_vote(&mut self, participant: ParticipantId, at: Timestamp, comment: Option<String>) {
        self.approvals.retain(|it| it.participant != participant);
        self.approvals.push(Approval {
            participant,
            at,
            comment,
        });
    }

    /// Replaces the command by what an edit made of it.
    fn edit(&mut self, by: Sender, edited_at: Timestamp, amend: GateAmend) {
        let record = &mut self.record;
        let (Ok(action), Some(assessment), Sender::Participant(edited_by)) = (
            Action::from_arguments(&self.tool, &amend.arguments),
            amend.assessment,
            by,
        ) else {
            return;
        };
        let command = std::mem::replace(&mut record.command, action.command.summary());
        record.earlier.push(EarlierCommand {
            command,
            category: record.category,
            risk: record.risk,
            digest: self.digest,
            void_approvals: std::mem::take(&mut self.approvals),
            edited_by: edited_by.clone(),
            edited_at,
            reason: amend.reason,
        });
        self.digest = assessment.digest;
        record.cwd = action.cwd;
        record.category = assessment.category;
        record.sensitive_read = assessment.sensitive_read;
        record.risk = assessment.risk;
        record.rule = assessment.rule;
        record.edited_by = Some(edited_by);
    }
}

pub(super) fn command_status(proposal: &ProposalRecord) -> CommandStatus {
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

/// Whether an entry is about a proposal.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other entry is about a command"
)]
fn is_about(envelope: &Envelope, proposal: &ProposalRecord) -> bool {
    let is_gate = |id: &MessageId| *id == proposal.id || Some(id) == proposal.gate.as_ref();
    match &envelope.message {
        ServerMessage::ToolPropose(_) | ServerMessage::ShellExec(_) => {
            envelope.header.id == proposal.id
        }
        ServerMessage::GateAmend(amend) => is_gate(&amend.gate),
        ServerMessage::GateApprove(vote) => is_gate(&vote.gate),
        ServerMessage::GateReject(vote) => is_gate(&vote.gate),
        ServerMessage::ToolApprove(vote) => is_gate(&vote.tool_proposal),
        ServerMessage::ToolReject(vote) => is_gate(&vote.tool_proposal),
        ServerMessage::GateResolve(resolve) => resolve.tool_proposal == proposal.id,
        ServerMessage::ToolExecute(execute) => execute.tool_proposal == proposal.id,
        ServerMessage::ToolResult(result) => result.tool_proposal == proposal.id,
        _ => false,
    }
}

/// How a command ended that this entry closed.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other entry closes a command"
)]
fn closing_status(message: &ServerMessage) -> Option<CommandStatus> {
    match message {
        ServerMessage::ToolResult(_) => Some(CommandStatus::Finished),
        ServerMessage::ToolPropose(_) | ServerMessage::ShellExec(_) => Some(CommandStatus::Blocked),
        ServerMessage::GateResolve(resolve) => match resolve.outcome {
            GateOutcome::Approved => None,
            GateOutcome::Rejected => Some(CommandStatus::Rejected),
            GateOutcome::TimedOut => Some(CommandStatus::TimedOut),
            GateOutcome::Cancelled => Some(CommandStatus::Cancelled),
        },
        _ => None,
    }
}
