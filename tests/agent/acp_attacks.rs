//! `pvp agent --acp` and `pvp acp` against agents and editors that lie, change their words, or say what
//! nobody knows.

use serde_json::{Value, json};

use crate::acp::{found, start, start_in, text_of_responses};
use crate::acp_editor::EditorStandIn;
use crate::fixture::assert_contains;
use crate::support::acp_agent::{AcpStandIn, CONVERSATION};
use crate::support::cli::CliEnv;
use crate::support::hook_client::install_program;
use crate::support::session::{proposal_of, result_of, send_prompt, wait_for_response};
use crate::{approve, next_gate, reject, start_session};

#[tokio::test]
async fn an_agent_is_not_started_where_the_repository_brings_what_it_runs() {
    let (server, _ann) = start_session(json!({})).await;
    let user = server.invite("helper", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    for (name, file) in [
        ("opencode", ".opencode/plugin/evil.js"),
        (
            "gemini-cli",
            ".gemini/extensions/evil/gemini-extension.json",
        ),
        ("claude-agent-acp", ".claude/settings.json"),
    ] {
        let cli = CliEnv::new();
        let file = cli.workdir().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "{}").unwrap();
        let ran = cli.home().join("ran");
        let text = format!("#!/bin/sh\n: > '{}'\n", ran.display());
        let program = install_program(&cli, name, &text);
        let program = program.to_str().unwrap();
        for arguments in [
            &["acp", "--", program][..],
            &["agent", "--acp", program],
            &["agent", "--acp", "/bin/sh", program],
        ] {
            let variables = [("PVP_AGENT_LINK", link.as_str())];
            let refused = cli.run_with_env(arguments, &variables).await;
            let said = refused.expect_refused(arguments);
            assert_contains(&said, &["without asking anybody", "--trust-project"]);
            assert!(!ran.exists(), "{arguments:?}");
        }
        let trusted = ["agent", "--trust-project", "--acp", program];
        let variables = [("PVP_AGENT_LINK", link.as_str())];
        let said = cli.run_with_env(&trusted, &variables).await.err;
        assert_contains(&said, &["runs or uses it without asking anybody"]);
        assert!(ran.exists(), "{said}");
    }
}

#[tokio::test]
async fn an_editor_opens_no_conversation_where_the_repository_brings_what_its_agent_runs() {
    let mut it = EditorStandIn::start_named("opencode").await;
    let project = it.agent.cli.home().join("project");
    let plugins = project.join(".opencode/plugin");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("evil.js"), "").unwrap();
    let params = json!({ "cwd": project, "mcpServers": [] });
    it.request(2, "session/new", params).await;
    let refused = it.answer(2).await;
    let why = refused["error"]["message"].as_str().unwrap();
    assert_contains(why, &["`plugin`", "--trust-project"]);
    // Elsewhere it works.
    let params = json!({ "cwd": it.agent.cli.workdir(), "mcpServers": [] });
    it.request(3, "session/new", params).await;
    it.agent.expect("session/new").await;
}

fn option(id: &str, name: &str, kind: &str) -> Value {
    json!({ "optionId": id, "name": name, "kind": kind })
}

/// Asks about a command with these options.
async fn ask_with(agent: &mut AcpStandIn, id: u64, options: &[Value]) {
    let call = format!("call-{id}");
    let line = format!("touch made-{id}");
    let tool_call = json!({
        "toolCallId": call, "title": line, "kind": "execute", "rawInput": { "command": line },
    });
    let params = json!({ "toolCall": tool_call, "options": options });
    agent
        .request(id, "session/request_permission", params)
        .await;
}

