//! What six agents really said, and what becomes of it: each asked to run `echo out; touch x`.

use agent_client_protocol_schema::v1::{RequestPermissionRequest, SessionNotification, ToolCall};
use pvp_protocol::ToolCategory;
use serde_json::{Value, json};

use super::calls::{CallKey, Calls, TurnStage};
use super::permission::{allow_option, reject_option, translate_call};
use super::report::report;
use super::wire::AcpMessage;
use crate::translation::CallPlace;

const AGENTS: [(&str, &str); 6] = [
    ("claude", include_str!("captures/claude.jsonl")),
    ("codex", include_str!("captures/codex.jsonl")),
    ("copilot", include_str!("captures/copilot.jsonl")),
    ("gemini", include_str!("captures/gemini.jsonl")),
    ("opencode", include_str!("captures/opencode.jsonl")),
    ("qwen", include_str!("captures/qwen.jsonl")),
];

fn messages(agent: &str) -> impl Iterator<Item = AcpMessage> {
    let (_, text) = AGENTS.iter().find(|(name, _)| *name == agent).unwrap();
    text.lines()
        .map(|line| AcpMessage::parse(line.as_bytes()).unwrap())
}

fn place() -> CallPlace {
    CallPlace {
        workspace: "/home/dev/work".into(),
        cwd: "/home/dev/work".into(),
    }
}

/// What people are asked, and the options that are chosen.
fn question(agent: &str) -> Option<(String, Value, String, [Option<String>; 2])> {
    let mut calls = Calls::default();
    for message in messages(agent) {
        match message {
            AcpMessage::Notification { params, .. } => {
                let update: SessionNotification = serde_json::from_value(params).unwrap();
                calls.on_update(&update.session_id.0, &update.update, TurnStage::Running);
            }
            AcpMessage::Request { params, .. } => {
                let asked: RequestPermissionRequest = serde_json::from_value(params).unwrap();
                let key = CallKey {
                    session: asked.session_id.0.to_string(),
                    call: asked.tool_call.tool_call_id.0.to_string(),
                };
                let (reported, number) = calls.on_question(&key, &asked.tool_call);
                assert_eq!(number, 1);
                let call = translate_call(&reported.call, Some(&reported.meta), &place());
                assert_eq!(call.category, ToolCategory::ShellExecute);
                let options = [allow_option(&asked.options), reject_option(&asked.options)];
                let options = options.map(|option| option.map(str::to_owned));
                return Some((call.tool_name, call.arguments.into(), call.purpose, options));
            }
            AcpMessage::Response { .. } => panic!("nobody asked it"),
        }
    }
    None
}

#[test]
fn every_question_is_a_command_that_policy_can_judge() {
    let expected = [
        ("claude", "/home/dev/work", "d", ["allow-once", "reject"]),
        (
            "copilot",
            "/home/dev/work",
            "d",
            ["allow_once", "reject_once"],
        ),
        (
            "gemini",
            "/home/dev/work/r2",
            "(d)",
            ["proceed_once", "cancel"],
        ),
        // It says where only when it announces the command.
        ("opencode", "/home/dev/work/r1", "d", ["once", "reject"]),
        ("qwen", "/home/dev/work", "d", ["proceed_once", "cancel"]),
    ];
    for (agent, cwd, purpose, options) in expected {
        let arguments = json!({ "full_command": "echo out; touch x", "cwd": cwd });
        let options = options.map(|option| Some(option.to_owned()));
        let asked = ("shell".to_owned(), arguments, purpose.to_owned(), options);
        assert_eq!(question(agent), Some(asked), "{agent}");
    }
    assert_eq!(question("codex"), None);
}

#[test]
fn results_have_their_output_and_exit_code() {
    let expected = [
        ("claude", Some(None), "out"),
        ("codex", Some(Some(0)), "out\n"),
        (
            "copilot",
            Some(Some(0)),
            "out\n<shellId: 0 completed with exit code 0>",
        ),
        ("gemini", Some(None), ""),
        ("opencode", Some(Some(0)), "out\n"),
        ("qwen", Some(Some(0)), "out"),
    ];
    for (agent, exit_code, stdout) in expected {
        let mut calls = Calls::default();
        let mut unasked = None;
        for message in messages(agent) {
            if let AcpMessage::Notification { params, .. } = message {
                let update: SessionNotification = serde_json::from_value(params).unwrap();
                unasked = unasked.or(calls.on_update(
                    &update.session_id.0,
                    &update.update,
                    TurnStage::Running,
                ));
            }
        }
        // Without the question, each of them is a call that nobody was asked about.
        let report = unasked.unwrap_or_else(|| panic!("{agent} ran it")).report;
        let report = report.unwrap();
        assert_eq!(
            (Some(report.exit_code), report.stdout.as_str()),
            (exit_code, stdout),
            "{agent}"
        );
        assert!(report.success, "{agent}");
    }
}

