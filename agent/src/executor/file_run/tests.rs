//! Granted calls of file tools: what is carried out, and what is refused.

use super::*;
use std::os::unix::fs::symlink;

use pvp_protocol::payload::{Approval, RunBy};
use pvp_protocol::{Action, Digest, ExecutionLimits, MessageId, ParticipantId, Timestamp};
use serde_json::{Value, json};

use crate::shown_actions::ActionOrigin;

/// A workspace in which granted calls are carried out.
struct FileRunFixture {
    directory: tempfile::TempDir,
    settings: ExecutorSettings,
    profile: SandboxProfile,
    cleared_by: ClearedBy,
    output_bytes: u64,
}

impl FileRunFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let workspace = root.join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
        Self {
            directory,
            settings,
            profile: SandboxProfile::None,
            cleared_by: ClearedBy::Quorum,
            output_bytes: 100_000,
        }
    }

    fn unasked() -> Self {
        Self {
            profile: SandboxProfile::Read,
            cleared_by: ClearedBy::Read,
            ..Self::new()
        }
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.settings.workspace.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.settings.workspace.join(path)).unwrap_or_default()
    }

    fn call(&self, name: &str, arguments: Value) -> Result<OwnOutput, String> {
        let action = Action::from_arguments(name, arguments.as_object().unwrap()).unwrap();
        let grant = GrantTerms {
            id: MessageId::parse("g1").unwrap(),
            executor: ParticipantId::parse("bot").unwrap(),
            digest: action.digest(),
            action,
            runs: RunBy::Executor,
            limits: Some(ExecutionLimits {
                timeout_ms: 0,
                output_bytes: self.output_bytes,
            }),
            profile: Some(self.profile),
            expires_at: Timestamp::from_millis(0),
            cleared_by: self.cleared_by,
            approvals: Vec::<Approval>::new(),
            rule: None,
            allowed_by: None,
            driver: None,
            nonce: None,
            secret_env: None,
        };
        let accepted = AcceptedGrant {
            profile: self.profile,
            origin: ActionOrigin::Proposal,
        };
        let stop_signal = StopSignal {
            requested: &AtomicBool::new(false),
            deadline: None,
        };
        run(&grant, accepted, &self.settings, stop_signal)
    }

    fn read(&self, arguments: Value) -> OwnOutput {
        self.call("file_read", arguments).unwrap()
    }

    fn write(&self, path: &str, bound: Option<&str>, content: &str) -> Result<OwnOutput, String> {
        let sha256 = bound.map(|text| Digest::of_content(text.as_bytes()));
        let files = json!([{ "path": path, "sha256": sha256, "bytes": 0 }]);
        let arguments = json!({ "path": path, "content": content, "files": files });
        self.call("file_write", arguments)
    }
}

fn shown(output: &OwnOutput) -> (i32, &str, &str) {
    let stdout = std::str::from_utf8(&output.stdout).unwrap();
    (output.exit_code, stdout, &output.stderr)
}

#[test]
fn lines_are_read_from_anywhere() {
    let fixture = FileRunFixture::unasked();
    fixture.put("a", "one\ntwo\nthree");
    let read = |arguments| fixture.read(arguments);
    assert_eq!(
        shown(&read(json!({"path": "a"}))),
        (0, "one\ntwo\nthree", "")
    );
    assert_eq!(
        shown(&read(json!({"path": "a", "offset": 1, "limit": 1}))),
        (
            0,
            "two\n",
            "`a` goes on; read the next lines with offset 2\n"
        )
    );
    assert_eq!(
        shown(&read(json!({"path": "a", "offset": 2, "limit": 9}))),
        (0, "three", "")
    );
    assert_eq!(
        shown(&read(json!({"path": "a", "offset": 7}))),
        (1, "", "`a` has only 2 lines, so nothing begins at line 7\n")
    );
    assert_eq!(
        shown(&read(json!({"path": "b"}))),
        (1, "", "there is no file `b`\n")
    );
    fixture.put("empty", "");
    assert_eq!(shown(&read(json!({"path": "empty"}))), (0, "", ""));
}

