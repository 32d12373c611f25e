//! `pvp run -- codex` with a real server: what Codex's app-server asks, what people decide, what the
//! app-server is told, and what is in the record.

use serde_json::{Value, json};

use crate::fixture::assert_contains;
use crate::support::cli::CliEnv;
use crate::support::codex_client::{CodexClient, THREAD, TURN};
use crate::support::session::{
    create_session_on, proposal_of, result_of, send_prompt, wait_for_response,
};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

/// A session, and Codex in the middle of a turn.
pub(crate) async fn start() -> (TestServer, TestClient, CodexClient) {
    let (server, ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &["exec", "go"]).await;
    codex.begin_turn().await;
    (server, ann, codex)
}

pub(crate) fn answer_to(id: u64, result: Value) -> Value {
    json!({ "id": id, "result": result })
}

pub(crate) async fn resolution_of(person: &mut TestClient, gate: &str) -> Value {
    let closed =
        |message: &Value| message["type"] == "gate.resolve" && message["payload"]["gate"] == *gate;
    person.wait(closed).await["payload"].clone()
}

/// The reason that the agent is told, which comes before the answer.
pub(crate) async fn steered(codex: &mut CodexClient) -> String {
    let steer = codex.hear().await;
    assert_eq!(steer["method"], "turn/steer", "{steer}");
    assert_eq!(steer["params"]["threadId"], THREAD);
    assert_eq!(steer["params"]["expectedTurnId"], TURN);
    let said = &steer["params"]["input"][0]["text"];
    said.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_a_command_printed_is_in_its_result_although_codex_forgets_it() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "echo one").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    approve(&mut ann, &gate).await;
    codex.hear().await;
    let delta = json!({ "threadId": THREAD, "turnId": TURN, "itemId": "call_0", "delta": "one\n" });
    codex
        .notify("item/commandExecution/outputDelta", delta)
        .await;
    codex.end_command("call_0", "echo one", "", 0).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["stdout"], "one\n");
}

#[tokio::test]
async fn an_approved_command_runs_and_its_output_and_exit_code_are_in_the_record() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "echo one; exit 3").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "echo one; exit 3");
    let proposal = proposal_of(&ann, &gate);
    let proposed = ann.received.iter().find(|it| it["id"] == *proposal);
    let proposed = proposed.unwrap()["payload"].clone();
    assert_eq!(proposed["runs"], "client");
    assert_eq!(proposed["degree"], "held");
    let origin =
        json!({ "client": "codex", "version": "0.166.0", "session": THREAD, "call": "call_0" });
    assert_eq!(proposed["origin"], origin);
    approve(&mut ann, &gate).await;
    assert_eq!(
        codex.hear().await,
        answer_to(0, json!({ "decision": "accept" }))
    );
    codex
        .end_command("call_0", "echo one; exit 3", "one\n", 3)
        .await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_eq!(result["attested"], true);
    assert_eq!(result["result"]["exitCode"], 3, "{result}");
    assert_eq!(result["result"]["stdout"], "one\n");
    // The answer of the agent is told, printed, and the end of it.
    let message = json!({ "type": "agentMessage", "id": "msg", "text": "final words" });
    codex
        .notify("item/completed", json!({ "item": message }))
        .await;
    codex.end_turn("completed").await;
    wait_for_response(&mut ann, "final words").await;
    let output = codex.run.ended().await;
    assert_eq!(
        (output.code, output.out.as_str()),
        (Some(0), "final words\n")
    );
}

#[tokio::test]
async fn what_codex_is_started_with_makes_it_ask_about_everything() {
    let (server, _ann) = start_session(json!({})).await;
    let arguments = ["exec", "-m", "m", "-c", "web_search=\"disabled\"", "go"];
    let mut codex = CodexClient::start(&server, &arguments).await;
    let (thread, turn) = codex.begin_turn().await;
    assert_eq!(thread["approvalPolicy"], "untrusted");
    assert_eq!(thread["approvalsReviewer"], "user");
    assert_eq!(thread["config"]["features.unified_exec_tty"], false);
    assert_eq!(thread["model"], "m");
    assert_eq!(turn["approvalPolicy"], "untrusted");
    assert_eq!(turn["input"][0]["text"], "go");
    let started = codex.noted("server");
    let words = [
        "features.unified_exec_tty=false",
        "features.hooks=false",
        "web_search",
    ];
    assert_contains(&started, &words);
}

