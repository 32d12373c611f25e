//! `pvp exec`: runs a person's own command on an executor of the session.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::view::escape_invisible;
use pvp_client::{
    ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason, Receipt,
};
use pvp_protocol::payload::{
    GateOutcome, GateRequest, GateResolve, OutputStream, ShellExec, ToolResult,
};
use pvp_protocol::{Digest, ExtraFields, MessageId, ParticipantId, QuorumRule, ServerMessage};
use rustix::termios::{QueueSelector, tcflush};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

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

/// How long to wait for the server to confirm that a command was withdrawn.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(5);

/// The exit code after Ctrl-C, as of a command that SIGINT ended.
const INTERRUPTED: u8 = 130;

/// Exits with the command's exit code, 128 plus the signal if one ended it, 1 if it did not run, and
/// 130 if it was withdrawn with Ctrl-C.
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
    let runtime = super::runtime()?;
    let code = runtime.block_on(async {
        let signals = withdraw_signals()?;
        let options = ConnectOptions {
            history: Some(0),
            record_check: super::reported_record_check(),
            ..ConnectOptions::default()
        };
        let (connection, events) = Connection::open(link, options).await?;
        let command = exec.command.clone();
        let receipt = connection.send(exec).await?;
        let own = OwnCommand {
            connection,
            id: receipt.id.clone(),
            command,
            digest: None,
            quorum: None,
        };
        own.follow(receipt, events, signals).await
    });
    // The thread that reads an answer from the terminal may still wait for it.
    runtime.shutdown_background();
    code
}

/// Receives a message for each Ctrl-C, SIGTERM and SIGHUP.
fn withdraw_signals() -> anyhow::Result<mpsc::UnboundedReceiver<()>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        let mut signals = signal(kind).context("watching for signals")?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if sender.send(()).is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// What follows from an event.
enum Next {
    Wait,
    End(ExitCode),
}

/// A command of one's own, from sending it to its end.
struct OwnCommand {
    connection: Connection,
    /// The id of the message, which is that of the proposal.
    id: MessageId,
    /// The command as it was typed.
    command: String,
    /// What a vote at its gate is about, if it waits at one.
    digest: Option<Digest>,
    /// What that gate needs.
    quorum: Option<QuorumRule>,
}

