//! Tests of the store through its public interface.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::super::audit::verify_store;
use super::super::{CheckpointTiming, SessionIndex};
use super::*;

mod deletion;
mod failing;
mod index;
mod rotation;
mod tamper;

/// Stands in for a session task: appends to one log and remembers what it wrote.
struct TestLog {
    session: SessionId,
    head: LogHead,
    written: Vec<LogRecord>,
}

impl TestLog {
    fn new(id: &str) -> Self {
        let session = SessionId::parse(id).unwrap();
        Self {
            head: LogHead::empty(&session),
            session,
            written: Vec::new(),
        }
    }

    fn records(&self, count: usize) -> Vec<LogRecord> {
        let mut head = self.head;
        let mut next = |_| {
            let seq = head.seq + 1;
            let body = format!(
                r#"{{"session":"{}","seq":{seq},"type":"tool.output","text":"word {seq}"}}"#,
                self.session
            );
            let meta = match seq % 2 {
                0 => String::new(),
                _ => format!(r#"{{"by": "ann", "n":{seq}}}"#),
            };
            let record = LogRecord::after(&head, meta.into(), body.into());
            head = record.head();
            record
        };
        (0..count).map(&mut next).collect()
    }

    /// An append of the next records.
    fn next_append(&self, count: usize) -> AppendRequest {
        AppendRequest {
            session: self.session.clone(),
            prev: self.head,
            records: self.records(count),
            at: Timestamp::from_millis(1000),
            index: Some(SessionIndex::default()),
            index_changes: Vec::new(),
            snapshot: None,
            checkpoint: CheckpointTiming::WhenDue,
        }
    }

    fn advance(&mut self, records: Vec<LogRecord>) {
        self.head = records.last().map_or(self.head, LogRecord::head);
        self.written.extend(records);
    }

    async fn grow(&mut self, store: &dyn Store, count: usize) {
        self.grow_with(store, count, |_| {}).await;
    }

    async fn grow_with(
        &mut self,
        store: &dyn Store,
        count: usize,
        change: impl FnOnce(&mut AppendRequest),
    ) {
        let mut append = self.next_append(count);
        change(&mut append);
        let records = append.records.clone();
        assert_eq!(store.append(Arc::new(append)).await, Ok(()));
        self.advance(records);
    }

    async fn assert_is_in(&self, store: &dyn Store) {
        assert_eq!(store.head(&self.session).await.unwrap(), Some(self.head));
        let read = store.read(&self.session, 1, ALL).await.unwrap();
        assert_eq!(read, self.written);
    }
}

const ALL: ReadLimit = ReadLimit {
    records: usize::MAX,
    bytes: usize::MAX,
};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

/// Blocks the writer until the returned sender is dropped, so that the next appends form one group.
async fn block_writer(store: &SqliteStore) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel();
    let (begin, begun) = oneshot::channel();
    on_writer_connection(store, move |_| {
        begin.send(()).unwrap();
        let _ = released.recv();
    });
    begun.await.unwrap();
    release
}

/// Runs a closure on the writer's own connection, after everything queued before it.
fn on_writer_connection(
    store: &SqliteStore,
    with: impl FnOnce(&rusqlite::Connection) + Send + 'static,
) {
    let job = writer::WriterJob::RunOnConnection(Box::new(with));
    store.0.writer.send(job);
}

#[tokio::test]
async fn what_is_appended_is_read_back_and_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("blue-owl");
    assert_eq!(store.head(&owl.session).await.unwrap(), None);
    assert_eq!(store.read(&owl.session, 1, ALL).await.unwrap(), []);
    owl.grow(&store, 3).await;
    owl.grow(&store, 1).await;
    owl.assert_is_in(&store).await;
    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(report.first_finding(), None);
    let own = keys::read_stated(dir.path()).unwrap().current;
    assert_eq!(report.keys.newest().unwrap().range.key, own);
    let [session] = &report.sessions[..] else {
        panic!("{report:?}")
    };
    assert_eq!((session.entries, session.head), (4, owl.head.hash));
}

#[tokio::test]
async fn a_read_is_bounded_by_records_and_bytes_but_never_stuck() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 9).await;
    let read = async |from, records, bytes| {
        let most = ReadLimit { records, bytes };
        store.read(&owl.session, from, most).await.unwrap()
    };
    let size = |record: &LogRecord| record.meta.len() + record.body.len();
    let two = size(&owl.written[3]) + size(&owl.written[4]);
    assert_eq!(read(4, 3, usize::MAX).await, owl.written[3..6]);
    assert_eq!(read(4, 9, two).await, owl.written[3..5]);
    assert_eq!(read(4, 9, two - 1).await, owl.written[3..4]);
    assert_eq!(read(4, 0, 0).await, owl.written[3..4]);
    assert_eq!(read(10, 9, two).await, []);
    assert_eq!(read(u64::MAX, 9, two).await, []);
}

