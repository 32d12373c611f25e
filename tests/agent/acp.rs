//! `pvp agent --acp` with a real server: what the agent asks, what people decide, and what is in the
//! record.

use serde_json::{Value, json};

use crate::fixture::assert_contains;
use crate::support::acp_agent::{AcpStandIn, CONVERSATION, install};
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::mcp_client::McpClient;
use crate::support::session::{proposal_of, result_of, send_prompt};
use crate::support::{TestClient, TestServer};
use crate::{approve, next_gate, reject, start_session};

/// An agent that answers a prompt.
pub(crate) struct Prompted {
    server: TestServer,
    pub(crate) ann: TestClient,
    pub(crate) agent: AcpStandIn,
    pub(crate) prompt: Value,
}

pub(crate) async fn start() -> Prompted {
    start_in(json!({})).await
}

pub(crate) async fn start_in(config: Value) -> Prompted {
    let (server, mut ann) = start_session(config).await;
    let mut agent = AcpStandIn::start(&server, "owl").await;
    send_prompt(&mut ann, &agent.participant, "go on").await;
    let (prompt, text) = agent.prompted().await;
    assert_eq!(text, "ann says: go on");
    Prompted {
        server,
        ann,
        agent,
        prompt,
    }
}

pub(crate) fn found<'a>(person: &'a TestClient, kind: &str) -> Vec<&'a Value> {
    let received = person.received.iter();
    received.filter(|message| message["type"] == kind).collect()
}

pub(crate) fn text_of_responses(person: &TestClient) -> String {
    let chunks = found(person, "response.chunk").into_iter();
    let texts = chunks.map(|chunk| chunk["payload"]["text"].as_str().unwrap().to_owned());
    texts.collect()
}

#[tokio::test]
async fn an_approved_call_has_its_output_and_exit_code_in_the_record() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "touch made").await;
    let (gate, line) = next_gate(&mut it.ann).await;
    assert_eq!(line, "touch made");
    let proposed = found(&it.ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["runs"], "client");
    assert_eq!(proposed["degree"], "hooked");
    assert_eq!(proposed["origin"]["client"], "stand-in");
    assert_eq!(proposed["origin"]["version"], "1.2.3");
    assert_eq!(proposed["origin"]["call"], "call-1");
    assert_eq!(proposed["description"], "why");
    approve(&mut it.ann, &gate).await;
    // Never the one for ever.
    assert_eq!(it.agent.choice(1).await, "this-one");
    let part = json!({ "type": "content", "content": { "type": "text", "text": "one\n" } });
    it.agent
        .update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "in_progress",
            "content": [part],
        }))
        .await;
    it.agent
        .update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed",
            "rawOutput": { "output": "one\ntwo\n", "metadata": { "exit": 3 } },
        }))
        .await;
    let proposal = proposal_of(&it.ann, &gate);
    let result = result_of(&mut it.ann, &proposal).await;
    assert_eq!(result["result"]["exitCode"], 3);
    assert_eq!(result["success"], false);
    assert_eq!(result["attested"], true);
    let output = found(&it.ann, "tool.output").into_iter();
    let output: String = output
        .map(|it| it["payload"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(output, "one\ntwo\n");
    it.agent
        .update(json!({
            "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "done" },
        }))
        .await;
    it.agent.end_turn(&it.prompt).await;
    it.ann.wait_for("response.end").await;
    assert_eq!(text_of_responses(&it.ann), "done");
}

#[tokio::test]
async fn the_result_of_the_last_call_is_in_the_record_before_an_agent_leaves() {
    let (server, mut ann) = start_session(json!({})).await;
    let user = server.invite("helper", &["driver"], &["--kind", "agent"]);
    let cli = CliEnv::new();
    let (program, listener) = install(&cli);
    let mut command = cli.command(&["agent", "--once", "--acp"]);
    command.arg(&program);
    command.env("PVP_AGENT_LINK", server.link(&user, Some("owl")));
    let run = CliProcess::spawn(&mut command);
    let mut agent = AcpStandIn::accept(cli, run, listener, user.participant).await;
    agent.introduce(json!({ "sessionId": CONVERSATION })).await;
    send_prompt(&mut ann, &agent.participant, "go on").await;
    let (prompt, _) = agent.prompted().await;
    agent.ask(1, "call-1", "exit 3").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert_eq!(agent.choice(1).await, "this-one");
    let update = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed",
        "rawOutput": { "output": "failing\n", "metadata": { "exit": 3 } },
    });
    let params = json!({ "sessionId": CONVERSATION, "update": update });
    let update = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
    let ended = json!({ "stopReason": "end_turn" });
    let ended = json!({ "jsonrpc": "2.0", "id": prompt["id"], "result": ended });
    agent.say_text(&format!("{update}\n{ended}")).await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["exitCode"], 3, "{result}");
    assert_eq!(agent.run.ended().await.code, Some(0));
}

