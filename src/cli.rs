//! The commands of the `pvp` binary, one module per command or group of commands.

mod administration;
mod agent;
mod audit;
mod cancel;
mod check;
mod completion;
mod connect;
mod demo;
mod doctor;
mod exec;
mod gates;
mod history;
mod interrupt;
mod invite;
mod join;
mod link_argument;
mod links;
mod local_server;
mod log_line;
mod login;
mod manual;
mod own_links;
mod policy;
mod program_name;
mod proposal_handle;
mod rules;
mod send;
mod server;
mod session;
mod session_settings;
mod sessions;
mod share;
mod shell_words;
mod status;
mod tail;
mod tokens;
mod tour;
mod tui;
mod up;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use pvp_client::view::escape_invisible;
use pvp_client::{ApiClient, RecordCheck, RecordMemory};
use pvp_protocol::{MessageId, ParticipantId, SessionId};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Subcommand)]
pub(crate) enum CliCommand {
    /// Start a server with a session; with --share, print a line that lets another person join.
    Up(up::UpArguments),
    /// See how it works: a server, and an agent whose commands you decide on; --tour explains each
    /// step.
    Demo(demo::DemoArguments),
    /// Run the server alone, or rotate the key that signs its logs.
    Server(server::ServerCommandArguments),
    /// Join a session as an agent: a model or a script proposes, and this machine runs what is
    /// granted.
    Agent(Box<agent::AgentArguments>),

    /// A session on the whole terminal: watch, decide, ask.
    Tui(tui::TuiArguments),
    /// What waits for a decision, in every session that the link opens.
    Gates(gates::GatesArguments),
    /// The whole card of one gate.
    Show(gates::ShowArguments),
    /// Approve a command that waits.
    Approve(gates::ApproveArguments),
    /// Reject a command that waits; the agent reads the reason.
    Reject(gates::RejectArguments),
    /// Edit a command that waits; votes are then cast again.
    Amend(gates::AmendArguments),
    /// Withdraw a command that waits, or stop one that runs.
    Cancel(cancel::CancelArguments),

    /// What runs without asking in a session; allow reading a directory, or take a rule back.
    Rules(rules::RulesArguments),

    /// Ask the agent something, or send any other message.
    Send(send::SendArguments),
    /// Stop what an agent is doing, and tell it why.
    Interrupt(interrupt::InterruptArguments),
    /// Run a command of your own where the agent's commands run, and see what it prints.
    Exec(exec::ExecArguments),
    /// What happened in a session, and with --follow what happens.
    Tail(tail::TailArguments),
    /// Commands of a session: how they were judged, who approved, how they ended.
    History(history::HistoryArguments),
    /// What a command printed.
    Output(history::OutputArguments),
    /// Sessions that the link opens; archive or delete one.
    Sessions(sessions::SessionsArguments),
    /// Create a session.
    Create(sessions::CreateArguments),
    /// Print or change the settings of a session, such as how many approvals commands need.
    Session(session::SessionArguments),
    /// Be a participant: one message a line on standard input and output.
    Connect(connect::ConnectArguments),

    /// Join a server with the code or link that you were sent, and open the screen.
    Join(join::JoinArguments),
    /// Remember a link for this directory.
    Login(login::LoginArguments),
    /// Forget the link that is remembered for this directory.
    Logout(login::LogoutArguments),
    /// Show who you are here and which link is used.
    Whoami(login::WhoamiArguments),
    /// Invite a person or an agent: print a link, or with --code a line to send.
    Invite(invite::InviteArguments),
    /// List or revoke tokens.
    Tokens(tokens::TokensArguments),

    /// How dangerous is this command, and why? The exit code says it too: 0 read, 10 write,
    /// 20 destructive, 30 blocked.
    Check(check::CheckArguments),
    /// The rules that commands are sorted by.
    Policy(policy::PolicyArguments),
    /// Check, read or export the record of what happened.
    Audit(audit::AuditArguments),

    /// What this machine can enforce.
    Doctor(doctor::DoctorArguments),
    /// Completions for a shell: subcommands, options, and gates, sessions, agents and rules.
    Completions(completion::CompletionsArguments),
    /// What could come next on a command line; called by the script of `pvp completions`.
    #[command(hide = true)]
    Complete(completion::CompleteArguments),
    /// Manual pages.
    Man(manual::ManArguments),
}

