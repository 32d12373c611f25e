//! Answering at the terminal of an agent client: `pvp run` in a real pseudo-terminal, with a stand-in
//! that draws a screen, notes what is typed into it, and asks as Claude Code does.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::fixture::{TestScreen, send_signal};
use crate::support::cli::CliEnv;
use crate::support::hook_client::{ClientHooks, decision_of, install_program};
use crate::support::session::{reject, wait_until};
use crate::support::{TestClient, TestServer, TestUser};
use crate::terminal::count_bells;

/// Prints what is in its file `screen` and is added to `print`; notes what is typed, its terminal,
/// its size, its environment and its open files. Ends with 7 when it gets SIGUSR1, and suspends
/// itself and what it runs when it gets SIGUSR2.
const CLIENT: &str = r#"#!/bin/bash
[ "$1" = --version ] && { echo '2.1.325 (Claude Code)'; exit; }
env > "$0.env"
ls -l "/proc/$$/fd" > "$0.fds"
# A hook that is installed for good, besides the one that it was given.
[ -e "$0.question" ] && "$(cat "$0.pvp")" hook run claude < "$0.question" > "$0.answer"
tty > "$0.tty"
stty raw -echo
cat "$0.screen"
: > "$0.print"
tail -c +1 -f "$0.print" &
: > "$0.typed"
cat <&0 >> "$0.typed" &
resized() { stty size >> "$0.size"; }
trap resized WINCH
trap 'kill $(jobs -p); stty sane; printf "\033[?2004l"; exit 7' USR1
trap 'stty sane; kill -TSTP 0; stty raw -echo; printf again' USR2
resized
echo $$ > "$0.pid"
for word; do printf '%s\0' "$word"; done > "$0.new"
mv "$0.new" "$0.args"
while :; do wait; done
"#;

const SCREEN: &str = "\u{1b}[2J\u{1b}[H\u{1b}[1;32mThe client\u{1b}[0m\r\n\u{1b}[7m> \u{1b}[0m \u{1b}[?2004h\u{1b}[?1004h\u{1b}[>1u\u{1b}[4;7H世界\u{1b}[38;5;208m";
const KEY: &str = "\u{1d}";

/// A client in a terminal, supervised in the session `owl`, and ann at that terminal.
struct ClientAtTerminal {
    /// The server, which ends when this is dropped.
    _server: TestServer,
    /// Somebody with a vote, elsewhere.
    bob: TestClient,
    /// Where ann works.
    cli: Arc<CliEnv>,
    /// Her terminal.
    screen: TestScreen,
    /// What the client was started with in `--settings`.
    settings: Value,
    /// Her link.
    link: String,
    /// Her login.
    ann: TestUser,
}

impl ClientAtTerminal {
    async fn start(roles: &[&str]) -> Self {
        Self::start_with(roles, SCREEN, &[]).await
    }

    async fn start_with(roles: &[&str], shown: &str, flags: &[&str]) -> Self {
        let place = ClientPlace::new(Some(roles), shown).await;
        let program = place.program();
        let arguments = [&["run"], flags, &["--", &program]].concat();
        let environment = [("PVP_AGENT_LINK", place.agent_link.as_str())];
        let cli = place.cli.clone();
        let screen = TestScreen::start_with_env(cli, &arguments, &environment, (90, 26));
        place.started(screen).await
    }

    fn file(&self, name: &str) -> PathBuf {
        self.cli.home().join(format!("bin/claude.{name}"))
    }

    fn noted(&self, name: &str) -> String {
        let bytes = std::fs::read(self.file(name)).unwrap_or_default();
        String::from_utf8(bytes).unwrap()
    }

    async fn wait_for_note(&self, name: &str, fits: impl Fn(&str) -> bool) {
        wait_until(name, || fits(&self.noted(name))).await;
    }

    async fn wait_until_typed(&self, text: &str) {
        self.wait_for_note("typed", |typed| typed == text).await;
    }

