//! Tests that a key can be rotated, whatever interrupts it, and that no misuse of keys passes an
//! audit.

use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use pvp_protocol::hex;
use rusqlite::{Connection, params};

use super::super::super::audit::*;
use super::super::super::key_history::KeyHistory;
use super::super::super::keys::RotationStep;
use super::super::super::{Checkpoint, KeyFinding, LogSnapshot, PublicKey};
use super::super::rotation::{self, KeyRotation, RotationKind, rotate_with};
use super::tamper::pin;
use super::*;

/// Rotates a key that is in the directory.
fn rotate_key(dir: &Path, now: Timestamp) -> Result<KeyRotation, OpenError> {
    rotation::rotate_key(&KeyFiles::new(dir, None), now)
}

/// Later than the first key, which is made at the current time.
fn after_now(ms: u64) -> Timestamp {
    pvp_clock::now().plus_millis(ms)
}

fn current_key(dir: &Path) -> PublicKey {
    keys::read_stated(dir).unwrap().current
}

fn secret_key(dir: &Path) -> SigningKey {
    let text = fs::read_to_string(dir.join("server.key")).unwrap();
    SigningKey::from_bytes(&hex::decode(text.trim_end()).unwrap())
}

fn database(dir: &Path) -> Connection {
    Connection::open(dir.join("pvp.sqlite3")).unwrap()
}

