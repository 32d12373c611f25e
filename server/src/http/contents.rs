//! The route for long texts that messages refer to by their hash.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use pvp_protocol::{Digest, Refusal};

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, NoParameters, StrictQuery};
use crate::directory::SessionDirectory;

/// Whoever knows the hash has seen a message with it, so that it opens the text within its session.
pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(NoParameters {}): StrictQuery<NoParameters>,
    Path((_, name)): Path<(String, String)>,
) -> Result<Response, RefusalResponse> {
    let permit = directory.acquire_transcript_permit()?;
    let me = login.map(|login| login.claims.participant);
    let _access = directory.http_access(&session, me).await?;
    let unknown = || Refusal::NoSuchText(name.clone());
    let hash = Digest::parse(&name).map_err(|_| unknown())?;
    let found = directory.store.find_content(&session, hash).await;
    let found = found.map_err(Refusal::from)?;
    let content = found.ok_or_else(unknown)?;
    drop(permit);
    // It is whatever an agent wrote, so no browser may take it for a page.
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((headers, content).into_response())
}