#[tokio::test]
async fn the_reason_of_a_rejection_is_told_before_people_get_the_turn_back() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "rm -r src").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    reject(&mut it.ann, &gate, "keep the sources").await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    it.agent.end_turn(&it.prompt).await;
    let (follow_up, text) = it.agent.prompted().await;
    assert_contains(&text, &["`rm -r src`", "ann", "keep the sources"]);
    it.ann.sync().await;
    assert!(found(&it.ann, "response.end").is_empty());
    it.agent.end_turn(&follow_up).await;
    // The next prompt is people's again.
    send_prompt(&mut it.ann, &it.agent.participant, "and now").await;
    let (_, text) = it.agent.prompted().await;
    assert_eq!(text, "ann says: and now");
}

#[tokio::test]
async fn an_edited_call_is_declined_and_the_approved_form_is_told() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "rm -r all").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    let bob = it.server.invite("bob", &["approver"], &[]);
    let mut bob = it.server.join("owl", &bob).await;
    let request = it
        .ann
        .received
        .iter()
        .find(|message| message["id"] == *gate);
    let digest = request.unwrap()["payload"]["digest"].clone();
    let arguments = json!({ "full_command": "rm -r build", "cwd": it.agent.cli.workdir() });
    let amend = json!({ "gate": gate, "arguments": arguments, "digest": digest });
    it.ann.send_and_ack("gate.amend", amend).await;
    let amended = bob.wait_for("gate.amend").await;
    let digest = &amended["payload"]["assessment"]["digest"];
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    let proposal = proposal_of(&it.ann, &gate);
    let result = result_of(&mut it.ann, &proposal).await;
    assert_eq!(result["outcome"], "not_run");
    it.agent.end_turn(&it.prompt).await;
    let (_, text) = it.agent.prompted().await;
    assert_contains(&text, &["approved this form: `rm -r build`"]);
}

#[tokio::test]
async fn blocked_calls_are_rejected_at_once() {
    let mut it = start().await;
    for (id, line) in [(1, "rm -rf /"), (2, "pvp approve 123456")] {
        it.agent.ask(id, &format!("call-{id}"), line).await;
        assert_eq!(it.agent.choice(id).await, "not-this", "{line}");
    }
    it.ann.sync().await;
    assert!(found(&it.ann, "gate.request").is_empty());
    it.agent.end_turn(&it.prompt).await;
    let (_, text) = it.agent.prompted().await;
    assert_contains(
        &text,
        &["`rm -rf /`: Blocked by rule", "`pvp approve 123456`"],
    );
}

#[tokio::test]
async fn what_an_agent_did_unasked_is_recorded_as_that() {
    let mut it = start().await;
    it.agent
        .update(json!({
            "sessionUpdate": "tool_call", "toolCallId": "call-1", "title": "list", "kind": "execute",
            "status": "completed", "rawInput": { "command": "ls -a" },
            "rawOutput": { "output": "x", "exitCode": 0 },
        }))
        .await;
    it.agent
        .update(json!({
            "sessionUpdate": "tool_call", "toolCallId": "call-2", "title": "Look", "kind": "search",
            "status": "in_progress",
        }))
        .await;
    it.agent.end_turn(&it.prompt).await;
    it.ann.wait_for("response.end").await;
    let text = text_of_responses(&it.ann);
    assert_contains(
        &text,
        &[
            "did this without asking: `ls -a`; exit code 0",
            "did this without asking: `search Look`; it did not say how it ended",
        ],
    );
}

