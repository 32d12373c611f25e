//! An agent that is killed: its commands end with it, and it reports that after its restart.

use serde_json::{Value, json};

use crate::support::agent_process::{AgentProcess, write_script};
use crate::support::session::{
    approve, approve_next, next_gate, proposal_of, reject, result_of, send_prompt, start_session,
    wait_for_output, wait_for_response,
};

/// Forks twice, leaves its session and its directory, ignores signals and keeps forking; `$0`
/// identifies it.
const FORK_BOMB: &str = r#"
trap '' TERM INT HUP
echo ran >> "$(dirname "$0")/ran"
fork_bomb() { trap '' TERM INT HUP; while :; do ( exec -a "$0" sleep 1000 ) & sleep 0.01; done; }
( cd / && setsid bash -c "$(declare -f fork_bomb); fork_bomb" "$0" & )
echo it is wild
sleep 1000
"#;

#[tokio::test]
async fn the_commands_of_a_killed_agent_end_and_it_reports_them_after_a_restart() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { say = "on it" },
            { shell = "bash $PWD/wild.sh", together = true },
            { shell = "touch never" },
            { say = "all done" },
        ]
    "#;
    let mut agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    std::fs::write(agent_process.workspace().join("wild.sh"), FORK_BOMB).unwrap();
    let agent = agent_process.user.participant.clone();
    let prompt = send_prompt(&mut ann, &agent, "go wild").await;
    let wild = approve_next(&mut ann).await;
    let (open, line) = next_gate(&mut ann).await;
    assert_eq!(line, "touch never");
    wait_for_output(&mut ann, "it is wild").await;
    assert!(!agent_process.running_commands().is_empty());

    agent_process.kill_9().await;
    agent_process.wait_until_idle().await;
    agent_process.restart().await;

    let result = result_of(&mut ann, &wild).await;
    assert_eq!(
        (&result["success"], &result["outcome"]),
        (&json!(false), &json!("unknown"))
    );
    let why = result["error"].as_str().unwrap();
    assert!(why.contains("the executor was restarted"), "{why}");
    let withdrawn = ann.wait_for("gate.resolve").await;
    let withdrawn = match withdrawn["payload"]["outcome"] == "approved" {
        true => ann.wait_for("gate.resolve").await,
        false => withdrawn,
    };
    let payload = &withdrawn["payload"];
    assert_eq!(
        (&payload["gate"], &payload["outcome"], &payload["by"]),
        (&json!(open), &json!("cancelled"), &json!(agent))
    );
    assert_eq!(
        payload["reason"],
        "the agent that proposed it was restarted"
    );
    let sorry = wait_for_response(&mut ann, "I was restarted").await;
    let start = |message: &&Value| message["id"] == sorry["ref"];
    let start = ann.received.iter().find(start).unwrap();
    assert_eq!(start["payload"]["prompt_ref"], prompt);

    // It answers as usual, and its earlier command did not run again.
    send_prompt(&mut ann, &agent, "once more").await;
    for _ in 0..2 {
        let (open, _) = next_gate(&mut ann).await;
        reject(&mut ann, &open, "not today").await;
    }
    wait_for_response(&mut ann, "all done").await;
    assert_eq!(agent_process.read_file("ran"), "ran\n");
    assert!(!agent_process.workspace().join("never").exists());
}

#[tokio::test]
async fn an_agent_that_was_killed_while_it_waited_may_propose_again() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { shell = "echo once >> made" },
            { say = "all done" },
        ]
    "#;
    let mut agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let agent = agent_process.user.participant.clone();
    send_prompt(&mut ann, &agent, "make it").await;
    let (open, _) = next_gate(&mut ann).await;
    agent_process.kill_9().await;
    agent_process.restart().await;
    let withdrawn = ann.wait_for("gate.resolve").await;
    assert_eq!(withdrawn["payload"]["gate"], open);
    wait_for_response(&mut ann, "I was restarted").await;
    send_prompt(&mut ann, &agent, "make it all the same").await;
    let (open, _) = next_gate(&mut ann).await;
    approve(&mut ann, &open).await;
    wait_for_response(&mut ann, "all done").await;
    assert_eq!(agent_process.read_file("made"), "once\n");
}

#[tokio::test]
async fn what_was_granted_while_the_agent_was_down_does_not_run() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { shell = "touch made" },
        ]
    "#;
    let mut agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let agent = agent_process.user.participant.clone();
    send_prompt(&mut ann, &agent, "make it").await;
    let (gate, _) = next_gate(&mut ann).await;
    agent_process.kill_9().await;
    approve(&mut ann, &gate).await;
    agent_process.restart().await;
    let proposal = proposal_of(&ann, &gate);
    let result = result_of(&mut ann, &proposal).await;
    assert_eq!(
        (&result["success"], &result["outcome"], &result["error"]),
        (
            &json!(false),
            &json!("known"),
            &json!("this executor has not seen a proposal for it since it was started")
        )
    );
    agent_process.wait_until_idle().await;
    assert!(!agent_process.workspace().join("made").exists());
}

#[tokio::test]
async fn a_job_whose_agent_was_killed_has_a_file_that_says_so() {
    let (server, mut ann) = start_session(json!({})).await;
    let script = r#"
        step = [
            { shell = "printf up; sleep 1000", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let mut agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
    let job = approve_next(&mut ann).await;
    wait_for_output(&mut ann, "up").await;
    let state = agent_process.cli.home().join(".local/state/pvp/agents");
    let file = state
        .join(&agent_process.user.participant)
        .join(format!("{job}.log"));
    for _ in 0..2 {
        agent_process.kill_9().await;
        agent_process.wait_until_idle().await;
        write_script(&agent_process.cli, "[[step]]\nwait = 'prompt'\n");
        agent_process.restart().await;
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "up\n[background process failed: its executor was restarted, and it was ended]\n"
        );
    }
    assert_eq!(result_of(&mut ann, &job).await["outcome"], "unknown");
}

#[tokio::test]
async fn a_stopping_agent_ends_its_commands_even_without_a_server() {
    for server_lives in [true, false] {
        let (mut server, mut ann) = start_session(json!({})).await;
        let script = r#"
            step = [
                { shell = "trap '' TERM; setsid sleep 1000 & echo it runs; sleep 1000; sleep 1000", mode = "slow" },
                { wait = "prompt" },
            ]
        "#;
        let agent_process = AgentProcess::start_scripted_with(&server, "owl", script, &[]).await;
        let proposal = approve_next(&mut ann).await;
        wait_for_output(&mut ann, "it runs").await;
        if !server_lives {
            server.kill_9().await;
        }
        agent_process.process.signal("TERM");
        if server_lives {
            let result = result_of(&mut ann, &proposal).await;
            assert_eq!(result["error"], "stopped: the agent has stopped");
            let left = ann.wait_for("session.leave").await;
            assert_eq!(left["sender"], agent_process.user.participant.as_str());
        }
        agent_process.wait_until_idle().await;
        let ended = agent_process.process.ended().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}
