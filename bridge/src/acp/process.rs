//! An agent program that speaks ACP on its standard input and output.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::wire::{AcpMessage, Outgoing, read_messages};
use crate::hooks::HookClient;
use crate::launch::{AgentProject, Environment, LaunchError, ProjectPlace, plan_acp};

/// Messages of an agent that may wait to be read; it writes no more while they do.
const MAX_UNREAD: usize = 64;

/// How long an agent may take to end once its standard input is closed.
const END_GRACE: Duration = Duration::from_secs(2);

/// How an agent is started.
#[derive(Debug, Clone)]
pub struct AcpCommand {
    /// Its program and arguments.
    words: Vec<OsString>,
    environment: Environment,
    project: AgentProject,
}

impl AcpCommand {
    /// Plans how an agent is started; returns what the person should know too. Of agents that are
    /// known, what would let them act without asking is taken away, or they are refused.
    pub fn plan(
        words: Vec<OsString>,
        place: ProjectPlace<'_>,
    ) -> Result<(Self, Vec<String>), LaunchError> {
        let project = AgentProject::new(&words, place.trust);
        let warnings = project.check(place.workspace)?;
        let command = Self {
            environment: plan_acp(&project, place)?,
            words,
            project,
        };
        Ok((command, warnings))
    }

    /// What the directories may bring that it works in.
    pub(super) fn project(&self) -> &AgentProject {
        &self.project
    }

    /// What this program does for the agent.
    pub(super) fn capabilities(&self) -> Value {
        // Gemini takes the answer that a file is missing for a failure, and could make none.
        let reads = !self.project.is_of(HookClient::Gemini);
        json!({ "fs": { "readTextFile": reads, "writeTextFile": true }, "terminal": true })
    }
}

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
        command: &AcpCommand,
        workspace: &Path,
    ) -> anyhow::Result<(Self, AgentStreams)> {
        let (program, arguments) = command
            .words
            .split_first()
            .context("name the agent's program")?;
        let mut process = Command::new(program);
        for (name, value) in &command.environment {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
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