#[tokio::test]
async fn a_refused_append_does_not_hurt_the_others_in_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut good: Vec<TestLog> = (0..100).map(|n| TestLog::new(&format!("s{n}"))).collect();
    let blocked = block_writer(&store).await;
    let mut results = Vec::new();
    for log in &mut good {
        let append = log.next_append(5);
        log.advance(append.records.clone());
        results.push(store.append(Arc::new(append)));
    }
    let stale = TestLog::new("s7");
    let conflict = store.append(Arc::new(stale.next_append(2)));
    let mut append = good[8].next_append(3);
    append.records[1].hash[0] ^= 1;
    let forged = store.append(Arc::new(append));
    let mut append = TestLog::new("gap").next_append(3);
    append.records[1].seq += 1;
    let gap = store.append(Arc::new(append));
    drop(blocked);
    for result in results {
        assert_eq!(result.await, Ok(()));
    }
    let (expected, found) = (stale.head, good[7].head);
    assert_eq!(
        conflict.await,
        Err(AppendError::Conflict { expected, found })
    );
    let bad_seq = |result| match result {
        Err(AppendError::BadChain { seq, .. }) => Some(seq),
        _ => None,
    };
    assert_eq!(bad_seq(forged.await), Some(7));
    assert_eq!(bad_seq(gap.await), Some(3));
    for log in &good {
        log.assert_is_in(&store).await;
    }
    assert_eq!(store.count_sessions().await.unwrap(), 100);
    assert_eq!(verify_store(dir.path(), &[]).unwrap().first_finding(), None);
}

#[tokio::test]
async fn meta_that_an_export_could_not_carry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let owl = TestLog::new("owl");
    let mut append = owl.next_append(0);
    append.records = vec![LogRecord::after(&owl.head, "null".into(), "{}".into())];
    let result = store.append(Arc::new(append)).await;
    assert!(
        matches!(result, Err(AppendError::BadChain { seq: 1, .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_closed_store_reopens_with_a_checkpoint_at_every_head() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 30).await;
    let late = store.clone();
    store.close(at(2000)).await.unwrap();
    let late = late.append(Arc::new(owl.next_append(1))).await;
    let closed = AppendError::Unwritable("the store is closed".into());
    assert_eq!(late, Err(closed));

    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(report.first_finding(), None);
    assert_eq!(report.sessions[0].checkpoint_seq, 30);
    let store = SqliteStore::open(dir.path()).await.unwrap();
    owl.assert_is_in(&store).await;
    owl.grow(&store, 2).await;
    owl.assert_is_in(&store).await;
}

#[tokio::test]
async fn a_damaged_row_does_not_keep_other_logs_from_their_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    for id in ["first", "second", "third"] {
        TestLog::new(id).grow(&store, 3).await;
    }
    let connection = rusqlite::Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    connection
        .execute_batch("UPDATE sessions SET head_hash = x'00' WHERE id = 'second'")
        .unwrap();
    store.close(at(2000)).await.unwrap();
    let sealed: i64 = connection
        .query_row("SELECT count(*) FROM checkpoints", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sealed, 2);
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    for _ in 0..20 {
        owl.grow(&store, 3).await;
    }
    // What is on the disk while the store is writing is what a kill leaves behind.
    let killed = tempfile::tempdir().unwrap();
    for name in ["pvp.sqlite3", "pvp.sqlite3-wal", "server.key", "server.pub"] {
        fs::copy(dir.path().join(name), killed.path().join(name)).unwrap();
    }
    let store = SqliteStore::open(killed.path()).await.unwrap();
    owl.assert_is_in(&store).await;
    owl.grow(&store, 1).await;
    let report = verify_store(killed.path(), &[]).unwrap();
    assert_eq!(report.first_finding(), None);
}

#[tokio::test]
async fn a_directory_has_one_server_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let error = SqliteStore::open(dir.path())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("in use by another pvp server"), "{error}");
    drop(store);
    SqliteStore::open(dir.path()).await.unwrap();
}

#[test]
fn a_directory_is_free_although_a_program_that_starts_has_the_lock_open() {
    let dir = tempfile::tempdir().unwrap();
    let lock = lock_directory(dir.path()).unwrap();
    let inherited = lock.0.try_clone().unwrap();
    drop(lock);
    lock_directory(dir.path()).unwrap();
    drop(inherited);
}

