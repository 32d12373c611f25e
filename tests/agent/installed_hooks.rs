//! Hooks that `pvp hook install` put into a client's own settings: nobody started the client with
//! `pvp run`.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::fixture::assert_contains;
use crate::support::TEST_TIMEOUT;
use crate::support::cli::CliEnv;
use crate::support::session::{proposal_of, result_of};
use crate::{approve, next_gate, start_session};

/// A stand-in for a client: for each line that it reads it runs the installed hook with that line,
/// and prints what the hook said in one line.
pub(crate) struct StandIn {
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl StandIn {
    async fn start(cli: &CliEnv) -> Self {
        Self::with_hook(cli, &installed_hook(cli))
    }

    /// A stand-in that runs this command line as its hook.
    pub(crate) fn with_hook(cli: &CliEnv, hook: &str) -> Self {
        let script = r#"while read -r line; do printf '%s' "$line" | sh -c "$HOOK"; echo; done"#;
        let mut command = cli.program("/bin/bash");
        let mut child = command
            .args(["-c", script])
            .env("HOOK", hook)
            // What a repository's settings could set leads nowhere.
            .env("PVP_AGENT_LINK", "http://127.0.0.1:9/?token=x")
            .env("XDG_STATE_HOME", "/nowhere")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    async fn say(&mut self, event: &str, directory: &Path, id: &str, fields: Value) {
        let mut said = json!({
            "session_id": format!("c{}", self.child.id().unwrap()), "cwd": directory, "hook_event_name": event, "tool_name": "Bash",
            "tool_input": { "command": "touch made", "description": "why" }, "tool_use_id": id,
        });
        for (name, value) in fields.as_object().unwrap() {
            said[name] = value.clone();
        }
        self.say_line(&said.to_string()).await;
    }

    pub(crate) async fn say_line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.stdin.write_all(line.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, directory: &Path, id: &str) {
        self.say("PreToolUse", directory, id, json!({})).await;
    }

    pub(crate) async fn answer(&mut self) -> String {
        let line = tokio::time::timeout(TEST_TIMEOUT, self.stdout.next_line()).await;
        line.expect("the hook answers in time").unwrap().unwrap()
    }
}

/// The command line of the hook that is installed for Claude Code.
pub(crate) fn installed_hook(cli: &CliEnv) -> String {
    let settings = std::fs::read_to_string(cli.home().join(".claude/settings.json")).unwrap();
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let hook = &settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"];
    hook.as_str().unwrap().to_owned()
}

async fn installed() -> CliEnv {
    let cli = CliEnv::new();
    cli.run_ok(&["hook", "install", "claude"]).await;
    cli
}

#[tokio::test]
async fn without_a_session_every_call_is_denied() {
    let cli = installed().await;
    let mut client = StandIn::start(&cli).await;
    client.ask(&cli.workdir(), "t1").await;
    assert_contains(
        &client.answer().await,
        &[
            "\"permissionDecision\":\"deny\"",
            "there is no session",
            "pvp up",
        ],
    );
    // Nothing else is said about what is no question.
    client
        .say("SessionStart", &cli.workdir(), "t2", json!({}))
        .await;
    assert_eq!(client.answer().await, "");
    // Nor where nobody knows where the client works.
    client.ask(Path::new("relative"), "t3").await;
    assert_contains(&client.answer().await, &["\"permissionDecision\":\"deny\""]);
}

#[tokio::test]
async fn what_a_client_runs_decides_nothing_in_the_name_of_its_person() {
    let (server, _ann) = start_session(json!({})).await;
    let dee = server.invite("dee", &["admin"], &[]);
    let cli = installed().await;
    cli.log_in(&server.link(&dee, Some("owl"))).await;
    let (hook, pvp) = (installed_hook(&cli), env!("CARGO_BIN_EXE_pvp"));
    let (own, _) = hook.split_once(pvp).unwrap();
    // The hook comes first, and then what the client runs.
    let mut client = StandIn::with_hook(&cli, &format!("{hook}; {own} {pvp} approve 123456 2>&1"));
    let said = json!({});
    client.say("SessionStart", &cli.workdir(), "t1", said).await;
    assert_contains(&client.answer().await, &["run it in another terminal"]);
}

#[tokio::test]
async fn each_client_process_is_an_agent_of_its_own_until_it_ends() {
    let (server, mut ann) = start_session(json!({})).await;
    let dee = server.invite("dee", &["admin"], &[]);
    let cli = installed().await;
    cli.log_in(&server.link(&dee, Some("owl"))).await;
    let mut first = StandIn::start(&cli).await;
    let mut second = StandIn::start(&cli).await;
    let mut participants = Vec::new();
    let mut gates = Vec::new();
    for client in [&mut first, &mut second] {
        client.ask(&cli.workdir(), "t1").await;
        let (gate, line) = next_gate(&mut ann).await;
        assert_eq!(line, "touch made");
        let proposal = proposal_of(&ann, &gate);
        let received = ann.received.iter();
        let mut proposed = received.filter(|message| message["id"] == *proposal);
        participants.push(proposed.next().unwrap()["sender"].clone());
        gates.push((gate, proposal));
    }
    assert_ne!(participants[0], participants[1]);
    // The same process stays the same agent, from one hook to the next.
    let (gate, proposal) = gates[0].clone();
    approve(&mut ann, &gate).await;
    assert_contains(&first.answer().await, &["\"permissionDecision\":\"allow\""]);
    let done = json!({ "tool_response": { "stdout": "ok", "stderr": "" } });
    first.say("PostToolUse", &cli.workdir(), "t1", done).await;
    assert_eq!(first.answer().await, "");
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["stdout"], "ok");
    first.ask(&cli.workdir(), "t2").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let received = ann.received.iter();
    let mut proposed = received.filter(|message| message["id"] == *proposal);
    assert_eq!(proposed.next().unwrap()["sender"], participants[0]);
    approve(&mut ann, &gate).await;
    first.answer().await;
    // When the process ends, what it ran is closed and its place is free.
    first.child.kill().await.unwrap();
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["outcome"], "unknown", "{result}");
    let left = ann.wait_for("session.leave").await;
    assert_eq!(left["sender"], participants[0], "{left}");
}
