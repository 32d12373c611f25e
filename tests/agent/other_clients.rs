//! Clients other than Claude Code: what they are started with, and that it works.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::fixture::assert_contains;
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::hook_client::{answer_of, install};
use crate::support::mcp_client::McpClient;
use crate::support::session::{proposal_of, result_of, wait_until};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, start_session};

/// A stand-in for a client under `pvp run`; killed when dropped.
pub(crate) struct Running {
    pub(crate) cli: CliEnv,
    run: CliProcess,
    words: Vec<String>,
    environment: String,
    participant: String,
}

pub(crate) async fn start(server: &TestServer, name: &str, words: &[&str]) -> Running {
    start_in(CliEnv::new(), server, name, words).await
}

/// As `start`, in an environment that the test has prepared.
async fn start_in(cli: CliEnv, server: &TestServer, name: &str, words: &[&str]) -> Running {
    let user = server.invite(name, &["driver"], &["--kind", "agent"]);
    let program = install(&cli, name);
    let mut command = cli.command(&["run", "--"]);
    command.arg(&program).args(words).stdin(Stdio::piped());
    command.env("PVP_AGENT_LINK", server.link(&user, Some("owl")));
    let run = CliProcess::spawn(&mut command);
    let arguments = program.with_extension("args");
    wait_until("the client runs", || arguments.exists()).await;
    let text = std::fs::read_to_string(&arguments).unwrap();
    Running {
        words: text.split_terminator('\0').map(str::to_owned).collect(),
        environment: std::fs::read_to_string(program.with_extension("env")).unwrap(),
        participant: user.participant,
        cli,
        run,
    }
}

impl Running {
    pub(crate) fn after(&self, flag: &str) -> PathBuf {
        let at = self.words.iter().position(|word| word == flag).unwrap();
        PathBuf::from(&self.words[at + 1])
    }

    /// The value of a variable that it was started with.
    fn variable(&self, name: &str) -> &str {
        let mut lines = self.environment.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("{name} is not set"))
    }

    /// Starts a hook as the client does, with this on its standard input.
    pub(crate) async fn hook(&self, command: &str, input: Value) -> tokio::process::Child {
        use tokio::io::AsyncWriteExt;
        let mut shell = self.cli.program("/bin/sh");
        let mut child = shell
            .args(["-c", command])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.to_string().as_bytes()).await.unwrap();
        child
    }
}

pub(crate) fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn proposals(person: &TestClient) -> Vec<&Value> {
    let received = person.received.iter();
    received
        .filter(|message| message["type"] == "tool.propose")
        .collect()
}

