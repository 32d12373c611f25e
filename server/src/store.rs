//! Stores the logs of all sessions durably, so that they can be read and verified later.

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

/// One entry of a log: its exact bytes, and the metadata that the server stores beside them.
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

/// The last entry of a log, by sequence number and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    pub seq: u64,
    pub hash: Hash,
}

impl LogHead {
    /// The head of an empty log.
    pub fn empty(session: &SessionId) -> Self {
        Self {
            seq: 0,
            hash: genesis_hash(session),
        }
    }
}

/// When the log gets its next checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointTiming {
    /// After [`CHECKPOINT_EVERY`] entries, when the session ends and when the store is closed.
    WhenDue,
    /// At the end of this append.
    Now,
}

/// Consecutive records of one session, of which all or none are written. Without records, only the
/// index is updated and the checkpoint made.
pub struct AppendRequest {
    /// The session to append to.
    pub session: SessionId,
    /// The head that the records follow; the append fails if the log ends elsewhere.
    pub prev: LogHead,
    /// The records to write, in order.
    pub records: Vec<LogRecord>,
    /// What is known about the session after these records.
    pub index: SessionIndex,
    /// The time of the append, which the session's row and its checkpoint carry.
    pub at: Timestamp,
    /// When to make a checkpoint.
    pub checkpoint: CheckpointTiming,
    /// Receives the outcome.
    pub on_done: AppendCallback,
}

/// What can be looked up about a session without reading its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionIndex {
    pub name: Option<String>,
    pub next_deadline: Option<Timestamp>,
    pub open_gates: u32,
    pub ended: bool,
}

/// Called once, on the writer's thread, with the outcome of an append. If it is dropped uncalled,
/// it reports a failure.
pub struct AppendCallback(Option<AppendCallbackFn>);

type AppendCallbackFn = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

impl AppendCallback {
    /// `callback` must not block, because every session waits for it.
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
    /// The log does not end where the caller expects, for example because an earlier append failed;
    /// the caller must replay the log.
    #[error("the log ends at seq {}, not at seq {} with the expected hash", found.seq, expected.seq)]
    Conflict { expected: LogHead, found: LogHead },
    /// The records do not continue the log, which is a bug in the caller.
    #[error("record {seq} cannot be written: {why}")]
    BadChain { seq: u64, why: &'static str },
    /// The disk is full, read-only or failing; it may work again later.
    #[error("the log cannot be written: {0}")]
    Unwritable(String),
}

/// Why the store could not be read or written.
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

/// What a list of sessions shows about one of them, without reading its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSummary {
    pub session: SessionId,
    /// The sequence number of the last entry.
    pub seq: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub index: SessionIndex,
}

/// A data directory that only this process appends to. Clones share it.
///
/// All methods but `append` and `close` block on the disk.
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

struct StoreInner {
    writer: WriterHandle,
    readers: ReadPool,
    tokens: TokenTable,
}

impl Store {
    /// Opens and locks the directory, and creates it and its files where they are missing.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        create_data_directory(dir)?;
        let lock = lock_directory(dir)?;
        let key = keys::load_or_create(dir)?;
        let connection = schema::open_or_create(dir, schema::MigrationScope::Older)?;
        Ok(Self(Arc::new(StoreInner {
            readers: ReadPool::new(dir.to_owned()),
            tokens: TokenTable::open(dir)?,
            writer: WriterHandle::start(dir, connection, key, lock)?,
        })))
    }

    /// Queues an append, waiting for room in the queue; `on_done` receives the outcome.
    pub async fn append(&self, append: AppendRequest) {
        self.0.writer.append(append).await;
    }

    /// The head of the session's log; `None` if there is no such session.
    pub fn head(&self, session: &SessionId) -> Result<Option<LogHead>, StoreError> {
        self.0.readers.head(session)
    }

    /// Reads records from the sequence number `from` on, in ascending order.
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

    /// How many sessions there are, including ended ones.
    pub fn count_sessions(&self) -> Result<u64, StoreError> {
        self.0.readers.count_sessions()
    }

    /// At most `limit` sessions whose next deadline is not after `now`, earliest first.
    pub fn due_sessions(&self, now: Timestamp, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.0.readers.due_sessions(now, limit)
    }

    /// The earliest deadline of all sessions.
    pub fn next_deadline(&self) -> Result<Option<Timestamp>, StoreError> {
        self.0.readers.next_deadline()
    }

    /// The login tokens.
    pub fn tokens(&self) -> &TokenTable {
        &self.0.tokens
    }

    /// Writes what is queued, makes a last checkpoint of every log and unlocks the directory. Later
    /// appends fail.
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

/// Locks the directory until the file is closed, which also happens when the process is killed.
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
