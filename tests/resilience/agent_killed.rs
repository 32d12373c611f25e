//! An agent that is killed: what it ran ends with it, and it says so when it is back.

use serde_json::{Value, json};

use crate::kit::room::{approve, approve_next, ask, gate, printed, reject, result_of, room, said};
use crate::kit::worker::{Worker, script_at};

/// Forks twice, leaves its session and its directory, ignores what asks it to end, and goes on
/// forking; `$0` names it.
const WILD: &str = r#"
trap '' TERM INT HUP
echo ran >> "$(dirname "$0")/ran"
hydra() { trap '' TERM INT HUP; while :; do ( exec -a "$0" sleep 1000 ) & sleep 0.01; done; }
( cd / && setsid bash -c "$(declare -f hydra); hydra" "$0" & )
echo it is wild
sleep 1000
"#;

#[tokio::test]
async fn a_killed_agent_takes_its_commands_along_and_says_so_when_it_is_back() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { say = "on it" },
            { shell = "bash $PWD/wild.sh", together = true },
            { shell = "touch never" },
            { say = "all done" },
        ]
    "#;
    let mut worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    std::fs::write(worker.workspace().join("wild.sh"), WILD).unwrap();
    let agent = worker.who.participant.clone();
    let prompt = ask(&mut ann, &agent, "go wild").await;
    let wild = approve_next(&mut ann).await;
    let (open, line) = gate(&mut ann).await;
    assert_eq!(line, "touch never");
    printed(&mut ann, "it is wild").await;
    assert!(!worker.at_work().is_empty());

    worker.kill_9().await;
    worker.is_quiet().await;
    worker.again().await;

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
    let sorry = said(&mut ann, "I was restarted").await;
    let start = |message: &&Value| message["id"] == sorry["ref"];
    let start = ann.received.iter().find(start).unwrap();
    assert_eq!(start["payload"]["prompt_ref"], prompt);

    // It answers as if nothing had been, and what it ran before did not run again.
    ask(&mut ann, &agent, "once more").await;
    for _ in 0..2 {
        let (open, _) = gate(&mut ann).await;
        reject(&mut ann, &open, "not today").await;
    }
    said(&mut ann, "all done").await;
    assert_eq!(worker.file("ran"), "ran\n");
    assert!(!worker.workspace().join("never").exists());
}

#[tokio::test]
async fn an_agent_that_was_killed_while_it_waited_may_propose_again() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { wait = "prompt" },
            { shell = "echo once >> made" },
            { say = "all done" },
        ]
    "#;
    let mut worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    let agent = worker.who.participant.clone();
    ask(&mut ann, &agent, "make it").await;
    let (open, _) = gate(&mut ann).await;
    worker.kill_9().await;
    worker.again().await;
    let withdrawn = ann.wait_for("gate.resolve").await;
    assert_eq!(withdrawn["payload"]["gate"], open);
    said(&mut ann, "I was restarted").await;
    ask(&mut ann, &agent, "make it all the same").await;
    let (open, _) = gate(&mut ann).await;
    approve(&mut ann, &open).await;
    said(&mut ann, "all done").await;
    assert_eq!(worker.file("made"), "once\n");
}

#[tokio::test]
async fn a_job_whose_agent_was_killed_has_a_file_that_says_so() {
    let (server, mut ann) = room(json!({})).await;
    let script = r#"
        step = [
            { shell = "printf up; sleep 1000", mode = "background" },
            { wait = "prompt" },
        ]
    "#;
    let mut worker = Worker::scripted_with(&server, "owl", script, &[]).await;
    let job = approve_next(&mut ann).await;
    printed(&mut ann, "up").await;
    let state = worker.desk.home().join(".local/state/pvp/agents");
    let file = state
        .join(&worker.who.participant)
        .join(format!("{job}.log"));
    for _ in 0..2 {
        worker.kill_9().await;
        worker.is_quiet().await;
        script_at(&worker.desk, "[[step]]\nwait = 'prompt'\n");
        worker.again().await;
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "up\n[background process failed: its executor was restarted, and it was ended]\n"
        );
    }
    assert_eq!(result_of(&mut ann, &job).await["outcome"], "unknown");
}

#[tokio::test]
async fn an_agent_that_is_asked_to_stop_ends_what_it_runs_even_without_a_server() {
    for server_lives in [true, false] {
        let (mut server, mut ann) = room(json!({})).await;
        let script = r#"
            step = [
                { shell = "trap '' TERM; setsid sleep 1000 & echo it runs; sleep 1000; sleep 1000", mode = "slow" },
                { wait = "prompt" },
            ]
        "#;
        let worker = Worker::scripted_with(&server, "owl", script, &[]).await;
        let proposal = approve_next(&mut ann).await;
        printed(&mut ann, "it runs").await;
        if !server_lives {
            server.kill_9().await;
        }
        worker.going.signal("TERM");
        if server_lives {
            let result = result_of(&mut ann, &proposal).await;
            assert_eq!(result["error"], "stopped: the agent has stopped");
            let left = ann.wait_for("session.leave").await;
            assert_eq!(left["sender"], worker.who.participant.as_str());
        }
        worker.is_quiet().await;
        let ended = worker.going.ended().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}