/// Runs a command; without one, says what to do next.
pub(crate) fn run(command: Option<CliCommand>) -> anyhow::Result<ExitCode> {
    let Some(command) = command else {
        return status::run();
    };
    match command {
        CliCommand::Up(arguments) => up::run(arguments),
        CliCommand::Demo(arguments) => demo::run(arguments),
        CliCommand::Server(arguments) => server::run(&arguments),
        CliCommand::Agent(arguments) => agent::run(&arguments),
        CliCommand::Tui(arguments) => tui::run(arguments),
        CliCommand::Gates(arguments) => gates::list(&arguments),
        CliCommand::Show(arguments) => gates::show(&arguments),
        CliCommand::Approve(arguments) => gates::approve(&arguments),
        CliCommand::Reject(arguments) => gates::reject(&arguments),
        CliCommand::Amend(arguments) => gates::amend(&arguments),
        CliCommand::Cancel(arguments) => cancel::run(&arguments),
        CliCommand::Rules(arguments) => rules::run(&arguments),
        CliCommand::Send(arguments) => send::run(&arguments),
        CliCommand::Interrupt(arguments) => interrupt::run(&arguments),
        CliCommand::Exec(arguments) => exec::run(arguments),
        CliCommand::Tail(arguments) => tail::run(&arguments),
        CliCommand::History(arguments) => history::run(&arguments),
        CliCommand::Output(arguments) => history::output(&arguments),
        CliCommand::Sessions(arguments) => sessions::run(&arguments),
        CliCommand::Create(arguments) => sessions::create(&arguments),
        CliCommand::Session(arguments) => session::run(&arguments),
        CliCommand::Connect(arguments) => connect::run(arguments),
        CliCommand::Join(arguments) => join::run(&arguments),
        CliCommand::Login(arguments) => login::login(&arguments),
        CliCommand::Logout(arguments) => login::logout(&arguments),
        CliCommand::Whoami(arguments) => login::whoami(&arguments),
        CliCommand::Invite(arguments) => invite::run(arguments),
        CliCommand::Tokens(arguments) => tokens::run(&arguments),
        CliCommand::Check(arguments) => check::run(arguments),
        CliCommand::Policy(arguments) => policy::run(arguments),
        CliCommand::Audit(arguments) => audit::run(arguments),
        CliCommand::Doctor(arguments) => doctor::run(&arguments),
        CliCommand::Completions(arguments) => completion::print_script(&arguments),
        CliCommand::Complete(arguments) => completion::complete(&arguments),
        CliCommand::Man(arguments) => manual::man(&arguments),
    }
}

/// Where the ends of logs are remembered; `None` if there is no home directory.
fn record_memory() -> Option<RecordMemory> {
    let state = pvp_client::user_directories::state_directory().ok()?;
    Some(RecordMemory::new(&state))
}

/// For a connection that shows a person what is odd about a session's log.
fn reported_record_check() -> RecordCheck {
    record_memory().map_or(RecordCheck::Off, RecordCheck::Report)
}

/// Compares the log of a session with what was seen of it before, and says what is odd about it.
fn check_record(api: &ApiClient, session: &SessionId, received: u64) {
    let Some(memory) = record_memory() else {
        return;
    };
    match memory.check(api, session, received) {
        Ok(None) => {}
        Ok(Some(warning)) => print_error(&warning.into()),
        Err(error) => print_error(&error.into()),
    }
}

/// Prints text to standard output. It may quote others, so whatever would not show is escaped.
fn print_line(line: impl std::fmt::Display) -> anyhow::Result<()> {
    let line = escape_invisible(&line.to_string());
    print_bytes(format!("{line}\n").as_bytes())
}

/// Prints JSON to standard output. Its meaning stays the same: whatever would not show is inside a
/// string, where JSON has an escape for it.
fn print_json(json: impl std::fmt::Display) -> anyhow::Result<()> {
    let mut line = String::new();
    for c in json.to_string().chars() {
        let mut buffer = [0; 4];
        let text: &str = c.encode_utf8(&mut buffer);
        if escape_invisible(text) == text {
            line.push(c);
        } else {
            let units = text.encode_utf16().map(|unit| format!("\\u{unit:04x}"));
            line.extend(units);
        }
    }
    print_bytes(format!("{line}\n").as_bytes())
}

/// Prints bytes to standard output. If the reader has closed the pipe, exits quietly.
fn print_bytes(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.context("writing to standard output"),
    }
}

/// Prints an error to standard error. If that fails too, there is nowhere left to report it.
pub(crate) fn print_error(error: &anyhow::Error) {
    // The message may quote text from others.
    let problem = escape_invisible(&format!("{error:#}"));
    let _ = writeln!(std::io::stderr(), "pvp: {problem}");
}

/// Escapes text from others so that it cannot pass for a line of this program's output.
fn one_line(text: &str) -> String {
    escape_invisible(text)
        .replace('\n', "\\n")
        .replace('\t', "\\t")
}

/// The directory that this program was started in.
fn current_directory() -> anyhow::Result<PathBuf> {
    std::env::current_dir().context("finding the working directory")
}

/// Prints a warning to standard error. If that fails, there is nowhere left to report it.
fn print_warning(warning: &str) {
    print_error(&anyhow::anyhow!("{warning}"));
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the runtime")
}

/// Returns a future that waits for Ctrl-C or SIGTERM. The signals are caught from this call on, not
/// only from the first poll.
fn shutdown_signal() -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
    let mut interrupt = signal(SignalKind::interrupt()).context("watching for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("watching for signals")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn parse_session_id(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).map_err(|error| error.to_string())
}

fn parse_participant_id(text: &str) -> Result<ParticipantId, String> {
    ParticipantId::parse(text).map_err(|error| error.to_string())
}

fn parse_message_id(text: &str) -> Result<MessageId, String> {
    MessageId::parse(text).map_err(|error| error.to_string())
}
