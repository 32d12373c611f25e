//! Deciding at gates on real screens.

use pvp_agent::proposer::ProposalEvent;
use pvp_protocol::payload::GateOutcome;
use serde_json::json;

use crate::fixture::TuiFixture;

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_on_one_screen_is_seen_on_the_other_and_the_command_runs() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["approver"]);
    let mut bob = fixture.screen("bob", &["approver"]);
    let proposal = fixture
        .agent
        .propose_shell("echo eggs > list")
        .await
        .unwrap();
    for screen in [&mut ann, &mut bob] {
        let shown = screen.wait_for_text("Waiting for a decision");
        assert!(
            shown.contains("echo eggs > list") && shown.contains("0 of 1"),
            "{shown}"
        );
        screen.send_keys("\t");
        screen.wait_for_text("a approve");
    }
    ann.send_keys("a");
    let shown = bob.wait_for_text("approved by ann");
    assert!(shown.contains("nothing waiting"), "{shown}");
    let end = proposal.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    let list = std::fs::read_to_string(fixture.workspace.join("list")).unwrap();
    assert_eq!(list, "eggs\n");
    for screen in [&ann, &bob] {
        screen.wait_for_text("exit 0");
    }
    // Bob's card is closed: his keys do nothing.
    bob.send_keys("ar");
    bob.wait_for_text("this one is already decided");
    let votes = fixture.server.entries("owl");
    let votes = votes
        .iter()
        .filter(|entry| entry.to_string().contains("gate.approve"));
    assert_eq!(votes.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_takes_its_reason_to_the_agent() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["approver"]);
    let proposal = fixture.agent.propose_shell("rm -rf build").await.unwrap();
    ann.wait_for_text("DESTRUCTIVE");
    ann.send_keys("\tr");
    ann.wait_for_text("Reason for rejecting");
    ann.send_keys("we still need it\r");
    match proposal.outcome().await {
        Some(ProposalEvent::NotRun(resolve)) => {
            assert_eq!(resolve.outcome, GateOutcome::Rejected);
            assert_eq!(resolve.reason.as_deref(), Some("we still need it"));
        }
        other => panic!("{other:?}"),
    }
    ann.wait_for_text("rejected by ann: we still need it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_command_is_what_runs() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["approver"]);
    let proposal = fixture
        .agent
        .propose_shell("echo one > list")
        .await
        .unwrap();
    ann.wait_for_text("Waiting for a decision");
    ann.send_keys("\te");
    ann.wait_for_text("Edit the command; everyone votes");
    ann.send_keys("\u{15}echo two > list\r");
    ann.wait_for_text("edited; everyone votes again");
    ann.wait_until("the edited card", |shown| {
        shown.contains("┃ echo two > list") && shown.contains("by ann")
    });
    ann.send_keys("a");
    let end = proposal.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    let list = std::fs::read_to_string(fixture.workspace.join("list")).unwrap();
    assert_eq!(list, "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_allowing_a_prefix_the_next_such_command_runs_without_a_vote() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["approver"]);
    let first = fixture.agent.propose_shell("touch ./one").await.unwrap();
    ann.wait_for_text("Waiting for a decision");
    ann.send_keys("\tP");
    ann.wait_for_text("touch for 1h");
    ann.send_keys("\r");
    ann.wait_for_text("allowed; /rules lists the allow rules");
    ann.wait_for_text("allows `touch …`");
    let second = fixture.agent.propose_shell("touch ./two").await.unwrap();
    let end = second.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    assert!(fixture.workspace.join("two").exists());
    // The rule is for later commands; this one still waits for its vote.
    ann.send_keys("a");
    let end = first.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_waiting_commands_are_approved_from_the_preflight_list() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["approver"]);
    let mut proposals = Vec::new();
    for name in ["one", "two", "three"] {
        let line = format!("touch {name}");
        proposals.push(fixture.agent.propose_shell(&line).await.unwrap());
    }
    ann.wait_for_text("Waiting 1 of 3");
    ann.send_keys("\tA");
    ann.wait_for_text("Approve 3 of 3?");
    // Excludes the second one.
    ann.send_keys("j ");
    ann.wait_for_text("Approve 2 of 3?");
    ann.send_keys("j\r");
    ann.wait_for_text("1 waiting");
    let second = proposals.remove(1);
    for proposal in proposals {
        let end = proposal.outcome().await;
        assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    }
    assert!(fixture.workspace.join("one").exists() && fixture.workspace.join("three").exists());
    assert!(!fixture.workspace.join("two").exists());
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_arrives_while_typing_takes_no_key() {
    let mut fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["driver", "admin"]);
    ann.send_keys("please a");
    ann.wait_for_text("please a");
    let _proposal = fixture.agent.propose_shell("rm -rf build").await.unwrap();
    ann.wait_for_text("DESTRUCTIVE");
    ann.send_keys("rea\r");
    let request = fixture.agent.next_input().await;
    match request {
        Some(pvp_agent::agent::AgentInput::Prompt { prompt, .. }) => {
            assert_eq!(prompt.content, "please area")
        }
        other => panic!("{other:?}"),
    }
    ann.wait_for_text("1 waiting");
}