fn export_text(dir: &Path) -> String {
    let mut out = Vec::new();
    export(dir, None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What an audit of the directory and one of its export say, which must be the same.
fn verify_both(dir: &Path, pins: &[KeyRange]) -> AuditReport {
    let store = verify_store(dir, pins).unwrap();
    let export = verify_export(&mut export_text(dir).as_bytes(), pins).unwrap();
    assert_eq!(export.sessions, store.sessions);
    assert_eq!(export.key_finding, store.key_finding);
    store
}

fn assert_intact(dir: &Path, pins: &[KeyRange]) -> AuditReport {
    let report = verify_both(dir, pins);
    assert_eq!((&report.key_finding, report.first_finding()), (&None, None));
    report
}

fn entry_finding(report: &AuditReport) -> (&str, u64, EntryFault) {
    let finding = report.first_finding().unwrap();
    let session = finding.session.as_str();
    (session, finding.seq, finding.fault.clone())
}

/// A directory whose key was rotated once. `ended` is complete before the rotation, `going` has 5
/// entries on either side of it.
struct RotatedDirectory {
    dir: tempfile::TempDir,
    old: SigningKey,
    rotation: KeyRotation,
}

impl RotatedDirectory {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).await.unwrap();
        TestLog::new("ended").grow(&store, 4).await;
        let mut going = TestLog::new("going");
        going.grow(&store, 3).await;
        store.close(after_now(0)).await.unwrap();
        let store = SqliteStore::open(dir.path()).await.unwrap();
        going.grow(&store, 2).await;
        drop(store);
        let old = secret_key(dir.path());
        let rotation = rotate_key(dir.path(), after_now(1000)).unwrap();
        let store = SqliteStore::open(dir.path()).await.unwrap();
        going.grow(&store, 5).await;
        store.close(after_now(2000)).await.unwrap();
        drop(store);
        Self { dir, old, rotation }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn history_path(&self) -> std::path::PathBuf {
        self.path().join("server.keys")
    }

    fn pins(&self) -> [KeyRange; 2] {
        [pin(self.rotation.old), pin(self.rotation.new)]
    }

    /// Signs the last checkpoint of a session as someone who has a key would.
    fn forge_last(&self, id: &str, key: &SigningKey, at: Timestamp) {
        let session = SessionId::parse(id).unwrap();
        let connection = database(self.path());
        let (no, seq, hash): (i64, i64, [u8; 32]) = connection
            .query_row(
                "SELECT no, head_seq, head_hash FROM sessions WHERE id = ?1",
                [id],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .unwrap();
        let seq = u64::try_from(seq).unwrap();
        let checkpoint = Checkpoint::sign(key, &session, LogHead { seq, hash }, at, None);
        checkpoint_rows::insert(&connection, no, &checkpoint).unwrap();
    }

    /// What a thief of the old key would do: certify a key of their own and rewrite the history.
    fn forge_history(&self, thief: &SigningKey) {
        let old = self.old.verifying_key().to_bytes();
        let history = KeyHistory::single(old, None).rotated(&self.old, thief, self.rotation.at);
        let lines: Vec<_> = history
            .records()
            .iter()
            .map(|record| serde_json::to_string(record).unwrap())
            .collect();
        fs::write(self.history_path(), lines.join("\n")).unwrap();
        let public = hex::encode(&thief.verifying_key().to_bytes());
        fs::write(self.path().join("server.pub"), public).unwrap();
    }
}

#[tokio::test]
async fn a_rotated_directory_is_intact_for_whoever_pinned_the_old_key_or_both() {
    let rotated = RotatedDirectory::new().await;
    let KeyRotation { old, new, at, .. } = rotated.rotation;
    assert_eq!(old, rotated.old.verifying_key().to_bytes());
    assert_eq!(new, current_key(rotated.path()));
    assert_ne!(old, new);
    let source = |report: &AuditReport| -> Vec<_> {
        let keys = report.keys.keys().iter();
        keys.map(|one| (one.range.key, one.range.until, one.source))
            .collect()
    };
    let report = assert_intact(rotated.path(), &[]);
    let own = KeySource::DataDirectory;
    assert_eq!(source(&report), [(old, Some(at), own), (new, None, own)]);
    let report = assert_intact(rotated.path(), &[pin(old)]);
    let (given, certified) = (KeySource::Pinned, KeySource::Certificate);
    assert_eq!(
        source(&report),
        [(old, Some(at), given), (new, None, certified)]
    );
    let report = assert_intact(rotated.path(), &rotated.pins());
    assert_eq!(
        source(&report),
        [(old, Some(at), given), (new, None, given)]
    );
    // Both logs are signed to their ends, one by either key.
    let sealed: Vec<_> = report
        .sessions
        .iter()
        .map(|one| (one.checkpoints, one.checkpoint_seq))
        .collect();
    assert_eq!(sealed, [(1, 4), (3, 10)]);
}

#[tokio::test]
async fn a_pinned_key_is_followed_forwards_only() {
    let rotated = RotatedDirectory::new().await;
    let KeyRotation { old, new, .. } = rotated.rotation;
    let report = verify_both(rotated.path(), &[pin(new)]);
    let unknown = EntryFault::CheckpointKey(hex::encode(&old));
    assert_eq!(entry_finding(&report), ("going", 3, unknown));
    let error = verify_store(rotated.path(), &[pin(new), pin(old)]).unwrap_err();
    assert!(error.to_string().contains("oldest key first"), "{error}");
    let error = verify_store(rotated.path(), &[pin(new), pin(new)]).unwrap_err();
    assert!(error.to_string().contains("given twice"), "{error}");
}

#[tokio::test]
async fn keys_between_two_pinned_ones_are_certified_by_both() {
    let rotated = RotatedDirectory::new().await;
    let third = rotate_key(rotated.path(), after_now(3000)).unwrap();
    assert_eq!(third.old, rotated.rotation.new);
    assert_eq!(third.first, rotated.rotation.old);
    assert_intact(rotated.path(), &[]);
    assert_intact(rotated.path(), &[pin(third.first)]);
    assert_intact(rotated.path(), &[pin(third.first), pin(third.new)]);
}

#[tokio::test]
async fn a_range_that_is_given_with_a_key_binds_it() {
    let rotated = RotatedDirectory::new().await;
    let KeyRotation { old, new, at, .. } = rotated.rotation;
    let within = |key, from, until| KeyRange { key, from, until };
    let exact = [within(old, None, Some(at)), within(new, Some(at), None)];
    assert_intact(rotated.path(), &exact);
    // Without the history, given ranges are enough.
    let lines = export_text(rotated.path());
    let header = lines.split_once('\n').unwrap();
    let bare = format!(
        "{{\"pvp_export\":1,\"key\":\"{}\"}}\n{}",
        hex::encode(&new),
        header.1
    );
    let report = verify_export(&mut bare.as_bytes(), &exact).unwrap();
    assert!(report.is_intact(), "{report:?}");

    let early = Some(at.plus_millis(1));
    let late = [within(old, None, Some(at)), within(new, early, None)];
    let (session, seq, fault) = {
        let report = verify_both(rotated.path(), &late);
        let (session, seq, fault) = entry_finding(&report);
        (session.to_owned(), seq, fault)
    };
    assert_eq!((session.as_str(), seq), ("ended", 4));
    assert!(
        matches!(fault, EntryFault::CheckpointRange { .. }),
        "{fault}"
    );
    // A key does not certify others outside of its range.
    let stolen = [within(old, None, Some(at_before(at)))];
    let report = verify_both(rotated.path(), &stolen);
    let unknown = KeyFinding::UnknownCurrent(hex::encode(&new));
    assert_eq!(report.key_finding, Some(unknown));
}

fn at_before(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millis() - 1)
}

#[tokio::test]
async fn a_stolen_retired_key_signs_nothing_that_passes() {
    let rotated = RotatedDirectory::new().await;
    let (old, at) = (&rotated.old, rotated.rotation.at);
    let old_hex = hex::encode(&rotated.rotation.old);
    let new_hex = hex::encode(&rotated.rotation.new);
    let all_pins = [&[][..], &rotated.pins()[..1], &rotated.pins()[..]];

    // Signed today: the key is out of its range.
    rotated.forge_last("going", old, after_now(9000));
    for pins in all_pins {
        let report = verify_both(rotated.path(), pins);
        let (session, seq, fault) = entry_finding(&report);
        assert_eq!((session, seq), ("going", 10));
        assert!(
            matches!(fault, EntryFault::CheckpointRange { .. }),
            "{fault}"
        );
    }
    // Backdated: an older key after a newer one.
    rotated.forge_last("going", old, at);
    for pins in all_pins {
        let older = EntryFault::OlderKey {
            key: old_hex.clone(),
            newer: new_hex.clone(),
        };
        let report = verify_both(rotated.path(), pins);
        assert_eq!(entry_finding(&report), ("going", 10, older));
    }
    // Backdated in a log that ended before the rotation, which nothing follows.
    rotated.forge_last("ended", old, at);
    for pins in all_pins {
        let retired = EntryFault::RetiredKey {
            key: old_hex.clone(),
            newest: new_hex.clone(),
        };
        let report = verify_both(rotated.path(), pins);
        assert_eq!(entry_finding(&report), ("ended", 4, retired));
    }
}

#[tokio::test]
async fn a_thief_who_certifies_a_key_of_their_own_is_found_by_the_pinned_new_key() {
    let rotated = RotatedDirectory::new().await;
    let thief = SigningKey::from_bytes(&[66; 32]);
    let thief_hex = hex::encode(&thief.verifying_key().to_bytes());
    rotated.forge_history(&thief);
    let connection = database(rotated.path());
    connection.execute_batch("DELETE FROM checkpoints").unwrap();
    for id in ["ended", "going"] {
        rotated.forge_last(id, &thief, after_now(5000));
    }
    // Whoever pinned only the stolen key cannot know; docs/security.md says so.
    assert_intact(rotated.path(), &rotated.pins()[..1]);
    let report = verify_both(rotated.path(), &rotated.pins());
    let unknown = KeyFinding::UnknownCurrent(thief_hex.clone());
    assert_eq!(report.key_finding, Some(unknown));
    let unknown = EntryFault::CheckpointKey(thief_hex);
    assert_eq!(entry_finding(&report), ("ended", 4, unknown));
}

#[tokio::test]
async fn a_thief_who_undoes_the_rotation_is_found_by_the_pinned_new_key() {
    let rotated = RotatedDirectory::new().await;
    let old = hex::encode(&rotated.rotation.old);
    fs::remove_file(rotated.history_path()).unwrap();
    fs::write(rotated.path().join("server.pub"), &old).unwrap();
    let connection = database(rotated.path());
    connection.execute_batch("DELETE FROM checkpoints").unwrap();
    for id in ["ended", "going"] {
        rotated.forge_last(id, &rotated.old, rotated.rotation.at);
    }
    let report = verify_both(rotated.path(), &rotated.pins());
    let retired = EntryFault::RetiredKey {
        key: old,
        newest: hex::encode(&rotated.rotation.new),
    };
    assert_eq!(entry_finding(&report), ("ended", 4, retired));
}

#[tokio::test]
async fn every_edit_of_the_history_file_is_a_finding() {
    let rotated = RotatedDirectory::new().await;
    let (old, new) = (rotated.rotation.old, rotated.rotation.new);
    let whole = fs::read_to_string(rotated.history_path()).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let stranger = serde_json::json!({ "key": hex::encode(&[9; 32]) }).to_string();
    let year = |line: &str| line.replace("\"from\":\"20", "\"from\":\"19");
    for (name, edited) in [
        ("empty", String::new()),
        ("no JSON", format!("{}\nkey", lines[0])),
        ("not UTF-8", format!("{}\n\u{fffd}", lines[0])),
        ("swapped", format!("{}\n{}", lines[1], lines[0])),
        ("the first removed", lines[1].to_owned()),
        ("the last removed", lines[0].to_owned()),
        ("a stranger's key at the end", format!("{whole}{stranger}")),
        (
            "a stranger's key at the start",
            format!("{stranger}\n{whole}"),
        ),
        ("another time", format!("{}\n{}", lines[0], year(lines[1]))),
    ] {
        fs::write(rotated.history_path(), edited).unwrap();
        for pins in [&[][..], &[pin(old)], &[pin(old), pin(new)]] {
            let report = verify_both(rotated.path(), pins);
            assert!(report.key_finding.is_some(), "{name}: {report:?}");
            assert!(!report.is_intact());
        }
        let opened = SqliteStore::open(rotated.path()).await;
        let error = opened.err().unwrap().to_string();
        assert!(error.contains("server.keys"), "{name}: {error}");
    }
    // Without the file there is one key, which did not sign what was before it.
    fs::remove_file(rotated.history_path()).unwrap();
    for pins in [&[][..], &[pin(old)], &[pin(new)]] {
        let report = verify_both(rotated.path(), pins);
        let (_, _, fault) = entry_finding(&report);
        assert!(matches!(fault, EntryFault::CheckpointKey(_)), "{fault}");
    }
    fs::write(rotated.history_path(), &whole).unwrap();
    assert_intact(rotated.path(), &[pin(old)]);
}

#[tokio::test]
async fn a_time_that_goes_back_is_a_finding_and_the_server_never_signs_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    let signed_at = |ms| {
        move |append: &mut AppendRequest| {
            append.at = after_now(ms);
            append.checkpoint = CheckpointTiming::Now;
        }
    };
    // The clock is set back after the first checkpoint.
    owl.grow_with(&store, 2, signed_at(60_000)).await;
    owl.grow_with(&store, 2, signed_at(0)).await;
    owl.grow(&store, 1).await;
    store.close(at(7)).await.unwrap();
    let report = assert_intact(dir.path(), &[]);
    assert_eq!(report.sessions[0].checkpoints, 3);
    // Nor does a rotation: the old key has signed for a time that is still to come.
    rotate_key(dir.path(), after_now(0)).unwrap();
    assert_intact(dir.path(), &[]);

    let connection = database(dir.path());
    let first: i64 = connection
        .query_row("SELECT at FROM checkpoints WHERE seq = 2", [], |row| {
            row.get(0)
        })
        .unwrap();
    let key = secret_key(dir.path());
    let session = owl.session.clone();
    let forge = |seq: usize, ms: u64| {
        let head = owl.written[seq - 1].head();
        let checkpoint = Checkpoint::sign(&key, &session, head, at(ms), None);
        checkpoint_rows::insert(&connection, 1, &checkpoint).unwrap();
    };
    let rotated = u64::try_from(first).unwrap();
    forge(4, rotated + 2);
    forge(5, rotated + 1);
    let back = EntryFault::CheckpointTime {
        at: at(rotated + 1),
        last: at(rotated + 2),
    };
    let report = verify_both(dir.path(), &[]);
    assert_eq!(entry_finding(&report), ("owl", 5, back));
}

