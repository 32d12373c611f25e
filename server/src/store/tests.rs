//! Tests of the store through its public interface.

use std::collections::BTreeMap;
use std::fs;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::audit::verify_store;
use super::*;

mod failing;
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
                r#"{{"session":"{}","seq":{seq},"text":"word {seq}"}}"#,
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

    /// An append of the next records, and where its result will arrive.
    fn next_append(
        &self,
        count: usize,
    ) -> (AppendRequest, oneshot::Receiver<Result<(), AppendError>>) {
        let (sender, receiver) = oneshot::channel();
        let append = AppendRequest {
            session: self.session.clone(),
            prev: self.head,
            records: self.records(count),
            at: Timestamp::from_millis(1000),
            index: SessionIndex::default(),
            checkpoint: CheckpointTiming::WhenDue,
            on_done: AppendCallback::new(|result| sender.send(result).unwrap()),
        };
        (append, receiver)
    }

    fn advance(&mut self, records: Vec<LogRecord>) {
        self.head = records.last().map_or(self.head, LogRecord::head);
        self.written.extend(records);
    }

    async fn grow(&mut self, store: &Store, count: usize) {
        self.grow_with(store, count, |_| {}).await;
    }

    async fn grow_with(
        &mut self,
        store: &Store,
        count: usize,
        change: impl FnOnce(&mut AppendRequest),
    ) {
        let (mut append, receiver) = self.next_append(count);
        change(&mut append);
        let records = append.records.clone();
        store.append(append).await;
        assert_eq!(receiver.await.unwrap(), Ok(()));
        self.advance(records);
    }

    fn assert_is_in(&self, store: &Store) {
        assert_eq!(store.head(&self.session).unwrap(), Some(self.head));
        assert_eq!(store.read(&self.session, 1, ALL).unwrap(), self.written);
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
async fn block_writer(store: &Store) -> std::sync::mpsc::Sender<()> {
    let (release, released) = std::sync::mpsc::channel();
    on_writer_connection(store, move |_| {
        let _ = released.recv();
    })
    .await;
    release
}

/// Runs a closure on the writer's own connection, after everything queued before it.
async fn on_writer_connection(
    store: &Store,
    with: impl FnOnce(&rusqlite::Connection) + Send + 'static,
) {
    store
        .0
        .writer
        .send(writer::WriterJob::RunOnConnection(Box::new(with)))
        .await;
}

#[tokio::test]
async fn what_is_appended_is_read_back_and_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut owl = TestLog::new("blue-owl");
    assert_eq!(store.head(&owl.session).unwrap(), None);
    assert_eq!(store.read(&owl.session, 1, ALL).unwrap(), []);
    owl.grow(&store, 3).await;
    owl.grow(&store, 1).await;
    owl.assert_is_in(&store);
    let report = verify_store(dir.path(), None).unwrap();
    assert_eq!(report.first_finding(), None);
    assert_eq!(report.key, keys::read_public(dir.path()).unwrap());
    let [session] = &report.sessions[..] else {
        panic!("{report:?}")
    };
    assert_eq!((session.entries, session.head), (4, owl.head.hash));
}

#[tokio::test]
async fn a_read_is_bounded_by_records_and_bytes_but_never_stuck() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 9).await;
    let read = |from, records, bytes| {
        let most = ReadLimit { records, bytes };
        store.read(&owl.session, from, most).unwrap()
    };
    let size = |record: &LogRecord| record.meta.len() + record.body.len();
    let two = size(&owl.written[3]) + size(&owl.written[4]);
    assert_eq!(read(4, 3, usize::MAX), owl.written[3..6]);
    assert_eq!(read(4, 9, two), owl.written[3..5]);
    assert_eq!(read(4, 9, two - 1), owl.written[3..4]);
    assert_eq!(read(4, 0, 0), owl.written[3..4]);
    assert_eq!(read(10, 9, two), []);
    assert_eq!(read(u64::MAX, 9, two), []);
}

