//! `pvp mcp` with a real server: what a client calls, what people decide, and what it reads.

use serde_json::{Value, json};

use crate::fixture::{assert_contains, assert_starts_with, extract_ref};
use crate::support::agent_process::processes_in;
use crate::support::cli::CliEnv;
use crate::support::mcp_client::{McpClient, McpResult, spawn};
use crate::support::session::{proposal_of, result_of, wait_for_output, wait_until};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

async fn start() -> (TestServer, TestClient, McpClient) {
    let (server, ann) = start_session(json!({})).await;
    let client = McpClient::start(&server, "owl").await;
    (server, ann, client)
}

/// Another person who may approve.
async fn join_bob(server: &TestServer) -> TestClient {
    let bob = server.invite("bob", &["approver"], &[]);
    server.join("owl", &bob).await
}

/// Edits what waits at a gate, and lets somebody else approve the edit.
async fn edit_and_approve(
    ann: &mut TestClient,
    bob: &mut TestClient,
    gate: &str,
    arguments: Value,
) {
    let request = ann.received.iter().find(|message| message["id"] == *gate);
    let digest = request.unwrap()["payload"]["digest"].clone();
    let amend =
        json!({ "gate": gate, "arguments": arguments, "digest": digest, "reason": "safer" });
    ann.send_and_ack("gate.amend", amend).await;
    let amended = bob.wait_for("gate.amend").await;
    let digest = &amended["payload"]["assessment"]["digest"];
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
}

fn gate_count(ann: &TestClient) -> usize {
    let received = ann.received.iter();
    received
        .filter(|message| message["type"] == "gate.request")
        .count()
}

#[tokio::test]
async fn a_client_is_told_how_it_works_and_which_tools_there_are() {
    let (_server, _ann, mut client) = start().await;
    let directory = client.cli.workdir();
    assert_eq!(client.welcome["serverInfo"]["name"], "pvp");
    assert_contains(
        client.welcome["instructions"].as_str().unwrap(),
        &[
            &format!("Current directory: {}.", directory.display()),
            "State does not persist between commands",
            "run at once",
            "people are asked first",
        ],
    );
    let id = client.request("tools/list", json!({})).await;
    let response = client.response(id).await;
    let tools = response["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| &tool["name"]).collect();
    let expected = [
        "shell",
        "read_file",
        "write_file",
        "edit_file",
        "recall",
        "jobs",
        "approve",
    ];
    assert_eq!(names, expected);
    assert!(
        tools
            .iter()
            .all(|tool| tool["inputSchema"]["type"] == "object")
    );
}

#[tokio::test]
async fn a_read_runs_unasked_and_its_output_is_the_result() {
    let (_server, mut ann, mut client) = start().await;
    let id = client.shell("echo hello; seq 30").await;
    let result = client.result(id).await;
    assert!(!result.is_error, "{result:?}");
    assert_starts_with(
        &result.text,
        "Exit code: 0 | stdout: 31 lines | stderr: 0 lines",
    );
    let arguments = json!({ "ref": extract_ref(&result.text), "head": 1 });
    let id = client.call("recall", arguments).await;
    assert_contains(&client.result(id).await.text, &["hello"]);
    // Whether a command failed is part of the result.
    let id = client.shell("ls no-such-file").await;
    let failed = client.result(id).await;
    assert!(failed.is_error);
    assert_starts_with(
        &failed.text,
        "Exit code: 2 | stdout: 0 lines | stderr: 1 line",
    );
    ann.sync().await;
    assert_eq!(gate_count(&ann), 0);
}

#[tokio::test]
async fn a_write_waits_for_approval() {
    let (_server, mut ann, mut client) = start().await;
    let id = client.shell("echo done > made").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "echo done > made");
    assert_eq!(client.read_file("made"), "");
    approve(&mut ann, &gate).await;
    let result = client.result(id).await;
    assert!(!result.is_error, "{result:?}");
    assert_starts_with(&result.text, "Exit code: 0");
    assert_eq!(client.read_file("made"), "done\n");
}