#[tokio::test]
async fn an_option_that_is_called_otherwise_than_it_is_is_not_chosen() {
    let mut it = start().await;
    let no = option("no", "No", "reject_once");
    // What is called a rejection and allows.
    for (id, allowing) in [
        (1, option("allow_always", "Deny", "reject_once")),
        (2, option("x", "Yes, always", "reject_once")),
        (3, option("proceed_once", "Reject", "reject_once")),
    ] {
        ask_with(&mut it.agent, id, std::slice::from_ref(&allowing)).await;
        let (gate, _) = next_gate(&mut it.ann).await;
        reject(&mut it.ann, &gate, "no").await;
        assert_eq!(it.agent.choice(id).await, "cancelled", "{allowing}");
    }
    // What is called a permission for once and lasts.
    for (id, lasting) in [
        (
            4,
            option("ok", "Yes, and don't ask again for touch", "allow_once"),
        ),
        (5, option("ok", "Allow for this session", "allow_once")),
        (6, option("yes_always", "Yes", "allow_once")),
    ] {
        ask_with(&mut it.agent, id, &[lasting.clone(), no.clone()]).await;
        let (gate, _) = next_gate(&mut it.ann).await;
        approve(&mut it.ann, &gate).await;
        assert_eq!(it.agent.choice(id).await, "no", "{lasting}");
        let proposal = proposal_of(&it.ann, &gate);
        assert_eq!(
            result_of(&mut it.ann, &proposal).await["outcome"],
            "not_run"
        );
    }
    // Two options with one id could mean either.
    let twice = [
        option("same", "Yes", "allow_once"),
        option("same", "Always", "allow_always"),
        no,
    ];
    ask_with(&mut it.agent, 7, &twice).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(7).await, "no");
}

#[tokio::test]
async fn a_call_that_changes_while_people_look_at_it_is_rejected() {
    let mut it = start().await;
    it.agent.ask(1, "call-1", "touch made").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    // Saying the same again changes nothing.
    let same = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": "pending",
        "rawInput": { "command": "touch made" },
    });
    it.agent.update(same).await;
    let other = json!({
        "sessionUpdate": "tool_call_update", "toolCallId": "call-1",
        "rawInput": { "command": "rm -rf /" },
    });
    it.agent.update(other).await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["gate"], *gate);
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
    it.agent.end_turn(&it.prompt).await;
    let (_, text) = it.agent.prompted().await;
    assert_contains(&text, &["changed while people looked at it"]);
}

#[tokio::test]
async fn the_directory_of_a_command_is_not_forgotten_between_its_announcement_and_the_question() {
    let reads = json!({ "client_reads": "workspace" });
    let mut it = start_in(reads).await;
    let inside = it.agent.cli.workdir().canonicalize().unwrap();
    std::fs::write(inside.join("notes"), "x").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let elsewhere = elsewhere.path().canonicalize().unwrap();
    // OpenCode says where only when it announces a command.
    let announced = json!({
        "sessionUpdate": "tool_call", "toolCallId": "call-1", "title": "cat notes",
        "kind": "execute", "status": "pending",
        "rawInput": { "command": "cat notes", "cwd": elsewhere },
    });
    it.agent.update(announced).await;
    it.agent.ask(1, "call-1", "cat notes").await;
    let (gate, line) = next_gate(&mut it.ann).await;
    assert_eq!(line, "cat notes");
    let proposed = found(&it.ann, "tool.propose")[0]["payload"]["arguments"].clone();
    assert_eq!(proposed["cwd"], json!(elsewhere));
    reject(&mut it.ann, &gate, "no").await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    // Here it runs unasked, until the agent may have gone elsewhere.
    it.agent.ask(2, "call-2", "cat notes").await;
    assert_eq!(it.agent.choice(2).await, "this-one");
    it.agent.ask(3, "call-3", "cd /tmp && make").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(3).await, "this-one");
    let went = json!({ "sessionUpdate": "tool_call_update", "toolCallId": "call-3", "status": "completed" });
    it.agent.update(went).await;
    it.agent.ask(4, "call-4", "cat notes").await;
    let (_, line) = next_gate(&mut it.ann).await;
    assert_eq!(line, "cat notes");
}

#[tokio::test]
async fn an_agent_that_goes_to_a_mode_without_questions_is_stopped_and_brought_back() {
    let (server, mut ann) = start_session(json!({})).await;
    let modes = json!([
        { "id": "ask", "name": "Ask" }, { "id": "swift", "name": "Auto-approve everything" },
    ]);
    let modes = json!({ "currentModeId": "ask", "availableModes": modes });
    let opened = json!({ "sessionId": CONVERSATION, "modes": modes });
    let mut agent = AcpStandIn::start_answering(&server, "owl", opened).await;
    send_prompt(&mut ann, &agent.participant, "go on").await;
    agent.prompted().await;
    agent.ask(1, "call-1", "touch made").await;
    next_gate(&mut ann).await;
    let update = json!({ "sessionUpdate": "current_mode_update", "currentModeId": "swift" });
    agent.update(update).await;
    agent.expect("session/cancel").await;
    assert_eq!(agent.choice(1).await, "cancelled");
    let back = agent.expect("session/set_mode").await;
    assert_eq!(back["params"]["modeId"], "ask");
    wait_for_response(&mut ann, "mode `swift`, in which it asks nobody").await;
    // Whoever does not go back is ended.
    let error = json!({ "code": -32603, "message": "no" });
    agent
        .say(json!({ "jsonrpc": "2.0", "id": back["id"], "error": error }))
        .await;
    agent.wait_closed().await;
}

