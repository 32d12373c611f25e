//! A client with its screen, in a terminal at which a person answers what waits.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::clients::{Client, Launch, LaunchPlace};
use crate::model::{ScriptedModel, ScriptedTurn};
use crate::process::ProcessesOf;
use crate::support::cli::CliEnv;
use crate::support::screen::TestScreen;
use crate::support::session::wait_until;
use crate::support::{TestClient, TestServer};

const SESSION: &str = "owl";

/// The key that shows what waits.
const KEY: &str = "\u{1d}";

/// What the model says at the end.
const LAST_WORDS: &str = "That was all of it.";

/// Ends a scenario whose client has a question of its own on its screen.
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// Prints the screens, to be looked at.
const SHOW: &str = "PVP_TEST_SHOW";

/// Says what is on the screen of a card.
fn is_card(shown: &str) -> bool {
    shown.contains(" PVP  owl ")
}

pub async fn own_terminal(client: &'static Client) {
    let server = TestServer::start(&[]).await;
    let config = json!({ "client_reads": "workspace", "gate_timeout_seconds": 0 });
    server.create_session(SESSION, config).await;
    let bob = server.invite("bob", &["approver"], &[]);
    let mut bob = server.join(SESSION, &bob).await;
    let ann = server.invite("ann", &["driver", "approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, Some(SESSION))).await;
    let script = ["touch approved", "touch rejected"]
        .map(|line| ScriptedTurn::Calls(vec![(client.shell)(line)]));
    let model =
        ScriptedModel::start([&script[..], &[ScriptedTurn::text(LAST_WORDS)]].concat()).await;
    let place = LaunchPlace::of(&cli, &model);
    let agent = server.invite(client.name, &["driver"], &["--kind", "agent"]);
    let link = server.link(&agent, Some(SESSION));
    let cli = Arc::new(cli);
    let _processes = ProcessesOf::home(&cli);
    let mut screen = start(client, cli.clone(), &place, &link);
    for (question, answer) in client.first_questions {
        screen.wait_for_text(question);
        screen.press_until(answer, question, |shown| !shown.contains(question));
    }

    let approved = cli.workdir().join("approved");
    next_gate(&mut bob, &mut screen).await;
    show(client, "waits", &screen);
    screen.send_keys(KEY);
    let card = screen.wait_for_text("Waiting for a decision");
    assert!(card.contains("touch approved"), "{card}");
    show(client, "the card", &screen);
    assert!(!approved.exists());
    screen.press_until("a", "it is approved", |shown| !is_card(shown));
    wait_until("the call ran", || approved.exists()).await;

    next_gate(&mut bob, &mut screen).await;
    screen.send_keys(KEY);
    let card = screen.wait_for_text("Waiting for a decision");
    assert!(card.contains("touch rejected"), "{card}");
    screen.press_until("r", "a dialog", |shown| {
        shown.contains("Reason for rejecting")
    });
    screen.send_keys("one is enough\r");
    model
        .wait_for(|request| request.text().contains("one is enough"))
        .await;
    // The client has its screen again, and goes on.
    screen.wait_for_text(LAST_WORDS);
    assert!(!cli.workdir().join("rejected").exists());
    show(client, "afterwards", &screen);
}

/// Waits for the next call that needs a decision.
async fn next_gate(bob: &mut TestClient, screen: &mut TestScreen) {
    let asked = tokio::time::timeout(ASK_LIMIT, bob.wait_for("gate.request"));
    if asked.await.is_err() {
        let shown = screen.wait_until("a screen", |_| true);
        panic!("the client asks about nothing:\n{shown}");
    }
}

fn start(client: &Client, cli: Arc<CliEnv>, place: &LaunchPlace, link: &str) -> TestScreen {
    let Launch {
        arguments,
        environment,
    } = (client.screen)(place);
    let program = client.program();
    let mut words = vec!["run", "--", program.to_str().unwrap()];
    words.extend(arguments.iter().map(String::as_str));
    let home = |name: &str| cli.home().join(name).to_str().unwrap().to_owned();
    let (data, cache) = (home("data"), home("cache"));
    let workdir = cli.workdir().to_str().unwrap().to_owned();
    let path = std::env::var("PATH").unwrap();
    let mut variables: Vec<_> = environment
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    variables.extend([
        ("PATH", path.as_str()),
        ("PWD", &workdir),
        ("XDG_DATA_HOME", &data),
        ("XDG_CACHE_HOME", &cache),
        ("PVP_AGENT_LINK", link),
        ("IS_SANDBOX", "1"),
        ("COLORTERM", "truecolor"),
    ]);
    TestScreen::start_with_env(cli.clone(), &words, &variables, (110, 36))
}

fn show(client: &Client, what: &str, screen: &TestScreen) {
    if std::env::var_os(SHOW).is_some() {
        let shown = screen.wait_until("a screen", |_| true);
        // Not `eprintln!`, which libtest hides unless the test fails.
        let _ = writeln!(std::io::stderr(), "=== {}: {what}\n{shown}\n", client.name);
    }
}
