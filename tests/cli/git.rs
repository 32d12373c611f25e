//! `pvp git`: hooks that record which decisions led to a commit, and `pvp git blame`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::history::run_approved;
use crate::support::cli::{CliEnv, CliOutput, CliProcess};
use crate::support::program::write_program;
use crate::support::{TestClient, TestServer, TestUser};

/// A directory with a git repository, in which a person works.
struct GitEnv {
    cli: CliEnv,
}

impl GitEnv {
    async fn new() -> Self {
        let env = Self { cli: CliEnv::new() };
        env.git(&["init", "-q", "-b", "main"]).await;
        env.git(&["config", "user.name", "Dee"]).await;
        env.git(&["config", "user.email", "dee@example.org"]).await;
        env
    }

    async fn with_hooks() -> Self {
        let env = Self::new().await;
        // On a busy machine a server that answers may need longer than a second.
        env.git(&["config", "pvp.hookSeconds", "30"]).await;
        env.cli.run_ok(&["git", "install"]).await;
        env
    }

    async fn try_git(&self, directory: &Path, words: &[&str], editor: &str) -> CliOutput {
        let mut command = self.cli.program("git");
        command
            .args(words)
            .current_dir(directory)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", editor);
        CliProcess::spawn(&mut command).ended().await
    }

    /// Runs git as a person would, with the hooks; it prints no error.
    async fn git(&self, words: &[&str]) -> String {
        let output = self.try_git(&self.cli.workdir(), words, "false").await;
        output.expect_ok(words)
    }

    /// Adds a line to a file and commits it.
    async fn commit_line(&self, line: &str) {
        let path = self.cli.workdir().join("list.txt");
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(&path, format!("{before}{line}\n")).unwrap();
        self.git(&["add", "list.txt"]).await;
        self.git(&["commit", "-q", "-m", &format!("Add {line}")])
            .await;
    }

    async fn message(&self) -> String {
        self.git(&["log", "-1", "--format=%B"]).await
    }

    /// The note of the last commit.
    async fn note(&self) -> String {
        // Git warns while there is no note at all.
        let words = ["log", "-1", "--notes=refs/notes/pvp", "--format=%N"];
        self.try_git(&self.cli.workdir(), &words, "false").await.out
    }

    /// Runs what the hooks run, which says nothing and succeeds.
    async fn call_hooks(&self) {
        let message = self.cli.home().join("message");
        std::fs::write(&message, "subject\n").unwrap();
        let message = message.to_str().unwrap();
        let prepare = ["git", "hook", "prepare-commit-msg", message, "message"];
        for hook in [&prepare[..], &["git", "hook", "post-commit"]] {
            assert_eq!(self.cli.run_ok(hook).await, "");
        }
        assert_eq!(std::fs::read_to_string(message).unwrap(), "subject\n");
    }

    fn hook(&self, name: &str) -> std::path::PathBuf {
        self.cli.workdir().join(".git/hooks").join(name)
    }
}

/// A session in which Ann approves what an agent proposes.
struct Room {
    server: TestServer,
    ann: TestClient,
    ann_user: TestUser,
    agent: TestClient,
}

impl Room {
    async fn new() -> Self {
        let server = TestServer::start(&[]).await;
        let config = json!({ "gate_timeout_seconds": 0 });
        let agent = server.create_session_with_agent("owl", config).await;
        let ann_user = server.invite("Ann", &["driver", "approver"], &[]);
        let mut ann = server.connect(&ann_user).await;
        ann.join("owl", &ann_user, json!({})).await;
        Self {
            server,
            ann,
            ann_user,
            agent,
        }
    }

    fn link(&self) -> String {
        self.server.link(&self.ann_user, Some("owl"))
    }

    /// Runs a command that Ann approves; returns the proposal's id.
    async fn run(&mut self, command: &str) -> String {
        run_approved(&mut self.agent, &mut self.ann, command, &[], 0).await
    }
}