#[tokio::test]
async fn a_directory_of_an_earlier_build_has_one_key_since_always() {
    let dir = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).await.unwrap());
    fs::remove_file(dir.path().join("server.keys")).unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    let now = |append: &mut AppendRequest| append.checkpoint = CheckpointTiming::Now;
    owl.grow_with(&store, 3, now).await;
    owl.grow_with(&store, 3, now).await;
    drop(store);
    // Earlier builds signed what the clock said, also after it was set back.
    let head = owl.written[5].head();
    let early = Checkpoint::sign(&secret_key(dir.path()), &owl.session, head, at(1), None);
    checkpoint_rows::insert(&database(dir.path()), 1, &early).unwrap();
    let report = assert_intact(dir.path(), &[]);
    let old = pin(current_key(dir.path()));
    assert_eq!(report.keys.newest().unwrap().range, old);
    rotate_key(dir.path(), after_now(0)).unwrap();
    assert_intact(dir.path(), &[old]);
}

#[tokio::test]
async fn a_server_does_not_start_without_the_history_of_the_keys_that_it_signed_with() {
    let rotated = RotatedDirectory::new().await;
    fs::remove_file(rotated.history_path()).unwrap();
    let error = SqliteStore::open(rotated.path()).await.err().unwrap();
    let error = error.to_string();
    assert!(error.contains("server.keys"), "{error}");
    assert!(error.contains("restore it from a backup"), "{error}");
    assert!(
        !rotated.history_path().exists(),
        "nothing was put in its place"
    );
}

