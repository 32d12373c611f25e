//! What Claude Code really said over its control protocol, and what becomes of it: with its own
//! permission prompt first, and then with hooks.

use serde_json::{Value, json};

use super::{ControlQuestion, results_of_runs};
use crate::hooks::{HookAnswer, HookClient, HookEvent, HookedCall};

const CAPTURED: &str = include_str!("../../../tests/bridges/captures/claude-control.jsonl");

/// What this side said: `pvp` or `claude`.
fn said_by(side: &str) -> Vec<Value> {
    let lines = CAPTURED
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let lines = lines.filter(|line: &Value| line["from"] == side);
    lines.map(|line| line["line"].clone()).collect()
}

/// The questions of a kind, with the answers that were given.
fn questions(kind: &str) -> Vec<(Value, Option<Value>)> {
    let answers = said_by("pvp");
    let asked = said_by("claude").into_iter();
    let asked = asked.filter(|line| line["type"] == "control_request");
    let asked = asked.filter(|line| line["request"]["subtype"] == kind);
    asked
        .map(|line| {
            let mut answers = answers.iter().map(|answer| &answer["response"]);
            let answer = answers.find(|answer| answer["request_id"] == line["request_id"]);
            (line, answer.map(|answer| answer["response"].clone()))
        })
        .collect()
}

#[test]
fn its_hooks_ask_about_each_call_and_take_our_words() {
    let bash = |line: &str| ("Bash", json!({ "command": line, "description": "d" }));
    let write = json!({ "file_path": "/workspace/v.txt", "content": "v" });
    let expected = [
        bash("echo one; touch x"),
        bash("touch y"),
        bash("touch z; sleep 60; touch zz"),
        ("Write", write),
    ];
    let asked = questions("hook_callback");
    assert_eq!(asked.len(), expected.len());
    for (number, ((line, answer), (tool, input))) in asked.into_iter().zip(expected).enumerate() {
        let event = HookClient::Claude.parse_value("", &line["request"]["input"]);
        let expected = HookedCall {
            conversation: "8f070fa4-0446-4de8-8b98-7426ae91412a".to_owned(),
            call_id: Some(format!("call_main_{number}_0")),
            subagent: None,
            cwd: "/workspace".into(),
            tool: tool.to_owned(),
            input: input.as_object().unwrap().clone(),
        };
        assert_eq!(event, Ok(HookEvent::BeforeCall(expected)));
        let question = ControlQuestion::hook("q");
        let given = &answer.unwrap()["hookSpecificOutput"];
        let ours = match given["permissionDecision"] == "allow" {
            true => question.wording(&HookAnswer::Allow { edited: None }),
            false => question.wording(&HookAnswer::deny("carol said so")),
        };
        let ours = &ours["hookSpecificOutput"];
        assert_eq!(ours["hookEventName"], given["hookEventName"]);
        assert_eq!(ours["permissionDecision"], given["permissionDecision"]);
    }
}

#[test]
fn its_permission_prompt_takes_our_words() {
    let answered: Vec<_> = questions("can_use_tool")
        .into_iter()
        .map(|(line, answer)| {
            let question = ControlQuestion::permission("q", &line["request"]["input"]);
            let Some(given) = answer else {
                return "taken back";
            };
            let edited = given["updatedInput"].as_object().cloned();
            let allow = HookAnswer::Allow { edited };
            let deny = HookAnswer::deny(given["message"].as_str().unwrap_or_default());
            match given["behavior"].as_str() {
                Some("allow") => {
                    assert_eq!(question.wording(&allow), given);
                    "allowed"
                }
                _ => {
                    assert_eq!(question.wording(&deny), given);
                    "denied"
                }
            }
        })
        .collect();
    assert_eq!(answered, ["allowed", "denied", "allowed", "taken back"]);
}

#[test]
fn what_was_denied_or_interrupted_is_not_taken_for_a_run() {
    let said = said_by("claude");
    let results = said.iter().filter(|line| line["type"] == "user");
    let runs: Vec<_> = results
        .flat_map(results_of_runs)
        .map(|result| result["content"].as_str().unwrap())
        .collect();
    assert_eq!(runs, ["one\nedited", "one"]);
}
