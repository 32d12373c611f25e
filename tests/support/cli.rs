//! Runs the real `pvp` in an isolated directory with an isolated home.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{TEST_TIMEOUT, TestServer, TestUser};

/// A working directory and home in which `pvp` sees none of the machine's own settings.
pub struct CliEnv {
    /// Removed with everything in it when the environment is dropped.
    root: tempfile::TempDir,
}

/// The output and exit code of a command.
#[derive(Debug, PartialEq, Eq)]
pub struct CliOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CliEnv {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let cli = Self { root };
        for directory in [cli.workdir(), cli.home(), cli.config_home()] {
            std::fs::create_dir(directory).unwrap();
        }
        cli
    }

    /// An environment that is logged in with this link.
    pub async fn logged_in(link: &str) -> Self {
        let cli = Self::new();
        cli.log_in(link).await;
        cli
    }

    /// Remembers a link for the working directory; returns what is printed.
    pub async fn log_in(&self, link: &str) -> String {
        let output = self.run_with_stdin(&["login"], &format!("{link}\n")).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        output.out
    }

    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.home().join(".local/state/pvp")
    }

    /// The file in which the link for a directory is remembered.
    pub fn link_file(&self, directory: &Path) -> PathBuf {
        let key = pvp_client::user_directories::directory_key(directory);
        self.state().join("links").join(key).join("link")
    }

    pub fn workdir(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("here")
    }

    pub fn home(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("home")
    }

    /// Its `XDG_CONFIG_HOME`.
    pub fn config_home(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("config")
    }

    /// A program to run here, with no `PVP_*` variable set.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PVP_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.workdir())
            .env("HOME", self.home())
            .env("XDG_CONFIG_HOME", self.config_home())
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_DATA_HOME")
            .env("USER", "dee")
            .env("SHELL", "/bin/sh")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_pvp"));
        command.args(arguments);
        command
    }

    pub async fn run(&self, arguments: &[&str]) -> CliOutput {
        run_to_end(&mut self.command(arguments), "").await
    }

    /// Runs `pvp` with this text on its standard input.
    pub async fn run_with_stdin(&self, arguments: &[&str], input: &str) -> CliOutput {
        run_to_end(&mut self.command(arguments), input).await
    }

    /// Runs `pvp` in this directory.
    pub async fn run_in(&self, directory: &Path, arguments: &[&str]) -> CliOutput {
        run_to_end(self.command(arguments).current_dir(directory), "").await
    }

    /// Runs `pvp` with these environment variables.
    pub async fn run_with_env(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> CliOutput {
        let mut command = self.command(arguments);
        run_to_end(command.envs(environment.iter().copied()), "").await
    }

    /// Runs `pvp` with this link in its environment.
    pub async fn run_with_link(&self, link: &str, arguments: &[&str]) -> CliOutput {
        self.run_with_env(arguments, &[("PVP_LINK", link)]).await
    }

    /// Runs `pvp`, which must succeed and print nothing to standard error; returns its output.
    pub async fn run_ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).await.expect_ok(arguments)
    }

    /// As `run_ok`, where every line is JSON; returns the lines.
    pub async fn run_json_lines(&self, arguments: &[&str]) -> Vec<Value> {
        parse_json_lines(&self.run_ok(arguments).await)
    }

    /// As `run_ok`, where the only line is JSON.
    pub async fn run_json(&self, arguments: &[&str]) -> Value {
        let mut all = self.run_json_lines(arguments).await;
        assert_eq!(all.len(), 1, "{arguments:?}: {all:?}");
        all.remove(0)
    }

    /// Runs `pvp`, which must fail and print nothing to standard output; returns its error.
    pub async fn run_refused(&self, arguments: &[&str]) -> String {
        self.run(arguments).await.expect_refused(arguments)
    }

    /// Starts a command without waiting for it to end.
    pub fn spawn(&self, arguments: &[&str]) -> CliProcess {
        CliProcess::spawn(self.command(arguments).stdin(Stdio::piped()))
    }
}

