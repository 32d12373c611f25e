//! The durable logs of all sessions: append what follows, read from anywhere, prove it later.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use pvp_protocol::{SessionId, Timestamp};

pub mod audit;
mod chain;
mod checkpoint;
mod export;
mod keys;
mod log_appender;
mod read_pool;
mod schema;
mod tokens;
mod verifier;
mod writer;

pub use chain::{Hash, MAX_RECORD_BYTES, chain_hash, genesis_hash};
pub use checkpoint::{CHECKPOINT_EVERY, Checkpoint};
pub use keys::PublicKey;
pub use tokens::{TokenRow, TokenTable};

use read_pool::ReadPool;
use writer::WriterHandle;

const LOCK_FILE: &str = "pvp.lock";

/// One written entry: its exact bytes, and what the server noted beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Counted from 1, without gaps.
    pub seq: u64,
    /// JSON other than `null`, or empty.
    pub meta: Bytes,
    pub body: Bytes,
    pub hash: Hash,
}

impl LogRecord {
    /// The record that follows `prev`.
    pub fn after(prev: &LogHead, meta: Bytes, body: Bytes) -> Self {
        Self {
            seq: prev.seq + 1,
            hash: chain_hash(&prev.hash, &meta, &body),
            meta,
            body,
        }
    }

    /// The head of a log that ends with this record.
    pub fn head(&self) -> LogHead {
        LogHead {
            seq: self.seq,
            hash: self.hash,
        }
    }
}

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    pub seq: u64,
    pub hash: Hash,
}

impl LogHead {
    /// The head of a log with nothing in it.
    pub fn empty(session: &SessionId) -> Self {
        Self {
            seq: 0,
            hash: genesis_hash(session),
        }
    }
}

/// When the log gets a signed checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealTiming {
    /// After [`CHECKPOINT_EVERY`] entries, when the session ends and when the store is closed.
    WhenDue,
    /// At the end of this append.
    Now,
}

/// One session's consecutive records, written all or none; without records, only the rest.
pub struct AppendRequest {
    pub session: SessionId,
    /// The head the records were decided on.
    pub prev: LogHead,
    pub records: Vec<LogRecord>,
    pub index: SessionIndex,
    pub at: Timestamp,
    pub seal: SealTiming,
    pub on_done: AppendCallback,
}

/// What is looked up of a session without reading its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionIndex {
    pub name: Option<String>,
    pub next_deadline: Option<Timestamp>,
    pub open_gates: u32,
    pub ended: bool,
}

/// Told once, from the writer's thread, how an append went; dropped unanswered, it tells a failure.
pub struct AppendCallback(Option<AppendCallbackFn>);

type AppendCallbackFn = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

impl AppendCallback {
    /// `tell` must not block: every session waits for it.
    pub fn new(callback: impl FnOnce(Result<(), AppendError>) + Send + 'static) -> Self {
        Self(Some(Box::new(callback)))
    }

    fn call(mut self, result: Result<(), AppendError>) {
        if let Some(callback) = self.0.take() {
            callback(result);
        }
    }
}

impl Drop for AppendCallback {
    fn drop(&mut self) {
        if let Some(callback) = self.0.take() {
            callback(Err(AppendError::Unwritable("the store is closed".into())));
        }
    }
}

/// Why nothing of an append was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Someone else appended, or an earlier append failed: fold the log again.
    #[error("the log ends at seq {}, not at seq {} with the expected hash", found.seq, expected.seq)]
    Conflict { expected: LogHead, found: LogHead },
    /// The records do not continue the log; a mistake in the caller.
    #[error("record {seq} cannot be written: {why}")]
    BadChain { seq: u64, why: &'static str },
    /// The disk is full, read-only or failing; it may work again later.
    #[error("the log cannot be written: {0}")]
    Unwritable(String),
}

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be read or written: {0}")]
    Database(#[from] rusqlite::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the store is damaged: {0}")]
    Damaged(String),
    #[error("a token `{0}` exists already")]
    TokenExists(String),
}

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("`{}` cannot be used: {source}", path.display())]
    DataDirectory {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the data directory `{}` is in use by another pvp server; stop it or choose another directory", .0.display())]
    Locked(PathBuf),
    #[error("`{}` is not a PVP store", path.display())]
    NotAStore { path: PathBuf },
    #[error("`{}` has format {found}, this program knows up to {known}; upgrade this program", path.display())]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    #[error("`{}` is empty or from an older version; start the server once to bring it up to date", path.display())]
    Older { path: PathBuf },
    #[error("the key file `{}` cannot be used: {why}", path.display())]
    Key { path: PathBuf, why: String },
    #[error("the database `{}` cannot be opened: {source}", path.display())]
    Database {
        path: PathBuf,
        source: rusqlite::Error,
    },
}

