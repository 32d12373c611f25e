//! Leads the session of a client's terminal, as a shell would: gives the client the terminal, and
//! reports when the client is stopped and how it ends.
//!
//! Without such a parent in the same session, the kernel would ignore a client that suspends itself.
//! This is a process of its own because a session belongs to one terminal.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, ioctl_tiocsctty, kill_process, setsid, waitpid,
};
use rustix::termios::tcsetpgrp;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

/// The first argument of the process that leads the session.
pub const LEADER_SUBCOMMAND: &str = "run-leader";

/// The first argument of the process that becomes the client.
const CLIENT_SUBCOMMAND: &str = "run-client";

/// The exit code if the client cannot be executed; shells use the same one.
const EXIT_NOT_FOUND: u8 = 127;

/// What the leader reports, one line of JSON each, on its standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LeaderReport {
    /// The client has the terminal, and is this process and the group of the same number.
    Started(i32),
    Stopped,
    /// How it ended, as `wait` says it.
    Ended(i32),
}

/// Runs what this program starts itself for, if it was; the arguments are those of the process.
pub fn run_internal_subcommand() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let run = match arguments.next()?.to_str()? {
        LEADER_SUBCOMMAND => lead,
        CLIENT_SUBCOMMAND => become_client,
        _ => return None,
    };
    let words: Vec<_> = arguments.collect();
    Some(match run(&words) {
        Ok(code) => code,
        Err(problem) => {
            // Standard error is the client's; there is nowhere else to report it.
            let _ = writeln!(io::stderr(), "pvp: {problem:#}");
            ExitCode::from(EXIT_NOT_FOUND)
        }
    })
}

/// Starts the client in the terminal on standard input, and stays until it has ended.
fn lead(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let terminal = io::stdin().as_fd().try_clone_to_owned()?;
    setsid().context("beginning a session")?;
    ioctl_tiocsctty(&terminal).context("taking the terminal")?;
    let _handler = survive_hangup()?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command
        .arg(CLIENT_SUBCOMMAND)
        .args(words)
        .stdout(Stdio::from(terminal.try_clone()?))
        .process_group(0);
    let client = command.spawn().context("starting the client")?;
    let client = i32::try_from(client.id()).ok().and_then(Pid::from_raw);
    let client = client.context("the client has no process id")?;
    // It waits for the terminal, which it could not use from the background.
    let mut status = wait(client)?;
    if status.stopped() {
        tcsetpgrp(&terminal, client).context("giving the client the terminal")?;
        report(LeaderReport::Started(client.as_raw_pid()));
        kill_process(client, Signal::CONT)?;
        status = wait(client)?;
    }
    while status.stopped() {
        report(LeaderReport::Stopped);
        status = wait(client)?;
    }
    report(LeaderReport::Ended(status.as_raw()));
    Ok(ExitCode::SUCCESS)
}

/// Has this process, but not what it starts, outlive the end of the terminal, so that it sees how
/// the client ends.
fn survive_hangup() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    let inside = runtime.enter();
    // The handler stays installed when the listener is dropped.
    drop(signal(SignalKind::hangup()).context("heeding signals")?);
    drop(inside);
    Ok(runtime)
}

/// Waits until the client is stopped or has ended.
fn wait(client: Pid) -> anyhow::Result<WaitStatus> {
    loop {
        match waitpid(Some(client), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => return Ok(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for the client"),
        }
    }
}

fn report(report: LeaderReport) {
    let line = serde_json::to_string(&report).unwrap_or_default();
    // Nobody listens any more if what started this was killed.
    let _ = writeln!(io::stdout(), "{line}");
    let _ = io::stdout().flush();
}

/// Waits until this process has the terminal, and becomes the client; returns only on failure.
fn become_client(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let (program, arguments) = words.split_first().context("name a client")?;
    kill_process(getpid(), Signal::STOP).context("waiting for the terminal")?;
    let Err::<Infallible, _>(error) = Err(Command::new(program).args(arguments).exec());
    Err(error).with_context(|| format!("cannot start `{}`", program.to_string_lossy()))
}