#[tokio::test]
async fn an_option_that_is_a_mode_by_another_name_is_changed_before_anything_is_asked() {
    let (server, _ann) = start_session(json!({})).await;
    let choices = json!([
        { "value": "bypassPermissions", "name": "Bypass" }, { "value": "default", "name": "Default" },
    ]);
    let mode = json!({
        "id": "mode", "name": "Mode", "category": "mode", "type": "select",
        "currentValue": "bypassPermissions", "options": choices,
    });
    let model = json!({
        "id": "model", "name": "Model", "type": "select", "currentValue": "auto", "options": [],
    });
    let opened = json!({ "sessionId": CONVERSATION, "configOptions": [model, mode] });
    let user = AcpStandIn::start_answering(&server, "owl", opened);
    let mut agent = user.await;
    let change = agent.expect("session/set_config_option").await;
    let expected = json!({ "sessionId": CONVERSATION, "configId": "mode", "value": "default" });
    assert_eq!(change["params"], expected);
}

#[tokio::test]
async fn a_conversation_reaches_no_terminal_of_another_and_stops_only_its_own() {
    let mut it = start().await;
    let create = json!({ "command": "touch made && sleep 60" });
    it.agent.request(1, "terminal/create", create).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    let terminal = it.agent.answer(1).await["result"]["terminalId"].clone();
    for (id, method) in [
        (2, "terminal/output"),
        (3, "terminal/kill"),
        (4, "terminal/release"),
        (5, "terminal/wait_for_exit"),
    ] {
        let params = json!({ "sessionId": "conversation-2", "terminalId": terminal });
        it.agent
            .say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
        assert!(it.agent.answer(id).await["error"].is_object(), "{method}");
    }
    let own = json!({ "terminalId": terminal });
    it.agent.request(6, "terminal/output", own.clone()).await;
    assert_eq!(
        it.agent.answer(6).await["result"]["exitStatus"],
        Value::Null
    );
    it.agent.request(7, "terminal/release", own).await;
    assert_eq!(it.agent.answer(7).await["result"], json!({}));
    let proposal = proposal_of(&it.ann, &gate);
    assert_eq!(result_of(&mut it.ann, &proposal).await["success"], false);
}

#[tokio::test]
async fn what_is_no_message_of_the_protocol_ends_nothing() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    let huge = "x".repeat(9 * 1024 * 1024);
    let wrong = [
        json!({ "method": "session/update", "params": [] }),
        json!({ "method": "session/update", "params": "x" }),
        json!({ "method": "session/update", "params": { "update": 1 } }),
        json!({ "method": "session/update", "params": { "sessionId": 1, "update": [] } }),
        json!({ "id": 1, "method": "session/request_permission", "params": [] }),
        json!({ "id": 2, "method": "session/request_permission", "params": { "options": [] } }),
        json!({ "id": 3, "method": "terminal/create", "params": null }),
        json!({ "id": 999, "result": {} }),
        json!({ "method": "session/update", "params": { "huge": huge } }),
    ];
    for message in wrong {
        it.agent.say(message).await;
    }
    it.agent.say_text("\u{0} no json").await;
    it.request(8, "initialize", json!({ "clientCapabilities": "none" }))
        .await;
    let told = it.agent.expect("initialize").await;
    assert_eq!(told["params"]["clientCapabilities"]["terminal"], true);
    it.agent.ask(4, "call-1", "touch made").await;
    let (gate, _) = next_gate(&mut it.ann).await;
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(4).await, "this-one");
}

