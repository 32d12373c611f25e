//! Tests of snapshots and indexes: what is found again, and that a forged snapshot is not.

use pvp_protocol::MessageId;
use pvp_protocol::payload::{OutputStream, ToolOutput};
use pvp_session::{
    IndexChange, OutputPosition, OutputStreams, ProposalOutcome, ProposalRecord, ProposalSeqs,
};
use rusqlite::Connection;

use super::super::super::memory::MemoryStore;
use super::super::super::{LogSnapshot, OutputStart};
use super::*;

fn message_id(name: &str) -> MessageId {
    MessageId::parse(name).unwrap()
}

fn closed(number: u64) -> ProposalRecord {
    ProposalRecord {
        id: message_id(&format!("p{number}")),
        gate: number
            .is_multiple_of(2)
            .then(|| message_id(&format!("g{number}"))),
        seqs: ProposalSeqs {
            proposed: number,
            ..ProposalSeqs::default()
        },
        steps: Default::default(),
        closed: Some((ProposalOutcome::Finished, number + 1)),
        output: OutputPosition::default(),
    }
}

/// Writes the same to a store in memory and to one on the disk.
async fn both_stores() -> (tempfile::TempDir, [Arc<dyn Store>; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(dir.path()).await.unwrap();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(sqlite), Arc::new(MemoryStore::default())];
    (dir, stores)
}

#[tokio::test]
async fn closed_proposals_are_found_by_id_by_gate_and_by_age() {
    let (_dir, stores) = both_stores().await;
    for store in stores {
        let mut owl = TestLog::new("owl");
        owl.grow_with(store.as_ref(), 3, |append| {
            append.index_changes = (1..=5).map(closed).map(IndexChange::Closed).collect();
        })
        .await;
        let found = async |name: &str| {
            let name = message_id(name);
            let found = store.find_closed_proposal(&owl.session, &name).await;
            found.unwrap()
        };
        assert_eq!(found("p3").await, Some(closed(3)));
        assert_eq!(found("g4").await, Some(closed(4)));
        assert_eq!(found("g3").await, None);
        let before = async |before, limit| {
            let records = store.closed_proposals(&owl.session, before, limit).await;
            let seqs = records.unwrap().into_iter().map(|it| it.seqs.proposed);
            seqs.collect::<Vec<_>>()
        };
        assert_eq!(before(u64::MAX, 2).await, [5, 4]);
        assert_eq!(before(4, 9).await, [3, 2, 1]);
        let nobody = SessionId::parse("nobody").unwrap();
        let none = store.closed_proposals(&nobody, 9, 9).await.unwrap();
        assert_eq!(none, []);
    }
}

#[tokio::test]
async fn closed_proposals_are_found_by_the_end_of_their_id_in_one_session_or_all() {
    let (_dir, stores) = both_stores().await;
    for store in stores {
        for name in ["owl", "cat"] {
            let mut log = TestLog::new(name);
            let named = |number: u64, id: &str| ProposalRecord {
                id: message_id(id),
                gate: Some(message_id(&format!("gate-{name}-{number}"))),
                ..closed(number)
            };
            let records = [named(1, "a-4a3f77"), named(2, "b-4a3f77"), named(3, "p_3")];
            log.grow_with(store.as_ref(), 3, |append| {
                append.index_changes = records.map(IndexChange::Closed).into();
            })
            .await;
        }
        let owl = SessionId::parse("owl").unwrap();
        let found = async |session: Option<&SessionId>, text: &str| {
            let found = store.closed_proposals_named(session, text, 9).await;
            let names = found.unwrap().into_iter();
            let mut names: Vec<_> = names
                .map(|(session, it)| format!("{session} {}", it.id))
                .collect();
            names.sort_unstable();
            names
        };
        assert_eq!(
            found(Some(&owl), "4a3f77").await,
            ["owl a-4a3f77", "owl b-4a3f77"]
        );
        assert_eq!(
            found(None, "a-4a3f77").await,
            ["cat a-4a3f77", "owl a-4a3f77"]
        );
        assert_eq!(found(None, "p_3").await, ["cat p_3", "owl p_3"]);
        assert_eq!(found(None, "gate-owl-2").await, ["owl b-4a3f77"]);
        for nothing in ["a3f77", "x-4a3f77", "_3", "p%3", "", "é4a3f77", "4a3f7é"] {
            assert_eq!(
                found(None, nothing).await,
                Vec::<String>::new(),
                "{nothing}"
            );
        }
        let limited = store.closed_proposals_named(None, "4a3f77", 1).await;
        assert!(!limited.unwrap().is_empty());
    }
}

