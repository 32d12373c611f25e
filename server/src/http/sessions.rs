//! Routes that list sessions, create one, and show one.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::api::{
    CreateSessionRequest, CreatedSession, SessionDetails, SessionList, SessionListItem,
};
use pvp_protocol::payload::{PresenceStatus, SessionCreate};
use pvp_protocol::{ExtraFields, ParticipantId, Refusal, SessionId};
use pvp_session::{Answer, Session};

use super::extractors::{
    AuthorizedSession, Caller, JsonBody, NoParameters, StrictQuery, parameters,
};
use super::{RefusalResponse, gates};
use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::SessionSummary;
use crate::token::TokenClaims;

/// Sessions in a page unless the caller gives a number, and the most they may ask for.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

parameters! {
    ListParameters {
        /// Only sessions that are older than this one.
        before: String = "string",
        /// At most this many: 1 to 1000, 100 unless given.
        limit: usize = "integer",
        /// Only those that have ended (`true`) or not (`false`).
        ended: bool = "boolean",
    }
}

pub(super) async fn list(
    State(directory): State<Arc<SessionDirectory>>,
    Caller(login): Caller,
    StrictQuery(query): StrictQuery<ListParameters>,
) -> Result<Json<SessionList>, RefusalResponse> {
    let store = directory.store.clone();
    let all = tokio::task::spawn_blocking(move || store.list_sessions())
        .await
        .map_err(|panic| Refusal::ReadFailed(panic.to_string()))?
        .map_err(|error| Refusal::ReadFailed(error.to_string()))?;
    let allowed = |summary: &SessionSummary| {
        let claims = login.as_ref().map(|login| &login.claims);
        claims.is_none_or(|claims| claims.allows_session(&summary.session))
    };
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let matches_filter =
        |summary: &SessionSummary| query.ended.is_none_or(|ended| ended == summary.index.ended);
    let mut newest: Vec<_> = all.into_iter().rev().filter(allowed).collect();
    if let Some(before) = &query.before {
        let at = newest
            .iter()
            .position(|summary| summary.session.as_str() == before);
        let at = at.ok_or_else(|| {
            Refusal::Malformed("`before` names no session that you may see".to_owned())
        })?;
        newest.drain(..=at);
    }
    newest.retain(matches_filter);
    let more = newest.len() > limit;
    newest.truncate(limit);
    let sessions = newest.into_iter().map(to_list_item).collect();
    Ok(Json(SessionList { sessions, more }))
}

fn to_list_item(summary: SessionSummary) -> SessionListItem {
    SessionListItem {
        session: summary.session,
        name: summary.index.name,
        created_at: summary.created_at,
        updated_at: summary.updated_at,
        head: summary.seq,
        open_gates: summary.index.open_gates,
        ended: summary.index.ended,
    }
}

pub(super) async fn create(
    State(directory): State<Arc<SessionDirectory>>,
    caller: Caller,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    JsonBody(new): JsonBody<CreateSessionRequest>,
) -> Result<(StatusCode, Json<CreatedSession>), RefusalResponse> {
    let claims = caller.require_login()?.claims;
    if !claims.may_create_sessions() {
        let problem =
            "creating a session takes a token with driver or admin that is not bound to one";
        return Err(Refusal::Unauthorized(problem.to_owned()).into());
    }
    let session = match new.session {
        Some(session) => session,
        None => SessionId::parse(pvp_clock::fresh_id().as_str()).expect("an id is an id"),
    };
    let create = SessionCreate {
        name: new.name,
        config: new.config,
        extra: ExtraFields::new(),
    };
    let created = directory
        .create(&session, claims.participant, pvp_clock::fresh_id(), create)
        .await?;
    let seq = match created {
        Answer::Accepted(seq) => seq.unwrap_or(1),
        Answer::Duplicate(seq) => seq,
        Answer::Refused(refusal) => return Err(refusal.into()),
    };
    Ok((StatusCode::CREATED, Json(CreatedSession { session, seq })))
}

pub(super) async fn get(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Json<SessionDetails>, RefusalResponse> {
    let me = login.map(|login| login.claims);
    directory
        .http_access(&session, me.as_ref().map(|me| me.participant.clone()))
        .await?;
    let state = directory
        .query_with_presence(&session, move |session, presence| {
            describe_session(session, me.as_ref(), |id| {
                let status = presence.get(id).copied();
                status.unwrap_or(PresenceStatus::Disconnected)
            })
        })
        .await
        .ok_or_else(log_unreadable)?;
    Ok(Json(state))
}

fn describe_session(
    session: &Session,
    me: Option<&TokenClaims>,
    presence: impl Fn(&ParticipantId) -> PresenceStatus,
) -> SessionDetails {
    SessionDetails {
        session: session.id().clone(),
        name: session.name().map(str::to_owned),
        config: session.config().clone(),
        head: session.head(),
        people: session.describe_participants(presence),
        gates: gates::list_open_gates(session, me),
        running: session.describe_running(),
        paused: session.paused_for(),
        ended: session.has_ended(),
    }
}
