//! The `pvp` command line: reads arguments and calls what does the work.

mod cli;

use std::process::ExitCode;

use clap::Parser;

/// Supervise an AI agent together: propose, gate, run, watch, prove.
#[derive(Parser)]
#[command(name = "pvp", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: cli::Command,
}

fn main() -> ExitCode {
    if let Some(code) = pvp_agent::part_of_a_run() {
        return code;
    }
    let arguments = Arguments::parse();
    match cli::run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            cli::complain(&error);
            ExitCode::FAILURE
        }
    }
}
