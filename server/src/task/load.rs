//! Loads a session from its log, when its task starts and again after a failed write.

use bytes::Bytes;
use pvp_protocol::SessionId;
use pvp_session::{Entry, Session};
use tokio::time::Instant;

use super::{LogHealth, RETRY_DELAY, SessionTask};
use crate::store::{LogHead, ReadLimit, Store, chain_hash};

/// How much of a log is read at a time.
const READ_LIMIT: ReadLimit = ReadLimit {
    records: 4096,
    bytes: 8 * 1024 * 1024,
};

impl SessionTask {
    /// Replaces the session's state with what the log says.
    pub(super) async fn load(&mut self) {
        let (store, id) = (self.directory.store.clone(), self.id.clone());
        let replayed = tokio::task::spawn_blocking(move || replay_log(&store, &id)).await;
        let replayed = replayed.unwrap_or_else(|panic| Err(panic.to_string()));
        match replayed {
            Ok((session, head)) => {
                self.feed.advance_head_to(head.seq);
                self.session = session;
                self.head = head;
                self.log_health = LogHealth::Readable;
                self.refresh_viewers();
                self.next_presence_check = (!self.viewers.is_empty()).then(pvp_clock::now);
            }
            Err(why) => {
                tracing::error!(session = %self.id, why, "could not read the log");
                self.log_health = LogHealth::Unreadable(why);
                self.backoff_until = Instant::now() + RETRY_DELAY;
            }
        }
    }
}

/// Replays a log and checks its hash chain; a log that was altered is refused.
fn replay_log(store: &Store, id: &SessionId) -> Result<(Session, LogHead), String> {
    let mut session = Session::new(id.clone());
    let mut head = LogHead::empty(id);
    loop {
        let page = store
            .read(id, head.seq + 1, READ_LIMIT)
            .map_err(|error| format!("reading the log: {error}"))?;
        if page.is_empty() {
            return Ok((session, head));
        }
        for record in page {
            let damaged = |why: String| {
                format!(
                    "entry {} is damaged ({why}); run `pvp audit verify`",
                    record.seq
                )
            };
            if chain_hash(&head.hash, &record.meta, &record.body) != record.hash {
                return Err(damaged(
                    "its hash does not follow from the one before".to_owned(),
                ));
            }
            let entry = read_entry(&record.meta, &record.body).map_err(damaged)?;
            session
                .replay(&entry)
                .map_err(|error| damaged(error.to_string()))?;
            head = record.head();
        }
    }
}

fn read_entry(meta: &Bytes, body: &Bytes) -> Result<Entry, String> {
    Entry::decode(meta, body).map_err(|error| error.to_string())
}