/// The latest proposal that a person was told of.
fn last_proposal(person: &TestClient) -> Value {
    let mut received = person.received.iter().rev();
    let proposed = received.find(|message| message["type"] == "tool.propose");
    proposed.unwrap()["payload"].clone()
}

#[tokio::test]
async fn a_card_names_the_client_and_says_that_our_executor_runs_its_call() {
    let (server, mut ann) = start_session(json!({})).await;
    let info = json!({ "name": "cursor-vscode", "version": "1.9.2", "title": "Cursor" });
    let mut client = McpClient::start_as(&server, "owl", info).await;
    let id = client.shell("touch made").await;
    let (gate, _) = next_gate(&mut ann).await;
    let origin = |call: u64| {
        let call = call.to_string();
        json!({ "client": "cursor-vscode", "version": "1.9.2", "call": call })
    };
    let proposed = last_proposal(&ann);
    assert_eq!(proposed["origin"], origin(id), "{proposed}");
    assert_eq!(
        (proposed.get("runs"), proposed.get("degree")),
        (None, None),
        "an executor of ours runs it"
    );
    let reader = server.invite("reader", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&reader, Some("owl"))).await;
    let said = "\nruns      executed (cursor-vscode 1.9.2): PVP's executor runs exactly this\n";
    let proposal = proposal_of(&ann, &gate);
    let open = cli.run_ok(&["show", &proposal]).await;
    assert!(open.contains(said), "{open}");
    approve(&mut ann, &gate).await;
    assert!(!client.result(id).await.is_error);
    let over = cli.run_ok(&["show", &proposal]).await;
    assert!(over.contains(said), "{over}");
    // Calls of file tools and reads name it too.
    let arguments = json!({ "path": "notes", "content": "milk\n", "purpose": "a list" });
    let id = client.call("write_file", arguments).await;
    let (gate, _) = next_gate(&mut ann).await;
    assert_eq!(last_proposal(&ann)["origin"], origin(id));
    reject(&mut ann, &gate, "no").await;
    client.result(id).await;
    let id = client.shell("ls").await;
    client.result(id).await;
    ann.sync().await;
    assert_eq!(last_proposal(&ann)["origin"], origin(id));
}

#[tokio::test]
async fn nothing_that_a_client_says_of_itself_makes_its_calls_fail() {
    let long = "\u{1f989}".repeat(100_000);
    for (info, name, version) in [
        (json!({ "name": "", "version": "" }), "mcp-client", None),
        (
            json!({ "name": "a\u{202e}b\n", "version": "\u{1b}[2K" }),
            r"a\u{202e}b",
            Some(r"\u{1b}[2K"),
        ),
        (
            json!({ "name": long, "version": long }),
            &long[..60 * 4],
            Some(&long[..60 * 4]),
        ),
    ] {
        let (server, mut ann) = start_session(json!({})).await;
        let mut client = McpClient::start_as(&server, "owl", info).await;
        let id = client.shell("ls").await;
        let result = client.result(id).await;
        assert!(!result.is_error, "{result:?}");
        ann.sync().await;
        let origin = &last_proposal(&ann)["origin"];
        assert_eq!(origin["client"], name);
        assert_eq!(origin["version"].as_str(), version);
    }
}

#[tokio::test]
async fn a_rejection_says_who_and_why() {
    let (_server, mut ann, mut client) = start().await;
    let id = client.shell("touch made").await;
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "not on a Friday").await;
    let result = client.result(id).await;
    assert!(result.is_error);
    let who = &ann.participant;
    let expected =
        format!("Rejected by {who}, with the reason: not on a Friday. Nothing was done.");
    assert_starts_with(&result.text, &expected);
}

