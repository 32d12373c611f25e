//! Loads a session, when its task starts and again after a failed write: from the newest snapshot and
//! the entries after it, or else from the whole log.
//!
//! The log must be what its last checkpoint covers, and after that there may be only streamed text: a
//! server vouches for nothing, by signing what follows it, that it has not signed before.
//!
//! A snapshot is used only if a checkpoint vouches for it. The hash chain of the entries before it
//! is checked too, once per log and run of the server: at once if they are few, otherwise in the
//! background.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pvp_protocol::{SessionId, Timestamp, WireMessage};
use pvp_session::{Entry, IndexChange, Session};
use tokio::time::Instant;

use super::{LogHealth, RETRY_DELAY, SessionTask, WriteBatch};
use crate::directory::SessionDirectory;
use crate::live_tokens::EndedToken;
use crate::store::audit::EntryFault;
use crate::store::{
    AppendRequest, CheckpointTiming, LogEnd, LogHead, LogRecord, LogState, LogUsage, ReadLimit,
    Store, StoreError, WHAT_TO_DO_ABOUT_DAMAGE, chain_hash, may_wait_for_checkpoint,
};

/// How much of a log is folded at a time. Folding a page takes about as long as a task may run before
/// others get their turn.
const READ_LIMIT: ReadLimit = ReadLimit {
    records: 512,
    bytes: 1024 * 1024,
};

/// Enough to tell whether there is an entry.
const ONE_RECORD: ReadLimit = ReadLimit {
    records: 1,
    bytes: 0,
};

/// How many changes to the indexes are written at a time, when a log from an earlier version is
/// indexed.
const MAX_INDEX_CHANGES: usize = 4096;

/// How much of a log is checked at a time, which must not delay the session's messages.
const CHECK_LIMIT: ReadLimit = ReadLimit {
    records: 128,
    bytes: 256 * 1024,
};

/// So many entries before a snapshot are checked while the session is loaded, not afterwards.
const MAX_CHECKED_AT_ONCE: u64 = 1024;

/// How long a damaged log is left alone before it is read again.
const DAMAGED_RETRY_DELAY: Duration = Duration::from_secs(5);

/// How long the background check rests between two pages, so that it takes no more than a part of
/// one core.
const CHECK_PAUSE: Duration = Duration::from_millis(2);

/// A session as its log says, and where the log ends.
struct LoadedSession {
    session: Session,
    head: LogHead,
    /// The entry that the snapshot was made at; the start of the log if there was none.
    snapshot: LogHead,
    usage: LogUsage,
    /// Whether there is no such session because it was deleted.
    deleted: bool,
}

/// Why a session cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("reading the log: {0}")]
    Store(#[from] StoreError),
    #[error("entry {seq} is damaged ({why}); {WHAT_TO_DO_ABOUT_DAMAGE}")]
    Damaged { seq: u64, why: String },
}

impl LoadError {
    /// Whether the log was altered, rather than out of reach for a while.
    fn is_damage(&self) -> bool {
        match self {
            LoadError::Damaged { .. } | LoadError::Store(StoreError::Damaged(_)) => true,
            LoadError::Store(_) => false,
        }
    }
}

/// The check of the part of a log that a snapshot stands for.
pub(super) type BackgroundCheck = BoxFuture<'static, Result<(), LoadError>>;

/// Waits for the outcome of the background check; for ever if there is none.
pub(super) async fn check_result(check: &mut Option<BackgroundCheck>) -> Result<(), LoadError> {
    match check {
        Some(check) => check.await,
        None => std::future::pending().await,
    }
}

