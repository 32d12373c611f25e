//! `pvp connect`: bridges standard input and output to a session, one envelope per line.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{
    ConnectError, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason, Link,
    Receipt, SendError, fresh_id,
};
use pvp_protocol::{JsonObject, MessageId, ParticipantId, Role, VERSION};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

use super::links::LinkArguments;

#[derive(Args)]
pub(crate) struct ConnectArguments {
    /// The link, or `-` to read it from the first line of standard input [default: $PVP_LINK, or the
    /// link saved for this directory]. Other users of this machine can see arguments
    #[arg(value_name = "LINK")]
    target: Option<String>,
    #[command(flatten)]
    link: LinkArguments,
    /// Join with fewer roles than the token allows; may be given several times
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// The participant id to join as, on a server without login
    #[arg(long = "as", value_name = "ID", value_parser = super::parse_participant_id)]
    participant: Option<ParticipantId>,
    /// Receive the messages after this sequence number first
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Receive the last N messages first [default: 500]
    #[arg(long, value_name = "N", conflicts_with = "after")]
    history: Option<u64>,
    /// Stay connected when standard input ends
    #[arg(long)]
    stay: bool,
}

pub(crate) fn run(arguments: ConnectArguments) -> anyhow::Result<ExitCode> {
    let link = arguments
        .link
        .resolve_link_or(arguments.target.as_deref())?;
    let options = ConnectOptions {
        session: arguments.link.named_session(&link),
        roles: (!arguments.roles.is_empty()).then(|| arguments.roles.clone()),
        participant: arguments.participant,
        after: arguments.after,
        history: arguments.history,
        record_check: super::reported_record_check(),
        ..ConnectOptions::default()
    };
    let stay = arguments.stay;
    let runtime = super::runtime()?;
    let succeeded = runtime.block_on(bridge(link, options, stay));
    // A read from standard input may still be blocked; do not wait for it.
    runtime.shutdown_background();
    Ok(match succeeded? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Sends and prints messages until the connection has ended; false if anything went wrong.
async fn bridge(link: Link, options: ConnectOptions, stay: bool) -> anyhow::Result<bool> {
    let opened = Connection::open(link, options).await;
    let (connection, events) = opened.map_err(suggest_flag)?;
    let (receipts, receipts_receiver) = mpsc::unbounded_channel();
    let acks = tokio::spawn(await_acks(receipts_receiver));
    // In a task of its own, because a connection whose events are not read accepts no messages.
    let sending = tokio::spawn(send_stdin(connection, receipts, stay));
    let events_ok = print_events(events).await?;
    sending.abort();
    let sending_ok = match sending.await {
        Ok(sent) => sent?,
        // The task was still waiting for a line.
        Err(_) => true,
    };
    Ok(events_ok & sending_ok & acks.await?)
}

/// Adds the flag that helps to the error.
fn suggest_flag(error: ConnectError) -> anyhow::Error {
    let flag = match &error {
        ConnectError::NoSession => " with --session",
        ConnectError::NoParticipant => " with --as",
        ConnectError::Api(_)
        | ConnectError::Refused(_)
        | ConnectError::RecordChanged(_)
        | ConnectError::Failed(_) => "",
    };
    anyhow::anyhow!("{error}{flag}")
}

/// Waits for the answer to each message, in the order they were sent; false if one was refused.
async fn await_acks(mut receipts: mpsc::UnboundedReceiver<Receipt>) -> bool {
    let mut all_accepted = true;
    while let Some(receipt) = receipts.recv().await {
        let id = receipt.id.clone();
        let problem = match receipt.ack().await {
            Ok(_) => continue,
            Err(SendError::Refused(report)) => format!("`{id}` was refused: {}", report.message),
            Err(error) => format!("`{id}`: {error}"),
        };
        all_accepted = false;
        super::print_error(&anyhow::anyhow!(problem));
    }
    all_accepted
}

/// Sends the lines of standard input; false if a line was not understood.
async fn send_stdin(
    connection: Connection,
    receipts: mpsc::UnboundedSender<Receipt>,
    stay: bool,
) -> anyhow::Result<bool> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut all_valid = true;
    while let Some(line) = lines.next_line().await.context("reading standard input")? {
        if line.trim().is_empty() {
            continue;
        }
        let (id, kind, text) = match complete_envelope(&connection, &line) {
            Ok(envelope) => envelope,
            Err(problem) => {
                all_valid = false;
                super::print_error(&problem);
                continue;
            }
        };
        match connection.send_text(id, &kind, text).await {
            // The receiver lives as long as this sender, so this cannot fail.
            Ok(receipt) => drop(receipts.send(receipt)),
            // The connection has ended, and `print_events` prints why.
            Err(_) => return Ok(false),
        }
    }
    if stay {
        std::future::pending::<()>().await;
    }
    // The connection closes by itself once the server has answered everything.
    Ok(all_valid)
}

/// Completes a line to a whole envelope by filling in the fields that it leaves out. Returns the
/// envelope's id, its type and its text.
fn complete_envelope(
    connection: &Connection,
    line: &str,
) -> anyhow::Result<(MessageId, String, String)> {
    let mut envelope: JsonObject =
        serde_json::from_str(line).context("each line must be a JSON object")?;
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

/// Prints the messages received; false if the server no longer lets this client in.
async fn print_events(mut events: ConnectionEvents) -> anyhow::Result<bool> {
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Message { text, .. } => super::print_json(text)?,
            ConnectionEvent::Disconnected { why } => {
                super::print_error(&anyhow::anyhow!("lost the connection, trying again: {why}"));
            }
            ConnectionEvent::RecordWarning(warning) => super::print_error(&warning.into()),
            ConnectionEvent::Connected { .. } => {}
            ConnectionEvent::Ended(EndReason::RecordChanged(warning)) => {
                super::print_error(&warning.into());
                return Ok(false);
            }
            ConnectionEvent::Ended(EndReason::Closed | EndReason::Left) => return Ok(true),
            ConnectionEvent::Ended(EndReason::Refused(report)) => {
                super::print_error(&anyhow::anyhow!(report.message));
                return Ok(false);
            }
        }
    }
    Ok(true)
}
