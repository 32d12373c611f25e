//! Gates: those that wait anywhere, and deciding them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::api::{
    EditRequest, GateDetails, GateList, GateListItem, GateStatus, GateUpdateResponse, VoteChoice,
    VoteRequest,
};
use pvp_protocol::payload::{GateAmend, GateApprove, GateOutcome, GateReject, GateResolve};
use pvp_protocol::{
    ClientMessage, ExtraFields, MessageId, ParticipantId, Refusal, ServerMessage, SessionId,
};
use pvp_session::{Session, Submitted};

use super::asking::{Asked, Body, Caller, InSession, Named, NoParameters, parameters};
use super::messages::{Speaker, entry};
use super::{Refused, longest_wait};
use crate::clock;
use crate::house::{House, unreadable};
use crate::token::{Bearer, Login};

parameters! {
    WatchParameters {
        /// The `version` of the last answer: wait until something has changed since.
        after: u64 = "integer",
        /// Seconds to wait for a change, at most 60.
        wait: u64 = "integer",
    }
}

/// Open gates of every session that the caller may see.
pub(super) async fn everywhere(
    State(house): State<Arc<House>>,
    Caller(login): Caller,
    Asked(asked): Asked<WatchParameters>,
) -> Result<Json<GateList>, Refused> {
    let turn = login.as_ref().map(|login| house.turn(&login.token_id));
    let _turn = turn.transpose()?;
    let mut changes = house.gates_version();
    let mut stopping = house.stopping();
    if let (Some(after), Some(wait)) = (asked.after, asked.wait) {
        tokio::select! {
            _ = changes.wait_for(|version| *version != after) => {}
            () = tokio::time::sleep(longest_wait(wait)) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
    // Read before the gates, so that a change in between is told as one.
    let version = *changes.borrow_and_update();
    let store = house.store.clone();
    let sessions = tokio::task::spawn_blocking(move || store.gated())
        .await
        .map_err(|panic| Refusal::ReadFailed(panic.to_string()))?
        .map_err(|error| Refusal::ReadFailed(error.to_string()))?;
    let bearer = login.map(|login| login.bearer);
    let mut gates = Vec::new();
    for session in sessions {
        if bearer.as_ref().is_none_or(|bearer| bearer.opens(&session)) {
            let me = bearer.clone();
            let found = house.ask(&session, move |session| listed(session, me.as_ref()));
            // A session whose log is damaged shows no gates here; asked for by name it says why.
            gates.extend(found.await.unwrap_or_default());
        }
    }
    if *stopping.borrow() {
        // Sessions that have been put away were not asked, so gates may be missing.
        return Err(Refusal::ReadFailed("the server is shutting down".to_owned()).into());
    }
    Ok(Json(GateList { gates, version }))
}

/// The open gates of a session, as this person sees them.
pub(super) fn listed(session: &Session, me: Option<&Bearer>) -> Vec<GateListItem> {
    let open = session.describe_open_gates();
    let tallies = session.open_gates().into_iter().map(|(proposal, gate)| {
        let approvers = session.approvers(gate, &proposal.proposer);
        let may_vote = me.is_some_and(|me| {
            let joined = session.member(&me.participant).is_some_and(|m| !m.left);
            // Voting joins who has not joined, with the roles of the token.
            let would = !joined && me.may_vote() && !gate.escalated;
            approvers.eligible.contains(&me.participant) || would
        });
        (gate.tally(&approvers), may_vote)
    });
    open.into_iter()
        .zip(tallies)
        .map(|(open, (tally, may_vote))| GateListItem {
            session: session.id().clone(),
            open,
            received: tally.received,
            required: tally.required,
            awaited: tally.awaited.into_iter().collect(),
            may_vote,
        })
        .collect()
}

pub(super) async fn of_session(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Result<Json<GateList>, Refused> {
    let me = login.map(|login| login.bearer);
    let version = *house.gates_version().borrow();
    house
        .visit(&session, me.as_ref().map(|me| me.participant.clone()))
        .await?;
    let gates = house
        .ask(&session, move |session| listed(session, me.as_ref()))
        .await
        .ok_or_else(unreadable)?;
    Ok(Json(GateList { gates, version }))
}

pub(super) async fn one(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Named(gate): Named,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Result<Json<GateDetails>, Refused> {
    let me = login.map(|login| login.bearer);
    house
        .visit(&session, me.as_ref().map(|me| me.participant.clone()))
        .await?;
    Ok(Json(state(&house, &session, gate, me).await?))
}

/// How a gate stands, or stood when it was resolved.
async fn state(
    house: &Arc<House>,
    session: &SessionId,
    gate: MessageId,
    me: Option<Bearer>,
) -> Result<GateDetails, Refusal> {
    let name = gate.clone();
    let found = house
        .ask(session, move |session| {
            let proposal = session.proposal_id_of(&name)?.clone();
            let open = listed(session, me.as_ref());
            let open = open
                .into_iter()
                .find(|listed| listed.open.request.action_ref == proposal);
            let resolved = session.proposal_seqs(&proposal)?.resolved;
            Some((proposal, open, resolved))
        })
        .await
        .ok_or_else(unreadable)?;
    let (tool_proposal, open, resolved) = found.ok_or(Refusal::NoSuchGate(gate.clone()))?;
    let resolution = match resolved {
        Some(seq) => Some(resolution(house, session, seq).await?),
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
    Ok(GateDetails {
        session: session.clone(),
        tool_proposal,
        status,
        open,
        resolution,
    })
}

async fn resolution(
    house: &Arc<House>,
    session: &SessionId,
    seq: u64,
) -> Result<GateResolve, Refusal> {
    let ServerMessage::GateResolve(resolve) = entry(house, session, seq).await?.message else {
        return Err(unreadable());
    };
    Ok(resolve)
}

pub(super) async fn vote(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Named(gate): Named,
    Asked(NoParameters {}): Asked<NoParameters>,
    Body(ballot): Body<VoteRequest>,
) -> Result<Json<GateUpdateResponse>, Refused> {
    let me = Caller(login).login()?;
    let by = me.bearer.participant.clone();
    let message = cast(gate.clone(), by, &ballot)?;
    decide(&house, &session, me, gate, ballot.id, message).await
}

/// The message that a ballot stands for.
fn cast(
    gate: MessageId,
    by: ParticipantId,
    ballot: &VoteRequest,
) -> Result<ClientMessage, Refusal> {
    let malformed = |problem: &str| Err(Refusal::Malformed(problem.to_owned()));
    let (digest, extra) = (ballot.digest, ExtraFields::new());
    match (ballot.vote, &ballot.reason, &ballot.comment) {
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
            extra,
        })),
        (VoteChoice::Reject, Some(reason), None) => Ok(ClientMessage::GateReject(GateReject {
            gate,
            rejector: by,
            reason: reason.clone(),
            digest,
            extra,
        })),
    }
}

pub(super) async fn edit(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Named(gate): Named,
    Asked(NoParameters {}): Asked<NoParameters>,
    Body(edit): Body<EditRequest>,
) -> Result<Json<GateUpdateResponse>, Refused> {
    let me = Caller(login).login()?;
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
    decide(&house, &session, me, gate, edit.id, message).await
}

/// Says it, and tells what became of the gate.
async fn decide(
    house: &Arc<House>,
    session: &SessionId,
    me: Login,
    gate: MessageId,
    id: Option<MessageId>,
    message: ClientMessage,
) -> Result<Json<GateUpdateResponse>, Refused> {
    let bearer = me.bearer.clone();
    let said = Submitted::new(id.unwrap_or_else(clock::fresh_id), message);
    let ack = Speaker::from(me).say(house, session, said).await?;
    let gate = state(house, session, gate, Some(bearer)).await?;
    Ok(Json(GateUpdateResponse { ack, gate }))
}