#[tokio::test]
async fn a_delegated_write_is_gated_and_bound_to_the_file() {
    let mut it = start().await;
    let path = it.agent.cli.workdir().join("a.txt");
    std::fs::write(&path, "old\n").unwrap();
    let write = json!({ "path": path, "content": "new\n" });
    it.agent
        .request(1, "fs/write_text_file", write.clone())
        .await;
    let (gate, _) = next_gate(&mut it.ann).await;
    let proposed = found(&it.ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["tool_name"], "file_write");
    assert_eq!(proposed["runs"], Value::Null, "our executor runs it");
    let origin = json!({ "client": "stand-in", "version": "1.2.3", "session": CONVERSATION });
    assert_eq!(proposed["origin"], origin);
    assert_eq!(proposed["file_contents"][0]["text"], "old\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old\n");
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.answer(1).await["result"], json!({}));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
    // What changes before the vote is not what people saw.
    it.agent.request(2, "fs/write_text_file", write).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    std::fs::write(&path, "other\n").unwrap();
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.answer(2).await["error"]["code"], -32603);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "other\n");
}

#[tokio::test]
async fn a_write_that_was_asked_about_is_carried_out_without_a_second_question() {
    let mut it = start().await;
    let path = it.agent.cli.workdir().join("a.txt");
    std::fs::write(&path, "old\n").unwrap();
    let diff = json!({ "type": "diff", "path": path, "oldText": "old\n", "newText": "new\n" });
    let tool_call = json!({
        "toolCallId": "write_file__write_file_1_0", "title": "a.txt", "kind": "edit",
        "status": "pending", "content": [diff],
    });
    it.agent.ask_about(1, tool_call).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    let proposed = found(&it.ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["tool_name"], "file_write");
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(1).await, "this-one");
    // Only what was approved.
    let other = json!({ "path": path, "content": "other\n" });
    it.agent.request(2, "fs/write_text_file", other).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    reject(&mut it.ann, &gate, "no").await;
    assert!(it.agent.answer(2).await["error"].is_object());
    let write = json!({ "path": path, "content": "new\n" });
    it.agent
        .request(3, "fs/write_text_file", write.clone())
        .await;
    assert_eq!(it.agent.answer(3).await["result"], json!({}));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
    // Some agents write it by themselves as well.
    it.agent.request(4, "fs/write_text_file", write).await;
    assert_eq!(it.agent.answer(4).await["result"], json!({}));
}

#[tokio::test]
async fn a_delegated_read_returns_the_file() {
    let mut it = start().await;
    let path = it.agent.cli.workdir().join("a.txt");
    std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
    it.agent
        .request(1, "fs/read_text_file", json!({ "path": path }))
        .await;
    assert_eq!(
        it.agent.answer(1).await["result"]["content"],
        "one\ntwo\nthree\n"
    );
    let part = json!({ "path": path, "line": 2, "limit": 1 });
    it.agent.request(2, "fs/read_text_file", part).await;
    assert_eq!(it.agent.answer(2).await["result"]["content"], "two\n");
    // It is in the record.
    it.ann.sync().await;
    assert_eq!(found(&it.ann, "tool.propose").len(), 2);
    it.agent
        .request(3, "fs/read_text_file", json!({ "path": "/etc/passwd" }))
        .await;
    assert_eq!(it.agent.answer(3).await["error"]["code"], -32603);
    // An agent that is about to make a file looks whether it is there.
    let missing = it.agent.cli.workdir().join("b.txt");
    it.agent
        .request(4, "fs/read_text_file", json!({ "path": missing }))
        .await;
    let error = it.agent.answer(4).await["error"].clone();
    assert_eq!(error["code"], -32002);
    assert_contains(
        error["message"].as_str().unwrap(),
        &["Resource not found", "b.txt"],
    );
}

