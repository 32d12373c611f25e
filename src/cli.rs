//! One module a command.

mod audit;
mod invite;
mod server;
mod tokens;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Server(server::ServerArguments),
    /// Invite a person or an agent: makes a token and its link.
    Invite(invite::InviteArguments),
    /// List or revoke tokens.
    Tokens(tokens::TokensArguments),
    /// Check, read or export the record of what happened.
    Audit(audit::AuditArguments),
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Server(arguments) => server::run(arguments),
        Command::Invite(arguments) => invite::run(arguments),
        Command::Tokens(arguments) => tokens::run(&arguments),
        Command::Audit(arguments) => audit::run(arguments),
    }
}

/// Prints a line that was asked for.
fn say(line: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{line}").context("writing to standard output")
}

/// Says what went wrong; if even that fails there is nobody left to tell.
pub(crate) fn complain(error: &anyhow::Error) {
    let _ = writeln!(std::io::stderr(), "pvp: {error:#}");
}
