//! The thread that writes all appends, committing those that wait together as a group.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use futures_util::future::BoxFuture;
use pvp_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::super::{
    AppendError, AppendRequest, LogRecord, OpenError, SessionDeletion, StoreError, Tombstone,
};
use super::deletion::{self, PurgeState};
use super::log_appender::{AppendResults, LogAppender};
use super::{DirectoryLock, schema};

/// How many jobs the writer takes from its queue at a time. The queue itself needs no bound: a
/// session has at most one append in it, and holds the records of that append anyway.
const MAX_JOBS: usize = 1024;

/// The most records in a group. Larger groups measured no faster, and every append in a group waits
/// for all of it.
const MAX_GROUP_RECORDS: usize = 1024;

/// The most bytes in a group, so that large records do not grow the WAL too much.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The handle of the writer thread.
pub(super) struct WriterHandle {
    jobs: Option<mpsc::UnboundedSender<WriterJob>>,
    thread: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
}

pub(super) enum WriterJob {
    Append(QueuedAppend),
    Delete(
        SessionDeletion,
        oneshot::Sender<Result<Tombstone, StoreError>>,
    ),
    /// Removes some of the rows that deleted sessions have left.
    Purge(oneshot::Sender<Result<PurgeState, StoreError>>),
    Close(Timestamp),
    /// Lets a test break the writer's own connection.
    #[cfg(test)]
    RunOnConnection(Box<dyn FnOnce(&Connection) + Send>),
}

/// An append, and where its outcome goes.
pub(super) struct QueuedAppend {
    append: Arc<AppendRequest>,
    done: oneshot::Sender<Result<(), AppendError>>,
}

