//! The one thread that appends: it takes whatever is waiting and commits it together.

use std::fs::File;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use ed25519_dalek::SigningKey;
use pvp_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::mpsc;

use super::group::{Logs, Verdicts};
use super::{Append, AppendError, OpenError, StoreError, schema};

/// Appends that may wait for the writer; beyond it the sessions wait.
const QUEUE: usize = 1024;

/// Larger groups were measured to be no faster, and make everyone in them wait.
const GROUP_RECORDS: usize = 1024;

/// Keeps the WAL of one transaction small when records are large.
const GROUP_BYTES: usize = 8 * 1024 * 1024;

/// The handle of the writing thread.
pub(super) struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Mutex<Option<JoinHandle<Result<(), StoreError>>>>,
}

pub(super) enum Job {
    Append(Append),
    Close(Timestamp),
    /// Lets a test spoil the writer's own connection.
    #[cfg(test)]
    Spoil(Box<dyn FnOnce(&Connection) + Send>),
}

impl Writer {
    pub(super) fn start(
        dir: &Path,
        connection: Connection,
        key: SigningKey,
        lock: File,
    ) -> Result<Self, OpenError> {
        let (jobs, receiver) = mpsc::channel(QUEUE);
        let desk = Desk {
            jobs: receiver,
            dir: dir.to_owned(),
            connection: Some(connection),
            logs: Logs::new(key),
            _lock: lock,
        };
        let thread = thread::Builder::new()
            .name("pvp-store".into())
            .spawn(move || desk.run())
            .map_err(|source| OpenError::Directory {
                path: dir.to_owned(),
                source,
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Mutex::new(Some(thread)),
        })
    }

    pub(super) async fn append(&self, append: Append) {
        self.send(Job::Append(append)).await;
    }

    pub(super) async fn close(&self, at: Timestamp) -> Result<(), StoreError> {
        self.send(Job::Close(at)).await;
        let Some(thread) = self.take_thread() else {
            return Ok(());
        };
        match tokio::task::spawn_blocking(move || thread.join()).await {
            Ok(Ok(closed)) => closed,
            Ok(Err(_)) | Err(_) => Err(StoreError::Damaged("the writer panicked".into())),
        }
    }

    pub(super) async fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // A closed queue gives the job back, and an append that is dropped tells its caller.
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

impl Drop for Writer {
    /// Waits for what is queued, so that the directory is free again afterwards.
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.take_thread() else {
            return;
        };
        // A `Done` may have held the last store; the writer cannot wait for itself.
        if thread.thread().id() == thread::current().id() {
            return;
        }
        if !matches!(thread.join(), Ok(Ok(()))) {
            tracing::error!("the store's writer did not end well");
        }
    }
}

/// What the writing thread has in front of it.
struct Desk {
    jobs: mpsc::Receiver<Job>,
    dir: PathBuf,
    /// `None` after an error that a connection may not survive.
    connection: Option<Connection>,
    logs: Logs,
    /// Released last, when the database is closed.
    _lock: File,
}

impl Desk {
    fn run(mut self) -> Result<(), StoreError> {
        let mut closed_at = None;
        let mut jobs = Vec::new();
        while self.jobs.blocking_recv_many(&mut jobs, QUEUE) > 0 {
            let mut group = Group::default();
            for job in jobs.drain(..) {
                match job {
                    Job::Append(append) => {
                        if !group.has_room_for(&append) {
                            self.write(mem::take(&mut group));
                        }
                        group.push(append);
                    }
                    Job::Close(at) => {
                        closed_at = Some(at);
                        self.jobs.close();
                    }
                    #[cfg(test)]
                    Job::Spoil(spoil) => {
                        self.write(mem::take(&mut group));
                        let connection = self.take_connection().unwrap();
                        spoil(&connection);
                        self.connection = Some(connection);
                    }
                }
            }
            self.write(group);
        }
        self.finish(closed_at)
    }

    fn write(&mut self, group: Group) {
        if group.appends.is_empty() {
            return;
        }
        let verdicts = self.commit(&group.appends).unwrap_or_else(|error| {
            let why = error.to_string();
            tracing::error!(error = why, "the log cannot be written");
            self.recover(&error);
            vec![Err(AppendError::Unwritable(why)); group.appends.len()]
        });
        for (append, verdict) in group.appends.into_iter().zip(verdicts) {
            append.done.tell(verdict);
        }
    }

    fn commit(&mut self, group: &[Append]) -> Result<Verdicts, StoreError> {
        let mut connection = self.take_connection()?;
        let written = self.logs.write(&mut connection, group);
        self.connection = Some(connection);
        Ok(written?)
    }

    fn take_connection(&mut self) -> Result<Connection, StoreError> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => Ok(schema::reopen(&self.dir)?),
        }
    }

    /// Leaves either a connection that can be used again, or none.
    fn recover(&mut self, error: &StoreError) {
        self.logs.forget();
        let kept = match Harm::of(error) {
            Harm::None => self.connection.take(),
            // When only the sync failed, a whole transaction lies at the end of the WAL, invisible
            // as long as its index lives, but a restart would find it. Closing the last connection
            // drops that index, so the connection is kept and the tail overwritten.
            Harm::Disk => self.connection.take().and_then(|mut connection| {
                schema::fence(&mut connection).ok().map(|()| connection)
            }),
            Harm::Connection => None,
        };
        self.connection = kept.filter(Connection::is_autocommit);
    }

    fn finish(mut self, closed_at: Option<Timestamp>) -> Result<(), StoreError> {
        let Some(at) = closed_at else { return Ok(()) };
        let mut connection = self.take_connection()?;
        self.logs.seal_all(&mut connection, at)?;
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

/// What an error may have done.
enum Harm {
    /// The transaction was rolled back, and that is all.
    None,
    /// Something may have reached the disk.
    Disk,
    /// The connection may never work again.
    Connection,
}

impl Harm {
    fn of(error: &StoreError) -> Self {
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
            ) => Self::None,
            Some(ErrorCode::SystemIoFailure) => Self::Disk,
            // Unknown trouble is taken for the worst.
            _ => Self::Connection,
        }
    }
}

/// Appends that will share one transaction.
#[derive(Default)]
struct Group {
    appends: Vec<Append>,
    records: usize,
    bytes: usize,
}

impl Group {
    /// An empty group has room for anything.
    fn has_room_for(&self, append: &Append) -> bool {
        self.appends.is_empty()
            || (self.records + append.records.len() <= GROUP_RECORDS
                && self.bytes + bytes(append) <= GROUP_BYTES)
    }

    fn push(&mut self, append: Append) {
        self.records += append.records.len();
        self.bytes += bytes(&append);
        self.appends.push(append);
    }
}

fn bytes(append: &Append) -> usize {
    let size = |record: &super::Record| record.meta.len() + record.body.len();
    append.records.iter().map(size).sum()
}
