//! `pvp run -- codex` against an agent that was talked into something, and against an app-server that
//! is newer than PVP knows: what changes between the question and the run, what is not known, what is
//! asked twice.

use serde_json::{Value, json};

use crate::codex::{answer_to, resolution_of, start, steered};
use crate::fixture::assert_contains;
use crate::support::TestClient;
use crate::support::codex_client::{CodexClient, THREAD, TURN, group_lives};
use crate::support::session::{proposal_of, result_of, wait_for_response, wait_until};
use crate::{approve, next_gate, reject, start_session};

/// Announces a change of files and asks about it.
async fn ask_change(codex: &mut CodexClient, id: u64, item: &str, changes: Value) -> Value {
    let item =
        json!({ "type": "fileChange", "id": item, "changes": changes, "status": "inProgress" });
    codex.notify("item/started", json!({ "item": item })).await;
    let asked = json!({ "itemId": item["id"] });
    codex
        .ask(id, "item/fileChange/requestApproval", asked)
        .await;
    item
}

fn update(codex: &CodexClient, name: &str) -> Value {
    let path = codex.cli.workdir().join(name);
    let diff = "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n";
    json!([{ "path": path, "kind": { "type": "update", "move_path": null }, "diff": diff }])
}

fn proposed_tool(person: &TestClient, proposal: &str) -> Value {
    let proposed = person.received.iter().find(|it| it["id"] == *proposal);
    proposed.unwrap()["payload"]["tool_name"].clone()
}

fn decline() -> Value {
    json!({ "decision": "decline" })
}

#[tokio::test]
async fn a_patch_of_a_file_that_changed_since_it_was_shown_is_not_applied() {
    let (_server, mut ann, mut codex) = start().await;
    let file = codex.cli.workdir().join("a.txt");
    std::fs::write(&file, "one\ntwo\nthree\n").unwrap();
    let changes = update(&codex, "a.txt");
    ask_change(&mut codex, 0, "call_0", changes).await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    // The patch would still fit, and do something else than what people see.
    std::fs::write(&file, "zero\none\ntwo\nthree\nfour\n").unwrap();
    approve(&mut ann, &gate).await;
    let told = steered(&mut codex).await;
    assert_contains(
        &told,
        &["Not run", "a.txt", "has changed since it was approved"],
    );
    assert_eq!(codex.hear().await, answer_to(0, decline()));
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "not_run");
}

#[tokio::test]
async fn a_patch_reaches_no_guarded_file_through_a_link_and_takes_no_file_for_a_new_one() {
    let (_server, _ann, mut codex) = start().await;
    let home = codex.cli.home().join(".codex");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("config.toml"), "one\ntwo\nthree\n").unwrap();
    let link = codex.cli.workdir().join("notes.txt");
    std::os::unix::fs::symlink(home.join("config.toml"), link).unwrap();
    let changes = update(&codex, "notes.txt");
    ask_change(&mut codex, 0, "call_0", changes).await;
    assert_contains(&steered(&mut codex).await, &["notes.txt", "config.toml"]);
    assert_eq!(codex.hear().await, answer_to(0, decline()));
    std::fs::write(codex.cli.workdir().join("there"), "precious").unwrap();
    let add = |name: &str| {
        let path = codex.cli.workdir().join(name);
        json!({ "path": path, "kind": { "type": "add" }, "diff": "x\n" })
    };
    let changes = json!([add("new"), add("there")]);
    ask_change(&mut codex, 1, "call_1", changes).await;
    assert_contains(&steered(&mut codex).await, &["there", "exists already"]);
    assert_eq!(codex.hear().await, answer_to(1, decline()));
}