/// How much one read may return; one record is always returned if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadLimit {
    pub records: usize,
    pub bytes: usize,
}

/// What a list of sessions shows without reading their logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    pub session: SessionId,
    /// The last seq.
    pub seq: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub index: SessionIndex,
}

/// A data directory that this process alone appends to. Clones share it.
///
/// All but `append` and `close` block on the disk.
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

struct StoreInner {
    writer: WriterHandle,
    readers: ReadPool,
    tokens: TokenTable,
    key: PublicKey,
}

impl Store {
    /// Opens the directory, making it and what belongs in it where missing, and locks it.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        create_data_directory(dir)?;
        let lock = lock_directory(dir)?;
        let key = keys::load_or_create(dir)?;
        let connection = schema::open_or_create(dir, schema::MigrationScope::Older)?;
        Ok(Self(Arc::new(StoreInner {
            readers: ReadPool::new(dir.to_owned()),
            tokens: TokenTable::open(dir)?,
            key: key.verifying_key().to_bytes(),
            writer: WriterHandle::start(dir, connection, key, lock)?,
        })))
    }

    /// Queues an append, waiting for room; `done` hears how it went.
    pub async fn append(&self, append: AppendRequest) {
        self.0.writer.append(append).await;
    }

    /// Where the session's log ends; `None` if there is no such session.
    pub fn head(&self, session: &SessionId) -> Result<Option<LogHead>, StoreError> {
        self.0.readers.head(session)
    }

    /// Records from seq `from` on, ascending.
    pub fn read(
        &self,
        session: &SessionId,
        from: u64,
        limit: ReadLimit,
    ) -> Result<Vec<LogRecord>, StoreError> {
        self.0.readers.read(session, from, limit)
    }

    /// Every session, oldest first.
    pub fn list_sessions(&self) -> Result<Vec<SessionSummary>, StoreError> {
        self.0.readers.list_sessions()
    }

    /// Sessions with open gates, oldest first.
    pub fn sessions_with_open_gates(&self) -> Result<Vec<SessionId>, StoreError> {
        self.0.readers.sessions_with_open_gates()
    }

    /// How many sessions there are, ended ones too.
    pub fn count_sessions(&self) -> Result<u64, StoreError> {
        self.0.readers.count_sessions()
    }

    /// At most `most` sessions whose next deadline is not after `now`, earliest first.
    pub fn due_sessions(&self, now: Timestamp, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.0.readers.due_sessions(now, limit)
    }

    /// The earliest deadline of all sessions.
    pub fn next_deadline(&self) -> Result<Option<Timestamp>, StoreError> {
        self.0.readers.next_deadline()
    }

    /// Login tokens.
    pub fn tokens(&self) -> &TokenTable {
        &self.0.tokens
    }

    /// The key that checkpoints are signed with.
    pub fn public_key(&self) -> &PublicKey {
        &self.0.key
    }

    /// Writes what is queued, seals every log and unlocks the directory; later appends fail.
    pub async fn close(self, at: Timestamp) -> Result<(), StoreError> {
        self.0.writer.close(at).await
    }
}

fn create_data_directory(dir: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| OpenError::DataDirectory {
            path: dir.to_owned(),
            source,
        })
}

/// Holds until the file is closed, also by a kill.
fn lock_directory(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join(LOCK_FILE);
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path);
    let failed = |source| OpenError::DataDirectory {
        path: path.clone(),
        source,
    };
    let file = opened.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests;