#[tokio::test]
async fn a_terminal_runs_in_our_executor_once_people_agree() {
    let mut it = start().await;
    let create = json!({ "command": "sh", "args": ["-c", "echo out; touch made; exit 3"] });
    it.agent.request(1, "terminal/create", create.clone()).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    assert!(!it.agent.cli.workdir().join("made").exists());
    let proposed = found(&it.ann, "tool.propose")[0]["payload"].clone();
    assert_eq!(proposed["origin"]["client"], "stand-in");
    approve(&mut it.ann, &gate).await;
    let created = it.agent.answer(1).await;
    let terminal = json!({ "terminalId": created["result"]["terminalId"] });
    it.agent
        .request(2, "terminal/wait_for_exit", terminal.clone())
        .await;
    assert_eq!(it.agent.answer(2).await["result"]["exitCode"], 3);
    it.agent
        .request(3, "terminal/output", terminal.clone())
        .await;
    let output = it.agent.answer(3).await;
    assert_contains(output["result"]["output"].as_str().unwrap(), &["out\n"]);
    assert_eq!(output["result"]["exitStatus"]["exitCode"], 3);
    assert!(it.agent.cli.workdir().join("made").exists());
    let proposal = proposal_of(&it.ann, &gate);
    let result = result_of(&mut it.ann, &proposal).await;
    assert_eq!(result["attested"], Value::Null, "our executor says it");
    it.agent
        .request(4, "terminal/release", terminal.clone())
        .await;
    assert_eq!(it.agent.answer(4).await["result"], json!({}));
    it.agent.request(5, "terminal/output", terminal).await;
    assert!(it.agent.answer(5).await["error"].is_object());
    // A rejected one says why, to whoever made it.
    it.agent.request(6, "terminal/create", create).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    reject(&mut it.ann, &gate, "not twice").await;
    let refused = it.agent.answer(6).await;
    assert_contains(
        refused["error"]["message"].as_str().unwrap(),
        &["not twice"],
    );
}

#[tokio::test]
async fn releasing_a_terminal_stops_its_command() {
    let mut it = start().await;
    let create = json!({ "command": "touch begun; sleep 1000" });
    it.agent.request(1, "terminal/create", create).await;
    let (gate, line) = next_gate(&mut it.ann).await;
    assert_eq!(line, "touch begun; sleep 1000");
    approve(&mut it.ann, &gate).await;
    let created = it.agent.answer(1).await;
    let terminal = json!({ "terminalId": created["result"]["terminalId"] });
    it.agent.request(2, "terminal/release", terminal).await;
    let proposal = proposal_of(&it.ann, &gate);
    assert_eq!(result_of(&mut it.ann, &proposal).await["success"], false);
}

#[tokio::test]
async fn a_call_that_was_stopped_is_no_success_although_the_agent_calls_it_completed() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "make").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(1).await, "this-one");
    let interrupt = json!({ "target": it.agent.participant, "urgency": "stop", "message": "wait" });
    it.ann.send_and_ack("interrupt.raise", interrupt).await;
    it.agent.expect("session/cancel").await;
    it.agent
        .update(json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "completed",
            "rawOutput": { "output": "User aborted the command", "metadata": { "exit": null } },
        }))
        .await;
    let cancelled = json!({ "stopReason": "cancelled" });
    it.agent.respond(&it.prompt, cancelled).await;
    let proposal = proposal_of(&it.ann, &gate);
    let result = result_of(&mut it.ann, &proposal).await;
    assert_eq!(result["success"], false, "{result}");
    assert_contains(result["error"].as_str().unwrap(), &["cancelled"]);
}

#[tokio::test]
async fn an_interrupt_cancels_the_turn_and_what_was_asked() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "make").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    let interrupt = json!({ "target": it.agent.participant, "urgency": "stop", "message": "wait" });
    it.ann.send_and_ack("interrupt.raise", interrupt).await;
    let cancel = it.agent.expect("session/cancel").await;
    assert_eq!(cancel["params"]["sessionId"], CONVERSATION);
    // The server withdraws it too, and may be faster.
    let choice = it.agent.choice(1).await;
    assert!(["cancelled", "not-this"].contains(&choice.as_str()));
    // Nothing more is asked of people in this turn.
    it.agent.ask(2, "call-2", "make install").await;
    assert_eq!(it.agent.choice(2).await, "cancelled");
    let result = json!({ "stopReason": "cancelled" });
    it.agent.respond(&it.prompt.clone(), result).await;
    it.ann.wait_for("interrupt.acknowledge").await;
    assert_eq!(found(&it.ann, "gate.request").len(), 1);
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["gate"], gate);
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    send_prompt(&mut it.ann, &it.agent.participant, "again").await;
    it.agent.prompted().await;
    it.agent.ask(3, "call-3", "make").await;
    next_gate(&mut it.ann).await;
}

