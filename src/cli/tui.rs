//! `pvp tui`: shows a session in a full-screen terminal interface.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::user_directories::{config_directory, state_directory};
use pvp_client::{ApiClient, ConnectError, ConnectOptions, Link};
use pvp_protocol::api::CreateSessionRequest;
use pvp_protocol::{ParticipantId, Role, SessionConfig};
use pvp_tui::config::TuiConfig;
use pvp_tui::{DisplayTimeZone, LaunchOptions, Palette};

use super::links::LinkArguments;

/// Past messages to receive when joining: about as many as the view keeps.
const HISTORY_MESSAGES: u64 = 2000;

#[derive(Args)]
pub(crate) struct TuiArguments {
    /// The link, or `-` to read it from the first line of standard input [default: $PVP_LINK, or the
    /// link saved for this directory]. Other users of this machine can see arguments
    #[arg(value_name = "LINK")]
    target: Option<String>,
    #[command(flatten)]
    link: LinkArguments,
    /// Create the session if it does not exist
    #[arg(long)]
    create: bool,
    /// Join with fewer roles than the token allows; may be given several times
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// The participant id to join as, on a server without login
    #[arg(long = "as", value_name = "ID", value_parser = super::parse_participant_id)]
    participant: Option<ParticipantId>,
    /// Print one line per event and read commands as words, for a screen reader or a pipe
    #[arg(long)]
    plain: bool,
    /// The settings: a TOML file, or JSON such as '{"mouse": true}' [default: pvp/tui.toml in the
    /// user's config directory]
    #[arg(long, env = "PVP_TUI_CONFIG", value_name = "FILE|JSON")]
    config: Option<PathBuf>,
}

pub(crate) fn run(arguments: TuiArguments) -> anyhow::Result<ExitCode> {
    let config = load_config(arguments.config.as_deref())?;
    let link = arguments
        .link
        .resolve_link_or(arguments.target.as_deref())?;
    let link = match arguments.create {
        true => ensure_session(link, &arguments.link)?,
        false => link,
    };
    let options = ConnectOptions {
        session: match link.token() {
            Some(_) => Some(
                arguments
                    .link
                    .resolve_session(&ApiClient::new(link.clone()))?,
            ),
            None => arguments.link.named_session(&link),
        },
        roles: (!arguments.roles.is_empty()).then(|| arguments.roles.clone()),
        participant: arguments.participant,
        history: Some(HISTORY_MESSAGES),
        record_check: super::reported_record_check(),
        ..ConnectOptions::default()
    };
    let launch_options = LaunchOptions {
        link,
        options,
        config,
        // Without a home directory, no input history is kept.
        history_path: state_directory().map(|state| state.join("history")).ok(),
    };
    let runtime = super::runtime()?;
    let result = runtime.block_on(async {
        match arguments.plain {
            true => pvp_tui::run_plain(launch_options).await,
            false => pvp_tui::run(launch_options).await,
        }
    });
    // A read from standard input may still be blocked; do not wait for it.
    runtime.shutdown_background();
    result.map_err(suggest_flag)?;
    Ok(ExitCode::SUCCESS)
}

/// Loads the settings file given, or else the user's if there is one.
pub(super) fn load_config(path: Option<&std::path::Path>) -> anyhow::Result<TuiConfig> {
    let default_path = config_directory()?.join("tui.toml");
    let mut config = match path {
        Some(json) if json.to_string_lossy().trim_start().starts_with('{') => {
            let parsed = TuiConfig::parse_json(&json.to_string_lossy());
            parsed.map_err(|problem| anyhow::anyhow!("--config: {problem}"))?
        }
        Some(path) => TuiConfig::read(path)?,
        None if default_path.exists() => TuiConfig::read(&default_path)?,
        None => TuiConfig::default(),
    };
    config.time_zone = DisplayTimeZone::local();
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        config.palette = Palette::None;
    }
    Ok(config)
}

/// Creates the session if it does not exist; returns a link to it.
fn ensure_session(link: Link, arguments: &LinkArguments) -> anyhow::Result<Link> {
    let session = arguments.named_session(&link);
    let new = CreateSessionRequest {
        session: session.clone(),
        name: None,
        config: SessionConfig::default(),
    };
    let api = ApiClient::new(link.clone());
    match session {
        // On a server without login, joining creates it.
        Some(session) if link.token().is_none() => Ok(link.with_session(session)),
        Some(session) => {
            super::up::create_session_if_missing(&api, &session, None, SessionConfig::default())?;
            Ok(link.with_session(session))
        }
        None => {
            let created = api.create_session(&new).context("creating a session")?;
            Ok(link.with_session(created.session))
        }
    }
}

/// Adds the flag that helps to the error.
fn suggest_flag(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<ConnectError>() {
        Some(ConnectError::NoSession) => error.context("choose a session with --session"),
        Some(ConnectError::NoParticipant) => error.context("give your participant id with --as"),
        Some(
            ConnectError::Api(_)
            | ConnectError::Refused(_)
            | ConnectError::RecordChanged(_)
            | ConnectError::Failed(_),
        )
        | None => error,
    }
}
