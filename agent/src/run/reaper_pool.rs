//! Starts reapers, if possible one before it is needed: starting one takes longer than most reads
//! do.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};

use super::pty::{Pty, PtyOutput};
use super::run_state::{OutputSource, ReaperReports};
use crate::reaper::{REAP_SUBCOMMAND, ReaperBackup, SpawnSpec};

/// Starts reapers, and may keep a spare.
#[derive(Debug)]
pub struct ReaperPool {
    /// The program that reapers are started from: this one.
    program: PathBuf,
    /// Whether a spare is started before it is needed.
    keep_spare: bool,
    spare: Mutex<Option<IdleReaper>>,
}

impl ReaperPool {
    /// Starts each reaper when it is needed.
    pub fn on_demand(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            keep_spare: false,
            spare: Mutex::new(None),
        }
    }

    /// Starts the next reaper as soon as a read has started.
    pub fn with_spare(program: &Path) -> Self {
        Self {
            keep_spare: true,
            ..Self::on_demand(program)
        }
    }

    /// Gives a spec to a reaper: to the spare if it can be used, else to a new one.
    pub(super) async fn assign(&self, spawn_spec: &SpawnSpec) -> anyhow::Result<AssignedReaper> {
        // A spare that was killed while it waited has started nothing.
        if let Some(spare) = self.take_spare_for(spawn_spec)
            && let Ok(assigned) = spare.assign(spawn_spec, None).await
        {
            return Ok(assigned);
        }
        let backup = ReaperBackup::for_spec(spawn_spec);
        let (idle, terminal) = match spawn_spec.terminal {
            None => (self.start_reaper(backup, None)?, None),
            Some(size) => {
                let (pty, pty_output, theirs) = Pty::open(size).context("making a terminal")?;
                (
                    self.start_reaper(backup, Some(theirs))?,
                    Some((pty, pty_output)),
                )
            }
        };
        idle.assign(spawn_spec, terminal).await
    }

    fn take_spare_for(&self, spawn_spec: &SpawnSpec) -> Option<IdleReaper> {
        let mut spare = can_use_spare(spawn_spec)
            .then(|| self.lock_spare().take())
            .flatten()?;
        matches!(spare.process.try_wait(), Ok(None)).then_some(spare)
    }

    /// Starts a spare for the next spec that is like this one.
    pub(super) fn start_spare(&self, spawn_spec: &SpawnSpec) {
        let mut spare = self.lock_spare();
        if self.keep_spare && can_use_spare(spawn_spec) && spare.is_none() {
            // If it cannot be started, the next assignment tries again and reports why.
            *spare = self.start_reaper(ReaperBackup::NotNeeded, None).ok();
        }
    }

    fn lock_spare(&self) -> MutexGuard<'_, Option<IdleReaper>> {
        // A panic leaves a consistent value behind.
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a reaper that prints to the terminal if there is one, else into two pipes.
    fn start_reaper(
        &self,
        backup: ReaperBackup,
        pty_output: Option<OwnedFd>,
    ) -> anyhow::Result<IdleReaper> {
        let (ours, theirs) = socket_pair().context("making a socket")?;
        let (stdout, stderr) = match pty_output {
            Some(pty_output) => (
                Stdio::from(pty_output.try_clone()?),
                Stdio::from(pty_output),
            ),
            None => (Stdio::piped(), Stdio::piped()),
        };
        let process = Command::new(&self.program)
            .args([REAP_SUBCOMMAND, backup.as_argument()])
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .context("starting a reaper")?;
        Ok(IdleReaper {
            process,
            socket: ours,
        })
    }
}

/// Whether a reaper for the spec can be started before the spec is known. This holds for most
/// reads.
fn can_use_spare(spawn_spec: &SpawnSpec) -> bool {
    spawn_spec.terminal.is_none() && ReaperBackup::for_spec(spawn_spec) == ReaperBackup::NotNeeded
}

/// A reaper that waits for its spec. It ends by itself when its socket is closed.
#[derive(Debug)]
struct IdleReaper {
    process: Child,
    socket: UnixStream,
}

impl IdleReaper {
    async fn assign(
        self,
        spawn_spec: &SpawnSpec,
        terminal: Option<(Pty, PtyOutput)>,
    ) -> anyhow::Result<AssignedReaper> {
        let mut process = self.process;
        let (terminal, stdout) = match terminal {
            Some((terminal, pty_output)) => (Some(terminal), OutputSource::Pty(pty_output)),
            None => {
                let stdout = process.stdout.take();
                (
                    None,
                    stdout.map_or(OutputSource::Ended, OutputSource::Stdout),
                )
            }
        };
        let stderr = process
            .stderr
            .take()
            .map_or(OutputSource::Ended, OutputSource::Stderr);
        let (reading, mut commands) = self.socket.into_split();
        let mut line = serde_json::to_vec(spawn_spec).expect("a spawn spec is plain data");
        line.push(b'\n');
        commands
            .write_all(&line)
            .await
            .context("telling the reaper")?;
        Ok(AssignedReaper {
            process,
            stdout,
            stderr,
            pty: terminal,
            reports: BufReader::new(reading).lines(),
            commands,
        })
    }
}

/// A reaper that has its spec.
pub(super) struct AssignedReaper {
    /// The reaper's process.
    pub(super) process: Child,
    /// Standard output of the command, or the output of its terminal.
    pub(super) stdout: OutputSource,
    /// Standard error of the command.
    pub(super) stderr: OutputSource,
    /// The command's terminal, for input; `None` if it has none.
    pub(super) pty: Option<Pty>,
    /// What the reaper reports.
    pub(super) reports: ReaperReports,
    /// Sends commands to the reaper.
    pub(super) commands: OwnedWriteHalf,
}

fn socket_pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}
