//! The thread that writes all appends, committing those that wait together as a group.

use std::fs::File;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ed25519_dalek::SigningKey;
use pvp_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::mpsc;

use super::log_appender::{AppendResults, LogAppender};
use super::{AppendError, AppendRequest, OpenError, StoreError, schema};

/// Appends that may wait for the writer; when the queue is full, the sessions wait.
const QUEUE_CAPACITY: usize = 1024;

/// The most records in a group. Larger groups measured no faster, and every append in a group waits
/// for all of it.
const MAX_GROUP_RECORDS: usize = 1024;

/// The most bytes in a group, so that large records do not grow the WAL too much.
const MAX_GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The handle of the writer thread.
pub(super) struct WriterHandle {
    jobs: Option<mpsc::Sender<WriterJob>>,
    thread: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
}

pub(super) enum WriterJob {
    Append(AppendRequest),
    Close(Timestamp),
    /// Lets a test break the writer's own connection.
    #[cfg(test)]
    RunOnConnection(Box<dyn FnOnce(&Connection) + Send>),
}

impl WriterHandle {
    pub(super) fn start(
        dir: &Path,
        connection: Connection,
        key: SigningKey,
        lock: File,
    ) -> Result<Self, OpenError> {
        let (jobs, receiver) = mpsc::channel(QUEUE_CAPACITY);
        let writer_thread = WriterThread {
            jobs: receiver,
            dir: dir.to_owned(),
            connection: Some(connection),
            appender: LogAppender::new(key),
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

    pub(super) async fn append(&self, append: AppendRequest) {
        self.send(WriterJob::Append(append)).await;
    }

    pub(super) async fn close(&self, at: Timestamp) -> Result<(), StoreError> {
        self.send(WriterJob::Close(at)).await;
        let Some(thread) = self.take_thread() else {
            return Ok(());
        };
        match tokio::task::spawn_blocking(move || thread.join()).await {
            Ok(Ok(closed)) => closed,
            Ok(Err(_)) | Err(_) => Err(StoreError::Damaged("the writer panicked".into())),
        }
    }

    pub(super) async fn send(&self, job: WriterJob) {
        if let Some(jobs) = &self.jobs {
            // A closed queue returns the job; dropping an append reports a failure to its caller.
            let _ = jobs.send(job).await;
        }
    }

    fn take_thread(&self) -> Option<JoinHandle<Result<(), StoreError>>> {
        self.thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Drop for WriterHandle {
    /// Waits until the queue is written, so that the directory is unlocked afterwards.
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.take_thread() else {
            return;
        };
        // An `AppendCallback` may have held the last store; the writer cannot wait for itself.
        if thread.thread().id() == thread::current().id() {
            return;
        }
        if !matches!(thread.join(), Ok(Ok(()))) {
            tracing::error!("the store's writer did not end well");
        }
    }
}

/// The state of the writer thread.
struct WriterThread {
    jobs: mpsc::Receiver<WriterJob>,
    dir: PathBuf,
    /// `None` after an error that the connection may not have survived.
    connection: Option<Connection>,
    appender: LogAppender,
    /// Released last, when the database is closed.
    _lock: File,
}

impl WriterThread {
    fn run(mut self) -> Result<(), StoreError> {
        let mut closed_at = None;
        let mut jobs = Vec::new();
        while self.jobs.blocking_recv_many(&mut jobs, QUEUE_CAPACITY) > 0 {
            let mut group = AppendGroup::default();
            for job in jobs.drain(..) {
                match job {
                    WriterJob::Append(append) => {
                        if !group.has_room_for(&append) {
                            self.write_group(mem::take(&mut group));
                        }
                        group.push(append);
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
        for (append, result) in group.appends.into_iter().zip(results) {
            append.on_done.call(result);
        }
    }

    fn commit(&mut self, group: &[AppendRequest]) -> Result<AppendResults, StoreError> {
        let mut connection = self.take_connection()?;
        let written = self.appender.commit_group(&mut connection, group);
        self.connection = Some(connection);
        Ok(written?)
    }

    fn take_connection(&mut self) -> Result<Connection, StoreError> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Ok(schema::open_existing(&self.dir)?),
        }
    }

    /// Recovers from a failed commit: keeps the connection only if it can be used again.
    fn recover(&mut self, error: &StoreError) {
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
    fn from_error(error: &StoreError) -> Self {
        let StoreError::Database(error) = error else {
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
    appends: Vec<AppendRequest>,
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

    fn push(&mut self, append: AppendRequest) {
        self.records += append.records.len();
        self.bytes += record_bytes(&append);
        self.appends.push(append);
    }
}

fn record_bytes(append: &AppendRequest) -> usize {
    let size = |record: &super::LogRecord| record.meta.len() + record.body.len();
    append.records.iter().map(size).sum()
}
