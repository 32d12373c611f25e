//! The route for a session's transcript in the published format, as far as the caller may see it.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::CONTENT_TYPE;
use pvp_protocol::{Refusal, SessionId};
use pvp_session::{Audience, Entry};
use serde::Deserialize;
use tokio::sync::OwnedSemaphorePermit;

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, StrictQuery, parameters};
use super::messages::unreadable;
use crate::directory::SessionDirectory;
use crate::store::{LogRecord, ReadLimit};
use crate::viewer::Viewer;

/// The most messages in a response; the caller gets the rest with `after`.
const MAX_MESSAGES: usize = 10_000;

/// A response takes no further message once it has this many bytes.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// How much is read at a time; a transcript that nobody reads holds no more than this.
const READ_LIMIT: ReadLimit = ReadLimit {
    records: 256,
    bytes: 64 * 1024,
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
    let permit = directory.acquire_transcript_permit()?;
    let me = login.map(|login| login.claims.participant);
    let viewer = directory.http_access(&session, me).await?.viewer;
    let mut reader = TranscriptReader {
        next_seq: parameters.after.unwrap_or(0).saturating_add(1),
        directory,
        session,
        parameters,
        viewer,
        state: ReaderState::Start,
        count: 0,
        bytes: 0,
        _permit: permit,
    };
    // What fails at once can be answered with a refusal; later the connection breaks.
    let first = reader.next_chunk().await?;
    let rest = stream::try_unfold(reader, |mut reader| async {
        let chunk = reader.next_chunk().await.map_err(broken_off)?;
        Ok::<_, std::io::Error>(chunk.map(|chunk| (chunk, reader)))
    });
    let first = stream::iter(first.map(Ok));
    let body = Body::from_stream(stream::StreamExt::chain(first, rest));
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

fn broken_off(refusal: Refusal) -> std::io::Error {
    tracing::error!(%refusal, "a transcript was cut short");
    std::io::Error::other(refusal.to_string())
}

/// What a transcript needs next.
enum ReaderState {
    Start,
    Messages,
    Done,
}

/// Reads a transcript from the store, piece by piece, as fast as it is sent.
struct TranscriptReader {
    /// What all sessions share.
    directory: Arc<SessionDirectory>,
    /// The session.
    session: SessionId,
    /// What the caller asked for.
    parameters: TranscriptParameters,
    /// Who reads; `None` for an anonymous reader on a server without login.
    viewer: Option<Arc<Viewer>>,
    /// What comes next.
    state: ReaderState,
    /// The next entry to read.
    next_seq: u64,
    /// Messages so far.
    count: usize,
    /// Bytes of these messages.
    bytes: usize,
    /// Counts the transcript until it is sent.
    _permit: OwnedSemaphorePermit,
}

impl TranscriptReader {
    /// The next piece of JSON; `None` at the end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Refusal> {
        let mut json = String::new();
        if let ReaderState::Done = self.state {
            return Ok(None);
        }
        if let ReaderState::Start = self.state {
            self.state = ReaderState::Messages;
            json = format!("{{\"sessionId\":\"{}\",\"messages\":[", self.session);
        }
        while json.len() < READ_LIMIT.bytes {
            let store = &self.directory.store;
            let records = store.read(&self.session, self.next_seq, READ_LIMIT).await?;
            let complete = records.is_empty();
            for record in &records {
                if self.is_full() {
                    break;
                }
                self.push_message(&mut json, record)?;
                self.next_seq = record.seq + 1;
            }
            if complete || self.is_full() {
                self.state = ReaderState::Done;
                json += &format!("],\"count\":{}}}", self.count);
                break;
            }
        }
        Ok(Some(json.into()))
    }

    fn is_full(&self) -> bool {
        self.count >= MAX_MESSAGES || self.bytes >= MAX_BYTES
    }

    /// Adds a message, if the reader may see it and has asked for it.
    fn push_message(&mut self, json: &mut String, record: &LogRecord) -> Result<(), Refusal> {
        let (audience, ..) = Entry::decode_meta(&record.meta).map_err(unreadable)?;
        let text = std::str::from_utf8(&record.body).map_err(unreadable)?;
        if !self.may_see(&audience) || !self.parameters.matches(text) {
            return Ok(());
        }
        if self.count > 0 {
            json.push(',');
        }
        json.push_str(text);
        self.count += 1;
        self.bytes += text.len();
        Ok(())
    }

    fn may_see(&self, audience: &Audience) -> bool {
        match &self.viewer {
            Some(viewer) => viewer.may_see(audience),
            None => *audience == Audience::everyone(),
        }
    }
}
