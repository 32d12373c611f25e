//! Background jobs: announced at once, streamed to their end, and stopped with all their processes.

use std::path::{Path, PathBuf};

use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_client::Link;
use serde_json::json;

use crate::support::agent_process::AgentProcess;
use crate::support::session::{
    approve_next, collect_output, next_gate, result_of, start_session, start_session_with_env,
    wait_for_output, wait_for_response, wait_until,
};
use crate::support::{TEST_TIMEOUT, TestClient};

/// Prints, and continues when the test creates a file.
const WAITING_JOB: &str = r#"
    step = [
        { shell = "echo hello; until [ -e go ]; do sleep 0.01; done; echo bye", mode = "background" },
        { expect = { outcome = "started" } },
        { say = "it goes on" },
        { wait = "prompt" },
    ]
"#;

/// The file that holds the output of a job.
fn job_log_path(agent_process: &AgentProcess, job: &str) -> PathBuf {
    let agent = &agent_process.user.participant;
    let state = agent_process.cli.home().join(".local/state/pvp/agents");
    state.join(agent).join(format!("{job}.log"))
}

fn read_text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

async fn cancel(person: &mut TestClient, job: &str, reason: &str) {
    let cancel = json!({ "tool_proposal": job, "reason": reason });
    person.send_and_ack("tool.cancel", cancel).await;
}

#[tokio::test]
async fn a_job_is_announced_at_once_and_its_output_keeps_streaming() {
    let (server, mut ann) = start_session(json!({})).await;
    let mut agent_process =
        AgentProcess::start_scripted_with(&server, "owl", WAITING_JOB, &[]).await;
    let job = approve_next(&mut ann).await;
    wait_for_output(&mut ann, "hello\n").await;
    wait_for_response(&mut ann, "it goes on").await;
    let words = agent_process
        .process
        .wait_for_line("It was started in the background")
        .await;
    let file = job_log_path(&agent_process, &job);
    assert!(words.contains(&format!("ref \"{job}\"")), "{words}");
    // The description is truncated, perhaps within the file name.
    let file_note = format!("Its output goes to {}", file.parent().unwrap().display());
    assert!(words.contains(&file_note), "{words}");
    let pid = words.split("as process ").nth(1).unwrap();
    let pid: u32 = pid.split(',').next().unwrap().parse().unwrap();
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(cwd, agent_process.workspace());
    wait_until("its output is kept", || read_text(&file) == "hello\n").await;
    std::fs::write(agent_process.workspace().join("go"), "").unwrap();
    let result = result_of(&mut ann, &job).await;
    assert_eq!(
        (&result["success"], &result["result"]["exitCode"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(result["output_file"], file.to_str().unwrap());
    assert_eq!(
        read_text(&file),
        "hello\nbye\n[background process completed]\n"
    );
    assert_eq!(
        collect_output(&ann.received, &job, "stdout"),
        "hello\nbye\n"
    );
}

#[tokio::test]
async fn the_last_line_of_a_jobs_file_says_how_it_ended() {
    for (how, last) in [
        ("exit 3", "[background process failed: exit code 3]\n"),
        (
            "printf there; exit 0",
            "there\n[background process completed]\n",
        ),
        (
            "kill -9 $$",
            "[background process failed: ended by a signal]\n",
        ),
    ] {
        let (server, mut ann) = start_session(json!({})).await;
        let script = format!(
            "[[step]]\nshell = 'echo hello; {how}'\nmode = 'background'\n[[step]]\nwait = 'prompt'\n"
        );
        let agent_process = AgentProcess::start_scripted_with(&server, "owl", &script, &[]).await;
        let job = approve_next(&mut ann).await;
        let result = result_of(&mut ann, &job).await;
        assert_eq!(result["success"], last.contains("completed"), "{how}");
        assert_eq!(
            read_text(&job_log_path(&agent_process, &job)),
            format!("hello\n{last}")
        );
    }
}

#[tokio::test]
async fn one_job_too_many_is_refused_with_a_reason() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "echo first; sleep 1000", mode = "background" },
            { expect = { outcome = "started" } },
            { shell = "touch second", mode = "background" },
            { expect = { outcome = "stopped", contains = "no more are allowed; stop one first" } },
            { say = "no room" },
            { wait = "prompt" },
        ]
    "#;
    let agent_process =
        AgentProcess::start_scripted_with(&server, "owl", script, &["--jobs", "1"]).await;
    approve_next(&mut ann).await;
    wait_for_output(&mut ann, "first").await;
    let second = approve_next(&mut ann).await;
    let result = result_of(&mut ann, &second).await;
    assert_eq!(
        result["error"],
        "1 background job is already running here, and no more are allowed; stop one first"
    );
    wait_for_response(&mut ann, "no room").await;
    assert!(!agent_process.workspace().join("second").exists());
}

