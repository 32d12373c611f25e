//! Plain mode: lines in, lines out.

use pvp_agent::agent::ProposalEvent;
use serde_json::json;

use crate::kit::desk::Desk;
use crate::screen::{Screen, Stage};
use crate::terminal::{bells, raw};

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_a_line_and_decisions_are_words() {
    let mut stage = Stage::new(json!({})).await;
    let ann = stage.invite("ann", &["driver", "admin"]);
    let desk = Desk::new();
    let link = stage.server.link(&ann, Some("owl"));
    let mut plain = desk.start(&["tui", &link, "--plain"]);
    plain.line_with("joined; type `help`").await;

    let first = stage
        .agent
        .propose_shell("echo \u{202e}eggs > list")
        .await
        .unwrap();
    let line = plain.line_with("gate 1: ").await;
    assert!(
        line.contains(r"echo \u{202e}eggs > list (write") && line.contains("you may vote"),
        "{line}"
    );
    plain.type_line("approve 2").await;
    plain.line_with("problem: say the number of a gate").await;
    plain
        .type_line("edit 1 echo eggs; echo more >&2; touch list")
        .await;
    plain
        .line_with("gate 1: echo eggs; echo more >&2; touch list")
        .await;
    plain.type_line("open 1").await;
    plain.line_with("verdict  WRITE").await;
    plain.type_line("gates").await;
    plain.line_with("gate 1: echo eggs;").await;
    plain.type_line("approve 1").await;
    plain.line_with("out: eggs").await;
    plain
        .line_with("echo eggs; echo more >&2; touch list: exit 0 after")
        .await;
    let end = first.outcome().await;
    assert!(matches!(end, Some(ProposalEvent::Finished(result)) if result.success));

    let second = stage.agent.propose_shell("rm -rf list").await.unwrap();
    plain.line_with("gate 2: rm -rf list (destructive").await;
    plain.type_line("reject 2").await;
    plain.line_with("problem: say why not").await;
    plain.type_line("reject 2 we need it").await;
    plain
        .line_with("rejected by ann: rm -rf list: we need it")
        .await;
    assert!(matches!(
        second.outcome().await,
        Some(ProposalEvent::NotRun { .. })
    ));

    // However many lines a command has, its gate is one.
    let lines = "touch one\ntouch two";
    stage.agent.propose_shell(lines).await.unwrap();
    plain
        .line_with("gate 3: touch one ⏎ touch two (write")
        .await;

    stage.agent.propose_shell("echo -n rest").await.unwrap();
    plain.line_with("out: rest").await;

    plain.type_line("!echo own").await;
    plain.line_with("bang exec done (exit 0)").await;
    plain.type_line("say look at that").await;
    match stage.agent.next_input().await {
        Some(pvp_agent::agent::AgentInput::Prompt { prompt, .. }) => {
            assert!(prompt.content.starts_with("<shell_result>"));
            assert!(prompt.content.ends_with("\nlook at that"));
        }
        other => panic!("{other:?}"),
    }
    plain.line_with("look at that").await;
    plain.type_line("people").await;
    plain.line_with("driver+admin").await;
    plain.type_line("nonsense").await;
    plain
        .line_with("problem: no command is called /nonsense")
        .await;
    plain.type_line("quit").await;
    let said = plain.ended().await;
    assert_eq!(said.code, Some(0), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_types_no_more_still_listens_and_is_called() {
    let (_server, mut agent, link) = raw().await;
    let mut plain = Screen::start_with(&[&link, "--plain"], &[], 100, 30);
    plain.sees("joined; type `help`");
    // The end of what is typed.
    plain.keys("\u{4}");
    agent.propose("rm -rf build").await;
    plain.sees("gate 1: rm -rf build (destructive");
    let told = String::from_utf8_lossy(&plain.bytes()).into_owned();
    assert_eq!(bells(&told), 1, "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_one_line_once_it_is_whole() {
    let (_server, mut agent, link) = raw().await;
    let mut plain = Screen::start_with(&[&link, "--plain"], &[], 100, 30);
    plain.sees("joined; type `help`");
    plain.keys("say hello\n");
    let prompt = agent.wait_for("prompt.submit").await;
    let start = json!({ "agent": agent.participant, "prompt_ref": prompt["id"] });
    agent.say("response.start", start).await;
    agent
        .say("response.chunk", json!({ "text": "half " }))
        .await;
    agent
        .say("response.chunk", json!({ "text": "and half" }))
        .await;
    let end = json!({ "finish_reason": "complete" });
    agent.say("response.end", end).await;
    let shown = plain.sees("half and half");
    assert_eq!(shown.matches("half").count(), 2, "{shown}");
}