impl SessionTask {
    /// Replaces the session's state with what the log says.
    pub(super) async fn load(&mut self) {
        let store = self.directory.store.clone();
        let checked = self.directory.checked_head(&self.id);
        let checked = (!self.distrusts_snapshots)
            .then(|| checked.unwrap_or_else(|| LogHead::empty(&self.id)));
        let loaded = match load_and_check(store.as_ref(), &self.id, checked).await {
            Ok((loaded, unchecked)) => {
                let ended = ended_tokens(self.directory.clone(), &loaded.session);
                let ended = ended.await;
                ended.map(|ended| (loaded, unchecked, ended))
            }
            Err(error) => Err(error),
        };
        match loaded {
            Ok((loaded, unchecked, ended)) => {
                self.deleted = loaded.deleted;
                self.feed.advance_head_to(loaded.head.seq);
                self.session = loaded.session;
                self.head = loaded.head;
                self.usage = loaded.usage;
                self.snapshot_seq = loaded.snapshot.seq;
                self.log_health = LogHealth::Readable;
                self.start_background_check(unchecked);
                self.release_if_not_created();
                self.refresh_viewers();
                self.next_presence_check = (!self.viewers.is_empty()).then(pvp_clock::now);
                let mut batch = WriteBatch::default();
                for token in ended {
                    self.on_token_ended(token, &mut batch);
                }
                self.leases.sync(&self.session, Instant::now());
                self.persist(batch);
            }
            Err(error) => {
                tracing::error!(session = %self.id, %error, "could not read the log");
                let delay = match error.is_damage() {
                    true => DAMAGED_RETRY_DELAY,
                    false => RETRY_DELAY,
                };
                self.log_health = LogHealth::Unreadable(error.to_string());
                self.backoff_until = Instant::now() + delay;
            }
        }
    }

    /// Starts to check a part of the log; if there is none, the log is checked up to its head.
    fn start_background_check(&mut self, unchecked: Option<UncheckedPart>) {
        self.background_check = unchecked.map(|part| -> BackgroundCheck {
            let (directory, id) = (self.directory.clone(), self.id.clone());
            Box::pin(async move { part.check_in_background(&directory, &id).await })
        });
        if self.background_check.is_none() {
            self.directory.record_checked(&self.id, self.head);
        }
    }

    /// Handles the outcome of the background check: a damaged log is not used any further.
    pub(super) fn on_background_check(&mut self, result: Result<(), LoadError>) {
        self.background_check = None;
        match result {
            Ok(()) => self.directory.record_checked(&self.id, self.head),
            Err(error) => {
                tracing::error!(session = %self.id, %error, "the log is damaged");
                self.distrusts_snapshots = true;
                self.refuse_unsent(&error.to_string());
                self.log_health = LogHealth::Unreadable(error.to_string());
                // Once the store has answered for what it is writing, the log is read again.
                self.backoff_until = Instant::now();
            }
        }
    }
}

/// The tokens that ended while the session was not in memory, of those whose approvals wait at its
/// gates.
async fn ended_tokens(
    directory: Arc<SessionDirectory>,
    session: &Session,
) -> Result<Vec<EndedToken>, LoadError> {
    let mut voters = HashMap::new();
    for (_, gate) in session.open_gates() {
        for approval in gate.approvals.values() {
            let earliest = voters
                .entry(approval.participant.clone())
                .or_insert(approval.at);
            *earliest = approval.at.min(*earliest);
        }
    }
    // Allow rules are votes given in advance.
    for rule in session.describe_allow_rules() {
        let earliest = voters.entry(rule.by).or_insert(rule.at);
        *earliest = rule.at.min(*earliest);
    }
    Ok(directory.tokens_ended_since(session.id(), &voters).await?)
}

/// Loads a session, and returns the part of its log that remains to be checked. `checked` says how
/// far it was checked before; `None` means that no snapshot is to be used.
async fn load_and_check(
    store: &dyn Store,
    id: &SessionId,
    checked: Option<LogHead>,
) -> Result<(LoadedSession, Option<UncheckedPart>), LoadError> {
    let Some(start) = checked else {
        return Ok((load_whole(store, id).await?, None));
    };
    let loaded = load_from_snapshot(store, id).await?;
    let part = UncheckedPart {
        start,
        end: loaded.snapshot,
    };
    if part.end.seq.saturating_sub(part.start.seq) > MAX_CHECKED_AT_ONCE {
        return Ok((loaded, Some(part)));
    }
    part.check(store, id).await?;
    Ok((loaded, None))
}