#[tokio::test]
async fn the_reason_of_a_rejection_is_told_before_the_call_is_declined() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "rm -r src").await;
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "keep the sources").await;
    assert_contains(&steered(&mut codex).await, &["ann", "keep the sources"]);
    assert_eq!(
        codex.hear().await,
        answer_to(0, json!({ "decision": "decline" }))
    );
}

#[tokio::test]
async fn an_edited_call_does_not_run_and_the_agent_is_told_the_approved_form() {
    let (server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "rm -r all").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let bob = server.invite("bob", &["approver"], &[]);
    let mut bob = server.join("owl", &bob).await;
    let request = ann.received.iter().find(|message| message["id"] == *gate);
    let digest = request.unwrap()["payload"]["digest"].clone();
    let arguments = json!({ "full_command": "rm -r build", "cwd": codex.cli.workdir() });
    let amend =
        json!({ "gate": gate, "arguments": arguments, "digest": digest, "reason": "safer" });
    ann.send_and_ack("gate.amend", amend).await;
    let amended = bob.wait_for("gate.amend").await;
    let digest = &amended["payload"]["assessment"]["digest"];
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
    let told = steered(&mut codex).await;
    assert_contains(&told, &["not run", "\nrm -r build\n"]);
    assert_eq!(
        codex.hear().await,
        answer_to(0, json!({ "decision": "decline" }))
    );
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "not_run");
}

#[tokio::test]
async fn what_is_blocked_or_not_known_is_declined_at_once() {
    let (_server, _ann, mut codex) = start().await;
    let decline = json!({ "decision": "decline" });
    codex.ask_command(0, "call_0", "pvp approve 123456").await;
    assert_contains(&steered(&mut codex).await, &["rule"]);
    assert_eq!(codex.hear().await, answer_to(0, decline.clone()));
    let stdin =
        json!({ "kind": "writeStdin", "itemId": "call_1", "command": "rm x", "approvalId": "a" });
    codex
        .ask(1, "item/commandExecution/requestApproval", stdin)
        .await;
    assert_contains(&steered(&mut codex).await, &["typed into"]);
    assert_eq!(codex.hear().await, answer_to(1, decline.clone()));
    // A change that was not announced, and one of a whole directory.
    for (id, more) in [(2, json!({})), (3, json!({ "grantRoot": "/" }))] {
        let mut question = json!({ "itemId": "call_2" });
        question["grantRoot"] = more["grantRoot"].clone();
        codex
            .ask(id, "item/fileChange/requestApproval", question)
            .await;
        steered(&mut codex).await;
        assert_eq!(codex.hear().await, answer_to(id, decline.clone()));
    }
    let other =
        json!({ "serverName": "x", "mode": "form", "_meta": { "codex_approval_kind": "new" } });
    codex.ask(4, "mcpServer/elicitation/request", other).await;
    assert_eq!(
        codex.hear().await,
        answer_to(4, json!({ "action": "decline" }))
    );
    for method in [
        "item/tool/call",
        "execCommandApproval",
        "of/tomorrow",
        "item/tool/requestUserInput",
    ] {
        codex.ask(5, method, json!({ "questions": [] })).await;
        let answer = codex.hear().await;
        assert!(
            answer["error"].is_object() && answer["id"] == 5,
            "{method}: {answer}"
        );
    }
}

#[tokio::test]
async fn what_runs_unasked_is_told_and_interrupted() {
    let (_server, mut ann, mut codex) = start().await;
    let running =
        json!({ "status": "inProgress", "processId": "1", "source": "unifiedExecStartup" });
    let item = codex.command_item("call_0", "touch sneaked", running);
    codex.notify("item/started", json!({ "item": item })).await;
    let interrupt = codex.hear().await;
    assert_eq!(interrupt["method"], "turn/interrupt");
    assert_eq!(
        interrupt["params"],
        json!({ "threadId": THREAD, "turnId": TURN })
    );
    wait_for_response(&mut ann, "it ran `touch sneaked`").await;
    // It is told once.
    codex.end_command("call_0", "touch sneaked", "", 0).await;
    let tool = json!({
        "type": "mcpToolCall", "id": "call_1", "server": "s", "tool": "t", "status": "completed",
        "arguments": {}, "result": { "content": [] },
    });
    codex
        .notify("item/completed", json!({ "item": tool }))
        .await;
    assert_eq!(codex.hear().await["method"], "turn/interrupt");
    wait_for_response(&mut ann, "it called the tool `t` of `s`").await;
}

