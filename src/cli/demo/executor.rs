//! The demo's executor: runs exactly what was granted to it, once, and streams what it prints.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;
use pvp_client::Connection;
use pvp_protocol::payload::{
    GateAmend, Outcome, ResultBody, ShellExec, Stream, ToolExecute, ToolOutput, ToolResult,
};
use pvp_protocol::{
    Action, Command, Digest, ExecutionLimits, Extra, MessageId, ParticipantId, Timestamp,
};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;

/// Bytes of one piece of output.
const PIECE: usize = 16 * 1024;

/// Bytes of each stream that the result repeats.
const IN_RESULT: usize = 16 * 1024;

/// A command that may run, once.
pub(super) struct Granted {
    pub(super) proposal: MessageId,
    action: Action,
    limits: ExecutionLimits,
    workspace: PathBuf,
}

pub(super) struct Executor {
    me: ParticipantId,
    workspace: PathBuf,
    /// The digest of what each proposal of ours shows.
    shown: BTreeMap<MessageId, Digest>,
    /// The proposal that each gate guards.
    gates: BTreeMap<MessageId, MessageId>,
    /// Grants that were acted on.
    spent: BTreeSet<MessageId>,
}

impl Executor {
    pub(super) fn new(me: ParticipantId, workspace: PathBuf) -> Self {
        Self {
            me,
            workspace,
            shown: BTreeMap::new(),
            gates: BTreeMap::new(),
            spent: BTreeSet::new(),
        }
    }

    pub(super) fn proposed(&mut self, id: MessageId, command: &str) {
        let action = Action::plain(Command::Shell {
            line: command.to_owned(),
        });
        self.shown.insert(id, action.digest());
    }

    pub(super) fn gated(&mut self, gate: MessageId, proposal: MessageId) {
        self.gates.insert(gate, proposal);
    }

    /// People have edited one of ours; what they see then is what may run.
    pub(super) fn amended(&mut self, amend: &GateAmend) {
        let Ok(action) = Action::read("shell", &amend.arguments) else {
            return;
        };
        if let Some(assessment) = &amend.assessment
            && assessment.digest == action.digest()
        {
            let proposal = self.gates.get(&amend.gate).unwrap_or(&amend.gate);
            if let Some(shown) = self.shown.get_mut(proposal) {
                *shown = assessment.digest;
            }
        }
    }

    /// Someone wants a command of their own run here.
    pub(super) fn asked(&mut self, id: MessageId, exec: &ShellExec) {
        if exec.executor.as_ref() == Some(&self.me) {
            self.shown.insert(id, Action::own(exec).digest());
        }
    }

    /// What a grant lets us run; `None` if it is somebody else's.
    pub(super) fn accept(
        &mut self,
        execute: ToolExecute,
        now: Timestamp,
    ) -> Result<Option<Granted>, &'static str> {
        let grant = execute.grant;
        if grant.executor != self.me || grant.nonce.is_none() {
            return Ok(None);
        }
        let digest = grant.action.digest();
        if digest != grant.digest || self.shown.get(&execute.tool_proposal) != Some(&digest) {
            return Err("it is not what was shown");
        }
        if grant.expires_at <= now {
            return Err("the grant has expired");
        }
        if !self.spent.insert(grant.id) {
            return Err("it has run already");
        }
        Ok(Some(Granted {
            proposal: execute.tool_proposal,
            action: grant.action,
            limits: grant.limits,
            workspace: self.workspace.clone(),
        }))
    }
}

impl Granted {
    /// Runs it to its end, its time or its share of output, and says how it went.
    pub(super) async fn run(self, connection: &Connection) -> anyhow::Result<ToolResult> {
        let begun = Instant::now();
        let granted = self;
        let mut command = match command(&granted.action, &granted.workspace) {
            Some(command) => command,
            None => {
                return Ok(failed(
                    granted.proposal,
                    begun,
                    "only shell commands run here",
                ));
            }
        };
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(failed(granted.proposal, begun, &error.to_string())),
        };
        let _group = Group(child.id().context("it has just begun")?);
        let (sender, mut pieces) = mpsc::channel(16);
        let stdout = child.stdout.take().context("a pipe was asked for")?;
        let stderr = child.stderr.take().context("a pipe was asked for")?;
        tokio::spawn(read(stdout, Stream::Stdout, sender.clone()));
        tokio::spawn(read(stderr, Stream::Stderr, sender));
        let mut told = Told::new(
            connection,
            granted.proposal.clone(),
            granted.limits.output_bytes,
        );
        let limit = match granted.limits.timeout_ms {
            0 => Duration::MAX,
            ms => Duration::from_millis(ms),
        };
        let running = async {
            while let Some((stream, bytes)) = pieces.recv().await {
                if !told.tell(stream, &bytes).await? {
                    return Ok(Some("it printed more than it may"));
                }
            }
            anyhow::Ok(None)
        };
        let stopped = match tokio::time::timeout(limit, running).await {
            Ok(stopped) => stopped?,
            Err(_) => Some("it took longer than it may"),
        };
        if stopped.is_some() {
            child.start_kill().context("ending the command")?;
        }
        let status = child.wait().await.context("waiting for the command")?;
        let (stdout, stderr) = told.finish().await?;
        Ok(ToolResult {
            tool_proposal: granted.proposal,
            success: status.success() && stopped.is_none(),
            result: Some(ResultBody {
                exit_code: status.code().map(i64::from),
                stdout,
                stderr,
                extra: Extra::new(),
            }),
            error: stopped.map(str::to_owned),
            duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            outcome: Some(Outcome::Known),
            extra: Extra::new(),
        })
    }
}

