//! `pvp run` where nobody has prepared anything: the server, the session, the identities and the line
//! to join with.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};

use pvp_bridge::client_files::is_locked;
use serde_json::Value;

use crate::fixture::assert_contains;
use crate::support::audit::export_logs;
use crate::support::cli::{CliEnv, CliProcess};
use crate::support::hook_client::{ClientHooks, decision_of, install, install_program};
use crate::support::screen::{TestScreen, send_signal};
use crate::support::session::{proposal_of, wait_until};
use crate::{next_gate, start_session};

/// Keeps the port that servers prefer, so that those of several tests do not meet there.
fn keep_preferred_port() {
    static KEPT: OnceLock<Option<TcpListener>> = OnceLock::new();
    // Somebody else may have it, which is as good.
    KEPT.get_or_init(|| TcpListener::bind("127.0.0.1:3000").ok());
}

/// A server that `pvp run` started; ended when dropped.
struct StartedServer {
    /// The process, as the notice names it.
    pid: String,
    /// Its data directory.
    data: PathBuf,
}

impl StartedServer {
    /// The server that a notice tells of.
    fn of_notice(notice: &str, cli: &CliEnv) -> Self {
        let (_, pid) = notice.split_once("until `kill ").unwrap();
        let mut found = std::fs::read_dir(cli.state().join("data")).unwrap();
        Self {
            pid: pid.trim_end_matches('`').to_owned(),
            data: found.next().unwrap().unwrap().path(),
        }
    }

    async fn end(&self) {
        send_signal("-TERM", &self.pid);
        let lock = self.data.join("pvp.lock");
        wait_until("the server has ended", || !is_locked(&lock)).await;
    }

    /// The settings that its session was made with.
    fn session_config(&self) -> Value {
        let logs = export_logs(&self.data);
        let created = logs["main"]
            .iter()
            .find(|entry| entry["type"] == "session.create");
        created.unwrap()["payload"]["config"].clone()
    }
}

impl Drop for StartedServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = std::process::Command::new("kill").arg(&self.pid).status();
    }
}

/// A client that runs, and what was said before it did.
struct RunningClient {
    run: CliProcess,
    said: Vec<String>,
    settings: Value,
}

impl RunningClient {
    async fn start(cli: &CliEnv, program: &Path, flags: &[&str]) -> Self {
        let arguments = program.with_extension("args");
        let _ = std::fs::remove_file(&arguments);
        let mut command = cli.command(&["run"]);
        command.args(flags).arg("--").arg(program).arg("-p");
        let mut run = CliProcess::spawn(command.stdin(Stdio::piped()));
        let mut said = Vec::new();
        // The line to join with comes last.
        while !said
            .last()
            .is_some_and(|line: &String| line.contains("pvp join"))
        {
            said.push(run.next_stderr_line().await);
        }
        wait_until("the client runs", || arguments.exists()).await;
        let text = std::fs::read_to_string(&arguments).unwrap();
        let settings = text.split('\0').nth(1).unwrap();
        Self {
            settings: serde_json::from_str(settings).unwrap(),
            run,
            said,
        }
    }

    fn line_with(&self, part: &str) -> &str {
        let line = self.said.iter().find(|line| line.contains(part));
        line.unwrap_or_else(|| panic!("{part}: {:?}", self.said))
    }

    /// What follows `pvp` in the line for others.
    fn join_words(&self) -> Vec<&str> {
        let (_, command) = self.line_with("pvp join").split_once("pvp ").unwrap();
        let command = command
            .split_once(';')
            .map_or(command, |(command, _)| command);
        command.split(' ').collect()
    }
}