#[tokio::test]
async fn what_changes_while_people_look_at_it_is_declined() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    codex.begin_command("call_0", "touch b").await;
    assert_contains(&steered(&mut codex).await, &["changed while people looked"]);
    assert_eq!(codex.hear().await, answer_to(0, decline()));
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
    std::fs::write(codex.cli.workdir().join("a.txt"), "one\ntwo\nthree\n").unwrap();
    let changes = update(&codex, "a.txt");
    ask_change(&mut codex, 1, "call_1", changes).await;
    let (gate, _) = next_gate(&mut ann).await;
    let changes = update(&codex, "b.txt");
    let updated = json!({ "itemId": "call_1", "changes": changes });
    codex.notify("item/fileChange/patchUpdated", updated).await;
    assert_contains(&steered(&mut codex).await, &["changed while people looked"]);
    assert_eq!(codex.hear().await, answer_to(1, decline()));
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
}

#[tokio::test]
async fn a_change_or_a_tool_that_was_not_the_approved_one_is_in_the_record() {
    let (_server, mut ann, mut codex) = start().await;
    std::fs::write(codex.cli.workdir().join("a.txt"), "one\ntwo\nthree\n").unwrap();
    let changes = update(&codex, "a.txt");
    let mut item = ask_change(&mut codex, 0, "call_0", changes).await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    approve(&mut ann, &gate).await;
    codex.hear().await;
    item["status"] = json!("completed");
    item["changes"] = update(&codex, "b.txt");
    codex
        .notify("item/completed", json!({ "item": item }))
        .await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["success"], false);
    assert_contains(
        result["error"].as_str().unwrap(),
        &["something else", "b.txt"],
    );
    let mut tool = announce_tool(&mut codex, "call_1", "get").await;
    ask_tool(&mut codex, 1, "get").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    approve(&mut ann, &gate).await;
    codex.hear().await;
    tool["status"] = json!("completed");
    tool["arguments"] = json!({ "id": 2 });
    codex
        .notify("item/completed", json!({ "item": tool }))
        .await;
    let result = result_of(&mut ann, &proposal).await;
    assert_contains(
        result["error"].as_str().unwrap(),
        &["something else", r#"{"id":2}"#],
    );
}

async fn announce_tool(codex: &mut CodexClient, item: &str, tool: &str) -> Value {
    let item = json!({
        "type": "mcpToolCall", "id": item, "server": "s", "tool": tool, "status": "inProgress",
        "arguments": { "id": 1 },
    });
    codex.notify("item/started", json!({ "item": item })).await;
    item
}

async fn ask_tool(codex: &mut CodexClient, id: u64, tool: &str) {
    let meta = json!({ "codex_approval_kind": "mcp_tool_call", "tool_params": { "id": 1 } });
    let message = format!("Allow the s MCP server to run tool \"{tool}\"?");
    let asked = json!({ "serverName": "s", "mode": "form", "_meta": meta, "message": message });
    codex.ask(id, "mcpServer/elicitation/request", asked).await;
}

#[tokio::test]
async fn two_tools_with_the_same_arguments_are_not_taken_for_each_other() {
    let (_server, mut ann, mut codex) = start().await;
    announce_tool(&mut codex, "call_0", "get").await;
    announce_tool(&mut codex, "call_1", "delete").await;
    ask_tool(&mut codex, 0, "delete").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(proposed_tool(&ann, &proposal), "mcp__s__delete");
    ask_tool(&mut codex, 1, "get").await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(proposed_tool(&ann, &proposal), "mcp__s__get");
    // A question about a tool that was not announced is about none of them.
    announce_tool(&mut codex, "call_2", "get").await;
    ask_tool(&mut codex, 2, "drop").await;
    assert_contains(&steered(&mut codex).await, &["which tool"]);
    let declined = json!({ "action": "decline" });
    assert_eq!(codex.hear().await, answer_to(2, declined));
}

