//! Reads entries that the feed no longer has from the store, for history and for slow clients.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pvp_protocol::SessionId;
use pvp_session::HistoryFilter;
use serde::Deserialize;

use crate::delivery;
use crate::directory::SessionDirectory;
use crate::secrets::SecretStore;
use crate::socket::append_text_frame;
use crate::store::ReadLimit;
use crate::viewer::Viewer;

/// How much is read at a time; a connection holds at most one page.
const READ_LIMIT: ReadLimit = ReadLimit {
    records: 1024,
    bytes: 128 * 1024,
};

/// Consecutive entries of the log, as far as one viewer may see them.
pub(super) struct BackfillPage {
    pub(super) frames: Bytes,
    /// The sequence number after the last entry of the page.
    pub(super) next_seq: u64,
}

/// Reads entries from the sequence number `from` up to, but not including, `until`, without those
/// that the filter leaves out.
pub(super) async fn read_page(
    directory: Arc<SessionDirectory>,
    session: SessionId,
    viewer: Arc<Viewer>,
    secrets: Arc<SecretStore>,
    (from, until): (u64, u64),
    filter: Option<Arc<HistoryFilter>>,
) -> Result<BackfillPage, String> {
    let records = directory.store.read(&session, from, READ_LIMIT).await;
    let records = records.map_err(|error| error.to_string())?;
    let mut frames = BytesMut::new();
    let mut next_seq = from;
    for record in records.iter().take_while(|record| record.seq < until) {
        let delivery =
            delivery::from_record(record, &secrets).map_err(|error| error.to_string())?;
        let told = |body: &&Bytes| is_told(filter.as_deref(), record.seq, body);
        if let Some(body) = delivery.body_for(&viewer).filter(told) {
            append_text_frame(&mut frames, body);
        }
        next_seq = record.seq + 1;
    }
    if next_seq == from {
        return Err(format!("entry {from} is not in the store"));
    }
    Ok(BackfillPage {
        frames: frames.freeze(),
        next_seq,
    })
}

/// Whether an entry is among those that the filter lets through.
fn is_told(filter: Option<&HistoryFilter>, seq: u64, body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct MessageType<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
    }
    filter.is_none_or(|filter| {
        serde_json::from_slice::<MessageType<'_>>(body)
            .is_ok_and(|message| filter.includes(seq, message.kind))
    })
}
