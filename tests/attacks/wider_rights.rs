//! What a read gets to do beyond reading: network that it does not need, code that a repository
//! configures.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::program::write_program;
use crate::support::session::start_session;
use crate::support::{TestClient, TestServer};

/// What every planted program prints.
const RAN: &str = "HOSTILE-CODE-RAN";

/// The assessment of a command, as the log has it.
async fn assessment_in_log(server: &TestServer, agent: &mut TestClient, line: &str) -> Value {
    let mut proposal = agent.proposal(line);
    proposal["risk_level"] = json!("safe");
    let proposal = agent.send("tool.propose", proposal).await;
    agent.expect_ack(&proposal).await;
    let entries = server.entries("owl");
    let entry = entries.iter().find(|entry| entry["id"] == proposal);
    entry.unwrap()["payload"]["assessment"].clone()
}

#[tokio::test]
async fn network_for_a_part_that_needs_none() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    for (line, category, profile) in [
        ("docker ps", "read", "read_net"),
        ("docker ps; docker images", "read", "read_net"),
        ("git status", "read", "read"),
        ("docker ps; git status", "write", "none"),
        ("git status && docker ps", "write", "none"),
        ("docker ps | cat", "write", "none"),
        ("for f in a b; do docker ps; cat $f; done", "write", "none"),
    ] {
        let assessment = assessment_in_log(&server, &mut agent, line).await;
        let found = (&assessment["category"], &assessment["profile"]);
        assert_eq!(found, (&json!(category), &json!(profile)), "{line}");
        if category == "write" {
            let reason = assessment["reason"].as_str().unwrap();
            assert!(reason.contains("network"), "{line}: {reason}");
        }
    }
    let granted = |entry: &&Value| entry["type"] == "tool.execute";
    let entries = server.entries("owl");
    for grant in entries.iter().filter(granted) {
        let line = grant["payload"]["grant"]["action"]["command"].to_string();
        assert!(!(line.contains("docker") && line.contains("git")), "{line}");
    }
}

