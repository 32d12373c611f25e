//! `pvp gates`, `pvp show`, `pvp approve`, `pvp reject` and `pvp amend`: list and decide gates.

mod card;

pub(super) use card::gate_handle;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, ApiError, now};
use pvp_protocol::api::{
    EditRequest, GateDetails, GateListItem, GateStatus, GateUpdateResponse, VoteChoice, VoteRequest,
};
use pvp_protocol::{Command, JsonObject, MessageId};
use serde_json::json;

use super::links::LinkArguments;
use super::{print_json, print_line, rules};

/// How long one request to the server waits for a change.
const LONG_POLL: Duration = Duration::from_secs(30);

/// How long to wait before retrying a request that the server did not answer.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Args)]
pub(crate) struct GatesArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Go on, and print what opens and closes as it happens
    #[arg(long, short)]
    watch: bool,
    /// Print JSON: the list, or with --watch one line for each change
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The gate: its handle as `pvp gates` prints it, its id, or its proposal's id
    gate: String,
    /// Print the contents of the files that the command runs, as they must be when it starts
    #[arg(long)]
    files: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct ApproveArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The gate. A handle with `@` approves exactly what was shown with it
    gate: String,
    /// Said with the approval
    #[arg(long)]
    comment: Option<String>,
    /// Also let commands that only read do so below this directory without asking, for an hour
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
    gate: String,
    /// Why not; the agent reads it
    reason: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct AmendArguments {
    #[command(flatten)]
    link: LinkArguments,
    gate: String,
    /// The command that should run instead
    command: String,
    /// Why; the agent reads it
    #[arg(long)]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn list(arguments: &GatesArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let session = arguments.link.named_session(api.link());
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
    let listed: BTreeSet<_> = list.gates.iter().map(|gate| &gate.session).collect();
    for listed in listed.into_iter().filter(|_| session.is_none()) {
        super::check_record(&api, listed, 0);
    }
    if arguments.watch {
        return watch(&api, list.version, list.gates, arguments.json, in_session);
    }
    if arguments.json {
        print_json(serde_json::to_string(&list)?)?;
    } else if list.gates.is_empty() {
        print_line("nothing waits")?;
    } else {
        for gate in &list.gates {
            print_line(card::summary_line(gate, now()))?;
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
    print_line(format!("{mark} {}", card::summary_line(gate, now())))
}

fn print_closed(api: &ApiClient, gate: &GateListItem, json: bool) -> anyhow::Result<()> {
    let state = retry_transient(|| api.gate(&gate.session, &gate.open.gate))?;
    if json {
        return print_json(json!({ "event": "closed", "gate": state }));
    }
    let handle = card::gate_handle(gate);
    print_line(format!("- {handle}  {}", card::resolution_text(&state)))
}

/// A gate as a person types it: its whole id or the end of it, and perhaps the digest that was
/// shown.
struct GateHandle<'a> {
    id: &'a str,
    digest: Option<&'a str>,
}

impl<'a> GateHandle<'a> {
    fn parse(text: &'a str) -> anyhow::Result<Self> {
        let (id, digest) = match text.split_once('@') {
            Some((id, digest)) => (id, Some(digest)),
            None => (text, None),
        };
        if id.len() < 4 {
            bail!("`{text}` is too short for a gate; `pvp gates` prints handles");
        }
        let hex = |digest: &str| digest.len() >= 4 && digest.bytes().all(|b| b.is_ascii_hexdigit());
        if digest.is_some_and(|digest| !hex(digest)) {
            bail!(
                "after `@` comes the beginning of the command's digest, as `pvp gates` prints it"
            );
        }
        Ok(Self { id, digest })
    }

    fn matches(&self, gate: &GateListItem) -> bool {
        let (id, proposal) = (
            gate.open.gate.as_str(),
            gate.open.request.action_ref.as_str(),
        );
        id.ends_with(self.id) || proposal == self.id
    }

    /// The one open gate that matches, if its action still has the digest of the handle.
    fn find(&self, api: &ApiClient, link: &LinkArguments) -> anyhow::Result<GateListItem> {
        let session = link.named_session(api.link());
        let mut gates = api.list_gates(None, LONG_POLL)?.gates;
        gates.retain(|gate| {
            self.matches(gate)
                && session
                    .as_ref()
                    .is_none_or(|session| *session == gate.session)
        });
        let mut gates = gates.into_iter();
        match (gates.next(), gates.next()) {
            (Some(gate), None) => {
                self.check_digest(&gate)?;
                Ok(gate)
            }
            (None, _) => bail!(
                "no gate `{}` is open; `pvp gates` lists those that are, `pvp history` what became of it",
                self.id
            ),
            (Some(one), Some(other)) => bail!(
                "`{}` could be {} or {}; write more of it",
                self.id,
                one.open.gate,
                other.open.gate
            ),
        }
    }

    fn check_digest(&self, gate: &GateListItem) -> anyhow::Result<()> {
        let digest = gate.open.assessment.digest.to_string();
        match self.digest {
            Some(shown) if !digest.starts_with(&shown.to_ascii_lowercase()) => bail!(
                "the command was edited since you saw it; look again with `pvp show {}`",
                card::gate_handle(gate)
            ),
            Some(_) | None => Ok(()),
        }
    }
}

pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let handle = GateHandle::parse(&arguments.gate)?;
    let state = match handle.find(&api, &arguments.link) {
        Ok(gate) => api.gate(&gate.session, &gate.open.gate)?,
        Err(not_open) => fetch_closed_gate(&arguments.link, handle.id).ok_or(not_open)?,
    };
    if arguments.json {
        print_json(serde_json::to_string(&state)?)?;
    } else if arguments.files {
        print_line(card::file_contents(&state))?;
    } else {
        print_line(card::full_card(&state, now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Fetches a closed gate of the current session, by its whole id.
fn fetch_closed_gate(link: &LinkArguments, id: &str) -> Option<GateDetails> {
    let (api, session) = link.api_and_session().ok()?;
    api.gate(&session, &MessageId::parse(id).ok()?).ok()
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
    let gate = GateHandle::parse(&arguments.gate)?.find(&api, &arguments.link)?;
    rules::allow_reading(&api, &gate.session, root, rules::DEFAULT_SECONDS, None)?;
    vote(&arguments.link, &arguments.gate, request, arguments.json)
}

pub(crate) fn reject(arguments: &RejectArguments) -> anyhow::Result<ExitCode> {
    if arguments.reason.trim().is_empty() {
        bail!("say why not; the agent reads the reason");
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
    let gate = GateHandle::parse(gate)?.find(&api, link)?;
    request.digest = Some(gate.open.assessment.digest);
    let verb = match request.vote {
        VoteChoice::Approve => "approved",
        VoteChoice::Reject => "rejected",
    };
    let answer = api.vote(&gate.session, &gate.open.gate, &request)?;
    print_answer(&gate, verb, &answer, json)
}

pub(crate) fn amend(arguments: &AmendArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api_client()?;
    let gate = GateHandle::parse(&arguments.gate)?.find(&api, &arguments.link)?;
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
    print_line(format!("{verb}  {}", card::command_line(shown)))?;
    match (&answer.gate.status, &answer.gate.open) {
        (GateStatus::Open, Some(open)) => {
            print_line(format!("it waits: {}", card::tally_text(open)))?
        }
        _ => print_line(card::resolution_text(&answer.gate))?,
    }
    Ok(ExitCode::SUCCESS)
}