#[tokio::test]
async fn a_person_stops_a_job_with_everything_that_it_started() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "trap '' TERM; (trap '' TERM; setsid sleep 1000 &); setsid bash -c 'trap \"\" TERM; sleep 1000; echo' & echo up; sleep 1000; sleep 1000", mode = "background" },
            { expect = { outcome = "started" } },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let job = approve_next(&mut ann).await;
    wait_for_output(&mut ann, "up").await;
    assert!(
        agent_process.running_commands().len() >= 3,
        "{:?}",
        agent_process.running_commands()
    );
    cancel(&mut ann, &job, "enough").await;
    let result = result_of(&mut ann, &job).await;
    assert_eq!(
        (&result["success"], &result["error"]),
        (&json!(false), &json!("stopped: enough"))
    );
    assert_eq!(agent_process.running_commands(), Vec::<String>::new());
    let file = read_text(&job_log_path(&agent_process, &job));
    let last = "\n[background process failed: stopped: enough]\n";
    assert!(file.starts_with("up\n") && file.ends_with(last), "{file}");
}

#[tokio::test]
async fn a_job_that_prints_more_than_is_recorded_keeps_running() {
    let settings = [("PVP_BACKGROUND_OUTPUT_BYTES", "1024")];
    let (server, mut ann) = start_session_with_env(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "for i in $(seq 100); do echo a line of the job, $i; done; until [ -e go ]; do sleep 0.01; done; echo the end", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let job = approve_next(&mut ann).await;
    let lines: String = (1..=100)
        .map(|i| format!("a line of the job, {i}\n"))
        .collect();
    let file = job_log_path(&agent_process, &job);
    wait_until("all of it is kept", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text == lines)
    })
    .await;
    std::fs::write(agent_process.workspace().join("go"), "").unwrap();
    let result = result_of(&mut ann, &job).await;
    assert_eq!(
        (&result["success"], &result["truncated"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(collect_output(&ann.received, &job, "stdout"), lines[..1024]);
    assert_eq!(
        read_text(&file),
        format!("{lines}the end\n[background process completed]\n")
    );
}

#[tokio::test]
async fn output_is_reported_as_truncated_only_beyond_the_limit() {
    let settings = [("PVP_BACKGROUND_OUTPUT_BYTES", "1024")];
    let (server, mut ann) = start_session_with_env(&settings, json!({})).await;
    let script = r#"
        step = [
            { shell = "printf %01024d 0", mode = "background", together = true },
            { shell = "printf %01025d 0", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let _agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    for cut in [false, true] {
        let job = approve_next(&mut ann).await;
        assert_eq!(result_of(&mut ann, &job).await["truncated"], cut);
        assert_eq!(
            collect_output(&ann.received, &job, "stdout"),
            "0".repeat(1024)
        );
    }
}

#[tokio::test]
async fn stopping_a_job_that_still_waits_withdraws_it() {
    let (server, mut ann) = start_session(json!({})).await;
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path().canonicalize().unwrap();
    let settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
    let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
    let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
    let agent = Agent::connect(link, settings).await.unwrap();
    let arguments = json!({ "full_command": "sleep 1000; touch a", "mode": "background" });
    let arguments = serde_json::from_value(arguments).unwrap();
    let job = agent.propose(arguments, "").await.unwrap();
    next_gate(&mut ann).await;
    assert_eq!(agent.jobs().await.unwrap(), []);
    let stopping = agent.stop_job(&job.id, "not needed");
    let stopped = tokio::time::timeout(TEST_TIMEOUT, stopping).await;
    assert_eq!(
        stopped.expect("it ends").unwrap().as_deref(),
        Some("it did not run: cancelled")
    );
}
