//! Commands that people run themselves: who executes them, how, and which need no gate.

use serde_json::{Value, json};

use crate::support::agent_process::AgentProcess;
use crate::support::cli::CliEnv;
use crate::support::program::write_program;
use crate::support::session::{
    approve, collect_output, next_gate, proposal_of, reject, result_of, start_session,
};
use crate::support::{TestClient, TestServer};

/// Sends `shell.exec`; returns its id.
async fn send_shell_exec(person: &mut TestClient, command: &str, more: Value) -> String {
    let mut payload = json!({ "command": command });
    for (key, value) in more.as_object().unwrap() {
        payload[key] = value.clone();
    }
    person.send("shell.exec", payload).await
}

/// Sends `shell.exec` and waits for its result.
async fn run_shell_exec(person: &mut TestClient, command: &str, more: Value) -> Value {
    let id = send_shell_exec(person, command, more).await;
    person.expect_ack(&id).await;
    result_of(person, &id).await
}

/// Sends `shell.exec`, which must be refused; returns the reason.
async fn shell_exec_refusal(person: &mut TestClient, command: &str, more: Value) -> String {
    let id = send_shell_exec(person, command, more).await;
    let refusal = person.expect_refusal(&id).await;
    refusal["message"].as_str().unwrap().to_owned()
}

fn stdout(result: &Value) -> &str {
    result["result"]["stdout"].as_str().unwrap()
}

/// How many gates were opened so far.
fn gate_count(person: &TestClient) -> usize {
    let requests = person.received.iter();
    requests
        .filter(|message| message["type"] == "gate.request")
        .count()
}

