//! `pvp gates`, `pvp show`, `pvp approve`, `pvp reject`, `pvp amend`

mod card;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{Api, ApiError, now};
use pvp_protocol::api::{
    EditRequest, GateDetails, GateListItem, GateStatus, GateUpdateResponse, VoteChoice, VoteRequest,
};
use pvp_protocol::{Command, JsonObject, MessageId};
use serde_json::json;

use super::links::LinkArguments;
use super::say;

/// How long one question to the server waits for a change.
const WAIT: Duration = Duration::from_secs(30);

/// How long to wait before asking a server again that did not answer.
const AGAIN: Duration = Duration::from_secs(2);

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
    let api = arguments.link.api()?;
    let session = arguments.link.said_session(api.link());
    if let Some(session) = &session {
        // Nothing waits in a session that is not there, which is not what was asked.
        api.session(session)?;
    }
    let mine = |gate: &GateListItem| {
        session
            .as_ref()
            .is_none_or(|session| *session == gate.session)
    };
    let mut list = api.gates(None, WAIT)?;
    list.gates.retain(mine);
    if arguments.watch {
        return watch(&api, list.version, list.gates, arguments.json, mine);
    }
    if arguments.json {
        say(serde_json::to_string(&list)?)?;
    } else if list.gates.is_empty() {
        say("nothing waits")?;
    } else {
        for gate in &list.gates {
            say(card::line(gate, now()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints changes until it is stopped; a server that is away is asked again.
fn watch(
    api: &Api,
    mut version: u64,
    gates: Vec<GateListItem>,
    json: bool,
    mine: impl Fn(&GateListItem) -> bool,
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
                opened(gate, known.contains_key(id), json)?;
            }
        }
        for (id, gate) in &known {
            if !next.contains_key(id) {
                closed(api, gate, json)?;
            }
        }
        known = next;
        let list = patiently(|| api.gates(Some(version), WAIT))?;
        version = list.version;
        let mut gates = list.gates;
        gates.retain(&mine);
        next = by_id(gates);
    }
}

/// Asks until there is an answer.
fn patiently<T>(ask: impl Fn() -> Result<T, ApiError>) -> anyhow::Result<T> {
    loop {
        match ask() {
            Err(error) if error.is_passing() => {
                super::complain(&error.into());
                std::thread::sleep(AGAIN);
            }
            answered => return Ok(answered?),
        }
    }
}

fn opened(gate: &GateListItem, changed: bool, json: bool) -> anyhow::Result<()> {
    if json {
        let event = if changed { "changed" } else { "open" };
        return say(json!({ "event": event, "gate": gate }));
    }
    let mark = if changed { '~' } else { '+' };
    say(format!("{mark} {}", card::line(gate, now())))
}

fn closed(api: &Api, gate: &GateListItem, json: bool) -> anyhow::Result<()> {
    let state = patiently(|| api.gate(&gate.session, &gate.open.gate))?;
    if json {
        return say(json!({ "event": "closed", "gate": state }));
    }
    let handle = card::handle(gate);
    say(format!("- {handle}  {}", card::resolution(&state)))
}

/// A gate as a person names it: a whole id or its end, and perhaps what was shown under it.
struct Handle<'a> {
    id: &'a str,
    digest: Option<&'a str>,
}

impl<'a> Handle<'a> {
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

    fn names(&self, gate: &GateListItem) -> bool {
        let (id, proposal) = (
            gate.open.gate.as_str(),
            gate.open.request.action_ref.as_str(),
        );
        id.ends_with(self.id) || proposal == self.id
    }

