//! Tests that sessions are deleted whole, whatever interrupts it, and that nothing else changes.

use rusqlite::Connection;

use super::super::super::audit::TombstoneFault;
use super::super::deletion::{bury, purge_some};
use super::*;

fn database(dir: &Path) -> Connection {
    Connection::open(dir.join("pvp.sqlite3")).unwrap()
}

fn deletion_of(log: &TestLog) -> SessionDeletion {
    SessionDeletion {
        session: log.session.clone(),
        head: log.head,
        by: "ann".to_owned(),
        at: at(9000),
    }
}

/// How many rows of every table belong to no session.
fn orphans(dir: &Path) -> i64 {
    let tables = [
        "entries",
        "checkpoints",
        "snapshots",
        "proposals",
        "outputs",
    ];
    let count = |table: &&str| -> i64 {
        let sql =
            format!("SELECT count(*) FROM {table} WHERE session NOT IN (SELECT no FROM sessions)");
        database(dir).query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    tables.iter().map(count).sum()
}

#[tokio::test]
async fn a_deleted_session_is_gone_and_the_others_are_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let (mut owl, mut hen) = (TestLog::new("owl"), TestLog::new("hen"));
    hen.grow(&store, 300).await;
    owl.grow(&store, 700).await;
    let stale = SessionDeletion {
        head: LogHead::empty(&owl.session),
        ..deletion_of(&owl)
    };
    let refused = store.delete_session(stale).await;
    assert!(matches!(refused, Err(StoreError::LogChanged(_))));
    owl.assert_is_in(&store).await;

    let tombstone = store.delete_session(deletion_of(&owl)).await.unwrap();
    assert!(tombstone.is_signed());
    assert_eq!((tombstone.entries, tombstone.head), (700, owl.head.hash));
    assert_eq!(store.head(&owl.session).await.unwrap(), None);
    assert_eq!(store.count_sessions().await.unwrap(), 1);
    let found = store.find_tombstone(&owl.session).await.unwrap();
    assert_eq!(found, Some(tombstone.clone()));
    assert_eq!(orphans(dir.path()), 0);
    hen.assert_is_in(&store).await;

    // The id cannot be used again, neither from its start nor where it ended.
    let start = Arc::new(TestLog::new("owl").next_append(1));
    let end = Arc::new(owl.next_append(1));
    for append in [start, end] {
        assert!(store.append(append).await.is_err());
    }
    let again = store.delete_session(deletion_of(&owl)).await;
    assert!(matches!(again, Err(StoreError::LogChanged(_))));

    let report = verify_store(dir.path(), &[]).unwrap();
    assert!(report.is_intact(), "{report:?}");
    assert_eq!(report.tombstones[0].tombstone, tombstone);
}

#[tokio::test]
async fn a_session_made_after_a_crash_takes_nothing_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut owl = TestLog::new("owl");
    {
        let store = SqliteStore::open(dir.path()).await.unwrap();
        owl.grow(&store, 300).await;
        store.close(at(2000)).await.unwrap();
    }
    // The server is killed after the tombstone, and after the first rows.
    let key = keys::load_or_create(&keys::KeyFiles::new(dir.path(), None))
        .unwrap()
        .signing;
    let mut connection = database(dir.path());
    let buried = bury(&mut connection, &key, pvp_clock::now(), &deletion_of(&owl)).unwrap();
    assert!(buried.is_ok());
    purge_some(&mut connection).unwrap();
    drop(connection);
    assert!(orphans(dir.path()) > 0);
    let report = verify_store(dir.path(), &[]).unwrap();
    assert!(report.is_intact(), "{report:?}");

    let store = SqliteStore::open(dir.path()).await.unwrap();
    assert_eq!(orphans(dir.path()), 0);
    let mut hen = TestLog::new("hen");
    hen.grow(&store, 3).await;
    hen.assert_is_in(&store).await;
    let row: i64 = database(dir.path())
        .query_row("SELECT no FROM sessions", [], |row| row.get(0))
        .unwrap();
    assert_eq!(row, 2);
}

#[tokio::test]
async fn an_archive_is_whole_and_private_or_not_there() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 300).await;
    let archives = dir.path().join("archives");
    let file = archives.join("owl.jsonl");
    for _ in 0..2 {
        let head = store.archive_session(owl.session.clone(), file.clone());
        assert_eq!(head.await.unwrap(), owl.head);
    }
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    database(dir.path())
        .execute("UPDATE entries SET body = '{}' WHERE seq = 7", [])
        .unwrap();
    let before = fs::read(&file).unwrap();
    let damaged = store.archive_session(owl.session.clone(), file.clone());
    let error = damaged.await.unwrap_err().to_string();
    assert!(error.contains("entry 7"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), before);
    let names = fs::read_dir(&archives).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".gitignore", "owl.jsonl"]);
}

#[tokio::test]
async fn a_tombstone_beside_its_session_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let (mut owl, mut hen) = (TestLog::new("owl"), TestLog::new("hen"));
    owl.grow(&store, 3).await;
    hen.grow(&store, 3).await;
    store.delete_session(deletion_of(&owl)).await.unwrap();
    database(dir.path())
        .execute("UPDATE tombstones SET session = 'hen'", [])
        .unwrap();
    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(
        report.tombstones[0].fault,
        Some(TombstoneFault::SessionExists)
    );
}
