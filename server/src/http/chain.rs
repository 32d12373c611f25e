//! The route that shows the hash chain of a log, so that its readers can check it themselves.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::api::{ChainCheckpoint, ChainEntry, ChainPage};
use pvp_protocol::{MessageId, Refusal, ServerMessage, hex};
use pvp_session::Entry;

use super::RefusalResponse;
use super::extractors::{AuthorizedSession, StrictQuery, parameters};
use super::messages::unreadable;
use crate::directory::{SessionDirectory, log_unreadable};
use crate::store::{Checkpoint, LogRecord, ReadLimit};
use crate::task::HttpAccess;
use crate::{admission, delivery};

/// Entries in a page, unless the caller wants fewer.
const MAX_LIMIT: usize = 1000;

/// The most bytes of a log that are read for one page.
const MAX_PAGE_BYTES: usize = 1024 * 1024;

parameters! {
    ChainParameters {
        /// Only entries after this seq; all unless given.
        after: u64 = "integer",
        /// At most this many: 1 to 1000, 1000 unless given.
        limit: usize = "integer",
    }
}

pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<ChainParameters>,
) -> Result<Json<ChainPage>, RefusalResponse> {
    let _slot = admission::count_request(&directory, login.as_ref())?;
    let participant = login.map(|login| login.claims.participant);
    let access = directory.http_access(&session, participant).await?;
    let after = query.after.unwrap_or(0);
    let head = access.feed.head();
    let limit = ReadLimit {
        records: query.limit.unwrap_or(MAX_LIMIT).clamp(1, MAX_LIMIT),
        bytes: MAX_PAGE_BYTES,
    };
    let records = match after < head {
        true => directory.store.read(&session, after + 1, limit).await,
        false => Ok(Vec::new()),
    };
    let records = records.map_err(Refusal::from)?;
    // Asked after the records were read: a grant in them that is not among these has been used.
    let running = directory.query(&session, |session| {
        let running = session.running();
        running.map(|(proposal, _)| proposal.id.clone()).collect()
    });
    let running: BTreeSet<MessageId> = running.await.ok_or_else(log_unreadable)?;
    let published = records.iter().take_while(|record| record.seq <= head);
    let entries = published.map(|record| chain_entry(record, &access, &running));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let next = entries.last().map_or(after, |entry| entry.seq);
    let checkpoint = directory.store.checkpoint_up_to(&session, next).await;
    Ok(Json(ChainPage {
        entries,
        checkpoint: checkpoint.map_err(Refusal::from)?.map(checkpoint_text),
        next,
        head,
    }))
}

fn chain_entry(
    record: &LogRecord,
    access: &HttpAccess,
    running: &BTreeSet<MessageId>,
) -> Result<ChainEntry, Refusal> {
    let delivery = delivery::from_record(record, &access.secrets).map_err(unreadable)?;
    let is_seen = delivery
        .body_for_http_reader(access.viewer.as_deref())
        .is_some();
    let meta = match is_seen && !holds_usable_grant(record, running)? {
        true => Some(String::from_utf8(record.meta.to_vec()).map_err(unreadable)?),
        false => None,
    };
    Ok(ChainEntry {
        seq: record.seq,
        hash: hex::encode(&record.hash),
        meta,
    })
}

/// Whether the meta has the nonce of a grant whose run has not ended. It is for the executor alone.
fn holds_usable_grant(record: &LogRecord, running: &BTreeSet<MessageId>) -> Result<bool, Refusal> {
    let (_, private, _) = Entry::decode_meta(&record.meta).map_err(unreadable)?;
    if private.is_none() {
        return Ok(false);
    }
    let entry = Entry::decode(&record.meta, &record.body).map_err(unreadable)?;
    let ServerMessage::ToolExecute(execute) = &entry.envelope.message else {
        return Ok(true);
    };
    Ok(running.contains(&execute.tool_proposal))
}

fn checkpoint_text(checkpoint: Checkpoint) -> ChainCheckpoint {
    ChainCheckpoint {
        seq: checkpoint.seq,
        hash: hex::encode(&checkpoint.hash),
        at: checkpoint.at,
        snapshot: checkpoint.snapshot.map(|hash| hex::encode(&hash)),
        key: hex::encode(&checkpoint.key),
        signature: hex::encode(&checkpoint.signature),
    }
}