impl WriterHandle {
    pub(super) fn start(
        dir: &Path,
        connection: Connection,
        appender: LogAppender,
        lock: DirectoryLock,
    ) -> Result<Self, OpenError> {
        let (jobs, receiver) = mpsc::unbounded_channel();
        let writer_thread = WriterThread {
            jobs: receiver,
            dir: dir.to_owned(),
            connection: Some(connection),
            appender,
            _lock: lock,
        };
        let thread = thread::Builder::new()
            .name("pvp-store".into())
            .spawn(move || writer_thread.run())
            .map_err(|source| OpenError::DataDirectory {
                path: dir.to_owned(),
                source,
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Queues an append; the returned future is done when it is written.
    pub(super) fn append(
        &self,
        append: Arc<AppendRequest>,
    ) -> BoxFuture<'static, Result<(), AppendError>> {
        let (done, result) = oneshot::channel();
        self.send(WriterJob::Append(QueuedAppend { append, done }));
        Box::pin(async {
            // A closed queue drops the append unwritten.
            let closed = |_| Err(AppendError::Unwritable("the store is closed".into()));
            result.await.unwrap_or_else(closed)
        })
    }

    /// Deletes a session, after all appends that were queued before.
    pub(super) async fn delete(&self, deletion: SessionDeletion) -> Result<Tombstone, StoreError> {
        let (done, result) = oneshot::channel();
        self.send(WriterJob::Delete(deletion, done));
        result.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Removes some of the rows that deleted sessions have left.
    pub(super) async fn purge_some(&self) -> Result<PurgeState, StoreError> {
        let (done, result) = oneshot::channel();
        self.send(WriterJob::Purge(done));
        result.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) async fn close(&self, at: Timestamp) -> Result<(), StoreError> {
        self.send(WriterJob::Close(at));
        let Some(thread) = self.take_thread() else {
            return Ok(());
        };
        match tokio::task::spawn_blocking(move || thread.join()).await {
            Ok(Ok(closed)) => closed,
            Ok(Err(_)) | Err(_) => Err(StoreError::Damaged("the writer panicked".into())),
        }
    }

    pub(super) fn send(&self, job: WriterJob) {
        if let Some(jobs) = &self.jobs {
            // A closed queue returns the job, and dropping an append reports a failure.
            let _ = jobs.send(job);
        }
    }

    fn take_thread(&self) -> Option<JoinHandle<Result<(), StoreError>>> {
        self.thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

fn closed() -> StoreError {
    StoreError::Failed("the store is closed".into())
}

impl Drop for WriterHandle {
    /// Waits until the queue is written, so that the directory is unlocked afterwards.
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.take_thread() else {
            return;
        };
        if !matches!(thread.join(), Ok(Ok(()))) {
            tracing::error!("the store's writer failed");
        }
    }
}

/// The state of the writer thread.
struct WriterThread {
    jobs: mpsc::UnboundedReceiver<WriterJob>,
    dir: PathBuf,
    /// `None` after an error that the connection may not have survived.
    connection: Option<Connection>,
    appender: LogAppender,
    /// Released last, when the database is closed.
    _lock: DirectoryLock,
}

impl WriterThread {
    fn run(mut self) -> Result<(), StoreError> {
        let mut closed_at = None;
        let mut jobs = Vec::new();
        while self.jobs.blocking_recv_many(&mut jobs, MAX_JOBS) > 0 {
            let mut group = AppendGroup::default();
            for job in jobs.drain(..) {
                match job {
                    WriterJob::Append(queued) => {
                        if !group.has_room_for(&queued.append) {
                            self.write_group(mem::take(&mut group));
                        }
                        group.push(queued);
                    }
                    WriterJob::Delete(deletion, done) => {
                        self.write_group(mem::take(&mut group));
                        // Whoever asked for it may have stopped waiting.
                        let _ = done.send(self.delete(&deletion));
                    }
                    WriterJob::Purge(done) => {
                        self.write_group(mem::take(&mut group));
                        let purged = self
                            .run_alone(|_, connection| deletion::purge_some(connection).map(Ok));
                        let _ = done.send(purged);
                    }
                    WriterJob::Close(at) => {
                        closed_at = Some(at);
                        self.jobs.close();
                    }
                    #[cfg(test)]
                    WriterJob::RunOnConnection(run) => {
                        self.write_group(mem::take(&mut group));
                        let connection = self.take_connection().unwrap();
                        run(&connection);
                        self.connection = Some(connection);
                    }
                }
            }
            self.write_group(group);
        }
        self.checkpoint_and_close(closed_at)
    }

    fn write_group(&mut self, group: AppendGroup) {
        if group.appends.is_empty() {
            return;
        }
        let results = self.commit(&group.appends).unwrap_or_else(|error| {
            let why = error.to_string();
            tracing::error!(error = why, "the log cannot be written");
            self.recover(&error);
            vec![Err(AppendError::Unwritable(why)); group.appends.len()]
        });
        for (queued, result) in group.appends.into_iter().zip(results) {
            // The session may have been unloaded meanwhile.
            let _ = queued.done.send(result);
        }
    }

    fn commit(&mut self, group: &[QueuedAppend]) -> Result<AppendResults, CommitError> {
        let mut connection = self.take_connection()?;
        let appends = group.iter().map(|queued| queued.append.as_ref());
        let written = self.appender.commit_group(&mut connection, appends);
        self.connection = Some(connection);
        Ok(written?)
    }

    fn delete(&mut self, deletion: &SessionDeletion) -> Result<Tombstone, StoreError> {
        self.run_alone(|appender, connection| appender.delete(connection, deletion))
    }

    /// Runs a transaction that is not part of a group.
    fn run_alone<T>(
        &mut self,
        run: impl FnOnce(&mut LogAppender, &mut Connection) -> rusqlite::Result<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut connection = self.take_connection()?;
        let result = run(&mut self.appender, &mut connection);
        self.connection = Some(connection);
        result.unwrap_or_else(|error| {
            let why = error.to_string();
            tracing::error!(error = why, "a session cannot be deleted");
            self.recover(&CommitError::Sqlite(error));
            Err(StoreError::Failed(why))
        })
    }

    fn take_connection(&mut self) -> Result<Connection, OpenError> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => schema::open_existing(&self.dir),
        }
    }

    /// Recovers from a failed commit: keeps the connection only if it can be used again.
    fn recover(&mut self, error: &CommitError) {
        self.appender.clear_cache();
        let kept = match FailureScope::from_error(error) {
            FailureScope::RolledBack => self.connection.take(),
            // If only the sync failed, a complete transaction is at the end of the WAL. It is
            // invisible as long as the WAL index exists, but a restart would find it. Closing the
            // last connection drops that index, so keep the connection and overwrite the tail.
            FailureScope::Disk => self.connection.take().and_then(|mut connection| {
                schema::overwrite_wal_tail(&mut connection)
                    .ok()
                    .map(|()| connection)
            }),
            FailureScope::Connection => None,
        };
        self.connection = kept.filter(Connection::is_autocommit);
    }

    fn checkpoint_and_close(mut self, closed_at: Option<Timestamp>) -> Result<(), StoreError> {
        let Some(at) = closed_at else { return Ok(()) };
        let mut connection = self.take_connection()?;
        self.appender.checkpoint_all(&mut connection, at)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

/// Why a group was not committed.
#[derive(Debug, thiserror::Error)]
enum CommitError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// What an error may have affected.
enum FailureScope {
    /// Nothing: the transaction was rolled back.
    RolledBack,
    /// The disk: part of the transaction may have been written.
    Disk,
    /// The connection, which may never work again.
    Connection,
}

impl FailureScope {
    fn from_error(error: &CommitError) -> Self {
        let CommitError::Sqlite(error) = error else {
            return Self::Connection;
        };
        match error.sqlite_error_code() {
            Some(
                ErrorCode::DiskFull
                | ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::TooBig
                | ErrorCode::ConstraintViolation,
            ) => Self::RolledBack,
            Some(ErrorCode::SystemIoFailure) => Self::Disk,
            // Assume the worst of unknown errors.
            _ => Self::Connection,
        }
    }
}

/// Appends that share one transaction.
#[derive(Default)]
struct AppendGroup {
    appends: Vec<QueuedAppend>,
    records: usize,
    bytes: usize,
}

impl AppendGroup {
    /// Whether an append fits in the group; an empty group has room for any.
    fn has_room_for(&self, append: &AppendRequest) -> bool {
        self.appends.is_empty()
            || (self.records + append.records.len() <= MAX_GROUP_RECORDS
                && self.bytes + record_bytes(append) <= MAX_GROUP_BYTES)
    }

    fn push(&mut self, queued: QueuedAppend) {
        self.records += queued.append.records.len();
        self.bytes += record_bytes(&queued.append);
        self.appends.push(queued);
    }
}

fn record_bytes(append: &AppendRequest) -> usize {
    let size = |record: &LogRecord| record.meta.len() + record.body.len();
    append.records.iter().map(size).sum()
}
