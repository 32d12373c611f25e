//! Routes that list gates, show one, and vote on it or edit its command.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::api::{
    EditRequest, GateDetails, GateList, GateListItem, GateStatus, GateUpdateResponse, VoteChoice,
    VoteRequest,
};
use pvp_protocol::payload::{
    FileContent, GateAmend, GateApprove, GateOutcome, GateReject, GateResolve, OpenGate,
};
use pvp_protocol::{
    Action, ClientMessage, ExtraFields, MessageId, ParticipantId, Refusal, ServerMessage, SessionId,
};
use pvp_session::{Gate, Proposal, Session, SubmittedMessage};

use super::extractors::{
    AuthorizedSession, Caller, JsonBody, NoParameters, PathMessageId, StrictQuery, parameters,
};
use super::gate_list::cut_for_list;
use super::messages::read_entries;
use super::send::HttpParticipant;
use super::{RefusalResponse, clamp_wait, commands, proposals};
use crate::admission::{self, Principal};
use crate::directory::{SessionDirectory, log_unreadable};
use crate::token::{Login, TokenClaims};

parameters! {
    WatchParameters {
        /// The `version` of the last answer: wait until something has changed since.
        after: u64 = "integer",
        /// Seconds to wait for a change, at most 60.
        wait: u64 = "integer",
    }
}

/// Lists the open gates of every session that the caller may see.
pub(super) async fn list_all(
    State(directory): State<Arc<SessionDirectory>>,
    Caller(login): Caller,
    StrictQuery(query): StrictQuery<WatchParameters>,
) -> Result<Json<GateList>, RefusalResponse> {
    let _slot = admission::count_request(&directory, login.as_ref())?;
    let mut changes = directory.watch_gates();
    let mut shutdown = directory.shutdown_signal();
    if let (Some(after), Some(wait)) = (query.after, query.wait) {
        tokio::select! {
            _ = changes.wait_for(|version| *version != after) => {}
            () = tokio::time::sleep(clamp_wait(wait)) => {}
            _ = shutdown.wait_for(|stopping| *stopping) => {}
            refusal = admission::wait_token_ended(login.as_ref().map(|login| login.live.as_ref())) => {
                return Err(RefusalResponse::unauthenticated(refusal));
            }
        }
    }
    // Read before the gates, so that a change in between shows up as a change.
    let version = *changes.borrow_and_update();
    let sessions = directory.store.sessions_with_open_gates().await;
    let sessions = sessions.map_err(Refusal::from)?;
    let claims = login.map(|login| login.claims);
    let mut gates = Vec::new();
    for session in sessions {
        if claims
            .as_ref()
            .is_none_or(|claims| claims.allows_session(&session))
        {
            let me = claims.clone();
            let found = directory.query(&session, move |session| {
                list_cut_gates(session, me.as_ref())
            });
            // A session whose log is damaged has no gates here; its own routes report the damage.
            gates.extend(found.await.unwrap_or_default());
        }
    }
    if *shutdown.borrow() {
        // Sessions that were unloaded already did not answer, so gates may be missing.
        return Err(Refusal::ReadFailed("the server is shutting down".to_owned()).into());
    }
    Ok(Json(GateList { gates, version }))
}

/// The open gates of a session as a list has them: of a long one, only what one recognises it by.
pub(super) fn list_cut_gates(session: &Session, me: Option<&TokenClaims>) -> Vec<GateListItem> {
    let gates = session.open_gates().into_iter();
    gates
        .map(|(proposal, gate)| cut_for_list(list_item(session, proposal, gate, me)))
        .collect()
}

/// The open gate of a proposal, as this participant sees it; `None` if it has none.
pub(super) fn find_open_gate(
    session: &Session,
    proposal: &MessageId,
    me: Option<&TokenClaims>,
) -> Option<GateListItem> {
    let mut gates = session.open_gates().into_iter();
    let (proposal, gate) = gates.find(|(gated, _)| gated.id == *proposal)?;
    Some(list_item(session, proposal, gate, me))
}