#[tokio::test]
async fn a_change_is_a_diff_and_an_mcp_tool_is_asked_about_by_its_arguments() {
    let (_server, mut ann, mut codex) = start().await;
    let path = codex.cli.workdir().join("w.txt");
    let change = json!({ "path": path, "kind": { "type": "add" }, "diff": "one\n" });
    let item = json!({ "type": "fileChange", "id": "call_0", "changes": [change], "status": "inProgress" });
    codex.notify("item/started", json!({ "item": item })).await;
    codex
        .ask(
            0,
            "item/fileChange/requestApproval",
            json!({ "itemId": "call_0" }),
        )
        .await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let proposed = ann
        .received
        .iter()
        .find(|it| it["id"] == *proposal)
        .unwrap();
    let arguments = &proposed["payload"]["arguments"];
    assert_eq!(
        (&arguments["path"], &arguments["content"]),
        (&json!("w.txt"), &json!("one\n"))
    );
    approve(&mut ann, &gate).await;
    assert_eq!(
        codex.hear().await,
        answer_to(0, json!({ "decision": "accept" }))
    );
    let mut done = item.clone();
    done["status"] = json!("completed");
    codex
        .notify("item/completed", json!({ "item": done }))
        .await;
    assert_eq!(result_of(&mut ann, &proposal).await["success"], true);
    let tool = json!({
        "type": "mcpToolCall", "id": "call_1", "server": "echo", "tool": "echo",
        "status": "inProgress", "arguments": { "text": "hi" },
    });
    codex.notify("item/started", json!({ "item": tool })).await;
    let meta = json!({ "codex_approval_kind": "mcp_tool_call", "tool_params": { "text": "hi" } });
    let asked = json!({ "serverName": "echo", "mode": "form", "_meta": meta, "message": "Allow the echo MCP server to run tool \"echo\"?" });
    codex
        .ask(1, "mcpServer/elicitation/request", asked.clone())
        .await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let proposed = ann
        .received
        .iter()
        .find(|it| it["id"] == *proposal)
        .unwrap();
    assert_eq!(proposed["payload"]["tool_name"], "mcp__echo__echo");
    assert_eq!(proposed["payload"]["arguments"], json!({ "text": "hi" }));
    // Nothing else with these arguments is asked about.
    codex.ask(2, "mcpServer/elicitation/request", asked).await;
    steered(&mut codex).await;
    assert_eq!(
        codex.hear().await,
        answer_to(2, json!({ "action": "decline" }))
    );
    approve(&mut ann, &gate).await;
    let accepted = json!({ "action": "accept", "content": {} });
    assert_eq!(codex.hear().await, answer_to(1, accepted));
    let mut done = tool.clone();
    done["status"] = json!("completed");
    done["result"] = json!({ "content": [{ "type": "text", "text": "echo: hi" }] });
    codex
        .notify("item/completed", json!({ "item": done }))
        .await;
    assert_eq!(
        result_of(&mut ann, &proposal).await["result"]["stdout"],
        "echo: hi"
    );
}

#[tokio::test]
async fn two_calls_wait_at_the_same_time_and_each_gets_its_own_answer() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "touch a").await;
    codex.ask_command(1, "call_1", "touch b").await;
    let mut gates = [next_gate(&mut ann).await, next_gate(&mut ann).await];
    gates.sort_by(|a, b| a.1.cmp(&b.1));
    let [(first, _), (second, line)] = gates;
    assert_eq!(line, "touch b");
    approve(&mut ann, &second).await;
    assert_eq!(
        codex.hear().await,
        answer_to(1, json!({ "decision": "accept" }))
    );
    reject(&mut ann, &first, "no a").await;
    assert_contains(&steered(&mut codex).await, &["no a"]);
    assert_eq!(
        codex.hear().await,
        answer_to(0, json!({ "decision": "decline" }))
    );
    let proposal = proposal_of(&ann, &second);
    codex.end_command("call_1", "touch b", "", 0).await;
    assert_eq!(
        result_of(&mut ann, &proposal).await["result"]["exitCode"],
        0
    );
}

