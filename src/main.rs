//! The `pvp` binary: parses the arguments and runs the chosen command.

mod cli;

use std::process::ExitCode;

use clap::Parser;

/// Supervise an AI agent together: propose, gate, run, watch, prove.
#[derive(Parser)]
#[command(name = "pvp", version, arg_required_else_help = true)]
pub(crate) struct CliArguments {
    #[command(subcommand)]
    command: cli::CliCommand,
}

fn main() -> ExitCode {
    if let Some(code) = pvp_agent::run_internal_subcommand() {
        return code;
    }
    let arguments = CliArguments::parse();
    match cli::run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            cli::print_error(&error);
            ExitCode::FAILURE
        }
    }
}
