//! `pvp history` and `pvp output`: list the commands of a session and read their output.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::view::{command_headline, escape_invisible, parse_tool_summary};
use pvp_client::{ApiClient, narrate};
use pvp_protocol::api::{CommandRecord, CommandStatus, EarlierCommand, NamedProposal};
use pvp_protocol::payload::Approval;
use pvp_protocol::{Action, SHORT_ID_LENGTH, SessionId};

use super::links::LinkArguments;
use super::proposal_handle::{CommandHandle, list_names};
use super::{one_line, print_json, print_line};

/// Commands per request.
const PAGE_SIZE: u64 = 200;

#[derive(Args)]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Print only commands that contain this text
    grep: Option<String>,
    /// Only commands with this status: waiting, running, blocked, rejected, timed_out, cancelled or finished
    #[arg(long, value_parser = parse_status)]
    status: Option<CommandStatus>,
    /// Print at most N commands, the newest last
    #[arg(long, short = 'n', default_value_t = 50, value_name = "N")]
    limit: usize,
    /// Print JSON, one command per line
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct OutputArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The id of the command, as `pvp history` prints it
    #[arg(value_name = "HANDLE")]
    command: String,
    /// Print only this stream
    #[arg(long, value_parser = ["stdout", "stderr"])]
    stream: Option<String>,
    /// Skip this many lines
    #[arg(long, value_name = "N")]
    offset: Option<u64>,
    /// Print at most N lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print the first N lines
    #[arg(long, value_name = "N")]
    head: Option<u64>,
    /// Print the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<u64>,
    /// Print only lines that contain this text
    #[arg(long, value_name = "TEXT")]
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
    let names = list_names(commands.iter().map(|command| &command.tool_proposal));
    for (name, command) in names.iter().zip(&commands) {
        if arguments.json {
            print_json(serde_json::to_string(command)?)?;
            continue;
        }
        for line in summary_lines(name, command) {
            print_line(line)?;
        }
    }
    if commands.is_empty() && !arguments.json {
        let filtered = grep.is_some() || status.is_some();
        print_line(match filtered {
            true => "no commands match",
            false => "no commands yet",
        })?;
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

/// The record of a proposal.
pub(super) fn find_record(api: &ApiClient, found: &NamedProposal) -> anyhow::Result<CommandRecord> {
    let query = [
        ("before", Some((found.seq + 1).to_string())),
        ("limit", Some("1".to_owned())),
    ];
    let page = api.history(&found.session, &query)?;
    let mut commands = page.commands.into_iter();
    let record = commands.find(|record| record.tool_proposal == found.tool_proposal);
    record.with_context(|| format!("the server has no record of {}", found.tool_proposal))
}

/// One command: a line, and one more for each version that an edit replaced.
fn summary_lines(name: &str, record: &CommandRecord) -> Vec<String> {
    let decision = decision_text(record).map(|decision| format!("  {decision}"));
    let line = format!(
        "{name:<SHORT_ID_LENGTH$}  {:<11}  {:<9}  {}{}",
        record.category.label(record.sensitive_read),
        outcome_text(record),
        command_text(record, &record.command),
        decision.unwrap_or_default()
    );
    let indent = " ".repeat(SHORT_ID_LENGTH);
    let edits = record.earlier.iter();
    let edits = edits.map(|earlier| format!("{indent}  edited {}", edit_text(record, earlier)));
    std::iter::once(line).chain(edits).collect()
}

/// A version of a command on one line; of a tool call, its headline.
fn command_text(record: &CommandRecord, command: &str) -> String {
    match tool_action(record, command) {
        Some(action) => one_line(&command_headline(&action.command)),
        None => one_line(command),
    }
}

/// A version of a tool call; `None` if the command is none.
pub(super) fn tool_action(record: &CommandRecord, command: &str) -> Option<Action> {
    parse_tool_summary(record.tool.as_deref()?, command)
}

/// An edit: who made it, what the command was before, why, and which votes it made void.
pub(super) fn edit_text(record: &CommandRecord, earlier: &EarlierCommand) -> String {
    let mut text = format!(
        "by {}; was: {}",
        earlier.edited_by,
        command_text(record, &earlier.command)
    );
    let reason = earlier
        .reason
        .as_deref()
        .filter(|reason| !reason.is_empty());
    if let Some(reason) = reason {
        text += &format!(" ({})", one_line(reason));
    }
    let void = approver_names(&earlier.void_approvals);
    match earlier.void_approvals.len() {
        0 => {}
        1 => text += &format!("; the approval of {void} is void"),
        _ => text += &format!("; the approvals of {void} are void"),
    }
    text
}

/// Who or what let a command run, or kept it from running; `None` if nobody has decided.
pub(super) fn decision_text(record: &CommandRecord) -> Option<String> {
    if let Some(rule) = &record.allowed_by {
        let (prefix, by) = (one_line(&rule.prefix.join(" ")), &rule.participant);
        return Some(format!("allowed by the rule `{prefix} …` of {by}"));
    }
    let resolution = record.resolution.as_ref();
    if let Some((resolution, by)) = resolution.and_then(|it| Some((it, it.by.as_ref()?))) {
        let outcome = narrate::outcome_text(resolution.outcome);
        let reason = resolution.reason.as_deref().map(one_line);
        let reason = reason.map(|reason| format!(" ({reason})"));
        return Some(format!("{outcome} by {by}{}", reason.unwrap_or_default()));
    }
    match record.approvals.as_slice() {
        [] => None,
        approvals => Some(format!("approved by {}", approver_names(approvals))),
    }
}

fn approver_names(approvals: &[Approval]) -> String {
    let names: Vec<_> = approvals.iter().map(|it| it.participant.as_str()).collect();
    names.join(", ")
}

/// The state of a command in a word or two.
pub(super) fn status_text(status: CommandStatus) -> &'static str {
    match status {
        CommandStatus::Waiting => "waiting",
        CommandStatus::Running => "running",
        CommandStatus::Blocked => "blocked",
        CommandStatus::Rejected => "rejected",
        CommandStatus::TimedOut => "timed out",
        CommandStatus::Cancelled => "cancelled",
        CommandStatus::Finished => "finished",
    }
}

/// The state of a command, with its exit code if it has ended.
pub(super) fn outcome_text(record: &CommandRecord) -> String {
    match (record.status, &record.result) {
        (CommandStatus::Finished, Some(result)) => match (result.exit_code, &result.error) {
            // A client may say that it ended well and that it ran something else.
            (Some(0), Some(error)) if !result.success => one_line(error),
            (Some(code), _) => format!("exit {code}"),
            (None, Some(error)) => one_line(error),
            (None, None) => "finished".to_owned(),
        },
        (status, _) => status_text(status).to_owned(),
    }
}

pub(crate) fn output(arguments: &OutputArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let session = arguments.link.session_flag();
    let found = CommandHandle::parse(&arguments.command)?.find(&api, session.as_ref())?;
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let query = [
        ("stream", arguments.stream.clone()),
        ("offset", number(arguments.offset)),
        ("limit", number(arguments.limit)),
        ("head", number(arguments.head)),
        ("tail", number(arguments.tail)),
        ("grep", arguments.grep.clone()),
    ];
    let page = api.output(&found.session, &found.tool_proposal, &query)?;
    if arguments.json {
        print_json(serde_json::to_string(&page)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for line in &page.lines {
        print_line(escape_invisible(&line.text))?;
    }
    if page.cut {
        writeln!(
            std::io::stderr(),
            "pvp: there is more output; read it with --offset"
        )
        .context("writing to standard error")?;
    }
    Ok(ExitCode::SUCCESS)
}