    /// The one open gate that is meant, showing what the handle says.
    fn find(&self, api: &Api, link: &LinkArguments) -> anyhow::Result<GateListItem> {
        let session = link.said_session(api.link());
        let mut gates = api.gates(None, WAIT)?.gates;
        gates.retain(|gate| {
            self.names(gate)
                && session
                    .as_ref()
                    .is_none_or(|session| *session == gate.session)
        });
        let mut gates = gates.into_iter();
        match (gates.next(), gates.next()) {
            (Some(gate), None) => {
                self.check(&gate)?;
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

    fn check(&self, gate: &GateListItem) -> anyhow::Result<()> {
        let digest = gate.open.assessment.digest.to_string();
        match self.digest {
            Some(shown) if !digest.starts_with(&shown.to_ascii_lowercase()) => bail!(
                "the command was edited since you saw it; look again with `pvp show {}`",
                card::handle(gate)
            ),
            Some(_) | None => Ok(()),
        }
    }
}

pub(crate) fn show(arguments: &ShowArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api()?;
    let handle = Handle::parse(&arguments.gate)?;
    let state = match handle.find(&api, &arguments.link) {
        Ok(gate) => api.gate(&gate.session, &gate.open.gate)?,
        Err(not_open) => closed_gate(&arguments.link, handle.id).ok_or(not_open)?,
    };
    if arguments.json {
        say(serde_json::to_string(&state)?)?;
    } else {
        say(card::whole(&state, now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A gate that is closed can be looked at by its whole id, in the session at hand.
fn closed_gate(link: &LinkArguments, id: &str) -> Option<GateDetails> {
    let (api, session) = link.place().ok()?;
    api.gate(&session, &MessageId::parse(id).ok()?).ok()
}

pub(crate) fn approve(arguments: &ApproveArguments) -> anyhow::Result<ExitCode> {
    let ballot = VoteRequest {
        vote: VoteChoice::Approve,
        comment: arguments.comment.clone(),
        reason: None,
        digest: None,
        id: None,
    };
    vote(&arguments.link, &arguments.gate, ballot, arguments.json)
}

pub(crate) fn reject(arguments: &RejectArguments) -> anyhow::Result<ExitCode> {
    if arguments.reason.trim().is_empty() {
        bail!("say why not; the agent reads the reason");
    }
    let ballot = VoteRequest {
        vote: VoteChoice::Reject,
        comment: None,
        reason: Some(arguments.reason.clone()),
        digest: None,
        id: None,
    };
    vote(&arguments.link, &arguments.gate, ballot, arguments.json)
}

/// Votes on exactly the command that is printed.
fn vote(
    link: &LinkArguments,
    gate: &str,
    mut ballot: VoteRequest,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let api = link.api()?;
    let gate = Handle::parse(gate)?.find(&api, link)?;
    ballot.digest = Some(gate.open.assessment.digest);
    let word = match ballot.vote {
        VoteChoice::Approve => "approved",
        VoteChoice::Reject => "rejected",
    };
    let answer = api.vote(&gate.session, &gate.open.gate, &ballot)?;
    report(&gate, word, &answer, json)
}

pub(crate) fn amend(arguments: &AmendArguments) -> anyhow::Result<ExitCode> {
    let api = arguments.link.api()?;
    let gate = Handle::parse(&arguments.gate)?.find(&api, &arguments.link)?;
    let edit = EditRequest {
        arguments: edited(&gate, &arguments.command)?,
        digest: gate.open.assessment.digest,
        reason: arguments.reason.clone(),
        id: None,
    };
    let answer = api.amend(&gate.session, &gate.open.gate, &edit)?;
    report(&gate, "edited", &answer, arguments.json)
}

/// The arguments of the proposal with another command line; everything else stays.
fn edited(gate: &GateListItem, command: &str) -> anyhow::Result<JsonObject> {
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
    ] {
        if !rest[field].is_null() {
            arguments.insert(key.to_owned(), rest[field].clone());
        }
    }
    Ok(arguments)
}

fn report(
    gate: &GateListItem,
    word: &str,
    answer: &GateUpdateResponse,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if json {
        say(serde_json::to_string(answer)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let shown = answer.gate.open.as_ref().unwrap_or(gate);
    say(format!("{word}  {}", card::command(shown)))?;
    match (&answer.gate.status, &answer.gate.open) {
        (GateStatus::Open, Some(open)) => say(format!("it waits: {}", card::tally(open)))?,
        _ => say(card::resolution(&answer.gate))?,
    }
    Ok(ExitCode::SUCCESS)
}
