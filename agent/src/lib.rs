//! The agent: proposes commands and executes granted ones. It never decides whether a command may
//! run.

pub mod agent;
pub mod brain;
pub mod environment;
pub mod executor;
pub mod grant_check;
pub mod journal;
pub mod mask;
pub mod reaper;
pub mod run;
pub mod sandbox;
pub mod turn_loop;

#[cfg(test)]
#[path = "../../tests/support/skip.rs"]
mod skip;

use std::process::ExitCode;

/// Runs one of the internal subcommands if this process was started as one; these are the helper
/// processes that commands run under. A program that runs commands calls this first thing in
/// `main`, before it starts a second thread.
pub fn run_internal_subcommand() -> Option<ExitCode> {
    match std::env::args().nth(1).as_deref() {
        Some(reaper::REAP_SUBCOMMAND) => Some(reaper::main()),
        Some(reaper::EXEC_STEP_SUBCOMMAND) => Some(reaper::exec_step_main()),
        Some(_) | None => None,
    }
}