#[tokio::test]
async fn an_editor_passes_on_only_what_is_known_and_asks_nobody_for_approval() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    it.request(8, "_agent/set_permissions", json!({ "all": true }))
        .await;
    assert_eq!(it.answer(8).await["error"]["code"], -32601);
    it.say(json!({ "jsonrpc": "2.0", "method": "_agent/trust", "params": {} }))
        .await;
    let meta = json!({ "codex_approval_kind": "mcp_tool_call" });
    let asked = json!({ "message": "Allow delete?", "mode": "form", "_meta": meta });
    it.agent.request(1, "elicitation/create", asked).await;
    assert!(it.agent.answer(1).await["error"].is_object());
    let asked = json!({ "message": "Which colour?", "mode": "form" });
    it.agent.request(2, "elicitation/create", asked).await;
    it.notified("elicitation/create").await;
    assert!(it.agent.unread().is_empty(), "{:?}", it.agent.unread());
    assert!(it.unread.is_empty(), "{:?}", it.unread);
}

#[tokio::test]
async fn what_a_loaded_conversation_repeats_is_not_taken_for_new() {
    let mut it = EditorStandIn::start().await;
    let old = "conversation-old";
    let params = json!({ "cwd": it.agent.cli.workdir(), "mcpServers": [], "sessionId": old });
    it.request(4, "session/load", params).await;
    let load = it.agent.expect("session/load").await;
    for update in [
        json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "old words" } }),
        json!({
            "sessionUpdate": "tool_call", "toolCallId": "call-0", "title": "touch old",
            "kind": "execute", "status": "completed", "rawInput": { "command": "touch old" },
        }),
    ] {
        let params = json!({ "sessionId": old, "update": update });
        it.agent
            .say(json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
            .await;
        it.notified("session/update").await;
    }
    it.agent.respond(&load, json!({})).await;
    it.answer(4).await;
    let prompt = it.prompt(5, "go").await;
    it.agent
        .update(json!({ "sessionUpdate": "agent_message_chunk", "content": { "type": "text", "text": "new words" } }))
        .await;
    it.agent.end_turn(&prompt).await;
    it.answer(5).await;
    it.ann.wait_for("response.end").await;
    assert_eq!(text_of_responses(&it.ann), "new words");
}

#[tokio::test]
async fn a_command_is_judged_where_the_editor_lets_the_agent_work() {
    let mut it = EditorStandIn::start_agent().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let params = json!({ "cwd": elsewhere.path(), "mcpServers": [] });
    it.request(2, "session/new", params).await;
    let session_new = it.agent.expect("session/new").await;
    let opened = json!({ "sessionId": CONVERSATION });
    it.agent.respond(&session_new, opened).await;
    it.answer(2).await;
    it.prompt(3, "do it").await;
    it.agent.ask(1, "call-1", "rm -r build").await;
    next_gate(&mut it.ann).await;
    let proposed = found(&it.ann, "tool.propose")[0]["payload"]["arguments"].clone();
    let real = elsewhere.path().canonicalize().unwrap();
    assert_eq!(proposed["cwd"], json!(real));
}

#[tokio::test]
async fn however_many_turns_are_cancelled_nothing_more_is_granted_in_any() {
    let mut it = EditorStandIn::start().await;
    let conversation = |number: u64| format!("conversation-{number}");
    for number in 1..=65 {
        let prompt = json!([{ "type": "text", "text": "do it" }]);
        let params = json!({ "sessionId": conversation(number), "prompt": prompt });
        it.request(100 + number, "session/prompt", params).await;
        it.agent.prompted().await;
    }
    for number in 1..=65 {
        let params = json!({ "sessionId": conversation(number) });
        it.say(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }))
            .await;
        it.agent.expect("session/cancel").await;
    }
    for number in 1..=65 {
        let tool_call = json!({
            "toolCallId": "late", "title": "make", "kind": "execute",
            "rawInput": { "command": "make" },
        });
        let options = [option("yes", "Yes", "allow_once")];
        let params = json!({
            "sessionId": conversation(number), "toolCall": tool_call, "options": options,
        });
        let method = "session/request_permission";
        let asked = json!({ "jsonrpc": "2.0", "id": number, "method": method, "params": params });
        it.agent.say(asked).await;
        assert_eq!(it.agent.choice(number).await, "cancelled", "{number}");
    }
    it.ann.sync().await;
    assert!(found(&it.ann, "tool.propose").is_empty());
}

