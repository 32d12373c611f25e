//! `pvp check`, `pvp policy`, and a server with a user's policy file.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{TestServer, run_pvp};
use serde_json::{Value, json};

fn run_check(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pvp"))
        .arg("check")
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn the_exit_code_says_the_category() {
    for (command, code, category) in [
        ("ls -la", 0, "read"),
        ("touch a", 10, "write"),
        ("rm -rf build", 20, "destructive"),
        ("rm -rf /", 30, "blocked"),
    ] {
        let (exit, output, _) = run_check(&[command]);
        assert_eq!(exit, Some(code), "{command}");
        assert!(output.starts_with(category), "{output}");
        assert!(
            output.contains("rule ") && output.contains("reason "),
            "{output}"
        );
    }
}

#[test]
fn an_assessment_as_json_lists_its_parts() {
    let (_, output, _) = run_check(&["--json", "ls && rm -rf x"]);
    let verdict: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(verdict["category"], "destructive");
    let parts: Vec<_> = verdict["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["category"])
        .collect();
    assert_eq!(parts, ["read", "destructive"]);
}

#[test]
fn a_call_of_a_tool_is_assessed_by_its_arguments() {
    for (tool, arguments, code) in [
        ("file_read", r#"{"path": "README.md"}"#, 0),
        ("file_read", r#"{"path": ".env"}"#, 10),
        (
            "file_write",
            r#"{"path": "a", "content": "", "files": [{"path": "a"}]}"#,
            10,
        ),
        ("file_write", r#"{"path": "/tmp/a", "content": ""}"#, 20),
        (
            "file_write",
            r#"{"path": "/etc/passwd", "content": ""}"#,
            30,
        ),
        ("deploy", "{}", 10),
    ] {
        let (exit, output, _) = run_check(&["--tool", tool, arguments]);
        assert_eq!(exit, Some(code), "{tool} {arguments}: {output}");
    }
    let (exit, _, error) = run_check(&["--tool", "deploy", "[1]"]);
    assert_eq!(exit, Some(1));
    assert!(
        error.contains("the arguments of `deploy` must be a JSON object"),
        "{error}"
    );
    let (exit, _, error) = run_check(&["--tool", "shell", "ls"]);
    assert_eq!(exit, Some(1));
    assert!(error.contains("give the command line"), "{error}");
}

#[test]
fn argv_is_assessed_without_a_shell() {
    assert_eq!(run_check(&["--argv", "ls", "a b; rm -rf /"]).0, Some(0));
    assert_eq!(run_check(&["--argv", "rm", "-rf", "x"]).0, Some(20));
}

#[test]
fn lines_are_assessed_one_by_one_and_an_invalid_one_is_reported() {
    let sort = |input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_pvp"))
            .args(["check", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            output.status.success(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (good, said, _) = sort("\"ls\"\n\"echo a\\nb > c\"\n\"rm -rf ~\"\n");
    assert!(good);
    assert_eq!(said, "read\nwrite\nblocked\n");
    let (good, said, problem) = sort("\"ls\"\nls\n\"pwd\"\n");
    assert!(!good);
    assert_eq!(said, "read\n");
    assert!(problem.contains("line 2 is not a JSON string"), "{problem}");
}

#[test]
fn rules_are_shown_tested_and_explained() {
    let (good, output, _) = run_pvp(&["policy", "show"]);
    assert!(
        good && output.lines().count() > 300,
        "{}",
        output.lines().count()
    );
    let (good, output, _) = run_pvp(&["policy", "test"]);
    assert!(good && output.contains(" 0 examples"), "{output}");
    let (good, output, _) = run_pvp(&["policy", "explain", "sudo rm -rf build"]);
    assert!(good && output.contains("matched "), "{output}");
    let id = output
        .lines()
        .find_map(|line| line.strip_prefix("matched "))
        .unwrap();
    let id = id.split(' ').next().unwrap();
    assert!(run_pvp(&["policy", "show", id]).1.starts_with(id));
    let (good, _, problem) = run_pvp(&["policy", "show", "no.such.rule"]);
    assert!(
        !good && problem.contains("there is no rule `no.such.rule`"),
        "{problem}"
    );
}

/// A policy file that requires two approvals for `frobnicate`.
const TWO_FOR_FROB: &str = r#"
[[rule]]
id = "mine.frob"
command = "frobnicate"
category = "destructive"
reason = "frobnicating cannot be undone"
matches = ["frobnicate now"]
not = ["ls"]
quorum = { type = "any", count = 2 }
"#;

#[test]
fn a_bad_rule_file_is_refused_with_file_line_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    std::fs::write(
        &file,
        TWO_FOR_FROB.replace("[\"ls\"]", "[\"frobnicate x\"]"),
    )
    .unwrap();
    let path = file.to_str().unwrap();
    let (code, _, problem) = run_check(&["--policy", path, "ls"]);
    assert_eq!(code, Some(1));
    assert!(
        problem.contains("rules.toml:") && problem.contains("frobnicate x"),
        "{problem}"
    );
    std::fs::write(&file, "[[rule]]\nid = 7\n").unwrap();
    let (code, _, problem) = run_check(&["--policy", path, "ls"]);
    assert_eq!(code, Some(1));
    assert!(problem.contains("rules.toml:2"), "{problem}");
    let listen = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--policy",
        path,
        "--data",
    ];
    let data = dir.path().join("data");
    let (good, _, problem) = run_pvp(&[&listen[..], &[data.to_str().unwrap()]].concat());
    assert!(!good && problem.contains("rules.toml:2"), "{problem}");
}

#[tokio::test]
async fn the_server_reads_its_rules_again_and_keeps_the_old_ones_if_they_are_bad() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.toml");
    std::fs::write(&file, "").unwrap();
    // Polling until it is true may take many requests.
    let fast = [
        ("PVP_MESSAGES_PER_SECOND", "1000000"),
        ("PVP_MESSAGE_BURST", "1000000"),
    ];
    let server = TestServer::start_with_env(&["--policy", file.to_str().unwrap()], &fast).await;
    server.create_session("rules", json!({})).await;
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let mut agent = server.join("rules", &bot).await;
    let propose_and_read_gate = async |agent: &mut crate::support::TestClient| {
        let id = agent.propose("frobnicate now").await;
        let gate = agent
            .wait(|message| message["payload"]["action_ref"] == id.as_str())
            .await;
        agent
            .send_and_ack("tool.cancel", json!({ "tool_proposal": id }))
            .await;
        (
            gate["payload"]["category"].clone(),
            gate["payload"]["quorum"].clone(),
        )
    };
    let one = json!({ "type": "any", "count": 1 });
    assert_eq!(
        propose_and_read_gate(&mut agent).await,
        (json!("write"), one)
    );

    // The server handles the signal some time after it was sent: retry until the new rules are in
    // force.
    std::fs::write(&file, TWO_FOR_FROB).unwrap();
    server.signal("HUP");
    let two = json!({ "type": "any", "count": 2 });
    let mut verdict = propose_and_read_gate(&mut agent).await;
    while verdict.0 == "write" {
        verdict = propose_and_read_gate(&mut agent).await;
    }
    assert_eq!(verdict, (json!("destructive"), two.clone()));

    std::fs::write(&file, "nonsense").unwrap();
    server.signal("HUP");
    for _ in 0..3 {
        assert_eq!(
            propose_and_read_gate(&mut agent).await,
            (json!("destructive"), two.clone())
        );
    }
}
