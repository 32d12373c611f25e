//! A workspace for running real commands and finding the processes that they leave.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::{
    self, FinishedRun, OverflowAction, ReaperPool, RunError, RunLimits, StdioChunk, StopSender,
    SupervisedProcess,
};
use pvp_agent::sandbox::{ResourceLimits, Sandbox};
use pvp_protocol::SandboxProfile;
use pvp_protocol::payload::OutputStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::TEST_TIMEOUT;
use crate::support::session::wait_until;

/// A workspace, and a mark in the environment of every process started in it.
pub(crate) struct CommandFixture {
    pub(crate) workspace: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

impl CommandFixture {
    pub(crate) fn new() -> Self {
        Self {
            workspace: tempfile::tempdir().unwrap(),
            temporary: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn spawn_spec(&self, line: &str) -> SpawnSpec {
        let words = ["--noprofile", "--norc", "-c", line];
        SpawnSpec {
            program: "/bin/bash".to_owned(),
            arguments: words.map(str::to_owned).into(),
            directory: self.workspace.path().to_owned(),
            directory_identity: None,
            files: Vec::new(),
            environment: vec![
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("MARK".to_owned(), self.mark()),
                ("TMPDIR".to_owned(), self.mark()),
            ],
            sandbox: Sandbox {
                profile: SandboxProfile::None,
                workspace: self.workspace.path().to_owned(),
                temporary: self.temporary.path().to_owned(),
                private: Vec::new(),
                secret_files: Vec::new(),
                read_roots: Vec::new(),
                limits: ResourceLimits::default(),
                trial: None,
            },
            grace_ms: 100,
            cgroup: true,
            terminal: None,
        }
    }

    /// The value of `MARK` in the environment of every process of this fixture.
    pub(crate) fn mark(&self) -> String {
        self.temporary.path().to_str().unwrap().to_owned()
    }

    /// The command lines of the live processes of this fixture.
    pub(crate) fn live_commands(&self) -> Vec<String> {
        let processes = self.live_processes().into_iter();
        processes.map(|(_, line)| line).collect()
    }

    /// As `live_commands`, with process ids.
    pub(crate) fn live_processes(&self) -> Vec<(String, String)> {
        let mark = format!("MARK={}", self.mark());
        let processes = std::fs::read_dir("/proc").unwrap();
        processes
            .filter_map(Result::ok)
            .filter(|process| {
                let environment = std::fs::read(process.path().join("environ"));
                environment.is_ok_and(|it| {
                    it.split(|byte| *byte == 0)
                        .any(|one| one == mark.as_bytes())
                })
            })
            .map(|process| {
                let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                (process.file_name().to_string_lossy().into_owned(), line)
            })
            .collect()
    }

    /// Waits until no process of this fixture is alive.
    pub(crate) async fn wait_until_empty(&self) {
        wait_until("nothing is left of it", || self.live_commands().is_empty()).await;
    }

    /// Runs a command to its end.
    pub(crate) async fn run(
        &self,
        spawn_spec: &SpawnSpec,
        bounds: RunLimits,
    ) -> (Result<FinishedRun, RunError>, Vec<StdioChunk>) {
        let mut running = TestRun::start(spawn_spec, bounds).await;
        let chunks = running.remaining_chunks().await;
        (running.finish().await, chunks)
    }

    /// Runs a command that ends by itself; returns how it ended, its stdout and its stderr.
    pub(crate) async fn run_line(&self, line: &str) -> (FinishedRun, String, String) {
        let (finish, chunks) = self.run(&self.spawn_spec(line), generous_limits()).await;
        let (out, err) = (
            stream_text(&chunks, OutputStream::Stdout),
            stream_text(&chunks, OutputStream::Stderr),
        );
        (finish.unwrap(), out, err)
    }
}

/// A running command.
pub(crate) struct TestRun {
    /// Stops or kills the command.
    pub(crate) stop_sender: StopSender,
    /// The command's process id.
    pub(crate) pid: u32,
    /// Input to the terminal of an interactive command; `None` for others.
    pub(crate) pty_input: Option<run::PtyInput>,
    /// Chunks of output, as they are printed.
    pub(crate) chunks: mpsc::Receiver<StdioChunk>,
    /// Output after the text that was last waited for.
    unconsumed: String,
    /// The task that streams the command to its end.
    finish: JoinHandle<Result<FinishedRun, RunError>>,
}

impl TestRun {
    pub(crate) async fn start(spawn_spec: &SpawnSpec, bounds: RunLimits) -> Self {
        Self::start_with_reapers(&reapers(), spawn_spec, bounds).await
    }

    /// As `start`, with a given pool of reapers.
    pub(crate) async fn start_with_reapers(
        reapers: &ReaperPool,
        spawn_spec: &SpawnSpec,
        bounds: RunLimits,
    ) -> Self {
        let (stop_sender, stop_receiver) = run::stop_channel();
        let run = SupervisedProcess::start(reapers, spawn_spec, stop_receiver)
            .await
            .unwrap();
        Self::collect(run, stop_sender, bounds)
    }

    /// Starts a command whose timeout expires as soon as it has created this file.
    pub(crate) async fn start_until_file(spawn_spec: &SpawnSpec, file: &str) -> Self {
        let (stop_sender, stop_receiver) = run::stop_channel();
        let run = SupervisedProcess::start(&reapers(), spawn_spec, stop_receiver)
            .await
            .unwrap();
        let file = spawn_spec.directory.join(file);
        wait_until("it makes its file", || file.exists()).await;
        let bounds = RunLimits {
            timeout: Some(Duration::ZERO),
            ..generous_limits()
        };
        Self::collect(run, stop_sender, bounds)
    }

    fn collect(run: SupervisedProcess, stop_sender: StopSender, bounds: RunLimits) -> Self {
        let (pid, pty_input) = (run.pid(), run.pty_input());
        let (sender, chunks) = mpsc::channel(16);
        let finish =
            tokio::spawn(async move { run.stream_to_end(bounds, &BTreeMap::new(), sender).await });
        Self {
            stop_sender,
            pid,
            pty_input,
            chunks,
            unconsumed: String::new(),
            finish,
        }
    }

    /// Waits for this text; returns the output up to its end. Later output is kept for the next
    /// call.
    pub(crate) async fn wait_for_text(&mut self, words: &str) -> String {
        loop {
            if let Some(at) = self.unconsumed.find(words) {
                let rest = self.unconsumed.split_off(at + words.len());
                return std::mem::replace(&mut self.unconsumed, rest);
            }
            let chunk = tokio::time::timeout(TEST_TIMEOUT, self.chunks.recv()).await;
            let received = &mut self.unconsumed;
            let chunk = chunk.unwrap_or_else(|_| panic!("it says {words:?}, not {received:?}"));
            *received += &chunk
                .unwrap_or_else(|| panic!("it ended with {received:?}"))
                .text;
        }
    }

    /// Reads all remaining chunks.
    pub(crate) async fn remaining_chunks(&mut self) -> Vec<StdioChunk> {
        let mut chunks = Vec::new();
        let gather = async {
            while let Some(chunk) = self.chunks.recv().await {
                chunks.push(chunk);
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, gather)
            .await
            .expect("it ends");
        chunks
    }

    pub(crate) async fn finish(self) -> Result<FinishedRun, RunError> {
        // Remaining output is discarded, so that it cannot block the command.
        let mut chunks = self.chunks;
        let ignored = tokio::spawn(async move { while chunks.recv().await.is_some() {} });
        let finish = tokio::time::timeout(TEST_TIMEOUT, self.finish).await;
        ignored.abort();
        finish.expect("it ends").unwrap()
    }
}

pub(crate) fn stream_text(chunks: &[StdioChunk], stream: OutputStream) -> String {
    let chunks = chunks.iter().filter(|chunk| chunk.stream == stream);
    chunks.map(|chunk| chunk.text.as_str()).collect()
}

pub(crate) fn pvp_path() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pvp"))
}

pub(crate) fn reapers() -> ReaperPool {
    ReaperPool::on_demand(pvp_path())
}

/// Whether a process is running; a zombie is not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

/// The parent of a process.
pub(crate) fn parent_pid(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    parent.unwrap().trim().parse().unwrap()
}

pub(crate) fn generous_limits() -> RunLimits {
    RunLimits {
        timeout: Some(TEST_TIMEOUT),
        output_bytes: 10 * 1024 * 1024,
        on_overflow: OverflowAction::Kill,
    }
}
