//! What the ring no longer has, read from the store: history, and what a slow reader missed.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pvp_protocol::SessionId;

use crate::house::House;
use crate::socket::append_text_frame;
use crate::store::ReadBound;
use crate::told;
use crate::vault::Vault;
use crate::viewer::Viewer;

/// How much is read at a time; a reader holds one page at most.
const PAGE: ReadBound = ReadBound {
    records: 1024,
    bytes: 128 * 1024,
};

/// A stretch of the log as one viewer sees it.
pub(super) struct Page {
    pub(super) frames: Bytes,
    /// The next seq after the page.
    pub(super) next: u64,
}

/// Reads from `from` up to, not including, `until`.
pub(super) async fn page(
    house: Arc<House>,
    session: SessionId,
    viewer: Arc<Viewer>,
    vault: Arc<Vault>,
    from: u64,
    until: u64,
) -> Result<Page, String> {
    let permit = house
        .readers
        .clone()
        .acquire_owned()
        .await
        .map_err(|error| error.to_string())?;
    let store = house.store.clone();
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let records = store
            .read(&session, from, PAGE)
            .map_err(|error| error.to_string())?;
        let mut frames = BytesMut::new();
        let mut next = from;
        for record in records.iter().take_while(|record| record.seq < until) {
            let told = told::from_record(record, &vault).map_err(|error| error.to_string())?;
            if let Some(body) = told.body_for(&viewer) {
                append_text_frame(&mut frames, body);
            }
            next = record.seq + 1;
        }
        if next == from {
            return Err(format!("entry {from} is not in the store"));
        }
        Ok(Page {
            frames: frames.freeze(),
            next,
        })
    });
    read.await.unwrap_or_else(|panic| Err(panic.to_string()))
}
