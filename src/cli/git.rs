//! `pvp git`: records in a git repository which decisions led to a commit, and reads them back.

mod blame;
mod decision_record;
mod hook;
mod install;
mod repository;

use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Args)]
pub(crate) struct GitArguments {
    #[command(subcommand)]
    command: GitCommand,
}

#[derive(Subcommand)]
enum GitCommand {
    /// Install git hooks that record in each commit which approved commands led to it
    ///
    /// The hooks add trailers to commits made with `git commit -m` and a note in refs/notes/pvp to
    /// every commit. A commit never fails because of them: without a server that answers within a
    /// second, they do nothing.
    Install(install::InstallArguments),
    /// Remove the hooks that `pvp git install` installed
    Uninstall(install::UninstallArguments),
    /// Show who approved the command behind each line of a file
    ///
    /// Reads the notes in refs/notes/pvp and the trailers of the commits, without asking a server.
    /// A line from a commit without a decision has `-` in place of the approvers. Anyone who may
    /// write to the repository can write such notes and trailers; `pvp history` and `pvp audit` show
    /// what the signed log says about a proposal.
    Blame(blame::BlameArguments),
    /// Called by the hooks
    #[command(hide = true)]
    Hook(hook::HookArguments),
}

pub(crate) fn run(arguments: &GitArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        GitCommand::Install(arguments) => install::install(arguments),
        GitCommand::Uninstall(arguments) => install::uninstall(arguments),
        GitCommand::Blame(arguments) => blame::run(arguments),
        GitCommand::Hook(arguments) => Ok(hook::run(arguments)),
    }
}