#[tokio::test]
async fn an_edited_command_runs_as_edited_and_the_result_says_so() {
    let (server, mut ann, mut client) = start().await;
    let mut bob = join_bob(&server).await;
    let id = client.shell("touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    let arguments = json!({ "full_command": "touch b" });
    edit_and_approve(&mut ann, &mut bob, &gate, arguments).await;
    let result = client.result(id).await;
    assert!(!result.is_error, "{result:?}");
    assert_contains(&result.text, &["This is not what you proposed", "touch b"]);
    let made = client.cli.workdir();
    assert!(made.join("b").exists() && !made.join("a").exists());
}

#[tokio::test]
async fn a_blocked_command_says_which_rule_blocked_it() {
    let (_server, mut ann, mut client) = start().await;
    let id = client.shell("rm -rf /").await;
    let result = client.result(id).await;
    assert!(result.is_error);
    assert_starts_with(&result.text, "Blocked: this command never runs here");
    assert_contains(&result.text, &["(rule ", "Nothing was done."]);
    ann.sync().await;
    assert_eq!(gate_count(&ann), 0);
}

#[tokio::test]
async fn progress_says_who_is_asked_and_who_has_approved() {
    let two = json!({ "quorum_by_category": { "write": { "type": "any", "count": 2 } } });
    let (server, mut ann) = start_session(two).await;
    let mut bob = join_bob(&server).await;
    let mut client = McpClient::start(&server, "owl").await;
    let arguments = json!({ "command": "touch made", "purpose": "a test" });
    let id = client.call_with_progress("shell", arguments).await;
    let (gate, _) = next_gate(&mut ann).await;
    assert_eq!(
        client.next_progress(id).await,
        "waiting for 2 approvals (ann, bob may approve), 0 of 2, 0 s"
    );
    approve(&mut ann, &gate).await;
    let progress = loop {
        let progress = client.next_progress(id).await;
        if progress.contains("approved") {
            break progress;
        }
    };
    let expected = "waiting for 2 approvals (ann approved; bob may approve), 1 of 2, ";
    assert_starts_with(&progress, expected);
    // It is told that nothing has changed, too.
    assert_starts_with(&client.next_progress(id).await, expected);
    assert_eq!(client.read_file("made"), "");
    approve(&mut bob, &gate).await;
    assert!(!client.result(id).await.is_error);
    assert!(client.cli.workdir().join("made").exists());
}

#[tokio::test]
async fn files_are_written_edited_and_read() {
    let (_server, mut ann, mut client) = start().await;
    let arguments = json!({ "path": "notes", "content": "milk\nbread\n", "purpose": "a list" });
    let id = client.call("write_file", arguments).await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert!(!client.result(id).await.is_error);
    assert_eq!(client.read_file("notes"), "milk\nbread\n");
    let arguments =
        json!({ "path": "notes", "old_text": "bread", "new_text": "eggs", "purpose": "better" });
    let id = client.call("edit_file", arguments).await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert!(!client.result(id).await.is_error);
    let id = client.call("read_file", json!({ "path": "notes" })).await;
    assert_contains(&client.result(id).await.text, &["milk\neggs"]);
    ann.sync().await;
    assert_eq!(gate_count(&ann), 2, "the read needs no vote");
    // Mistakes name the tools as the client knows them.
    let id = client.call("edit_file", json!({ "path": "notes" })).await;
    let mistake = client.result(id).await;
    assert!(mistake.is_error);
    assert_contains(
        &mistake.text,
        &["`old_text` is missing", "call `edit_file` again"],
    );
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let (_server, mut ann, mut client) = start().await;
    let waiting = client.shell("touch made").await;
    let (gate, _) = next_gate(&mut ann).await;
    let mut reads = Vec::new();
    for number in 0..10 {
        reads.push(client.shell(&format!("echo {number}")).await);
    }
    for (number, id) in reads.into_iter().enumerate() {
        let result = client.result(id).await;
        assert_contains(&result.text, &[&format!("stdout:\n{number}")]);
    }
    approve(&mut ann, &gate).await;
    assert!(!client.result(waiting).await.is_error);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_is_withdrawn() {
    let (_server, mut ann, mut client) = start().await;
    let id = client.shell("touch made").await;
    let (gate, _) = next_gate(&mut ann).await;
    client.cancel(id).await;
    let resolve = ann.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["gate"], gate.as_str());
    assert_eq!(resolve["payload"]["outcome"], "cancelled");
    assert_eq!(
        resolve["payload"]["reason"],
        "the client cancelled the call"
    );
    // The next call works, and the cancelled one has no answer.
    let next = client.shell("echo next").await;
    assert!(!client.result(next).await.is_error);
    assert_eq!(client.unread(), &[] as &[Value]);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_runs_is_stopped() {
    let (_server, mut ann, mut client) = start().await;
    let id = client.shell("echo begun; touch made; sleep 600").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    wait_for_output(&mut ann, "begun").await;
    client.cancel(id).await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_contains(
        result["error"].as_str().unwrap(),
        &["the client cancelled the call"],
    );
    assert!(!is_running(&client, "sleep 600"));
}

fn is_running(client: &McpClient, command: &str) -> bool {
    let mut processes = processes_in(&client.cli.workdir()).into_iter();
    processes.any(|(_, line)| line.trim() == command)
}

#[tokio::test]
async fn when_the_client_goes_nothing_of_it_stays() {
    let (_server, mut ann, mut client) = start().await;
    client.shell("echo begun; touch made; sleep 600").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    wait_for_output(&mut ann, "begun").await;
    let running = proposal_of(&ann, &gate);
    client.shell("touch other").await;
    let (waiting, _) = next_gate(&mut ann).await;
    let McpClient { cli, process, .. } = client;
    let ended = process.ended().await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    let result = result_of(&mut ann, &running).await;
    assert_starts_with(result["error"].as_str().unwrap(), "stopped: ");
    let of_waiting = |message: &Value| {
        message["type"] == "gate.resolve" && message["payload"]["gate"] == waiting.as_str()
    };
    let resolve = ann.wait(of_waiting).await;
    assert_eq!(resolve["payload"]["outcome"], "cancelled");
    assert_eq!(processes_in(&cli.workdir()), []);
}

#[tokio::test]
async fn a_killed_server_of_a_client_leaves_no_command_behind() {
    let (_server, mut ann, mut client) = start().await;
    client.shell("echo begun; touch made; sleep 600").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    wait_for_output(&mut ann, "begun").await;
    client.process.kill_9().await;
    let directory = client.cli.workdir();
    wait_until("nothing is left", || processes_in(&directory).is_empty()).await;
}

#[tokio::test]
async fn without_a_server_it_does_not_start() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    server.stop().await;
    let cli = CliEnv::new();
    let ended = spawn(&cli, &link, &[]).ended().await;
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert_starts_with(&ended.err, "pvp: ");
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_was_restarted() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let (mut server, mut ann) = crate::support::session::create_session_on(server, json!({})).await;
    let user = ann_user(&server);
    let mut client = McpClient::start(&server, "owl").await;
    let id = client.shell("touch made").await;
    let (gate, _) = next_gate(&mut ann).await;
    let address = server.address.clone();
    server.kill_9().await;
    let late = client.shell("echo late").await;
    drop(server);
    let server = TestServer::start_on(data.path(), &address, &[]).await;
    let mut ann = server.join("owl", &user).await;
    approve(&mut ann, &gate).await;
    let result = client.result(id).await;
    assert!(!result.is_error, "{result:?}");
    assert_contains(&client.result(late).await.text, &["stdout:\nlate"]);
}

/// One more person with every role, who can join again after a restart.
fn ann_user(server: &TestServer) -> crate::support::TestUser {
    server.invite("cem", &["driver", "approver", "admin"], &[])
}

#[tokio::test]
async fn when_the_session_has_ended_calls_fail_and_approvals_are_denied() {
    let (_server, mut ann, mut client) = start().await;
    let waiting = client.shell("touch made").await;
    next_gate(&mut ann).await;
    ann.send_and_ack(
        "session.end",
        json!({ "reason": "enough", "final_state": "completed" }),
    )
    .await;
    let result = client.result(waiting).await;
    assert!(result.is_error);
    assert_contains(&result.text, &["Nothing was done."]);
    let id = client.shell("echo late").await;
    let late = client.result(id).await;
    assert!(late.is_error);
    assert_contains(&late.text, &["the connection to the session has ended"]);
    let (behavior, message) = decision(&mut client, "Bash", json!({ "command": "ls" })).await;
    assert_eq!(behavior, "deny");
    assert_contains(&message, &["the connection to the session has ended"]);
    let ended = client.process.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn garbage_is_answered_or_skipped_and_the_next_call_works() {
    let (_server, _ann, mut client) = start().await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_call = format!(
        r#"{{"jsonrpc":"2.0","id":900,"method":"tools/call","params":{{"name":"shell","arguments":{{"command":{deep}}}}}}}"#
    );
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":901,"method":"{}"}}"#,
        "x".repeat(9 << 20)
    );
    for line in [
        "",
        "not json",
        "{",
        "\u{0}\u{1}",
        "[]",
        "null",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":902,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
        deep.as_str(),
        deep_call.as_str(),
        long.as_str(),
    ] {
        client.process.write_line(line).await;
    }
    for (params, needed) in [
        (
            json!({ "name": "python", "arguments": {} }),
            "there is no tool \\\"python\\\"",
        ),
        (
            json!({ "name": "file_read", "arguments": { "path": "a" } }),
            "there is no tool",
        ),
        (json!({ "arguments": {} }), "error"),
        (json!(null), "error"),
    ] {
        let id = client.request("tools/call", params).await;
        let response = client.response(id).await;
        assert!(response["error"].is_object(), "{response}");
        assert_contains(&response.to_string(), &[needed]);
    }
    let id = client.request("no/such/method", json!({})).await;
    assert_eq!(client.response(id).await["error"]["code"], -32601);
    let wide = json!({ "path": "a", "content": "x".repeat(2 << 20), "purpose": "fill" });
    for (tool, arguments, needed) in [
        ("shell", json!({}), "`command` is missing"),
        (
            "shell",
            json!({ "command": 1 }),
            "`command` must be a string.",
        ),
        (
            "shell",
            json!({ "command": "ls", "x": 1 }),
            "There is no argument \"x\"",
        ),
        (
            "jobs",
            json!({ "action": "kill" }),
            "`action` must be list or stop",
        ),
        ("recall", json!({ "ref": "../.." }), "is not a ref"),
        (
            "write_file",
            json!({ "path": "../a", "content": "", "purpose": "" }),
            "Nothing was done",
        ),
        ("write_file", wide, "the arguments have 20971"),
    ] {
        let id = client.call(tool, arguments).await;
        let result = client.result(id).await;
        assert!(result.is_error, "{result:?}");
        assert_contains(&result.text, &[needed]);
    }
    let id = client.shell("echo still here").await;
    assert_contains(&client.result(id).await.text, &["still here"]);
}

#[tokio::test]
async fn calls_beyond_a_limit_are_refused_at_once_and_memory_stays_bounded() {
    let (_server, mut ann, mut client) = start().await;
    let mut ids = Vec::new();
    for number in 0..3000 {
        ids.push(client.shell(&format!("touch {number}")).await);
    }
    let refused = |message: &Value| {
        message
            .to_string()
            .contains("64 calls are under way already")
    };
    client.wait(refused).await;
    // Everything is answered, once those that wait have been withdrawn.
    for id in ids.clone() {
        client.cancel(id).await;
    }
    let ping = client.request("ping", json!({})).await;
    client.response(ping).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.process.pid())).unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 200 * 1024, "{peak}");
    next_gate(&mut ann).await;
    // Those that waited were withdrawn, so there is room again.
    loop {
        let id = client.shell("echo room").await;
        if client.result(id).await.text.contains("stdout:\nroom") {
            break;
        }
    }
}

