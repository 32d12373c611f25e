//! What an agent adds to git commits: a visible co-author, notes about approvals, and no editor.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::program::write_program;
use crate::support::session::{approve_next, next_gate, proposal_of, result_of, start_session};
use crate::support::{TestClient, TestServer};

/// What git prints in a repository.
pub(crate) fn git(repository: &Path, words: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(["-c", "user.name=Dee", "-c", "user.email=dee@example.org"])
        .args(words)
        // Ignores the configuration of the user who runs the tests.
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(repository)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{words:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Starts an agent whose workspace is a repository with one commit and a staged change.
async fn start_agent_in_repository(
    server: &TestServer,
    script: &str,
    flags: &[&str],
) -> AgentProcess {
    let cli = CliEnv::new();
    let here = cli.workdir();
    git(&here, &["init", "-q", "-b", "main"]);
    git(&here, &["config", "user.name", "Dee"]);
    git(&here, &["config", "user.email", "dee@example.org"]);
    git(&here, &["commit", "-q", "--allow-empty", "-m", "first"]);
    std::fs::write(here.join("made"), "by the agent\n").unwrap();
    git(&here, &["add", "made"]);
    let script = write_script(&cli, script);
    let flags: Vec<_> = ["--script", &script].iter().chain(flags).copied().collect();
    AgentProcess::start_at(cli, server, "owl", &flags).await
}

const COMMIT: &str = r#"
    step = [
        { shell = "git commit -q -m 'second one'" },
        { expect = { outcome = "ran", exit = 0 } },
        { wait = "prompt" },
    ]
"#;

/// Approves the commit and waits for its result.
async fn approve_commit(ann: &mut TestClient) -> (String, Value) {
    let proposal = approve_next(ann).await;
    let result = result_of(ann, &proposal).await;
    assert_eq!(result["success"], true, "{result}");
    (proposal, result)
}

#[tokio::test]
async fn a_co_author_is_in_the_shown_command_and_in_the_commit() {
    let (server, mut ann) = start_session(json!({})).await;
    let flags = ["--co-author", "Owl <owl@example.org>"];
    let agent_process = start_agent_in_repository(&server, COMMIT, &flags).await;
    let (open, line) = next_gate(&mut ann).await;
    assert_eq!(
        line,
        "git commit --trailer 'Co-authored-by: Owl <owl@example.org>' -q -m 'second one'"
    );
    crate::approve(&mut ann, &open).await;
    let proposal = proposal_of(&ann, &open);
    assert_eq!(result_of(&mut ann, &proposal).await["success"], true);
    assert_eq!(
        git(&agent_process.workspace(), &["log", "-1", "--format=%B"]).trim(),
        "second one\n\nCo-authored-by: Owl <owl@example.org>"
    );
}

#[tokio::test]
async fn a_command_that_would_open_an_editor_fails_with_a_reason() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "git commit" },
            { expect = { outcome = "ran", exit = 1, contains = "pvp: there is no editor here" } },
            { shell = "git rebase -i --autostash --root" },
            { expect = { outcome = "ran", exit = 1, contains = "pvp: there is no editor here" } },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = start_agent_in_repository(&server, script, &[]).await;
    let before = git(&agent_process.workspace(), &["rev-parse", "HEAD"]);
    for _ in 0..2 {
        let proposal = approve_next(&mut ann).await;
        let result = result_of(&mut ann, &proposal).await;
        let output = result["result"]["stderr"].as_str().unwrap();
        assert_eq!(result["result"]["exitCode"], 1, "{result}");
        assert!(output.contains("pvp: there is no editor here"), "{output}");
    }
    assert_eq!(
        git(&agent_process.workspace(), &["rev-parse", "HEAD"]),
        before
    );
}

#[tokio::test]
async fn notes_say_who_approved_a_commit_and_run_no_hook() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { shell = "git commit -q -m 'second one'" },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = start_agent_in_repository(&server, script, &["--git-notes"]).await;
    let here = agent_process.workspace();
    std::fs::create_dir_all(here.join(".git/hooks")).unwrap();
    // Hooks that fail and leave a trace for anything but the commit itself.
    for hook in [
        "reference-transaction",
        "post-rewrite",
        "prepare-commit-msg",
    ] {
        let path = here.join(".git/hooks").join(hook);
        let text = format!(
            "#!/bin/sh\ncase \"$(cat) $*\" in *refs/notes*) echo {hook} >> '{}'; exit 1;; esac\n",
            here.join("hooked").display()
        );
        write_program(&path, text);
    }
    crate::support::session::send_prompt(&mut ann, &agent_process.user.participant, "commit").await;
    let (proposal, _) = approve_commit(&mut ann).await;
    let execute = |entry: &&Value| entry["type"] == "tool.execute";
    let entries = server.entries("owl");
    let digest = &entries.iter().find(execute).unwrap()["payload"]["grant"]["digest"];
    assert_eq!(
        git(&here, &["notes", "--ref=refs/notes/pvp", "show", "HEAD"]),
        format!(
            "PVP-Session: owl\nPVP-Proposal: {proposal}\nPVP-Approved-By: {}\nPVP-Digest: {}\n",
            ann.participant,
            digest.as_str().unwrap()
        )
    );
    assert_eq!(agent_process.read_file("hooked"), "");
    // The commit before it was not the agent's.
    let noted = git(&here, &["notes", "--ref=refs/notes/pvp", "list"]);
    assert_eq!(noted.lines().count(), 1);
}

#[tokio::test]
async fn notes_are_added_only_if_enabled() {
    let (server, mut ann) = start_session(json!({})).await;
    let agent_process = start_agent_in_repository(&server, COMMIT, &[]).await;
    approve_commit(&mut ann).await;
    let notes = git(&agent_process.workspace(), &["for-each-ref", "refs/notes"]);
    assert_eq!(notes, "");
    assert_eq!(
        git(&agent_process.workspace(), &["log", "-1", "--format=%B"]).trim(),
        "second one"
    );
}

#[tokio::test]
async fn what_a_deletion_loses_is_told_to_those_who_vote() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "rm made changed new missing -- -f" },
            { wait = "prompt" },
        ]
    "#;
    let cli = CliEnv::new();
    let here = cli.workdir();
    git(&here, &["init", "-q", "-b", "main"]);
    for name in ["made", "changed"] {
        std::fs::write(here.join(name), "text\n").unwrap();
    }
    git(&here, &["add", "."]);
    git(&here, &["commit", "-q", "-m", "first"]);
    std::fs::write(here.join("changed"), "text and more\n").unwrap();
    std::fs::write(here.join("new"), "n").unwrap();
    let script = write_script(&cli, script);
    let _agent = AgentProcess::start_at(cli, &server, "owl", &["--script", &script]).await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let mut received = ann.received.iter();
    let proposed = received.find(|message| message["id"] == proposal.as_str());
    let notes = proposed.unwrap()["payload"]["assessment"]["notes"].clone();
    let says = "according to the agent's machine";
    assert_eq!(
        notes,
        json!([
            format!("deletes `made` (5 bytes); git has this content, {says}"),
            format!(
                "deletes `changed` (14 bytes); git has another version of it, not this one, {says}"
            ),
            format!(
                "deletes `new` (1 byte); git does not have it, so it cannot be brought back, {says}"
            ),
        ])
    );
}