fn list_item(
    session: &Session,
    proposal: &Proposal,
    gate: &Gate,
    me: Option<&TokenClaims>,
) -> GateListItem {
    let executor = session.member(&proposal.executor);
    let approvers = session.approvers(gate, &proposal.proposer);
    let tally = gate.tally(&approvers);
    let open = gate.describe(proposal);
    GateListItem {
        session: session.id().clone(),
        short_id: open.request.action_ref.short().to_owned(),
        handle: open.handle(),
        invited_by: inviters(session, &open),
        not_counted: gate.dependent_approvals(&approvers),
        open,
        executor: executor.and_then(|member| member.announce.executor.clone()),
        received: tally.received,
        required: tally.required,
        awaited: tally.awaited.into_iter().collect(),
        may_vote: me.is_some_and(|me| admission::may_vote(session, gate, &approvers, me)),
        cut_bytes: None,
    }
}

/// Who invited those who approved.
fn inviters(session: &Session, open: &OpenGate) -> BTreeMap<ParticipantId, ParticipantId> {
    let approved = open.approvals.iter().map(|approval| &approval.participant);
    approved
        .filter_map(|id| {
            let inviter = session.member(id)?.announce.invited_by.clone()?;
            Some((id.clone(), inviter))
        })
        .collect()
}

pub(super) async fn list_in_session(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<GateList>, RefusalResponse> {
    let me = login.map(|login| login.claims);
    let version = *directory.watch_gates().borrow();
    directory
        .http_access(&session, me.as_ref().map(|me| me.participant.clone()))
        .await?;
    let gates = directory
        .query(&session, move |session| {
            list_cut_gates(session, me.as_ref())
        })
        .await
        .ok_or_else(log_unreadable)?;
    Ok(Json(GateList { gates, version }))
}

pub(super) async fn get(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    PathMessageId(gate): PathMessageId,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<GateDetails>, RefusalResponse> {
    let me = login.map(|login| login.claims);
    directory
        .http_access(&session, me.as_ref().map(|me| me.participant.clone()))
        .await?;
    let gate = proposals::whole_id(&directory, &session, gate).await?;
    Ok(Json(gate_state(&directory, &session, gate, me).await?))
}

/// The state of a gate, open or resolved.
pub(super) async fn gate_state(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    gate: MessageId,
    me: Option<TokenClaims>,
) -> Result<GateDetails, Refusal> {
    let proposal = directory.find_proposal(session, &gate).await?;
    let proposal = proposal.ok_or(Refusal::NoSuchGate(gate))?;
    let tool_proposal = proposal.id.clone();
    let open = directory.query(session, move |session| {
        // It may have been decided meanwhile.
        (
            find_open_gate(session, &proposal.id, me.as_ref()),
            session.find_proposal(&proposal.id).unwrap_or(proposal),
        )
    });
    let (open, proposal) = open.await.ok_or_else(log_unreadable)?;
    let seqs = proposal.seqs;
    let resolution = match seqs.resolved {
        Some(seq) => Some(read_resolution(directory, session, seq).await?),
        None => None,
    };
    let status = match (&open, &resolution) {
        (Some(_), _) => GateStatus::Open,
        (None, Some(resolution)) => match resolution.outcome {
            GateOutcome::Approved => GateStatus::Approved,
            GateOutcome::Rejected => GateStatus::Rejected,
            GateOutcome::TimedOut => GateStatus::TimedOut,
            GateOutcome::Cancelled => GateStatus::Cancelled,
        },
        (None, None) => {
            let problem = format!("`{tool_proposal}` never waited at a gate");
            return Err(Refusal::InvalidState(problem));
        }
    };
    let file_contents = match &open {
        Some(item) if !item.open.action.files.is_empty() => {
            read_file_contents(directory, session, seqs.proposed, &item.open.action).await?
        }
        Some(_) | None => Vec::new(),
    };
    let command = commands::read_record(directory, session, &proposal).await?;
    Ok(GateDetails {
        session: session.clone(),
        short_id: tool_proposal.short().to_owned(),
        tool_proposal,
        status,
        open,
        file_contents,
        resolution,
        command: Some(command),
    })
}

/// The contents that a proposal came with, of the files that its action still binds.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only this message carries contents"
)]
async fn read_file_contents(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    proposed: u64,
    action: &Action,
) -> Result<Vec<FileContent>, Refusal> {
    let mut entries = read_entries(directory, session, vec![proposed]).await?;
    let entry = entries.remove(&proposed).ok_or_else(log_unreadable)?;
    let mut contents = match entry.message {
        ServerMessage::ToolPropose(propose) => propose.file_contents,
        _ => Vec::new(),
    };
    contents.retain(|content| action.binds_content(&content.path, &content.text));
    Ok(contents)
}