#[tokio::test]
async fn commits_name_the_approved_commands_since_the_last_one() {
    let mut room = Room::new().await;
    let env = GitEnv::with_hooks().await;
    env.cli.log_in(&room.link()).await;
    env.commit_line("milk").await;
    assert_eq!(
        env.message().await.trim(),
        "Add milk",
        "nothing was decided yet"
    );
    assert_eq!(env.note().await.trim(), "");

    let first = room.run("npm install").await;
    let second = room.run("make clean").await;
    env.commit_line("eggs").await;
    let ann = room.ann_user.participant.clone();
    assert_eq!(
        env.message().await.trim(),
        format!(
            "Add eggs\n\nPVP-Session: owl\nPVP-Proposal: {second}\nPVP-Proposal: {first}\nPVP-Approvers: Ann"
        )
    );
    let head = room.server.entries("owl").len();
    let block = |proposal: &str, command: &str| {
        format!(
            "PVP-Session: owl\nPVP-Proposal: {proposal}\nPVP-Approved-By: {ann}\nPVP-Approvers: Ann\n\
             PVP-Category: write\nPVP-Command: {command}\nPVP-Head: {head}\n"
        )
    };
    let both = [block(&second, "make clean"), block(&first, "npm install")].join("\n");
    assert_eq!(env.note().await.trim(), both.trim());

    // Amending adds what came since, and repeats nothing.
    let third = room.run("touch third").await;
    for _ in 0..2 {
        env.git(&["commit", "-q", "--amend", "--no-edit"]).await;
    }
    let message = env.message().await;
    for proposal in [&first, &second, &third] {
        assert_eq!(message.matches(proposal.as_str()).count(), 1, "{message}");
    }
    assert_eq!(message.matches("PVP-Session").count(), 1, "{message}");
    assert_eq!(message.matches("PVP-Approvers").count(), 1, "{message}");
    assert_eq!(env.note().await.matches(third.as_str()).count(), 1);

    // The next commit owes nothing to them.
    env.commit_line("bread").await;
    assert_eq!(env.message().await.trim(), "Add bread");
    assert_eq!(env.note().await.trim(), "");
    let shown = env.cli.run(&["git", "blame", "list.txt"]).await;
    let short = third
        .chars()
        .skip(third.chars().count() - 6)
        .collect::<String>();
    let lines: Vec<_> = shown.out.lines().collect();
    assert_eq!(lines.len(), 3, "{shown:?}");
    let columns = |line: &str| {
        let (_, rest) = line.split_once(" (").unwrap();
        rest.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(columns(lines[0]), ["-", "-", "1)", "milk"]);
    assert_eq!(
        columns(lines[1]),
        ["Ann", &format!("{short}+2"), "2)", "eggs"]
    );
    assert_eq!(columns(lines[2]), ["-", "-", "3)", "bread"]);
    assert_eq!(
        (shown.code, shown.err.as_str()),
        (
            Some(0),
            "pvp: 2 of 3 lines come from commits without a decision\n"
        )
    );
}

#[tokio::test]
async fn a_message_that_is_yet_to_be_written_gets_a_note_and_no_trailer() {
    let mut room = Room::new().await;
    let env = GitEnv::with_hooks().await;
    env.cli.log_in(&room.link()).await;
    let proposal = room.run("npm install").await;
    let here = env.cli.workdir();
    let commit = ["commit", "-q", "--allow-empty"];
    // Whoever empties the message gives up the commit, with hooks or without.
    let given_up = env.try_git(&here, &commit, "true").await;
    assert_ne!(given_up.code, Some(0), "{given_up:?}");
    let written = env
        .try_git(&here, &commit, "sh -c 'echo text > \"$1\"' x")
        .await;
    assert_eq!(written.code, Some(0), "{written:?}");
    assert_eq!(env.message().await.trim(), "text");
    assert!(env.note().await.contains(&proposal));
}

#[tokio::test]
async fn replayed_commits_keep_what_they_say() {
    let mut room = Room::new().await;
    let env = GitEnv::with_hooks().await;
    env.cli.log_in(&room.link()).await;
    env.commit_line("milk").await;
    env.git(&["switch", "-q", "-c", "side"]).await;
    env.git(&["commit", "-q", "--allow-empty", "-m", "before any decision"])
        .await;
    env.git(&["switch", "-q", "main"]).await;
    room.run("npm install").await;
    env.git(&["commit", "-q", "--allow-empty", "-m", "other"])
        .await;
    room.run("touch after").await;
    env.git(&["cherry-pick", "--allow-empty", "side"]).await;
    assert_eq!(env.message().await.trim(), "before any decision");
    env.git(&["switch", "-q", "side"]).await;
    env.git(&["rebase", "-q", "--keep-empty", "main~1"]).await;
    assert_eq!(env.message().await.trim(), "before any decision");
    assert_eq!(env.note().await.trim(), "");
}

#[tokio::test]
async fn a_commit_is_made_in_silence_when_no_server_can_be_asked() {
    let env = GitEnv::with_hooks().await;
    // For the server that never answers.
    env.git(&["config", "--unset", "pvp.hookSeconds"]).await;
    // No repository.
    let nowhere = env.cli.home();
    let hook = ["git", "hook", "post-commit"];
    let output = env.cli.run_in(&nowhere, &hook).await;
    assert_eq!(output.expect_ok(&hook), "");
    // No link.
    env.commit_line("one").await;
    env.call_hooks().await;
    // A server that accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let link = |address: &str| format!("http://{address}/#token=pvp_abc_def&session=owl\n");
    let path = env.cli.link_file(&env.cli.workdir());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, link(&address.to_string())).unwrap();
    env.commit_line("two").await;
    env.call_hooks().await;
    // Nobody listens.
    drop(silent);
    env.commit_line("three").await;
    env.call_hooks().await;
    // A link that is none.
    std::fs::write(&path, "garbage\n").unwrap();
    env.commit_line("four").await;
    env.call_hooks().await;
    // A token that was revoked.
    let mut room = Room::new().await;
    room.run("npm install").await;
    let id = room.ann_user.token.split('_').nth(1).unwrap().to_owned();
    std::fs::write(&path, room.link()).unwrap();
    let data = room.server.data.to_str().unwrap();
    env.cli
        .run_ok(&["tokens", "revoke", "--data", data, &id])
        .await;
    env.commit_line("five").await;
    env.call_hooks().await;
    // The program is gone.
    for name in ["prepare-commit-msg", "post-commit"] {
        let script = std::fs::read_to_string(env.hook(name)).unwrap();
        let program = env!("CARGO_BIN_EXE_pvp");
        assert!(script.contains(program), "{script}");
        write_program(&env.hook(name), script.replace(program, "/nowhere/pvp"));
    }
    env.commit_line("six").await;
    assert_eq!(env.git(&["rev-list", "--count", "HEAD"]).await.trim(), "6");
    let messages = env.git(&["log", "--format=%B"]).await;
    assert!(!messages.contains("PVP-"), "{messages}");
    assert_eq!(env.git(&["for-each-ref", "refs/notes"]).await, "");
}

