//! Opens the database file and migrates its schema.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pvp_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior};

use super::super::OpenError;

pub(super) const DATABASE_FILE: &str = "pvp.sqlite3";

/// "PVP1", so that a database of another program is never mistaken for ours.
const APPLICATION_ID: i64 = 0x5056_5031;

/// How many KiB of pages a connection that only reads keeps; reads seldom come back to a page.
const READ_CACHE_KIB: i64 = 512;

/// How long to wait while `pvp invite` or a backup has the file locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Migration `n` takes version `n` to `n + 1`. Never edit an existing one; add another below.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE sessions (
        no INTEGER PRIMARY KEY,
        id TEXT UNIQUE NOT NULL,
        head_seq INTEGER NOT NULL,
        head_hash BLOB NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        ended INTEGER NOT NULL,
        next_deadline INTEGER,
        sealed_seq INTEGER NOT NULL
    );
    CREATE INDEX sessions_by_deadline ON sessions (next_deadline) WHERE next_deadline IS NOT NULL;
    CREATE TABLE entries (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        meta BLOB NOT NULL,
        body BLOB NOT NULL,
        hash BLOB NOT NULL
    );
    CREATE UNIQUE INDEX entries_by_seq ON entries (session, seq);
    CREATE TABLE checkpoints (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL,
        at INTEGER NOT NULL,
        key BLOB NOT NULL,
        signature BLOB NOT NULL
    );
    CREATE UNIQUE INDEX checkpoints_by_seq ON checkpoints (session, seq);
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY NOT NULL,
        hash BLOB NOT NULL,
        data TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    );
",
    "
    ALTER TABLE sessions ADD COLUMN name TEXT;
    -- Sessions from before may have some; looking tells.
    ALTER TABLE sessions ADD COLUMN open_gates INTEGER NOT NULL DEFAULT 1;
    UPDATE sessions SET open_gates = 0 WHERE ended;
    CREATE INDEX sessions_by_gates ON sessions (no) WHERE open_gates > 0;
",
    "
    -- Sessions from before are indexed when they are loaded.
    ALTER TABLE sessions ADD COLUMN indexed INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE checkpoints ADD COLUMN snapshot BLOB;
    CREATE TABLE snapshots (
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL,
        body BLOB NOT NULL
    );
    CREATE UNIQUE INDEX snapshots_by_seq ON snapshots (session, seq);
    CREATE TABLE proposals (
        session INTEGER NOT NULL,
        proposed INTEGER NOT NULL,
        id TEXT NOT NULL,
        gate TEXT,
        data TEXT NOT NULL,
        PRIMARY KEY (session, proposed)
    ) WITHOUT ROWID;
    CREATE INDEX proposals_by_id ON proposals (session, id);
    CREATE INDEX proposals_by_gate ON proposals (session, gate) WHERE gate IS NOT NULL;
    CREATE TABLE outputs (
        session INTEGER NOT NULL,
        run INTEGER NOT NULL,
        stream TEXT NOT NULL,
        chunk INTEGER NOT NULL,
        data TEXT NOT NULL,
        PRIMARY KEY (session, run, stream, chunk)
    ) WITHOUT ROWID;
",
    "
    -- Of sessions from before it is not known who made them.
    ALTER TABLE sessions ADD COLUMN made_by TEXT;
    ALTER TABLE sessions ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sessions ADD COLUMN context_bytes INTEGER NOT NULL DEFAULT 0;
    UPDATE sessions SET log_bytes =
        (SELECT coalesce(sum(length(body)), 0) FROM entries WHERE session = sessions.no);
    CREATE INDEX sessions_by_maker ON sessions (made_by) WHERE made_by IS NOT NULL;
    CREATE INDEX sessions_by_end ON sessions (updated_at) WHERE ended;
    -- The number is that of the session's row, which is never used again.
    CREATE TABLE tombstones (
        no INTEGER PRIMARY KEY,
        session TEXT UNIQUE NOT NULL,
        entries INTEGER NOT NULL,
        head BLOB NOT NULL,
        at INTEGER NOT NULL,
        deleted_by TEXT NOT NULL,
        signed_at INTEGER NOT NULL,
        key BLOB NOT NULL,
        signature BLOB NOT NULL,
        purged INTEGER NOT NULL
    );
    CREATE INDEX tombstones_to_purge ON tombstones (no) WHERE NOT purged;
",
    "
    ALTER TABLE tokens ADD COLUMN used_at INTEGER;
    CREATE TABLE join_codes (
        id TEXT PRIMARY KEY NOT NULL,
        hash BLOB NOT NULL,
        data TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        ended_at INTEGER,
        token TEXT
    );
  ",
    "
    -- People refer to a proposal by the last six characters of its id.
    CREATE INDEX proposals_by_short_id ON proposals (substr(id, -6));
    CREATE INDEX proposals_by_short_gate ON proposals (substr(gate, -6)) WHERE gate IS NOT NULL;
