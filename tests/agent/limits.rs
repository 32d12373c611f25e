//! Limits of a command: time, output, order of execution, and environment.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::support::TestClient;
use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::cli::CliEnv;
use crate::support::session::{
    approve, approve_next, collect_output, next_gate, next_result, proposal_of, result_of,
    start_session, start_session_with_env, wait_for_output,
};

/// Bytes delivered of both streams of a command.
fn delivered_bytes(person: &TestClient, proposal: &str) -> usize {
    let streams = ["stdout", "stderr"];
    let received = streams.map(|stream| collect_output(&person.received, proposal, stream).len());
    received.iter().sum()
}

/// The id of the proposal whose command contains this text.
fn proposal_matching(person: &TestClient, part: &str) -> String {
    let propose = |message: &&Value| {
        let line = message["payload"]["arguments"]["full_command"].as_str();
        message["type"] == "tool.propose" && line.is_some_and(|line| line.contains(part))
    };
    let propose = person.received.iter().find(propose).unwrap();
    propose["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_category_and_mode_has_its_time_limit() {
    let settings = [
        ("PVP_READ_TIMEOUT_SECONDS", "1"),
        ("PVP_WRITE_TIMEOUT_SECONDS", "2"),
        ("PVP_DESTRUCTIVE_TIMEOUT_SECONDS", "3"),
        ("PVP_SLOW_TIMEOUT_SECONDS", "4"),
    ];
    let (server, mut ann) = start_session_with_env(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "sleep 1001", together = true },
            { shell = "touch a; sleep 1002", together = true },
            { shell = "rm -rf a; sleep 1003", together = true },
            { shell = "touch b; sleep 1004", mode = "slow", together = true },
            { shell = "touch c; sleep 1005", timeout = 1, together = true },
            { shell = "touch d; sleep 1006", mode = "slow", timeout = 2 },
            { expect = { outcome = "stopped", contains = "time limit" } },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    for _ in 0..5 {
        approve_next(&mut ann).await;
    }
    for (part, seconds) in [
        ("1001", 1),
        ("1002", 2),
        ("1003", 3),
        ("1004", 4),
        ("1005", 1),
        ("1006", 2),
    ] {
        let proposal = proposal_matching(&ann, part);
        let result = result_of(&mut ann, &proposal).await;
        let why = format!("stopped after {seconds} s, its time limit");
        assert_eq!(
            (&result["success"], &result["error"], &result["kill_reason"]),
            (&json!(false), &json!(why), &json!(why)),
            "{part}"
        );
    }
    agent_process.wait_until_idle().await;
}

#[tokio::test]
async fn output_is_cut_at_exactly_its_limit_and_the_command_is_killed() {
    let settings = [("PVP_WRITE_OUTPUT_BYTES", "54321")];
    let (server, mut ann) = start_session_with_env(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "touch a; yes out & yes aside >&2" },
            { expect = { outcome = "stopped", contains = "54321 bytes of output" } },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let proposal = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(
        (&result["error"], &result["truncated"]),
        (
            &json!("stopped after 54321 bytes of output, its limit"),
            &json!(true)
        )
    );
    assert_eq!(delivered_bytes(&ann, &proposal), 54321);
    let counted = ["stdout", "stderr"].map(|stream| &result["streams"][stream]["bytes"]);
    let counted: u64 = counted.iter().map(|bytes| bytes.as_u64().unwrap()).sum();
    assert_eq!(counted, 54321, "{result}");
    assert_eq!(agent_process.running_commands(), Vec::<String>::new());
}

#[tokio::test]
async fn output_over_its_limit_may_be_dropped_instead() {
    let settings = [("PVP_WRITE_OUTPUT_BYTES", "4096")];
    let (server, mut ann) = start_session_with_env(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "seq 1 20000; touch done" },
            { expect = { outcome = "ran", exit = 0 } },
            { wait = "prompt" },
        ]
    "#;
    let flags = ["--on-overflow", "truncate"];
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &flags).await;
    let proposal = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(
        (&result["success"], &result["truncated"], &result["error"]),
        (&json!(true), &json!(true), &Value::Null),
    );
    assert_eq!(delivered_bytes(&ann, &proposal), 4096);
    assert!(agent_process.workspace().join("done").exists());
    let kept = result["result"]["stdout"].as_str().unwrap();
    assert!(kept.starts_with("1\n2\n3\n"), "{kept}");
    assert!(kept.ends_with("\n19999\n20000\n"), "{kept}");
}

#[tokio::test]
async fn a_read_cannot_use_all_memory() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "tail /dev/zero" },
            { expect = { outcome = "ran", exit = 1, contains = "memory exhausted" } },
            { shell = "touch a; cat /proc/self/limits" },
            { wait = "prompt" },
        ]
    "#;
    let _agent_process =
        AgentProcess::start_scripted_with(&server, "owl", script, &["--read-memory", "64"]).await;
    let proposal = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    let limits = result["result"]["stdout"].as_str().unwrap();
    assert!(
        limits.contains("Max data size             unlimited"),
        "{limits}"
    );
}