#[tokio::test]
async fn what_codex_of_tomorrow_does_by_itself_is_told_and_interrupted() {
    let (_server, mut ann, mut codex) = start().await;
    let search = json!({ "type": "webSearch", "id": "s", "query": "q", "action": { "type": "openPage", "url": "https://x/?k=1" } });
    codex
        .notify("item/started", json!({ "item": search }))
        .await;
    codex
        .notify("item/completed", json!({ "item": search }))
        .await;
    wait_for_response(&mut ann, "https://x/?k=1").await;
    let unknown = json!({ "type": "mouseClick", "id": "m" });
    codex
        .notify("item/started", json!({ "item": unknown }))
        .await;
    let interrupt = codex.hear().await;
    assert_eq!(interrupt["method"], "turn/interrupt", "{interrupt}");
    wait_for_response(&mut ann, "PVP does not know (`mouseClick`)").await;
    // It is told once, also if only its end is told.
    codex
        .notify("item/completed", json!({ "item": unknown }))
        .await;
    let other = json!({ "type": "imageView", "id": "v", "path": "/etc/shadow" });
    codex
        .notify("item/completed", json!({ "item": other }))
        .await;
    assert_eq!(codex.hear().await["method"], "turn/interrupt");
    wait_for_response(&mut ann, "(`imageView`)").await;
    // Whoever does not heed that is ended.
    assert_eq!(codex.run.ended().await.code, Some(1));
}

#[tokio::test]
async fn a_question_dies_with_its_turn() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    codex.end_turn("failed").await;
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
}

#[tokio::test]
async fn a_command_runs_where_it_was_announced_and_nowhere_else() {
    let (_server, mut ann, mut codex) = start().await;
    let method = "item/commandExecution/requestApproval";
    codex.begin_command("call_0", "touch a").await;
    let question = |item: &str, more: Value| {
        let mut question = json!({ "itemId": item, "command": "/bin/bash -lc 'touch a'" });
        for (name, value) in more.as_object().unwrap() {
            question[name] = value.clone();
        }
        question
    };
    codex.ask(0, method, question("call_0", json!({}))).await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    let proposed = ann.received.iter().find(|it| it["id"] == *proposal);
    let cwd = &proposed.unwrap()["payload"]["arguments"]["cwd"];
    assert_eq!(*cwd, json!(codex.cli.workdir().canonicalize().unwrap()));
    codex.ask(1, method, question("call_1", json!({}))).await;
    assert_contains(&steered(&mut codex).await, &["where it would run"]);
    assert_eq!(codex.hear().await, answer_to(1, decline()));
    let elsewhere = json!({ "cwd": "/", "environmentId": "cloud" });
    codex.ask(2, method, question("call_2", elsewhere)).await;
    assert_contains(&steered(&mut codex).await, &["another machine"]);
    assert_eq!(codex.hear().await, answer_to(2, decline()));
}

#[tokio::test]
async fn an_approval_counts_for_the_question_that_was_shown_and_for_no_other() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "touch a").await;
    let (gate, _) = next_gate(&mut ann).await;
    // The same call is asked about again, with another command, while people look at the first.
    let again = json!({
        "kind": "command", "itemId": "call_0", "command": "/bin/bash -lc 'rm -rf /'",
        "cwd": codex.cli.workdir(),
    });
    let method = "item/commandExecution/requestApproval";
    codex.ask(1, method, again).await;
    assert_eq!(codex.hear().await, answer_to(1, decline()));
    // The same question a second time, with the id of the first.
    codex.ask_command(0, "call_1", "rm -rf /").await;
    assert_eq!(codex.hear().await, answer_to(0, decline()));
    assert_eq!(resolution_of(&mut ann, &gate).await["outcome"], "cancelled");
}

#[tokio::test]
async fn an_app_server_behind_a_script_ends_with_it() {
    let (server, mut ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &["exec", "go"]).await;
    codex.begin_turn().await;
    codex.ask_command(0, "call_0", "sleep 60").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    codex.hear().await;
    let raise = json!({ "urgency": "stop", "message": "enough" });
    ann.send_and_ack("interrupt.raise", raise).await;
    let interrupt = codex.hear().await;
    assert_eq!(
        interrupt["params"],
        json!({ "threadId": THREAD, "turnId": TURN })
    );
    // It is not heeded.
    let group = codex.app_server_group();
    assert_eq!(codex.run.ended().await.code, Some(1));
    let gone = "no process of the app-server is left";
    wait_until(gone, || !group_lives(&group)).await;
}

