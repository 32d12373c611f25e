//! The store in a data directory on this machine, with SQLite. Only this folder knows SQL.

mod archive;
mod checkpoint_rows;
mod contents;
mod deletion;
mod ignore_file;
mod index_rows;
mod join_codes;
mod log_appender;
mod log_reader;
mod notifications;
mod read_pool;
mod rotation;
mod schema;
mod tokens;
mod writer;

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use pvp_protocol::{Digest, MessageId, SessionId, Timestamp};
use pvp_session::ProposalRecord;
use rusqlite::ErrorCode;
use tokio::sync::Semaphore;

use super::audit::AuditError;
use super::keys::{KeyFiles, ServerKeys};
use super::{
    AnchorRow, AppendError, AppendRequest, Checkpoint, JoinCodeRow, LogEnd, LogHead, LogRecord,
    LogState, MadeSessions, OpenError, OutputQuery, OutputSlice, PublicKey, ReadLimit,
    ServerIdentity, SessionDeletion, SessionFilter, SessionSummary, Store, StoreError, StoreResult,
    TokenRow, Tombstone, keys, restores,
};
use deletion::PurgeState;
use log_appender::LogAppender;
use notifications::NoticeConnection;
use read_pool::ReadPool;
use writer::WriterHandle;

pub(super) use log_reader::{LogReader, StoredLog};
pub use rotation::{KeyRotation, RotationKind, rotate_key};
pub use tokens::SqliteTokens;

const LOCK_FILE: &str = "pvp.lock";

/// How the names of copies in the data directory begin that are removed as soon as they are open.
pub(crate) const COPY_PREFIX: &str = "copy-";

/// How many queries may run at a time; others wait without a thread.
const MAX_CONCURRENT_READS: usize = 8;

/// A data directory that only this process appends to. Clones share it.
#[derive(Clone)]
pub struct SqliteStore(Arc<StoreInner>);

struct StoreInner {
    /// The data directory.
    dir: PathBuf,
    /// The thread that appends and deletes.
    writer: WriterHandle,
    /// Reads everything but tokens.
    readers: ReadPool,
    /// Reads and writes tokens.
    tokens: SqliteTokens,
    /// Reads and writes what was told, and vote links.
    notices: NoticeConnection,
    /// The key that this server signs with.
    key: PublicKey,
    /// Who this server is to its clients.
    identity: ServerIdentity,
    /// Permits so many queries to run at a time.
    read_permits: Semaphore,
}

impl SqliteStore {
    /// Opens a directory with its key in it.
    pub async fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::open_with_keys(KeyFiles::new(dir, None)).await
    }

    /// Opens and locks the directory, and creates it and its files where they are missing.
    pub async fn open_with_keys(files: KeyFiles) -> Result<Self, OpenError> {
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(&files));
        opened
            .await
            .unwrap_or_else(|panic| Err(OpenError::Panicked(panic.to_string())))
    }

    fn open_blocking(files: &KeyFiles) -> Result<Self, OpenError> {
        let dir = files.dir();
        create_data_directory(dir)?;
        let lock = lock_directory(dir)?;
        let has_history = keys::has_history(dir);
        let mut keys = keys::load_or_create(files)?;
        let mut connection = schema::open_or_create(dir, schema::MigrationScope::Older)?;
        rotation::finish_if_begun(files, &mut connection, &mut keys, &mut |_| Ok(()))?;
        if !has_history && log_reader::has_foreign_checkpoints(&connection, &keys.public(), dir)? {
            return Err(keys::missing_history(dir));
        }
        archive::remove_copies(dir).map_err(|source| OpenError::DataDirectory {
            path: dir.to_owned(),
            source,
        })?;
        deletion::purge_all(&mut connection)
            .map_err(schema::map_sqlite_error(&dir.join(schema::DATABASE_FILE)))?;
        let identity = find_identity(dir, &keys)?;
        let key_from = keys.current().and_then(|current| current.from);
        Ok(Self(Arc::new(StoreInner {
            dir: dir.to_owned(),
            key: keys.public(),
            identity,
            readers: ReadPool::new(dir.to_owned()),
            tokens: SqliteTokens::open(dir)?,
            notices: NoticeConnection::open(dir)?,
            writer: WriterHandle::start(
                dir,
                connection,
                LogAppender::new(keys.signing, key_from.unwrap_or_default()),
                lock,
            )?,
            read_permits: Semaphore::new(MAX_CONCURRENT_READS),
        })))
    }

    /// Runs a query on a thread that may block.
    fn query<'a, T: Send + 'static>(
        &'a self,
        query: impl FnOnce(&StoreInner) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreResult<'a, T> {
        Box::pin(async move {
            // The semaphore is never closed.
            let _permit = self.0.read_permits.acquire().await;
            let inner = self.0.clone();
            match tokio::task::spawn_blocking(move || query(&inner)).await {
                Ok(result) => result,
                Err(panic) => Err(StoreError::Failed(panic.to_string())),
            }
        })
    }
}

