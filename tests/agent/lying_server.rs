//! A server that lies: it grants what was not proposed, not approved or not possible. Nothing of
//! that runs, and the refusal is reported.

use pvp_agent::proposer::{ProposalEvent, ProposalHandle, Proposer};
use pvp_client::now;
use pvp_policy::{Policy, Workspace};
use pvp_protocol::Action;
use pvp_protocol::payload::{Approval, ClearedBy, GrantTerms, ShellExec};
use serde_json::json;

use crate::support::TEST_TIMEOUT;
use crate::support::lying_server::{DeceivedAgent, LyingServer, grant, participant, shell};

#[tokio::test]
async fn an_honest_grant_runs() {
    let mut deceived = DeceivedAgent::new().await;
    deceived.expect_runs("touch marker").await;
    assert!(deceived.workspace().join("marker").exists());
}

#[tokio::test]
async fn what_is_not_a_read_does_not_run_unasked() {
    let mut deceived = DeceivedAgent::new().await;
    std::fs::create_dir(deceived.workspace().join("precious")).unwrap();
    for (line, category) in [
        ("rm -rf precious", "destructive"),
        ("touch marker", "write"),
        ("ls && touch marker", "write"),
    ] {
        let (proposal, _handle) = deceived.propose(line).await;
        let unasked = GrantTerms {
            cleared_by: ClearedBy::Read,
            approvals: Vec::new(),
            ..grant(shell(line))
        };
        let why = "cleared by read, which is impossible here: by rule `";
        deceived.expect_refused(&proposal, &unasked, why).await;
        let (proposal, _handle) = deceived.propose(line).await;
        let why = format!("it is {category}");
        deceived.expect_refused(&proposal, &unasked, &why).await;
    }
    assert!(deceived.workspace().join("precious").exists());
}

#[tokio::test]
async fn what_an_allow_rule_or_a_deadline_cannot_clear_does_not_run() {
    let mut deceived = DeceivedAgent::new().await;
    std::fs::create_dir(deceived.workspace().join("precious")).unwrap();
    for cleared_by in [ClearedBy::AllowRule, ClearedBy::Clock] {
        let (proposal, _handle) = deceived.propose("rm -rf precious").await;
        let unasked = GrantTerms {
            cleared_by,
            approvals: Vec::new(),
            ..grant(shell("rm -rf precious"))
        };
        deceived
            .expect_refused(&proposal, &unasked, "which is impossible here")
            .await;
    }
    assert!(deceived.workspace().join("precious").exists());
}

#[tokio::test]
async fn a_command_that_nobody_can_have_approved_does_not_run() {
    let mut deceived = DeceivedAgent::new().await;
    let approved = grant(shell("touch marker"));
    let by_itself = Approval {
        participant: participant("bot"),
        ..approved.approvals[0].clone()
    };
    for approvals in [Vec::new(), vec![by_itself]] {
        let (proposal, _handle) = deceived.propose("touch marker").await;
        let unapproved = GrantTerms {
            approvals,
            ..approved.clone()
        };
        deceived
            .expect_refused(&proposal, &unapproved, "names nobody")
            .await;
    }
    let (proposal, _handle) = deceived.propose("touch marker").await;
    let direct = GrantTerms {
        cleared_by: ClearedBy::Direct,
        ..approved
    };
    deceived
        .expect_refused(&proposal, &direct, "but this agent proposed it")
        .await;
}

#[tokio::test]
async fn a_command_other_than_the_proposed_one_does_not_run() {
    let mut deceived = DeceivedAgent::new().await;
    let changed = "not the one that was shown";
    let (proposal, _handle) = deceived.propose("ls").await;
    let other = grant(shell("touch marker"));
    deceived.expect_refused(&proposal, &other, changed).await;
    // Also if the digest is that of the proposed one.
    let (proposal, _handle) = deceived.propose("ls").await;
    let digest = shell("ls").digest();
    let disguised = GrantTerms { digest, ..other };
    deceived
        .expect_refused(&proposal, &disguised, changed)
        .await;
    // Also if only the directory or the environment differs.
    let (proposal, _handle) = deceived.propose("touch marker").await;
    let mut action = shell("touch marker");
    action.env = [("LD_PRELOAD".to_owned(), "/tmp/evil.so".to_owned())].into();
    deceived
        .expect_refused(&proposal, &grant(action), changed)
        .await;
}

