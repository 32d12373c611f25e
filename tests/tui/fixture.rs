//! A pseudo-terminal that runs `pvp tui`, and an agent that runs commands.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_client::Link;

use crate::support::cli::CliEnv;
use crate::support::{TEST_TIMEOUT, TestClient, TestServer, TestUser};

/// The output of the program.
struct ScreenOutput {
    screen: vt100::Parser,
    bytes: Vec<u8>,
    ended: bool,
}

/// A pseudo-terminal with a program; killed when dropped.
pub(crate) struct TestScreen {
    output: Arc<(Mutex<ScreenOutput>, Condvar)>,
    input: Box<dyn Write + Send>,
    master: Box<dyn MasterPty + Send>,
    child: Box<dyn Child + Send + Sync>,
    /// Its home and settings, removed when dropped.
    cli: Arc<CliEnv>,
}

fn size(columns: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols: columns,
        pixel_width: 0,
        pixel_height: 0,
    }
}

fn non_zero(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

impl TestScreen {
    /// Starts `pvp tui` with this link, on a terminal of this size.
    pub(crate) fn start(link: &str, columns: u16, rows: u16) -> Self {
        Self::start_with(&[link], &[], columns, rows)
    }

    pub(crate) fn start_with(
        arguments: &[&str],
        environment: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pvp"));
        command.arg("tui");
        let is_link = |argument: &&str| argument.starts_with("http://");
        let arguments = arguments.iter().copied();
        command.args(arguments.clone().filter(|argument| !is_link(argument)));
        let link = arguments.filter(is_link).map(|link| ("PVP_LINK", link));
        let environment: Vec<_> = environment.iter().copied().chain(link).collect();
        Self::spawn(command, &environment, columns, rows)
    }

    /// Starts a shell with job control, where `$pvp` is the real binary.
    pub(crate) fn shell(columns: u16, rows: u16) -> Self {
        let mut command = CommandBuilder::new("/bin/bash");
        command.args(["--noprofile", "--norc", "--noediting", "-i"]);
        let environment = [("PS1", "shell> "), ("pvp", env!("CARGO_BIN_EXE_pvp"))];
        let screen = Self::spawn(command, &environment, columns, rows);
        screen.wait_for_text("shell>");
        screen
    }

    fn spawn(
        command: CommandBuilder,
        environment: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Self {
        Self::spawn_in(Arc::new(CliEnv::new()), command, environment, columns, rows)
    }

    /// Starts `pvp` with these arguments and this home.
    pub(crate) fn start_in(cli: Arc<CliEnv>, arguments: &[&str], columns: u16, rows: u16) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pvp"));
        command.args(arguments);
        Self::spawn_in(cli, command, &[("USER", "bob")], columns, rows)
    }

    fn spawn_in(
        cli: Arc<CliEnv>,
        mut command: CommandBuilder,
        environment: &[(&str, &str)],
        columns: u16,
        rows: u16,
    ) -> Self {
        let pair = native_pty_system().openpty(size(columns, rows)).unwrap();
        command.env_clear();
        for (name, value) in [("PATH", "/usr/bin:/bin"), ("TERM", "xterm-256color")] {
            command.env(name, value);
        }
        command.env("HOME", cli.home());
        command.env("XDG_CONFIG_HOME", cli.config_home());
        for (name, value) in environment {
            command.env(name, value);
        }
        command.cwd(cli.workdir());
        let child = pair.slave.spawn_command(command).unwrap();
        let reader = pair.master.try_clone_reader().unwrap();
        let output = Arc::new((
            Mutex::new(ScreenOutput {
                screen: vt100::Parser::new(non_zero(rows), non_zero(columns), 0),
                bytes: Vec::new(),
                ended: false,
            }),
            Condvar::new(),
        ));
        std::thread::spawn({
            let received = output.clone();
            move || read_output(reader, &received)
        });
        Self {
            output,
            input: pair.master.take_writer().unwrap(),
            master: pair.master,
            child,
            cli,
        }
    }

    /// Waits until the screen `fits`; returns its text.
    pub(crate) fn wait_until(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let (received, bell) = &*self.output;
        let begun = Instant::now();
        let mut received = received.lock().unwrap();
        loop {
            let shown = received.screen.screen().contents();
            if fits(&shown) {
                return shown;
            }
            let left = TEST_TIMEOUT.checked_sub(begun.elapsed());
            let Some(left) = left.filter(|_| !received.ended) else {
                drop(received);
                panic!("{what} does not appear:\n{shown}");
            };
            received = bell.wait_timeout(received, left).unwrap().0;
        }
    }

    /// Waits until the terminal modes are reset and the shell's prompt is the last text on the
    /// screen.
    pub(crate) fn wait_for_prompt_after(&self, text: &str) -> String {
        let shown = self.wait_until(&format!("a prompt after {text}"), |shown| {
            let rest = shown.rsplit_once(text).map(|(_, rest)| rest);
            rest.is_some_and(|rest| rest.contains("shell>"))
        });
        let received = self.output.0.lock().unwrap();
        let screen = received.screen.screen();
        let mouse = screen.mouse_protocol_mode();
        assert!(!screen.alternate_screen() && !screen.bracketed_paste() && !screen.hide_cursor());
        assert_eq!(mouse, vt100::MouseProtocolMode::None);
        let text = String::from_utf8_lossy(&received.bytes);
        for (what, on, off) in [
            ("focus", "\u{1b}[?1004h", "\u{1b}[?1004l"),
            ("title", "\u{1b}]0;pvp", "\u{1b}]0;\u{7}"),
        ] {
            assert!(text.rfind(on) < text.rfind(off), "{what} is left behind");
        }
        shown
    }

    /// Whether mouse, focus and paste reporting are on.
    pub(crate) fn has_terminal_modes(&self) -> bool {
        let received = self.output.0.lock().unwrap();
        let screen = received.screen.screen();
        let mouse = screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
        let text = String::from_utf8_lossy(&received.bytes);
        let focus = text.rfind("\u{1b}[?1004h") > text.rfind("\u{1b}[?1004l");
        screen.alternate_screen() && screen.bracketed_paste() && mouse && focus
    }

    /// The id of the process in the terminal.
    pub(crate) fn pid(&self) -> String {
        self.child.process_id().unwrap().to_string()
    }

    /// The id of the last child of the shell in the terminal.
    pub(crate) fn last_child_pid(&self) -> String {
        let pid = self.child.process_id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap();
        children.split_whitespace().next_back().unwrap().to_owned()
    }

    /// Waits until a child of the shell is gone.
    pub(crate) fn wait_process_gone(&self, pid: &str) {
        let begun = Instant::now();
        while std::path::Path::new("/proc").join(pid).exists() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{pid} is still there");
            std::thread::yield_now();
        }
    }

    /// Writes a file into the working directory.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        std::fs::write(self.cli.workdir().join(name), text).unwrap();
    }

    /// Waits until this text is on the screen.
    pub(crate) fn wait_for_text(&self, text: &str) -> String {
        self.wait_until(text, |shown| shown.contains(text))
    }

    /// Waits until this text is gone from the screen.
    pub(crate) fn wait_for_text_gone(&self, text: &str) -> String {
        self.wait_until(&format!("a screen without {text}"), |shown| {
            !shown.contains(text)
        })
    }

    /// All bytes written to the terminal so far.
    pub(crate) fn raw_output(&self) -> Vec<u8> {
        self.output.0.lock().unwrap().bytes.clone()
    }

    pub(crate) fn send_keys(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Writes over the screen, as another program would.
    pub(crate) fn overwrite_screen(&self, text: &str) {
        let (received, bell) = &*self.output;
        received.lock().unwrap().screen.process(text.as_bytes());
        bell.notify_all();
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let mut received = self.output.0.lock().unwrap();
        received.screen.set_size(non_zero(rows), non_zero(columns));
        self.master.resize(size(columns, rows)).unwrap();
    }

    /// Waits until the program exits; returns whether it succeeded and the final screen.
    pub(crate) fn wait_exit(&mut self) -> (bool, String) {
        let (received, bell) = &*self.output;
        let received = received.lock().unwrap();
        let (received, _) = bell
            .wait_timeout_while(received, TEST_TIMEOUT, |received| !received.ended)
            .unwrap();
        let ended = received.ended;
        assert!(ended, "the terminal is still held");
        let status = self.child.wait().unwrap();
        let mut stty = std::process::Command::new("stty");
        let name = self.master.tty_name().unwrap();
        let modes = stty.arg("-F").arg(name).arg("-a").output().unwrap().stdout;
        let modes = String::from_utf8(modes).unwrap();
        assert!(
            modes.contains(" icanon ") && modes.contains(" echo "),
            "{modes}"
        );
        let screen = received.screen.screen();
        assert!(!screen.alternate_screen() && !screen.bracketed_paste() && !screen.hide_cursor());
        (status.success(), screen.contents())
    }

    /// The program's peak memory so far, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let pid = self.child.process_id().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kib: u64 = line
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        kib * 1024
    }
}