#[tokio::test]
async fn the_token_gets_nowhere_into_the_repository() {
    let mut room = Room::new().await;
    let env = GitEnv::with_hooks().await;
    // A git in its place writes down what it is given.
    let programs = env.cli.home().join("bin");
    std::fs::create_dir(&programs).unwrap();
    let seen = env.cli.home().join("seen");
    let git = std::process::Command::new("sh")
        .args(["-c", "command -v git"])
        .output()
        .unwrap();
    let git = String::from_utf8(git.stdout).unwrap();
    let script = format!(
        "#!/bin/sh\n{{ echo \"$@\"; env; }} >> '{}'\nexec {} \"$@\"\n",
        seen.display(),
        git.trim()
    );
    write_program(&programs.join("git"), script);
    room.run("npm install").await;
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let file = env.cli.workdir().join("message");
    std::fs::write(&file, "subject\n").unwrap();
    env.git(&["commit", "-q", "--allow-empty", "-m", "first"])
        .await;
    let variables = [("PVP_LINK", room.link()), ("PATH", path)];
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    for hook in [
        &["git", "hook", "prepare-commit-msg", "message", "message"][..],
        &["git", "hook", "post-commit"],
    ] {
        let output = env.cli.run_with_env(hook, &variables).await;
        assert_eq!(output.expect_ok(hook), "");
    }
    let message = std::fs::read_to_string(&file).unwrap();
    assert!(message.contains("PVP-Proposal: "), "{message}");
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(
        seen.contains("interpret-trailers") && seen.contains("notes"),
        "{seen}"
    );
    let secret = room.ann_user.token.rsplit('_').next().unwrap();
    assert!(!seen.contains(secret), "{seen}");
    let found = std::process::Command::new("grep")
        .args(["-r", secret, "."])
        .current_dir(env.cli.workdir())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[tokio::test]
async fn a_hook_of_somebody_else_is_kept_and_runs_first() {
    let env = GitEnv::new().await;
    let hook = env.hook("prepare-commit-msg");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let foreign = "#!/bin/sh\necho \"theirs $2\" >> \"$1\"\n[ ! -e refuse ]\n";
    write_program(&hook, foreign);
    let refused = env.cli.run_refused(&["git", "install"]).await;
    assert!(refused.contains("pvp git install --chain"), "{refused}");
    assert_eq!(std::fs::read_to_string(&hook).unwrap(), foreign);
    assert!(!env.hook("post-commit").exists(), "all or nothing");

    let said = env.cli.run_ok(&["git", "install", "--chain"]).await;
    assert!(
        said.starts_with("installed prepare-commit-msg and post-commit in "),
        "{said}"
    );
    // Once more changes nothing.
    let script = std::fs::read_to_string(&hook).unwrap();
    env.cli.run_ok(&["git", "install"]).await;
    assert_eq!(std::fs::read_to_string(&hook).unwrap(), script);
    assert_eq!(hook.metadata().unwrap().permissions().mode() & 0o111, 0o111);
    env.commit_line("milk").await;
    assert_eq!(env.message().await.trim(), "Add milk\ntheirs message");
    // It may still refuse a commit.
    std::fs::write(env.cli.workdir().join("refuse"), "").unwrap();
    let here = env.cli.workdir();
    let stopped = env
        .try_git(
            &here,
            &["commit", "-q", "--allow-empty", "-m", "x"],
            "false",
        )
        .await;
    assert_ne!(stopped.code, Some(0));

    let said = env.cli.run_ok(&["git", "uninstall"]).await;
    assert!(
        said.starts_with("removed prepare-commit-msg and post-commit from "),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&hook).unwrap(), foreign);
    assert!(!env.hook("post-commit").exists());
    let said = env.cli.run_ok(&["git", "uninstall"]).await;
    assert!(said.starts_with("no hook of pvp is in "), "{said}");
    assert_eq!(
        std::fs::read_to_string(&hook).unwrap(),
        foreign,
        "not ours to remove"
    );
}