/// The processes of one command, which all end with it.
struct Group(u32);

impl Drop for Group {
    fn drop(&mut self) {
        // Usually none is left, which bash complains about.
        let _ = std::process::Command::new("/bin/bash")
            .args(["-c", "kill -KILL -- -$0", &self.0.to_string()])
            .stderr(Stdio::null())
            .status();
    }
}

fn command(action: &Action, workspace: &Path) -> Option<tokio::process::Command> {
    let mut command = match &action.command {
        Command::Shell { line } => {
            let mut command = tokio::process::Command::new("/bin/bash");
            command.args(["--noprofile", "--norc", "-c", line]);
            command
        }
        Command::LoginShell { line } => {
            let mut command = tokio::process::Command::new("/bin/sh");
            command.args(["-lc", line]);
            command
        }
        Command::Argv { command, args } => {
            let mut argv = tokio::process::Command::new(command);
            argv.args(args);
            argv
        }
        Command::Tool { .. } => return None,
    };
    command
        .current_dir(action.cwd.as_ref().map_or(workspace, |cwd| Path::new(cwd)))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", workspace)
        .envs(&action.env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    Some(command)
}

fn failed(tool_proposal: MessageId, begun: Instant, why: &str) -> ToolResult {
    ToolResult {
        tool_proposal,
        success: false,
        result: None,
        error: Some(why.to_owned()),
        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        outcome: Some(Outcome::Known),
        extra: Extra::new(),
    }
}

async fn read(
    mut pipe: impl AsyncRead + Unpin,
    stream: Stream,
    pieces: mpsc::Sender<(Stream, Vec<u8>)>,
) {
    let mut buffer = vec![0; PIECE];
    // A pipe that cannot be read any more has ended.
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if pieces
            .send((stream, buffer[..count].to_vec()))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// What has been told of a command's output.
struct Told<'a> {
    connection: &'a Connection,
    proposal: MessageId,
    room: u64,
    streams: [Piece; 2],
}

/// One stream: how far it has come, and the bytes of a character that is not whole yet.
#[derive(Default)]
struct Piece {
    offset: u64,
    begun: Vec<u8>,
    kept: String,
}

impl<'a> Told<'a> {
    fn new(connection: &'a Connection, proposal: MessageId, room: u64) -> Self {
        Self {
            connection,
            proposal,
            room,
            streams: Default::default(),
        }
    }

    /// Tells a piece; false if there was no room for all of it.
    async fn tell(&mut self, stream: Stream, bytes: &[u8]) -> anyhow::Result<bool> {
        let piece = &mut self.streams[stream as usize];
        piece.begun.extend_from_slice(bytes);
        let mut text = whole_characters(&mut piece.begun);
        let room = usize::try_from(self.room).unwrap_or(usize::MAX);
        let fits = text.len() <= room;
        if !fits {
            text.truncate(text.floor_char_boundary(room));
        }
        self.room -= text.len() as u64;
        self.send(stream, text, false).await?;
        Ok(fits)
    }

    async fn send(&mut self, stream: Stream, text: String, complete: bool) -> anyhow::Result<()> {
        let piece = &mut self.streams[stream as usize];
        let offset = piece.offset;
        piece.offset += text.len() as u64;
        let room = IN_RESULT.saturating_sub(piece.kept.len());
        piece.kept.push_str(&text[..text.floor_char_boundary(room)]);
        if text.is_empty() && !complete {
            return Ok(());
        }
        let output = ToolOutput {
            tool_proposal: self.proposal.clone(),
            stream,
            text,
            complete,
            offset: Some(offset),
            extra: Extra::new(),
        };
        self.connection.send(output).await?;
        Ok(())
    }

    /// Closes both streams, and gives what the result repeats of them.
    async fn finish(mut self) -> anyhow::Result<(String, String)> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(&mut self.streams[stream as usize].begun);
            let mut rest = String::from_utf8_lossy(&rest).into_owned();
            let room = usize::try_from(self.room).unwrap_or(usize::MAX);
            rest.truncate(rest.floor_char_boundary(room));
            self.room -= rest.len() as u64;
            self.send(stream, rest, true).await?;
        }
        let [stdout, stderr] = self.streams;
        Ok((stdout.kept, stderr.kept))
    }
}

/// Takes what is whole; invalid bytes are replaced, an unfinished character waits.
fn whole_characters(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut rest: &[u8] = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                rest = &[];
                break;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                rest = after;
                let Some(bad) = error.error_len() else { break };
                text.push(char::REPLACEMENT_CHARACTER);
                rest = &rest[bad..];
            }
        }
    }
    *bytes = rest.to_vec();
    text
}
