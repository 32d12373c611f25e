//! Routes that archive a session that has ended, and delete one.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use pvp_protocol::api::SessionTombstone;
use pvp_protocol::{Refusal, SessionId};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::OwnedSemaphorePermit;

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, Caller, NoParameters, StrictQuery, parameters};
use super::invites::require_admin;
use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::{COPY_PREFIX, LogHead, ReadLimit};
use crate::task::DeletionRequest;
use crate::token::Login;

/// How much of an archive is read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

parameters! {
    DeleteParameters {
        /// Only if the log ends with the entry of this seq, which was archived before.
        head: u64 = "integer",
    }
}

pub(super) async fn delete_session(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<DeleteParameters>,
) -> Result<Json<SessionTombstone>, RefusalResponse> {
    let admin = require_server_admin(login, "deleting a session")?;
    let head = match query.head {
        Some(seq) => Some(find_head(&directory, &session, seq).await?),
        None => None,
    };
    let by = admin.claims.participant.to_string();
    let deleting = async move {
        let request = DeletionRequest { by, head };
        directory.delete_session(&session, request).await
    };
    // It goes on if the caller does not wait for it.
    let deleted = tokio::spawn(deleting).await;
    let tombstone = deleted.map_err(|panic| Refusal::WriteFailed(panic.to_string()))??;
    Ok(Json(tombstone.to_text()))
}

/// The head of a log that ends with this entry.
async fn find_head(
    directory: &SessionDirectory,
    session: &SessionId,
    seq: u64,
) -> Result<LogHead, Refusal> {
    let limit = ReadLimit {
        records: 1,
        bytes: 0,
    };
    let found = directory.store.read(session, seq, limit).await?;
    match found.first().filter(|record| record.seq == seq) {
        Some(record) => Ok(record.head()),
        None => Err(Refusal::InvalidState(format!(
            "session `{session}` has no entry {seq}; archive it again"
        ))),
    }
}

pub(super) async fn archive_session(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
) -> Result<Response, RefusalResponse> {
    require_server_admin(login, "archiving a session")?;
    let permit = directory.acquire_transcript_permit()?;
    directory.http_access(&session, None).await?;
    let ended = directory.query(&session, pvp_session::Session::has_ended);
    if !ended.await.ok_or_else(log_unreadable)? {
        let problem = format!("session `{session}` has not ended; end it first");
        return Err(Refusal::InvalidState(problem).into());
    }
    // It goes on if the caller does not wait for it, so that no copy is left behind.
    let copied = tokio::spawn(async move { copy_log(&directory, session).await }).await;
    let file = copied.map_err(|panic| Refusal::ReadFailed(panic.to_string()))??;
    let body = Body::from_stream(stream::try_unfold((file, permit), next_chunk));
    Ok(([(CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// A copy of a log in a file without a name. A slow reader of the log itself would hold up the
/// database.
async fn copy_log(directory: &SessionDirectory, session: SessionId) -> Result<File, Refusal> {
    let name = format!("{COPY_PREFIX}{}.jsonl", pvp_clock::fresh_id());
    let path = directory.config.data_directory().join(name);
    directory
        .store
        .archive_session(session, path.clone())
        .await?;
    let unreadable = |error: std::io::Error| Refusal::ReadFailed(error.to_string());
    let file = File::open(&path).await.map_err(unreadable);
    tokio::fs::remove_file(&path).await.map_err(unreadable)?;
    file
}

async fn next_chunk(
    (mut file, permit): (File, OwnedSemaphorePermit),
) -> std::io::Result<Option<(Bytes, (File, OwnedSemaphorePermit))>> {
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    let mut limited = (&mut file).take(CHUNK_BYTES as u64);
    match limited.read_to_end(&mut chunk).await? {
        0 => Ok(None),
        _ => Ok(Some((chunk.into(), (file, permit)))),
    }
}

/// Requires the token of an admin of the whole server.
fn require_server_admin(login: Option<Login>, what: &str) -> Result<Login, RefusalResponse> {
    let admin = require_admin(Caller(login), what)?;
    if admin.claims.session.is_none() {
        return Ok(admin);
    }
    let problem = format!("{what} requires an admin's token that is not bound to a session");
    Err(Refusal::Unauthorized(problem).into())
}
