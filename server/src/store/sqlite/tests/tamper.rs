//! Tests that tampering with logs is detected, in the store and in an export.

use rusqlite::Connection;

use super::super::super::KeyFinding;
use super::super::super::audit::*;
use pvp_protocol::hex;

use super::*;

/// 12 entries under a checkpoint and 8 more in `blue-owl`; 3 in `red-owl`.
async fn write_sample_logs(dir: &Path) {
    let store = SqliteStore::open(dir).await.unwrap();
    let mut blue = TestLog::new("blue-owl");
    blue.grow_with(&store, 12, |append| {
        append.checkpoint = CheckpointTiming::Now
    })
    .await;
    blue.grow(&store, 8).await;
    TestLog::new("red-owl").grow(&store, 3).await;
}

fn verify_after_sql(sql: &str) -> Result<AuditReport, AuditError> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(write_sample_logs(dir.path()));
    let connection = Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    verify_store(dir.path(), &[])
}

/// The finding in `blue-owl`; `red-owl` must have none.
fn blue_owl_finding(report: &AuditReport) -> (u64, EntryFault) {
    assert_eq!(report.sessions[1].finding, None);
    let finding = report.sessions[0].finding.clone().unwrap();
    assert_eq!(finding.session.as_str(), "blue-owl");
    (finding.seq, finding.fault)
}

#[test]
fn tampering_with_the_store_is_reported_at_the_first_bad_entry() {
    let cases = [
        ("UPDATE entries SET body = replace(body, 'word', 'ward') WHERE session = 1 AND seq = 5", 5, EntryFault::Hash),
        ("UPDATE entries SET meta = replace(meta, 'ann', 'eve') WHERE session = 1 AND seq = 7", 7, EntryFault::Hash),
        ("UPDATE entries SET meta = '{}' WHERE session = 1 AND seq = 6", 6, EntryFault::Hash),
        ("UPDATE entries SET hash = zeroblob(32) WHERE session = 1 AND seq = 20", 20, EntryFault::Hash),
        ("DELETE FROM entries WHERE session = 1 AND seq = 5", 5, EntryFault::Missing { next: 6 }),
        ("DELETE FROM entries WHERE session = 1 AND seq = 1", 1, EntryFault::Missing { next: 2 }),
        ("DELETE FROM entries WHERE session = 1 AND seq > 15", 16, EntryFault::Head { says: 20 }),
        ("DELETE FROM entries WHERE session = 1 AND seq > 10;
          UPDATE sessions SET head_seq = 10, head_hash = (SELECT hash FROM entries WHERE session = 1 AND seq = 10) WHERE no = 1",
         11, EntryFault::Truncated { sealed: 12 }),
        ("DELETE FROM entries WHERE session = 1", 1, EntryFault::Truncated { sealed: 12 }),
        ("UPDATE entries SET seq = -5 WHERE session = 1 AND seq = 5;
          UPDATE entries SET seq = 5 WHERE session = 1 AND seq = 6;
          UPDATE entries SET seq = 6 WHERE session = 1 AND seq = -5", 5, EntryFault::Hash),
        ("INSERT INTO entries SELECT session, 21, meta, body, hash FROM entries WHERE session = 1 AND seq = 3", 21, EntryFault::Hash),
        ("UPDATE checkpoints SET signature = zeroblob(64)", 12, EntryFault::CheckpointSignature),
        ("UPDATE checkpoints SET at = at + 1", 12, EntryFault::CheckpointSignature),
        ("UPDATE checkpoints SET hash = zeroblob(32)", 12, EntryFault::CheckpointHash),
        ("UPDATE checkpoints SET key = zeroblob(32)", 12, EntryFault::CheckpointKey("0".repeat(64))),
        ("UPDATE checkpoints SET seq = 13", 13, EntryFault::CheckpointHash),
        ("UPDATE sessions SET head_hash = zeroblob(32) WHERE no = 1", 20, EntryFault::Head { says: 20 }),
        ("UPDATE sessions SET head_seq = 19 WHERE no = 1", 20, EntryFault::Head { says: 19 }),
    ];
    for (sql, seq, fault) in cases {
        assert_eq!(
            blue_owl_finding(&verify_after_sql(sql).unwrap()),
            (seq, fault),
            "{sql}"
        );
    }
    let unreadable =
        verify_after_sql("UPDATE entries SET hash = x'00' WHERE session = 1 AND seq = 4");
    let (seq, fault) = blue_owl_finding(&unreadable.unwrap());
    assert!(
        matches!((seq, &fault), (4, EntryFault::Unreadable(_))),
        "{seq} {fault}"
    );
}

#[test]
fn a_renamed_or_removed_session_is_detected() {
    let report = verify_after_sql("UPDATE sessions SET id = 'grey-owl' WHERE no = 1").unwrap();
    let found = report.first_finding().unwrap();
    assert_eq!((found.seq, &found.fault), (1, &EntryFault::Hash));
    let error = verify_after_sql("DELETE FROM sessions WHERE no = 1").unwrap_err();
    assert!(
        error.to_string().contains("session row 1, which is gone"),
        "{error}"
    );
    let error = verify_after_sql("UPDATE sessions SET id = '../owl' WHERE no = 1").unwrap_err();
    assert!(error.to_string().contains("session row 1"), "{error}");
}

/// Someone who can write the file can recompute hashes, but not the signature over them.
#[tokio::test]
async fn a_rewritten_chain_is_found_at_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    write_sample_logs(dir.path()).await;
    let connection = Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    let mut head = LogHead::empty(&SessionId::parse("blue-owl").unwrap());
    for record in TestLog::new("blue-owl").records(20) {
        let body = match record.seq {
            5 => String::from_utf8_lossy(&record.body)
                .replace("word", "ward")
                .into(),
            _ => record.body,
        };
        let forged = LogRecord::after(&head, record.meta, body);
        head = forged.head();
        connection
            .execute(
                "UPDATE entries SET body = ?2, hash = ?3 WHERE session = 1 AND seq = ?1",
                rusqlite::params![head.seq as i64, forged.body.as_ref(), head.hash],
            )
            .unwrap();
    }
    connection
        .execute(
            "UPDATE sessions SET head_hash = ?1 WHERE no = 1",
            [head.hash],
        )
        .unwrap();
    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(blue_owl_finding(&report), (12, EntryFault::CheckpointHash));
}