/// Asks for a call of the client's own tools; returns the request's id.
async fn ask(client: &mut McpClient, tool: &str, input: Value) -> u64 {
    let arguments = json!({ "tool_name": tool, "input": input, "tool_use_id": "toolu_1" });
    client.call("approve", arguments).await
}

fn parse_decision(result: &McpResult) -> Value {
    assert!(
        !result.is_error,
        "a client would take it for a broken tool: {result:?}"
    );
    serde_json::from_str(&result.text).unwrap()
}

/// Asks for a call and returns the behavior and the message of the denial.
async fn decision(client: &mut McpClient, tool: &str, input: Value) -> (String, String) {
    let id = ask(client, tool, input).await;
    let decision = parse_decision(&client.result(id).await);
    let text = |name: &str| decision[name].as_str().unwrap_or_default().to_owned();
    (text("behavior"), text("message"))
}

#[tokio::test]
async fn a_permission_prompt_is_allowed_with_its_input() {
    let (_server, mut ann, mut client) = start().await;
    let input = json!({ "command": "touch made", "description": "make it" });
    let id = ask(&mut client, "Bash", input.clone()).await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    let allowed = parse_decision(&client.result(id).await);
    assert_eq!(
        allowed,
        json!({ "behavior": "allow", "updatedInput": input })
    );
    // The client runs it, and our executor does not.
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(
        (&result["attested"], &result["outcome"]),
        (&json!(true), &json!("unknown"))
    );
    assert!(!client.cli.workdir().join("made").exists());
}

