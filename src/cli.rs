//! One module a command.

mod audit;
mod check;
mod invite;
mod policy;
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
    /// How dangerous is this command, and why? The exit code says it too: 0 read, 10 write,
    /// 20 destructive, 30 blocked.
    Check(check::CheckArguments),
    /// The rules that commands are sorted by.
    Policy(policy::PolicyArguments),
    /// Check, read or export the record of what happened.
    Audit(audit::AuditArguments),
}

pub(crate) fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Server(arguments) => server::run(arguments),
        Command::Invite(arguments) => invite::run(arguments),
        Command::Tokens(arguments) => tokens::run(&arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Policy(arguments) => policy::run(arguments),
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
