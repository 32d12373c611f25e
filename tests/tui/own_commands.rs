//! A person's own command from a shell at a terminal.

use serde_json::json;

use crate::fixture::{TestScreen, TuiFixture};

/// A shell in which `pvp exec` speaks for a driver who may approve.
fn driver_shell(fixture: &TuiFixture) -> TestScreen {
    let dee = fixture.invite("dee", &["driver", "approver"]);
    let link = fixture.server.link(&dee, Some("owl"));
    let mut screen = TestScreen::shell(160, 30);
    screen.send_keys(&format!("export PVP_LINK='{link}'; clear\n"));
    screen
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_solo_session_the_terminal_asks_whether_a_destructive_command_should_run() {
    let fixture = TuiFixture::new(json!({ "solo": true })).await;
    let victim = fixture.workspace.join("victim");
    std::fs::create_dir(&victim).unwrap();
    let mut screen = driver_shell(&fixture);
    let question = "rm -rf victim is destructive. Really run it? [y/N]";

    screen.send_keys("$pvp exec 'rm -rf victim'; echo code=$?\n");
    screen.wait_for_text(question);
    screen.send_keys("\n");
    screen.wait_for_text("code=130");
    assert!(victim.exists());

    // Spelled differently, because the first question may still be on the screen.
    screen.send_keys("$pvp exec 'rm -fr victim'; echo again=$?\n");
    screen.wait_for_text("rm -fr victim is destructive. Really run it? [y/N]");
    screen.send_keys("y\n");
    screen.wait_for_text("again=0");
    assert!(!victim.exists());
    let entries = fixture.server.entries("owl");
    let execute = entries.iter().find(|entry| entry["type"] == "tool.execute");
    let approved_by = &execute.unwrap()["payload"]["approved_by"];
    assert_eq!(approved_by.as_array().unwrap().len(), 1, "{approved_by}");
}

/// Keys that were pressed while the server had not answered yet answer no question.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_typed_before_the_question_does_not_answer_it() {
    let fixture = TuiFixture::new(json!({ "solo": true })).await;
    let victim = fixture.workspace.join("victim");
    std::fs::create_dir(&victim).unwrap();
    let mut screen = driver_shell(&fixture);
    // The terminal has the answer before the program has started.
    screen.send_keys("sleep 1; $pvp exec 'rm -rf victim'; echo code=$?\ny\n");
    screen.wait_for_text("Really run it? [y/N]");
    screen.send_keys("\n");
    screen.wait_for_text("code=130");
    assert!(victim.exists());
}
