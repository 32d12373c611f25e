//! Terminal behaviour: hostile output, sizes, lost connections, settings, exiting.

use pvp_agent::proposer::ProposalEvent;
use serde_json::json;

use crate::fixture::{TestScreen, TuiFixture, propose_read, send_signal};
use crate::support::cli::CliEnv;
use crate::support::{TestClient, TestServer};

/// A session with an agent on a raw socket, and Ann's link to it.
pub(crate) async fn raw_agent_session() -> (TestServer, TestClient, String) {
    let server = TestServer::start(&[]).await;
    let agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let link = server.link(&ann, Some("owl"));
    (server, agent, link)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_command_prints_or_an_agent_says_reaches_the_terminal() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let mut screen = TestScreen::start(&link, 100, 40);
    screen.wait_for_text("● connected");
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}]52;c;b3duZWQ=\u{7}\u{1b}[6n\u{1b}[?1049l\u{1b}P+q\u{1b}\\\u{202e}END";
    let id = propose_read(&mut agent, "ls").await;
    let output = json!({ "tool_proposal": id, "stream": "stdout", "text": hostile, "complete": false, "offset": 0 });
    agent.send_and_ack("tool.output", output).await;
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": format!("echo {hostile}") },
        "agent": agent.participant, "risk_level": "low", "description": hostile,
        "requires_approval": true, "category": "shell_execute",
    });
    let id = agent.send("tool.propose", propose).await;
    agent.expect_ack(&id).await;
    let shown = screen.wait_for_text("would be invisible");
    assert!(
        shown.contains(r"\u{1b}]0;owned\u{7}") && shown.contains(r"\u{202e}END"),
        "{shown}"
    );
    screen.send_keys("\tx");
    screen.wait_for_text("Assessment");
    let bytes = screen.raw_output();
    let has = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    for needle in [
        "\u{1b}]0;owned",
        "\u{1b}]52",
        "\u{1b}[6n",
        "\u{1b}[?1049l",
        "\u{1b}P",
        "\u{202e}",
    ] {
        assert!(!has(needle.as_bytes()), "{needle:?}");
    }
    assert!(has(b"\x1b]0;(1) pvp owl\x07"), "the title is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_colours_none_are_written() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let screen = TestScreen::start_with(&[&link], &[("NO_COLOR", "1")], 100, 30);
    screen.wait_for_text("● connected");
    let id = propose_read(&mut agent, "ls").await;
    let output = json!({ "tool_proposal": id, "stream": "stderr", "text": "\u{1b}[31mred\u{1b}[0m\n", "complete": false, "offset": 0 });
    agent.send_and_ack("tool.output", output).await;
    agent.propose("rm -rf build").await;
    screen.wait_for_text("DESTRUCTIVE");
    screen.wait_for_text("err│ red");
    let text = String::from_utf8_lossy(&screen.raw_output()).into_owned();
    for code in 30..38 {
        assert!(
            !text.contains(&format!("[{code}m")) && !text.contains(&format!(";{code}m")),
            "{code}"
        );
    }
    assert!(!text.contains("38;5;"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_follows_the_size_of_the_terminal() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let screen = TestScreen::start(&link, 120, 40);
    agent.propose("rm -rf build").await;
    screen.wait_for_text("DESTRUCTIVE");
    screen.resize(40, 12);
    let shown = screen.wait_until("the small screen", |shown| {
        shown.contains("─ Waiting for a decision")
            && shown.lines().all(|line| line.chars().count() <= 40)
    });
    assert!(shown.contains("rm -rf build"), "{shown}");
    screen.resize(80, 24);
    screen.wait_for_text("└──");
}

#[tokio::test(flavor = "multi_thread")]
async fn typing_and_deciding_continue_while_the_server_is_down() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let address = server.address.clone();
    let admin = server.admin();
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let mut screen = TestScreen::start(&server.link(&ann, Some("owl")), 100, 30);
    screen.wait_for_text("● connected");
    let first = agent.propose("touch one").await;
    screen.wait_for_text("Waiting for a decision");
    screen.send_keys("half a thought");
    screen.wait_for_text("half a thought");
    server.kill_9().await;
    screen.wait_for_text("retrying");
    screen.send_keys(", and more");
    screen.wait_for_text("half a thought, and more");
    // Messages sent meanwhile are queued.
    screen.send_keys("\r");
    screen.wait_for_text("1 to send");
    let mut server = TestServer::start_on(data.path(), &address, &[]).await;
    server.admin_token = Some(admin.token);
    screen.wait_for_text("● connected");
    let watcher = server.invite("eve", &["observer"], &[]);
    let mut watcher = server.join("owl", &watcher).await;
    let said = watcher.wait_for("prompt.submit").await;
    assert_eq!(said["payload"]["content"], "half a thought, and more");
    screen.wait_for_text("half a thought, and more");
    screen.send_keys("\ta");
    screen.wait_for_text("approved by ann");
    let votes: Vec<_> = server
        .entries("owl")
        .into_iter()
        .filter(|entry| {
            let text = entry.to_string();
            text.contains("gate.approve") || text.contains("prompt.submit")
        })
        .collect();
    assert_eq!(votes.len(), 2, "each is said once: {votes:#?}");
    assert!(!first.is_empty());
    let shown = screen.wait_for_text("✓ approves");
    assert_eq!(
        shown.matches("proposes").count(),
        1,
        "nothing is told twice:\n{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfocused_user_is_notified_when_a_gate_opens() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let mut screen = TestScreen::start(&link, 100, 30);
    screen.wait_for_text("● connected");
    screen.send_keys("\u{1b}[O");
    agent.propose("rm -rf build").await;
    screen.wait_for_text("DESTRUCTIVE");
    // The bell rings before the card is drawn; the title changes with it.
    let received = String::from_utf8_lossy(&screen.raw_output()).into_owned();
    assert_eq!(count_bells(&received), 1, "{received:?}");
    assert!(received.contains("\u{1b}]0;(1) pvp owl"));
}

/// How often the bell rang; a BEL that ends a title does not ring.
pub(crate) fn count_bells(received: &str) -> usize {
    let mut parts = received.split("\u{1b}]");
    let before = parts.next().unwrap_or_default();
    let after = parts.map(|part| part.split_once('\u{7}').map_or("", |(_, rest)| rest));
    let count = |text: &str| text.matches('\u{7}').count();
    count(before) + after.map(count).sum::<usize>()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_leaves_the_terminal_as_it_was() {
    let fixture = TuiFixture::new(json!({})).await;
    for leave in ["\u{11}", "/quit\r", "\u{3}\u{3}"] {
        let mut ann = fixture.screen("ann", &["driver", "admin"]);
        ann.send_keys(leave);
        assert_eq!(ann.wait_exit(), (true, String::new()), "{leave:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_keys_work_and_bad_settings_are_refused() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let cli = CliEnv::new();
    let good = cli.workdir().join("good.toml");
    std::fs::write(&good, "[keys]\n\"card.approve\" = [\"f5\"]\n").unwrap();
    let good = good.to_str().unwrap();
    let mut screen = TestScreen::start_with(&[&link, "--config", good], &[], 100, 30);
    agent.propose("touch one").await;
    screen.wait_for_text("Waiting for a decision");
    screen.send_keys("\t");
    screen.wait_for_text("f5 approve");
    screen.send_keys("a\u{1b}[15~");
    agent.wait_for("gate.approve").await;

    let bad = cli.workdir().join("bad.toml");
    std::fs::write(&bad, "mouse = true\ncolour = \"red\"\n").unwrap();
    let bad = bad.to_str().unwrap();
    let output = cli.run_refused(&["tui", &link, "--config", bad]).await;
    let expected = format!("pvp: {bad}: line 2: unknown field `colour`");
    assert!(output.starts_with(&expected), "{output}");
    let output = cli
        .run_refused(&["tui", &link, "--config", "nowhere.toml"])
        .await;
    assert!(
        output.starts_with("pvp: reading nowhere.toml: "),
        "{output}"
    );
    let output = cli.run_with_link(&link, &["tui"]).await;
    let output = output.expect_refused(&["tui"]);
    assert_eq!(
        output,
        "pvp: the screen needs a terminal; use --plain without one\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn create_makes_the_session_before_joining() {
    let server = TestServer::start(&[]).await;
    let admin = server.invite("ann", &["driver", "admin"], &[]);
    let link = server.link(&admin, Some("fresh"));
    let screen = TestScreen::start_with(&[&link, "--create"], &[], 100, 30);
    screen.wait_for_text("PVP  fresh");
    screen.wait_for_text("ann (you) driver+admin");
    // The session exists by now, which is fine.
    let again = TestScreen::start_with(&[&link, "--create"], &[], 100, 30);
    again.wait_for_text("ann (you) driver+admin");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interactive_command_is_driven_from_its_screen() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let bob = server.invite("bob", &["approver"], &[]);
    let mut ann_screen = TestScreen::start(&server.link(&ann, Some("owl")), 100, 30);
    let mut bob_screen = TestScreen::start(&server.link(&bob, Some("owl")), 80, 24);
    ann_screen.wait_for_text("bob approver");
    bob_screen.wait_for_text("ann driver+admin");
    let propose = json!({
        "tool_name": "shell",
        "arguments": { "full_command": "vi list", "mode": "pty", "driver": ann.participant },
        "agent": agent.participant, "risk_level": "low", "description": "edit the list",
        "requires_approval": true, "category": "shell_execute",
    });
    let id = agent.send("tool.propose", propose).await;
    bob_screen.wait_for_text("interactive, keys from ann");
    bob_screen.send_keys("\ta");
    agent.wait_for("tool.execute").await;
    let text = "\u{1b}[2J\u{1b}[3;5Hmilk\u{1b}]0;owned\u{7}";
    let output = json!({ "tool_proposal": id, "stream": "stdout", "text": text, "complete": false, "offset": 0 });
    agent.send_and_ack("tool.output", output).await;
    for screen in [&mut ann_screen, &mut bob_screen] {
        screen.wait_for_text("running");
        screen.send_keys("\t");
        screen.wait_for_text("up select");
        screen.send_keys("k\r");
        screen.wait_for_text("│    milk");
    }
    let resize = agent.wait_for("tool.input").await;
    assert_eq!(resize["payload"]["resize"]["columns"], 98, "{resize}");
    ann_screen.send_keys("i\u{3}\u{1a}");
    for key in ["i", "\u{3}", "\u{1a}"] {
        let input = agent.wait_for("tool.input").await;
        assert_eq!(input["payload"]["data"], key);
    }
    bob_screen.send_keys("x");
    ann_screen.send_keys("\u{1d}");
    ann_screen.wait_for_text("ask the agent");
    ann_screen.wait_for_text_gone("ctrl+] leaves");
    let inputs = agent.sync().await;
    assert!(
        inputs.iter().all(|message| message["type"] != "tool.input"),
        "{inputs:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_reach_a_real_program_and_what_it_shows_comes_back() {
    let fixture = TuiFixture::new(json!({})).await;
    let mut ann = fixture.screen("ann", &["driver", "approver"]);
    let line = "read -p 'name? ' who; echo \"hello $who\"; stty size";
    let arguments = json!({ "full_command": line, "mode": "pty" });
    let arguments = arguments.as_object().unwrap().clone();
    let proposal = fixture.agent.propose(arguments, "ask for a name").await;
    let proposal = proposal.unwrap();
    ann.wait_for_text("Waiting for a decision");
    ann.send_keys("\ta");
    ann.wait_for_text("running");
    ann.send_keys("\t");
    ann.wait_for_text("up select");
    ann.send_keys("k\r");
    ann.wait_for_text("name?");
    ann.send_keys("owl\r");
    ann.wait_for_text("hello owl");
    match proposal.outcome().await {
        Some(ProposalEvent::Finished(result)) => {
            assert!(result.success, "{result:?}");
            // The program's terminal has the size of the pane, not of the whole screen.
            let printed = &result.command().unwrap().stdout;
            assert!(printed.trim_end().ends_with(" 98"), "{printed}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_only_reads_is_shown_as_present() {
    let server = TestServer::start(&[]).await;
    let config = json!({ "idle_timeout_seconds": 1 });
    let mut agent = server.create_session_with_agent("owl", config).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let mut screen = TestScreen::start(&server.link(&ann, Some("owl")), 100, 30);
    screen.wait_for_text("○ ann (you)");
    screen.send_keys("\u{1b}[5~");
    // She is idle again soon after, so check with the other participants.
    agent
        .wait(|message| {
            message["type"] == "presence.update"
                && message["sender"] == ann.participant.as_str()
                && message["payload"]["status"] == "active"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_restores_the_terminal_when_a_signal_ends_it() {
    let (_server, _agent, link) = raw_agent_session().await;
    for name in ["-TERM", "-HUP"] {
        let mut screen = TestScreen::start(&link, 100, 30);
        screen.wait_for_text("● connected");
        send_signal(name, &screen.pid());
        assert_eq!(screen.wait_exit(), (true, String::new()), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_copied_into_the_clipboard_of_the_terminal() {
    let (_server, mut agent, link) = raw_agent_session().await;
    let mut screen = TestScreen::start(&link, 100, 30);
    agent.propose("touch one").await;
    screen.wait_for_text("Waiting for a decision");
    screen.send_keys("\ty");
    screen.wait_for_text("copied the command");
    let text = String::from_utf8_lossy(&screen.raw_output()).into_owned();
    // `touch one` in base64.
    assert!(text.contains("\u{1b}]52;c;dG91Y2ggb25l"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_counts_down_while_nothing_else_happens() {
    let server = TestServer::start(&[]).await;
    let mut agent = server
        .create_session_with_agent("owl", json!({ "gate_timeout_seconds": 300 }))
        .await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let screen = TestScreen::start(&server.link(&ann, Some("owl")), 100, 30);
    screen.wait_for_text("● connected");
    agent.propose("touch one").await;
    screen.wait_for_text("· write · 4:5");
    screen.wait_for_text("· write · 4:57");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_session_is_shown() {
    let (server, _agent, link) = raw_agent_session().await;
    let screen = TestScreen::start(&link, 100, 30);
    screen.wait_for_text("● connected");
    let admin = server.invite("eve", &["admin"], &[]);
    let mut admin = server.join("owl", &admin).await;
    let end = json!({ "reason": "enough for today", "final_state": "completed" });
    admin.send_and_ack("session.end", end).await;
    screen.wait_for_text("ended: enough for today");
}
