//! A proposer without an executor: it proposes, hears what becomes of it, and reports what somebody
//! else ran.

use pvp_agent::proposer::{ProposalEvent, ProposalHandle, ProposeError, Proposer, RunReport};
use pvp_client::{ConnectOptions, Link};
use pvp_protocol::payload::{ExecutorInfo, GateOutcome, GateResolve};
use pvp_protocol::{Action, Command, JsonObject, MessageId, ParticipantId, ToolCategory};
use serde_json::{Value, json};

use crate::support::proxy::Proxy;
use crate::support::session::{
    approve, collect_output, create_session_on, next_gate, proposal_of, reject, result_of,
    start_session,
};
use crate::support::{TEST_TIMEOUT, TestClient, TestServer, TestUser};

fn invite_bot(server: &TestServer) -> TestUser {
    server.invite("bot", &["driver"], &["--kind", "agent"])
}

async fn connect(server: &TestServer, bot: &TestUser) -> Proposer {
    let link = Link::parse(&server.link(bot, Some("owl"))).unwrap();
    Proposer::connect(link, ConnectOptions::default())
        .await
        .unwrap()
}

/// Starts a session with a proposer that says that it can be told of edits.
async fn start_proposer_with_edits() -> (TestServer, TestClient, Proposer) {
    let (server, ann) = start_session(json!({})).await;
    let bot = invite_bot(&server);
    let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
    let options = ConnectOptions {
        executor: Some(ExecutorInfo::default()),
        ..ConnectOptions::default()
    };
    let proposer = Proposer::connect(link, options).await.unwrap();
    (server, ann, proposer)
}

/// Starts a session with a proposer that announces no executor.
async fn start_proposer(config: Value) -> (TestServer, TestClient, Proposer) {
    let (server, ann) = start_session(config).await;
    let bot = invite_bot(&server);
    let proposer = connect(&server, &bot).await;
    (server, ann, proposer)
}

async fn next(handle: &mut ProposalHandle) -> ProposalEvent {
    let event = tokio::time::timeout(TEST_TIMEOUT, handle.next()).await;
    event.expect("it comes in time").expect("there is an event")
}

/// Waits for the next event that is neither an assessment nor an opened gate.
async fn next_decision(handle: &mut ProposalHandle) -> ProposalEvent {
    loop {
        let event = next(handle).await;
        if !matches!(
            event,
            ProposalEvent::Assessed(_) | ProposalEvent::GateOpened { .. }
        ) {
            return event;
        }
    }
}

fn shell(line: &str) -> Action {
    let line = line.to_owned();
    Action::new(Command::Shell { line })
}

fn person(client: &TestClient) -> ParticipantId {
    ParticipantId::parse(&client.participant).unwrap()
}

/// Asserts that it was granted exactly this action, approved by this person.
fn assert_granted(event: ProposalEvent, expected: &Action, by: &TestClient) {
    let ProposalEvent::Granted {
        approved_by,
        action,
        ..
    } = event
    else {
        panic!("{event:?}");
    };
    assert_eq!(*action, *expected);
    assert_eq!(approved_by, [person(by)]);
}

/// Waits until it is decided that it does not run; returns how its gate closed.
async fn not_run(handle: &mut ProposalHandle) -> GateResolve {
    let event = next_decision(handle).await;
    let ProposalEvent::NotRun(resolve) = event else {
        panic!("{event:?}");
    };
    *resolve
}

#[tokio::test]
async fn a_result_obtained_elsewhere_is_reported_and_everyone_sees_it() {
    let (server, mut ann, proposer) = start_proposer(json!({})).await;
    let mut handle = proposer
        .propose_shell("make deploy", "ship it")
        .await
        .unwrap();
    let (gate, line) = next_gate(&mut ann).await;
    assert_eq!(line, "make deploy");
    let first = next(&mut handle).await;
    assert!(matches!(first, ProposalEvent::Assessed(_)), "{first:?}");
    let second = next(&mut handle).await;
    assert!(
        matches!(second, ProposalEvent::GateOpened { .. }),
        "{second:?}"
    );
    approve(&mut ann, &gate).await;
    assert_granted(next(&mut handle).await, &shell("make deploy"), &ann);

    let stdout = "é€x\n".repeat(40_000);
    let report = RunReport {
        exit_code: Some(3),
        stdout: stdout.clone(),
        stderr: "it broke\n".to_owned(),
        duration_ms: 1234,
        ..RunReport::default()
    };
    proposer.report(&handle.id, report).await.unwrap();

    let id = handle.id.to_string();
    let result = result_of(&mut ann, &id).await;
    assert_eq!(
        (
            &result["success"],
            &result["result"]["exitCode"],
            &result["result"]["stderr"]
        ),
        (&json!(false), &json!(3), &json!("it broke\n"))
    );
    assert_eq!(
        (&result["duration_ms"], &result["truncated"]),
        (&json!(1234), &json!(false))
    );
    assert_eq!(collect_output(&ann.received, &id, "stdout"), stdout);
    let log = server.entries("owl");
    assert_eq!(collect_output(&log, &id, "stderr"), "it broke\n");
    match handle.outcome().await {
        Some(ProposalEvent::Finished(result)) => {
            assert_eq!(result.exit_code(), Some(3));
        }
        other => panic!("{other:?}"),
    }
    // The result is final.
    let id = MessageId::parse(&id).unwrap();
    let again = proposer.report(&id, RunReport::default()).await;
    assert!(matches!(again, Err(ProposeError::Refused(_))), "{again:?}");
}

