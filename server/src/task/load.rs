//! Reading a session's log: at the first order, and again after a failed write.

use bytes::Bytes;
use pvp_protocol::SessionId;
use pvp_session::{Entry, Session};
use tokio::time::Instant;

use super::{Health, RETRY, Task};
use crate::clock;
use crate::store::{Head, ReadBound, Store, link};

/// How much of a log is read at a time.
const PAGE: ReadBound = ReadBound {
    records: 4096,
    bytes: 8 * 1024 * 1024,
};

impl Task {
    /// Becomes what the log says.
    pub(super) async fn load(&mut self) {
        let (store, id) = (self.house.store.clone(), self.id.clone());
        let folded = tokio::task::spawn_blocking(move || fold(&store, &id)).await;
        let folded = folded.unwrap_or_else(|panic| Err(panic.to_string()));
        match folded {
            Ok((session, head)) => {
                self.feed.start_at_least(head.seq);
                self.session = session;
                self.head = head;
                self.health = Health::Fit;
                self.refresh_viewers();
                self.next_look = (!self.viewers.is_empty()).then(clock::now);
            }
            Err(why) => {
                tracing::error!(session = %self.id, why, "could not read the log");
                self.health = Health::Unreadable(why);
                self.hold = Instant::now() + RETRY;
            }
        }
    }
}

/// Folds a log, checking the chain on the way: a log that was altered is not worked on.
fn fold(store: &Store, id: &SessionId) -> Result<(Session, Head), String> {
    let mut session = Session::new(id.clone());
    let mut head = Head::empty(id);
    loop {
        let page = store
            .read(id, head.seq + 1, PAGE)
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
            if link(&head.hash, &record.meta, &record.body) != record.hash {
                return Err(damaged(
                    "its hash does not follow from the one before".to_owned(),
                ));
            }
            let entry = read(&record.meta, &record.body).map_err(damaged)?;
            session
                .replay(&entry)
                .map_err(|error| damaged(error.to_string()))?;
            head = record.head();
        }
    }
}

fn read(meta: &Bytes, body: &Bytes) -> Result<Entry, String> {
    Entry::decode(meta, body).map_err(|error| error.to_string())
}
