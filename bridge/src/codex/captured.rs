//! What `codex app-server` really said, and what becomes of it: two commands, a change of a file, a
//! command that is interrupted, and a tool of an MCP server.

use serde_json::{Value, json};

use super::calls::{self, QuestionKind};
use super::methods::{ScreenMethod, of_screen};
use super::wire::{Message, text};
use crate::supervisor::CallReport;
use crate::translation::CallPlace;

const CAPTURED: &str = include_str!("../../../tests/bridges/captures/codex-app-server.jsonl");

/// What each side said: `pvp` or `codex`.
fn lines() -> impl Iterator<Item = (String, Value)> {
    CAPTURED.lines().map(|line| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        (
            line["from"].as_str().unwrap().to_owned(),
            line["line"].take(),
        )
    })
}

fn messages() -> impl Iterator<Item = (String, Message)> {
    lines().map(|(from, line)| {
        let message = Message::parse(&line.to_string());
        (from, message.unwrap_or_else(|| panic!("{line}")))
    })
}

fn place() -> CallPlace {
    CallPlace {
        workspace: "/workspace".into(),
        cwd: "/workspace".into(),
    }
}

#[test]
fn every_message_is_read_and_passed_on_as_it_is() {
    let mut requests = 0;
    for ((_, line), (from, message)) in lines().zip(messages()) {
        let mut expected = line;
        let fields = expected.as_object_mut().unwrap();
        // When it was said is Codex's own note.
        fields.remove("emittedAtMs");
        if fields.contains_key("method") {
            fields.entry("params").or_insert_with(|| json!({}));
        }
        assert_eq!(message.to_json(), expected);
        if let (Message::Request { method, .. }, "pvp") = (&message, from.as_str()) {
            requests += 1;
            assert_ne!(of_screen(method), ScreenMethod::Refuse, "{method}");
        }
    }
    assert_eq!(requests, 6);
}

#[test]
fn its_commands_are_asked_about_as_they_were_written() {
    let asked = messages().filter_map(|(_, message)| match message {
        Message::Request { method, params, .. }
            if method == "item/commandExecution/requestApproval" =>
        {
            Some(calls::command(&params, &place()).unwrap().call)
        }
        Message::Request { .. } | Message::Response { .. } | Message::Notification { .. } => None,
    });
    let asked: Vec<_> = asked
        .map(|call| (call.tool_name, call.arguments["full_command"].clone()))
        .collect();
    let shell = |line: &str| ("shell".to_owned(), json!(line));
    let expected = [
        shell("echo one; sleep 0.3; echo two; touch x"),
        shell("touch y"),
        shell("touch z; sleep 60; touch zz"),
    ];
    assert_eq!(asked, expected);
}

#[test]
fn how_its_calls_ended_is_reported() {
    let items = messages().filter_map(|(_, message)| match message {
        Message::Notification { method, params } if method == "item/completed" => {
            params["item"].as_object().cloned()
        }
        Message::Request { .. } | Message::Response { .. } | Message::Notification { .. } => None,
    });
    let is_call = ["commandExecution", "fileChange", "mcpToolCall"];
    let calls: Vec<_> = items
        .filter(|item| is_call.contains(&text(item, "type")))
        .collect();
    let reports: Vec<_> = calls.iter().map(calls::report).collect();
    let expected = [
        CallReport {
            success: true,
            exit_code: Some(0),
            stdout: "one\ntwo\n".to_owned(),
            ..CallReport::default()
        },
        CallReport::not_run("the client did not run it"),
        CallReport {
            success: true,
            ..CallReport::default()
        },
        CallReport {
            success: true,
            stdout: "echo: hi".to_owned(),
            ..CallReport::default()
        },
    ];
    assert_eq!(reports, expected);
    let change = calls::file_change(&calls[2], &place()).unwrap().call;
    assert_eq!(change.tool_name, "file_write");
    assert_eq!(change.arguments["path"], "w.txt");
    let tool = calls::mcp_tool(&calls[3], &place()).unwrap().call;
    assert_eq!(tool.tool_name, "mcp__echo__echo");
    assert_eq!(Value::Object(tool.arguments), json!({ "text": "hi" }));
}

#[test]
fn our_answers_are_those_that_it_took() {
    let answers = lines().filter(|(from, line)| from == "pvp" && line.get("result").is_some());
    let answers: Vec<_> = answers.map(|(_, line)| line["result"].clone()).collect();
    let expected = [
        QuestionKind::Command.accepted(),
        QuestionKind::Command.declined(),
        QuestionKind::FileChange.accepted(),
        QuestionKind::Command.accepted(),
        QuestionKind::McpTool.accepted(),
    ];
    assert_eq!(answers, expected);
}