#[tokio::test]
async fn a_change_of_a_whole_directory_is_declined_although_its_files_are_known() {
    let (_server, _ann, mut codex) = start().await;
    std::fs::write(codex.cli.workdir().join("a.txt"), "one\ntwo\nthree\n").unwrap();
    let item = json!({ "type": "fileChange", "id": "call_0", "changes": update(&codex, "a.txt") });
    codex.notify("item/started", json!({ "item": item })).await;
    let asked = json!({ "itemId": "call_0", "grantRoot": codex.cli.workdir() });
    codex.ask(0, "item/fileChange/requestApproval", asked).await;
    assert_contains(&steered(&mut codex).await, &["not about a directory"]);
    assert_eq!(codex.hear().await, answer_to(0, decline()));
}

#[tokio::test]
async fn more_rights_are_given_for_the_turn_and_only_those_that_were_shown() {
    let (_server, mut ann, mut codex) = start().await;
    let rights = json!({ "fileSystem": { "write": ["/srv"] } });
    let asked = json!({ "itemId": "call_0", "permissions": rights, "cwd": codex.cli.workdir() });
    codex
        .ask(0, "item/permissions/requestApproval", asked.clone())
        .await;
    let (gate, _) = next_gate(&mut ann).await;
    let proposal = proposal_of(&ann, &gate);
    assert_eq!(proposed_tool(&ann, &proposal), "request_permissions");
    approve(&mut ann, &gate).await;
    let given = json!({ "permissions": rights, "scope": "turn" });
    assert_eq!(codex.hear().await, answer_to(0, given));
    let mut again = asked;
    again["itemId"] = json!("call_1");
    codex
        .ask(1, "item/permissions/requestApproval", again)
        .await;
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "no more").await;
    steered(&mut codex).await;
    let none = json!({ "permissions": {}, "scope": "turn" });
    assert_eq!(codex.hear().await, answer_to(1, none));
}

#[tokio::test]
async fn a_call_of_a_subagent_is_shown_as_its_own() {
    let (_server, mut ann, mut codex) = start().await;
    let thread = json!({ "id": "thread-2", "parentThreadId": THREAD, "agentNickname": "Ada" });
    codex
        .notify("thread/started", json!({ "thread": thread }))
        .await;
    let question = |thread: &str, item: &str| {
        json!({
            "threadId": thread, "itemId": item, "command": "/bin/bash -lc 'touch a'", "cwd": "/",
        })
    };
    let method = "item/commandExecution/requestApproval";
    // A conversation that nobody began belongs to somebody else too.
    for (id, thread, name) in [(0, "thread-2", "Ada"), (1, "thread-3", "subagent")] {
        codex
            .ask(id, method, question(thread, &format!("call_{id}")))
            .await;
        let (gate, _) = next_gate(&mut ann).await;
        let proposal = proposal_of(&ann, &gate);
        let proposed = ann.received.iter().find(|it| it["id"] == *proposal);
        let origin = proposed.unwrap()["payload"]["origin"].clone();
        assert_eq!(
            (&origin["session"], &origin["subagent"]),
            (&json!(thread), &json!(name))
        );
    }
}

#[tokio::test]
async fn a_command_that_people_stop_ends_with_its_turn() {
    let (_server, mut ann, mut codex) = start().await;
    codex.ask_command(0, "call_0", "sleep 60").await;
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    codex.hear().await;
    let proposal = proposal_of(&ann, &gate);
    let cancel = json!({ "tool_proposal": proposal, "reason": "enough" });
    ann.send_and_ack("tool.cancel", cancel).await;
    let interrupt = codex.answer("turn/interrupt", json!({})).await;
    assert_eq!(interrupt, json!({ "threadId": THREAD, "turnId": TURN }));
    codex.end_turn("interrupted").await;
    assert_eq!(result_of(&mut ann, &proposal).await["outcome"], "unknown");
}