#[tokio::test]
async fn a_snapshot_survives_a_rotation_and_a_retired_key_cannot_forge_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    owl.grow_with(&store, 3, |append| {
        let head = append.new_head();
        let body = Bytes::from_static(b"state");
        append.snapshot = Some(LogSnapshot { head, body });
    })
    .await;
    drop(store);
    let old = secret_key(dir.path());
    let rotation = rotate_key(dir.path(), after_now(0)).unwrap();
    let snapshot = async || {
        let store = SqliteStore::open(dir.path()).await.unwrap();
        let log = store.open_log(&owl.session).await;
        log.map(|log| log.unwrap().snapshot.map(|snapshot| snapshot.body))
    };
    assert_eq!(snapshot().await.unwrap().as_deref(), Some(&b"state"[..]));

    let hash = super::super::super::checkpoint::snapshot_hash(b"forged");
    let forged = Checkpoint::sign(&old, &owl.session, owl.head, rotation.at, Some(hash));
    let connection = database(dir.path());
    checkpoint_rows::insert(&connection, 1, &forged).unwrap();
    connection
        .execute("UPDATE snapshots SET body = ?1", params![&b"forged"[..]])
        .unwrap();
    let error = snapshot().await.unwrap_err().to_string();
    assert!(
        error.contains("entry 3: its checkpoint was signed with an unknown key"),
        "{error}"
    );
}

