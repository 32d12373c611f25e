//! The pseudo-terminal that a client runs in, and the process that leads its session.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Termios, Winsize, isatty, tcsetattr, tcsetwinsize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStdout};

use super::leader::{LEADER_SUBCOMMAND, LeaderReport};

/// Bytes that are read from the client at once.
const MAX_READ_BYTES: usize = 64 * 1024;

/// What a client prints.
pub(super) struct ClientOutput {
    reader: pipe::Receiver,
    buffer: Vec<u8>,
}

impl ClientOutput {
    /// What the client prints next; an error once nobody has its side open. Cancel safe.
    pub(super) async fn read(&mut self) -> io::Result<Vec<u8>> {
        loop {
            self.reader.readable().await?;
            match self.reader.try_read(&mut self.buffer) {
                Ok(count) => return Ok(self.buffer[..count].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What the client has printed and nobody has read yet; empty if that is nothing.
    pub(super) fn read_rest(&mut self) -> Vec<u8> {
        let count = self.reader.try_read(&mut self.buffer).unwrap_or(0);
        self.buffer[..count].to_vec()
    }
}

/// Our side of a client's terminal, for writing.
pub(super) struct ClientPty {
    writer: pipe::Sender,
}

impl ClientPty {
    /// Opens a terminal with these modes and this size; the last value is the client's side.
    pub(super) fn open(
        modes: &Termios,
        size: Winsize,
    ) -> io::Result<(Self, ClientOutput, OwnedFd)> {
        // Neither side may become the terminal of this process, nor be inherited by other children.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        tcsetattr(&slave, OptionalActions::Now, modes)?;
        tcsetwinsize(&master, size)?;
        fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
        // To the runtime our side looks like two pipes, one to read from and one to write to.
        let output = ClientOutput {
            reader: pipe::Receiver::from_owned_fd_unchecked(master.try_clone()?)?,
            buffer: vec![0; MAX_READ_BYTES],
        };
        let writer = pipe::Sender::from_owned_fd_unchecked(master)?;
        Ok((Self { writer }, output, slave))
    }

    /// Changes the size; the client gets a signal, as from any terminal.
    pub(super) fn resize(&self, size: Winsize) {
        // This fails only if the client has closed the terminal; then the size does not matter.
        let _ = tcsetwinsize(&self.writer, size);
    }

    /// Writes some of this to the client, as soon as it takes something; returns how much. Cancel
    /// safe.
    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            self.writer.writable().await?;
            match self.writer.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }
}

/// The process that leads the session of the client's terminal, and the client.
pub(super) struct LedClient {
    /// The client's process; its group has the same number.
    pub(super) pid: Pid,
    leader: Child,
    reports: Lines<BufReader<ChildStdout>>,
}

/// What happens to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedClientEvent {
    Stopped,
    Ended(ExitStatus),
}

impl LedClient {
    /// Starts the client in a terminal.
    pub(super) async fn start(client: &Command, terminal: OwnedFd) -> anyhow::Result<Self> {
        let stderr = match isatty(io::stderr()) {
            true => Stdio::from(terminal.try_clone()?),
            // What is written to a file goes there.
            false => Stdio::inherit(),
        };
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = tokio::process::Command::new(program);
        command
            .arg(LEADER_SUBCOMMAND)
            .arg(client.get_program())
            .args(client.get_args())
            .stdin(Stdio::from(terminal))
            .stdout(Stdio::piped())
            .stderr(stderr);
        for (name, value) in client.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = client.get_current_dir() {
            command.current_dir(directory);
        }
        let mut leader = command.spawn().context("starting the client's terminal")?;
        // The command holds the client's side of the terminal.
        drop(command);
        let stdout = leader
            .stdout
            .take()
            .context("hearing the client's leader")?;
        let mut reports = BufReader::new(stdout).lines();
        let pid = match next_report(&mut reports).await {
            Some(LeaderReport::Started(pid)) => Pid::from_raw(pid),
            Some(LeaderReport::Stopped | LeaderReport::Ended(_)) | None => None,
        };
        let Some(pid) = pid else {
            bail!("the client's terminal could not be prepared");
        };
        Ok(Self {
            pid,
            leader,
            reports,
        })
    }

    /// What happens to the client next. Cancel safe.
    pub(super) async fn next_event(&mut self) -> anyhow::Result<LedClientEvent> {
        loop {
            match next_report(&mut self.reports).await {
                Some(LeaderReport::Started(_)) => {}
                Some(LeaderReport::Stopped) => return Ok(LedClientEvent::Stopped),
                Some(LeaderReport::Ended(status)) => {
                    return Ok(LedClientEvent::Ended(ExitStatus::from_raw(status)));
                }
                None => {
                    // Without its leader, the client has no terminal.
                    self.signal(Signal::HUP);
                    self.signal(Signal::CONT);
                    bail!("what leads the client's terminal was killed, and so was the client");
                }
            }
        }
    }

    /// Waits until the leader has ended too, which it does right after the client.
    pub(super) async fn wait_for_leader(&mut self) {
        // How it ended says nothing about the client.
        let _ = self.leader.wait().await;
    }

    /// Sends a signal to the client, which may have ended meanwhile.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal);
    }

    /// Sends a signal to the client and what it runs in the foreground, as its terminal would.
    pub(super) fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }
}

async fn next_report(reports: &mut Lines<BufReader<ChildStdout>>) -> Option<LeaderReport> {
    let line = reports.next_line().await.ok()??;
    serde_json::from_str(&line).ok()
}
