//! A stand-in for an agent client that has hooks: `pvp run` starts it, and the test makes its calls.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::cli::{CliEnv, CliProcess};
use super::{TEST_TIMEOUT, TestServer};

/// Says its version, notes its arguments, and lives until its standard input ends.
const PROGRAM: &str = "#!/bin/sh
[ \"$1\" = --version ] && { echo '2.1.325 (Claude Code)'; exit; }
for word; do printf '%s\\0' \"$word\"; done > \"$0.args.new\"
env > \"$0.env\"
mv \"$0.args.new\" \"$0.args\"
cat > /dev/null
exit 7
";

/// A stand-in for Claude Code under `pvp run`; killed when dropped.
pub struct HookStandIn {
    pub cli: CliEnv,
    pub run: CliProcess,
    /// What it was started with in `--settings`.
    pub settings: Value,
    /// Who it is in the session.
    pub participant: String,
}

impl HookStandIn {
    /// Starts it in a session, as an agent of its own.
    pub async fn start(server: &TestServer, session: &str) -> Self {
        Self::start_with(CliEnv::new(), server, session, &[]).await
    }

    /// As `start`, in an environment that the test has prepared, with flags for `pvp run`.
    pub async fn start_with(
        cli: CliEnv,
        server: &TestServer,
        session: &str,
        flags: &[&str],
    ) -> Self {
        let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some(session));
        Self::start_as(cli, &link, user.participant, flags).await
    }

    /// As `start_with`, with the link of an agent.
    pub async fn start_as(cli: CliEnv, link: &str, participant: String, flags: &[&str]) -> Self {
        let program = install(&cli, "claude");
        let mut command = cli.command(&["run"]);
        command.args(flags).arg("--").arg(&program).arg("-p");
        command.env("PVP_AGENT_LINK", link).stdin(Stdio::piped());
        let run = CliProcess::spawn(&mut command);
        let arguments = program.with_extension("args");
        super::session::wait_until("the client runs", || arguments.exists()).await;
        let text = std::fs::read_to_string(&arguments).unwrap();
        let words: Vec<_> = text.split('\0').collect();
        assert_eq!(words[0], "--settings");
        assert!(words.contains(&"-p"), "{words:?}");
        // Nothing of a repository's own settings is used.
        assert_eq!(words[2..4], ["--setting-sources", "user"]);
        Self {
            settings: serde_json::from_str(words[1]).unwrap(),
            cli,
            run,
            participant,
        }
    }

    /// The environment that it was started with.
    pub fn environment(&self) -> String {
        std::fs::read_to_string(self.cli.home().join("bin/claude.env")).unwrap()
    }

    /// The hooks that it was given.
    fn hooks(&self) -> ClientHooks<'_> {
        ClientHooks {
            cli: &self.cli,
            settings: &self.settings,
        }
    }

    /// The command line of the hook for an event.
    pub fn hook(&self, event: &str) -> String {
        self.hooks().command(event)
    }

    /// What it says about an event: the fields that every event has, and these.
    pub fn event(&self, event: &str, fields: Value) -> Value {
        self.hooks().event(event, fields)
    }

    /// Starts the hook of an event.
    pub async fn start_hook(&self, event: &str, fields: Value) -> Child {
        self.hooks().start(event, fields).await
    }

    /// Starts the hook of an event with this on its standard input.
    pub async fn start_hook_with(&self, event: &str, input: &[u8]) -> Child {
        self.hooks().start_with(event, input).await
    }

    /// Asks whether a call may run.
    pub async fn ask(&self, id: &str, tool: &str, input: Value) -> Child {
        self.hooks().ask(id, tool, input).await
    }

    /// Asks whether a command may run.
    pub async fn ask_bash(&self, id: &str, line: &str) -> Child {
        self.hooks().ask_bash(id, line).await
    }

    /// Says that a command has ended well.
    pub async fn say_done(&self, id: &str, line: &str, stdout: &str) -> Value {
        let fields = json!({
            "tool_name": "Bash", "tool_input": { "command": line, "description": "why" },
            "tool_use_id": id, "tool_response": { "stdout": stdout, "stderr": "" },
        });
        answer_of(self.start_hook("PostToolUse", fields).await).await
    }
}

/// The hooks that a stand-in was given, which it calls as Claude Code does.
pub struct ClientHooks<'a> {
    pub cli: &'a CliEnv,
    /// What it was started with in `--settings`.
    pub settings: &'a Value,
}

impl ClientHooks<'_> {
    fn command(&self, event: &str) -> String {
        let hook = &self.settings["hooks"][event][0]["hooks"][0]["command"];
        hook.as_str().unwrap().to_owned()
    }

    fn event(&self, event: &str, fields: Value) -> Value {
        let mut said = json!({
            "session_id": "conversation-1", "transcript_path": "/dev/null",
            "cwd": self.cli.workdir(), "permission_mode": "default", "hook_event_name": event,
        });
        for (name, value) in fields.as_object().unwrap() {
            said[name] = value.clone();
        }
        said
    }

    async fn start(&self, event: &str, fields: Value) -> Child {
        let said = self.event(event, fields).to_string();
        self.start_with(event, said.as_bytes()).await
    }

    async fn start_with(&self, event: &str, input: &[u8]) -> Child {
        let mut command = self.cli.program("/bin/sh");
        command
            .args(["-c", &self.command(event)])
            .stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input).await.unwrap();
        drop(stdin);
        child
    }

    async fn ask(&self, id: &str, tool: &str, input: Value) -> Child {
        let fields = json!({ "tool_name": tool, "tool_input": input, "tool_use_id": id });
        self.start("PreToolUse", fields).await
    }

    /// Asks whether a command may run.
    pub async fn ask_bash(&self, id: &str, line: &str) -> Child {
        let input = json!({ "command": line, "description": "why" });
        self.ask(id, "Bash", input).await
    }
}

/// Writes the program of a stand-in.
pub fn install(cli: &CliEnv, name: &str) -> PathBuf {
    install_program(cli, name, PROGRAM)
}

/// Writes a program that stands in for a client.
pub fn install_program(cli: &CliEnv, name: &str, text: &str) -> PathBuf {
    let directory = cli.home().join("bin");
    std::fs::create_dir_all(&directory).unwrap();
    let program = directory.join(name);
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// What a hook prints when it ends; null if it prints nothing.
pub async fn answer_of(child: Child) -> Value {
    let output = tokio::time::timeout(TEST_TIMEOUT, child.wait_with_output());
    let output = output.await.expect("the hook answers in time").unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    match text.is_empty() {
        true => Value::Null,
        false => serde_json::from_str(&text).unwrap_or_else(|_| panic!("not JSON: {text}")),
    }
}

/// The decision and its reason, or the edited input.
pub async fn decision_of(child: Child) -> (String, Value) {
    let answer = answer_of(child).await;
    let said = &answer["hookSpecificOutput"];
    assert_eq!(said["hookEventName"], "PreToolUse", "{answer}");
    let decision = said["permissionDecision"].as_str().unwrap().to_owned();
    let more = match said.get("updatedInput") {
        Some(edited) => edited.clone(),
        None => said["permissionDecisionReason"].clone(),
    };
    (decision, more)
}