#[tokio::test]
async fn copilot_asks_by_the_hooks_of_its_plugin() {
    let (server, mut ann) = start_session(json!({})).await;
    let client = start(&server, "copilot", &["-p", "go"]).await;
    let hooks = read_json(&client.after("--plugin-dir").join("hooks.json"));
    let command = |event: &str| {
        hooks["hooks"][event][0]["bash"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let call = json!({
        "sessionId": "s", "timestamp": 1, "cwd": client.cli.workdir(), "toolName": "bash",
        "toolArgs": { "command": "touch made", "description": "why" },
    });
    let hook = client.hook(&command("preToolUse"), call.clone()).await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch made");
    assert_eq!(proposals(&ann)[0]["payload"]["degree"], "hooked");
    approve(&mut ann, &gate).await;
    let answer = answer_of(hook).await;
    assert_eq!(answer, json!({ "permissionDecision": "allow" }));
    let mut ended = call;
    ended["error"] = "Path does not exist".into();
    answer_of(client.hook(&command("postToolUseFailure"), ended).await).await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_eq!(result["error"], "Path does not exist");
    let ended = client.run.ended().await;
    assert_eq!(ended.code, Some(7), "{}", ended.err);
}

#[tokio::test]
async fn gemini_has_our_tools_and_its_hooks_as_one_participant() {
    let (server, mut ann) = start_session(json!({ "client_reads": "workspace" })).await;
    let client = start(&server, "gemini", &["--yolo", "-p", "go"]).await;
    let policy = std::fs::read_to_string(client.after("--admin-policy")).unwrap();
    assert_contains(&policy, &["\"run_shell_command\"", "decision = \"deny\""]);
    let home = Path::new(client.variable("GEMINI_CLI_HOME"));
    let settings = read_json(&home.join(".gemini/settings.json"));
    assert!(!settings.to_string().contains("token"), "{settings}");
    let server_words = settings["mcpServers"]["pvp"].clone();
    let words = server_words["args"].as_array().unwrap().iter();
    let words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
    // The tools run here, each as a proposal of the same participant.
    let mut command = client.cli.command(&words);
    let process = CliProcess::spawn(command.stdin(Stdio::piped()));
    let mut tools = McpClient::over(CliEnv::new(), process, client.participant.clone()).await;
    let call = tools.shell("touch made").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch made");
    let proposed = proposals(&ann)[0];
    assert_eq!(proposed["sender"], client.participant);
    // It is the client that was started, whatever its part that speaks MCP calls itself.
    let origin = &proposed["payload"]["origin"];
    assert_eq!(origin["client"], "gemini", "{proposed}");
    assert_eq!(origin["call"], call.to_string());
    assert_eq!(proposed["payload"].get("degree"), None);
    approve(&mut ann, &gate).await;
    let result = tools.response(call).await;
    assert_eq!(result["result"]["isError"], false, "{result}");
    assert!(client.cli.workdir().join("made").exists());
    // Its hook has nothing to say about our own tools, and asks about the others.
    let hook = settings["hooks"]["BeforeTool"][0]["hooks"][0]["command"].clone();
    let hook = hook.as_str().unwrap();
    let event = |tool: &str, input: Value| {
        json!({
            "session_id": "s", "cwd": client.cli.workdir(), "hook_event_name": "BeforeTool",
            "tool_name": tool, "tool_input": input,
        })
    };
    let mut own = event("mcp_pvp_shell", json!({ "command": "ls" }));
    own["mcp_context"] = json!({
        "server_name": "pvp", "tool_name": "shell",
        "command": server_words["command"], "args": server_words["args"],
    });
    assert_eq!(
        answer_of(client.hook(hook, own.clone()).await).await,
        Value::Null
    );
    let mut other_program = own.clone();
    other_program["mcp_context"]["command"] = "/usr/bin/evil".into();
    let mut other_relay = own.clone();
    other_relay["mcp_context"]["args"][2] = "/tmp/evil".into();
    let mut other_session = own.clone();
    other_session["mcp_context"]["args"] = json!(["mcp", "--link", "http://127.0.0.1:9/"]);
    for posing in [other_program, other_relay, other_session] {
        let posing = client.hook(hook, posing).await;
        let (gate, _) = next_gate(&mut ann).await;
        crate::reject(&mut ann, &gate, "not ours").await;
        assert_eq!(answer_of(posing).await["decision"], "deny");
    }
    // What the client runs itself is not taken for a command of the executor.
    let file = client.cli.workdir().join("made");
    let read = event("read_file", json!({ "file_path": file }));
    let answer = answer_of(client.hook(hook, read.clone()).await).await;
    assert_eq!(answer["decision"], "allow");
    let mut done = read;
    done["hook_event_name"] = "AfterTool".into();
    done["tool_response"] = json!({ "llmContent": "it is empty" });
    answer_of(client.hook(hook, done).await).await;
    ann.sync().await;
    let proposal = proposals(&ann).last().unwrap()["id"].clone();
    let received = ann.received.iter();
    let results: Vec<_> = received
        .filter(|message| message["type"] == "tool.result")
        .map(|message| &message["payload"])
        .filter(|result| result["tool_proposal"] == proposal)
        .collect();
    assert_eq!(results.len(), 1, "{results:?}");
    assert_eq!(results[0]["attested"], true);
    assert_eq!(results[0]["result"]["stdout"], "it is empty");
    drop(tools);
    let Running { run, cli, .. } = client;
    let ended = run.ended().await;
    assert_eq!(ended.code, Some(7), "{}", ended.err);
    ann.wait_for("session.leave").await;
    drop(cli);
}

/// The hook of a client that hears what is typed, and what the client says to it.
fn prompt_hook(client: &Running, name: &str) -> (String, Value) {
    let cwd = client.cli.workdir();
    match name {
        "copilot" => {
            let hooks = read_json(&client.after("--plugin-dir").join("hooks.json"));
            let hook = hooks["hooks"]["userPromptSubmitted"][0]["bash"].clone();
            let said = json!({ "sessionId": "s", "timestamp": 1, "cwd": cwd, "prompt": "fix it" });
            (hook.as_str().unwrap().to_owned(), said)
        }
        "gemini" => {
            let home = Path::new(client.variable("GEMINI_CLI_HOME"));
            let settings = read_json(&home.join(".gemini/settings.json"));
            let hook = settings["hooks"]["BeforeAgent"][0]["hooks"][0]["command"].clone();
            let said = json!({
                "session_id": "s", "cwd": cwd, "hook_event_name": "BeforeAgent",
                "prompt": "fix it",
            });
            (hook.as_str().unwrap().to_owned(), said)
        }
        _ => {
            let config = client.variable("OPENCODE_CONFIG_CONTENT");
            let config: Value = serde_json::from_str(config).unwrap();
            let plugin = config["plugin"][0].as_str().unwrap();
            let plugin = std::fs::read_to_string(plugin.strip_prefix("file://").unwrap()).unwrap();
            let place = plugin
                .lines()
                .next()
                .unwrap()
                .strip_prefix("const place = ");
            let place: Value = serde_json::from_str(place.unwrap()).unwrap();
            let words = place["words"].as_array().unwrap().iter();
            let words: Vec<_> = words
                .map(|word| format!("'{}'", word.as_str().unwrap()))
                .collect();
            let said = json!({
                "event": "prompt", "sessionID": "s", "directory": cwd, "prompt": "fix it",
            });
            (words.join(" "), said)
        }
    }
}

#[tokio::test]
async fn what_is_typed_into_a_client_is_a_prompt_of_the_person_there() {
    let (server, mut ann) = start_session(json!({})).await;
    let dee = server.invite("dee", &["driver"], &[]);
    for name in ["copilot", "gemini", "opencode"] {
        let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
        let client = start_in(cli, &server, name, &["-p", "go"]).await;
        let (hook, said) = prompt_hook(&client, name);
        answer_of(client.hook(&hook, said).await).await;
        let prompt = ann.wait_for("prompt.submit").await;
        assert_eq!(prompt["sender"], dee.participant, "{name}");
        let payload = &prompt["payload"];
        assert_eq!(payload["content"], "fix it", "{name}");
        assert_eq!(payload["target_agent"], client.participant, "{name}");
        assert_eq!(payload["contributors"], json!([dee.participant]), "{name}");
        let origin = (&payload["origin"]["client"], &payload["origin"]["session"]);
        assert_eq!(origin, (&json!(name), &json!("s")));
    }
}

#[tokio::test]
async fn a_repository_that_would_switch_it_off_is_refused_with_the_file() {
    let (server, _ann) = start_session(json!({})).await;
    for (name, file, text) in [
        (
            "copilot",
            ".claude/settings.json",
            r#"{"disableAllHooks": true}"#,
        ),
        (
            "copilot",
            ".github/copilot/settings.local.json",
            r#"{"disableAllHooks": true}"#,
        ),
        (
            "gemini",
            ".gemini/settings.json",
            r#"{"hooksConfig": {"enabled": false}}"#,
        ),
        (
            "gemini",
            ".gemini/settings.json",
            r#"{"mcpServers": {"pvp": {}}}"#,
        ),
    ] {
        let cli = CliEnv::new();
        let user = server.invite("other", &["driver"], &["--kind", "agent"]);
        let link = server.link(&user, Some("owl"));
        let path = cli.workdir().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let program = install(&cli, name);
        // Also if the person trusts what the repository runs.
        let arguments = ["run", "--trust-project", "--", program.to_str().unwrap()];
        let refused = cli
            .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
            .await;
        let said = refused.expect_refused(&arguments);
        assert_contains(&said, &[file, "switch the supervision off"]);
        assert!(!program.with_extension("args").exists());
    }
}

/// What a repository makes a client run, by the client.
const BROUGHT_ALONG: [(&str, &str, &str); 6] = [
    ("opencode", ".opencode/plugin/evil.js", "evil()"),
    ("opencode", "opencode.jsonc", r#"{"mcp": {}} // evil"#),
    ("gemini", ".gemini/.env", "LD_PRELOAD=./evil.so"),
    ("gemini", ".gemini/settings.json", r#"{"mcpServers": {}}"#),
    ("copilot", ".mcp.json", r#"{"mcpServers": {}}"#),
    ("codex", ".codex/config.toml", "[mcp_servers.evil]"),
];

#[tokio::test]
async fn what_a_repository_would_run_is_refused_before_anything_of_the_client_runs() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("other", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    for (name, file, text) in BROUGHT_ALONG {
        let cli = CliEnv::new();
        let path = cli.workdir().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let program = install(&cli, name);
        let ran = cli.home().join("ran");
        let script = format!("#!/bin/sh\ntouch '{}'\n", ran.display());
        std::fs::write(&program, script).unwrap();
        for words in [["run", "--"], ["agent", "--acp"], ["acp", "--"]] {
            let arguments = [words[0], words[1], program.to_str().unwrap()];
            let refused = cli
                .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
                .await;
            let said = refused.expect_refused(&arguments);
            let directory = file.split('/').next().unwrap();
            assert_contains(
                &said,
                &[directory, "without asking anybody", "--trust-project"],
            );
            assert!(!ran.exists(), "{words:?} {name} {file}");
        }
    }
}

#[tokio::test]
async fn over_acp_opencode_is_told_to_ask_and_not_to_use_the_settings_of_a_repository() {
    let (server, _ann) = start_session(json!({})).await;
    for words in [&["agent", "--acp"][..], &["acp", "--"]] {
        let user = server.invite("other", &["driver"], &["--kind", "agent"]);
        let cli = CliEnv::new();
        let program = install(&cli, "opencode");
        let mut command = cli.command(words);
        command.arg(&program).stdin(Stdio::piped());
        command.env("PVP_AGENT_LINK", server.link(&user, Some("owl")));
        command.env(
            "OPENCODE_PERMISSION",
            r#"{"bash": {"rm *": "deny"}, "edit": "deny"}"#,
        );
        let _run = CliProcess::spawn(&mut command);
        let arguments = program.with_extension("args");
        wait_until("the agent runs", || arguments.exists()).await;
        let environment = std::fs::read_to_string(program.with_extension("env")).unwrap();
        assert_contains(
            &environment,
            &[
                r#"OPENCODE_PERMISSION={"*":"ask","bash":"ask""#,
                r#""edit":"deny""#,
                "OPENCODE_DISABLE_PROJECT_CONFIG=1",
            ],
        );
    }
}

#[tokio::test]
async fn what_a_repository_runs_is_named_if_a_person_trusts_it() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("other", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    for (name, file, text) in BROUGHT_ALONG {
        if name == "codex" {
            // It is more than a program that can be stood in for by a script.
            continue;
        }
        let cli = CliEnv::new();
        let path = cli.workdir().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        let program = install(&cli, name);
        let arguments = ["run", "--trust-project", "--", program.to_str().unwrap()];
        let ended = cli
            .run_with_env(&arguments, &[("PVP_AGENT_LINK", &link)])
            .await;
        assert_eq!(ended.code, Some(7), "{}", ended.err);
        let directory = file.split('/').next().unwrap();
        assert_contains(&ended.err, &[directory, "without asking anybody"]);
        let environment = std::fs::read_to_string(program.with_extension("env")).unwrap();
        assert!(!environment.contains("OPENCODE_DISABLE_PROJECT_CONFIG"));
    }
}