/// Loads the newest usable snapshot and the entries after it, or else the whole log.
async fn load_from_snapshot(store: &dyn Store, id: &SessionId) -> Result<LoadedSession, LoadError> {
    let Some(log) = store.open_log(id).await? else {
        return Ok(LoadedSession {
            session: Session::new(id.clone()),
            head: LogHead::empty(id),
            snapshot: LogHead::empty(id),
            usage: LogUsage::default(),
            deleted: store.find_tombstone(id).await?.is_some(),
        });
    };
    let Some(snapshot) = &log.snapshot else {
        return load_whole(store, id).await;
    };
    let session = match Session::from_snapshot(id, snapshot.head.seq, &snapshot.body) {
        Ok(session) => session,
        Err(why) => {
            tracing::info!(session = %id, %why, "replaying the whole log, because the snapshot cannot be used");
            return load_whole(store, id).await;
        }
    };
    let mut fold = LogFold {
        session,
        head: snapshot.head,
        reindex: None,
    };
    fold.read_whole(store, id, &log).await?;
    Ok(LoadedSession {
        session: fold.session,
        head: fold.head,
        snapshot: snapshot.head,
        usage: log.usage,
        deleted: false,
    })
}

/// Folds the whole log, and indexes it if an earlier version has written it.
async fn load_whole(store: &dyn Store, id: &SessionId) -> Result<LoadedSession, LoadError> {
    let log = store.open_log(id).await?;
    let unindexed = log.as_ref().filter(|log| !log.indexed);
    let mut fold = LogFold {
        session: Session::new(id.clone()),
        head: LogHead::empty(id),
        reindex: unindexed.map(Reindex::new),
    };
    if let Some(log) = &log {
        fold.read_whole(store, id, log).await?;
    }
    Ok(LoadedSession {
        session: fold.session,
        head: fold.head,
        snapshot: LogHead::empty(id),
        deleted: log.is_none() && store.find_tombstone(id).await?.is_some(),
        usage: log.map(|log| log.usage).unwrap_or_default(),
    })
}

/// The state while a log is folded, entry by entry.
struct LogFold {
    session: Session,
    head: LogHead,
    /// Collects what the entries add to the indexes; `None` if the indexes are complete.
    reindex: Option<Reindex>,
}

impl LogFold {
    /// Folds the rest of the log, and checks that it ends where the store says, that it is what was
    /// signed, and that nothing is unsigned that the server would have signed.
    async fn read_whole(
        &mut self,
        store: &dyn Store,
        id: &SessionId,
        log: &LogState,
    ) -> Result<(), LoadError> {
        let mut end = log.end;
        loop {
            self.read_to(store, id, &end).await?;
            let beyond = store.read(id, end.head.seq + 1, ONE_RECORD).await?;
            // An append of a task that has ended may have been written in between.
            match store.log_end(id).await? {
                Some(found) if found == end && beyond.is_empty() => return Ok(()),
                Some(found) if found == end => {
                    return Err(wrong_end(end.head.seq + 1, end.head.seq));
                }
                Some(found) if found.head.seq > end.head.seq => end = found,
                // A checkpoint of that task.
                Some(found) if found.head == end.head && found.signed == end.head => end = found,
                found => {
                    let stored_end = found.map_or(0, |found| found.head.seq);
                    return Err(wrong_end(end.head.seq, stored_end));
                }
            }
        }
    }

    /// Folds the entries up to this end and checks their hash chain; a log that was altered is
    /// refused.
    async fn read_to(
        &mut self,
        store: &dyn Store,
        id: &SessionId,
        end: &LogEnd,
    ) -> Result<(), LoadError> {
        self.check_signed(end)?;
        while self.head.seq < end.head.seq {
            let page = store.read(id, self.head.seq + 1, READ_LIMIT).await?;
            if page.is_empty() {
                break;
            }
            for record in page.iter().take_while(|one| one.seq <= end.head.seq) {
                let change = self
                    .fold(record, end)
                    .map_err(|why| damaged(record.seq, why))?;
                if let Some(reindex) = &mut self.reindex {
                    reindex.changes.extend(change);
                }
                self.check_signed(end)?;
            }
            if let Some(reindex) = &mut self.reindex
                && reindex.changes.len() >= MAX_INDEX_CHANGES
            {
                reindex.write(store, id).await?;
            }
        }
        if self.head != end.head {
            return Err(wrong_end(self.head.seq, end.head.seq));
        }
        if end.signed.seq > end.head.seq {
            let why = format!(
                "it is missing, although entry {} was signed",
                end.signed.seq
            );
            return Err(damaged(end.head.seq + 1, why));
        }
        match &mut self.reindex {
            Some(reindex) => reindex.write(store, id).await,
            None => Ok(()),
        }
    }

