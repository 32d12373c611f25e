//! Suspending the screen and resuming it.

use serde_json::json;

use crate::fixture::{TestScreen, send_signal};
use crate::support::TestServer;
use crate::terminal::raw_agent_session;

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_goes_to_the_shell_and_fg_comes_back_to_what_happened_since() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let mut screen = TestScreen::shell(100, 30);
    screen.write_file("mouse.toml", "mouse = true\n");
    screen.send_keys(&format!("$pvp tui '{link}' --config mouse.toml\n"));
    screen.wait_for_text("● connected");
    assert!(screen.has_terminal_modes());
    screen.send_keys("half a thought");
    screen.wait_for_text("half a thought");

    screen.send_keys("\u{1a}");
    screen.wait_for_prompt_after("Stopped");
    screen.send_keys("stty -a\n");
    let shown = screen.wait_for_prompt_after("icanon");
    for wrong in ["-icanon", "-echo ", "-isig", "-opost", "-icrnl"] {
        assert!(!shown.contains(wrong), "{wrong} in\n{shown}");
    }

    agent.propose("rm -rf build").await;
    // Only the foreground process group is notified of a resize.
    screen.resize(90, 24);
    screen.send_keys("fg\n");
    let shown = screen.wait_until("the whole screen", |shown| {
        ["DESTRUCTIVE", "half a thought", "● connected"]
            .iter()
            .all(|part| shown.contains(part))
    });
    let wide = shown.lines().find(|line| line.starts_with("┌ Waiting for"));
    assert_eq!(wide.unwrap().chars().count(), 90, "{shown}");
    assert!(screen.has_terminal_modes());
    let text = String::from_utf8_lossy(&screen.raw_output()).into_owned();
    assert!(text.rfind("\u{1b}]0;(1) pvp owl") > text.rfind("Stopped"));
    screen.send_keys("\ta");
    agent.wait_for("gate.approve").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_suspends_too_and_a_lost_connection_comes_back_with_the_screen() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let address = server.address.clone();
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let link = server.link(&ann, Some("owl"));
    let mut screen = TestScreen::shell(100, 30);
    screen.send_keys(&format!("$pvp tui '{link}'\n"));
    screen.wait_for_text("● connected");
    agent.propose("touch one").await;
    screen.wait_for_text("touch one");
    send_signal("-TSTP", &screen.last_child_pid());
    screen.wait_for_prompt_after("Stopped");
    server.kill_9().await;
    let _server = TestServer::start_on(data.path(), &address, &[]).await;
    screen.send_keys("fg\n");
    screen.wait_until("the screen with a connection", |shown| {
        shown.contains("● connected") && shown.contains("touch one")
    });
    let text = String::from_utf8_lossy(&screen.raw_output()).into_owned();
    assert!(text.rfind("\u{1b}]0;(1) pvp owl") > text.rfind("Stopped"));
    screen.send_keys("\ta");
    screen.wait_for_text("approved by ann");

    // A program killed while suspended must not change the terminal, which is the shell's by then.
    screen.send_keys("\u{1a}");
    screen.wait_for_prompt_after("fg");
    let job = screen.last_child_pid();
    screen.send_keys("kill %1\n");
    screen.wait_process_gone(&job);
    let shown = screen.wait_for_prompt_after("kill %1");
    assert!(
        shown.starts_with("shell>"),
        "the shell's screen is whole:\n{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_job_control_shell_it_does_not_suspend() {
    let (_server, _agent, link) = raw_agent_session().await;
    let mut screen = TestScreen::start(&link, 100, 30);
    screen.wait_for_text("● connected");
    screen.send_keys("\u{1a}");
    screen.wait_for_text("cannot suspend: there is no shell to return to");
    screen.send_keys("still here");
    screen.wait_for_text("still here");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_redraw_key_draws_everything_again() {
    let (_server, _agent, link) = raw_agent_session().await;
    let mut screen = TestScreen::start(&link, 100, 30);
    screen.wait_for_text("● connected");
    screen.overwrite_screen("something else wrote here");
    screen.wait_for_text("something else wrote here");
    screen.send_keys("\u{c}");
    screen.wait_for_text_gone("something else wrote here");
    screen.wait_for_text("● connected");
}
