//! `pvp history` and `pvp output`: list the commands of a session and read their output.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::ApiClient;
use pvp_client::view::escape_invisible;
use pvp_protocol::api::{CommandRecord, CommandStatus};
use pvp_protocol::{MessageId, SessionId};

use super::links::LinkArguments;
use super::{one_line, print_json, print_line};

/// Commands per request.
const PAGE_SIZE: u64 = 200;

#[derive(Args)]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Only commands that contain this text
    grep: Option<String>,
    /// Only those that are waiting, running, blocked, rejected, timed_out, cancelled or finished
    #[arg(long, value_parser = parse_status)]
    status: Option<CommandStatus>,
    /// At most this many, the newest last
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Print JSON, one command a line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct OutputArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The command: its id as `pvp history` prints it, or the end of it
    command: String,
    /// Only `stdout` or `stderr`
    #[arg(long, value_parser = ["stdout", "stderr"])]
    stream: Option<String>,
    /// First line, counted from 0
    #[arg(long)]
    offset: Option<u64>,
    /// At most this many lines
    #[arg(long)]
    limit: Option<u64>,
    /// Only the first lines
    #[arg(long)]
    head: Option<u64>,
    /// Only the last lines
    #[arg(long)]
    tail: Option<u64>,
    /// Only lines that contain this text
    #[arg(long)]
    grep: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_status(text: &str) -> Result<CommandStatus, String> {
    let status = CommandStatus::ALL
        .iter()
        .find(|status| status.as_str() == text);
    status.copied().ok_or_else(|| {
        let names: Vec<_> = CommandStatus::ALL.iter().map(|it| it.as_str()).collect();
        let (last, others) = names.split_last().expect("there are several");
        format!("use {} or {last}", others.join(", "))
    })
}

pub(crate) fn run(arguments: &HistoryArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    let (grep, status) = (arguments.grep.as_deref(), arguments.status);
    let mut commands = fetch_recent(&api, &session, grep, status, arguments.limit)?;
    commands.reverse();
    for command in &commands {
        match arguments.json {
            true => print_json(serde_json::to_string(command)?)?,
            false => print_line(summary_line(command))?,
        }
    }
    if commands.is_empty() && !arguments.json {
        print_line("no such commands")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fetches the last commands, newest first.
fn fetch_recent(
    api: &ApiClient,
    session: &SessionId,
    grep: Option<&str>,
    status: Option<CommandStatus>,
    limit: usize,
) -> anyhow::Result<Vec<CommandRecord>> {
    let status = status.map(serde_json::to_value).transpose()?;
    let mut commands = Vec::new();
    let mut before = None;
    while commands.len() < limit {
        let query = [
            ("grep", grep.map(str::to_owned)),
            (
                "status",
                status
                    .as_ref()
                    .and_then(|word| word.as_str())
                    .map(str::to_owned),
            ),
            (
                "limit",
                Some(PAGE_SIZE.min((limit - commands.len()) as u64).to_string()),
            ),
            ("before", before.map(|seq: u64| seq.to_string())),
        ];
        let page = api.history(session, &query)?;
        commands.extend(page.commands);
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    Ok(commands)
}

fn summary_line(record: &CommandRecord) -> String {
    let who: Vec<_> = record
        .approvals
        .iter()
        .map(|approval| approval.participant.as_str())
        .collect();
    let approved = match who.as_slice() {
        [] => String::new(),
        who => format!("  ok by {}", who.join(", ")),
    };
    format!(
        "{}  {:<11}  {:<9}  {}{approved}",
        record.tool_proposal,
        record.category.label(record.sensitive_read),
        outcome_text(record),
        one_line(&record.command),
    )
}

fn outcome_text(record: &CommandRecord) -> String {
    match (&record.status, &record.result) {
        (CommandStatus::Waiting, _) => "waiting".to_owned(),
        (CommandStatus::Running, _) => "running".to_owned(),
        (CommandStatus::Blocked, _) => "blocked".to_owned(),
        (CommandStatus::Rejected, _) => "rejected".to_owned(),
        (CommandStatus::TimedOut, _) => "timed out".to_owned(),
        (CommandStatus::Cancelled, _) => "cancelled".to_owned(),
        (CommandStatus::Finished, Some(result)) => match (result.exit_code, &result.error) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(error)) => one_line(error),
            (None, None) => "ended".to_owned(),
        },
        (CommandStatus::Finished, None) => "ended".to_owned(),
    }
}

pub(crate) fn output(arguments: &OutputArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    let reference = resolve_command_id(&api, &session, &arguments.command)?;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let query = [
        ("stream", arguments.stream.clone()),
        ("offset", number(arguments.offset)),
        ("limit", number(arguments.limit)),
        ("head", number(arguments.head)),
        ("tail", number(arguments.tail)),
        ("grep", arguments.grep.clone()),
    ];
    let page = api.output(&session, &reference, &query)?;
    if arguments.json {
        print_json(serde_json::to_string(&page)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in &page.lines {
        print_line(escape_invisible(&line.text))?;
    }
    if page.cut {
        writeln!(std::io::stderr(), "pvp: there is more; ask with --offset")
            .context("writing to standard error")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Resolves an id, or the end of one, to a command.
fn resolve_command_id(
    api: &ApiClient,
    session: &SessionId,
    text: &str,
) -> anyhow::Result<MessageId> {
    let commands = fetch_recent(api, session, None, None, 1000)?;
    let ids: Vec<_> = commands.into_iter().map(|one| one.tool_proposal).collect();
    let whole = ids.iter().find(|id| id.as_str() == text);
    let mut ending = ids
        .iter()
        .filter(|id| text.len() >= 4 && id.as_str().ends_with(text));
    match (whole, ending.next(), ending.next()) {
        (Some(id), ..) | (None, Some(id), None) => Ok(id.clone()),
        (None, Some(one), Some(other)) => {
            bail!("`{text}` could be {one} or {other}; write more of it")
        }
        // It may be older than the commands fetched; the server decides.
        (None, None, _) => {
            MessageId::parse(text).map_err(|error| anyhow::anyhow!("`{text}`: {error}"))
        }
    }
}
