//! The route for a session's transcript in the published format, as far as the caller may see it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use pvp_protocol::{Refusal, SessionId};
use pvp_session::{Audience, Entry};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, StrictQuery, parameters};
use crate::directory::SessionDirectory;
use crate::store::{ReadLimit, Store};

/// The most messages in a response; the caller gets the rest with `after`.
const MAX_MESSAGES: usize = 10_000;

/// A response takes no further message once it has this many bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

const READ_LIMIT: ReadLimit = ReadLimit {
    records: 1024,
    bytes: 1024 * 1024,
};

parameters! {
    TranscriptParameters {
        /// Only these messages, by id or by type, separated by commas.
        messages: String = "string",
        /// Only what came after this seq.
        after: u64 = "integer",
    }
}

impl TranscriptParameters {
    fn matches(&self, text: &str) -> bool {
        #[derive(Deserialize)]
        struct MessageName<'a> {
            #[serde(borrow)]
            id: std::borrow::Cow<'a, str>,
            #[serde(rename = "type", borrow)]
            kind: std::borrow::Cow<'a, str>,
        }
        let Some(names) = &self.messages else {
            return true;
        };
        let Ok(name) = serde_json::from_str::<MessageName<'_>>(text) else {
            return false;
        };
        names
            .split(',')
            .any(|name_or_type| name_or_type == name.id || name_or_type == name.kind)
    }
}

pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(parameters): StrictQuery<TranscriptParameters>,
) -> Result<Response, RefusalResponse> {
    let me = login.map(|login| login.claims.participant);
    let viewer = directory.http_access(&session, me).await?.viewer;
    let permit = directory.read_permits.clone().acquire_owned().await;
    let store = directory.store.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let may_see = |audience: &Audience| match &viewer {
            Some(viewer) => viewer.may_see(audience),
            None => *audience == Audience::everyone(),
        };
        build_transcript(&store, &session, &parameters, may_see)
    });
    let json = reading
        .await
        .unwrap_or_else(|panic| Err(Refusal::ReadFailed(panic.to_string())))?;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}

fn build_transcript(
    store: &Store,
    session: &SessionId,
    parameters: &TranscriptParameters,
    may_see: impl Fn(&Audience) -> bool,
) -> Result<String, Refusal> {
    let unreadable = Refusal::ReadFailed;
    let mut messages: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    let mut from = parameters.after.unwrap_or(0).saturating_add(1);
    'reading: loop {
        let records = store
            .read(session, from, READ_LIMIT)
            .map_err(|error| unreadable(error.to_string()))?;
        for record in &records {
            if messages.len() >= MAX_MESSAGES || bytes >= MAX_BYTES {
                break 'reading;
            }
            let (audience, ..) =
                Entry::decode_meta(&record.meta).map_err(|error| unreadable(error.to_string()))?;
            let text =
                std::str::from_utf8(&record.body).map_err(|error| unreadable(error.to_string()))?;
            if may_see(&audience) && parameters.matches(text) {
                bytes += text.len();
                let raw = RawValue::from_string(text.to_owned());
                messages.push(raw.map_err(|error| unreadable(error.to_string()))?);
            }
        }
        match records.last() {
            Some(last) => from = last.seq + 1,
            None => break,
        }
    }
    #[derive(serde::Serialize)]
    struct Transcript<'a> {
        #[serde(rename = "sessionId")]
        session: &'a SessionId,
        count: usize,
        messages: Vec<Box<RawValue>>,
    }
    serde_json::to_string(&Transcript {
        session,
        count: messages.len(),
        messages,
    })
    .map_err(|error| unreadable(error.to_string()))
}
