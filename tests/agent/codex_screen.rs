//! `pvp run -- codex` with its screen, which asks too much, and strangers beside it.

use serde_json::{Value, json};

use crate::codex::{answer_to, start_screen};
use crate::fixture::assert_contains;
use crate::start_session;
use crate::support::codex_client::{CodexClient, THREAD};
use crate::support::session::send_prompt;

#[tokio::test]
async fn only_the_secret_lets_the_screen_in_and_no_page_of_a_browser() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    codex.wait_for_screen().await;
    let secret = codex.noted("secret").trim().to_owned();
    for wrong in ["", "guess", &secret[1..]] {
        assert!(codex.try_connect_screen(wrong).await.is_none(), "{wrong}");
    }
    let origin = ("origin", "http://127.0.0.1");
    assert!(codex.connect_with(&secret, &[origin]).await.is_none());
    // The screen is let in all the same.
    start_screen(&mut codex).await;
}

#[tokio::test]
async fn rules_that_appear_later_keep_a_conversation_from_beginning() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let mut screen = codex.connect_screen().await;
    let rules = codex.cli.workdir().join("sub/.codex/rules");
    std::fs::create_dir_all(&rules).unwrap();
    std::fs::write(rules.join("x.rules"), "prefix_rule(pattern=[\"touch\"])").unwrap();
    let params = json!({ "cwd": codex.cli.workdir().join("sub") });
    screen.ask(1, "thread/start", params).await;
    codex.answer("config/read", json!({ "config": {} })).await;
    let answer = screen.hear(|message| message["id"] == 1).await;
    assert_contains(answer["error"]["message"].as_str().unwrap(), &["x.rules"]);
    // Nor does one begin if it is not known which settings hold.
    let params = json!({ "cwd": codex.cli.workdir() });
    screen.ask(2, "thread/resume", params).await;
    codex.answer("config/read", json!({})).await;
    let answer = screen.hear(|message| message["id"] == 2).await;
    assert_contains(answer["error"]["message"].as_str().unwrap(), &["settings"]);
}

#[tokio::test]
async fn settings_of_another_directory_keep_a_conversation_from_beginning_there() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let mut screen = codex.connect_screen().await;
    let elsewhere = codex.cli.home().join("elsewhere");
    std::fs::create_dir_all(elsewhere.join(".codex")).unwrap();
    let settings = "[mcp_servers.evil]\ncommand = \"sh\"\n";
    std::fs::write(elsewhere.join(".codex/config.toml"), settings).unwrap();
    let params = json!({ "cwd": elsewhere, "threadId": "old" });
    screen.ask(1, "thread/resume", params).await;
    codex.answer("config/read", json!({ "config": {} })).await;
    let answer = screen.hear(|message| message["id"] == 1).await;
    assert_contains(
        answer["error"]["message"].as_str().unwrap(),
        &["`[mcp_servers.evil]`", "without asking anybody"],
    );
}

#[tokio::test]
async fn the_screen_speaks_for_itself_only_and_hears_everything() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let mut screen = codex.connect_screen().await;
    let muted = json!({ "experimentalApi": true, "optOutNotificationMethods": ["item/started"] });
    let params = json!({ "clientInfo": {}, "capabilities": muted });
    screen.ask(1, "initialize", params).await;
    let told = codex.answer("initialize", json!({})).await;
    assert_eq!(told["capabilities"], json!({ "experimentalApi": true }));
    // An id of ours would have us take its answer for one to a question of ours.
    let list = json!({ "id": "pvp-1", "method": "thread/list", "params": {} });
    screen.say(list).await;
    let answer = screen.hear(|message| message["id"] == "pvp-1").await;
    assert!(answer["error"].is_object(), "{answer}");
    screen.ask(2, "thread/list", json!({})).await;
    codex.answer("thread/list", json!({ "data": [] })).await;
    screen.hear(|message| message["id"] == 2).await;
}

#[tokio::test]
async fn nothing_that_may_be_about_a_call_is_left_to_the_screen_alone() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let mut screen = start_screen(&mut codex).await;
    let approval = json!([{ "id": "mcp_tool_call_approval_1", "question": "Allow?" }]);
    for (id, method, params) in [
        (1, "of/tomorrow", json!({})),
        (2, "execCommandApproval", json!({ "command": ["rm"] })),
        (
            3,
            "item/tool/requestUserInput",
            json!({ "questions": approval }),
        ),
        (4, "item/tool/call", json!({ "tool": "t" })),
    ] {
        codex.ask(id, method, params).await;
        let answer = codex.hear().await;
        assert!(
            answer["error"].is_object() && answer["id"] == id,
            "{answer}"
        );
    }
    // What is not about a call is asked there, and only its answer is passed on, once.
    let question = json!([{ "id": "colour", "question": "Which?" }]);
    let question = json!({ "questions": question });
    codex.ask(5, "item/tool/requestUserInput", question).await;
    let shown =
        screen.hear(|message| message.get("method").is_some() && message["id"] != Value::Null);
    assert_eq!(shown.await["id"], 5);
    for answered in [9, 5, 5] {
        screen
            .say(answer_to(answered, json!({ "answers": {} })))
            .await;
    }
    assert_eq!(codex.hear().await, answer_to(5, json!({ "answers": {} })));
    screen
        .ask(6, "thread/read", json!({ "threadId": THREAD }))
        .await;
    assert_eq!(codex.hear().await["method"], "thread/read");
}

#[tokio::test]
async fn neither_codex_nor_its_screen_holds_a_link() {
    let (server, _ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    start_screen(&mut codex).await;
    for whose in ["server-env", "screen-env"] {
        let environment = codex.noted(whose);
        assert!(!environment.contains("token="), "{whose}: {environment}");
    }
    assert!(!codex.noted("server-env").contains("PVP_"));
}

#[tokio::test]
async fn what_waited_for_a_conversation_before_an_interrupt_is_not_said() {
    let (server, mut ann) = start_session(json!({})).await;
    let mut codex = CodexClient::start(&server, &[]).await;
    let mut screen = codex.connect_screen().await;
    send_prompt(&mut ann, &codex.participant, "delete it").await;
    let raise = json!({ "urgency": "stop", "message": "wait" });
    ann.send_and_ack("interrupt.raise", raise).await;
    ann.wait_for("interrupt.acknowledge").await;
    send_prompt(&mut ann, &codex.participant, "keep it").await;
    let params = json!({ "cwd": codex.cli.workdir() });
    screen.ask(1, "thread/start", params).await;
    codex.answer("config/read", json!({ "config": {} })).await;
    let thread = json!({ "id": THREAD, "ephemeral": false, "parentThreadId": null });
    let started = json!({ "thread": thread });
    codex.answer("thread/start", started.clone()).await;
    codex.notify("thread/started", started).await;
    let turn = codex.answer("turn/start", json!({})).await;
    assert_eq!(turn["input"][0]["text"], "ann says: keep it");
}