#[tokio::test]
async fn an_edit_makes_nothing_possible_that_the_policy_forbids() {
    let mut deceived = DeceivedAgent::new().await;
    let proposal = deceived.propose_edited("touch marker").await;
    let unasked = GrantTerms {
        cleared_by: ClearedBy::Read,
        approvals: Vec::new(),
        ..grant(shell("touch marker"))
    };
    deceived
        .expect_refused(&proposal, &unasked, "which is impossible here")
        .await;
    let blocked = "mkfs -t none nowhere; touch marker";
    let proposal = deceived.propose_edited(blocked).await;
    deceived
        .expect_refused(&proposal, &grant(shell(blocked)), "blocked here by rule")
        .await;
    // What was proposed before the edit is no longer what may run.
    let proposal = deceived.propose_edited("touch marker").await;
    deceived
        .expect_refused(&proposal, &grant(shell("ls")), "not the one that was shown")
        .await;
    // An edit that people are said to have approved is the server's word, and runs.
    let proposal = deceived.propose_edited("touch edited").await;
    deceived
        .server
        .grant(&proposal, &grant(shell("touch edited")))
        .await;
    assert_eq!(deceived.result(&proposal).await["success"], true);
}

#[tokio::test]
async fn a_command_that_was_never_proposed_does_not_run() {
    let mut deceived = DeceivedAgent::new().await;
    let unknown = "has not seen a proposal for it";
    let action = shell("touch marker");
    deceived
        .expect_refused("forged-1", &grant(action.clone()), unknown)
        .await;
    // The server's word that this agent proposed it does not help.
    let assessment = Policy::built_in().assess(&action, &Workspace::default());
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": "touch marker" }, "agent": "bot",
        "risk_level": "low", "description": "", "requires_approval": false,
        "category": "shell_execute", "assessment": assessment,
    });
    let server = &mut deceived.server;
    server.log("forged-2", "bot", "tool.propose", propose).await;
    deceived
        .expect_refused("forged-2", &grant(action), unknown)
        .await;
}

#[tokio::test]
async fn a_persons_command_for_another_executor_does_not_run() {
    let mut deceived =
        DeceivedAgent::with_settings(|settings| settings.accepted.shell_exec = true).await;
    let exec = json!({ "command": "touch marker", "executor": "other" });
    let shell_exec: ShellExec = serde_json::from_value(exec.clone()).unwrap();
    let server = &mut deceived.server;
    server.log("exec-1", "ann", "shell.exec", exec).await;
    let direct = GrantTerms {
        cleared_by: ClearedBy::Direct,
        approvals: Vec::new(),
        ..grant(Action::from_shell_exec(&shell_exec))
    };
    deceived
        .expect_refused("exec-1", &direct, "has not seen a proposal for it")
        .await;
}

#[tokio::test]
async fn a_grant_without_a_nonce_or_too_late_is_not_acted_on() {
    let mut deceived = DeceivedAgent::new().await;
    let good = grant(shell("touch marker"));
    let (proposal, _handle) = deceived.propose("touch marker").await;
    let copied = GrantTerms {
        nonce: None,
        ..good.clone()
    };
    deceived
        .expect_refused(&proposal, &copied, "does not carry its nonce")
        .await;
    let (proposal, _handle) = deceived.propose("touch marker").await;
    let late = GrantTerms {
        expires_at: now(),
        ..good
    };
    deceived
        .expect_refused(&proposal, &late, "the grant has expired")
        .await;
}