#[tokio::test]
async fn a_refused_append_does_not_hurt_the_others_in_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut good: Vec<TestLog> = (0..100).map(|n| TestLog::new(&format!("s{n}"))).collect();
    let blocked = block_writer(&store).await;
    let mut receivers = Vec::new();
    for log in &mut good {
        let (append, receiver) = log.next_append(5);
        log.advance(append.records.clone());
        store.append(append).await;
        receivers.push(receiver);
    }
    let stale = TestLog::new("s7");
    let (append, conflict) = stale.next_append(2);
    store.append(append).await;
    let (mut append, forged) = good[8].next_append(3);
    append.records[1].hash[0] ^= 1;
    store.append(append).await;
    let (mut append, gap) = TestLog::new("gap").next_append(3);
    append.records[1].seq += 1;
    store.append(append).await;
    drop(blocked);
    for receiver in receivers {
        assert_eq!(receiver.await.unwrap(), Ok(()));
    }
    let (expected, found) = (stale.head, good[7].head);
    assert_eq!(
        conflict.await.unwrap(),
        Err(AppendError::Conflict { expected, found })
    );
    let bad_seq = |result| match result {
        Err(AppendError::BadChain { seq, .. }) => Some(seq),
        _ => None,
    };
    assert_eq!(bad_seq(forged.await.unwrap()), Some(7));
    assert_eq!(bad_seq(gap.await.unwrap()), Some(3));
    for log in &good {
        log.assert_is_in(&store);
    }
    assert_eq!(store.count_sessions().unwrap(), 100);
    assert_eq!(
        verify_store(dir.path(), None).unwrap().first_finding(),
        None
    );
}

#[tokio::test]
async fn meta_that_an_export_could_not_carry_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let owl = TestLog::new("owl");
    let (mut append, receiver) = owl.next_append(0);
    append.records = vec![LogRecord::after(&owl.head, "null".into(), "{}".into())];
    store.append(append).await;
    let result = receiver.await.unwrap();
    assert!(
        matches!(result, Err(AppendError::BadChain { seq: 1, .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_closed_store_reopens_with_a_checkpoint_at_every_head() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 30).await;
    let late = store.clone();
    store.close(at(2000)).await.unwrap();
    let (append, receiver) = owl.next_append(1);
    late.append(append).await;
    let closed = AppendError::Unwritable("the store is closed".into());
    assert_eq!(receiver.await.unwrap(), Err(closed));

    let report = verify_store(dir.path(), None).unwrap();
    assert_eq!(report.first_finding(), None);
    assert_eq!(report.sessions[0].checkpoint_seq, 30);
    let store = Store::open(dir.path()).unwrap();
    owl.assert_is_in(&store);
    owl.grow(&store, 2).await;
    owl.assert_is_in(&store);
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut owl = TestLog::new("owl");
    for _ in 0..20 {
        owl.grow(&store, 3).await;
    }
    // What is on the disk while the store is writing is what a kill leaves behind.
    let killed = tempfile::tempdir().unwrap();
    for name in ["pvp.sqlite3", "pvp.sqlite3-wal", "server.key", "server.pub"] {
        fs::copy(dir.path().join(name), killed.path().join(name)).unwrap();
    }
    let store = Store::open(killed.path()).unwrap();
    owl.assert_is_in(&store);
    owl.grow(&store, 1).await;
    let report = verify_store(killed.path(), None).unwrap();
    assert_eq!(report.first_finding(), None);
}

#[tokio::test]
async fn a_directory_has_one_server_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let error = Store::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("in use by another pvp server"), "{error}");
    drop(store);
    Store::open(dir.path()).unwrap();
}

