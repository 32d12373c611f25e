//! `pvp sessions` and `pvp create`: list, create, archive and delete sessions.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use pvp_client::ApiClient;
use pvp_protocol::SessionId;
use pvp_protocol::api::{CreateSessionRequest, SessionListItem};
use pvp_server::store::audit::verify_export;

use super::links::LinkArguments;
use super::session_settings::SettingsArguments;
use super::{print_json, print_line};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SessionsArguments {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    #[command(flatten)]
    list: ListArguments,
}

#[derive(Subcommand)]
enum SessionsCommand {
    /// Save the whole log of a session that has ended, for `pvp audit verify --export`
    Archive {
        #[command(flatten)]
        link: LinkArguments,
        /// The id of the session
        #[arg(value_parser = super::parse_session_id)]
        id: SessionId,
        /// The file to write, which must not exist
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
    },
    /// Delete a session that has ended; a signed tombstone remains
    Delete {
        #[command(flatten)]
        link: LinkArguments,
        /// The id of the session
        #[arg(value_parser = super::parse_session_id)]
        id: SessionId,
        /// Delete the session only if this file, from `pvp sessions archive`, has its whole log
        #[arg(long, value_name = "FILE")]
        archived: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
struct ListArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Include sessions that have ended
    #[arg(long, short)]
    all: bool,
    /// Print at most N sessions
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
    /// The id of the session, such as blue-owl [default: a random one]
    #[arg(value_parser = super::parse_session_id)]
    id: Option<SessionId>,
    /// The display name of the session
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    settings: SettingsArguments,
    /// Other settings: a TOML file, or JSON such as '{"gate_timeout_seconds": 600}'
    #[arg(long, value_name = "FILE|JSON")]
    config: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &SessionsArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        None => list(&arguments.list),
        Some(SessionsCommand::Archive { link, id, to }) => archive(&link.api_client()?, id, to),
        Some(SessionsCommand::Delete {
            link,
            id,
            archived,
            json,
        }) => {
            let head = match archived {
                Some(path) => Some(archived_entries(path, id)?),
                None => None,
            };
            let tombstone = link.api_client()?.delete_session(id, head)?;
            print_line(match json {
                true => serde_json::to_string(&tombstone)?,
                false => format!(
                    "deleted {id}; its log had {}, the last with the hash {}",
                    entries_text(tombstone.entries),
                    tombstone.head
                ),
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn archive(api: &ApiClient, session: &SessionId, to: &Path) -> anyhow::Result<ExitCode> {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(to)
        .with_context(|| format!("creating {}", to.display()))?;
    let written = write_archive(api, session, &file).and_then(|()| archived_entries(to, session));
    match written {
        Ok(entries) => print_line(format!("archived {session}: {}", entries_text(entries)))?,
        Err(error) => {
            // Half of an archive looks like a whole one.
            std::fs::remove_file(to)
                .with_context(|| format!("removing {}, which is incomplete", to.display()))?;
            return Err(error);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn entries_text(entries: u64) -> String {
    match entries {
        1 => "1 entry".to_owned(),
        many => format!("{many} entries"),
    }
}

fn write_archive(api: &ApiClient, session: &SessionId, file: &File) -> anyhow::Result<()> {
    let mut out = BufWriter::new(file);
    api.archive_session(session, &mut out)?;
    out.flush().context("writing the archive")?;
    drop(out);
    file.sync_all().context("writing the archive")
}

/// How many entries an archive has, if it is an intact one of this session.
fn archived_entries(path: &Path, session: &SessionId) -> anyhow::Result<u64> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let report = verify_export(&mut BufReader::new(file), &[])?;
    if let Some(finding) = report.first_finding() {
        bail!("{} is not intact: {finding}", path.display());
    }
    match report.sessions.as_slice() {
        [one] if one.session == *session => Ok(one.entries),
        _ => bail!("{} is not an archive of {session}", path.display()),
    }
}

fn list(arguments: &ListArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let query = [
        ("limit", Some(arguments.limit.to_string())),
        ("ended", (!arguments.all).then(|| "false".to_owned())),
    ];
    let list = api.list_sessions(&query)?;
    if arguments.json {
        print_json(serde_json::to_string(&list)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if list.sessions.is_empty() {
        print_line("no sessions")?;
    }
    for session in &list.sessions {
        print_line(summary_line(session))?;
    }
    if list.more {
        print_line("… older sessions are not shown; show more with -n")?;
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
    let config = arguments.settings.config(arguments.config.as_deref());
    let config = config.context("--config")?;
    let new = CreateSessionRequest {
        session: arguments.id.clone(),
        name: arguments.name.clone(),
        config,
    };
    let created = api.create_session(&new)?;
    if arguments.json {
        print_json(serde_json::to_string(&created)?)?;
    } else {
        print_line(format!("created {}", created.session))?;
    }
    Ok(ExitCode::SUCCESS)
}