#[tokio::test]
async fn a_rotation_vouches_for_nothing_that_the_old_key_did_not_sign() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    for id in ["a", "b", "c"] {
        let mut log = TestLog::new(id);
        let now = |append: &mut AppendRequest| append.checkpoint = CheckpointTiming::Now;
        log.grow_with(&store, 3, now).await;
    }
    drop(store);
    let connection = database(dir.path());
    let stranger = SigningKey::from_bytes(&[66; 32]);
    let session = SessionId::parse("b").unwrap();
    let forged = LogHead {
        seq: 3,
        hash: [7; 32],
    };
    let checkpoint = Checkpoint::sign(&stranger, &session, forged, after_now(0), None);
    checkpoint_rows::insert(&connection, 2, &checkpoint).unwrap();
    connection
        .execute_batch("UPDATE checkpoints SET signature = zeroblob(64) WHERE session = 3")
        .unwrap();
    drop(connection);
    rotate_key(dir.path(), after_now(0)).unwrap();
    let report = verify_both(dir.path(), &[]);
    let faults: Vec<_> = report
        .sessions
        .into_iter()
        .map(|one| one.finding.map(|finding| finding.fault))
        .collect();
    let stranger = hex::encode(&stranger.verifying_key().to_bytes());
    assert_eq!(
        faults,
        [
            None,
            Some(EntryFault::CheckpointKey(stranger)),
            Some(EntryFault::CheckpointSignature)
        ]
    );
}

#[tokio::test]
async fn a_running_server_keeps_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let key = current_key(dir.path());
    let error = rotate_key(dir.path(), after_now(0)).unwrap_err();
    assert!(matches!(error, OpenError::Locked(_)), "{error}");
    assert_eq!(current_key(dir.path()), key);
    drop(store);
}