#[tokio::test]
async fn deadlines_come_due_in_order_and_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    assert_eq!(store.next_deadline().unwrap(), None);
    let mut logs: Vec<TestLog> = ["a", "b", "c"].map(TestLog::new).into();
    for (log, due) in logs.iter_mut().zip([30, 10, 20]) {
        log.grow_with(&store, 1, |append| {
            append.index.next_deadline = Some(at(due))
        })
        .await;
    }
    let due = |now, limit| -> Vec<String> {
        let due = store.due_sessions(at(now), limit).unwrap();
        due.iter().map(|id| id.as_str().to_owned()).collect()
    };
    assert_eq!(due(9, 9), [""; 0]);
    assert_eq!(due(20, 9), ["b", "c"]);
    assert_eq!(due(99, 2), ["b", "c"]);
    assert_eq!(store.next_deadline().unwrap(), Some(at(10)));
    logs[1].grow(&store, 0).await;
    assert_eq!(due(99, 9), ["c", "a"]);
    assert_eq!(store.next_deadline().unwrap(), Some(at(20)));
}

#[tokio::test]
async fn a_summary_says_when_and_whether_a_session_ended() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow(&store, 2).await;
    let end = |append: &mut AppendRequest| {
        append.at = at(5000);
        append.index = SessionIndex {
            name: Some("Night shift".to_owned()),
            next_deadline: Some(at(6000)),
            open_gates: 2,
            ended: true,
        };
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
        },
    };
    assert_eq!(store.list_sessions().unwrap(), [summary]);
    assert_eq!(
        store.sessions_with_open_gates().unwrap(),
        [owl.session.clone()]
    );
    let report = verify_store(dir.path(), None).unwrap();
    assert_eq!(report.sessions[0].checkpoint_seq, 3);
}

#[tokio::test]
async fn checkpoints_are_made_when_due_and_when_requested() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mut owl = TestLog::new("owl");
    let checkpoints = || {
        let report = verify_store(dir.path(), None).unwrap();
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

#[tokio::test]
async fn tokens_are_shared_with_a_command_beside_the_running_server() {
    let dir = tempfile::tempdir().unwrap();
    let beside = TokenTable::open(dir.path()).unwrap();
    let store = Store::open(dir.path()).unwrap();
    let token = |id: &str, expires_at| TokenRow {
        id: id.into(),
        hash: [7; 32],
        data: r#"{"role":"viewer"}"#.into(),
        created_at: at(1),
        expires_at,
        revoked_at: None,
    };
    let (ann, bob) = (token("ann", None), token("bob", Some(at(9))));
    beside.insert(&ann).unwrap();
    store.tokens().insert(&bob).unwrap();
    let taken = store.tokens().insert(&ann).unwrap_err().to_string();
    assert_eq!(taken, "a token `ann` exists already");
    assert_eq!(store.tokens().find("ann").unwrap(), Some(ann.clone()));
    assert_eq!(store.tokens().find("eve").unwrap(), None);
    assert!(beside.revoke("ann", at(5)).unwrap());
    assert!(!store.tokens().revoke("ann", at(6)).unwrap());
    assert!(!store.tokens().revoke("eve", at(6)).unwrap());
    let ann = TokenRow {
        revoked_at: Some(at(5)),
        ..ann
    };
    assert_eq!(store.tokens().list().unwrap(), [ann, bob]);
    assert_eq!(store.tokens().count().unwrap(), 2);
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
            let store = Store::open(dir.path()).unwrap();
            let mut logs: BTreeMap<usize, TestLog> = BTreeMap::new();
            let mut receivers = Vec::new();
            for (number, contents) in appends {
                let log = logs.entry(number).or_insert_with(|| TestLog::new(&format!("s{number}")));
                let (mut append, result) = log.next_append(0);
                for (meta, body) in contents {
                    let prev = append.records.last().map_or(log.head, LogRecord::head);
                    append.records.push(LogRecord::after(&prev, meta.into(), body.into()));
                }
                log.advance(append.records.clone());
                store.append(append).await;
                receivers.push(result);
            }
            for result in receivers {
                assert_eq!(result.await.unwrap(), Ok(()));
            }
            for log in logs.values() {
                log.assert_is_in(&store);
            }
            drop(store);
            let store = Store::open(dir.path()).unwrap();
            for log in logs.values() {
                log.assert_is_in(&store);
            }
        });
    }
}