fn call(fields: Value) -> ToolCall {
    serde_json::from_value(fields).unwrap()
}

#[test]
fn only_a_title_that_is_known_to_be_the_command_is_taken_for_it() {
    // Whatever a model calls its command, people must not be shown that in place of it.
    for (id, name) in [
        ("call-1", "execute"),
        ("run_shell_command", "execute"),
        // Gemini says besides where its command runs.
        ("run_shell_command__other_1_0", "run_shell_command"),
    ] {
        let call = call(json!({ "toolCallId": id, "title": "ls", "kind": "execute" }));
        let translated = translate_call(&call, None, &place());
        assert_eq!(translated.tool_name, name);
        assert_eq!(translated.arguments["title"], "ls");
        assert_eq!(translated.arguments.get("full_command"), None);
    }
    // Two commands of which one is shown.
    let input = json!({ "command": "ls", "commands": ["ls", "rm -r src"] });
    let both =
        call(json!({ "toolCallId": "c", "title": "d", "kind": "execute", "rawInput": input }));
    assert_eq!(translate_call(&both, None, &place()).tool_name, "execute");
    // A field that is not known stays in sight.
    let input = json!({ "command": "ls", "shell": "/tmp/evil" });
    let other =
        call(json!({ "toolCallId": "c", "title": "d", "kind": "execute", "rawInput": input }));
    let translated = translate_call(&other, None, &place());
    assert_eq!(translated.arguments["shell"], "/tmp/evil");
    assert_ne!(translated.tool_name, "shell");
}

#[test]
fn an_agents_tool_is_not_ours_because_it_is_called_so() {
    for name in ["shell", "file_read", "file_write"] {
        let input = json!({ "full_command": "ls", "path": "a" });
        let call =
            call(json!({ "toolCallId": "c", "title": "t", "name": name, "rawInput": input }));
        let translated = translate_call(&call, None, &place());
        assert_eq!(translated.tool_name, format!("agent.{name}"));
    }
}

#[test]
fn a_diff_is_a_write_or_an_edit_or_stays_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().canonicalize().unwrap();
    std::fs::write(workspace.join("a"), "one two").unwrap();
    let place = CallPlace {
        workspace: workspace.clone(),
        cwd: workspace.clone(),
    };
    let translated = |path: &str, old: Value, new: &str| {
        let diff = json!({
            "type": "diff", "path": workspace.join(path), "oldText": old, "newText": new,
        });
        let call = call(json!({
            "toolCallId": "c", "title": "t", "kind": "edit", "content": [diff],
        }));
        let call = translate_call(&call, None, &place);
        (call.tool_name, Value::from(call.arguments))
    };
    let write = json!({ "path": "a", "content": "new" });
    assert_eq!(
        translated("a", json!("one two"), "new"),
        ("file_write".to_owned(), write)
    );
    let write = json!({ "path": "b", "content": "new" });
    assert_eq!(
        translated("b", Value::Null, "new"),
        ("file_write".to_owned(), write)
    );
    let edit = json!({ "path": "a", "old_text": "two", "new_text": "three" });
    assert_eq!(
        translated("a", json!("two"), "three"),
        ("file_edit".to_owned(), edit)
    );
    // What it would replace is not there.
    let (name, arguments) = translated("a", json!("four"), "five");
    assert_eq!(name, "edit");
    assert_eq!(arguments["changes"][0]["new_text"], "five");
    // It would replace more than it says.
    assert_eq!(translated("a", Value::Null, "five").0, "edit");
}

#[test]
fn a_call_that_has_not_ended_has_no_report() {
    let begun = call(json!({ "toolCallId": "c", "title": "t", "status": "in_progress" }));
    assert_eq!(report(&begun, &Default::default(), "out"), None);
    let failed = call(json!({ "toolCallId": "c", "title": "t", "status": "failed" }));
    let failed = report(&failed, &Default::default(), "out").unwrap();
    assert!(!failed.success);
    assert_eq!(failed.stdout, "out");
}
