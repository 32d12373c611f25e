//! `pvp` alone: says who you are in this directory, what is waiting, and what to do next.

mod report;

use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use pvp_client::{ApiClient, ApiError, Link};
use pvp_protocol::ParticipantKind;
use pvp_protocol::api::{GateListItem, SessionListItem, WhoAmI};

use super::links::{self, LinkArguments};
use super::program_name::program_name;
use super::{print_line, server};
use report::{Report, ServerState};

/// How long one answer of the server may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long everything may take. Looking up a name can block for longer than any timeout of a
/// request.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Sessions to ask for.
const MAX_SESSIONS: u64 = 100;

pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let report = Report {
        pvp: program_name(),
        has_join: has_command("join"),
        has_data_here: server::default_data_directory().is_ok_and(|data| data.exists()),
        has_agent_link: links::directory_link_path(ParticipantKind::Agent)
            .is_ok_and(|file| file.exists()),
        server: server_state(),
    };
    print_line(report.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Whether this program has a command of this name.
fn has_command(name: &str) -> bool {
    use clap::CommandFactory;
    crate::CliArguments::command()
        .find_subcommand(name)
        .is_some()
}

fn server_state() -> ServerState {
    let link = match LinkArguments::default().resolve_link() {
        Ok((link, _)) => link,
        Err(_) if no_link_is_saved() => return ServerState::Unknown,
        Err(problem) => return ServerState::UnusableLink(format!("{problem:#}")),
    };
    let base = link.base_url().to_owned();
    let (sender, answer) = mpsc::channel();
    // A thread that nobody waits for once the time is up.
    std::thread::spawn(move || {
        // Nobody listens any more if the time was up.
        let _ = sender.send(ask(link));
    });
    let why = "it does not answer".to_owned();
    let late = ServerState::Unreachable { base, why };
    answer.recv_timeout(TOTAL_TIMEOUT).unwrap_or(late)
}

fn no_link_is_saved() -> bool {
    let holders = [ParticipantKind::Human, ParticipantKind::Agent];
    let saved = links::find_saved_link(&holders);
    std::env::var_os("PVP_LINK").is_none_or(|link| link.is_empty())
        && saved.is_ok_and(|saved| saved.is_none())
}

/// Asks the server who the holder of the link is, and what is waiting.
fn ask(link: Link) -> ServerState {
    let base = link.base_url().to_owned();
    let api = ApiClient::with_timeout(link, ANSWER_TIMEOUT);
    let answer = || -> Result<(WhoAmI, Vec<SessionListItem>, Vec<GateListItem>), ApiError> {
        let me = api.whoami()?;
        let open = [
            ("ended", Some("false".to_owned())),
            ("limit", Some(MAX_SESSIONS.to_string())),
        ];
        let sessions = api.list_sessions(&open)?.sessions;
        let gates = api.list_gates(None, Duration::ZERO)?.gates;
        Ok((me, sessions, gates))
    };
    match answer() {
        Ok((me, sessions, gates)) => ServerState::Running {
            base,
            me,
            sessions,
            gates,
        },
        Err(ApiError::Refused(refusal)) => ServerState::Refused {
            base,
            why: refusal.message.clone(),
        },
        Err(error @ (ApiError::InvalidResponse { .. } | ApiError::Untrusted { .. })) => {
            ServerState::Refused {
                base,
                why: error.to_string(),
            }
        }
        Err(ApiError::Unreachable { why, .. } | ApiError::NotSent { why, .. }) => {
            // The innermost cause says it; the others name the layers above it.
            let why = why.rsplit(": ").next().unwrap_or(&why).to_owned();
            ServerState::Unreachable { base, why }
        }
    }
}