impl Drop for TestScreen {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_output(
    mut reader: Box<dyn Read + Send>,
    (received, bell): &(Mutex<ScreenOutput>, Condvar),
) {
    let mut buffer = [0; 64 * 1024];
    loop {
        // Reading from a terminal whose program has ended is an error.
        let count = reader.read(&mut buffer).unwrap_or(0);
        let mut received = received.lock().unwrap();
        if count == 0 {
            received.ended = true;
            bell.notify_all();
            return;
        }
        received.screen.process(&buffer[..count]);
        received.bytes.extend_from_slice(&buffer[..count]);
        bell.notify_all();
    }
}

/// Sends a signal to a process.
pub(crate) fn send_signal(name: &str, pid: &str) {
    let mut kill = std::process::Command::new("kill");
    let sent = kill.args([name, pid]).status().unwrap();
    assert!(sent.success());
}

/// Proposes a read, which is granted at once; returns its id.
pub(crate) async fn propose_read(agent: &mut TestClient, command: &str) -> String {
    let propose = serde_json::json!({
        "tool_name": "shell", "arguments": { "full_command": command },
        "agent": agent.participant, "risk_level": "safe", "description": "a test",
        "requires_approval": false, "category": "shell_execute",
    });
    let id = agent.send("tool.propose", propose).await;
    agent
        .wait(|message| {
            message["type"] == "tool.execute" && message["payload"]["tool_proposal"] == id.as_str()
        })
        .await;
    id
}

/// A session with an agent that really runs commands.
pub(crate) struct TuiFixture {
    pub(crate) server: TestServer,
    pub(crate) agent: Agent,
    pub(crate) workspace: PathBuf,
    _directory: tempfile::TempDir,
}

impl TuiFixture {
    pub(crate) async fn new(config: serde_json::Value) -> Self {
        let server = TestServer::start(&[]).await;
        server.create_session("owl", config).await;
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let place = tempfile::tempdir().unwrap();
        let workspace = place.path().canonicalize().unwrap().join("work");
        std::fs::create_dir(&workspace).unwrap();
        let mut settings = ExecutorSettings::new(workspace.clone(), place.path().join("state"));
        settings.program = env!("CARGO_BIN_EXE_pvp").into();
        settings.accepted.shell_exec = true;
        let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
        let agent = Agent::connect(link, settings).await.unwrap();
        Self {
            server,
            agent,
            workspace,
            _directory: place,
        }
    }

    pub(crate) fn invite(&self, name: &str, roles: &[&str]) -> TestUser {
        self.server.invite(name, roles, &[])
    }

    /// Starts a screen for a new user in the session.
    pub(crate) fn screen(&self, name: &str, roles: &[&str]) -> TestScreen {
        let user = self.invite(name, roles);
        let screen = TestScreen::start(&self.server.link(&user, Some("owl")), 100, 30);
        screen.wait_for_text("● connected");
        screen
    }
}