#[test]
fn a_huge_file_is_read_within_the_limit() {
    let fixture = FileRunFixture {
        output_bytes: NOTE_BYTES + 10,
        ..FileRunFixture::unasked()
    };
    fixture.put("long", "héllo\n".repeat(100_000));
    assert_eq!(
        shown(&fixture.read(json!({"path": "long"}))),
        (
            0,
            "héllo\nhé",
            "`long` goes on; read the next lines with offset 1\n"
        )
    );
    let sparse = std::fs::File::create(fixture.settings.workspace.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let binary = fixture.read(json!({"path": "sparse"}));
    assert_eq!(
        shown(&binary),
        (
            1,
            "",
            "`sparse` is a binary file of 1099511627776 bytes, which is not shown\n"
        )
    );
    fixture.put("line", "x".repeat(1_000_000));
    let line = fixture.read(json!({"path": "line"}));
    assert_eq!(line.stdout.len(), 10);
    assert!(line.stderr.contains("too long to be shown whole"));
}

#[test]
fn reading_ends_when_it_is_stopped_or_takes_too_long() {
    let request = LineRequest {
        offset: u64::MAX,
        limit: 1,
        max_bytes: 10,
    };
    let endless = || BufReader::new(std::io::repeat(b'x'));
    let requested = AtomicBool::new(true);
    let stopped = StopSignal {
        requested: &requested,
        deadline: None,
    };
    assert!(request.read_from(endless(), stopped).is_err());
    let late = StopSignal {
        requested: &AtomicBool::new(false),
        deadline: Some(Instant::now()),
    };
    assert!(request.read_from(endless(), late).is_err());
}

#[test]
fn secrets_are_not_read_unasked_under_any_name() {
    let fixture = FileRunFixture::unasked();
    fixture.put(".env", "KEY=1");
    fixture.put(".git/config", "token");
    fixture.put("keys/.ssh/known", "x");
    fixture.put("real.txt", "linked from a secret name");
    fixture.put(".state/journal", "grants");
    fixture.put("pvp-data/pvp.sqlite3", "log");
    let workspace = &fixture.settings.workspace;
    symlink(".env", workspace.join("notes")).unwrap();
    symlink(".git", workspace.join("repository")).unwrap();
    symlink("keys/.ssh", workspace.join("public")).unwrap();
    symlink("real.txt", workspace.join("secrets.yaml")).unwrap();
    for path in [
        "notes",
        ".env",
        ".git/config",
        "repository/config",
        "public/known",
        "real.txt",
        ".state/journal",
        "pvp-data/pvp.sqlite3",
    ] {
        let refused = fixture.call("file_read", json!({ "path": path }));
        let why = refused.expect_err(path);
        assert!(
            why.contains("secrets") || why.contains("belongs to PVP"),
            "{why}"
        );
    }
    fixture.put("public.txt", "x");
    assert_eq!(shown(&fixture.read(json!({"path": "public.txt"}))).1, "x");
}

#[test]
fn a_secret_is_read_only_by_the_name_that_people_approved() {
    let fixture = FileRunFixture::new();
    fixture.put(".env", "KEY=1");
    symlink(".env", fixture.settings.workspace.join("notes")).unwrap();
    assert_eq!(shown(&fixture.read(json!({"path": ".env"}))).1, "KEY=1");
    let why = fixture
        .call("file_read", json!({"path": "notes"}))
        .unwrap_err();
    assert_eq!(
        why,
        "`notes` is `.env`, which may hold secrets; ask people for that name"
    );
    // What PVP keeps for itself is nobody's to read or write.
    fixture.put(".state/journal", "grants");
    assert!(
        fixture
            .call("file_read", json!({"path": ".state/journal"}))
            .is_err()
    );
    let why = fixture
        .write(".state/journal", Some("grants"), "x")
        .unwrap_err();
    assert!(why.contains("belongs to PVP"), "{why}");
    assert_eq!(fixture.content(".state/journal"), "grants");
    assert!(fixture.write(".pvp/link", None, "x").is_err());
}

#[test]
fn a_bound_file_is_written_and_one_that_changed_is_not() {
    let fixture = FileRunFixture::new();
    let made = fixture.write("new/a", None, "one\n").unwrap();
    assert_eq!(shown(&made), (0, "created new/a: 4 bytes, 1 line\n", ""));
    let replaced = fixture.write("new/a", Some("one\n"), "two\n").unwrap();
    assert_eq!(shown(&replaced).1, "replaced new/a: 4 bytes, 1 line\n");
    for (bound, why) in [
        (Some("one\n"), "`new/a` changed since it was approved"),
        (
            None,
            "`new/a` changed since it was approved: there was no such file",
        ),
    ] {
        assert_eq!(fixture.write("new/a", bound, "three").unwrap_err(), why);
    }
    let gone = fixture.write("b", Some("x"), "y").unwrap_err();
    assert_eq!(
        gone,
        "`b` changed since it was approved: it does not exist any more"
    );
    assert_eq!(fixture.content("new/a"), "two\n");
    assert!(!fixture.settings.workspace.join("b").exists());
}

#[test]
fn a_change_without_exactly_its_binding_is_refused() {
    let fixture = FileRunFixture::new();
    fixture.put("a", "old");
    let bound = |path: &str, text: &str| json!({ "path": path, "sha256": Digest::of_content(text.as_bytes()), "bytes": 3 });
    for files in [
        json!([]),
        json!(null),
        json!([bound("b", "old")]),
        json!([bound("./a", "old")]),
        json!([bound("a", "old"), { "path": "b", "bytes": 0 }]),
    ] {
        let arguments = json!({ "path": "a", "content": "new", "files": files });
        let why = fixture.call("file_write", arguments).unwrap_err();
        assert!(
            why.contains("`files` does not say what `a` contained"),
            "{why}"
        );
    }
    assert_eq!(fixture.content("a"), "old");
}

#[test]
fn text_is_edited_where_it_is_clear() {
    let fixture = FileRunFixture::new();
    fixture.put("a", "x = 1\ny = 1\n");
    let edit = |content: &str, old: &str, all: bool| {
        let sha256 = Digest::of_content(content.as_bytes());
        let arguments = json!({
            "path": "a", "old_text": old, "new_text": "2", "replace_all": all,
            "files": [{ "path": "a", "sha256": sha256, "bytes": 0 }],
        });
        fixture.call("file_edit", arguments)
    };
    let unclear = edit("x = 1\ny = 1\n", "1", false).unwrap();
    assert_eq!(unclear.exit_code, 1);
    assert!(unclear.stderr.contains("occurs 2 times"), "{unclear:?}");
    assert_eq!(fixture.content("a"), "x = 1\ny = 1\n");
    let edited = edit("x = 1\ny = 1\n", "1", true).unwrap();
    assert_eq!(shown(&edited).1, "edited a in 2 places\n");
    assert_eq!(fixture.content("a"), "x = 2\ny = 2\n");
}

#[test]
fn only_our_own_tools_in_their_own_form_are_called() {
    let fixture = FileRunFixture::new();
    for (name, arguments, why) in [
        ("fetch", json!({}), "this executor has no tool `fetch`"),
        (
            "file_write",
            json!({"file_path": "a", "content": "x"}),
            "its arguments are not exactly those of `file_write`",
        ),
    ] {
        assert_eq!(fixture.call(name, arguments).unwrap_err(), why);
    }
}

#[test]
fn the_sandbox_and_the_runner_are_respected() {
    let mut fixture = FileRunFixture::unasked();
    let why = fixture.write("a", None, "x").unwrap_err();
    assert_eq!(why, "its sandbox lets it only read");
    fixture.profile = SandboxProfile::Workspace;
    assert!(fixture.write("a", None, "x").is_ok());
    fixture.settings.runner = vec!["podman".to_owned(), "exec".to_owned()];
    let why = fixture.call("file_read", json!({"path": "a"})).unwrap_err();
    assert!(why.contains("behind `podman`"), "{why}");
    assert!(fixture.write("b", None, "x").is_err());
    assert!(!fixture.settings.workspace.join("b").exists());
}

#[test]
fn links_and_paths_out_of_the_workspace_are_refused() {
    let fixture = FileRunFixture::new();
    let outside = fixture.directory.path().join("outside");
    std::fs::write(&outside, "outside").unwrap();
    symlink(&outside, fixture.settings.workspace.join("link")).unwrap();
    let absolute = outside.to_str().unwrap();
    for path in ["link", "../outside", absolute] {
        let read = fixture.read(json!({ "path": path }));
        assert_eq!((read.exit_code, read.stdout.len()), (1, 0), "{path}");
        assert!(fixture.write(path, Some("outside"), "x").is_err(), "{path}");
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "outside");
}

#[test]
fn a_file_with_other_names_is_read_only_after_a_vote() {
    let mut fixture = FileRunFixture::unasked();
    fixture.put(".env", "KEY=1");
    let workspace = &fixture.settings.workspace;
    std::fs::hard_link(workspace.join(".env"), workspace.join("notes.txt")).unwrap();
    let read = |fixture: &FileRunFixture| fixture.call("file_read", json!({"path": "notes.txt"}));
    assert_eq!(
        read(&fixture).unwrap_err(),
        "`notes.txt` has other names (hard links), so it may be a file with secrets; use a shell \
         command"
    );
    fixture.cleared_by = ClearedBy::Quorum;
    assert_eq!(shown(&read(&fixture).unwrap()).1, "KEY=1");
}

#[test]
fn a_secret_file_is_edited_after_a_vote_if_it_is_what_was_bound_by_the_key() {
    let mut fixture = FileRunFixture::new();
    fixture.put(".env", "KEY=1");
    let edit_in = |fixture: &FileRunFixture, bound_path: &str, bound: &str, old: &str| {
        let sha256 = fixture
            .settings
            .binding_key
            .bind(bound_path, bound.as_bytes());
        let arguments = json!({
            "path": ".env", "old_text": old, "new_text": "2",
            "files": [{ "path": ".env", "sha256": sha256, "bytes": 5 }],
        });
        fixture.call("file_edit", arguments)
    };
    // A rule that lets edits pass lets nobody guess at secrets.
    fixture.cleared_by = ClearedBy::AllowRule;
    for guess in ["1", "3"] {
        let why = edit_in(&fixture, ".env", "KEY=1", guess).unwrap_err();
        assert!(why.contains("may hold secrets"), "{why}");
    }
    fixture.cleared_by = ClearedBy::Quorum;
    let edit = |bound_path: &str, bound: &str, old: &str| edit_in(&fixture, bound_path, bound, old);
    for (path, bound) in [(".env", "KEY=0"), ("other", "KEY=1")] {
        let why = edit(path, bound, "1").unwrap_err();
        assert_eq!(
            why,
            "`.env` changed since it was approved, or the executor restarted since; propose it again"
        );
    }
    let missing = edit(".env", "KEY=1", "3").unwrap();
    assert_eq!(missing.exit_code, 1);
    assert!(missing.stderr.contains("does not occur"), "{missing:?}");
    assert_eq!(shown(&edit(".env", "KEY=1", "1").unwrap()).0, 0);
    assert_eq!(fixture.content(".env"), "KEY=2");
}
