//! A pseudo-terminal with a program in it, whose screen a test reads and whose keys it presses.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use super::TEST_TIMEOUT;
use super::cli::CliEnv;

/// Between two presses of a key that may come too early.
const KEY_PAUSE: Duration = Duration::from_millis(700);

/// What a program asks a terminal, which answers: programs wait for it.
const WHERE_IS_THE_CURSOR: &[u8] = b"\x1b[6n";

/// Where keys go, and answers of the terminal.
type ScreenInput = Arc<Mutex<Box<dyn Write + Send>>>;

fn send(input: &ScreenInput, text: &str) -> std::io::Result<()> {
    let mut input = input.lock().unwrap();
    input.write_all(text.as_bytes())?;
    input.flush()
}

fn count_of(bytes: &[u8], part: &[u8]) -> usize {
    let parts = bytes.windows(part.len());
    parts.filter(|window| *window == part).count()
}

/// The output of the program.
struct ScreenOutput {
    screen: vt100::Parser,
    bytes: Vec<u8>,
    ended: bool,
}

/// A pseudo-terminal with a program; killed when dropped.
pub struct TestScreen {
    output: Arc<(Mutex<ScreenOutput>, Condvar)>,
    input: ScreenInput,
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
    pub fn start(link: &str, columns: u16, rows: u16) -> Self {
        Self::start_with(&[link], &[], columns, rows)
    }

