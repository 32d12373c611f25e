//! An agent program that speaks ACP on its standard input and output.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::wire::{AcpMessage, Outgoing, read_messages};

/// Messages of an agent that may wait to be read; it writes no more while they do.
const MAX_UNREAD: usize = 64;

/// How long an agent may take to end once its standard input is closed.
const END_GRACE: Duration = Duration::from_secs(2);

/// A running agent; it and what it runs are killed when this is dropped.
pub(super) struct AcpProcess {
    child: Child,
    group: Option<Pid>,
}

/// The two ends of what is said to an agent and by it.
pub(super) struct AgentStreams {
    pub(super) incoming: mpsc::Receiver<AcpMessage>,
    pub(super) outgoing: Outgoing,
}

impl AcpProcess {
    pub(super) fn start(
        command: &[OsString],
        workspace: &Path,
    ) -> anyhow::Result<(Self, AgentStreams)> {
        let (program, arguments) = command.split_first().context("name the agent's program")?;
        let mut process = Command::new(program);
        process
            .args(arguments)
            .current_dir(workspace)
            // Some agents believe this and not the directory.
            .env("PWD", workspace)
            // Only the bridge may speak for the people and agents of this machine.
            .env_remove("PVP_LINK")
            .env_remove("PVP_AGENT_LINK")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let program = program.to_string_lossy().into_owned();
        let mut child = process
            .spawn()
            .with_context(|| format!("cannot start `{program}`; is it installed?"))?;
        let stdin = child.stdin.take().context("the agent's standard input")?;
        let stdout = child.stdout.take().context("the agent's standard output")?;
        let (sender, incoming) = mpsc::channel(MAX_UNREAD);
        tokio::spawn(read_messages(BufReader::new(stdout), sender));
        let outgoing = Outgoing::start(stdin);
        let group = child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok((Self { child, group }, AgentStreams { incoming, outgoing }))
    }

    /// Waits a little for the agent to end by itself, and says how it ended.
    pub(super) async fn end(mut self) -> Option<String> {
        let ended = tokio::time::timeout(END_GRACE, self.child.wait()).await;
        ended.ok()?.ok().map(|status| status.to_string())
    }
}

impl Drop for AcpProcess {
    fn drop(&mut self) {
        // What it started may outlive it, and has no business to.
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