async fn read_resolution(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    seq: u64,
) -> Result<GateResolve, Refusal> {
    let mut entries = read_entries(directory, session, vec![seq]).await?;
    match entries.remove(&seq).map(|envelope| envelope.message) {
        Some(ServerMessage::GateResolve(resolve)) => Ok(resolve),
        Some(_) | None => Err(log_unreadable()),
    }
}

pub(super) async fn vote(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    PathMessageId(gate): PathMessageId,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(vote): JsonBody<VoteRequest>,
) -> Result<Json<GateUpdateResponse>, RefusalResponse> {
    let me = Caller(login).require_login()?;
    let by = me.claims.participant.clone();
    let gate = proposals::whole_id(&directory, &session, gate).await?;
    let message = vote_message(gate.clone(), by, &vote)?;
    submit_and_read_gate(&directory, &session, me, gate, vote.id, message).await
}

/// The message that a vote over HTTP stands for.
pub(super) fn vote_message(
    gate: MessageId,
    by: ParticipantId,
    vote: &VoteRequest,
) -> Result<ClientMessage, Refusal> {
    let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
    let (digest, extra) = (vote.digest, ExtraFields::new());
    match (vote.vote, &vote.reason, &vote.comment) {
        (VoteChoice::Approve, Some(_), _) => {
            malformed("an approval has a `comment`, not a `reason`")
        }
        (VoteChoice::Reject, _, Some(_)) => {
            malformed("a rejection has a `reason`, not a `comment`")
        }
        (VoteChoice::Reject, None, None) => {
            malformed("a rejection needs a `reason`; the agent reads it")
        }
        (VoteChoice::Approve, None, comment) => Ok(ClientMessage::GateApprove(GateApprove {
            gate,
            approver: by,
            comment: comment.clone(),
            digest,
            gate_request: None,
            extra,
        })),
        (VoteChoice::Reject, Some(reason), None) => Ok(ClientMessage::GateReject(GateReject {
            gate,
            rejector: by,
            reason: reason.clone(),
            digest,
            gate_request: None,
            extra,
        })),
    }
}

pub(super) async fn amend(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    PathMessageId(gate): PathMessageId,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(edit): JsonBody<EditRequest>,
) -> Result<Json<GateUpdateResponse>, RefusalResponse> {
    let me = Caller(login).require_login()?;
    let gate = proposals::whole_id(&directory, &session, gate).await?;
    let message = ClientMessage::GateAmend(GateAmend {
        gate: gate.clone(),
        arguments: edit.arguments,
        digest: edit.digest,
        reason: edit.reason,
        assessment: None,
        quorum: None,
        deadline: None,
        voters: None,
        extra: ExtraFields::new(),
    });
    submit_and_read_gate(&directory, &session, me, gate, edit.id, message).await
}

/// Submits a vote or an edit, and returns the state of the gate after it.
pub(super) async fn submit_and_read_gate(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    me: Login,
    gate: MessageId,
    id: Option<MessageId>,
    message: ClientMessage,
) -> Result<Json<GateUpdateResponse>, RefusalResponse> {
    let claims = me.claims.clone();
    let submitted = SubmittedMessage::new(id.unwrap_or_else(pvp_clock::fresh_id), message);
    let ack = HttpParticipant::find(directory, session, Principal::new(Some(me)), None)
        .await?
        .charge_and_submit(submitted)
        .await?;
    let gate = gate_state(directory, session, gate, Some(claims)).await?;
    Ok(Json(GateUpdateResponse { ack, gate }))
}
