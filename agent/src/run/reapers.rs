//! Where reapers come from. One may be ready before it is needed: starting it takes longer than
//! most reads do.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};

use super::course::{Reports, Source};
use super::terminal::{Screen, Terminal};
use crate::reaper::{Errand, REAP, Standing};

/// Starts reapers.
#[derive(Debug)]
pub struct Reapers {
    /// What they are started from: this program.
    program: PathBuf,
    /// Whether one is started before it is needed.
    ahead: bool,
    ready: Mutex<Option<Waiting>>,
}

impl Reapers {
    /// Each is started when it is needed.
    pub fn of(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            ahead: false,
            ready: Mutex::new(None),
        }
    }

    /// Once a read has begun, the reaper of the next one is started.
    pub fn one_ahead(program: &Path) -> Self {
        Self {
            ahead: true,
            ..Self::of(program)
        }
    }

    /// Gives an errand to a reaper: to the one that is ready, if that is of use.
    pub(super) async fn hand_over(&self, errand: &Errand) -> anyhow::Result<Handed> {
        // One that was ended while it waited has begun nothing.
        if let Some(ready) = self.ready_for(errand)
            && let Ok(handed) = ready.take(errand, None).await
        {
            return Ok(handed);
        }
        let standing = Standing::of(errand);
        let (waiting, terminal) = match errand.terminal {
            None => (self.start(standing, None)?, None),
            Some(size) => {
                let (ours, screen, theirs) = Terminal::open(size).context("making a terminal")?;
                (self.start(standing, Some(theirs))?, Some((ours, screen)))
            }
        };
        waiting.take(errand, terminal).await
    }

    fn ready_for(&self, errand: &Errand) -> Option<Waiting> {
        let mut ready = is_plain(errand).then(|| self.ready().take()).flatten()?;
        matches!(ready.process.try_wait(), Ok(None)).then_some(ready)
    }

    /// Has one ready for the next errand that is like this one.
    pub(super) fn prepare(&self, errand: &Errand) {
        let mut ready = self.ready();
        if self.ahead && is_plain(errand) && ready.is_none() {
            // If it cannot be started, the next errand tries again and says why.
            *ready = self.start(Standing::Alone, None).ok();
        }
    }

    fn ready(&self) -> MutexGuard<'_, Option<Waiting>> {
        // Whoever panicked left a whole value behind.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one that prints to the screen if there is one, else into two pipes.
    fn start(&self, standing: Standing, screen: Option<OwnedFd>) -> anyhow::Result<Waiting> {
        let (ours, theirs) = sockets().context("making a socket")?;
        let (stdout, stderr) = match screen {
            Some(screen) => (Stdio::from(screen.try_clone()?), Stdio::from(screen)),
            None => (Stdio::piped(), Stdio::piped()),
        };
        let process = Command::new(&self.program)
            .args([REAP, standing.word()])
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .context("starting a reaper")?;
        Ok(Waiting { process, ours })
    }
}

/// Whether a reaper for it can be started before it is known: most reads.
fn is_plain(errand: &Errand) -> bool {
    errand.terminal.is_none() && Standing::of(errand) == Standing::Alone
}

/// A reaper that waits for its errand. It ends by itself when nobody can give it one any more.
#[derive(Debug)]
struct Waiting {
    process: Child,
    ours: UnixStream,
}

impl Waiting {
    async fn take(
        self,
        errand: &Errand,
        terminal: Option<(Terminal, Screen)>,
    ) -> anyhow::Result<Handed> {
        let mut process = self.process;
        let (terminal, stdout) = match terminal {
            Some((terminal, screen)) => (Some(terminal), Source::Screen(screen)),
            None => {
                let stdout = process.stdout.take();
                (None, stdout.map_or(Source::Ended, Source::Output))
            }
        };
        let stderr = process.stderr.take().map_or(Source::Ended, Source::Errors);
        let (reading, mut words) = self.ours.into_split();
        let mut line = serde_json::to_vec(errand).expect("an errand is plain data");
        line.push(b'\n');
        words.write_all(&line).await.context("telling the reaper")?;
        Ok(Handed {
            process,
            stdout,
            stderr,
            terminal,
            reports: BufReader::new(reading).lines(),
            words,
        })
    }
}

/// A reaper that was given its errand.
pub(super) struct Handed {
    pub(super) process: Child,
    pub(super) stdout: Source,
    pub(super) stderr: Source,
    pub(super) terminal: Option<Terminal>,
    pub(super) reports: Reports,
    pub(super) words: OwnedWriteHalf,
}

fn sockets() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}
