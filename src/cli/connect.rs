//! `pvp connect`: one envelope a line between a program and the server.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{
    ConnectError, Connection, Ending, Event, Events, Link, Options, Receipt, SendError, fresh_id,
};
use pvp_protocol::{JsonObject, MessageId, ParticipantId, Role, VERSION};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

use super::links::LinkArguments;

#[derive(Args)]
pub(crate) struct ConnectArguments {
    /// The link; else what `pvp login` remembered
    #[arg(value_name = "LINK")]
    target: Option<String>,
    #[command(flatten)]
    link: LinkArguments,
    /// Join with fewer roles than the token allows; may be given several times
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// Who to be, on a server without login
    #[arg(long = "as", value_name = "ID", value_parser = super::participant_id)]
    participant: Option<ParticipantId>,
    /// Resume after this seq
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// How many past messages to tell first [default: the server's, 500]
    #[arg(long, value_name = "N", conflicts_with = "after")]
    history: Option<u64>,
    /// Stay when standard input ends, until stopped
    #[arg(long)]
    stay: bool,
}

pub(crate) fn run(arguments: ConnectArguments) -> anyhow::Result<ExitCode> {
    let link = match &arguments.target {
        Some(text) => Link::parse(text)?,
        None => arguments.link.find()?.0,
    };
    let options = Options {
        session: arguments.link.said_session(&link),
        roles: (!arguments.roles.is_empty()).then(|| arguments.roles.clone()),
        participant: arguments.participant,
        after: arguments.after,
        history: arguments.history,
        ..Options::default()
    };
    let stay = arguments.stay;
    let runtime = super::runtime()?;
    let good = runtime.block_on(bridge(link, options, stay));
    // Somebody may still sit at standard input, who is not waited for.
    runtime.shutdown_background();
    Ok(match good? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Speaks and hears until the connection is over; false if anything was wrong.
async fn bridge(link: Link, options: Options, stay: bool) -> anyhow::Result<bool> {
    let opened = Connection::open(link, options).await;
    let (connection, events) = opened.map_err(with_flag)?;
    let (receipts, sent) = mpsc::unbounded_channel();
    let answers = tokio::spawn(answers(sent));
    // Beside hearing, because a connection that is not heard takes no more messages.
    let speaking = tokio::spawn(speak(connection, receipts, stay));
    let heard = hear(events).await?;
    speaking.abort();
    let spoken = match speaking.await {
        Ok(spoken) => spoken?,
        // It was still waiting for a line.
        Err(_) => true,
    };
    Ok(heard & spoken & answers.await?)
}

/// The same, and which flag helps.
fn with_flag(error: ConnectError) -> anyhow::Error {
    let flag = match &error {
        ConnectError::NoSession => " with --session",
        ConnectError::Nobody => " with --as",
        ConnectError::Api(_) | ConnectError::Refused(_) | ConnectError::Lost(_) => "",
    };
    anyhow::anyhow!("{error}{flag}")
}

/// Waits for the answer to each message, in the order they were sent; false if one was refused.
async fn answers(mut sent: mpsc::UnboundedReceiver<Receipt>) -> bool {
    let mut good = true;
    while let Some(receipt) = sent.recv().await {
        let id = receipt.id.clone();
        let problem = match receipt.answer().await {
            Ok(_) => continue,
            Err(SendError::Refused(report)) => format!("`{id}` was refused: {}", report.message),
            Err(error) => format!("`{id}`: {error}"),
        };
        good = false;
        super::complain(&anyhow::anyhow!(problem));
    }
    good
}

/// Sends what is said on standard input; false if a line was not understood.
async fn speak(
    connection: Connection,
    receipts: mpsc::UnboundedSender<Receipt>,
    stay: bool,
) -> anyhow::Result<bool> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut good = true;
    while let Some(line) = lines.next_line().await.context("reading standard input")? {
        if line.trim().is_empty() {
            continue;
        }
        let (id, kind, text) = match envelope(&connection, &line) {
            Ok(envelope) => envelope,
            Err(problem) => {
                good = false;
                super::complain(&problem);
                continue;
            }
        };
        match connection.send_text(id, &kind, text).await {
            // They are received for as long as anything is sent.
            Ok(receipt) => drop(receipts.send(receipt)),
            // Whoever hears that says why.
            Err(_) => return Ok(false),
        }
    }
    if stay {
        std::future::pending::<()>().await;
    }
    // The connection closes by itself when everything is answered.
    Ok(good)
}

/// A line as a whole envelope, of which much may be left out: its id, its type and its text.
fn envelope(connection: &Connection, line: &str) -> anyhow::Result<(MessageId, String, String)> {
    let mut envelope: JsonObject =
        serde_json::from_str(line).context("a line is one JSON object")?;
    let mut default = |key: &str, value: serde_json::Value| {
        envelope.entry(key).or_insert(value);
    };
    default("v", VERSION.into());
    default("id", fresh_id().as_str().into());
    default("session", connection.session().as_str().into());
    default("sender", connection.participant().as_str().into());
    default("payload", JsonObject::new().into());
    let text = |key: &str| {
        let value = envelope.get(key).and_then(|value| value.as_str());
        value.unwrap_or_default().to_owned()
    };
    let id = text("id");
    let id = MessageId::parse(&id).map_err(|_| anyhow::anyhow!("`{id}` cannot be an id"))?;
    let kind = text("type");
    let text = serde_json::to_string(&envelope).context("writing an envelope")?;
    Ok((id, kind, text))
}

/// Prints what is told; false if the server does not let us in any more.
async fn hear(mut events: Events) -> anyhow::Result<bool> {
    while let Some(event) = events.next().await {
        match event {
            Event::Told { text, .. } => super::say(text)?,
            Event::Down { why } => {
                super::complain(&anyhow::anyhow!("lost the connection, trying again: {why}"));
            }
            Event::Up { .. } => {}
            Event::Ended(Ending::Closed | Ending::Left) => return Ok(true),
            Event::Ended(Ending::Refused(report)) => {
                super::complain(&anyhow::anyhow!(report.message));
                return Ok(false);
            }
        }
    }
    Ok(true)
}