#[tokio::test]
async fn output_is_found_by_line_and_by_byte() {
    let (_dir, stores) = both_stores().await;
    for store in stores {
        let mut end = OutputPosition::default();
        let mut print = |stream, text: &str, seq| {
            let output = ToolOutput {
                tool_proposal: message_id("p1"),
                stream,
                text: text.to_owned(),
                complete: false,
                offset: None,
                extra: Default::default(),
            };
            IndexChange::Output(end.advance(1, seq, &output))
        };
        use OutputStream::{Stderr, Stdout};
        let chunks = vec![
            print(Stdout, "a\nb", 2),
            print(Stderr, "x\ny\n", 3),
            print(Stdout, "b\nc\n", 4),
            print(Stdout, "d", 5),
        ];
        let mut owl = TestLog::new("owl");
        owl.grow_with(store.as_ref(), 5, |append| append.index_changes = chunks)
            .await;
        let slice = async |streams, from| {
            let query = OutputQuery {
                run: 1,
                streams: OutputStreams(streams),
                from,
                until: end,
                limit: ALL,
            };
            let slice = store.output_slice(&owl.session, query).await.unwrap();
            assert_eq!(slice.after, end);
            let seqs = |chunks: &[pvp_session::IndexedChunk]| -> Vec<u64> {
                chunks.iter().map(|chunk| chunk.seq).collect()
            };
            (seqs(&slice.unfinished), seqs(&slice.chunks))
        };
        let line = |line| OutputStart::LineOrByte {
            line: Some(line),
            byte: 0,
        };
        assert_eq!(slice(None, line(0)).await, (vec![], vec![2, 3, 4, 5]));
        assert_eq!(slice(None, line(1)).await, (vec![2], vec![3, 4, 5]));
        assert_eq!(slice(None, line(3)).await, (vec![2], vec![4, 5]));
        assert_eq!(slice(None, line(99)).await, (vec![], vec![5]));
        assert_eq!(slice(Some(Stderr), line(0)).await, (vec![], vec![3]));
        assert_eq!(slice(Some(Stdout), line(1)).await, (vec![2], vec![4, 5]));
        let byte = OutputStart::LineOrByte {
            line: None,
            byte: 8,
        };
        assert_eq!(slice(None, byte).await, (vec![2], vec![4, 5]));
    }
}

fn snapshot(log: &TestLog, body: &'static str) -> Option<LogSnapshot> {
    Some(LogSnapshot {
        head: log.head,
        body: body.into(),
    })
}

#[tokio::test]
async fn the_newest_signed_snapshot_is_found() {
    let (_dir, stores) = both_stores().await;
    for store in stores {
        let mut owl = TestLog::new("owl");
        assert_eq!(store.open_log(&owl.session).await.unwrap(), None);
        owl.grow(store.as_ref(), 3).await;
        let state = store.open_log(&owl.session).await.unwrap().unwrap();
        assert_eq!((state.end.head, state.indexed), (owl.head, true));
        assert_eq!(state.snapshot, None);
        for body in ["one", "two", "three"] {
            owl.grow(store.as_ref(), 2).await;
            let made = snapshot(&owl, body);
            owl.grow_with(store.as_ref(), 0, |append| append.snapshot = made.clone())
                .await;
            owl.grow(store.as_ref(), 1).await;
            let state = store.open_log(&owl.session).await.unwrap().unwrap();
            assert_eq!(state.snapshot, made);
        }
        // A snapshot of an entry that the append does not contain is a bug of the caller.
        let mut append = owl.next_append(1);
        append.snapshot = Some(LogSnapshot {
            head: LogHead::empty(&owl.session),
            body: "x".into(),
        });
        let result = store.append(Arc::new(append)).await;
        assert!(matches!(result, Err(AppendError::BadChain { .. })));
    }
}

#[tokio::test]
async fn a_snapshot_that_was_tampered_with_is_not_used_and_the_one_before_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    let mut made = Vec::new();
    for body in ["one", "two"] {
        owl.grow(&store, 2).await;
        made.push(snapshot(&owl, body));
        let last = made.last().unwrap().clone();
        owl.grow_with(&store, 0, |append| append.snapshot = last)
            .await;
    }
    let connection = Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    let found = async |sql: &str| {
        connection.execute_batch("SAVEPOINT before").unwrap();
        connection.execute_batch(sql).unwrap();
        connection.execute_batch("RELEASE before").unwrap();
        let state = store.open_log(&owl.session).await;
        state.map(|state| state.unwrap().snapshot)
    };
    assert_eq!(found("SELECT 1").await.unwrap(), made[1]);
    let forged = "UPDATE snapshots SET body = 'forged' WHERE seq = 4";
    assert_eq!(found(forged).await.unwrap(), made[0]);
    // The last checkpoint is false then, so the log is not used at all.
    let forged = "UPDATE checkpoints SET snapshot = zeroblob(32) WHERE seq = 4";
    let error = found(forged).await.unwrap_err().to_string();
    assert!(
        error.contains("entry 4: its checkpoint has a false signature"),
        "{error}"
    );
    let forged = "DELETE FROM checkpoints WHERE seq = 4";
    assert_eq!(found(forged).await.unwrap(), made[0]);
    for forged in [
        "UPDATE snapshots SET seq = 3 WHERE seq = 2",
        "UPDATE entries SET hash = zeroblob(32) WHERE seq = 2",
    ] {
        assert_eq!(found(forged).await.unwrap(), None, "{forged}");
    }
}

#[tokio::test]
async fn checkpoints_with_snapshots_verify_in_the_store_and_in_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    let now = |append: &mut AppendRequest| append.checkpoint = CheckpointTiming::Now;
    owl.grow_with(&store, 3, now).await;
    // It replaces the checkpoint at the same entry, which says less.
    let made = snapshot(&owl, "state");
    owl.grow_with(&store, 0, |append| append.snapshot = made)
        .await;
    owl.grow_with(&store, 2, now).await;
    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(report.first_finding(), None);
    assert_eq!(report.sessions[0].checkpoints, 2);
    let mut lines = Vec::new();
    super::super::super::audit::export(dir.path(), None, &mut lines).unwrap();
    let exported = super::super::super::audit::verify_export(&mut &lines[..], &[]).unwrap();
    assert_eq!(exported.sessions, report.sessions);
    let connection = Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    connection
        .execute_batch("UPDATE checkpoints SET snapshot = NULL WHERE seq = 3")
        .unwrap();
    let found = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(found.first_finding().unwrap().seq, 3);
}
