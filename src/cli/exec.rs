//! `pvp exec`: runs a person's own command on an executor of the session.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::view::escape_invisible;
use pvp_client::{ConnectOptions, Connection, ConnectionEvent, EndReason};
use pvp_protocol::payload::{GateOutcome, OutputStream, ShellExec, ToolResult};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, ServerMessage};

use super::links::LinkArguments;
use super::{one_line, print_bytes};

#[derive(Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The command, as one line for the login shell of the account that runs it
    command: String,
    /// Who runs it, if more than one could
    #[arg(long, value_name = "AGENT", value_parser = super::parse_participant_id)]
    executor: Option<ParticipantId>,
    /// Seconds it may take, at most 300
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Where it runs, if not where the agent's commands do
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
}

/// Exits with the command's exit code, 128 plus the signal if one ended it, or 1 if it did not run.
pub(crate) fn run(arguments: ExecArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    let link = api.link().clone().with_session(session);
    let exec = ShellExec {
        command: arguments.command,
        timeout_seconds: arguments.timeout,
        cwd: arguments.cwd,
        executor: arguments.executor,
        origin: None,
        secrets: Vec::new(),
        assessment: None,
        extra: ExtraFields::new(),
    };
    super::runtime()?.block_on(async {
        let options = ConnectOptions {
            history: Some(0),
            record_check: super::reported_record_check(),
            ..ConnectOptions::default()
        };
        let (connection, mut events) = Connection::open(link, options).await?;
        let receipt = connection.send(exec).await?;
        let id = receipt.id.clone();
        // Polled together with the events, because the ack arrives only while events are read.
        let mut ack = Box::pin(receipt.ack());
        let mut acknowledged = false;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                ack_result = &mut ack, if !acknowledged => {
                    ack_result?;
                    acknowledged = true;
                    continue;
                }
            };
            match event {
                Some(ConnectionEvent::Message {
                    envelope: Some(envelope),
                    ..
                }) => {
                    if let Some(code) = on_message(&id, &envelope.message)? {
                        return Ok(code);
                    }
                }
                Some(ConnectionEvent::Disconnected { why }) => {
                    print_notice(&format!("lost the connection, trying again: {why}"))?;
                }
                Some(ConnectionEvent::RecordWarning(warning)) => {
                    super::print_error(&warning.into());
                }
                Some(ConnectionEvent::Ended(EndReason::Refused(report))) => bail!(report.message),
                Some(ConnectionEvent::Ended(EndReason::RecordChanged(warning))) => bail!(warning),
                Some(ConnectionEvent::Ended(EndReason::Closed | EndReason::Left)) | None => {
                    bail!("the connection ended before the command did");
                }
                Some(
                    ConnectionEvent::Connected { .. }
                    | ConnectionEvent::Message { envelope: None, .. },
                ) => {}
            }
        }
    })
}

/// Prints what concerns the command; returns its exit code when it has ended.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "other messages are not about this command"
)]
fn on_message(id: &MessageId, message: &ServerMessage) -> anyhow::Result<Option<ExitCode>> {
    match message {
        ServerMessage::GateRequest(request) if request.action_ref == *id => {
            print_notice(&format!("it waits for {}", request.quorum))?;
        }
        ServerMessage::GateResolve(resolve)
            if resolve.tool_proposal == *id && resolve.outcome != GateOutcome::Approved =>
        {
            let why = resolve.reason.as_deref().unwrap_or("no reason given");
            bail!("it did not run: {}", one_line(why));
        }
        ServerMessage::ToolOutput(output) if output.tool_proposal == *id => {
            print_output(output.stream, &output.text)?;
        }
        ServerMessage::ToolResult(result) if result.tool_proposal == *id => {
            return exit_code(result).map(Some);
        }
        _ => {}
    }
    Ok(None)
}

/// Prints output to the stream it came from: escaped for a terminal, unchanged for a file or a
/// pipe.
fn print_output(stream: OutputStream, text: &str) -> anyhow::Result<()> {
    match stream {
        OutputStream::Stdout if std::io::stdout().is_terminal() => {
            print_bytes(escape_invisible(text).as_bytes())
        }
        OutputStream::Stdout => print_bytes(text.as_bytes()),
        OutputStream::Stderr => {
            let mut err = std::io::stderr();
            let text = match err.is_terminal() {
                true => escape_invisible(text),
                false => text.to_owned(),
            };
            err.write_all(text.as_bytes())
                .context("writing to standard error")
        }
    }
}

fn exit_code(result: &ToolResult) -> anyhow::Result<ExitCode> {
    if let Some(error) = &result.error {
        print_notice(&one_line(error))?;
    }
    let code = result.result.as_ref().and_then(|body| body.exit_code);
    let signal = result
        .extra
        .get("signal")
        .and_then(|signal| signal.as_i64());
    let code = code.or(signal.map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn print_notice(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "pvp: {}", one_line(text)).context("writing to standard error")
}
