//! Routes that read a session's messages and wait for new ones.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use pvp_protocol::{Envelope, Limits, MessageId, Refusal, SessionId, parse_server_message};
use pvp_session::MAX_RECENT_MESSAGES;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::extractors::{AuthorizedSession, StrictQuery, parameters};
use super::{RefusalResponse, clamp_wait};
use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::{LogRecord, ReadLimit};
use crate::task::HttpAccess;
use crate::{admission, delivery};

/// Messages in a page unless the caller gives a number, and the most they may ask for.
const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1000;

/// The most bytes in a page; one message is always returned if there is one.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

parameters! {
    ReadParameters {
        /// Only what came after this seq, or after the message with this id, which must be among the newest 8192; everything unless given. A number is a seq.
        after: String = "string",
        /// At most this many: 1 to 1000, 100 unless given.
        limit: usize = "integer",
        /// Seconds to wait for the next message if there is none, at most 60.
        wait: u64 = "integer",
    }
}

/// Where a reader wants to go on.
enum ReadPosition {
    /// After the entry with this sequence number.
    Seq(u64),
    /// After the message with this id.
    Message(MessageId),
}

impl ReadPosition {
    /// A number is a sequence number, even if a message has it as its id.
    fn parse(text: &str) -> Result<Self, Refusal> {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        if let (true, Ok(seq)) = (is_number, text.parse()) {
            return Ok(Self::Seq(seq));
        }
        let id = MessageId::parse(text).map_err(|error| {
            Refusal::Malformed(format!(
                "`after` takes a seq or the id of a message: {error}"
            ))
        })?;
        Ok(Self::Message(id))
    }
}

/// Like `MessagePage`, with the messages byte for byte as they were logged.
#[derive(Serialize)]
struct RawMessagePage {
    messages: Vec<Box<RawValue>>,
    next: u64,
    head: u64,
}

pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<ReadParameters>,
) -> Result<Response, RefusalResponse> {
    let position = query
        .after
        .as_deref()
        .map(ReadPosition::parse)
        .transpose()?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let deadline = Instant::now() + clamp_wait(query.wait.unwrap_or(0));
    let _slot = admission::count_request(&directory, login.as_ref())?;
    let live = login.as_ref().map(|login| login.live.clone());
    let participant = login.map(|login| login.claims.participant);
    let access = directory.http_access(&session, participant).await?;
    let _waiting = access.viewer.as_ref().map(|viewer| viewer.begin_wait());
    let mut shutdown = directory.shutdown_signal();
    let mut after = match position {
        None => 0,
        Some(ReadPosition::Seq(seq)) => seq,
        Some(ReadPosition::Message(id)) => find_seq(&directory, &session, &access, &id).await?,
    };
    let page = loop {
        let mut notified = pin!(access.feed.notifier().notified());
        notified.as_mut().enable();
        let page = read_page(&directory, &session, &access, after, limit).await?;
        if !page.messages.is_empty() || Instant::now() >= deadline || access.feed.is_closed() {
            break page;
        }
        // Entries that this viewer may not see need not be read again.
        after = page.next;
        tokio::select! {
            () = notified => {}
            () = tokio::time::sleep_until(deadline) => {}
            _ = shutdown.wait_for(|stopping| *stopping) => break page,
            refusal = admission::wait_token_ended(live.as_deref()) => {
                return Err(RefusalResponse::unauthenticated(refusal));
            }
        }
    };
    let json = serde_json::to_vec(&page).map_err(|_| log_unreadable())?;
    Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
}

/// The sequence number of a message that the caller may see. Only the messages that the session
/// remembers are looked at, so that no request reads a whole log.
async fn find_seq(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    access: &HttpAccess,
    id: &MessageId,
) -> Result<u64, Refusal> {
    let wanted = id.clone();
    let found = directory.query(session, move |session| {
        session.seq_of_recent_message(&wanted)
    });
    if let Some(seq) = found.await.ok_or_else(log_unreadable)? {
        let records = directory.store.read_each(session, vec![seq]).await?;
        if let Some(record) = records.first()
            && is_message_for(record, id, access)?
        {
            return Ok(seq);
        }
    }
    Err(Refusal::Malformed(format!(
        "`after`: none of the newest {MAX_RECENT_MESSAGES} messages that you may read has the id `{id}`; give the `seq` of a message, or leave `after` out to read from the beginning"
    )))
}

/// Whether this is the message with this id, and the caller may see it.
fn is_message_for(
    record: &LogRecord,
    id: &MessageId,
    access: &HttpAccess,
) -> Result<bool, Refusal> {
    #[derive(Deserialize)]
    struct IdOfMessage {
        id: MessageId,
    }
    let named: IdOfMessage = serde_json::from_slice(&record.body).map_err(unreadable)?;
    let delivery = delivery::from_record(record, &access.secrets).map_err(unreadable)?;
    let body = delivery.body_for_http_reader(access.viewer.as_deref());
    Ok(named.id == *id && body.is_some())
}

async fn read_page(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    access: &HttpAccess,
    after: u64,
    limit: usize,
) -> Result<RawMessagePage, Refusal> {
    let head = access.feed.head();
    let empty = RawMessagePage {
        messages: Vec::new(),
        next: after,
        head,
    };
    if after >= head {
        return Ok(empty);
    }
    let read_limit = ReadLimit {
        records: limit,
        bytes: MAX_PAGE_BYTES,
    };
    let records = directory.store.read(session, after + 1, read_limit).await?;
    let mut page = empty;
    // Entries that are written but not published yet belong to the next page.
    for record in records.iter().take_while(|record| record.seq <= head) {
        let delivery = delivery::from_record(record, &access.secrets).map_err(unreadable)?;
        if let Some(body) = delivery.body_for_http_reader(access.viewer.as_deref()) {
            let text = String::from_utf8(body.to_vec()).map_err(unreadable)?;
            page.messages
                .push(RawValue::from_string(text).map_err(unreadable)?);
        }
        page.next = record.seq;
    }
    Ok(page)
}

pub(super) fn unreadable(error: impl std::fmt::Display) -> Refusal {
    Refusal::ReadFailed(error.to_string())
}

/// Reads entries of the log, by sequence number; fails if one cannot be read.
pub(super) async fn read_entries(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
    seqs: Vec<u64>,
) -> Result<BTreeMap<u64, Envelope>, Refusal> {
    let limits = Limits {
        json_depth: usize::MAX,
        ..Limits::default()
    };
    let parse = |record: &LogRecord| {
        let text = std::str::from_utf8(&record.body).ok()?;
        let envelope = parse_server_message(text, &limits).ok().flatten()?;
        Some((record.seq, envelope))
    };
    let records = directory.store.read_each(session, seqs).await?;
    let entries: Option<BTreeMap<_, _>> = records.iter().map(parse).collect();
    entries.ok_or_else(log_unreadable)
}