#[tokio::test]
async fn a_call_that_codex_takes_back_is_withdrawn_and_one_that_it_changes_is_not_believed() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    codex
        .notify("serverRequest/resolved", json!({ "requestId": 0 }))
        .await;
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
    codex.ask_command(1, "call_1", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    codex.hear().await;
    let proposal = proposal_of(&ann, &gate);
    codex.end_command("call_1", "touch b", "", 0).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_contains(
        result["error"].as_str().unwrap(),
        &["something else", "touch b"],
    );
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_closes_what_runs_as_unknown() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "sleep 60").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    codex.hear().await;
    let raise = json!({ "urgency": "stop", "message": "enough" });
    ann.send_and_ack("interrupt.raise", raise).await;
    codex.answer("turn/interrupt", json!({})).await;
    codex.end_turn("interrupted").await;
    let acknowledged = ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(acknowledged["payload"]["action_taken"], "stopped");
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "unknown");
    assert_eq!(codex.run.ended().await.code, Some(1));
}

#[tokio::test]
async fn a_killed_app_server_leaves_nothing_that_could_be_approved() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    codex.kill_app_server().await;
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
    assert_eq!(codex.run.ended().await.code, Some(1));
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_was_killed_and_runs_only_when_it_is_approved() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let (mut server, mut ann) = create_session_on(server, json!({})).await;
    let user = server.invite("cem", &["approver"], &[]);
    let mut codex = CodexClient::start(&server, &["exec", "go"]).await;
    codex.begin_turn().await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    let address = server.address.clone();
    server.kill_9().await;
    codex.ask_command(1, "call_1", "touch b").await;
    drop(server);
    let server = TestServer::start_on(data.path(), &address, &[]).await;
    let mut cem = server.join("owl", &user).await;
    approve(&mut cem, &gate).await;
    assert_eq!(
        codex.hear().await,
        answer_to(0, json!({ "decision": "accept" }))
    );
    let other = |message: &Value| message["type"] == "gate.request" && message["id"] != *gate;
    let gate = cem.wait(other).await["id"].as_str().unwrap().to_owned();
    reject(&mut cem, &gate, "no b").await;
    assert_contains(&steered(&mut codex).await, &["no b"]);
    assert_eq!(
        codex.hear().await,
        answer_to(1, json!({ "decision": "decline" }))
    );
}

#[tokio::test]
async fn rules_by_which_codex_asks_nobody_keep_it_from_starting() {
    let (server, _ann) = start_session(json!({})).await;
    let cli = CliEnv::new();
    let rules = cli.workdir().join(".codex/rules");
    std::fs::create_dir_all(&rules).unwrap();
    std::fs::write(rules.join("x.rules"), "prefix_rule(pattern=[\"touch\"])").unwrap();
    let codex = CodexClient::start_in(cli, &server, &["exec", "go"]).await;
    let output = codex.run.ended().await;
    assert_eq!(output.code, Some(1));
    assert_contains(&output.err, &["x.rules", "without asking", "move it away"]);
}

/// Begins a conversation in the screen, and a turn in it.
pub(crate) async fn start_screen(
    codex: &mut CodexClient,
) -> crate::support::codex_client::ScreenSocket {
    let mut screen = codex.connect_screen().await;
    let params = json!({ "cwd": codex.cli.workdir(), "approvalPolicy": "never", "config": {} });
    screen.ask(1, "thread/start", params).await;
    codex.answer("config/read", json!({ "config": {} })).await;
    let thread = json!({ "id": THREAD, "ephemeral": false, "parentThreadId": null });
    let started = codex
        .answer("thread/start", json!({ "thread": thread }))
        .await;
    assert_eq!(started["approvalPolicy"], "untrusted");
    screen.hear(|message| message["id"] == 1).await;
    let input = json!([{ "type": "text", "text": "typed here" }]);
    let params = json!({ "threadId": THREAD, "input": input, "approvalPolicy": "never", "approvalsReviewer": "auto_review" });
    screen.ask(2, "turn/start", params).await;
    let turn = codex
        .answer("turn/start", json!({ "turn": { "id": TURN } }))
        .await;
    assert_eq!(turn["approvalPolicy"], "untrusted");
    assert_eq!(turn["approvalsReviewer"], "user");
    codex
        .notify("turn/started", json!({ "turn": { "id": TURN } }))
        .await;
    screen
        .hear(|message| message["method"] == "turn/started")
        .await;
    screen
}

