//! What a hook's process says if it cannot say it: some clients run a call whose hook exits with 0.

use std::fs::{File, OpenOptions};
use std::process::Stdio;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::TEST_TIMEOUT;
use crate::support::cli::CliEnv;

/// Has a hook asked, which has nobody to ask and denies; returns its exit code and what it printed.
async fn ask(command: &mut Command, question: &str) -> (Option<i32>, String) {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(question.as_bytes()).await.unwrap();
    drop(stdin);
    let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait_with_output());
    let output = ended.await.expect("the hook ends").unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    (output.status.code(), printed)
}

fn hook(cli: &CliEnv, client: &str) -> Command {
    let files = cli.home().join("no-such-files");
    let mut command = cli.command(&["hook", "run", client, "--event", "preToolUse", "--files"]);
    command.arg(files);
    command
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_denies_the_call() {
    let cli = CliEnv::new();
    for client in ["claude", "codex", "opencode", "gemini", "copilot"] {
        // The device takes nothing.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = hook(&cli, client);
        let (code, _) = ask(command.stdout(full), "{}").await;
        assert_eq!(code, Some(2), "{client}");
        // Nor does what is open only for reading.
        let mut command = hook(&cli, client);
        let (code, _) = ask(command.stdout(File::open("/dev/null").unwrap()), "{}").await;
        assert_eq!(code, Some(2), "{client}");
    }
}

#[tokio::test]
async fn whatever_is_asked_the_answer_is_one_denial_and_nothing_else() {
    let cli = CliEnv::new();
    let call = json!({
        "hook_event_name": "PreToolUse", "session_id": "c", "cwd": cli.workdir(),
        "tool_name": "Bash", "tool_input": { "command": "touch x" }, "tool_use_id": "t",
    });
    for question in ["", "{", "null", "[]", "garbage {", "{}", &call.to_string()] {
        let (code, printed) = ask(&mut hook(&cli, "claude"), question).await;
        assert_eq!(code, Some(0), "{question}");
        let said: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let decision = &said["hookSpecificOutput"]["permissionDecision"];
        assert_eq!(decision, "deny", "{question}: {said}");
    }
}
