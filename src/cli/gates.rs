//! `pvp gates`, `pvp show`, `pvp approve`, `pvp reject` and `pvp amend`: list and decide gates.

mod card;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::view::ToolCallView;
use pvp_client::{ApiClient, ApiError, now};
use pvp_protocol::api::{
    EditRequest, GateListItem, GateStatus, GateUpdateResponse, NamedProposal, VoteChoice,
    VoteRequest,
};
use pvp_protocol::{Command, JsonObject, MessageId};
use serde::Serialize;
use serde_json::{Value, json};

use super::links::LinkArguments;
use super::proposal_handle::CommandHandle;
use super::{print_json, print_line, rules};

/// How long one request to the server waits for a change.
const LONG_POLL: Duration = Duration::from_secs(30);

/// How long to wait before retrying a request that the server did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct GatesArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Keep running, and print each command that begins or stops waiting
    #[arg(long, short)]
    watch: bool,
    /// Print JSON: the list, or with --watch one line per change
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The handle or id of the command, as `pvp gates` prints it
    #[arg(value_name = "HANDLE")]
    gate: String,
    /// Print the scripts that the command runs, with their content
    #[arg(long)]
    files: bool,
    /// Print JSON; of a tool call, `call` says what it changes
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ApproveArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The handle of the command, as `pvp gates` prints it; it approves exactly the command shown with
    /// it. An id without a digest works if nobody has edited the command
    #[arg(value_name = "HANDLE")]
    gate: String,
    /// A comment for the log
    #[arg(long)]
    comment: Option<String>,
    /// Also allow reads in this directory without approval, for one hour
    #[arg(long, value_name = "DIR")]
    allow_read: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct RejectArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The handle or id of the command, as `pvp gates` prints it
    #[arg(value_name = "HANDLE")]
    gate: String,
    /// The reason, which the agent reads
    reason: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct AmendArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The handle or id of the command, as `pvp gates` prints it
    #[arg(value_name = "HANDLE")]
    gate: String,
    /// The command to run instead
    command: String,
    /// The reason, which the agent reads
    #[arg(long)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(arguments: &GatesArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    // A remembered link may name a session; the others that it opens are listed all the same.
    let session = arguments.link.session_flag();
    if let Some(session) = &session {
        // First, because the server may refuse a session whose log was altered.
        super::check_record(&api, session, 0);
        // A session that does not exist must be an error, not an empty list.
        api.session(session)?;
    }
    let in_session = |gate: &GateListItem| {
        session
            .as_ref()
            .is_none_or(|session| *session == gate.session)
    };
    let mut list = api.list_gates(None, LONG_POLL)?;
    list.gates.retain(in_session);
    let listed = list.gates.iter().map(|gate| &gate.session);
    // The link's own session too, because an altered log may lack its gates.
    let listed: BTreeSet<_> = listed.chain(api.link().session()).collect();
    for listed in listed.into_iter().filter(|_| session.is_none()) {
        super::check_record(&api, listed, 0);
    }
    if arguments.watch {
        return watch(&api, list.version, list.gates, arguments.json, in_session);
    }
    if arguments.json {
        print_json(serde_json::to_string(&list)?)?;
    } else if list.gates.is_empty() {
        print_line("no commands are waiting for a decision")?;
    } else {
        for line in card::summary_lines(&list.gates, now()) {
            print_line(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints changes until interrupted; retries while the server is unreachable.
fn watch(
    api: &ApiClient,
    mut version: u64,
    gates: Vec<GateListItem>,
    json: bool,
    in_session: impl Fn(&GateListItem) -> bool,
) -> anyhow::Result<ExitCode> {
    let by_id = |gates: Vec<GateListItem>| -> BTreeMap<MessageId, GateListItem> {
        gates
            .into_iter()
            .map(|gate| (gate.open.gate.clone(), gate))
            .collect()
    };
    let mut known = BTreeMap::new();
    let mut next = by_id(gates);
    loop {
        for (id, gate) in &next {
            if known.get(id) != Some(gate) {
                print_opened(gate, known.contains_key(id), json)?;
            }
        }
        for (id, gate) in &known {
            if !next.contains_key(id) {
                print_closed(api, gate, json)?;
            }
        }
        known = next;
        let list = retry_transient(|| api.list_gates(Some(version), LONG_POLL))?;
        version = list.version;
        let mut gates = list.gates;
        gates.retain(&in_session);
        let sessions: BTreeSet<_> = gates.iter().map(|gate| &gate.session).collect();
        for session in sessions {
            super::check_record(api, session, 0);
        }
        next = by_id(gates);
    }
}

/// Repeats a request until it succeeds or fails for good.
fn retry_transient<T>(request: impl Fn() -> Result<T, ApiError>) -> anyhow::Result<T> {
    loop {
        match request() {
            Err(error) if error.is_transient() => {
                super::print_error(&error.into());
                std::thread::sleep(RETRY_DELAY);
            }
            result => return Ok(result?),
        }
    }
}

fn print_opened(gate: &GateListItem, changed: bool, json: bool) -> anyhow::Result<()> {
    if json {
        let event = if changed { "changed" } else { "open" };
        return print_json(json!({ "event": event, "gate": gate }));
    }
    let mark = if changed { '~' } else { '+' };
    for line in card::summary_lines(std::slice::from_ref(gate), now()) {
        print_line(format!("{mark} {line}"))?;
    }
    Ok(())
}

fn print_closed(api: &ApiClient, gate: &GateListItem, json: bool) -> anyhow::Result<()> {
    let state = retry_transient(|| api.gate(&gate.session, &gate.open.gate))?;
    if json {
        return print_json(json!({ "event": "closed", "gate": state }));
    }
    let short = gate.open.request.action_ref.short();
    print_line(format!("- {short}  {}", card::resolution_text(&state)))
}

/// The open gate that a handle means, in any session that the link opens.
fn find_gate(api: &ApiClient, link: &LinkArguments, handle: &str) -> anyhow::Result<GateListItem> {
    let session = link.session_flag();
    CommandHandle::parse(handle)?.find_open_gate(api, session.as_ref())
}

pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let session = arguments.link.session_flag();
    let found = CommandHandle::parse(&arguments.gate)?.find(&api, session.as_ref())?;
    if found.gate.is_none() {
        return show_ungated(&api, &found, arguments.json);
    }
    let state = api.gate(&found.session, &found.tool_proposal)?;
    if arguments.json {
        print_json(with_call(&state, card::gate_call(&state))?)?;
    } else if arguments.files {
        print_line(card::file_contents(&state))?;
    } else {
        card::print_card(&card::full_card(&state, now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a command that never waited at a gate.
fn show_ungated(api: &ApiClient, found: &NamedProposal, json: bool) -> anyhow::Result<ExitCode> {
    let record = super::history::find_record(api, found)?;
    match json {
        true => print_json(with_call(&record, card::record_call(&record))?)?,
        false => card::print_card(&card::command_card(&record))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The server's answer, and the tool call in it as a person reads it.
fn with_call(answer: &impl Serialize, call: Option<ToolCallView>) -> anyhow::Result<Value> {
    let mut answer = serde_json::to_value(answer).context("writing the answer")?;
    if let Some(call) = call {
        answer["call"] = serde_json::to_value(call).context("writing the call")?;
    }
    Ok(answer)
}

pub(crate) fn approve(arguments: &ApproveArguments) -> anyhow::Result<ExitCode> {
    let request = VoteRequest {
        vote: VoteChoice::Approve,
        comment: arguments.comment.clone(),
        reason: None,
        digest: None,
        id: None,
    };
    let Some(root) = &arguments.allow_read else {
        return vote(&arguments.link, &arguments.gate, request, arguments.json);
    };
    // First, so that nothing is approved if the directory is refused.
    let api = arguments.link.api_client()?;
    let gate = find_gate(&api, &arguments.link, &arguments.gate)?;
    rules::allow_reading(&api, &gate.session, root, rules::DEFAULT_SECONDS, None)?;
    vote(&arguments.link, &arguments.gate, request, arguments.json)
}

pub(crate) fn reject(arguments: &RejectArguments) -> anyhow::Result<ExitCode> {
    if arguments.reason.trim().is_empty() {
        bail!("the reason is empty; say why, because the agent reads it");
    }
    let request = VoteRequest {
        vote: VoteChoice::Reject,
        comment: None,
        reason: Some(arguments.reason.clone()),
        digest: None,
        id: None,
    };
    vote(&arguments.link, &arguments.gate, request, arguments.json)
}

/// Votes on exactly the command that this prints.
fn vote(
    link: &LinkArguments,
    gate: &str,
    mut request: VoteRequest,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let api = link.api_client()?;
    let gate = find_gate(&api, link, gate)?;
    request.digest = Some(gate.open.assessment.digest);
    let answer = api.vote(&gate.session, &gate.open.gate, &request)?;
    let verb = match request.vote {
        VoteChoice::Approve if answer.ack.duplicate => "you had approved this already",
        VoteChoice::Approve => "approved",
        VoteChoice::Reject => "rejected",
    };
    print_answer(&gate, verb, &answer, json)
}

pub(crate) fn amend(arguments: &AmendArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let gate = find_gate(&api, &arguments.link, &arguments.gate)?;
    let request = EditRequest {
        arguments: edited_arguments(&gate, &arguments.command)?,
        digest: gate.open.assessment.digest,
        reason: arguments.reason.clone(),
        id: None,
    };
    let answer = api.amend(&gate.session, &gate.open.gate, &request)?;
    print_answer(&gate, "edited", &answer, arguments.json)
}

/// The arguments of the proposal with a new command line; everything else is unchanged.
fn edited_arguments(gate: &GateListItem, command: &str) -> anyhow::Result<JsonObject> {
    let action = &gate.open.action;
    if let Command::Tool { name, .. } = &action.command {
        bail!("`{name}` is not a shell command; edit it with `pvp send --type gate.amend`");
    }
    let mut arguments = JsonObject::new();
    arguments.insert("full_command".to_owned(), command.into());
    let rest = serde_json::to_value(action).context("writing the action")?;
    for (field, key) in [
        ("cwd", "cwd"),
        ("env", "env"),
        ("mode", "mode"),
        ("timeout_seconds", "timeout"),
        ("driver", "driver"),
        ("secrets", "secrets"),
        ("files", "files"),
    ] {
        if !rest[field].is_null() {
            arguments.insert(key.to_owned(), rest[field].clone());
        }
    }
    Ok(arguments)
}

fn print_answer(
    gate: &GateListItem,
    verb: &str,
    answer: &GateUpdateResponse,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if json {
        print_json(serde_json::to_string(answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = answer.gate.open.as_ref().unwrap_or(gate);
    let short = shown.open.request.action_ref.short();
    print_line(format!("{verb}: {short}  {}", card::command_line(shown)))?;
    match (&answer.gate.status, &answer.gate.open) {
        (GateStatus::Open, Some(open)) => {
            print_line(format!("still waiting: {}", card::tally_text(open)))?
        }
        _ => print_line(card::resolution_text(&answer.gate))?,
    }
    Ok(ExitCode::SUCCESS)
}