#[tokio::test]
async fn a_permission_prompt_about_a_read_is_asked_about() {
    let (server, mut ann) = start_session(json!({ "client_reads": "workspace" })).await;
    let mut client = McpClient::start(&server, "owl").await;
    // Wherever the client works, which it does not say.
    for (id, tool, input) in [
        (
            "toolu_1",
            "Grep",
            json!({ "pattern": "x", "path": "notes" }),
        ),
        ("toolu_2", "Bash", json!({ "command": "ls" })),
    ] {
        let arguments = json!({ "tool_name": tool, "input": input, "tool_use_id": id });
        client.call("approve", arguments).await;
        next_gate(&mut ann).await;
    }
}

#[tokio::test]
async fn what_its_commands_run_decides_nothing_for_a_person() {
    let (_server, mut ann, mut client) = start().await;
    let script = format!("'{}' approve 123456\n", env!("CARGO_BIN_EXE_pvp"));
    std::fs::write(client.cli.workdir().join("build.sh"), script).unwrap();
    let id = client.shell("sh build.sh").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    let result = client.result(id).await;
    assert_contains(&result.text, &["run it in another terminal"]);
}

#[tokio::test]
async fn a_permission_prompt_is_denied_with_who_and_why() {
    let (_server, mut ann, mut client) = start().await;
    let input = json!({ "file_path": "a", "content": "b" });
    let id = ask(&mut client, "Write", input).await;
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "not that file").await;
    let denied = parse_decision(&client.result(id).await);
    assert_eq!(denied["behavior"], "deny");
    let expected = format!("Rejected by {}: not that file.", ann.participant);
    assert_starts_with(denied["message"].as_str().unwrap(), &expected);
    for arguments in [json!({}), json!({ "tool_name": "Bash", "input": "ls" })] {
        let id = client.call("approve", arguments).await;
        let denied = parse_decision(&client.result(id).await);
        assert_eq!(denied["behavior"], "deny", "{denied}");
    }
}