#[tokio::test]
async fn the_first_client_finds_a_server_a_session_and_people_who_join() {
    keep_preferred_port();
    let cli = CliEnv::new();
    let program = install(&cli, "claude");
    let first = RunningClient::start(&cli, &program, &[]).await;
    let server = StartedServer::of_notice(first.line_with("started a server"), &cli);
    assert_contains(&first.said[0], &["claude is claude-", "in session `main`"]);
    assert_eq!(server.session_config()["client_reads"], "workspace");
    first.line_with("reads inside this directory run unasked");
    // This machine alone reaches it, and that is what is said.
    assert_contains(
        first.line_with("pvp join"),
        &["others on this machine", "127.0.0.1:", "`pvp run --share`"],
    );

    // The line works, for somebody who then hears what happens and may decide.
    let bob = CliEnv::new();
    let words = [&first.join_words()[..], &["--name", "Bob"]].concat();
    assert_contains(&bob.run_ok(&words).await, &["session main", "bob-"]);
    let mut tail = bob.spawn(&["tail", "--follow", "--json"]);
    let hooks = ClientHooks {
        cli: &cli,
        settings: &first.settings,
    };
    let hook = hooks.ask_bash("toolu_1", "touch made").await;
    tail.wait_for_line("\"gate.request\"").await;
    let listed = bob.run_ok(&["gates"]).await;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let handle = listed.split_whitespace().next().unwrap();
    bob.run_ok(&["approve", handle]).await;
    assert_eq!(decision_of(hook).await.0, "allow");

    // Beside it, a client is somebody else, in the same session on the same server.
    let second = RunningClient::start(&cli, &program, &[]).await;
    assert_contains(
        &second.said[0],
        &["claude is claude-2-", "in session `main`"],
    );
    assert!(!second.said.iter().any(|line| line.contains("started")));
    let address = |client: &RunningClient| {
        let (_, rest) = client.said[0].split_once(" on ").unwrap();
        rest.split(';').next().unwrap().to_owned()
    };
    assert_eq!(address(&first), address(&second));

    // Whoever answers at its address once it has ended is not asked.
    let address = address(&first);
    server.end().await;
    let impostor = TcpListener::bind(address.strip_prefix("http://").unwrap()).unwrap();
    impostor.set_nonblocking(true).unwrap();
    let hook = hooks.ask_bash("toolu_2", "touch more").await;
    let (decision, reason) = decision_of(hook).await;
    assert_eq!(decision, "deny");
    assert_contains(
        reason.as_str().unwrap(),
        &["the server of", "is not running"],
    );
    drop((first.run, second.run));
}

#[tokio::test]
async fn reads_are_asked_about_if_the_person_wants_that() {
    keep_preferred_port();
    let cli = CliEnv::new();
    let program = install(&cli, "claude");
    let client = RunningClient::start(&cli, &program, &["--ask-reads"]).await;
    let server = StartedServer::of_notice(client.line_with("started a server"), &cli);
    client.line_with("every read of the client waits for approval");
    assert_eq!(server.session_config()["client_reads"], "ask");
    // Later it is too late to let others in.
    drop(client);
    let again = RunningClient::start(&cli, &program, &["--share"]).await;
    again.line_with("--share changes nothing");
    server.end().await;
}

