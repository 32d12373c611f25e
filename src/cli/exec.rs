//! `pvp exec`: a person's own command, run by an executor of the session.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::view::visible;
use pvp_client::{Connection, Ending, Event, Options};
use pvp_protocol::payload::{GateOutcome, OutputStream, ShellExec, ToolResult};
use pvp_protocol::{ExtraFields, MessageId, ParticipantId, ServerMessage};

use super::links::LinkArguments;
use super::{one_line, say_bytes};

#[derive(Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// The command, as one line for the login shell of the account that runs it
    command: String,
    /// Who runs it, if more than one could
    #[arg(long, value_name = "AGENT", value_parser = super::participant_id)]
    executor: Option<ParticipantId>,
    /// Seconds it may take, at most 300
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u32>,
    /// Where it runs, if not where the agent's commands do
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
}

/// The exit code is the command's; 128 and the signal if one ended it; 1 if it did not run.
pub(crate) fn run(arguments: ExecArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.place()?;
    let link = api.link().clone().into_session(session);
    let exec = ShellExec {
        command: arguments.command,
        timeout_seconds: arguments.timeout,
        cwd: arguments.cwd,
        executor: arguments.executor,
        origin: None,
        assessment: None,
        extra: ExtraFields::new(),
    };
    super::runtime()?.block_on(async {
        let options = Options {
            history: Some(0),
            ..Options::default()
        };
        let (connection, mut events) = Connection::open(link, options).await?;
        let receipt = connection.send(exec).await?;
        let id = receipt.id.clone();
        // Beside hearing, because answers come among the events.
        let mut answer = Box::pin(receipt.answer());
        let mut answered = false;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                taken = &mut answer, if !answered => {
                    taken?;
                    answered = true;
                    continue;
                }
            };
            match event {
                Some(Event::Told {
                    envelope: Some(envelope),
                    ..
                }) => {
                    if let Some(code) = hear(&id, &envelope.message)? {
                        return Ok(code);
                    }
                }
                Some(Event::Down { why }) => {
                    complain(&format!("lost the connection, trying again: {why}"))?;
                }
                Some(Event::Ended(Ending::Refused(report))) => bail!(report.message),
                Some(Event::Ended(Ending::Closed | Ending::Left)) | None => {
                    bail!("the connection ended before the command did");
                }
                Some(Event::Up { .. } | Event::Told { envelope: None, .. }) => {}
            }
        }
    })
}

/// Shows what concerns the command; gives its exit code when it is over.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "everything else is about other things"
)]
fn hear(id: &MessageId, message: &ServerMessage) -> anyhow::Result<Option<ExitCode>> {
    match message {
        ServerMessage::GateRequest(request) if request.action_ref == *id => {
            complain(&format!("it waits for {}", request.quorum))?;
        }
        ServerMessage::GateResolve(resolve)
            if resolve.tool_proposal == *id && resolve.outcome != GateOutcome::Approved =>
        {
            let why = resolve.reason.as_deref().unwrap_or("no reason given");
            bail!("it did not run: {}", one_line(why));
        }
        ServerMessage::ToolOutput(output) if output.tool_proposal == *id => {
            show(output.stream, &output.text)?;
        }
        ServerMessage::ToolResult(result) if result.tool_proposal == *id => {
            return ended(result).map(Some);
        }
        _ => {}
    }
    Ok(None)
}

/// A terminal is shown only text; a file or a pipe gets what was printed.
fn show(stream: OutputStream, text: &str) -> anyhow::Result<()> {
    match stream {
        OutputStream::Stdout if std::io::stdout().is_terminal() => {
            say_bytes(visible(text).as_bytes())
        }
        OutputStream::Stdout => say_bytes(text.as_bytes()),
        OutputStream::Stderr => {
            let mut err = std::io::stderr();
            let text = match err.is_terminal() {
                true => visible(text),
                false => text.to_owned(),
            };
            err.write_all(text.as_bytes())
                .context("writing to standard error")
        }
    }
}

fn ended(result: &ToolResult) -> anyhow::Result<ExitCode> {
    if let Some(error) = &result.error {
        complain(&one_line(error))?;
    }
    let code = result.result.as_ref().and_then(|body| body.exit_code);
    let signal = result
        .extra
        .get("signal")
        .and_then(|signal| signal.as_i64());
    let code = code.or(signal.map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn complain(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "pvp: {}", one_line(text)).context("writing to standard error")
}