",
    "
    -- Long texts that messages of a session refer to by their SHA-256.
    CREATE TABLE contents (
        session INTEGER NOT NULL,
        hash BLOB NOT NULL,
        bytes INTEGER NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (session, hash)
    );
",
    "
    CREATE TABLE channels (
        id TEXT PRIMARY KEY NOT NULL,
        participant TEXT NOT NULL,
        token TEXT NOT NULL,
        push INTEGER NOT NULL,
        data TEXT NOT NULL,
        status TEXT NOT NULL,
        created_at INTEGER NOT NULL
    );
    CREATE INDEX channels_by_participant ON channels (participant, push);
    CREATE TABLE notification_preferences (
        participant TEXT PRIMARY KEY NOT NULL,
        data TEXT NOT NULL
    );
    CREATE TABLE notices (
        key BLOB PRIMARY KEY NOT NULL,
        session TEXT NOT NULL,
        gate TEXT NOT NULL,
        channel TEXT NOT NULL,
        at INTEGER NOT NULL
    );
    CREATE INDEX notices_by_gate ON notices (session, gate);
    CREATE TABLE vote_links (
        id TEXT PRIMARY KEY NOT NULL,
        hash BLOB NOT NULL,
        session TEXT NOT NULL,
        gate TEXT NOT NULL,
        data TEXT NOT NULL,
        created_at INTEGER NOT NULL
    );
    CREATE INDEX vote_links_by_gate ON vote_links (session, gate);
",
];

/// The schema version that this program writes.
const CURRENT_VERSION: i64 = MIGRATIONS.len() as i64;

/// Which databases may be migrated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MigrationScope {
    /// Any older one, because no other process is using the directory.
    Older,
    /// Only an empty one, because a server of an older version may be running.
    Empty,
}

/// Opens the database for writing, and creates it if there is none.
pub(super) fn open_or_create(dir: &Path, scope: MigrationScope) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE_FILE);
    // SQLite gives its side files the mode of the database, which must be private because it holds
    // what people typed.
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&path)
        .map_err(|source| OpenError::DataDirectory {
            path: path.clone(),
            source,
        })?;
    let mut connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let version = read_version(&connection, &path)?;
    if scope == MigrationScope::Empty && version != 0 && version != CURRENT_VERSION {
        return Err(OpenError::Older { path });
    }
    set_write_pragmas(&connection).map_err(map_sqlite_error(&path))?;
    migrate(&mut connection).map_err(map_sqlite_error(&path))?;
    Ok(connection)
}

/// Opens an existing database for writing.
pub(super) fn open_existing(dir: &Path) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE_FILE);
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    check_version(&connection, &path)?;
    set_write_pragmas(&connection).map_err(map_sqlite_error(&path))?;
    Ok(connection)
}

/// Opens an existing database for reading.
pub(super) fn open_read_only(dir: &Path) -> Result<Connection, OpenError> {
    let path = dir.join(DATABASE_FILE);
    let connection = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    check_version(&connection, &path)?;
    connection
        .pragma_update(None, "cache_size", -READ_CACHE_KIB)
        .map_err(map_sqlite_error(&path))?;
    Ok(connection)
}

/// Writes one page, to overwrite whatever a failed commit left at the end of the WAL.
pub(super) fn overwrite_wal_tail(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "user_version", CURRENT_VERSION)?;
    transaction.commit()
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(map_sqlite_error(path))?;
    connection
        .busy_timeout(BUSY_TIMEOUT)
        .map_err(map_sqlite_error(path))?;
    Ok(connection)
}

fn set_write_pragmas(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // What is deleted is overwritten, not only forgotten.
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.pragma_update(None, "wal_autocheckpoint", 1000)
}

fn check_version(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    match read_version(connection, path)? {
        CURRENT_VERSION => Ok(()),
        _ => Err(OpenError::Older {
            path: PathBuf::from(path),
        }),
    }
}

/// The version of a database, 0 if it is empty; the database of another program is refused.
fn read_version(connection: &Connection, path: &Path) -> Result<i64, OpenError> {
    let query = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let application = query("PRAGMA application_id").map_err(map_sqlite_error(path))?;
    let version = query("PRAGMA user_version").map_err(map_sqlite_error(path))?;
    let tables = query("SELECT count(*) FROM sqlite_schema").map_err(map_sqlite_error(path))?;
    let path = PathBuf::from(path);
    match application {
        0 if version == 0 && tables == 0 => Ok(0),
        APPLICATION_ID if version > CURRENT_VERSION => Err(OpenError::Newer {
            path,
            found: version,
            known: CURRENT_VERSION,
        }),
        APPLICATION_ID if version >= 0 => Ok(version),
        _ => Err(OpenError::NotAStore { path }),
    }
}

fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    loop {
        let step = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Read inside the transaction, because two programs may be creating the same database.
        let version: i64 = step.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let migration = usize::try_from(version)
            .ok()
            .and_then(|at| MIGRATIONS.get(at));
        let Some(migration) = migration else {
            return Ok(());
        };
        step.execute_batch(migration)?;
        step.pragma_update(None, "application_id", APPLICATION_ID)?;
        step.pragma_update(None, "user_version", version + 1)?;
        step.commit()?;
    }
}

pub(super) fn map_sqlite_error(path: &Path) -> impl Fn(rusqlite::Error) -> OpenError {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotAStore {
            path: PathBuf::from(path),
        },
        _ => OpenError::Database {
            path: PathBuf::from(path),
            source: Box::new(error),
        },
    }
}

/// A sequence number as its column. SQLite integers are signed, but no log outgrows their range.
pub(super) fn seq_column(seq: u64) -> rusqlite::Result<i64> {
    i64::try_from(seq).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// A time as its column; the year 9999 fits.
pub(super) fn millis_column(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

pub(super) fn get_seq(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

pub(super) fn get_millis(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    get_seq(row, column).map(Timestamp::from_millis)
}

pub(super) fn get_optional_millis(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<Option<Timestamp>> {
    let number: Option<i64> = row.get(column)?;
    number.map(|_| get_millis(row, column)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(dir: &Path) -> String {
        open_or_create(dir, MigrationScope::Older)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_database_from_a_later_version_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_or_create(dir.path(), MigrationScope::Older).unwrap();
        connection
            .pragma_update(None, "user_version", CURRENT_VERSION + 1)
            .unwrap();
        drop(connection);
        let error = refusal(dir.path());
        assert!(error.contains("upgrade this program"), "{error}");
        let error = open_read_only(dir.path()).unwrap_err().to_string();
        assert!(error.contains("upgrade this program"), "{error}");
    }

    #[test]
    fn a_database_of_another_program_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE_FILE);
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE cats (name)").unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        let error = refusal(dir.path());
        assert!(error.contains("not a PVP store"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE_FILE);
        std::fs::write(&path, "dear diary, ".repeat(400)).unwrap();
        let error = refusal(dir.path());
        assert!(error.contains("not a PVP store"), "{error}");
        assert!(std::fs::read(&path).unwrap().starts_with(b"dear diary"));
    }

    #[test]
    fn migrating_twice_changes_nothing_and_reopening_needs_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(open_existing(dir.path()).is_err());
        assert!(!dir.path().join(DATABASE_FILE).exists());
        let count = |connection: &Connection| -> i64 {
            connection
                .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
                .unwrap()
        };
        let first = count(&open_or_create(dir.path(), MigrationScope::Older).unwrap());
        assert_eq!(
            count(&open_or_create(dir.path(), MigrationScope::Empty).unwrap()),
            first
        );
        assert_eq!(count(&open_existing(dir.path()).unwrap()), first);
    }

    #[test]
    fn every_writing_connection_waits_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        drop(open_or_create(dir.path(), MigrationScope::Older).unwrap());
        let connection = open_existing(dir.path()).unwrap();
        let query = |pragma| -> String {
            connection
                .query_row(pragma, [], |row| {
                    row.get_ref(0)?
                        .as_str()
                        .map(str::to_owned)
                        .or_else(|_| row.get::<_, i64>(0).map(|n| n.to_string()))
                })
                .unwrap()
        };
        assert_eq!(query("PRAGMA journal_mode"), "wal");
        assert_eq!(query("PRAGMA synchronous"), "2");
    }

    #[test]
    fn due_sessions_and_open_gates_are_found_through_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open_or_create(dir.path(), MigrationScope::Older).unwrap();
        for (query, index) in [
            (
                super::super::read_pool::DUE_SESSIONS_SQL,
                "sessions_by_deadline",
            ),
            (
                super::super::read_pool::NEXT_DEADLINE_SQL,
                "sessions_by_deadline",
            ),
            (super::super::read_pool::OPEN_GATES_SQL, "sessions_by_gates"),
            (super::super::read_pool::MADE_BY_SQL, "sessions_by_maker"),
            (super::super::read_pool::ENDED_SQL, "sessions_by_end"),
            (
                super::super::index_rows::NAMED_PROPOSALS_SQL,
                "proposals_by_short_id",
            ),
            (
                super::super::index_rows::NAMED_GATES_SQL,
                "proposals_by_short_gate",
            ),
        ] {
            let explained = format!("EXPLAIN QUERY PLAN {query}");
            let mut statement = connection.prepare(&explained).unwrap();
            let values = vec![1; statement.parameter_count()];
            let plan: String = statement
                .query_row(rusqlite::params_from_iter(values), |row| row.get(3))
                .unwrap();
            assert!(plan.contains(index), "{plan}");
        }
    }
}