impl Store for SqliteStore {
    fn append(&self, append: Arc<AppendRequest>) -> BoxFuture<'static, Result<(), AppendError>> {
        self.0.writer.append(append)
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogHead>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.head(&session))
    }

    fn log_end<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogEnd>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.log_end(&session, &inner.key))
    }

    fn checkpoint_up_to<'a>(
        &'a self,
        session: &'a SessionId,
        seq: u64,
    ) -> StoreResult<'a, Option<Checkpoint>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.checkpoint_up_to(&session, seq))
    }

    fn open_log<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogState>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.open_log(&session, &inner.key))
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from: u64,
        limit: ReadLimit,
    ) -> StoreResult<'a, Vec<LogRecord>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.read(&session, from, limit))
    }

    fn read_each<'a>(
        &'a self,
        session: &'a SessionId,
        seqs: Vec<u64>,
    ) -> StoreResult<'a, Vec<LogRecord>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.read_each(&session, seqs))
    }

    fn closed_proposals<'a>(
        &'a self,
        session: &'a SessionId,
        before: u64,
        limit: usize,
    ) -> StoreResult<'a, Vec<ProposalRecord>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.closed_proposals(&session, before, limit))
    }

    fn find_closed_proposal<'a>(
        &'a self,
        session: &'a SessionId,
        name: &'a MessageId,
    ) -> StoreResult<'a, Option<ProposalRecord>> {
        let (session, name) = (session.clone(), name.clone());
        self.query(move |inner| inner.readers.find_closed_proposal(&session, &name))
    }

    fn closed_proposals_named<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        text: &'a str,
        limit: usize,
    ) -> StoreResult<'a, Vec<(SessionId, ProposalRecord)>> {
        let (session, text) = (session.cloned(), text.to_owned());
        self.query(move |inner| {
            let readers = &inner.readers;
            readers.closed_proposals_named(session.as_ref(), &text, limit)
        })
    }

    fn output_slice<'a>(
        &'a self,
        session: &'a SessionId,
        query: OutputQuery,
    ) -> StoreResult<'a, OutputSlice> {
        let session = session.clone();
        self.query(move |inner| inner.readers.output_slice(&session, &query))
    }

    fn list_sessions(
        &self,
        filter: SessionFilter,
        limit: usize,
    ) -> StoreResult<'_, Vec<SessionSummary>> {
        self.query(move |inner| inner.readers.list_sessions(&filter, limit))
    }

    fn sessions_with_open_gates(&self) -> StoreResult<'_, Vec<SessionId>> {
        self.query(|inner| inner.readers.sessions_with_open_gates())
    }

    fn count_sessions(&self) -> StoreResult<'_, u64> {
        self.query(|inner| inner.readers.count_sessions())
    }

    fn sessions_made_by<'a>(&'a self, token: &'a str) -> StoreResult<'a, MadeSessions> {
        let token = token.to_owned();
        self.query(move |inner| inner.readers.sessions_made_by(&token))
    }

    fn due_sessions(&self, now: Timestamp, limit: usize) -> StoreResult<'_, Vec<SessionId>> {
        self.query(move |inner| inner.readers.due_sessions(now, limit))
    }

    fn next_deadline(&self) -> StoreResult<'_, Option<Timestamp>> {
        self.query(|inner| inner.readers.next_deadline())
    }

    fn ended_sessions(&self, before: Timestamp, limit: usize) -> StoreResult<'_, Vec<SessionId>> {
        self.query(move |inner| inner.readers.ended_sessions(before, limit))
    }

    fn archive_session(&self, session: SessionId, to: PathBuf) -> StoreResult<'_, LogHead> {
        self.query(move |inner| {
            archive::write_archive(&inner.dir, &session, &to).map_err(|error| {
                StoreError::NotArchived {
                    session,
                    to,
                    why: error.to_string(),
                }
            })
        })
    }

    fn delete_session(&self, deletion: SessionDeletion) -> StoreResult<'_, Tombstone> {
        Box::pin(async move {
            let tombstone = self.0.writer.delete(deletion).await?;
            // It is deleted; whatever cannot be removed at the moment is removed at the next start.
            while let Ok(PurgeState::MoreToPurge) = self.0.writer.purge_some().await {}
            Ok(tombstone)
        })
    }

    fn find_tombstone<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<Tombstone>> {
        let session = session.clone();
        self.query(move |inner| inner.readers.find_tombstone(&session))
    }

    fn anchors(&self, after: i64, limit: usize) -> StoreResult<'_, Vec<AnchorRow>> {
        self.query(move |inner| inner.readers.anchors(after, limit, &inner.key))
    }

    fn identity(&self) -> ServerIdentity {
        self.0.identity.clone()
    }

    fn insert_token(&self, token: TokenRow) -> StoreResult<'_, ()> {
        self.query(move |inner| inner.tokens.insert(&token))
    }

    fn find_token<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<TokenRow>> {
        let id = id.to_owned();
        self.query(move |inner| inner.tokens.find(&id))
    }

    fn revoke_token<'a>(&'a self, id: &'a str, at: Timestamp) -> StoreResult<'a, bool> {
        let id = id.to_owned();
        self.query(move |inner| inner.tokens.revoke(&id, at))
    }

    fn list_tokens(&self) -> StoreResult<'_, Vec<TokenRow>> {
        self.query(|inner| inner.tokens.list())
    }

    fn count_ended_tokens(&self, now: Timestamp) -> StoreResult<'_, u64> {
        self.query(move |inner| inner.tokens.count_ended(now))
    }

    fn ended_tokens(&self, now: Timestamp) -> StoreResult<'_, BTreeSet<String>> {
        self.query(move |inner| inner.tokens.ended(now))
    }

    fn last_written_at(&self) -> StoreResult<'_, Option<Timestamp>> {
        self.query(|inner| inner.readers.last_written_at())
    }

    fn count_tokens(&self) -> StoreResult<'_, u64> {
        self.query(|inner| inner.tokens.count())
    }

    fn record_token_uses(&self, uses: Vec<(String, Timestamp)>) -> StoreResult<'_, ()> {
        self.query(move |inner| inner.tokens.record_uses(&uses))
    }

    fn keep_content<'a>(
        &'a self,
        session: &'a SessionId,
        content: String,
        limit: u64,
    ) -> StoreResult<'a, bool> {
        let session = session.clone();
        self.query(move |inner| inner.tokens.keep_content(&session, &content, limit))
    }

    fn find_content<'a>(
        &'a self,
        session: &'a SessionId,
        hash: Digest,
    ) -> StoreResult<'a, Option<String>> {
        let session = session.clone();
        self.query(move |inner| inner.tokens.find_content(&session, &hash))
    }

    fn insert_join_code(
        &self,
        code: JoinCodeRow,
        limit: usize,
        forget_before: Timestamp,
    ) -> StoreResult<'_, bool> {
        self.query(move |inner| inner.tokens.insert_join_code(&code, limit, forget_before))
    }

    fn find_join_code<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<JoinCodeRow>> {
        let id = id.to_owned();
        self.query(move |inner| inner.tokens.find_join_code(&id))
    }

    fn outstanding_join_codes(&self, now: Timestamp) -> StoreResult<'_, Vec<JoinCodeRow>> {
        self.query(move |inner| inner.tokens.outstanding_join_codes(now))
    }

    fn redeem_join_code<'a>(
        &'a self,
        id: &'a str,
        token: TokenRow,
        at: Timestamp,
    ) -> StoreResult<'a, bool> {
        let id = id.to_owned();
        self.query(move |inner| inner.tokens.redeem_join_code(&id, &token, at))
    }

    fn revoke_join_code<'a>(&'a self, id: &'a str, at: Timestamp) -> StoreResult<'a, bool> {
        let id = id.to_owned();
        self.query(move |inner| inner.tokens.revoke_join_code(&id, at))
    }

    fn close(&self, at: Timestamp) -> StoreResult<'_, ()> {
        Box::pin(self.0.writer.close(at))
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as E;
        let is_damage = matches!(
            error,
            E::FromSqlConversionFailure(..)
                | E::IntegralValueOutOfRange(..)
                | E::InvalidColumnType(..)
                | E::Utf8Error(..)
        ) || error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt);
        match is_damage {
            true => Self::Damaged(error.to_string()),
            false => Self::Failed(error.to_string()),
        }
    }
}

