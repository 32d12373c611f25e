//! Routes that list sessions, create one, and show one and where its log ends.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use http::StatusCode;
use pvp_protocol::api::{
    CreateSessionRequest, CreatedSession, EntryHash, SessionDetails, SessionHead, SessionList,
    SessionListItem,
};
use pvp_protocol::payload::{PresenceStatus, SessionCreate};
use pvp_protocol::{ExtraFields, ParticipantId, Refusal, SessionId, hex};
use pvp_session::{Answer, Session};

use super::extractors::{
    AuthorizedSession, Caller, JsonBody, NoParameters, StrictQuery, parameters,
};
use super::{RefusalResponse, gates};
use crate::admission;
use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::{LogHead, SessionFilter, SessionSummary};
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

parameters! {
    HeadParameters {
        /// Also say the hash of the entry with this seq.
        at: u64 = "integer",
    }
}

/// Where the log ends, as the store has it, whether or not the session can be loaded.
pub(super) async fn head(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, .. }: AuthorizedSession,
    StrictQuery(query): StrictQuery<HeadParameters>,
) -> Result<Json<SessionHead>, RefusalResponse> {
    let store = &directory.store;
    let Some(head) = store.head(&session).await.map_err(Refusal::from)? else {
        return Err(Refusal::NoSuchSession(session).into());
    };
    let found = match query.at {
        Some(seq) => store.read_each(&session, vec![seq]).await,
        None => Ok(Vec::new()),
    };
    let entry_hash = |head: LogHead| EntryHash {
        seq: head.seq,
        hash: hex::encode(&head.hash),
    };
    let found = found.map_err(Refusal::from)?;
    let identity = store.identity();
    Ok(Json(SessionHead {
        session,
        head: entry_hash(head),
        entry: found.first().map(|record| entry_hash(record.head())),
        key: hex::encode(&identity.key),
        earlier_keys: identity.earlier_keys_in_hex(),
        restored_at: identity.restored_at,
        now: pvp_clock::now(),
    }))
}

pub(super) async fn list(
    State(directory): State<Arc<SessionDirectory>>,
    Caller(login): Caller,
    StrictQuery(query): StrictQuery<ListParameters>,
) -> Result<Json<SessionList>, RefusalResponse> {
    let only = login.and_then(|login| login.claims.session);
    let before = match query.before {
        Some(before) => Some(find_visible(&directory, before, only.as_ref()).await?),
        None => None,
    };
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let filter = SessionFilter {
        session: only,
        before,
        ended: query.ended,
    };
    // One more than asked for tells whether there are more.
    let found = directory.store.list_sessions(filter, limit + 1).await;
    let mut newest = found.map_err(Refusal::from)?;
    let more = newest.len() > limit;
    newest.truncate(limit);
    let sessions = newest.into_iter().map(to_list_item).collect();
    Ok(Json(SessionList { sessions, more }))
}

/// The session that `before` names, if it exists and the caller may see it.
async fn find_visible(
    directory: &SessionDirectory,
    before: String,
    only: Option<&SessionId>,
) -> Result<SessionId, Refusal> {
    let unknown = || Refusal::Malformed("`before` names no session that you may see".to_owned());
    let before = SessionId::parse(&before).map_err(|_| unknown())?;
    if only.is_some_and(|only| *only != before) {
        return Err(unknown());
    }
    match directory.store.head(&before).await? {
        Some(_) => Ok(before),
        None => Err(unknown()),
    }
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
    let login = caller.require_login()?;
    admission::check_may_create(&login)?;
    let session = match new.session {
        Some(session) => session,
        None => SessionId::parse(pvp_clock::fresh_id().as_str()).expect("an id is an id"),
    };
    let create = SessionCreate {
        name: new.name,
        config: new.config,
        extra: ExtraFields::new(),
    };
    let token = login.quota_token().to_owned();
    let created = directory
        .create(
            &session,
            login.claims.participant,
            Some(token),
            pvp_clock::fresh_id(),
            create,
        )
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
        gates: gates::list_cut_gates(session, me),
        running: session.describe_running(),
        rules: session.describe_allow_rules(),
        paused: session.paused_for(),
        ended: session.has_ended(),
    }
}
