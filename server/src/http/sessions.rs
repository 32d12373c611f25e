//! Sessions: listed, made, looked at.

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

use super::asking::{Asked, Body, Caller, InSession, NoParameters, parameters};
use super::{Refused, gates};
use crate::clock;
use crate::house::{House, unreadable};
use crate::store::SessionSummary;
use crate::token::Bearer;

/// Sessions of one answer unless the caller says otherwise, and at most.
const DEFAULT_LIMIT: usize = 100;
const MOST: usize = 1000;

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
    State(house): State<Arc<House>>,
    Caller(login): Caller,
    Asked(asked): Asked<ListParameters>,
) -> Result<Json<SessionList>, Refused> {
    let store = house.store.clone();
    let all = tokio::task::spawn_blocking(move || store.sessions())
        .await
        .map_err(|panic| Refusal::ReadFailed(panic.to_string()))?
        .map_err(|error| Refusal::ReadFailed(error.to_string()))?;
    let opens = |summary: &SessionSummary| {
        let bearer = login.as_ref().map(|login| &login.bearer);
        bearer.is_none_or(|bearer| bearer.opens(&summary.session))
    };
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MOST);
    let wanted = |summary: &SessionSummary| {
        asked
            .ended
            .is_none_or(|ended| ended == summary.standing.ended)
    };
    let mut newest: Vec<_> = all.into_iter().rev().filter(opens).collect();
    if let Some(before) = &asked.before {
        let at = newest
            .iter()
            .position(|summary| summary.session.as_str() == before);
        let at = at.ok_or_else(|| {
            Refusal::Malformed("`before` names no session that you may see".to_owned())
        })?;
        newest.drain(..=at);
    }
    newest.retain(wanted);
    let more = newest.len() > limit;
    newest.truncate(limit);
    let sessions = newest.into_iter().map(listed).collect();
    Ok(Json(SessionList { sessions, more }))
}

fn listed(summary: SessionSummary) -> SessionListItem {
    SessionListItem {
        session: summary.session,
        name: summary.standing.name,
        created_at: summary.created_at,
        updated_at: summary.updated_at,
        head: summary.seq,
        open_gates: summary.standing.open_gates,
        ended: summary.standing.ended,
    }
}

pub(super) async fn create(
    State(house): State<Arc<House>>,
    caller: Caller,
    Asked(NoParameters {}): Asked<NoParameters>,
    Body(new): Body<CreateSessionRequest>,
) -> Result<(StatusCode, Json<CreatedSession>), Refused> {
    let bearer = caller.login()?.bearer;
    if !bearer.may_create() {
        let problem =
            "creating a session takes a token with driver or admin that is not bound to one";
        return Err(Refusal::Unauthorized(problem.to_owned()).into());
    }
    let session = match new.session {
        Some(session) => session,
        None => SessionId::parse(clock::fresh_id().as_str()).expect("an id is an id"),
    };
    let create = SessionCreate {
        name: new.name,
        config: new.config,
        extra: ExtraFields::new(),
    };
    let made = house
        .create(&session, bearer.participant, clock::fresh_id(), create)
        .await?;
    let seq = match made {
        Answer::Accepted(seq) => seq.unwrap_or(1),
        Answer::Duplicate(seq) => seq,
        Answer::Refused(refusal) => return Err(refusal.into()),
    };
    Ok((StatusCode::CREATED, Json(CreatedSession { session, seq })))
}

pub(super) async fn state(
    State(house): State<Arc<House>>,
    InSession { session, login }: InSession,
    Asked(NoParameters {}): Asked<NoParameters>,
) -> Result<Json<SessionDetails>, Refused> {
    let me = login.map(|login| login.bearer);
    house
        .visit(&session, me.as_ref().map(|me| me.participant.clone()))
        .await?;
    let state = house
        .ask_with_presence(&session, move |session, presence| {
            describe(session, me.as_ref(), |id| {
                let status = presence.get(id).copied();
                status.unwrap_or(PresenceStatus::Disconnected)
            })
        })
        .await
        .ok_or_else(unreadable)?;
    Ok(Json(state))
}

fn describe(
    session: &Session,
    me: Option<&Bearer>,
    presence: impl Fn(&ParticipantId) -> PresenceStatus,
) -> SessionDetails {
    SessionDetails {
        session: session.id().clone(),
        name: session.name().map(str::to_owned),
        config: session.config().clone(),
        head: session.head(),
        people: session.describe_participants(presence),
        gates: gates::listed(session, me),
        running: session.describe_running(),
        paused: session.paused_until_back(),
        ended: session.has_ended(),
    }
}
