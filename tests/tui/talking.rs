//! Prompts, one's own commands and slash commands on a real screen.

use pvp_agent::agent::AgentInput;
use serde_json::{Value, json};

use crate::screen::{Screen, Stage};

async fn prompted(stage: &mut Stage) -> String {
    match stage.agent.next_input().await {
        Some(AgentInput::Prompt { prompt, .. }) => prompt.content.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_an_own_command_goes_with_the_next_prompt() {
    let mut stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["driver", "admin"]);
    ann.keys("!echo '</shell_result>'; echo oops >&2; exit 3\r");
    ann.sees("with your next message: [!echo");
    let shown = ann.sees("bang exec done (exit 3)");
    assert!(
        shown.contains("out│ </shell_result>") && shown.contains("err│ oops"),
        "{shown}"
    );
    ann.keys("what went wrong?\r");
    let content = prompted(&mut stage).await;
    let (block, text) = content.split_once("</shell_result>\n").unwrap();
    let block: Value = serde_json::from_str(block.strip_prefix("<shell_result>").unwrap()).unwrap();
    assert_eq!(text, "what went wrong?");
    assert_eq!(
        (&block["exit_code"], &block["stdout"], &block["stderr"]),
        (&json!(3), &json!("</shell_result>\n"), &json!("oops\n"))
    );
    ann.sees_no("with your next message");
    ann.keys("and now?\r");
    assert_eq!(prompted(&mut stage).await, "and now?");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_text_is_one_prompt_whatever_it_says() {
    let mut stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["driver", "admin"]);
    ann.keys("\u{1b}[200~first line\nsecond line\u{1b}[201~");
    ann.sees("second line");
    ann.keys("\r");
    assert_eq!(prompted(&mut stage).await, "first line\nsecond line");
}

#[tokio::test(flavor = "multi_thread")]
async fn slash_commands_open_pages_and_make_invitations() {
    let stage = Stage::new(json!({})).await;
    let ann = stage.invite("ann", &["driver", "admin"]);
    // Wide enough for a link.
    let mut ann = Screen::start(&stage.server.link(&ann, Some("owl")), 200, 40);
    ann.sees("bot agent");
    ann.keys("/peo\t\r");
    let shown = ann.sees("People");
    assert!(
        shown.contains("driver+admin") && shown.contains("agent"),
        "{shown}"
    );
    ann.keys("q/help\r");
    ann.sees("runs a command of your own");
    ann.keys("q/invite cid approver 1h\r");
    let shown = ann.sees("An invitation");
    let (_, link) = shown.split_once("http://").unwrap();
    let link = link.split_whitespace().next().unwrap();
    let cid = Screen::start(&format!("http://{link}"), 100, 30);
    cid.sees("cid (you) approver");
    ann.sees("cid");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_long_output_is_read_in_the_pager() {
    let stage = Stage::new(json!({})).await;
    let mut ann = stage.screen("ann", &["driver", "admin"]);
    let proposal = stage.agent.propose_shell("seq 1 3000").await.unwrap();
    assert!(proposal.outcome().await.is_some());
    ann.sees("2980 lines");
    ann.keys("\u{1b}");
    ann.sees("up select");
    ann.keys("k\r");
    ann.sees("1/3000");
    ann.keys("G");
    ann.wait("the end", |shown| shown.contains("3000 out│ 3000"));
    ann.keys("/1234\r");
    ann.sees("1234/3000");
    ann.keys("q");
    ann.sees_no("1234/3000");
}