impl OwnCommand {
    async fn follow(
        mut self,
        receipt: Receipt,
        mut events: ConnectionEvents,
        mut signals: mpsc::UnboundedReceiver<()>,
    ) -> anyhow::Result<ExitCode> {
        // Polled together with the events, because the ack arrives only while events are read.
        let mut ack = Box::pin(receipt.ack());
        let mut acknowledged = false;
        let (answers_sender, mut answers) = mpsc::unbounded_channel();
        let mut withdrawn_at: Option<Instant> = None;
        loop {
            let give_up = async {
                match withdrawn_at {
                    Some(at) => tokio::time::sleep_until(at + WITHDRAW_TIMEOUT).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match self.on_event(event, &answers_sender)? {
                    Next::Wait => {}
                    Next::End(_) if withdrawn_at.is_some() => return Ok(INTERRUPTED.into()),
                    Next::End(code) => return Ok(code),
                },
                ack_result = &mut ack, if !acknowledged => {
                    ack_result?;
                    acknowledged = true;
                }
                Some(answer) = answers.recv() => match answer {
                    ConfirmAnswer::Yes => self.approve().await?,
                    ConfirmAnswer::No => {
                        withdrawn_at = Some(Instant::now());
                        self.withdraw().await?;
                    }
                },
                Some(()) = signals.recv() => {
                    if withdrawn_at.replace(Instant::now()).is_some() {
                        return self.leave_unconfirmed();
                    }
                    self.withdraw().await?;
                }
                () = give_up => return self.leave_unconfirmed(),
            }
        }
    }

    fn on_event(
        &mut self,
        event: Option<ConnectionEvent>,
        answers: &mpsc::UnboundedSender<ConfirmAnswer>,
    ) -> anyhow::Result<Next> {
        match event {
            Some(ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            }) => return self.on_message(&envelope.message, answers),
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
                ConnectionEvent::Connected { .. } | ConnectionEvent::Message { envelope: None, .. },
            ) => {}
        }
        Ok(Next::Wait)
    }

    /// Prints what concerns the command; ends with its exit code.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other messages are not about this command"
    )]
    fn on_message(
        &mut self,
        message: &ServerMessage,
        answers: &mpsc::UnboundedSender<ConfirmAnswer>,
    ) -> anyhow::Result<Next> {
        match message {
            ServerMessage::GateRequest(request) if request.action_ref == self.id => {
                self.on_gate(request, answers)?;
            }
            ServerMessage::GateResolve(resolve) if resolve.tool_proposal == self.id => {
                return on_resolution(resolve);
            }
            ServerMessage::ToolOutput(output) if output.tool_proposal == self.id => {
                print_output(output.stream, &output.text)?;
            }
            ServerMessage::ToolResult(result) if result.tool_proposal == self.id => {
                return exit_code(result).map(Next::End);
            }
            _ => {}
        }
        Ok(Next::Wait)
    }

    /// Says what the command waits for, and who could approve it.
    fn on_gate(
        &mut self,
        request: &GateRequest,
        answers: &mpsc::UnboundedSender<ConfirmAnswer>,
    ) -> anyhow::Result<()> {
        self.digest = Some(request.digest);
        self.quorum = Some(request.quorum.clone());
        let me = self.connection.participant();
        if request.voters.contains(me) {
            return self.ask(request, answers);
        }
        let handle = self.handle();
        if request.voters.is_empty() {
            return print_notice(&format!(
                "waiting for {}, but nobody in this session can give it: you cannot approve your \
                 own command. Invite somebody with `pvp invite --name NAME --role approver`, or \
                 press Ctrl-C to withdraw the command (later: `pvp cancel {handle}`). If you work \
                 alone, an admin can let you approve your own commands with `pvp session set \
                 solo=true`",
                request.quorum
            ));
        }
        let voters: Vec<_> = request.voters.iter().map(ParticipantId::as_str).collect();
        print_notice(&format!(
            "waiting for {} ({} may approve); press Ctrl-C to withdraw the command, or run `pvp \
             cancel {handle}`",
            request.quorum,
            voters.join(", ")
        ))
    }

    /// Asks the person at the terminal whether the command should really run, in a session where
    /// people may approve their own commands.
    fn ask(
        &self,
        request: &GateRequest,
        answers: &mpsc::UnboundedSender<ConfirmAnswer>,
    ) -> anyhow::Result<()> {
        let handle = self.handle();
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return print_notice(&format!(
                "waiting for {}; you may approve it yourself with `pvp approve {handle}`, or \
                 withdraw it with Ctrl-C",
                request.quorum
            ));
        }
        let question = format!(
            "pvp: {} is {}. Really run it? [y/N] ",
            one_line(&self.command),
            request.category
        );
        // What was typed before the question was shown does not answer it.
        tcflush(std::io::stdin(), QueueSelector::IFlush).context("reading from the terminal")?;
        let mut stderr = std::io::stderr();
        write!(stderr, "{question}").and_then(|()| stderr.flush())?;
        let answers = answers.clone();
        // Not a task of the runtime, which would wait for it at the end.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().read_line(&mut line);
            let yes = read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes" | "Yes");
            // The command may have been decided meanwhile, and then nobody listens.
            let _ = answers.send(if yes {
                ConfirmAnswer::Yes
            } else {
                ConfirmAnswer::No
            });
        });
        Ok(())
    }

    async fn approve(&self) -> anyhow::Result<()> {
        let digest = self.digest.context("the command waits at no gate")?;
        self.connection.approve(&self.id, digest, None).await?;
        match &self.quorum {
            Some(QuorumRule::Any { count: 1 }) | None => Ok(()),
            Some(quorum) => print_notice(&format!("you approved it; it needs {quorum} in all")),
        }
    }

    async fn withdraw(&self) -> anyhow::Result<()> {
        let reason = Some("withdrawn by its author".to_owned());
        self.connection.cancel(&self.id, reason).await?;
        Ok(())
    }

    fn leave_unconfirmed(&self) -> anyhow::Result<ExitCode> {
        print_notice(&format!(
            "the server has not confirmed that the command was withdrawn; make sure with `pvp \
             cancel {}`",
            self.handle()
        ))?;
        Ok(INTERRUPTED.into())
    }

    /// How other commands name this one.
    fn handle(&self) -> String {
        let short = || self.id.short().to_owned();
        self.digest
            .map_or_else(short, |digest| self.id.handle(digest))
    }
}

/// The answer to "really?".
enum ConfirmAnswer {
    Yes,
    No,
}

fn on_resolution(resolve: &GateResolve) -> anyhow::Result<Next> {
    match resolve.outcome {
        GateOutcome::Approved => Ok(Next::Wait),
        GateOutcome::Cancelled => {
            let by = resolve.by.as_ref().map(|by| format!(" by {by}"));
            let why = resolve.reason.as_ref().map(|why| format!(": {why}"));
            print_notice(&format!(
                "the command did not run; it was cancelled{}{}",
                by.unwrap_or_default(),
                why.unwrap_or_default()
            ))?;
            Ok(Next::End(ExitCode::FAILURE))
        }
        GateOutcome::TimedOut => bail!("the command did not run: nobody decided in time"),
        GateOutcome::Rejected => {
            let why = resolve.reason.as_deref().unwrap_or("no reason given");
            bail!("the command did not run: {}", one_line(why));
        }
    }
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
    let code = result.exit_code();
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