#[tokio::test]
async fn the_old_secret_key_is_gone_and_the_new_one_is_private() {
    let dir = tempfile::tempdir().unwrap();
    drop(SqliteStore::open(dir.path()).await.unwrap());
    let secret = dir.path().join("server.key");
    let old = fs::read_to_string(&secret).unwrap();
    // A second name for the same bytes on the disk.
    let same_file = dir.path().join("link");
    fs::hard_link(&secret, &same_file).unwrap();
    rotate_key(dir.path(), after_now(0)).unwrap();
    assert_eq!(
        fs::read_to_string(&same_file).unwrap().trim_end(),
        "-".repeat(64)
    );
    fs::remove_file(&same_file).unwrap();
    let mode = fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let kept = String::from_utf8_lossy(&bytes).contains(old.trim_end());
        assert!(!kept, "{}", path.display());
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    names.retain(|name| name.starts_with("server"));
    assert_eq!(names, ["server.key", "server.keys", "server.pub"]);
}

const STEPS: [RotationStep; 7] = [
    RotationStep::SignWithOldKey,
    RotationStep::WriteNextSecret,
    RotationStep::PublishHistory,
    RotationStep::SignWithNewKey,
    RotationStep::OverwriteOldSecret,
    RotationStep::ReplacePublic,
    RotationStep::ReplaceSecret,
];

/// Ends a rotation before this step, and leaves what half-written files a crash may leave.
fn crash_before(dir: &Path, step: RotationStep) {
    let mut reached = Vec::new();
    let crashed = rotate_with(&KeyFiles::new(dir, None), after_now(0), &mut |next| {
        reached.push(next);
        match next == step {
            true => Err(OpenError::Panicked("crash".to_owned())),
            false => Ok(()),
        }
    });
    assert!(crashed.is_err(), "{step:?} is a step");
    assert_eq!(reached.last(), Some(&step));
    for name in ["server.unfinished", "server.key.unfinished"] {
        fs::write(dir.join(name), "half a li").unwrap();
    }
}

#[tokio::test]
async fn a_crash_before_any_step_leaves_a_directory_that_opens_and_is_intact() {
    for step in STEPS {
        // And a second crash while the rest is made up for; the last time there is none.
        for second in (3..=STEPS.len()).map(|at| STEPS.get(at)) {
            survive_crashes(FirstHistory::Recorded, step, second).await;
        }
        survive_crashes(FirstHistory::FromEarlierBuild, step, None).await;
    }
}

/// Whether a directory has a history before its first rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstHistory {
    Recorded,
    FromEarlierBuild,
}

async fn survive_crashes(
    first_history: FirstHistory,
    step: RotationStep,
    second: Option<&RotationStep>,
) {
    let case = format!("{first_history:?}, {step:?}, then {second:?}");
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let mut owl = TestLog::new("owl");
    let now = |append: &mut AppendRequest| append.checkpoint = CheckpointTiming::Now;
    owl.grow_with(&store, 3, now).await;
    owl.grow(&store, 2).await;
    drop(store);
    if first_history == FirstHistory::FromEarlierBuild {
        fs::remove_file(dir.path().join("server.keys")).unwrap();
    }
    let old = current_key(dir.path());
    crash_before(dir.path(), step);
    let published = !STEPS[..3].contains(&step);
    if let Some(second) = second.filter(|_| published) {
        crash_before(dir.path(), *second);
    }
    let store = SqliteStore::open(dir.path()).await.unwrap();
    owl.assert_is_in(&store).await;
    owl.grow_with(&store, 1, now).await;
    assert_intact(dir.path(), &[]);
    let report = assert_intact(dir.path(), &[pin(old)]);
    let keys = if published { 2 } else { 1 };
    assert_eq!(report.keys.keys().len(), keys, "{case}");
    assert_eq!(current_key(dir.path()) != old, published, "{case}");
    assert!(!dir.path().join("server.key.next").exists(), "{case}");
    drop(store);
    let rotation = rotate_key(dir.path(), after_now(0)).unwrap();
    assert_eq!(rotation.kind, RotationKind::Complete);
    assert_intact(dir.path(), &[pin(old)]);
}

#[tokio::test]
async fn rotating_again_after_a_crash_finishes_the_rotation_that_was_begun() {
    for step in STEPS {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path()).await.unwrap();
        TestLog::new("owl").grow(&store, 3).await;
        drop(store);
        let old = current_key(dir.path());
        crash_before(dir.path(), step);
        let rotation = rotate_key(dir.path(), after_now(0)).unwrap();
        assert_eq!(rotation.old, old);
        let report = assert_intact(dir.path(), &[pin(old)]);
        assert_eq!(report.keys.keys().len(), 2, "{step:?}");
    }
}