#[tokio::test]
async fn a_killed_agents_gate_is_withdrawn() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "make").await;
    next_gate(&mut it.ann).await;
    it.agent.kill_9().await;
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
}

#[tokio::test]
async fn calls_that_run_when_the_agent_is_killed_end_as_unknown() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "make").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(1).await, "this-one");
    it.agent.kill_9().await;
    let proposal = proposal_of(&it.ann, &gate);
    let result = result_of(&mut it.ann, &proposal).await;
    assert_eq!(result["outcome"], "unknown");
}

#[tokio::test]
async fn without_a_server_nothing_is_allowed() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "make").await;
    next_gate(&mut it.ann).await;
    it.server.kill_9().await;
    it.agent.ask(2, "call-2", "make install").await;
    assert_eq!(it.agent.choice(2).await, "not-this");
    assert_eq!(it.agent.choice(1).await, "not-this");
}

#[tokio::test]
async fn garbage_is_never_permission() {
    let mut it = start().await;
    it.agent.say_text("garbage").await;
    it.agent
        .say_text("{\"id\":1,\"method\":\"session/request_permission\"}")
        .await;
    assert_eq!(it.agent.choice(1).await, "cancelled");
    let no_id = json!({ "toolCall": { "title": "x" }, "options": [] });
    it.agent
        .request(2, "session/request_permission", no_id)
        .await;
    assert_eq!(it.agent.choice(2).await, "cancelled");
    it.agent
        .request(3, "terminal/create", json!({ "args": 7 }))
        .await;
    assert!(it.agent.answer(3).await["error"].is_object());
    it.agent
        .request(4, "fs/delete", json!({ "path": "/" }))
        .await;
    assert!(it.agent.answer(4).await["error"].is_object());
    it.agent.request(5, "something/else", json!({})).await;
    assert_eq!(it.agent.answer(5).await["error"]["code"], -32601);
    it.ann.sync().await;
    assert!(found(&it.ann, "tool.propose").is_empty());
    // And it goes on.
    it.agent.ask(6, "call-1", "make").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(6).await, "this-one");
}

#[tokio::test]
async fn questions_without_a_choice_for_once_are_not_answered_with_one_for_ever() {
    let mut it = start().await;
    let tool_call = json!({ "toolCallId": "c", "title": "make", "kind": "execute", "rawInput": { "command": "make" } });
    for (id, options) in [
        (
            1,
            json!([{ "optionId": "a", "name": "Always", "kind": "allow_always" }]),
        ),
        // Which of the two it means is not known.
        (
            2,
            json!([
                { "optionId": "a", "name": "Once", "kind": "allow_once" },
                { "optionId": "a", "name": "Always", "kind": "allow_always" },
            ]),
        ),
    ] {
        let params = json!({ "toolCall": tool_call, "options": options });
        it.agent
            .request(id, "session/request_permission", params)
            .await;
        let (gate, _) = next_gate(&mut it.ann).await;
        approve(&mut it.ann, &gate).await;
        assert_eq!(it.agent.choice(id).await, "cancelled");
        let proposal = proposal_of(&it.ann, &gate);
        assert_eq!(
            result_of(&mut it.ann, &proposal).await["outcome"],
            "not_run"
        );
    }
}