impl From<rusqlite::Error> for AuditError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Unreadable(error.to_string())
    }
}

fn find_identity(dir: &Path, keys: &ServerKeys) -> Result<ServerIdentity, OpenError> {
    let all: Vec<_> = keys.history.records().iter().map(|one| one.key).collect();
    let restored_at = restores::last_declared(dir, &all);
    let key = keys.public();
    Ok(ServerIdentity {
        key,
        earlier_keys: all.into_iter().filter(|one| *one != key).collect(),
        restored_at: restored_at.map_err(|source| OpenError::DataDirectory {
            path: dir.to_owned(),
            source,
        })?,
    })
}

/// Declares that the logs of a directory that no server uses were restored from a backup, so that
/// those who remember more than is in them are told so.
pub fn declare_restored(files: &KeyFiles, now: Timestamp) -> Result<(), OpenError> {
    let dir = files.dir();
    let _lock = lock_directory(dir)?;
    let keys = keys::load_or_create(files)?;
    restores::declare(dir, &keys, now).map_err(|source| OpenError::DataDirectory {
        path: dir.to_owned(),
        source,
    })
}

fn create_data_directory(dir: &Path) -> Result<(), OpenError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    created
        .and_then(|()| ignore_file::add(dir))
        .map_err(|source| OpenError::DataDirectory {
            path: dir.to_owned(),
            source,
        })
}

/// Keeps other servers out of a directory until it is dropped, or the process is killed.
#[derive(Debug)]
struct DirectoryLock(File);

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that is just being started has it open, too.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the lock of the data directory is kept until the server has ended");
        }
    }
}

/// Locks the directory.
fn lock_directory(dir: &Path) -> Result<DirectoryLock, OpenError> {
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
        Ok(()) => Ok(DirectoryLock(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked(dir.to_owned())),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

#[cfg(test)]
mod tests;