#[tokio::test]
async fn a_removed_checkpoint_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    TestLog::new("owl").grow(&store, 300).await;
    let connection = Connection::open(dir.path().join("pvp.sqlite3")).unwrap();
    connection.execute_batch("DELETE FROM checkpoints").unwrap();
    let report = verify_store(dir.path(), &[]).unwrap();
    let found = report.first_finding().unwrap();
    assert_eq!(
        (found.seq, &found.fault),
        (1, &EntryFault::MissingCheckpoint)
    );
}

#[tokio::test]
async fn an_entry_whose_text_claims_another_position_is_detected() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    for (id, body) in [
        ("a", r#"{"session":"a","seq":2}"#),
        ("b", r#"{"session":"a","seq":1}"#),
        ("c", r#"{"session":"c"}"#),
    ] {
        let log = TestLog::new(id);
        let mut append = log.next_append(0);
        append.records = vec![LogRecord::after(&log.head, "".into(), body.into())];
        store.append(Arc::new(append)).await.unwrap();
    }
    let report = verify_store(dir.path(), &[]).unwrap();
    let faults: Vec<_> = report
        .sessions
        .into_iter()
        .map(|one| one.finding.unwrap().fault)
        .collect();
    assert_eq!(
        faults,
        [
            EntryFault::OtherSeq(2),
            EntryFault::OtherSession("a".into()),
            EntryFault::NotAnEntry("missing field `seq` at line 1 column 15".into()),
        ]
    );
}

#[tokio::test]
async fn a_pinned_key_takes_precedence_over_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    write_sample_logs(dir.path()).await;
    let own = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(own.key_source, KeySource::DataDirectory);
    let key = own.keys.newest().unwrap().range.key;
    let pinned = verify_store(dir.path(), &[pin(key)]).unwrap();
    assert_eq!(
        (pinned.key_source, pinned.key_finding, pinned.sessions),
        (KeySource::Pinned, None, own.sessions)
    );
    let mut lines = Vec::new();
    export(dir.path(), None, &mut lines).unwrap();
    let other = [pin([9; 32])];
    for report in [
        verify_store(dir.path(), &other).unwrap(),
        verify_export(&mut &lines[..], &other).unwrap(),
    ] {
        let unknown = hex::encode(&key);
        assert_eq!(
            report.key_finding,
            Some(KeyFinding::UnknownCurrent(unknown.clone()))
        );
        assert_eq!(
            blue_owl_finding(&report),
            (12, EntryFault::CheckpointKey(unknown))
        );
    }
}

/// A pinned key without a range.
pub(super) fn pin(key: PublicKey) -> KeyRange {
    KeyRange {
        key,
        from: None,
        until: None,
    }
}

fn export_sample_lines() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(write_sample_logs(dir.path()));
    let mut out = Vec::new();
    export(dir.path(), None, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn verify_lines(lines: &[String]) -> Result<AuditReport, AuditError> {
    verify_export(&mut lines.join("\n").as_bytes(), &[])
}

#[tokio::test]
async fn an_export_verifies_to_the_same_report_as_the_store() {
    let dir = tempfile::tempdir().unwrap();
    write_sample_logs(dir.path()).await;
    let mut out = Vec::new();
    export(dir.path(), None, &mut out).unwrap();
    let report = verify_export(&mut &out[..], &[]).unwrap();
    assert_eq!(report.key_source, KeySource::ExportHeader);
    assert_eq!(report.first_finding(), None);
    assert_eq!(
        report.sessions,
        verify_store(dir.path(), &[]).unwrap().sessions
    );
    assert_eq!(report.sessions[0].checkpoint_seq, 12);

    let red = SessionId::parse("red-owl").unwrap();
    let mut out = Vec::new();
    export(dir.path(), Some(&red), &mut out).unwrap();
    let report = verify_export(&mut &out[..], &[]).unwrap();
    assert_eq!((report.sessions.len(), report.sessions[0].entries), (1, 3));
    let grey = SessionId::parse("grey-owl").unwrap();
    let error = export(dir.path(), Some(&grey), &mut out).unwrap_err();
    assert_eq!(error.to_string(), "there is no session `grey-owl`");
}

/// Line 0 is the header, lines 1 to 12 are entries, line 13 is the checkpoint, lines 14 to 21 are
/// the other entries.
#[test]
fn tampering_with_an_export_is_reported_at_the_first_bad_entry() {
    let whole = export_sample_lines();
    type LineEdit = fn(&mut Vec<String>);
    let cases: [(LineEdit, u64, EntryFault); 8] = [
        (
            |lines| lines[5] = lines[5].replace("word", "ward"),
            5,
            EntryFault::Hash,
        ),
        (
            |lines| lines[7] = lines[7].replace("ann", "eve"),
            7,
            EntryFault::Hash,
        ),
        (
            |lines| lines[7] = lines[7].replace(r#""by": "#, r#""by":"#),
            7,
            EntryFault::Hash,
        ),
        (
            |lines| lines[6] = lines[6].replace(r#""meta":null"#, r#""meta":{}"#),
            6,
            EntryFault::Hash,
        ),
        (
            |lines| drop(lines.remove(5)),
            5,
            EntryFault::Missing { next: 6 },
        ),
        (
            |lines| {
                lines.drain(14..22);
                lines.drain(10..13);
            },
            10,
            EntryFault::Truncated { sealed: 12 },
        ),
        (|lines| lines.swap(5, 6), 5, EntryFault::Missing { next: 6 }),
        (
            |lines| lines.swap(13, 14),
            13,
            EntryFault::MisplacedCheckpoint(12),
        ),
    ];
    for (number, (edit, seq, fault)) in cases.into_iter().enumerate() {
        let mut lines = whole.clone();
        edit(&mut lines);
        assert_eq!(
            blue_owl_finding(&verify_lines(&lines).unwrap()),
            (seq, fault),
            "edit {number}"
        );
    }
    for (field, digits, fault) in [
        ("signature", 128, EntryFault::CheckpointSignature),
        ("hash", 64, EntryFault::CheckpointHash),
        ("key", 64, EntryFault::CheckpointKey("0".repeat(64))),
    ] {
        let mut lines = whole.clone();
        let start = lines[13].find(&format!("\"{field}\":\"")).unwrap() + field.len() + 4;
        lines[13].replace_range(start..start + digits, &"0".repeat(digits));
        assert_eq!(
            blue_owl_finding(&verify_lines(&lines).unwrap()),
            (12, fault),
            "{field}"
        );
    }
}

#[test]
fn a_malformed_line_is_named_by_its_number() {
    let whole = export_sample_lines();
    let error_after = |edit: fn(&mut Vec<String>)| {
        let mut lines = whole.clone();
        edit(&mut lines);
        verify_lines(&lines).unwrap_err().to_string()
    };
    assert!(error_after(|lines| lines[4] = "{".into()).starts_with("line 5: "));
    assert!(error_after(|lines| lines[4] = "{}".into()).contains("line 5: it is neither"));
    assert!(
        error_after(|lines| lines[4].insert_str(1, r#""seq":4,"#))
            .contains("line 5: duplicate field")
    );
    assert!(error_after(|lines| lines.clear()).contains("line 1: this is not a PVP export"));
    assert!(
        error_after(|lines| drop(lines.remove(0))).contains("line 1: this is not a PVP export")
    );
    assert!(
        error_after(|lines| lines.push(lines[1].clone()))
            .contains("line 26: session `blue-owl` begins a second time")
    );
    let endless = std::io::Read::chain(whole[0].as_bytes(), std::io::repeat(b'x'));
    let error = verify_export(&mut std::io::BufReader::new(endless), &[]).unwrap_err();
    assert_eq!(error.to_string(), "line 1: it is longer than 32 MiB");
}

#[tokio::test]
async fn an_export_keeps_every_byte_or_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let log = TestLog::new("owl");
    let odd = r#"{ "seq" : 1,"session":"\u006fwl", "n":1.0e+2 ,"t":"é\/" }"#;
    let mut append = log.next_append(0);
    append.checkpoint = CheckpointTiming::Now;
    append.records = vec![LogRecord::after(&log.head, "[ 1 ]".into(), odd.into())];
    let head = append.records[0].head();
    store.append(Arc::new(append)).await.unwrap();
    let mut out = Vec::new();
    export(dir.path(), None, &mut out).unwrap();
    let report = verify_export(&mut &out[..], &[]).unwrap();
    assert_eq!(
        (report.first_finding(), report.sessions[0].head),
        (None, head.hash)
    );

    let mut append = log.next_append(0);
    append.prev = head;
    append.records = vec![LogRecord::after(&head, "".into(), "{\n}".into())];
    store.append(Arc::new(append)).await.unwrap();
    let error = export(dir.path(), None, &mut out).unwrap_err().to_string();
    assert!(
        error.contains("session `owl`, entry 2: its text is not one line"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    write_sample_logs(dir.path()).await;
    let path = dir.path().join("pvp.sqlite3");
    let whole = fs::read(&path).unwrap();
    let mut noticed = 0;
    for offset in (0..whole.len()).step_by(509) {
        let mut spoilt = whole.clone();
        let end = whole.len().min(offset + 300);
        spoilt[offset..end].fill(0xa5);
        fs::write(&path, &spoilt).unwrap();
        noticed += match verify_store(dir.path(), &[]) {
            Ok(report) => usize::from(report.first_finding().is_some()),
            Err(_) => 1,
        };
        let _ = export(dir.path(), None, &mut Vec::new());
    }
    assert!(noticed > 10, "{noticed}");
    fs::write(&path, "dear diary, ".repeat(400)).unwrap();
    let error = verify_store(dir.path(), &[]).unwrap_err().to_string();
    assert!(error.contains("is not a PVP store"), "{error}");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let error = verify_store(dir.path(), &[]).map(|report| report.first_finding().cloned());
    assert!(!matches!(error, Ok(None)), "{error:?}");
}

proptest! {
    #[test]
    fn garbage_never_panics(garbage in any::<Vec<u8>>(), at in 0..26usize, cut in any::<prop::sample::Index>()) {
        let _ = verify_export(&mut &garbage[..], &[]);
        let mut whole = EXPORTED_LINES.with(Clone::clone).into_iter().collect::<Vec<_>>();
        if let Some(line) = whole.get_mut(at) {
            line.truncate(cut.index(line.len() + 1));
        }
        let _ = verify_lines(&whole);
    }
}

thread_local! {
    static EXPORTED_LINES: Vec<String> = export_sample_lines();
}