#[tokio::test]
async fn commands_run_in_the_login_shell_of_the_account() {
    let (server, mut ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    let shell = cli.home().join("shell");
    write_program(&shell, "#!/bin/sh\necho \"$1, $2\"\nexec /bin/sh \"$@\"\n");
    std::fs::write(cli.home().join(".profile"), "FROM=profile\n").unwrap();
    let script = crate::support::agent_process::write_script(&cli, "[[step]]\nwait = 'prompt'\n");
    let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let flags = ["--script", &script, "--accept-shell"];
    let environment = [("SHELL", shell.as_os_str())];
    let _agent_process = AgentProcess::start_with_link(cli, user, link, &flags, &environment).await;
    let result = run_shell_exec(&mut ann, "echo $FROM", json!({})).await;
    assert_eq!(stdout(&result), "-lc, echo $FROM\nprofile\n");
}

#[tokio::test]
async fn the_session_configures_which_own_commands_need_a_gate() {
    for (mode, at_once, at_a_gate) in [
        (
            "direct",
            &["cat made", "touch made"][..],
            &["rm -rf made"][..],
        ),
        (
            "direct_all",
            &["cat made", "touch made", "rm -rf made"],
            &[],
        ),
        ("gated", &[], &["cat made", "touch made", "rm -rf made"]),
    ] {
        let (server, mut ann) = start_session(json!({ "shell_exec": mode })).await;
        let agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
        let bob = server.invite("bob", &["approver"], &[]);
        let mut bob = server.join("owl", &bob).await;
        std::fs::write(agent_process.workspace().join("made"), "").unwrap();
        for command in at_once {
            let result = run_shell_exec(&mut ann, command, json!({})).await;
            assert_eq!(result["success"], true, "{mode} {command}: {result}");
            assert_eq!(gate_count(&ann), 0, "{mode} {command}");
        }
        for command in at_a_gate {
            let id = send_shell_exec(&mut ann, command, json!({})).await;
            let (open, line) = next_gate(&mut bob).await;
            assert_eq!(
                (line.as_str(), proposal_of(&bob, &open)),
                (*command, id.clone())
            );
            approve(&mut bob, &open).await;
            let result = result_of(&mut ann, &id).await;
            assert_eq!(result["success"], true, "{mode} {command}: {result}");
        }
        // A blocked command stays blocked and is in the log.
        let why = shell_exec_refusal(&mut ann, "rm -rf /", json!({})).await;
        assert!(why.contains("blocked by rule"), "{mode}: {why}");
        let ran = server.entries("owl");
        let ran = ran.iter().filter(|entry| entry["type"] == "tool.execute");
        assert_eq!(ran.count(), at_once.len() + at_a_gate.len());
    }
}

#[tokio::test]
async fn own_commands_can_be_switched_off() {
    let (server, mut ann) = start_session(json!({ "shell_exec": "off" })).await;
    let _agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    let why = shell_exec_refusal(&mut ann, "ls", json!({})).await;
    assert_eq!(why, "`shell_exec` is off in this session");
}

#[tokio::test]
async fn the_executor_is_the_named_one_or_the_only_one() {
    let (server, mut ann) = start_session(json!({})).await;
    let why = shell_exec_refusal(&mut ann, "pwd", json!({})).await;
    assert_eq!(
        why,
        "no agent in this session runs people's own commands; start one with `pvp agent --accept-shell`"
    );
    let one = AgentProcess::start_idle(&server, "owl", &[]).await;
    let here = |agent_process: &AgentProcess| format!("{}\n", agent_process.workspace().display());
    let result = run_shell_exec(&mut ann, "pwd", json!({})).await;
    assert_eq!(stdout(&result), here(&one));
    let two = AgentProcess::start_idle(&server, "owl", &[]).await;
    let (first, second) = (&one.user.participant, &two.user.participant);
    let why = shell_exec_refusal(&mut ann, "pwd", json!({})).await;
    for name in [first, second] {
        assert!(why.contains(name.as_str()), "{why}");
    }
    let result = run_shell_exec(&mut ann, "pwd", json!({ "executor": second })).await;
    assert_eq!(stdout(&result), here(&two));
    let herself = json!({ "executor": ann.participant });
    let why = shell_exec_refusal(&mut ann, "pwd", herself).await;
    assert!(
        why.contains("does not run people's own commands; these do:"),
        "{why}"
    );
}

#[tokio::test]
async fn limits_and_directories_are_as_requested_and_the_log_names_the_person() {
    let (server, mut ann) = start_session(json!({})).await;
    let agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    std::fs::create_dir(agent_process.workspace().join("sub")).unwrap();
    let result = run_shell_exec(
        &mut ann,
        "pwd; echo aside >&2; exit 3",
        json!({ "cwd": "sub" }),
    )
    .await;
    let sub = format!("{}/sub\n", agent_process.workspace().display());
    let body = &result["result"];
    assert_eq!(
        (
            &body["exit_code"],
            &body["signal"],
            &body["stdout"],
            &body["stderr"]
        ),
        (&json!(3), &Value::Null, &json!(sub), &json!("aside\n"))
    );
    let whole = json!({ "stdout": false, "stderr": false, "combined": false });
    assert_eq!(body["truncated"], whole);
    assert!(body["duration_ms"].is_u64() && result["duration_ms"].is_u64());
    let result = run_shell_exec(&mut ann, "pwd", json!({ "cwd": "nowhere" })).await;
    let why = result["error"].as_str().unwrap();
    assert!(why.starts_with("cannot work in "), "{why}");
    // `exec`, because a shell that waited for it would report the signal in its own way.
    let limit = json!({ "timeout_seconds": 1 });
    let result = run_shell_exec(&mut ann, "exec sleep 1000", limit).await;
    assert_eq!(result["error"], "stopped after 1 s, its time limit");
    assert_eq!(result["result"]["signal"], 15);
    let why = shell_exec_refusal(&mut ann, "ls", json!({ "timeout_seconds": 301 })).await;
    assert_eq!(why, "`timeout` is 1 to 300 seconds in this mode");
    let execs = server.entries("owl");
    let execs = execs.iter().filter(|entry| entry["type"] == "shell.exec");
    let origins: Vec<_> = execs
        .map(|entry| (&entry["sender"], &entry["payload"]["origin"]))
        .map(|(by, origin)| (by.clone(), origin.clone()))
        .collect();
    assert_eq!(origins, vec![(json!(ann.participant), json!("ui_bang")); 3]);
}

#[tokio::test]
async fn truncation_is_reported_for_each_stream() {
    let settings = [("PVP_WRITE_OUTPUT_BYTES", "1024")];
    let (server, mut ann) =
        crate::support::session::start_session_with_env(&settings, json!({})).await;
    let _agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    let id = send_shell_exec(&mut ann, "exec yes 2> /dev/null", json!({})).await;
    let result = result_of(&mut ann, &id).await;
    let cut = json!({ "stdout": true, "stderr": false, "combined": true });
    assert_eq!(result["result"]["truncated"], cut, "{result}");
    let received =
        ["stdout", "stderr"].map(|stream| collect_output(&ann.received, &id, stream).len());
    assert_eq!(received.iter().sum::<usize>(), 1024);
}

/// A CLI environment of a driver, for `pvp exec`.
async fn driver_cli(server: &TestServer) -> CliEnv {
    let dee = server.invite("dee", &["driver"], &[]);
    CliEnv::logged_in(&server.link(&dee, Some("owl"))).await
}

#[tokio::test]
async fn pvp_exec_exits_with_the_exit_code_of_the_command() {
    let (server, _ann) = start_session(json!({ "shell_exec": "direct_all" })).await;
    let _agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    let dee = server.invite("dee", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let output = cli.run(&["exec", "echo out; echo err >&2; exit 7"]).await;
    assert_eq!(
        (output.code, output.out.as_str(), output.err.as_str()),
        (Some(7), "out\n", "err\n")
    );
    let output = cli.run(&["exec", "kill -TERM $$"]).await;
    assert_eq!(output.code, Some(128 + 15), "{output:?}");
    let output = cli.run(&["exec", "true"]).await;
    assert_eq!(
        (output.code, output.out.as_str(), output.err.as_str()),
        (Some(0), "", "")
    );
    // `exec`, because a shell that waited for it would report the signal in its own way.
    let output = cli
        .run(&["exec", "--timeout", "1", "exec sleep 1000"])
        .await;
    assert_eq!(output.code, Some(128 + 15), "{output:?}");
    assert_eq!(output.err, "pvp: stopped after 1 s, its time limit\n");
    let output = cli.run(&["exec", "rm -rf /"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.err.contains("blocked"), "{output:?}");
}

#[tokio::test]
async fn pvp_exec_waits_at_a_gate_and_reports_a_rejection() {
    let (server, mut ann) = start_session(json!({ "shell_exec": "gated" })).await;
    let agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    let cli = driver_cli(&server).await;
    let mut process = cli.spawn(&["exec", "touch made"]);
    let (open, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch made");
    let notice = process.next_stderr_line().await;
    assert!(
        notice.starts_with("pvp: waiting for one approval (ann"),
        "{notice}"
    );
    reject(&mut ann, &open, "not here").await;
    let ended = process.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("the command did not run: not here"),
        "{ended:?}"
    );
    assert!(!agent_process.workspace().join("made").exists());
}

/// The last resolution of a gate in the session's log.
fn last_resolution(server: &TestServer) -> serde_json::Value {
    let entries = server.entries("owl");
    let mut resolutions = entries.iter().rev();
    let resolution = resolutions.find(|entry| entry["type"] == "gate.resolve");
    resolution.expect("a gate was resolved")["payload"].clone()
}

#[tokio::test]
async fn pvp_exec_says_that_nobody_can_approve_and_ctrl_c_withdraws_the_command() {
    let (server, mut ann) = start_session(json!({})).await;
    let agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    let dee = server.invite("dee", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    ann.send("session.leave", json!({})).await;
    ann.wait_closed().await;
    for signal in ["INT", "TERM", "HUP"] {
        let mut process = cli.spawn(&["exec", "rm -rf ."]);
        let notice = process.next_stderr_line().await;
        for part in [
            "waiting for one approval, but nobody in this session can give it",
            "pvp invite --name NAME --role approver",
            "Ctrl-C",
            "pvp cancel ",
            "pvp session set solo=true",
        ] {
            assert!(notice.contains(part), "{part}: {notice}");
        }
        process.signal(signal);
        let ended = process.ended().await;
        assert_eq!(ended.code, Some(130), "{ended:?}");
        assert!(ended.err.contains("the command did not run"), "{ended:?}");
        let resolution = last_resolution(&server);
        assert_eq!(resolution["outcome"], "cancelled");
        assert_eq!(resolution["reason"], "withdrawn by its author");
    }
    assert!(agent_process.workspace().exists());
    let sessions = cli.run_json(&["gates", "--json"]).await;
    assert_eq!(sessions["gates"], json!([]));
}

#[tokio::test]
async fn ctrl_c_stops_a_command_of_ones_own_that_runs() {
    let (server, _ann) = start_session(json!({ "shell_exec": "direct_all" })).await;
    let _agent_process = AgentProcess::start_idle(&server, "owl", &[]).await;
    let dee = server.invite("dee", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let mut process = cli.spawn(&["exec", "echo begun; exec sleep 1000"]);
    assert_eq!(process.next_line().await, "begun");
    process.signal("INT");
    let ended = process.ended().await;
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let entries = server.entries("owl");
    let result = entries.iter().find(|entry| entry["type"] == "tool.result");
    assert_eq!(result.unwrap()["payload"]["success"], false);
}