#[tokio::test]
async fn parallel_questions_are_decided_each_by_itself() {
    let mut it = start().await;
    let mut gates = Vec::new();
    for (id, line) in [(1, "make one"), (2, "make two"), (3, "make three")] {
        it.agent.ask(id, &format!("call-{id}"), line).await;
        gates.push(next_gate(&mut it.ann).await);
    }
    assert_eq!(gates[1].1, "make two");
    approve(&mut it.ann, &gates[2].0).await;
    assert_eq!(it.agent.choice(3).await, "this-one");
    reject(&mut it.ann, &gates[0].0, "no").await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    assert!(it.agent.unread().is_empty());
    approve(&mut it.ann, &gates[1].0).await;
    assert_eq!(it.agent.choice(2).await, "this-one");
}

#[tokio::test]
async fn a_second_question_with_the_same_id_does_not_answer_the_first() {
    // By itself, the second one would be allowed at once.
    let mut it = start_in(json!({ "client_reads": "workspace" })).await;
    it.agent.ask(1, "call-1", "rm -r src").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    it.agent.ask(1, "call-2", "ls").await;
    it.agent.request(2, "fs/nothing", json!({})).await;
    it.agent.answer(2).await;
    assert!(it.agent.unread().is_empty());
    reject(&mut it.ann, &gate, "no").await;
    assert_eq!(it.agent.choice(1).await, "not-this");
}

#[tokio::test]
async fn an_agent_that_asks_nobody_is_brought_to_ask() {
    let (server, _ann) = start_session(json!({})).await;
    let modes = json!([
        { "id": "bypassPermissions", "name": "Bypass" },
        { "id": "default", "name": "Ask" },
    ]);
    let opened = json!({
        "sessionId": CONVERSATION,
        "modes": { "currentModeId": "bypassPermissions", "availableModes": modes },
    });
    let mut agent = AcpStandIn::start_answering(&server, "owl", opened).await;
    let change = agent.expect("session/set_mode").await;
    assert_eq!(change["params"]["modeId"], "default");
}

#[tokio::test]
async fn the_agent_is_offered_our_tools_and_no_token() {
    let (server, mut ann) = start_session(json!({})).await;
    let agent = AcpStandIn::start(&server, "owl").await;
    assert!(!agent.environment().contains("token="));
    let offered = &agent.session_new["mcpServers"][0];
    assert!(!agent.session_new.to_string().contains("token"));
    let words = offered["args"].as_array().unwrap().iter();
    let words: Vec<_> = words.map(|word| word.as_str().unwrap()).collect();
    let mut client = McpClient::over(CliEnv::new(), agent.cli.spawn(&words), String::new()).await;
    let call = client.shell("touch made").await;
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch made");
    assert_eq!(
        found(&ann, "tool.propose")[0]["payload"]["agent"],
        agent.participant
    );
    approve(&mut ann, &gate).await;
    client.result(call).await;
    assert!(agent.cli.workdir().join("made").exists());
    // What waits when its program ends is withdrawn.
    client.shell("touch more").await;
    next_gate(&mut ann).await;
    drop(client);
    let resolved = ann
        .wait(|it| it["type"] == "gate.resolve" && it["payload"]["outcome"] == "cancelled")
        .await;
    assert!(resolved.is_object());
}

#[tokio::test]
async fn an_agent_that_wants_a_login_says_how() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("helper", &["driver"], &["--kind", "agent"]);
    let cli = CliEnv::new();
    let (program, listener) = install(&cli);
    let mut command = cli.command(&["agent", "--acp"]);
    command.arg(&program);
    command.env("PVP_AGENT_LINK", server.link(&user, Some("owl")));
    let run = CliProcess::spawn(&mut command);
    let mut agent = AcpStandIn::accept(cli, run, listener, user.participant).await;
    let initialize = agent.expect("initialize").await;
    let methods = json!([{ "id": "k", "name": "Use an API key", "description": null }]);
    let introduction = json!({ "protocolVersion": 1, "authMethods": methods });
    agent.respond(&initialize, introduction).await;
    let opening = agent.expect("session/new").await;
    let error = json!({ "code": -32000, "message": "Authentication required" });
    agent
        .say(json!({ "jsonrpc": "2.0", "id": opening["id"], "error": error }))
        .await;
    let ended = agent.run.ended().await;
    assert_eq!(ended.code, Some(1));
    assert_contains(
        &ended.err,
        &["log in with the agent's own program", "`Use an API key`"],
    );
}