#[tokio::test]
async fn an_audit_of_an_unfinished_rotation_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    TestLog::new("owl").grow(&store, 3).await;
    drop(store);
    crash_before(dir.path(), RotationStep::SignWithNewKey);
    let report = verify_store(dir.path(), &[]).unwrap();
    assert_eq!(report.key_finding, Some(KeyFinding::UnfinishedRotation));
    assert!(!report.is_intact());
    drop(SqliteStore::open(dir.path()).await.unwrap());
    assert_intact(dir.path(), &[]);
}

#[tokio::test]
async fn a_secret_key_that_may_be_needed_is_kept_when_the_history_is_damaged_midway() {
    for step in &STEPS[3..] {
        let dir = tempfile::tempdir().unwrap();
        drop(SqliteStore::open(dir.path()).await.unwrap());
        crash_before(dir.path(), *step);
        let next = dir.path().join("server.key.next");
        let secret = fs::read_to_string(&next).unwrap();
        let history = dir.path().join("server.keys");
        let whole = fs::read_to_string(&history).unwrap();
        fs::write(&history, "").unwrap();
        assert!(SqliteStore::open(dir.path()).await.is_err(), "{step:?}");
        assert_eq!(fs::read_to_string(&next).unwrap(), secret);
        fs::write(&history, whole).unwrap();
        SqliteStore::open(dir.path()).await.unwrap();
    }
}

#[tokio::test]
async fn an_altered_time_does_not_move_the_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path()).await.unwrap();
    let now = |append: &mut AppendRequest| append.checkpoint = CheckpointTiming::Now;
    TestLog::new("owl").grow_with(&store, 3, now).await;
    drop(store);
    let far = "UPDATE checkpoints SET at = at + 100000000000";
    database(dir.path()).execute_batch(far).unwrap();
    let asked = after_now(1000);
    assert_eq!(rotate_key(dir.path(), asked).unwrap().at, asked);
}

#[tokio::test]
async fn pinned_keys_verify_a_directory_that_lost_its_own() {
    let rotated = RotatedDirectory::new().await;
    for name in ["server.pub", "server.keys", "server.key"] {
        fs::remove_file(rotated.path().join(name)).unwrap();
    }
    assert!(verify_store(rotated.path(), &[]).is_err());
    let report = verify_store(rotated.path(), &rotated.pins()).unwrap();
    assert!(report.is_intact(), "{report:?}");
}

/// Rotates the key as soon as something is written.
struct RotatingWriter<'a> {
    dir: &'a Path,
    written: usize,
}

impl std::io::Write for RotatingWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.written == 0 {
            rotate_key(self.dir, after_now(0)).unwrap();
        }
        self.written += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_export_during_a_rotation_is_refused_because_it_would_not_verify() {
    let rotated = RotatedDirectory::new().await;
    let mut out = RotatingWriter {
        dir: rotated.path(),
        written: 0,
    };
    let error = export(rotated.path(), None, &mut out).unwrap_err();
    assert!(matches!(error, AuditError::Rotated), "{error}");
    assert_intact(rotated.path(), &[]);
}

/// Cuts `going` back to an entry, with everything that says that there were more.
fn cut_back(rotated: &RotatedDirectory, to: u64) {
    let cut = format!(
        "DELETE FROM entries WHERE session = 2 AND seq > {to};
         DELETE FROM checkpoints WHERE session = 2 AND seq > {to};
         UPDATE sessions SET head_seq = {to}, head_hash =
             (SELECT hash FROM entries WHERE session = 2 AND seq = {to}) WHERE no = 2"
    );
    database(rotated.path()).execute_batch(&cut).unwrap();
}

#[tokio::test]
async fn a_log_that_is_cut_back_with_its_checkpoints_is_found_only_before_the_last_rotation() {
    let rotated = RotatedDirectory::new().await;
    // Nothing in the directory says that there was more; docs/security.md says so.
    cut_back(&rotated, 5);
    assert_intact(rotated.path(), &rotated.pins());
    cut_back(&rotated, 3);
    let report = verify_both(rotated.path(), &rotated.pins());
    let retired = EntryFault::RetiredKey {
        key: hex::encode(&rotated.rotation.old),
        newest: hex::encode(&rotated.rotation.new),
    };
    assert_eq!(entry_finding(&report), ("going", 3, retired));
}
