//! `pvp send`: sends a prompt or any other message.

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, fresh_id};
use pvp_protocol::payload::{PromptSubmit, SessionAck};
use pvp_protocol::{ExtraFields, JsonObject, MessageId, ParticipantId, ParticipantKind, SessionId};

use super::links::LinkArguments;
use super::{print_json, print_line};

#[derive(Args)]
pub(crate) struct SendArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The prompt, or `-` to read it from standard input
    #[arg(required_unless_present = "kind", conflicts_with = "kind")]
    text: Option<String>,
    /// The agent; needed if there are several
    #[arg(long, value_name = "AGENT", value_parser = super::parse_participant_id, conflicts_with = "kind")]
    to: Option<ParticipantId>,
    /// Send a message of this type instead, such as interrupt.raise
    #[arg(long = "type", value_name = "TYPE", requires = "payload")]
    kind: Option<String>,
    /// The payload of that message as JSON, or `-` to read it from standard input
    #[arg(long, value_name = "JSON", requires = "kind")]
    payload: Option<String>,
    /// The id of the message; the server ignores a second message with the same id
    #[arg(long, value_parser = super::parse_message_id)]
    id: Option<MessageId>,
    /// Print JSON: id, seq, duplicate
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &SendArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    let (kind, payload) = match (&arguments.kind, &arguments.payload, &arguments.text) {
        (Some(kind), Some(payload), _) => {
            let payload = text_or_stdin(payload)?;
            let payload: JsonObject =
                serde_json::from_str(&payload).context("--payload is not a JSON object")?;
            (kind.clone(), payload)
        }
        (_, _, Some(text)) => (
            "prompt.submit".to_owned(),
            prompt_payload(arguments, &api, &session, text)?,
        ),
        (_, _, None) => bail!("there is nothing to send; give a prompt, or --type and --payload"),
    };
    let id = arguments.id.clone().unwrap_or_else(fresh_id);
    let mut message = JsonObject::new();
    message.insert("id".to_owned(), id.as_str().into());
    message.insert("type".to_owned(), kind.into());
    message.insert("payload".to_owned(), payload.into());
    let ack = api.send(&session, &message)?;
    if arguments.json {
        print_json(serde_json::to_string(&ack)?)?;
    } else {
        print_line(sent_text(&session, &ack))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn sent_text(session: &SessionId, ack: &SessionAck) -> String {
    match (ack.duplicate, ack.seq) {
        (true, _) => format!("already sent to session {session}; nothing changed"),
        (false, Some(seq)) => format!("sent to session {session} as message {seq}"),
        (false, None) => format!("sent to session {session}"),
    }
}

fn prompt_payload(
    arguments: &SendArguments,
    api: &ApiClient,
    session: &SessionId,
    text: &str,
) -> anyhow::Result<JsonObject> {
    let content = text_or_stdin(text)?;
    if content.trim().is_empty() {
        bail!("the prompt is empty; say what the agent should do");
    }
    let me = api.whoami()?.participant;
    let agent = match &arguments.to {
        Some(agent) => agent.clone(),
        None => only_agent(api, session)?,
    };
    let prompt = PromptSubmit {
        content,
        target_agent: agent,
        contributors: vec![me],
        context_keys: Vec::new(),
        config: None,
        origin: None,
        extra: ExtraFields::new(),
    };
    let prompt = serde_json::to_value(prompt).context("writing the prompt")?;
    serde_json::from_value(prompt).context("a prompt is an object")
}

fn only_agent(api: &ApiClient, session: &SessionId) -> anyhow::Result<ParticipantId> {
    let participants = api.session(session)?.people;
    let agents: Vec<_> = participants
        .into_iter()
        .filter(|person| person.announce.kind == ParticipantKind::Agent)
        .map(|person| person.announce.id)
        .collect();
    match agents.as_slice() {
        [only] => Ok(only.clone()),
        [] => bail!("there is no agent in session {session}; start one with `pvp agent`"),
        several => {
            let names: Vec<_> = several.iter().map(ParticipantId::as_str).collect();
            bail!(
                "there are several agents; choose one with --to: {}",
                names.join(", ")
            )
        }
    }
}

fn text_or_stdin(text: &str) -> anyhow::Result<String> {
    if text != "-" {
        return Ok(text.to_owned());
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("reading standard input")?;
    Ok(text)
}