    /// Has the client print something.
    fn print(&self, text: &str) {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(self.file("print"))
            .unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn signal_client(&self, name: &str) {
        send_signal(name, self.noted("pid").trim());
    }

    /// Has the client ask whether a command may run, and waits until it waits.
    async fn ask(&mut self, id: &str, line: &str) -> (Child, String) {
        let hooks = ClientHooks {
            cli: &self.cli,
            settings: &self.settings,
        };
        let hook = hooks.ask_bash(id, line).await;
        let request = self.bob.wait_for("gate.request").await;
        (hook, request["id"].as_str().unwrap().to_owned())
    }

    fn open_card(&mut self) {
        self.screen.send_keys(KEY);
        self.screen.wait_for_text("Waiting for a decision");
    }

    fn close_card(&mut self) {
        self.screen
            .press_until("\u{1b}", "the card is closed", |shown| {
                !shown.contains("PVP  owl")
            });
    }

    /// Everything of a kind that ann did in the session.
    async fn by_ann(&mut self, kind: &str) -> Vec<Value> {
        self.bob.sync().await;
        let received = self.bob.received.iter();
        let hers = received.filter(|it| it["sender"] == *self.ann.participant);
        hers.filter(|it| it["type"] == kind).cloned().collect()
    }
}

/// Where a client is about to be started.
struct ClientPlace {
    /// The server.
    server: TestServer,
    /// Somebody with a vote, elsewhere.
    bob: TestClient,
    /// Where ann works.
    cli: Arc<CliEnv>,
    /// The link of the client.
    agent_link: String,
    /// Ann's login.
    ann: TestUser,
    /// Ann's link.
    link: String,
}

impl ClientPlace {
    /// Ann's link is saved if she has roles.
    async fn new(roles: Option<&[&str]>, shown: &str) -> Self {
        let server = TestServer::start(&[]).await;
        server.create_session("owl", json!({})).await;
        let bob = server.invite("bob", &["approver"], &[]);
        let bob = server.join("owl", &bob).await;
        let ann = server.invite("ann", roles.unwrap_or(&["observer"]), &[]);
        let link = server.link(&ann, Some("owl"));
        let cli = CliEnv::new();
        if roles.is_some() {
            cli.log_in(&link).await;
        }
        let agent = server.invite("claude", &["driver"], &["--kind", "agent"]);
        let agent_link = server.link(&agent, Some("owl"));
        let program = install_program(&cli, "claude", CLIENT);
        std::fs::write(program.with_extension("screen"), shown).unwrap();
        Self {
            server,
            bob,
            cli: Arc::new(cli),
            agent_link,
            ann,
            link,
        }
    }

    fn program(&self) -> String {
        let program = self.cli.home().join("bin/claude");
        program.to_str().unwrap().to_owned()
    }

