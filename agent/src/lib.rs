//! Proposing commands and executing granted ones. Nothing here decides whether a command may run.
//!
//! A [`Proposer`](proposer::Proposer) proposes and hears what becomes of it. An
//! [`Executor`](executor::Executor) acts on grants. An [`Agent`](agent::Agent) is both, for a
//! [turn loop](turn_loop) to use. Each reads one [`View`](pvp_client::View) of its session, which is
//! what the server says; what decides whether a granted command runs is what the process
//! [wrote down itself](shown_actions), its [journal] and its own policy.

pub mod agent;
mod binding_key;
mod bound_files;
pub mod brain;
mod client_calls;
mod deleted_files;
pub mod environment;
pub mod executor;
mod git_index;
pub mod grant_check;
pub mod journal;
pub mod mask;
mod private_paths;
pub mod proposer;
mod read_environment;
mod read_git;
pub mod reaper;
mod received;
pub mod response_stream;
pub mod run;
mod run_results;
pub mod sandbox;
pub mod secret_files;
pub mod shown_actions;
mod text_edit;
pub mod tool_calls;
pub mod turn_loop;
mod unasked_reads;
mod working_directory;
mod workspace_files;

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
