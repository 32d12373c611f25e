//! Deciding on real screens.

use pvp_agent::agent::ProposalEvent;
use pvp_protocol::payload::GateOutcome;
use serde_json::json;

use crate::screen::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_on_one_screen_is_seen_on_the_other_and_the_command_runs() {
    let stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["approver"]);
    let mut bob = stage.screen("bob", &["approver"]);
    let proposal = stage.agent.propose_shell("echo eggs > list").await.unwrap();
    for screen in [&mut ann, &mut bob] {
        let shown = screen.sees("A command waits");
        assert!(
            shown.contains("echo eggs > list") && shown.contains("0 of 1"),
            "{shown}"
        );
        screen.keys("\t");
        screen.sees("a approve");
    }
    ann.keys("a");
    let shown = bob.sees("approved by ann");
    assert!(shown.contains("nothing waits"), "{shown}");
    let end = proposal.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    let list = std::fs::read_to_string(stage.workspace.join("list")).unwrap();
    assert_eq!(list, "eggs\n");
    for screen in [&ann, &bob] {
        screen.sees("exit 0");
    }
    // Bob's card is dead: his keys do nothing.
    bob.keys("ar");
    bob.sees("it is decided already");
    let votes = stage.server.entries("owl");
    let votes = votes
        .iter()
        .filter(|entry| entry.to_string().contains("gate.approve"));
    assert_eq!(votes.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_takes_its_reason_to_the_agent() {
    let stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["approver"]);
    let proposal = stage.agent.propose_shell("rm -rf build").await.unwrap();
    ann.sees("DESTRUCTIVE");
    ann.keys("\tr");
    ann.sees("Reject: why?");
    ann.keys("we still need it\r");
    match proposal.outcome().await {
        Some(ProposalEvent::NotRun(resolve)) => {
            assert_eq!(resolve.outcome, GateOutcome::Rejected);
            assert_eq!(resolve.reason.as_deref(), Some("we still need it"));
        }
        other => panic!("{other:?}"),
    }
    ann.sees("rejected by ann: we still need it");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_command_is_what_runs() {
    let stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["approver"]);
    let proposal = stage.agent.propose_shell("echo one > list").await.unwrap();
    ann.sees("A command waits");
    ann.keys("\te");
    ann.sees("Edit: everyone votes");
    ann.keys("\u{15}echo two > list\r");
    ann.sees("edited; everyone votes on what it says now");
    ann.wait("the edited card", |shown| {
        shown.contains("┃ echo two > list") && shown.contains("by ann")
    });
    ann.keys("a");
    let end = proposal.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    let list = std::fs::read_to_string(stage.workspace.join("list")).unwrap();
    assert_eq!(list, "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_allowed_and_the_next_of_its_kind_runs_without_asking() {
    let stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["approver"]);
    let first = stage.agent.propose_shell("touch ./one").await.unwrap();
    ann.sees("A command waits");
    ann.keys("\tP");
    ann.sees("touch for 1h");
    ann.keys("\r");
    ann.sees("allowed for this session");
    ann.sees("allows `touch …`");
    let second = stage.agent.propose_shell("touch ./two").await.unwrap();
    let end = second.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    assert!(stage.workspace.join("two").exists());
    // The rule is for what comes; this one still waits for its vote.
    ann.keys("a");
    let end = first.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_waits_is_approved_after_a_list_of_it() {
    let stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["approver"]);
    let mut proposals = Vec::new();
    for name in ["one", "two", "three"] {
        let line = format!("touch {name}");
        proposals.push(stage.agent.propose_shell(&line).await.unwrap());
    }
    ann.sees("Gate 1 of 3");
    ann.keys("\tA");
    ann.sees("Approve 3 of 3?");
    // The second is left out.
    ann.keys("j ");
    ann.sees("Approve 2 of 3?");
    ann.keys("j\r");
    ann.sees("1 waiting");
    let second = proposals.remove(1);
    for proposal in proposals {
        let end = proposal.outcome().await;
        assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));
    }
    assert!(stage.workspace.join("one").exists() && stage.workspace.join("three").exists());
    assert!(!stage.workspace.join("two").exists());
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_arrives_while_one_types_takes_nothing() {
    let mut stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["driver", "admin"]);
    ann.keys("please a");
    ann.sees("please a");
    let _proposal = stage.agent.propose_shell("rm -rf build").await.unwrap();
    ann.sees("DESTRUCTIVE");
    ann.keys("rea\r");
    let wish = stage.agent.next_input().await;
    match wish {
        Some(pvp_agent::agent::AgentInput::Prompt { prompt, .. }) => {
            assert_eq!(prompt.content, "please area")
        }
        other => panic!("{other:?}"),
    }
    ann.sees("1 waiting");
}