#[tokio::test]
async fn the_screen_cannot_run_things_or_change_what_is_asked() {
    let (server, mut ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let mut screen = start_screen(&mut codex).await;
    for method in [
        "thread/shellCommand",
        "command/exec",
        "process/spawn",
        "review/start",
        "config/value/write",
        "config/batchWrite",
        "experimentalFeature/enablement/set",
        "of/tomorrow",
    ] {
        let params = json!({ "threadId": THREAD, "keyPath": "approval_policy", "value": "never" });
        screen.ask(3, method, params).await;
        let answer = screen.hear(|message| message["id"] == 3).await;
        let why = answer["error"]["message"].as_str().unwrap();
        assert_contains(why, &["PVP"]);
    }
    let params = json!({ "threadId": THREAD, "approvalPolicy": "never", "approvalsReviewer": "auto_review" });
    screen.ask(4, "thread/settings/update", params).await;
    let settings = codex.answer("thread/settings/update", json!({})).await;
    assert_eq!(settings["approvalPolicy"], "untrusted");
    assert_eq!(settings["approvalsReviewer"], "user");
    // What people say elsewhere reaches the turn that is going on.
    send_prompt(&mut ann, &codex.participant, "mind the gap").await;
    let steer = codex.answer("turn/steer", json!({})).await;
    assert_eq!(steer["input"][0]["text"], "ann says: mind the gap");
}

#[tokio::test]
async fn nobody_but_the_screen_is_let_in() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let _screen = start_screen(&mut codex).await;
    let secret = codex.noted("secret");
    assert!(codex.try_connect_screen("guess").await.is_none());
    assert!(codex.try_connect_screen(secret.trim()).await.is_none());
}

#[tokio::test]
async fn a_killed_screen_leaves_nothing_that_could_be_approved() {
    let (server, mut ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let screen = start_screen(&mut codex).await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    drop(screen);
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
}

#[tokio::test]
async fn the_person_at_the_screen_prompts_and_votes_in_their_own_name() {
    let (server, mut ann) =
        start_session(json!({ "quorum_by_category": { "write": { "type": "any", "count": 2 } } }))
            .await;
    let dee = server.invite("dee", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let mut codex = CodexClient::start_in(cli, &server, &[]).await;
    let mut screen = start_screen(&mut codex).await;
    let prompt = ann.wait_for("prompt.submit").await;
    assert_eq!(prompt["sender"], dee.participant, "{prompt}");
    assert_eq!(prompt["payload"]["content"], "typed here");
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    let shown = screen.hear(|message| message["id"] == 0).await;
    assert_eq!(shown["method"], "item/commandExecution/requestApproval");
    assert_eq!(
        shown["params"]["availableDecisions"],
        json!(["accept", "cancel"])
    );
    assert_eq!(shown["params"]["proposedExecpolicyAmendment"], Value::Null);
    // One vote of two is not enough.
    let accept = json!({ "decision": "accept" });
    screen.say(answer_to(0, accept.clone())).await;
    let voted = ann.wait_for("gate.approve").await;
    assert_eq!(voted["payload"]["approver"], dee.participant);
    approve(&mut ann, &gate).await;
    assert_eq!(codex.hear().await, answer_to(0, accept));
    // An answer that was not offered is none that lets anything run.
    codex.ask_command(1, "call_1", "touch b").await;
    screen.hear(|message| message["id"] == 1).await;
    let for_ever = json!({ "decision": "acceptForSession" });
    screen.say(answer_to(1, for_ever)).await;
    let rejected = ann.wait_for("gate.reject").await;
    assert_eq!(rejected["payload"]["rejector"], dee.participant);
}
