//! The `pvp` binary: parses the arguments and runs the chosen command.

mod cli;

use std::process::ExitCode;

use clap::Parser;

/// It gives freed memory back to the system; .cargo/config.toml says how soon.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Supervise AI agents together: they propose commands, and your team approves what runs.
#[derive(Parser)]
#[command(name = "pvp", version)]
pub(crate) struct CliArguments {
    #[command(subcommand)]
    command: Option<cli::CliCommand>,
}

fn main() -> ExitCode {
    if let Some(code) = pvp_agent::run_internal_subcommand() {
        return code;
    }
    if let Some(code) = pvp_tui::client_terminal::run_internal_subcommand() {
        return code;
    }
    // Not above: a reaper has one thread. Without this one, a program that has become idle keeps
    // what it freed.
    #[cfg(feature = "jemalloc")]
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    let arguments = CliArguments::parse();
    match cli::run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            cli::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