    pub fn start_with(
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
    pub fn shell(columns: u16, rows: u16) -> Self {
        Self::shell_in(Arc::new(CliEnv::new()), columns, rows)
    }

    /// Starts a shell with job control and this home.
    pub fn shell_in(cli: Arc<CliEnv>, columns: u16, rows: u16) -> Self {
        let mut command = CommandBuilder::new("/bin/bash");
        command.args(["--noprofile", "--norc", "--noediting", "-i"]);
        let environment = [("PS1", "shell> "), ("pvp", env!("CARGO_BIN_EXE_pvp"))];
        let screen = Self::spawn_in(cli, command, &environment, columns, rows);
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
    pub fn start_in(cli: Arc<CliEnv>, arguments: &[&str], columns: u16, rows: u16) -> Self {
        Self::start_with_env(cli, arguments, &[("USER", "bob")], (columns, rows))
    }

    /// Starts `pvp` with these arguments and variables, on a terminal of so many columns and rows.
    pub fn start_with_env(
        cli: Arc<CliEnv>,
        arguments: &[&str],
        environment: &[(&str, &str)],
        (columns, rows): (u16, u16),
    ) -> Self {
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_pvp"));
        command.args(arguments);
        Self::spawn_in(cli, command, environment, columns, rows)
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
        let input: ScreenInput = Arc::new(Mutex::new(pair.master.take_writer().unwrap()));
        std::thread::spawn({
            let (received, input) = (output.clone(), input.clone());
            move || read_output(reader, &received, &input)
        });
        Self {
            output,
            input,
            master: pair.master,
            child,
            cli,
        }
    }

    /// Waits until the screen `fits`; returns its text.
    pub fn wait_until(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
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
    pub fn wait_for_prompt_after(&self, text: &str) -> String {
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
    pub fn has_terminal_modes(&self) -> bool {
        let received = self.output.0.lock().unwrap();
        let screen = received.screen.screen();
        let mouse = screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None;
        let text = String::from_utf8_lossy(&received.bytes);
        let focus = text.rfind("\u{1b}[?1004h") > text.rfind("\u{1b}[?1004l");
        screen.alternate_screen() && screen.bracketed_paste() && mouse && focus
    }

    /// The id of the process in the terminal.
    pub fn pid(&self) -> String {
        self.child.process_id().unwrap().to_string()
    }

    /// The id of the last child of the shell in the terminal.
    pub fn last_child_pid(&self) -> String {
        let pid = self.child.process_id().unwrap();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap();
        children.split_whitespace().next_back().unwrap().to_owned()
    }

    /// Waits until a child of the shell is gone.
    pub fn wait_process_gone(&self, pid: &str) {
        let begun = Instant::now();
        while std::path::Path::new("/proc").join(pid).exists() {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{pid} is still there");
            std::thread::yield_now();
        }
    }

    /// Writes a file into the working directory.
    pub fn write_file(&self, name: &str, text: &str) {
        std::fs::write(self.cli.workdir().join(name), text).unwrap();
    }

    /// Waits until this text is on the screen.
    pub fn wait_for_text(&self, text: &str) -> String {
        self.wait_until(text, |shown| shown.contains(text))
    }

    /// Waits until this text is gone from the screen.
    pub fn wait_for_text_gone(&self, text: &str) -> String {
        self.wait_until(&format!("a screen without {text}"), |shown| {
            !shown.contains(text)
        })
    }

    /// Everything that can be seen on the screen, and its modes.
    pub fn state(&self) -> String {
        self.output
            .0
            .lock()
            .unwrap()
            .screen
            .screen()
            .state_formatted()
    }

    /// Whether the alternate screen is shown.
    pub fn is_alternate(&self) -> bool {
        self.output
            .0
            .lock()
            .unwrap()
            .screen
            .screen()
            .alternate_screen()
    }

    /// The name of the terminal.
    pub fn tty_name(&self) -> PathBuf {
        self.master.tty_name().unwrap()
    }

    /// Sends a key, and sends it again until the screen `fits`: one that comes too early is ignored.
    pub fn press_until(&mut self, key: &str, what: &str, fits: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        loop {
            self.send_keys(key);
            let (received, bell) = &*self.output;
            let received = received.lock().unwrap();
            let (received, _) = bell
                .wait_timeout_while(received, KEY_PAUSE, |received| {
                    !fits(&received.screen.screen().contents())
                })
                .unwrap();
            let shown = received.screen.screen().contents();
            if fits(&shown) {
                return;
            }
            drop(received);
            assert!(begun.elapsed() < TEST_TIMEOUT, "{what}:\n{shown}");
        }
    }

    /// All bytes written to the terminal so far.
    pub fn raw_output(&self) -> Vec<u8> {
        self.output.0.lock().unwrap().bytes.clone()
    }

    pub fn send_keys(&mut self, keys: &str) {
        send(&self.input, keys).unwrap();
    }

    /// Writes over the screen, as another program would.
    pub fn overwrite_screen(&self, text: &str) {
        let (received, bell) = &*self.output;
        received.lock().unwrap().screen.process(text.as_bytes());
        bell.notify_all();
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let mut received = self.output.0.lock().unwrap();
        received.screen.set_size(non_zero(rows), non_zero(columns));
        self.master.resize(size(columns, rows)).unwrap();
    }

    /// Waits until the program exits; returns whether it succeeded and the final screen.
    pub fn wait_exit(&mut self) -> (bool, String) {
        let (code, shown) = self.wait_exit_code();
        (code == 0, shown)
    }

    /// Waits until the program exits and the terminal is as it was; returns the exit code and the
    /// final screen.
    pub fn wait_exit_code(&mut self) -> (u32, String) {
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
        (status.exit_code(), screen.contents())
    }

    /// The program's peak memory so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
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
    input: &ScreenInput,
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
        let (row, column) = received.screen.screen().cursor_position();
        for _ in 0..count_of(&buffer[..count], WHERE_IS_THE_CURSOR) {
            // The program may have ended.
            let _ = send(input, &format!("\u{1b}[{};{}R", row + 1, column + 1));
        }
        received.bytes.extend_from_slice(&buffer[..count]);
        bell.notify_all();
    }
}

/// Sends a signal to a process.
pub fn send_signal(name: &str, pid: &str) {
    let mut kill = std::process::Command::new("kill");
    let sent = kill.args([name, pid]).status().unwrap();
    assert!(sent.success());
}