impl CliOutput {
    pub fn expect_ok(self, what: &[&str]) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""), "{what:?}");
        self.out
    }

    /// The error of a failed command, which is either our own message or the usage.
    pub fn expect_refused(self, what: &[&str]) -> String {
        assert!(matches!(self.code, Some(1 | 2)), "{what:?}: {self:?}");
        assert_eq!(self.out, "", "{what:?}: {}", self.err);
        assert!(self.err.ends_with('\n'), "{what:?}: {self:?}");
        self.err
    }
}

/// Parses lines of JSON.
pub fn parse_json_lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
    text.lines().map(parse).collect()
}

async fn run_to_end(command: &mut Command, input: &str) -> CliOutput {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    let typing = async {
        if let Some(mut stdin) = stdin {
            // It may have ended without reading all of its input.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    };
    let both = async { tokio::join!(child.wait_with_output(), typing).0 };
    let output = tokio::time::timeout(TEST_TIMEOUT, both).await;
    let output = output.expect("it ends by itself").unwrap();
    CliOutput {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A running command; killed when dropped.
pub struct CliProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: UnboundedReceiver<String>,
    stderr: UnboundedReceiver<String>,
}

/// Reads lines from a pipe even if nobody waits for them: a program blocks once its pipe is
/// full.
fn spawn_line_reader(pipe: impl AsyncRead + Unpin + Send + 'static) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        let mut lines = BufReader::new(pipe).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            // The test may no longer be interested.
            let _ = sender.send(line);
        }
    });
    receiver
}

impl CliProcess {
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take(),
            lines: spawn_line_reader(child.stdout.take().unwrap()),
            stderr: spawn_line_reader(child.stderr.take().unwrap()),
            child,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// `None` once the process is known to have ended.
    pub fn try_pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill_9(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// The next line of output; `None` at its end.
    pub async fn try_next_line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(TEST_TIMEOUT, self.lines.recv()).await;
        line.expect("it says something in time")
    }

    pub async fn next_line(&mut self) -> String {
        self.try_next_line().await.expect("it says more")
    }

    pub async fn next_json(&mut self) -> Value {
        let line = self.next_line().await;
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"))
    }

    /// Skips lines until one contains this text.
    pub async fn wait_for_line(&mut self, part: &str) -> String {
        loop {
            let line = self.next_line().await;
            if line.contains(part) {
                return line;
            }
        }
    }

    /// The next line of standard error.
    pub async fn next_stderr_line(&mut self) -> String {
        let line = tokio::time::timeout(TEST_TIMEOUT, self.stderr.recv()).await;
        line.expect("it complains in time").expect("it complains")
    }

    pub async fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is open");
        stdin
            .write_all(format!("{line}\n").as_bytes())
            .await
            .unwrap();
    }

    /// Closes its standard input.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = std::process::Command::new("kill")
            .args(["-s", name, &pid])
            .status();
        assert!(status.unwrap().success());
    }

    /// Waits until it ends; returns the exit code and the output that was not read yet.
    pub async fn ended(mut self) -> CliOutput {
        self.stdin = None;
        let rest = async {
            let mut out = String::new();
            while let Some(line) = self.lines.recv().await {
                out += &(line + "\n");
            }
            let mut err = String::new();
            while let Some(line) = self.stderr.recv().await {
                err += &(line + "\n");
            }
            (out, err, self.child.wait().await.unwrap())
        };
        let (out, err, status) = tokio::time::timeout(TEST_TIMEOUT, rest)
            .await
            .expect("it ends by itself");
        CliOutput {
            code: status.code(),
            out,
            err,
        }
    }
}

impl TestServer {
    /// A user's link, to one session or to the server.
    pub fn link(&self, user: &TestUser, session: Option<&str>) -> String {
        let session = session.map(|id| format!("&session={id}"));
        let session = session.unwrap_or_default();
        format!("http://{}/#token={}{session}", self.address, user.token)
    }

    /// All entries of a session, regardless of who may see them.
    pub fn entries(&self, session: &str) -> Vec<Value> {
        super::audit::export_log(&self.data, session)
    }

    /// A session with an agent that has joined over a raw socket.
    pub async fn create_session_with_agent(
        &self,
        session: &str,
        config: Value,
    ) -> super::TestClient {
        self.create_session(session, config).await;
        let agent = self.invite("bot", &["driver"], &["--kind", "agent"]);
        self.join(session, &agent).await
    }
}