#[tokio::test]
async fn deadlines_come_due_in_order_and_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    assert_eq!(store.next_deadline().await.unwrap(), None);
    let mut logs: Vec<TestLog> = ["a", "b", "c"].map(TestLog::new).into();
    for (log, due) in logs.iter_mut().zip([30, 10, 20]) {
        log.grow_with(&store, 1, |append| {
            append.index.as_mut().unwrap().next_deadline = Some(at(due))
        })
        .await;
    }
    let due = async |now, limit| -> Vec<String> {
        let due = store.due_sessions(at(now), limit).await.unwrap();
        due.iter().map(|id| id.as_str().to_owned()).collect()
    };
    assert_eq!(due(9, 9).await, [""; 0]);
    assert_eq!(due(20, 9).await, ["b", "c"]);
    assert_eq!(due(99, 2).await, ["b", "c"]);
    assert_eq!(store.next_deadline().await.unwrap(), Some(at(10)));
    logs[1].grow(&store, 0).await;
    assert_eq!(due(99, 9).await, ["c", "a"]);
    assert_eq!(store.next_deadline().await.unwrap(), Some(at(20)));
}

#[tokio::test]
async fn a_summary_says_when_and_whether_a_session_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 2).await;
    let end = |append: &mut AppendRequest| {
        append.at = at(5000);
        append.index = Some(SessionIndex {
            name: Some("Night shift".to_owned()),
            next_deadline: Some(at(6000)),
            open_gates: 2,
            ended: true,
            ..SessionIndex::default()
        });
    };
    owl.grow_with(&store, 1, end).await;
    let summary = SessionSummary {
        session: owl.session.clone(),
        seq: 3,
        created_at: at(1000),
        updated_at: at(5000),
        index: SessionIndex {
            name: Some("Night shift".to_owned()),
            next_deadline: Some(at(6000)),
            open_gates: 2,
            ended: true,
            ..SessionIndex::default()
        },
    };
    let listed = store.list_sessions(SessionFilter::default(), 9).await;
    assert_eq!(listed.unwrap(), [summary]);
    let gated = store.sessions_with_open_gates().await.unwrap();
    assert_eq!(gated, [owl.session.clone()]);
    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(report.sessions[0].checkpoint_seq, 3);
}

#[tokio::test]
async fn checkpoints_are_made_when_due_and_when_requested() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    let checkpoints = || {
        let report = verify_store(dir.path(), &[]).unwrap();
        assert_eq!(report.first_finding(), None);
        (
            report.sessions[0].checkpoints,
            report.sessions[0].checkpoint_seq,
        )
    };
    let now = |append: &mut AppendRequest| append.checkpoint = CheckpointTiming::Now;
    owl.grow_with(&store, 0, now).await;
    assert_eq!(checkpoints(), (0, 0));
    owl.grow(&store, 255).await;
    assert_eq!(checkpoints(), (0, 0));
    owl.grow(&store, 1).await;
    assert_eq!(checkpoints(), (1, 256));
    owl.grow(&store, 3).await;
    owl.grow_with(&store, 0, now).await;
    assert_eq!(checkpoints(), (2, 259));
    owl.grow_with(&store, 0, now).await;
    assert_eq!(checkpoints(), (2, 259));
    owl.grow_with(&store, 1, now).await;
    assert_eq!(checkpoints(), (3, 260));
}

fn stored_token(id: &str) -> TokenRow {
    TokenRow {
        id: id.to_owned(),
        hash: [1; 32],
        data: "{}".to_owned(),
        created_at: at(1),
        expires_at: None,
        revoked_at: None,
        used_at: None,
    }
}

