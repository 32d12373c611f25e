//! Leaving the screen for the shell, and coming back to it.

use serde_json::json;

use crate::kit::Server;
use crate::screen::{Screen, signal};
use crate::terminal::raw;

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_z_goes_to_the_shell_and_fg_comes_back_to_what_happened_since() {
    let (_server, mut agent, link) = raw().await;
    let mut screen = Screen::shell(100, 30);
    screen.file("mouse.toml", "mouse = true\n");
    screen.keys(&format!("$pvp tui '{link}' --config mouse.toml\n"));
    screen.sees("● connected");
    assert!(screen.is_taken());
    screen.keys("half a thought");
    screen.sees("half a thought");

    screen.keys("\u{1a}");
    screen.sees_prompt_after("Stopped");
    screen.keys("stty -a\n");
    let shown = screen.sees_prompt_after("icanon");
    for wrong in ["-icanon", "-echo ", "-isig", "-opost", "-icrnl"] {
        assert!(!shown.contains(wrong), "{wrong} in\n{shown}");
    }

    agent.propose("rm -rf build").await;
    // A window that is resized tells only whoever is in the foreground.
    screen.resize(90, 24);
    screen.keys("fg\n");
    let shown = screen.wait("the whole screen", |shown| {
        ["DESTRUCTIVE", "half a thought", "● connected"]
            .iter()
            .all(|part| shown.contains(part))
    });
    let wide = shown.lines().find(|line| line.starts_with("┌ A command"));
    assert_eq!(wide.unwrap().chars().count(), 90, "{shown}");
    assert!(screen.is_taken());
    let text = String::from_utf8_lossy(&screen.bytes()).into_owned();
    assert!(text.rfind("\u{1b}]0;(1) pvp owl") > text.rfind("Stopped"));
    screen.keys("\ta");
    agent.wait_for("gate.approve").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_suspends_too_and_a_lost_connection_comes_back_with_the_screen() {
    let data = tempfile::tempdir().unwrap();
    let mut server = Server::start_in(data.path(), &[]).await;
    let address = server.address.clone();
    let mut agent = server.with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let link = server.link(&ann, Some("owl"));
    let mut screen = Screen::shell(100, 30);
    screen.keys(&format!("$pvp tui '{link}'\n"));
    screen.sees("● connected");
    agent.propose("touch one").await;
    screen.sees("touch one");
    signal("-TSTP", &screen.job());
    screen.sees_prompt_after("Stopped");
    server.kill_9().await;
    let _server = Server::start_on(data.path(), &address, &[]).await;
    screen.keys("fg\n");
    screen.wait("the screen with a connection", |shown| {
        shown.contains("● connected") && shown.contains("touch one")
    });
    let text = String::from_utf8_lossy(&screen.bytes()).into_owned();
    assert!(text.rfind("\u{1b}]0;(1) pvp owl") > text.rfind("Stopped"));
    screen.keys("\ta");
    screen.sees("approved by ann");

    // Whoever is killed while stopped tidies nothing that is the shell's by now.
    screen.keys("\u{1a}");
    screen.sees_prompt_after("fg");
    let job = screen.job();
    screen.keys("kill %1\n");
    screen.sees_gone(&job);
    let shown = screen.sees_prompt_after("kill %1");
    assert!(
        shown.starts_with("shell>"),
        "the shell's screen is whole:\n{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_shell_it_stays() {
    let (_server, _agent, link) = raw().await;
    let mut screen = Screen::start(&link, 100, 30);
    screen.sees("● connected");
    screen.keys("\u{1a}");
    screen.sees("no shell is here that could bring the screen back");
    screen.keys("still here");
    screen.sees("still here");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_drawn_again_when_that_is_asked_for() {
    let (_server, _agent, link) = raw().await;
    let mut screen = Screen::start(&link, 100, 30);
    screen.sees("● connected");
    screen.scribble("something else wrote here");
    screen.sees("something else wrote here");
    screen.keys("\u{c}");
    screen.sees_no("something else wrote here");
    screen.sees("● connected");
}
