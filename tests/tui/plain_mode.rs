//! Plain mode: lines in, lines out.

use pvp_agent::proposer::ProposalEvent;
use serde_json::json;

use crate::fixture::{TestScreen, TuiFixture};
use crate::support::cli::CliEnv;
use crate::terminal::{count_bells, raw_agent_session};

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_a_line_and_decisions_are_typed() {
    let mut fixture = TuiFixture::new(json!({})).await;
    let ann = fixture.invite("ann", &["driver", "admin"]);
    let cli = CliEnv::new();
    let link = fixture.server.link(&ann, Some("owl"));
    let mut plain = cli.spawn(&["tui", &link, "--plain"]);
    plain.wait_for_line("joined; type `help`").await;

    let first = fixture
        .agent
        .propose_shell("echo \u{202e}eggs > list")
        .await
        .unwrap();
    let line = plain.wait_for_line("gate 1: ").await;
    assert!(
        line.contains(r"echo \u{202e}eggs > list (write") && line.contains("you may vote"),
        "{line}"
    );
    plain.write_line("approve 2").await;
    plain
        .wait_for_line("problem: give the number of a gate")
        .await;
    plain
        .write_line("edit 1 echo eggs; echo more >&2; touch list")
        .await;
    plain
        .wait_for_line("gate 1: echo eggs; echo more >&2; touch list")
        .await;
    plain.write_line("open 1").await;
    plain.wait_for_line("verdict  WRITE").await;
    plain.write_line("gates").await;
    plain.wait_for_line("gate 1: echo eggs;").await;
    plain.write_line("approve 1").await;
    plain.wait_for_line("out: eggs").await;
    plain
        .wait_for_line("echo eggs; echo more >&2; touch list: exit 0 after")
        .await;
    let end = first.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));

    let second = fixture.agent.propose_shell("rm -rf list").await.unwrap();
    plain
        .wait_for_line("gate 2: rm -rf list (destructive")
        .await;
    plain.write_line("reject 2").await;
    plain.wait_for_line("problem: give a reason").await;
    plain.write_line("reject 2 we need it").await;
    plain
        .wait_for_line("by ann: rm -rf list (we need it)")
        .await;
    assert!(matches!(
        second.outcome().await,
        Some(ProposalEvent::NotRun { .. })
    ));

    // However many lines a command has, its gate is one.
    let lines = "touch one\ntouch two";
    fixture.agent.propose_shell(lines).await.unwrap();
    plain
        .wait_for_line("gate 3: touch one ⏎ touch two (write")
        .await;

    fixture.agent.propose_shell("echo -n rest").await.unwrap();
    plain.wait_for_line("out: rest").await;

    plain.write_line("!echo own").await;
    plain.wait_for_line("your command finished (exit 0)").await;
    plain.write_line("say look at that").await;
    match fixture.agent.next_input().await {
        Some(pvp_agent::agent::AgentInput::Prompt { prompt, .. }) => {
            assert!(prompt.content.starts_with("<shell_result>"));
            assert!(prompt.content.ends_with("\nlook at that"));
        }
        other => panic!("{other:?}"),
    }
    plain.wait_for_line("look at that").await;
    plain.write_line("people").await;
    plain.wait_for_line("driver+admin").await;
    plain.write_line("nonsense").await;
    plain
        .wait_for_line("problem: there is no command /nonsense")
        .await;
    plain.write_line("quit").await;
    let output = plain.ended().await;
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_end_of_input_events_are_still_printed_and_notified() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let mut plain = TestScreen::start_with(&[&link, "--plain"], &[], 100, 30);
    plain.wait_for_text("joined; type `help`");
    // End of input.
    plain.send_keys("\u{4}");
    agent.propose("rm -rf build").await;
    plain.wait_for_text("gate 1: rm -rf build (destructive");
    let received = String::from_utf8_lossy(&plain.raw_output()).into_owned();
    assert_eq!(count_bells(&received), 1, "{received:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_printed_as_one_line_once_it_is_complete() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let mut plain = TestScreen::start_with(&[&link, "--plain"], &[], 100, 30);
    plain.wait_for_text("joined; type `help`");
    plain.send_keys("say hello\n");
    let prompt = agent.wait_for("prompt.submit").await;
    let start = json!({ "agent": agent.participant, "prompt_ref": prompt["id"] });
    agent.send_and_ack("response.start", start).await;
    agent
        .send_and_ack("response.chunk", json!({ "text": "half " }))
        .await;
    agent
        .send_and_ack("response.chunk", json!({ "text": "and half" }))
        .await;
    let end = json!({ "finish_reason": "complete" });
    agent.send_and_ack("response.end", end).await;
    let shown = plain.wait_for_text("half and half");
    assert_eq!(shown.matches("half").count(), 2, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_are_piped_in_wait_until_the_session_is_joined() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let cli = CliEnv::new();
    let mut plain = cli.spawn(&["tui", &link, "--plain"]);
    plain.write_line("say hello").await;
    plain.write_line("people").await;
    let prompt = agent.wait_for("prompt.submit").await;
    assert_eq!(prompt["payload"]["content"], "hello");
    assert_eq!(
        prompt["payload"]["target_agent"],
        agent.participant.as_str()
    );
    plain.wait_for_line("driver").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_is_approved_only_after_all_of_it_was_printed() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let cli = CliEnv::new();
    let mut plain = cli.spawn(&["tui", &link, "--plain"]);
    plain.wait_for_line("joined; type `help`").await;
    let propose = json!({
        "tool_name": "file_edit", "agent": agent.participant, "risk_level": "low",
        "arguments": { "path": "a.txt", "old_text": "milk", "new_text": "eggs" },
        "description": "", "requires_approval": true, "category": "file_write",
    });
    agent.send_and_ack("tool.propose", propose).await;
    let line = plain.wait_for_line("gate 1: ").await;
    assert!(
        line.starts_with("gate 1: file_edit a.txt (+1 −1) (write"),
        "{line}"
    );
    assert!(line.contains("`show 1` prints all of it"), "{line}");
    plain.write_line("approve 1").await;
    plain.wait_for_line("problem: read all of it first").await;
    plain.write_line("show 1").await;
    plain.wait_for_line("┃ -milk").await;
    plain.wait_for_line("┃ +eggs").await;
    plain.wait_for_line("you      you may vote").await;
    plain.write_line("approve 1").await;
    let granted = agent.wait_for("tool.execute").await;
    assert_eq!(
        granted["payload"]["grant"]["action"]["command"]["name"],
        "file_edit"
    );
}