#[tokio::test]
async fn a_read_has_default_resource_limits() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"step = [{ shell = "cat /proc/self/limits" }, { wait = "prompt" }]"#;
    let _agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let result = next_result(&mut ann).await;
    let limits = result["result"]["stdout"].as_str().unwrap();
    assert!(
        limits.contains("Max data size             2147483648"),
        "{limits}"
    );
    assert!(
        limits.contains("Max file size             1073741824"),
        "{limits}"
    );
}

#[tokio::test]
async fn with_one_slot_the_second_command_waits_for_the_first() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "echo one begins; until [ -e go ]; do sleep 0.01; done; touch one-ended", together = true },
            { shell = "touch two; [ -e one-ended ] && echo after one" },
            { expect = { outcome = "ran", exit = 0 } },
            { wait = "prompt" },
        ]
    "#;
    let agent_process =
        AgentProcess::start_scripted_with(&server, "owl", script, &["--at-once", "1"]).await;
    let one = approve_next(&mut ann).await;
    wait_for_output(&mut ann, "one begins").await;
    let two = approve_next(&mut ann).await;
    // Enough time to start, if it did not wait for its turn.
    for _ in 0..20 {
        ann.approve(&two).await;
    }
    std::fs::write(agent_process.workspace().join("go"), "").unwrap();
    let result = result_of(&mut ann, &two).await;
    assert_eq!(result["result"]["stdout"], "after one\n", "{result}");
    let at = |fits: &dyn Fn(&Value) -> bool| ann.received.iter().position(fits).unwrap();
    let ended = at(&|message| {
        message["type"] == "tool.result" && message["payload"]["tool_proposal"] == one.as_str()
    });
    let begun = at(&|message| {
        message["type"] == "tool.output" && message["payload"]["tool_proposal"] == two.as_str()
    });
    assert!(ended < begun);
}

#[tokio::test]
async fn approved_commands_run_behind_the_runner_and_reads_do_not() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "echo mark is $TERM" },
            { expect = { verdict = "read", exit = 0 } },
            { shell = "touch a; echo mark is $TERM" },
            { expect = { verdict = "write", exit = 0 } },
            { wait = "prompt" },
        ]
    "#;
    let flags = ["--runner", "env TERM=set"];
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &flags).await;
    let (open, line) = next_gate(&mut ann).await;
    // The command is unchanged; the shell that runs it is the executor's.
    assert_eq!(line, "touch a; echo mark is $TERM");
    let announced = |message: &&Value| {
        message["type"] == "participant.announce"
            && message["sender"] == agent_process.user.participant
    };
    let announced = ann.received.iter().find(announced).unwrap();
    assert_eq!(
        announced["payload"]["executor"]["runner"],
        json!(["env", "TERM=set"])
    );
    approve(&mut ann, &open).await;
    let write = proposal_of(&ann, &open);
    let result = result_of(&mut ann, &write).await;
    assert_eq!(result["result"]["stdout"], "mark is set\n");
    let read = proposal_matching(&ann, "echo mark");
    assert_ne!(read, write);
    assert_eq!(
        collect_output(&ann.received, &read, "stdout"),
        "mark is dumb\n"
    );
}

#[tokio::test]
async fn commands_inherit_no_secrets_no_injected_code_and_no_terminal() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "touch a; env; readlink /proc/self/fd/0; wc -c; (: < /dev/tty) 2>/dev/null || echo no terminal; echo sid $(cut -d' ' -f6 /proc/self/stat)" },
            { expect = { outcome = "ran", exit = 0 } },
            { wait = "prompt" },
        ]
    "#;
    let cli = CliEnv::new();
    let script = write_script(&cli, script);
    let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    let environment: [(&str, &OsStr); 6] = [
        ("ANTHROPIC_API_KEY", OsStr::new("hidden-one")),
        ("DEPLOY_TOKEN", OsStr::new("hidden-two")),
        ("LD_PRELOAD", OsStr::new("/hidden-three.so")),
        ("GIT_DIR", OsStr::new("/hidden-four")),
        ("ODD", OsStr::from_bytes(b"hidden-\xff")),
        ("PLAIN", OsStr::new("seen")),
    ];
    let flags = ["--script", &script];
    let agent_process = AgentProcess::start_with_link(cli, user, link, &flags, &environment).await;
    let proposal = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    let seen = collect_output(&ann.received, &proposal, "stdout");
    assert!(!seen.contains("hidden"), "{seen}");
    let has = |line: &str| seen.lines().any(|seen| seen == line);
    for line in ["PLAIN=seen", "PAGER=cat", "/dev/null", "0", "no terminal"] {
        assert!(has(line), "{line}: {seen}");
    }
    // A new session has no controlling terminal.
    let stat =
        std::fs::read_to_string(format!("/proc/{}/stat", agent_process.process.pid())).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap();
    assert!(!has(&format!("sid {session}")), "{seen}");
    assert!(seen.lines().any(|line| line.starts_with("sid ")), "{seen}");
}
