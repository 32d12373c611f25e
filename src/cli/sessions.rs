//! `pvp sessions` and `pvp create`: list and create sessions.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_protocol::api::{CreateSessionRequest, SessionListItem};
use pvp_protocol::{SessionConfig, SessionId};

use super::links::LinkArguments;
use super::print_line;

#[derive(Args)]
pub(crate) struct SessionsArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Those that have ended too
    #[arg(long, short)]
    all: bool,
    /// At most this many
    #[arg(long, short = 'n', default_value_t = 100, value_name = "N")]
    limit: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Its id, such as blue-owl; a fresh one if not given
    #[arg(value_parser = super::parse_session_id)]
    id: Option<SessionId>,
    /// What people call it
    #[arg(long)]
    name: Option<String>,
    /// Its configuration, as JSON: the fields of `session.create`
    #[arg(long, value_name = "JSON")]
    config: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(arguments: &SessionsArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let query = [
        ("limit", Some(arguments.limit.to_string())),
        ("ended", (!arguments.all).then(|| "false".to_owned())),
    ];
    let list = api.list_sessions(&query)?;
    if arguments.json {
        print_line(serde_json::to_string(&list)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if list.sessions.is_empty() {
        print_line("no sessions")?;
    }
    for session in &list.sessions {
        print_line(summary_line(session))?;
    }
    if list.more {
        print_line("… and older ones; ask for more with -n")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn summary_line(session: &SessionListItem) -> String {
    let state = match (session.ended, session.open_gates) {
        (true, _) => "ended".to_owned(),
        (false, 0) => "open".to_owned(),
        (false, 1) => "1 gate".to_owned(),
        (false, many) => format!("{many} gates"),
    };
    let name = session.name.as_deref().unwrap_or_default();
    format!(
        "{:<24}  {state:<9}  {:>7} messages  {}  {}",
        session.session.as_str(),
        session.head,
        session.updated_at,
        super::one_line(name)
    )
}

pub(crate) fn create(arguments: &CreateArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let config = match &arguments.config {
        None => SessionConfig::default(),
        Some(text) => serde_json::from_str(text).context("--config")?,
    };
    let new = CreateSessionRequest {
        session: arguments.id.clone(),
        name: arguments.name.clone(),
        config,
    };
    let created = api.create_session(&new)?;
    if arguments.json {
        print_line(serde_json::to_string(&created)?)?;
    } else {
        print_line(format!("made {}", created.session))?;
    }
    Ok(ExitCode::SUCCESS)
}