#[tokio::test]
async fn a_conversation_whose_directory_would_be_forgotten_is_not_opened() {
    let mut it = EditorStandIn::start_agent().await;
    for number in 0..=256_u64 {
        let params = json!({ "cwd": it.agent.cli.workdir(), "mcpServers": [] });
        it.request(100 + number, "session/new", params).await;
        let session_new = it.agent.expect("session/new").await;
        let opened = json!({ "sessionId": format!("conversation-{number}") });
        it.agent.respond(&session_new, opened).await;
        let answer = it.answer(100 + number).await;
        if number < 256 {
            assert!(answer.get("error").is_none(), "{answer}");
        } else {
            let why = answer["error"]["message"].as_str().unwrap();
            assert_contains(why, &["256 conversations", "start the agent again"]);
        }
    }
}

#[tokio::test]
async fn an_agent_behind_an_editor_that_does_not_heed_an_interrupt_is_ended() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    let raise = json!({ "urgency": "stop", "message": "enough" });
    it.ann.send_and_ack("interrupt.raise", raise).await;
    it.agent.expect("session/cancel").await;
    it.agent.wait_closed().await;
    let ended = it.agent.run.ended().await;
    assert_eq!(ended.code, Some(1), "{}", ended.err);
}

#[tokio::test]
async fn a_command_that_is_cancelled_before_it_is_proposed_waits_for_nobody() {
    let mut it = EditorStandIn::start().await;
    it.prompt(3, "do it").await;
    it.server.signal("STOP");
    let create = json!({ "command": "touch made" });
    it.agent.request(1, "terminal/create", create).await;
    // What came before it is done when this is answered.
    it.agent.request(2, "terminal/of_tomorrow", json!({})).await;
    it.agent.answer(2).await;
    let params = json!({ "sessionId": CONVERSATION });
    it.say(json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": params }))
        .await;
    assert!(it.agent.answer(1).await["error"].is_object());
    it.server.signal("CONT");
    let (gate, _) = next_gate(&mut it.ann).await;
    let resolved = it.ann.wait_for("gate.resolve").await;
    assert_eq!(resolved["payload"]["gate"], *gate);
    assert_eq!(resolved["payload"]["outcome"], "cancelled");
}

#[tokio::test]
async fn only_our_own_tools_are_allowed_without_a_question_here() {
    let mut it = start().await;
    let server = it.agent.session_new["mcpServers"][0]["name"].clone();
    let server = server.as_str().unwrap().to_owned();
    let call = |id: u64, name: &str, kind: &str| json!({ "toolCallId": format!("call-{id}"), "title": name, "kind": kind, "name": name });
    let own = format!("mcp__{server}__shell");
    it.agent.ask_about(1, call(1, &own, "other")).await;
    assert_eq!(it.agent.choice(1).await, "this-one");
    // A command whose title is the name of our tool is not our tool.
    let mut titled = call(2, &own, "execute");
    titled["name"] = Value::Null;
    titled["rawInput"] = json!({ "command": "rm -r src" });
    let others = [
        (3, "mcp__evil__shell".to_owned()),
        (4, format!("mcp__{server}__delete")),
        (5, format!("x{server}_shell")),
    ];
    let others = others.map(|(id, name)| (id, call(id, &name, "other")));
    for (id, call) in [(2, titled)].into_iter().chain(others) {
        it.agent.ask_about(id, call).await;
        let (gate, _) = next_gate(&mut it.ann).await;
        reject(&mut it.ann, &gate, "no").await;
        assert_eq!(it.agent.choice(id).await, "not-this");
    }
}

#[tokio::test]
async fn a_file_that_changed_since_it_was_shown_is_not_changed() {
    let mut it = start().await;
    let path = it.agent.cli.workdir().join("a.txt");
    std::fs::write(&path, "old\n").unwrap();
    let diff = json!({ "type": "diff", "path": path, "oldText": "old\n", "newText": "new\n" });
    let tool_call = json!({
        "toolCallId": "call-1", "title": "a.txt", "kind": "edit", "content": [diff],
    });
    it.agent.ask_about(1, tool_call).await;
    let (gate, _) = next_gate(&mut it.ann).await;
    std::fs::write(&path, "what somebody else wrote\n").unwrap();
    approve(&mut it.ann, &gate).await;
    assert_eq!(it.agent.choice(1).await, "not-this");
    let proposal = proposal_of(&it.ann, &gate);
    let result = result_of(&mut it.ann, &proposal).await;
    assert_eq!(result["outcome"], "not_run");
    assert_contains(result["error"].as_str().unwrap(), &["has changed"]);
}