    /// Waits until the client runs on this screen.
    async fn started(self, screen: TestScreen) -> ClientAtTerminal {
        let arguments = self.cli.home().join("bin/claude.args");
        wait_until("the client runs", || arguments.exists()).await;
        let text = std::fs::read_to_string(&arguments).unwrap();
        let words: Vec<_> = text.split('\0').collect();
        let settings = serde_json::from_str(words[1]).unwrap();
        ClientAtTerminal {
            _server: self.server,
            bob: self.bob,
            cli: self.cli,
            screen,
            settings,
            link: self.link,
            ann: self.ann,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn approving_at_the_clients_own_terminal_lets_the_call_through() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    client.screen.wait_for_text("The client");
    let hook = &client.settings["hooks"]["PreToolUse"][0]["hooks"][0];
    let message = hook["statusMessage"].as_str().unwrap();
    assert!(message.ends_with("(ctrl+] answers here)"), "{message}");
    let before = client.screen.state();
    // A card that the client draws is not one: its keys are the client's.
    client.screen.send_keys("a");
    client.wait_until_typed("a").await;
    assert_eq!(client.screen.state(), before);
    let (hook, gate) = client
        .ask("toolu_1", "rm -rf build && touch 'a\u{202e}b'")
        .await;
    client.open_card();
    let shown = client.screen.wait_for_text("you may vote");
    for part in [
        "rm -rf build && touch 'a\\u{202e}b'",
        "DESTRUCTIVE",
        "deadline",
        "0 of 1 approval",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    client
        .screen
        .press_until("a", "it is approved", |shown| !shown.contains("PVP  owl"));
    assert_eq!(decision_of(hook).await.0, "allow");
    assert_eq!(
        client.screen.state(),
        before,
        "the client's screen is as it was"
    );
    let vote = &client.by_ann("gate.approve").await[0]["payload"];
    let mut received = client.bob.received.iter();
    let request = received.find(|message| message["id"] == *gate).unwrap();
    assert_eq!(vote["digest"], request["payload"]["digest"]);
    client.screen.send_keys("b\u{1b}[A");
    client.wait_until_typed("ab\u{1b}[A").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_rejection_reaches_the_client() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    let (hook, _) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    client.screen.press_until("r", "a dialog", |shown| {
        shown.contains("Reason for rejecting")
    });
    // Pasted text is only text, also where it has the end of a line.
    client
        .screen
        .send_keys("\u{1b}[200~use make\nclean\u{1b}[201~");
    client.screen.wait_for_text("use make clean");
    client.screen.send_keys(" please");
    client.screen.wait_for_text("use make clean please");
    client.screen.send_keys("\r");
    let (decision, reason) = decision_of(hook).await;
    let reason = reason.as_str().unwrap();
    assert_eq!(decision, "deny");
    assert!(reason.contains("use make clean please"), "{reason}");
    client.screen.wait_for_text("The client");
    assert_eq!(client.noted("typed"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_pressed_after_reading_approves_nothing() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    let (hook, _) = client.ask("toolu_1", "rm -rf build").await;
    // What was typed before the card was there, with the key and right after it.
    client.screen.send_keys(&format!("{KEY}aaa"));
    client.screen.send_keys("a");
    client.screen.wait_for_text("Waiting for a decision");
    let answers = [
        // A paste, with and without its marks, and one that has the key in it.
        "\u{1b}[200~a\u{1b}[201~",
        "aaaaaaaa",
        "\u{1b}[200~\u{1d}a\r\u{1b}[201~",
        // What a terminal answers: its title, its clipboard, where the cursor is, what it can.
        "\u{1b}]la\u{1b}\\",
        "\u{1b}]52;c;YWFh\u{7}",
        "\u{1b}[97;97R",
        "\u{1b}P1+r61=61\u{1b}\\",
        "\u{1b}_Ga\u{1b}\\a",
        // The mouse, in its oldest and its newest form.
        "\u{1b}[Maaa",
        "\u{1b}[<0;97;97M",
    ];
    for answer in answers {
        // Each comes when the card has been there for long enough.
        tokio::time::sleep(std::time::Duration::from_millis(350)).await;
        client.screen.send_keys(answer);
    }
    // Everything before it was read when this opens, and nothing has been decided.
    client.screen.press_until("r", "a dialog", |shown| {
        shown.contains("Reason for rejecting")
    });
    client.screen.send_keys("no\r");
    assert_eq!(decision_of(hook).await.0, "deny");
    assert_eq!(client.by_ann("gate.approve").await, [Value::Null; 0]);
    // The client gets the answers to what it asked, and nothing else of it.
    let typed = client.noted("typed");
    assert_eq!(
        typed,
        [
            "\u{1b}]la\u{1b}\\",
            "\u{1b}]52;c;YWFh\u{7}",
            "\u{1b}[97;97R",
            "\u{1b}P1+r61=61\u{1b}\\",
            "\u{1b}_Ga\u{1b}\\"
        ]
        .concat()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_vote_is_told_so() {
    let mut client = ClientAtTerminal::start(&["observer"]).await;
    let (hook, gate) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    client
        .screen
        .wait_for_text("your roles do not include approving");
    client.screen.press_until("a", "a refusal", |shown| {
        shown.contains("! your roles do not include approving")
    });
    assert_eq!(client.by_ann("gate.approve").await, [Value::Null; 0]);
    reject(&mut client.bob, &gate, "not now").await;
    assert_eq!(decision_of(hook).await.0, "deny");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_elsewhere_closes_the_card_and_says_whose_it_was() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    client.screen.wait_for_text("The client");
    let before = client.screen.state();
    let (hook, gate) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    client.bob.approve(&gate).await;
    client.screen.wait_for_text("approved by bob");
    client.screen.wait_for_text("The client");
    assert_eq!(client.screen.state(), before);
    assert_eq!(decision_of(hook).await.0, "allow");
    assert_eq!(client.by_ann("gate.approve").await, [Value::Null; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_client_prints_meanwhile_is_there_afterwards() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    client.screen.wait_for_text("The client");
    let (_hook, _) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    // It cannot draw over the card, nor have the terminal answer.
    client.print("\u{1b}[2J\u{1b}[Hover it\u{1b}[6n\u{1b}[?1049l\u{1b}]0;owned\u{7}");
    client.print("\u{1b}[10;1Hlater");
    client
        .screen
        .press_until("x", "the explanation", |shown| shown.contains("Assessment"));
    let text = String::from_utf8_lossy(&client.screen.raw_output()).into_owned();
    assert!(
        !text.contains("over it") && !text.contains("owned"),
        "{text}"
    );
    client.close_card();
    client.screen.wait_for_text("over it");
    client.screen.wait_for_text("later");
    assert!(!client.screen.is_alternate());
    client.print("\u{1b}[12;1Hgoes on");
    client.screen.wait_for_text("goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_whole_screen_gets_it_back_and_draws_it_again() {
    let shown = "before\u{1b}[?1049h\u{1b}[?1003;1006h\u{1b}[2J\u{1b}[3;4H\u{1b}[44mThe client\u{1b}[0m\u{1b}[?25l";
    let mut client = ClientAtTerminal::start_with(&["approver"], shown, &[]).await;
    client.screen.wait_for_text("The client");
    let before = client.screen.state();
    let (_hook, _) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    client.close_card();
    client.screen.wait_for_text("The client");
    assert_eq!(client.screen.state(), before);
    assert!(client.screen.is_alternate());
    // It had another size for a moment.
    client
        .wait_for_note("size", |sizes| sizes.lines().count() >= 2)
        .await;
    client
        .wait_for_note("size", |sizes| sizes.trim_end().ends_with("26 90"))
        .await;
    // Killed, it leaves nothing behind.
    client.signal_client("-KILL");
    let (code, shown) = client.screen.wait_exit_code();
    assert_eq!(code, 128 + 9);
    assert!(
        shown.contains("before") && !shown.contains("The client"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_has_the_size_of_the_terminal() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    client
        .wait_for_note("size", |sizes| sizes == "26 90\n")
        .await;
    client.screen.resize(70, 20);
    client
        .wait_for_note("size", |sizes| sizes.ends_with("20 70\n"))
        .await;
    let (_hook, _) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    client.screen.resize(60, 18);
    client
        .wait_for_note("size", |sizes| sizes.ends_with("18 60\n"))
        .await;
    client.screen.wait_until("the card in that size", |shown| {
        shown
            .lines()
            .any(|line| line.starts_with("└") && line.chars().count() == 60)
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_is_the_clients_and_the_terminal_is_as_it_was() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    client.screen.wait_for_text("The client");
    client.signal_client("-USR1");
    assert_eq!(client.screen.wait_exit_code().0, 7);
    let text = String::from_utf8_lossy(&client.screen.raw_output()).into_owned();
    // It did not switch these off itself.
    for (on, off) in [
        ("\u{1b}[>1u", "\u{1b}[<1u"),
        ("\u{1b}[?1004h", "\u{1b}[?1004l"),
    ] {
        assert!(text.rfind(on) < text.rfind(off), "{off:?} in {text:?}");
    }
    for (signal, code) in [("-KILL", 128 + 9), ("-TERM", 128 + 15)] {
        let mut client = ClientAtTerminal::start(&["approver"]).await;
        let (hook, _) = client.ask("toolu_1", "rm -rf build").await;
        client.open_card();
        match signal {
            "-KILL" => client.signal_client(signal),
            // It is passed on.
            _ => send_signal(signal, &client.screen.pid()),
        }
        assert_eq!(client.screen.wait_exit_code().0, code, "{signal}");
        assert_eq!(decision_of(hook).await.0, "deny");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_gets_nothing_of_the_person() {
    let client = ClientAtTerminal::start(&["approver"]).await;
    let (_, token) = client.link.split_once("token=").unwrap();
    let (token, _) = token.split_once('&').unwrap();
    assert!(token.len() > 20, "{}", client.link);
    let environment = client.noted("env");
    assert!(!environment.contains(token) && !environment.contains("PVP_AGENT_LINK"));
    assert!(!environment.contains("PVP_LINK"), "{environment}");
    // Its terminal, the script that it is, and that nobody else has its identity.
    let own = client.screen.tty_name();
    for line in client.noted("fds").lines().skip(1) {
        let (_, file) = line.rsplit_once(" -> ").unwrap();
        let known = file.ends_with("/bin/claude") || file.ends_with("/lock");
        assert!(
            known || (file.starts_with("/dev/pts/") && *own != *file),
            "{line}"
        );
    }
    assert_ne!(client.noted("tty").trim(), own.to_str().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_key_or_a_person_the_client_has_the_terminal_itself() {
    for (roles, flags) in [
        (Some(&["approver"][..]), &["--answer-key", "none"][..]),
        (None, &[][..]),
    ] {
        let place = ClientPlace::new(roles, SCREEN).await;
        let program = place.program();
        let arguments = [&["run"], flags, &["--", &program]].concat();
        let environment = [("PVP_AGENT_LINK", place.agent_link.as_str())];
        let cli = place.cli.clone();
        let screen = TestScreen::start_with_env(cli, &arguments, &environment, (90, 26));
        let mut client = place.started(screen).await;
        let own = client.screen.tty_name();
        assert_eq!(client.noted("tty").trim(), own.to_str().unwrap());
        client.screen.send_keys(KEY);
        client.wait_until_typed(KEY).await;
        client.signal_client("-USR1");
        assert_eq!(client.screen.wait_exit_code().0, 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_can_be_chosen_and_pressed_twice_it_is_the_clients() {
    let flags = ["--answer-key", "ctrl+o"];
    let mut client = ClientAtTerminal::start_with(&["approver"], SCREEN, &flags).await;
    client.screen.wait_for_text("The client");
    client.screen.send_keys(KEY);
    client.wait_until_typed(KEY).await;
    // As a terminal sends it to a client that has asked for kitty's protocol.
    client.screen.send_keys("\u{1b}[111;5u");
    client.screen.wait_for_text("no call of this client waits");
    client
        .screen
        .press_until("\u{f}", "the client", |shown| shown.contains("The client"));
    client.wait_until_typed("\u{1d}\u{f}").await;
    let output = client
        .cli
        .run_refused(&["run", "--answer-key", "ctrl+c", "--", "claude"])
        .await;
    assert!(output.contains("`ctrl+c` cannot be the key"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bell_rings_when_a_call_waits_and_the_status_says_how_to_answer() {
    let mut client = ClientAtTerminal::start(&["approver"]).await;
    client.screen.wait_for_text("The client");
    client
        .bob
        .wait(|message| message["sender"] == *client.ann.participant)
        .await;
    let (_hook, _) = client.ask("toolu_1", "rm -rf build").await;
    let rang = |screen: &TestScreen| count_bells(&String::from_utf8_lossy(&screen.raw_output()));
    wait_until("the bell", || rang(&client.screen) == 1).await;
    let files = client.settings["statusLine"]["command"].as_str().unwrap();
    let mut command = client.cli.program("/bin/sh");
    let status = command.args(["-c", files]).output().await.unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains(", or ctrl+] here"), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_suspends_itself_gives_the_shell_the_terminal() {
    let place = ClientPlace::new(Some(&["approver"]), SCREEN).await;
    let mut screen = TestScreen::shell_in(place.cli.clone(), 90, 26);
    let command = format!(
        "PVP_AGENT_LINK='{}' $pvp run -- '{}'\n",
        place.agent_link,
        place.program()
    );
    screen.send_keys(&command);
    let mut client = place.started(screen).await;
    client.screen.wait_for_text("The client");
    client.signal_client("-USR2");
    client.screen.wait_until("the shell", |shown| {
        let rest = shown.rsplit_once("Stopped").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.contains("shell>"))
    });
    client.screen.send_keys("stty -a\n");
    let shown = client.screen.wait_for_text("icanon");
    for wrong in ["-icanon", "-echo ", "-isig", "-opost", "-icrnl"] {
        assert!(!shown.contains(wrong), "{wrong} in\n{shown}");
    }
    client.screen.resize(80, 24);
    client.screen.send_keys("fg\n");
    client.screen.wait_for_text("again");
    client
        .wait_for_note("size", |sizes| sizes.ends_with("24 80\n"))
        .await;
    client.screen.send_keys("typed");
    client.wait_until_typed("typed").await;
    let (hook, _) = client.ask("toolu_1", "rm -rf build").await;
    client.open_card();
    client
        .screen
        .press_until("a", "it is approved", |shown| !shown.contains("PVP  owl"));
    assert_eq!(decision_of(hook).await.0, "allow");
    client.signal_client("-USR1");
    client.screen.wait_until("the shell", |shown| {
        let rest = shown.rsplit_once("again").map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.contains("shell>"))
    });
    client.screen.send_keys("echo code=$?\n");
    client.screen.wait_for_text("code=7");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installed_hook_knows_that_pvp_run_supervises_the_client() {
    let place = ClientPlace::new(Some(&["approver"]), SCREEN).await;
    let bin = place.cli.home().join("bin");
    let question = json!({
        "session_id": "c1", "cwd": place.cli.workdir(), "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": { "command": "touch made" }, "tool_use_id": "t1",
    });
    std::fs::write(bin.join("claude.question"), question.to_string()).unwrap();
    std::fs::write(bin.join("claude.pvp"), env!("CARGO_BIN_EXE_pvp")).unwrap();
    let answer = || std::fs::read_to_string(bin.join("claude.answer")).unwrap_or_default();
    let program = place.program();
    let environment = [("PVP_AGENT_LINK", place.agent_link.as_str())];
    let cli = place.cli.clone();
    // What leads a terminal supervises nothing: without `pvp run` above it, the hook has to ask.
    let (_terminal, mut alone) = lead(&program);
    wait_until("an answer", || !answer().is_empty()).await;
    assert!(
        answer().contains("\"permissionDecision\":\"deny\""),
        "{}",
        answer()
    );
    alone.kill().await.unwrap();
    for name in ["args", "answer"] {
        let _ = std::fs::remove_file(bin.join(format!("claude.{name}")));
    }
    let words = ["run", "--", program.as_str()];
    let screen = TestScreen::start_with_env(cli, &words, &environment, (90, 26));
    let _client = place.started(screen).await;
    assert_eq!(answer(), "", "the other hook asks");
}

/// Starts a program in a terminal as `pvp run` does, without `pvp run`; returns our side of it too.
fn lead(program: &str) -> (OwnedFd, Child) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    let mut command = CliEnv::new().command(&["run-leader", program]);
    let command = command.current_dir("/").stdin(Stdio::from(theirs));
    (ours, command.spawn().unwrap())
}