#[tokio::test]
async fn hooks_go_where_git_looks_for_them() {
    let env = GitEnv::new().await;
    env.commit_line("milk").await;
    let tree = env.cli.home().join("tree");
    env.git(&["worktree", "add", "-q", tree.to_str().unwrap()])
        .await;
    env.cli
        .run_in(&tree, &["git", "install"])
        .await
        .expect_ok(&["install"]);
    assert!(
        env.hook("post-commit").exists(),
        "worktrees share their hooks"
    );
    env.cli
        .run_ok(&["git", "uninstall", tree.to_str().unwrap()])
        .await;
    assert!(!env.hook("post-commit").exists());

    env.git(&["config", "core.hooksPath", "hooks of ours"])
        .await;
    env.cli.run_ok(&["git", "install"]).await;
    assert!(env.cli.workdir().join("hooks of ours/post-commit").exists());
    // Hooks that several repositories share are worth a word.
    let shared = env.cli.home().join("shared");
    env.git(&["config", "core.hooksPath", shared.to_str().unwrap()])
        .await;
    let output = env.cli.run(&["git", "install"]).await;
    assert!(
        output.err.contains("every repository that uses it"),
        "{output:?}"
    );
    assert!(shared.join("post-commit").exists());

    let outside = env.cli.home().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let refused = env.cli.run_in(&outside, &["git", "install"]).await;
    let refused = refused.expect_refused(&["install"]);
    assert!(refused.contains("is in no git repository"), "{refused}");
}