#[tokio::test]
async fn a_join_code_is_exchanged_for_one_token_before_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let code = |id: &str, expires: u64| JoinCodeRow {
        id: id.to_owned(),
        hash: [2; 32],
        data: "{}".to_owned(),
        created_at: at(1),
        expires_at: at(expires),
        ended_at: None,
        token: None,
    };
    for one in [code("used", 9), code("late", 3), code("revoked", 9)] {
        assert!(store.insert_join_code(one, 3, at(0)).await.unwrap());
    }
    assert!(
        !store
            .insert_join_code(code("full", 9), 3, at(0))
            .await
            .unwrap()
    );
    let redeem = async |id: &str, token: &str, when: u64| {
        let token = stored_token(token);
        store.redeem_join_code(id, token, at(when)).await
    };
    assert!(redeem("used", "ann", 2).await.unwrap());
    assert!(!redeem("used", "eve", 2).await.unwrap());
    assert!(!redeem("late", "eve", 3).await.unwrap());
    assert!(store.revoke_join_code("revoked", at(2)).await.unwrap());
    assert!(!redeem("revoked", "eve", 2).await.unwrap());
    assert!(!redeem("unknown", "eve", 2).await.unwrap());
    for ended in ["used", "late", "revoked", "unknown"] {
        assert!(
            !store.revoke_join_code(ended, at(4)).await.unwrap(),
            "{ended}"
        );
    }
    assert_eq!(store.count_tokens().await.unwrap(), 1);
    let used = store.find_join_code("used").await.unwrap().unwrap();
    assert_eq!(
        (used.ended_at, used.token.as_deref()),
        (Some(at(2)), Some("ann"))
    );
    assert_eq!(
        store.outstanding_join_codes(at(2)).await.unwrap(),
        [code("late", 3)]
    );

    // A token that cannot be added leaves the code as it was.
    assert!(
        store
            .insert_join_code(code("again", 9), 3, at(0))
            .await
            .unwrap()
    );
    assert!(redeem("again", "ann", 4).await.is_err());
    assert!(redeem("again", "bob", 4).await.unwrap());
    // What expired long ago is forgotten when another is made.
    assert!(
        store
            .insert_join_code(code("new", 9), 3, at(4))
            .await
            .unwrap()
    );
    assert_eq!(store.find_join_code("late").await.unwrap(), None);
}

#[tokio::test]
async fn the_last_use_of_a_token_never_goes_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    store.insert_token(stored_token("ann")).await.unwrap();
    for (used, expected) in [(5, 5), (3, 5), (8, 8)] {
        let uses = vec![("ann".to_owned(), at(used)), ("gone".to_owned(), at(used))];
        store.record_token_uses(uses).await.unwrap();
        let ann = store.find_token("ann").await.unwrap().unwrap();
        assert_eq!(ann.used_at, Some(at(expected)));
    }
}

#[tokio::test]
async fn tokens_are_shared_with_a_command_beside_the_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let beside = SqliteTokens::open(dir.path()).unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let token = |id: &str, expires_at| TokenRow {
        id: id.into(),
        hash: [7; 32],
        data: r#"{"role":"viewer"}"#.into(),
        created_at: at(1),
        expires_at,
        revoked_at: None,
        used_at: None,
    };
    let (ann, bob) = (token("ann", None), token("bob", Some(at(9))));
    beside.insert(&ann).unwrap();
    store.insert_token(bob.clone()).await.unwrap();
    let taken = store
        .insert_token(ann.clone())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(taken, "a token `ann` exists already");
    assert_eq!(store.find_token("ann").await.unwrap(), Some(ann.clone()));
    assert_eq!(store.find_token("eve").await.unwrap(), None);
    assert!(beside.revoke("ann", at(5)).unwrap());
    assert!(!store.revoke_token("ann", at(6)).await.unwrap());
    assert!(!store.revoke_token("eve", at(6)).await.unwrap());
    let ann = TokenRow {
        revoked_at: Some(at(5)),
        ..ann
    };
    assert_eq!(beside.list().unwrap(), [ann, bob]);
    assert_eq!(store.count_tokens().await.unwrap(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_appends_to_any_sessions_read_back_equal(
        appends in prop::collection::vec((0..4usize, prop::collection::vec((any::<Vec<u8>>(), any::<Vec<u8>>()), 0..5)), 1..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(dir.path()).await.unwrap();
            let mut logs: BTreeMap<usize, TestLog> = BTreeMap::new();
            let mut results = Vec::new();
            for (number, contents) in appends {
                let log = logs.entry(number).or_insert_with(|| TestLog::new(&format!("s{number}")));
                let mut append = log.next_append(0);
                for (meta, body) in contents {
                    let prev = append.records.last().map_or(log.head, LogRecord::head);
                    append.records.push(LogRecord::after(&prev, meta.into(), body.into()));
                }
                log.advance(append.records.clone());
                results.push(store.append(Arc::new(append)));
            }
            for result in results {
                assert_eq!(result.await, Ok(()));
            }
            for log in logs.values() {
                log.assert_is_in(&store).await;
            }
            drop(store);
            let store = SqliteStore::open(dir.path()).await.unwrap();
            for log in logs.values() {
                log.assert_is_in(&store).await;
            }
        });
    }
}
