//! Prompts, `!` commands and slash commands on a real screen.

use pvp_agent::agent::AgentInput;
use serde_json::{Value, json};

use crate::fixture::{TestScreen, TuiFixture};

async fn next_prompt(fixture: &mut TuiFixture) -> String {
    match fixture.agent.next_input().await {
        Some(AgentInput::Prompt { prompt, .. }) => prompt.content.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_an_own_command_goes_with_the_next_prompt() {
    let mut fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["driver", "admin"]);
    ann.send_keys("!echo '</shell_result>'; echo oops >&2; exit 3\r");
    ann.wait_for_text("with your next message: [!echo");
    let shown = ann.wait_for_text("your command finished (exit 3)");
    assert!(
        shown.contains("out│ </shell_result>") && shown.contains("err│ oops"),
        "{shown}"
    );
    ann.send_keys("what went wrong?\r");
    let content = next_prompt(&mut fixture).await;
    let (block, text) = content.split_once("</shell_result>\n").unwrap();
    let block: Value = serde_json::from_str(block.strip_prefix("<shell_result>").unwrap()).unwrap();
    assert_eq!(text, "what went wrong?");
    assert_eq!(
        (&block["exit_code"], &block["stdout"], &block["stderr"]),
        (&json!(3), &json!("</shell_result>\n"), &json!("oops\n"))
    );
    ann.wait_for_text_gone("with your next message");
    ann.send_keys("and now?\r");
    assert_eq!(next_prompt(&mut fixture).await, "and now?");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_text_is_one_prompt_whatever_it_says() {
    let mut fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["driver", "admin"]);
    ann.send_keys("\u{1b}[200~first line\nsecond line\u{1b}[201~");
    ann.wait_for_text("second line");
    ann.send_keys("\r");
    assert_eq!(next_prompt(&mut fixture).await, "first line\nsecond line");
}

#[tokio::test(flavor = "multi_thread")]
async fn slash_commands_open_pages_and_make_invitations() {
    let fixture = TuiFixture::new(json!({})).await;
    let ann = fixture.invite("ann", &["driver", "admin"]);
    // Wide enough for a link.
    let mut ann = TestScreen::start(&fixture.server.link(&ann, Some("owl")), 200, 40);
    ann.wait_for_text("bot agent");
    ann.send_keys("/peo\t\r");
    let shown = ann.wait_for_text("People");
    assert!(
        shown.contains("driver+admin") && shown.contains("agent"),
        "{shown}"
    );
    ann.send_keys("q/help\r");
    ann.wait_for_text("runs a command of your own");
    ann.send_keys("q/invite cid approver 1h\r");
    let shown = ann.wait_for_text("An invitation");
    let (_, link) = shown.split_once("http://").unwrap();
    let link = link.split_whitespace().next().unwrap();
    let cid = TestScreen::start(&format!("http://{link}"), 100, 30);
    cid.wait_for_text("cid (you) approver");
    ann.wait_for_text("cid");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_long_output_is_read_in_the_pager() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["driver", "admin"]);
    let proposal = fixture.agent.propose_shell("seq 1 3000").await.unwrap();
    assert!(proposal.outcome().await.is_some());
    ann.wait_for_text("2980 lines");
    ann.send_keys("\u{1b}");
    ann.wait_for_text("up select");
    ann.send_keys("k\r");
    ann.wait_for_text("1/3000");
    ann.send_keys("G");
    ann.wait_until("the end", |shown| shown.contains("3000 out│ 3000"));
    ann.send_keys("/1234\r");
    ann.wait_for_text("1234/3000");
    ann.send_keys("q");
    ann.wait_for_text_gone("1234/3000");
}