/// Runs git as somebody who is not careful: with everything that the repository configures.
fn careless_git(directory: &Path, words: &[&str]) -> String {
    let output = std::process::Command::new("git")
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ALLOW_PROTOCOL", "file:ext")
        .current_dir(directory)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Makes a repository with two commits whose files have changed since.
fn make_repository(directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let git = |words: &[&str]| careless_git(directory, words);
    git(&["init", "-q", "-b", "main"]);
    git(&["config", "user.name", "Mallory"]);
    git(&["config", "user.email", "mallory@example.org"]);
    for text in ["first line\n", "second line\n"] {
        std::fs::write(directory.join("notes.txt"), text).unwrap();
        std::fs::write(directory.join("data.bin"), text).unwrap();
        git(&["add", "."]);
        git(&["commit", "-q", "-m", text.trim()]);
    }
    // The same size as before: git has to compare the content.
    std::fs::write(directory.join("notes.txt"), "third  line\n").unwrap();
    std::fs::write(directory.join("data.bin"), "third  line\n").unwrap();
}

/// Has the repository run the planted program wherever git's settings allow it.
fn plant_code(directory: &Path) {
    let git_directory = directory.join(".git");
    let program = git_directory.join("planted");
    let text = format!("#!/bin/sh\necho \"{RAN} $0 $*\" >&2\necho {RAN}\n");
    write_program(&program, text);
    let hooks = git_directory.join("planted-hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    std::os::unix::fs::symlink(&program, hooks.join("post-index-change")).unwrap();
    let program = program.to_str().unwrap();
    let included = git_directory.join("included");
    let drivers = format!(
        "[diff \"planted\"]\n\ttextconv = {program}\n\tcommand = {program}\n\
         [filter \"pl=anted\"]\n\tclean = {program}\n\tsmudge = {program}\n\trequired = true\n"
    );
    std::fs::write(&included, drivers).unwrap();
    for (name, value) in [
        ("core.fsmonitor", program),
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("core.pager", program),
        ("core.sshCommand", program),
        ("core.askPass", program),
        ("pager.log", program),
        ("diff.external", program),
        ("gpg.program", program),
        ("gpg.ssh.program", program),
        ("log.showSignature", "true"),
        ("credential.helper", program),
        ("diff.submodule", "diff"),
        ("status.submoduleSummary", "true"),
        ("alias.lfs", &format!("!{program}")),
        ("protocol.ext.allow", "always"),
        ("include.path", included.to_str().unwrap()),
    ] {
        careless_git(directory, &["config", name, value]);
    }
    let attributes = "*.txt diff=planted\n*.bin filter=pl=anted\n";
    std::fs::create_dir_all(git_directory.join("info")).unwrap();
    std::fs::write(git_directory.join("info/attributes"), attributes).unwrap();
}

/// The result of the next command, which nobody must have been asked about.
pub(crate) async fn result_of_read(person: &mut TestClient, line: &str) -> Value {
    let message = person
        .wait(|message| message["type"] == "tool.result" || message["type"] == "gate.request")
        .await;
    assert_eq!(message["type"], "tool.result", "{line}: {message}");
    message["payload"].clone()
}

/// Reads that make git look at all of it.
const GIT_READS: &[&str] = &[
    "git status",
    "git diff",
    "git diff --stat",
    "git diff HEAD~1 HEAD",
    "git log -3",
    "git log -p -- notes.txt",
    "git log -S second",
    "git show HEAD",
    "git blame notes.txt",
    "git ls-files -m",
    "git stash list",
    "git stash show -p",
    "git describe --always --dirty",
    "git diff-files -p",
    "git diff-index -p HEAD",
    "git diff-tree -p HEAD",
    "git grep line",
    "git lfs ls-files",
    "git --no-pager log -1",
    "git -C inner status",
    "git -C inner diff",
    "cd inner && git diff",
];

/// A workspace that contains a hostile repository with a hostile submodule.
fn hostile_workspace(cli: &CliEnv) {
    let here = cli.workdir();
    let inner = here.join("inner");
    make_repository(&here);
    make_repository(&inner);
    careless_git(&here, &["add", "inner"]);
    careless_git(&here, &["commit", "-q", "-m", "with a submodule"]);
    careless_git(&here, &["stash", "-q"]);
    std::fs::write(here.join("notes.txt"), "third  line\n").unwrap();
    std::fs::write(here.join("data.bin"), "third  line\n").unwrap();
    std::fs::write(inner.join("notes.txt"), "fourth line\n").unwrap();
    // A submodule that asks to be looked into, whatever the settings say.
    let modules = "[submodule \"inner\"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n";
    std::fs::write(here.join(".gitmodules"), modules).unwrap();
    careless_git(&here, &["config", "submodule.inner.ignore", "none"]);
    plant_code(&here);
    plant_code(&inner);
}

#[tokio::test]
async fn code_that_a_repository_configures_for_git() {
    let (server, mut ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    hostile_workspace(&cli);
    let here = cli.workdir();
    for words in [
        &["status"][..],
        &["diff"],
        &["log", "-p"],
        &["blame", "notes.txt"],
        &["lfs", "ls-files"],
        &["diff", "--no-ext-diff", "data.bin"],
    ] {
        let printed = careless_git(&here, words);
        assert!(printed.contains(RAN), "git {words:?} is no bait: {printed}");
    }
    let steps: Vec<String> = GIT_READS
        .iter()
        .map(|line| format!("[[step]]\nshell = {line:?}\n"))
        .collect();
    let script = write_script(&cli, &(steps.concat() + "[[step]]\nwait = 'prompt'\n"));
    let _agent = AgentProcess::start_at(cli, &server, "owl", &["--script", &script]).await;
    let mut printed = Vec::new();
    for line in GIT_READS {
        let result = result_of_read(&mut ann, line).await;
        let body = &result["result"];
        let text = format!("{}{}", body["stdout"], body["stderr"]);
        assert!(!text.contains(RAN), "{line}: {text}");
        assert!(result["error"].is_null(), "{line}: {result}");
        printed.push((line, text, body["exitCode"].clone()));
    }
    // They ran as reads, and still say what git has to say.
    for (line, expected) in [
        ("git status", "modified:   notes.txt"),
        ("git diff", "+third  line"),
        ("git show HEAD", "with a submodule"),
        ("git log -p -- notes.txt", "+second line"),
        ("git blame notes.txt", "third  line"),
        ("git stash show -p", "+third  line"),
        ("git -C inner diff", "+fourth line"),
        ("cd inner && git diff", "+fourth line"),
        ("git grep line", "notes.txt:third  line"),
    ] {
        let found = printed.iter().find(|(of, ..)| **of == line).unwrap();
        assert!(found.1.contains(expected), "{found:?}");
        assert_eq!(found.2, 0, "{found:?}");
    }
    let entries = server.entries("owl");
    let grants = entries.iter().filter(|it| it["type"] == "tool.execute");
    let cleared: Vec<_> = grants
        .map(|it| &it["payload"]["grant"]["cleared_by"])
        .collect();
    assert_eq!(cleared, vec![&json!("read"); GIT_READS.len()]);
    let log = serde_json::to_string(&entries).unwrap();
    assert!(!log.contains(RAN));
}