#[tokio::test]
async fn a_proposal_runs_once_however_often_it_is_granted() {
    let mut deceived = DeceivedAgent::new().await;
    let line = "echo ran >> runs";
    let (proposal, _handle) = deceived.propose(line).await;
    let first = grant(shell(line));
    deceived.server.grant(&proposal, &first).await;
    assert_eq!(deceived.result(&proposal).await["success"], true);
    // The same grant again is not even answered; the server has the result.
    deceived.server.grant(&proposal, &first).await;
    deceived.expect_runs("echo honest").await;
    // The log never said that it ended, so only the executor itself knows that it ran.
    deceived
        .expect_refused(
            &proposal,
            &grant(shell(line)),
            "has not seen a proposal for it",
        )
        .await;
    let runs = std::fs::read_to_string(deceived.workspace().join("runs")).unwrap();
    assert_eq!(runs, "ran\n");
}

async fn next(handle: &mut ProposalHandle) -> Option<ProposalEvent> {
    let event = tokio::time::timeout(TEST_TIMEOUT, handle.next()).await;
    event.expect("it comes in time")
}

/// A proposer without an executor, whose server lies, and a proposal of it that is in the log.
async fn deceived_proposer(line: &str) -> (LyingServer, Proposer, ProposalHandle) {
    let mut server = LyingServer::listen().await;
    let connecting = Proposer::connect(server.link(), LyingServer::options());
    let (proposer, ()) = tokio::join!(connecting, server.welcome());
    let proposer = proposer.unwrap();
    let proposing = proposer.propose_shell(line, "");
    let (handle, propose) = tokio::join!(proposing, server.receive("tool.propose"));
    let id = propose["id"].as_str().unwrap();
    let payload = propose["payload"].clone();
    server.log(id, "bot", "tool.propose", payload).await;
    (server, proposer, handle.unwrap())
}

#[tokio::test]
async fn a_proposer_passes_on_no_grant_for_something_else() {
    let (mut server, _proposer, mut handle) = deceived_proposer("ls").await;
    let id = handle.id.to_string();
    server.grant(&id, &grant(shell("touch marker"))).await;
    let result = server.receive("tool.result").await["payload"].clone();
    assert_eq!(
        (&result["tool_proposal"], &result["error"]),
        (
            &json!(id),
            &json!("the granted command is not the one that was shown")
        )
    );
    server.log("r1", "bot", "tool.result", result).await;
    let event = next(&mut handle).await;
    assert!(
        matches!(event, Some(ProposalEvent::Finished(_))),
        "{event:?}"
    );
    assert_eq!(next(&mut handle).await, None);
}

#[tokio::test]
async fn a_proposer_hears_of_one_grant_only() {
    let (mut server, _proposer, mut handle) = deceived_proposer("ls").await;
    let id = handle.id.to_string();
    for _ in 0..2 {
        server.grant(&id, &grant(shell("ls"))).await;
    }
    let result = json!({ "tool_proposal": id, "success": true, "duration_ms": 1 });
    server.log("r1", "bot", "tool.result", result).await;
    let event = next(&mut handle).await;
    assert!(
        matches!(event, Some(ProposalEvent::Granted { .. })),
        "{event:?}"
    );
    let event = next(&mut handle).await;
    assert!(
        matches!(event, Some(ProposalEvent::Finished(_))),
        "{event:?}"
    );
}

#[tokio::test]
async fn a_proposal_that_the_log_no_longer_has_is_lost_and_not_waited_for() {
    let (mut server, _proposer, mut handle) = deceived_proposer("touch marker").await;
    // The server comes back with another log, and refuses to resume.
    server.socket = None;
    let join = server.accept().await;
    assert_eq!(join["payload"]["after"], 1);
    let refusal = json!({
        "code": "INVALID_STATE", "message": "another log", "recoverable": false,
        "related_to": join["id"],
    });
    let rest = json!({ "type": "error", "payload": refusal });
    server.send_envelope("e1", "system", rest).await;
    server.seq = 0;
    server.welcome().await;
    assert_eq!(next(&mut handle).await, Some(ProposalEvent::Lost));
    assert_eq!(next(&mut handle).await, None);
}