#[tokio::test]
async fn a_client_that_ends_while_its_calls_wait_needs_gates_that_stay_open() {
    keep_preferred_port();
    let cli = CliEnv::new();
    let program = install(&cli, "claude");
    let client = RunningClient::start(&cli, &program, &["--defer-after", "10m"]).await;
    let server = StartedServer::of_notice(client.line_with("started a server"), &cli);
    assert_eq!(server.session_config()["gate_timeout_seconds"], 0);
    drop(client);
    let program = program.to_str().unwrap();
    let refused = async |arguments: &[&str]| {
        let run = cli.run_with_env(arguments, &[]).await;
        run.expect_refused(arguments)
    };
    let with_screen = ["run", "--defer-after", "10m", "--", program];
    assert_contains(&refused(&with_screen).await, &["`claude -p`"]);
    // In a session whose gates close before, nothing would be left to come back to.
    cli.run_ok(&["create", "brief"]).await;
    let later = ["run", "--session", "brief", "--defer-after", "5m"];
    let later = [&later[..], &["--", program, "-p"]].concat();
    assert_contains(
        &refused(&later).await,
        &["`brief` close after 300 seconds", "gate_timeout_seconds=0"],
    );
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_no_code_to_scan_that_leads_nowhere() {
    keep_preferred_port();
    let cli = Arc::new(CliEnv::new());
    let program = install(&cli, "claude");
    let words = [
        "run",
        "--answer-key",
        "none",
        "--",
        program.to_str().unwrap(),
    ];
    let screen = TestScreen::start_with_env(cli.clone(), &words, &[], (200, 50));
    let arguments = program.with_extension("args");
    wait_until("the client runs", || arguments.exists()).await;
    let shown = screen.wait_for_text("others on this machine join with: pvp join");
    let notice = shown.lines().find(|line| line.contains("until `kill "));
    let (before, _) = notice.unwrap().rsplit_once('`').unwrap();
    let server = StartedServer::of_notice(before, &cli);
    for block in ['█', '▀', '▄'] {
        assert!(!shown.contains(block), "{shown}");
    }
    assert!(!shown.contains("Send this line"), "{shown}");
    drop(screen);
    server.end().await;
}

#[tokio::test]
async fn a_saved_link_leads_to_the_server_elsewhere() {
    let (server, _ann) = start_session(serde_json::json!({})).await;
    let dee = server.invite("dee", &["admin"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, Some("owl"))).await;
    let program = install(&cli, "claude");
    let mut command = cli.command(&["run", "--"]);
    let mut run = CliProcess::spawn(command.arg(&program).arg("-p").stdin(Stdio::piped()));
    let said = run.next_stderr_line().await;
    assert_contains(
        &said,
        &["claude is claude-", "in session `owl`", &server.address],
    );
    let arguments = program.with_extension("args");
    wait_until("the client runs", || arguments.exists()).await;
    assert!(!cli.state().join("data").exists());
    assert_eq!(run.ended().await.code, Some(7));

    // Who may not make an identity is told what to ask for, and nothing is started.
    let eve = server.invite("eve", &["approver"], &[]);
    let cli = CliEnv::logged_in(&server.link(&eve, Some("owl"))).await;
    let program = install(&cli, "claude");
    let words = ["run", "--", program.to_str().unwrap()];
    let refused = cli.run_refused(&words).await;
    assert_contains(&refused, &["ask an admin", "pvp invite --name claude"]);
    assert!(!program.with_extension("args").exists());
    assert!(!cli.state().join("data").exists());
}

#[tokio::test]
async fn a_claude_that_is_too_old_is_warned_of_and_its_cards_say_so() {
    let (server, mut ann) = start_session(serde_json::json!({})).await;
    let user = server.invite("claude", &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    for (id, version, fails_open) in [
        ("toolu_1", "2.1.294 (Claude Code)", Value::Bool(true)),
        ("toolu_2", "no version at all", Value::Bool(true)),
        ("toolu_3", "2.1.295 (Claude Code)", Value::Null),
    ] {
        let cli = CliEnv::new();
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '{version}'; exit; }}\n\
             printf '%s' \"$2\" > \"$0.new\"; mv \"$0.new\" \"$0.settings\"; cat > /dev/null\n"
        );
        let program = install_program(&cli, "claude", &text);
        let mut command = cli.command(&["run", "--"]);
        command.arg(&program).env("PVP_AGENT_LINK", &link);
        let mut run = CliProcess::spawn(command.stdin(Stdio::piped()));
        let first = run.next_stderr_line().await;
        let warns = first.contains("2.1.295") && first.contains("`pvp mcp`");
        assert_eq!(warns, fails_open == Value::Bool(true), "{first}");
        let settings = program.with_extension("settings");
        wait_until("the client runs", || settings.exists()).await;
        let settings = std::fs::read_to_string(settings).unwrap();
        let hooks = ClientHooks {
            cli: &cli,
            settings: &serde_json::from_str(&settings).unwrap(),
        };
        let _hook = hooks.ask_bash(id, "touch made").await;
        let (gate, _) = next_gate(&mut ann).await;
        let id = proposal_of(&ann, &gate);
        let proposed = ann.received.iter().find(|it| it["id"] == *id).unwrap();
        assert_eq!(
            proposed["payload"]["origin"]["fails_open"], fails_open,
            "{version}"
        );
        let ended = run.ended().await;
        assert_eq!(ended.code, Some(0), "{}", ended.err);
    }
}