#[tokio::test]
async fn output_beyond_what_the_grant_allows_is_cut() {
    let (_server, mut ann, proposer) = start_proposer(json!({})).await;
    let mut handle = proposer.propose_shell("rm -rf build", "").await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    let execute = ann.wait_for("tool.execute").await;
    let limit = &execute["payload"]["grant"]["limits"]["output_bytes"];
    let limit = usize::try_from(limit.as_u64().unwrap()).unwrap();
    next_decision(&mut handle).await;
    let report = RunReport {
        success: true,
        stdout: "x".repeat(limit - 1),
        stderr: "éé".to_owned(),
        ..RunReport::default()
    };
    proposer.report(&handle.id, report).await.unwrap();
    let id = handle.id.to_string();
    let result = result_of(&mut ann, &id).await;
    assert_eq!(
        (&result["success"], &result["truncated"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        collect_output(&ann.received, &id, "stdout").len(),
        limit - 1
    );
    assert_eq!(collect_output(&ann.received, &id, "stderr"), "");
}

#[tokio::test]
async fn a_proposer_hears_who_rejected_it_and_why() {
    let (_server, mut ann, proposer) = start_proposer(json!({})).await;
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    reject(&mut ann, &gate, "not on a Friday").await;
    let resolve = not_run(&mut handle).await;
    assert_eq!(resolve.outcome, GateOutcome::Rejected);
    assert_eq!(resolve.reason.as_deref(), Some("not on a Friday"));
    assert_eq!(resolve.by, Some(person(&ann)));
    assert_eq!(handle.next().await, None);
    let id = handle.id.clone();
    let refused = proposer.report(&id, RunReport::default()).await;
    assert!(
        matches!(refused, Err(ProposeError::Refused(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_proposer_hears_that_a_waiting_proposal_was_cancelled() {
    let (_server, mut ann, proposer) = start_proposer(json!({})).await;
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();
    next_gate(&mut ann).await;
    let cancel = json!({ "tool_proposal": handle.id, "reason": "too late" });
    ann.send_and_ack("tool.cancel", cancel).await;
    let resolve = not_run(&mut handle).await;
    assert_eq!(resolve.outcome, GateOutcome::Cancelled);
    assert_eq!(resolve.reason.as_deref(), Some("too late"));
}

#[tokio::test]
async fn a_proposer_hears_that_what_was_granted_should_stop() {
    let (_server, mut ann, proposer) = start_proposer(json!({})).await;
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert_granted(next_decision(&mut handle).await, &shell("touch a"), &ann);
    let cancel = json!({ "tool_proposal": handle.id, "reason": "enough" });
    ann.send_and_ack("tool.cancel", cancel).await;
    let asked = ProposalEvent::CancelRequested {
        by: Some(person(&ann)),
        reason: Some("enough".to_owned()),
    };
    assert_eq!(next(&mut handle).await, asked);
    let report = RunReport {
        error: Some("stopped: enough".to_owned()),
        ..RunReport::default()
    };
    proposer.report(&handle.id, report).await.unwrap();
    let result = result_of(&mut ann, handle.id.as_str()).await;
    assert_eq!(result["error"], "stopped: enough");
}

#[tokio::test]
async fn a_proposer_hears_that_nobody_decided_in_time() {
    let (_server, _ann, proposer) = start_proposer(json!({ "gate_timeout_seconds": 1 })).await;
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();
    assert_eq!(not_run(&mut handle).await.outcome, GateOutcome::TimedOut);
}

#[tokio::test]
async fn a_proposer_hears_which_rule_blocked_it() {
    let (server, _ann, proposer) = start_proposer(json!({})).await;
    match proposer.propose_shell("rm -rf /", "tidy up").await {
        Err(ProposeError::Blocked { rule, reason }) => {
            let log = server.entries("owl");
            let entry = log.iter().find(|entry| entry["type"] == "tool.propose");
            let assessment = &entry.unwrap()["payload"]["assessment"];
            assert_eq!(assessment["category"], "blocked");
            assert_eq!(
                (&assessment["rule"], &assessment["reason"]),
                (&json!(rule), &json!(reason))
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_edited_proposal_is_granted_as_edited() {
    let (server, mut ann, proposer) = start_proposer_with_edits().await;
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    let request = ann.received.iter().find(|message| message["id"] == *gate);
    let digest = request.unwrap()["payload"]["digest"].clone();
    let amend = json!({
        "gate": gate, "arguments": { "full_command": "touch b" }, "digest": digest,
        "reason": "b is better",
    });
    ann.send_and_ack("gate.amend", amend).await;
    let edited = ProposalEvent::Edited {
        by: Some(person(&ann)),
        command: "touch b".to_owned(),
        action: Box::new(shell("touch b")),
        reason: Some("b is better".to_owned()),
    };
    assert_eq!(next_decision(&mut handle).await, edited);
    // Whoever edits it does not approve it, and a vote names what was seen.
    let bob = server.invite("bob", &["approver"], &[]);
    let mut bob = server.join("owl", &bob).await;
    let digest = shell("touch b").digest();
    let vote = json!({ "gate": gate, "approver": bob.participant, "digest": digest });
    bob.send_and_ack("gate.approve", vote).await;
    assert_granted(next_decision(&mut handle).await, &shell("touch b"), &bob);
}

#[tokio::test]
async fn other_tools_are_proposed_and_reported_alike() {
    let (_server, mut ann, proposer) = start_proposer(json!({})).await;
    let arguments = json!({ "file_path": "src/main.rs", "old_string": "a", "new_string": "b" });
    let arguments: JsonObject = serde_json::from_value(arguments).unwrap();
    let mut handle = proposer
        .propose_tool("Edit", ToolCategory::FileWrite, arguments.clone(), "a typo")
        .await
        .unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    let action = Action::from_arguments("Edit", &arguments).unwrap();
    assert_granted(next_decision(&mut handle).await, &action, &ann);
    let report = RunReport {
        success: true,
        stdout: "edited".to_owned(),
        ..RunReport::default()
    };
    proposer.report(&handle.id, report).await.unwrap();
    let result = result_of(&mut ann, handle.id.as_str()).await;
    assert_eq!(
        (&result["success"], &result["result"]["exitCode"]),
        (&json!(true), &Value::Null)
    );
}

#[tokio::test]
async fn a_tool_runs_without_a_vote_only_by_a_rule_of_the_owner() {
    let rules = r#"
        [[tool]]
        id = "team.issues"
        name = "mcp__github__get_*"
        category = "read"
        allow_read = true
        reason = "shows our issues"
        matches = ['mcp__github__get_issue {"number": 1}']
    "#;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, rules.as_bytes()).unwrap();
    let flags = ["--policy", file.path().to_str().unwrap()];
    let server = TestServer::start(&flags).await;
    let (server, mut ann) = create_session_on(server, json!({})).await;
    let proposer = connect(&server, &invite_bot(&server)).await;
    let propose = async |name: &str| {
        let category = ToolCategory::ExternalApi;
        let proposing = proposer.propose_tool(name, category, JsonObject::new(), "");
        proposing.await.unwrap()
    };
    let mut read = propose("mcp__github__get_issue").await;
    let granted = next_decision(&mut read).await;
    assert!(
        matches!(&granted, ProposalEvent::Granted { approved_by, .. } if approved_by.is_empty()),
        "{granted:?}"
    );
    let mut unknown = propose("mcp__github__create_issue").await;
    let (gate, _) = next_gate(&mut ann).await;
    assert_eq!(proposal_of(&ann, &gate), unknown.id.as_str());
    approve(&mut ann, &gate).await;
    let granted = next_decision(&mut unknown).await;
    assert!(
        matches!(&granted, ProposalEvent::Granted { approved_by, .. } if approved_by.len() == 1),
        "{granted:?}"
    );
}

#[tokio::test]
async fn a_restart_of_the_server_changes_nothing_for_a_proposer() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let (mut server, ann) = create_session_on(server, json!({})).await;
    let bob = server.invite("bob", &["approver"], &[]);
    let bot = invite_bot(&server);
    let proposer = connect(&server, &bot).await;
    drop(ann);
    let address = server.address.clone();
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();

    server.kill_9().await;
    let mut server = TestServer::start_on(data.path(), &address, &[]).await;
    let mut person = server.join("owl", &bob).await;
    let gate = person
        .wait(|message| message["type"] == "gate.request")
        .await;
    let gate = gate["id"].as_str().unwrap().to_owned();
    assert_eq!(proposal_of(&person, &gate), handle.id.to_string());
    approve(&mut person, &gate).await;
    assert_granted(next_decision(&mut handle).await, &shell("touch a"), &person);

    // A report that is made while the server is down is sent when it is back.
    server.kill_9().await;
    let reporting = tokio::spawn({
        let (proposer, id) = (proposer.clone(), handle.id.clone());
        let report = RunReport {
            success: true,
            exit_code: Some(0),
            stdout: "done\n".repeat(20_000),
            ..RunReport::default()
        };
        async move { proposer.report(&id, report).await }
    });
    let server = TestServer::start_on(data.path(), &address, &[]).await;
    reporting.await.unwrap().unwrap();
    let id = handle.id.to_string();
    let log = server.entries("owl");
    assert_eq!(collect_output(&log, &id, "stdout"), "done\n".repeat(20_000));
    let results = log.iter().filter(|entry| entry["type"] == "tool.result");
    assert_eq!(results.count(), 1);
    let last = handle.outcome().await;
    assert!(
        matches!(&last, Some(ProposalEvent::Finished(result)) if result.success),
        "{last:?}"
    );
}

#[tokio::test]
async fn a_report_whose_answers_are_lost_counts_once() {
    let listener = Proxy::bind().await;
    let public = format!("http://{}", listener.local_addr().unwrap());
    let server = TestServer::start_with_env(&[], &[("PVP_PUBLIC_URL", &public)]).await;
    let (server, mut ann) = create_session_on(server, json!({})).await;
    let proxy = Proxy::start(listener, &server.address);
    let bot = invite_bot(&server);
    let link = format!("{public}/?token={}&session=owl", bot.token);
    let link = Link::parse(&link).unwrap();
    let options = ConnectOptions::default();
    let proposer = Proposer::connect(link, options).await.unwrap();
    let mut handle = proposer.propose_shell("touch a", "").await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert_granted(next_decision(&mut handle).await, &shell("touch a"), &ann);

    let stdout = "line\n".repeat(50_000);
    proxy.drop_replies();
    let reporting = tokio::spawn({
        let (proposer, id) = (proposer.clone(), handle.id.clone());
        let report = RunReport {
            success: true,
            stdout: stdout.clone(),
            ..RunReport::default()
        };
        async move { proposer.report(&id, report).await }
    });
    // The output arrives, and its acknowledgements do not.
    ann.wait_for("tool.output").await;
    proxy.cut().await;
    proxy.restore();
    reporting.await.unwrap().unwrap();
    let id = handle.id.to_string();
    let log = server.entries("owl");
    assert_eq!(collect_output(&log, &id, "stdout"), stdout);
    let results = log.iter().filter(|entry| entry["type"] == "tool.result");
    assert_eq!(results.count(), 1);
}

/// The hook that proposes and the hook that reports are often two processes.
#[tokio::test]
async fn another_process_of_the_same_participant_may_report() {
    let (server, mut ann) = start_session(json!({})).await;
    let bot = invite_bot(&server);
    let first = connect(&server, &bot).await;
    let bystander = connect(&server, &bot).await;
    let mut handle = first.propose_shell("touch a", "").await.unwrap();
    let (gate, _) = next_gate(&mut ann).await;
    approve(&mut ann, &gate).await;
    assert_granted(next_decision(&mut handle).await, &shell("touch a"), &ann);
    drop((first, bystander));
    let second = connect(&server, &bot).await;
    let report = RunReport {
        success: true,
        exit_code: Some(0),
        stdout: "made\n".to_owned(),
        ..RunReport::default()
    };
    second.report(&handle.id, report).await.unwrap();
    let result = result_of(&mut ann, handle.id.as_str()).await;
    assert_eq!(
        (&result["success"], &result["result"]["stdout"]),
        (&json!(true), &json!("made\n"))
    );
    // The first process is gone, and so are its events.
    assert_eq!(handle.next().await, None);
}
