//! Keeps what an agent client runs from deciding in the name of the person who started the client.
//!
//! Both are the same user of this machine, so this stops whoever does not try to get around it, such
//! as a script of a repository; docs/bridges.md says what else to do.

use std::path::PathBuf;

use anyhow::bail;

use super::{CliCommand, hook_identity};

const STARTED_BY_CLIENT: &str =
    "an agent client under supervision started this; run it in another terminal";

/// Ancestors that are looked at.
const MAX_ANCESTORS: usize = 256;

/// Refuses commands that decide, let somebody in, speak for a person or change what a client asks,
/// below a supervised client.
pub(super) fn check(command: &CliCommand) -> anyhow::Result<()> {
    if let CliCommand::Hook(arguments) = command {
        return match arguments.changes_settings() && is_below_client() {
            true => bail!("{STARTED_BY_CLIENT}"),
            false => Ok(()),
        };
    }
    let decides = matches!(
        command,
        CliCommand::Approve(_)
            | CliCommand::Reject(_)
            | CliCommand::Amend(_)
            | CliCommand::Cancel(_)
            | CliCommand::Send(_)
            | CliCommand::Interrupt(_)
            | CliCommand::Rules(_)
            | CliCommand::Exec(_)
            | CliCommand::Session(_)
            | CliCommand::Create(_)
            | CliCommand::Connect(_)
            | CliCommand::Tui(_)
            | CliCommand::Join(_)
            | CliCommand::Login(_)
            | CliCommand::Logout(_)
            | CliCommand::Open(_)
            | CliCommand::Invite(_)
            | CliCommand::Tokens(_)
            | CliCommand::Notify(_)
    );
    if decides && is_below_client() {
        bail!("{STARTED_BY_CLIENT}");
    }
    Ok(())
}

fn is_below_client() -> bool {
    let own_program = std::env::current_exe().ok();
    let mut pid = parent_of("self");
    for _ in 0..MAX_ANCESTORS {
        let Some(ancestor) = pid.filter(|pid| *pid > 1) else {
            return false;
        };
        let name = ancestor.to_string();
        let program = std::fs::read_link(format!("/proc/{name}/exe")).ok();
        let runs_calls = is_same_program(program, own_program.as_ref()) && runs_calls(&name);
        if runs_calls || hook_identity::is_hooked(ancestor) {
            return true;
        }
        pid = parent_of(&name);
    }
    false
}

fn is_same_program(program: Option<PathBuf>, own: Option<&PathBuf>) -> bool {
    // A program that was installed anew meanwhile has another file of the same name.
    let name = |path: &PathBuf| {
        path.to_string_lossy()
            .trim_end_matches(" (deleted)")
            .to_owned()
    };
    match (program, own) {
        (Some(program), Some(own)) => name(&program) == name(own),
        (Some(_) | None, _) => false,
    }
}

/// Whether a process of this program is one that starts clients, or runs what an agent calls.
fn runs_calls(pid: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let subcommand = line.split(|byte| *byte == 0).nth(1);
    matches!(subcommand, Some(b"run" | b"acp" | b"mcp" | b"agent"))
}

fn parent_of(pid: &str) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
