//! Tests with failing disks: refused appends are never visible, and the store recovers.

use std::process::Command;

use rusqlite::Connection;

use super::*;

fn assert_unwritable(result: Result<(), AppendError>) -> String {
    match result {
        Err(AppendError::Unwritable(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Appends to two sessions in one group, which must fail; returns the reason.
async fn fail_together(store: &SqliteStore, logs: [&TestLog; 2], count: usize) -> String {
    let blocked = block_writer(store).await;
    let first = store.append(Arc::new(logs[0].next_append(1)));
    let second = store.append(Arc::new(logs[1].next_append(count)));
    drop(blocked);
    let why = assert_unwritable(first.await);
    assert_eq!(assert_unwritable(second.await), why);
    logs[0].assert_is_in(store).await;
    logs[1].assert_is_in(store).await;
    why
}

async fn two_logs(store: &SqliteStore) -> [TestLog; 2] {
    let mut logs = [TestLog::new("one"), TestLog::new("two")];
    for log in &mut logs {
        log.grow(store, 2).await;
    }
    logs
}

async fn grow_again(dir: &Path, store: &SqliteStore, mut logs: [TestLog; 2]) {
    for log in &mut logs {
        log.grow(store, 3).await;
        log.assert_is_in(store).await;
    }
    assert_eq!(verify_store(dir, &[]).unwrap().first_finding(), None);
}

#[tokio::test]
async fn a_full_disk_refuses_the_whole_group_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let logs = two_logs(&store).await;
    let limit = |pages: u32| {
        move |connection: &Connection| {
            connection
                .pragma_update(None, "max_page_count", pages)
                .unwrap()
        }
    };
    on_writer_connection(&store, limit(1));
    for _ in 0..3 {
        let why = fail_together(&store, [&logs[0], &logs[1]], 500).await;
        assert!(why.contains("full"), "{why}");
    }
    on_writer_connection(&store, limit(1_000_000));
    grow_again(dir.path(), &store, logs).await;
}

#[tokio::test]
async fn a_failed_commit_leaves_nothing_visible() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let logs = two_logs(&store).await;
    // COMMIT itself checks a deferred constraint, after every insert has succeeded.
    on_writer_connection(&store, |connection| {
        connection
            .execute_batch(
                "PRAGMA foreign_keys = ON;
             CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TEMP TABLE child (id REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
             CREATE TEMP TRIGGER spoil AFTER INSERT ON main.entries
             BEGIN INSERT INTO child VALUES (7); END;",
            )
            .unwrap();
    });
    let why = fail_together(&store, [&logs[0], &logs[1]], 3).await;
    assert!(why.contains("FOREIGN KEY"), "{why}");
    on_writer_connection(&store, |connection| {
        connection.execute_batch("DROP TRIGGER spoil").unwrap()
    });
    grow_again(dir.path(), &store, logs).await;
}

#[tokio::test]
async fn appends_wait_for_a_locked_database_and_then_fail() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let logs = two_logs(&store).await;
    on_writer_connection(&store, |connection| {
        connection.busy_timeout(std::time::Duration::ZERO).unwrap()
    });
    let other = Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let why = fail_together(&store, [&logs[0], &logs[1]], 3).await;
    assert!(why.contains("locked"), "{why}");
    other.execute_batch("ROLLBACK").unwrap();
    grow_again(dir.path(), &store, logs).await;
}

#[tokio::test]
async fn a_connection_that_became_read_only_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let logs = two_logs(&store).await;
    on_writer_connection(&store, |connection| {
        connection.pragma_update(None, "query_only", true).unwrap()
    });
    let why = fail_together(&store, [&logs[0], &logs[1]], 3).await;
    assert!(why.contains("readonly"), "{why}");
    grow_again(dir.path(), &store, logs).await;
}

/// Runs itself again with SIGXFSZ ignored, so that a file-size limit makes writes really fail.
#[test]
fn a_failing_disk_is_survived() {
    const NAME: &str = "store::sqlite::tests::failing::a_failing_disk_is_survived";
    if std::env::var_os("PVP_TEST_LIMITED").is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        return runtime.block_on(grow_under_a_limit());
    }
    let child = Command::new("bash")
        .args(["-c", r#"trap '' XFSZ; exec "$0" --exact "$1" --nocapture"#])
        .arg(std::env::current_exe().unwrap())
        .arg(NAME)
        .env("PVP_TEST_LIMITED", "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout).into_owned()
        + &String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{output}");
    assert!(output.contains("1 passed"), "{output}");
}

async fn grow_under_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let logs = two_logs(&store).await;
    // From no free space to a few pages: the writes before the commit fail, or the commit itself.
    for pages in 0..4 {
        let wal = fs::metadata(dir.path().join("pvp.sqlite3-wal"))
            .unwrap()
            .len();
        limit_file_size(&(wal + pages * 4120).to_string());
        let why = fail_together(&store, [&logs[0], &logs[1]], 500).await;
        assert!(why.contains("I/O error"), "{why}");
        limit_file_size("unlimited");
        let report = verify_store(dir.path(), &[]).unwrap();
        assert_eq!(report.first_finding(), None);
    }
    grow_again(dir.path(), &store, logs).await;
}

fn limit_file_size(soft: &str) {
    let limited = Command::new("prlimit")
        .arg(format!("--pid={}", std::process::id()))
        .arg(format!("--fsize={soft}:unlimited"))
        .status()
        .unwrap();
    assert!(limited.success());
}

#[test]
fn overwriting_the_wal_tail_grows_the_wal() {
    let dir = tempfile::tempdir().unwrap();
    let mut connection = schema::open_or_create(dir.path(), schema::MigrationScope::Older).unwrap();
    let wal = dir.path().join("pvp.sqlite3-wal");
    let before = fs::metadata(&wal).unwrap().len();
    schema::overwrite_wal_tail(&mut connection).unwrap();
    assert!(fs::metadata(&wal).unwrap().len() > before);
}
