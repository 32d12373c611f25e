//! Proposing and executing. This crate never decides whether a command may run.

pub mod agent;
pub mod attend;
pub mod brain;
pub mod confine;
pub mod environment;
pub mod executor;
pub mod journal;
pub mod mask;
pub mod orders;
pub mod reaper;
pub mod run;

use std::process::ExitCode;

/// What this process is, if it was started to be a part of running a command. A program that runs
/// commands calls this first thing in `main`, before it has a second thread.
pub fn part_of_a_run() -> Option<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some(reaper::REAP) => Some(reaper::main()),
        Some(reaper::ENTER) => Some(reaper::enter()),
        Some(_) | None => None,
    }
}