    /// Checks that the entry at the head is the one that the last checkpoint covers, if it covers
    /// up to there.
    fn check_signed(&self, end: &LogEnd) -> Result<(), LoadError> {
        if end.signed.seq == self.head.seq && end.signed != self.head {
            let why = "it is not the one that was signed".to_owned();
            return Err(damaged(self.head.seq, why));
        }
        Ok(())
    }

    fn fold(&mut self, record: &LogRecord, end: &LogEnd) -> Result<Option<IndexChange>, String> {
        self.head = next_head(&self.head, record)?;
        let entry = Entry::decode(&record.meta, &record.body);
        let entry = entry.map_err(|error| error.to_string())?;
        let may_wait = may_wait_for_checkpoint(entry.envelope.message.kind());
        if record.seq > end.signed.seq && !may_wait {
            return Err(EntryFault::Unsigned.to_string());
        }
        self.session
            .replay(&entry)
            .map_err(|error| error.to_string())
    }
}

/// Writes the indexes of a log from an earlier version.
struct Reindex {
    head: LogHead,
    changes: Vec<IndexChange>,
}

impl Reindex {
    fn new(log: &LogState) -> Self {
        Self {
            head: log.end.head,
            changes: Vec::new(),
        }
    }

    async fn write(&mut self, store: &dyn Store, id: &SessionId) -> Result<(), LoadError> {
        let append = AppendRequest {
            session: id.clone(),
            prev: self.head,
            records: Vec::new(),
            index: None,
            index_changes: std::mem::take(&mut self.changes),
            snapshot: None,
            at: Timestamp::default(),
            checkpoint: CheckpointTiming::WhenDue,
        };
        let written = store.append(append.into()).await;
        Ok(written.map_err(|error| StoreError::Failed(error.to_string()))?)
    }
}

/// A part of a log whose hash chain is to be checked, from the entry after `start` on.
struct UncheckedPart {
    start: LogHead,
    end: LogHead,
}

impl UncheckedPart {
    /// Checks the part at once.
    async fn check(mut self, store: &dyn Store, id: &SessionId) -> Result<(), LoadError> {
        while self.start.seq < self.end.seq {
            self.check_page(store, id).await?;
        }
        Ok(())
    }

    /// Checks the part page by page, taking turns with other logs.
    async fn check_in_background(
        mut self,
        directory: &SessionDirectory,
        id: &SessionId,
    ) -> Result<(), LoadError> {
        while self.start.seq < self.end.seq {
            // The semaphore is never closed.
            let permit = directory.check_permit.acquire().await;
            let checked = self.check_page(directory.store.as_ref(), id).await;
            drop(permit);
            match checked {
                Ok(()) => {
                    directory.record_checked(id, self.start);
                    tokio::time::sleep(CHECK_PAUSE).await;
                }
                Err(error) if error.is_damage() => return Err(error),
                Err(error) => {
                    tracing::warn!(session = %id, %error, "could not check the log");
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
        Ok(())
    }

    /// Checks the next entries, and moves the start behind them.
    async fn check_page(&mut self, store: &dyn Store, id: &SessionId) -> Result<(), LoadError> {
        let next_seq = self.start.seq + 1;
        let page = store.read(id, next_seq, CHECK_LIMIT).await?;
        if page.is_empty() {
            return Err(damaged(next_seq, "it is missing".to_owned()));
        }
        for record in page.iter().take_while(|record| record.seq <= self.end.seq) {
            self.start = next_head(&self.start, record).map_err(|why| damaged(record.seq, why))?;
        }
        if self.start.seq == self.end.seq && self.start != self.end {
            let why = "it is not the one that was signed".to_owned();
            return Err(damaged(self.end.seq, why));
        }
        Ok(())
    }
}

/// The head after a record, if the record follows the head before.
fn next_head(head: &LogHead, record: &LogRecord) -> Result<LogHead, String> {
    if record.seq != head.seq + 1 {
        return Err(format!("entry {} is missing", head.seq + 1));
    }
    if chain_hash(&head.hash, &record.meta, &record.body) != record.hash {
        return Err("its hash does not follow from the one before".to_owned());
    }
    Ok(record.head())
}

/// The error for a log that ends at another entry than the store says.
fn wrong_end(end: u64, stored_end: u64) -> LoadError {
    let seq = end.min(stored_end) + u64::from(end != stored_end);
    damaged(seq, format!("the log should end at entry {stored_end}"))
}

fn damaged(seq: u64, why: String) -> LoadError {
    LoadError::Damaged { seq, why }
}