#[tokio::test]
async fn blame_shows_hostile_text_as_text_and_reads_any_note() {
    let env = GitEnv::new().await;
    let path = env.cli.workdir().join("list.txt");
    let hostile = b"\x1b[2Jclear\n\xff\xfe not text\nplain\t\xe2\x80\xae reversed\n";
    std::fs::write(&path, hostile).unwrap();
    env.git(&["add", "."]).await;
    let message =
        "subject\n\nPVP-Session: owl\nPVP-Proposal: p-111111\nPVP-Approvers: Ann\u{1b}[2J, Bob";
    env.git(&["commit", "-q", "-m", message]).await;
    let by_trailers = env.cli.run_ok(&["git", "blame", "list.txt"]).await;
    let plain = |text: &str| {
        text.chars()
            .all(|c| c == '\n' || c == '\t' || !c.is_control() && c != '\u{202e}')
    };
    assert!(plain(&by_trailers), "{by_trailers:?}");
    assert!(
        by_trailers.contains("Ann\\u{1b}[2J, Bob 111111 1) \\u{1b}[2Jclear\n"),
        "{by_trailers}"
    );
    assert!(
        by_trailers.contains("\u{fffd}\u{fffd} not text"),
        "{by_trailers}"
    );

    // A note goes before the message; one that is no note of ours does not.
    let note = "PVP-Session: owl\nPVP-Proposal: p-222222\nPVP-Approved-By: cid\n";
    env.git(&["notes", "--ref=pvp", "add", "-m", note]).await;
    let by_note = env
        .cli
        .run_json_lines(&["git", "blame", "--json", "list.txt"])
        .await;
    let head = env.git(&["rev-parse", "HEAD"]).await;
    assert_eq!(
        by_note[2],
        json!({ "line": 3, "commit": head.trim(), "source": "note", "sessions": ["owl"],
            "proposals": ["p-222222"], "approvers": ["cid"], "text": "plain\t\u{202e} reversed" })
    );
    let garbage = env.cli.workdir().join("garbage");
    std::fs::write(&garbage, b"\xff\x00PVP-Proposal: \x00\nPVP-Session\n").unwrap();
    let here = env.cli.workdir();
    env.try_git(&here, &["notes", "--ref=pvp", "remove"], "false")
        .await;
    env.git(&["notes", "--ref=pvp", "add", "-F", "garbage"])
        .await;
    let again = env.cli.run_ok(&["git", "blame", "list.txt"]).await;
    assert_eq!(again, by_trailers);
}

#[tokio::test]
async fn blame_says_what_is_not_committed_and_runs_nothing_of_the_repository() {
    let env = GitEnv::new().await;
    std::fs::write(
        env.cli.workdir().join(".gitattributes"),
        "*.txt diff=run filter=run\nsub/* filter=a=b.C\n",
    )
    .unwrap();
    let trace = env.cli.home().join("ran");
    let run = format!("touch '{}'; cat", trace.display());
    for key in ["diff.run.textconv", "core.fsmonitor", "core.pager"] {
        env.git(&["config", key, &run]).await;
    }
    std::fs::create_dir(env.cli.workdir().join("sub")).unwrap();
    std::fs::write(env.cli.workdir().join("sub/a.txt"), "one\n").unwrap();
    let without = ["-c", "core.fsmonitor=false"];
    env.git(&[&without[..], &["add", "."]].concat()).await;
    env.git(&[&without[..], &["commit", "-q", "-m", "first"]].concat())
        .await;
    std::fs::write(env.cli.workdir().join("sub/a.txt"), "one\ntwo\n").unwrap();
    for driver in ["run", "a=b.C"] {
        for (name, value) in [("clean", &*run), ("process", &run), ("required", "true")] {
            env.git(&["config", &format!("filter.{driver}.{name}"), value])
                .await;
        }
    }
    let _ = std::fs::remove_file(&trace);
    let lines = env.cli.run(&["git", "blame", "--json", "sub/a.txt"]).await;
    let lines: Vec<Value> = lines
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&lines[0]["text"], lines[0]["commit"].is_string()),
        (&json!("one"), true)
    );
    assert_eq!(
        lines[1],
        json!({ "line": 2, "commit": null, "source": null, "sessions": [], "proposals": [],
            "approvers": [], "text": "two" })
    );
    assert!(
        !trace.exists(),
        "a program that the repository names was run"
    );
    let text = env.cli.run(&["git", "blame", "sub/a.txt"]).await;
    assert_eq!(
        text.err,
        "pvp: no line comes from a commit with a decision\n"
    );
    let missing = env.cli.run_refused(&["git", "blame", "missing.txt"]).await;
    assert!(
        missing.starts_with("pvp: cannot blame missing.txt: "),
        "{missing}"
    );
    assert!(!trace.exists());
}