#[tokio::test]
async fn a_permission_prompt_is_allowed_as_people_edited_it() {
    let (server, mut ann, mut client) = start().await;
    let mut bob = join_bob(&server).await;
    let id = ask(
        &mut client,
        "Write",
        json!({ "file_path": "a", "content": "b" }),
    )
    .await;
    let (gate, _) = next_gate(&mut ann).await;
    let edited = json!({ "path": "a", "content": "c", "files": [{ "path": "a" }] });
    edit_and_approve(&mut ann, &mut bob, &gate, edited).await;
    let edited = json!({ "file_path": "a", "content": "c" });
    let allowed = parse_decision(&client.result(id).await);
    assert_eq!(
        allowed,
        json!({ "behavior": "allow", "updatedInput": edited })
    );
}

#[tokio::test]
async fn a_permission_prompt_that_is_cancelled_is_withdrawn() {
    let (_server, mut ann, mut client) = start().await;
    let id = ask(&mut client, "Bash", json!({ "command": "make" })).await;
    let (gate, _) = next_gate(&mut ann).await;
    client.cancel(id).await;
    let resolve = ann.wait_for("gate.resolve").await;
    assert_eq!(resolve["payload"]["gate"], gate.as_str());
    assert_eq!(resolve["payload"]["outcome"], "cancelled");
}
