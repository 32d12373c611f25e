//! The commands of the `pvp` binary, one module per command or group of commands.

mod acp;
mod administration;
mod agent;
mod agent_client;
mod agent_flags;
mod audit;
mod cancel;
mod check;
mod completion;
mod connect;
mod demo;
mod doctor;
mod doctor_client;
mod exec;
mod gates;
mod git;
mod history;
mod hook;
mod hook_identity;
mod hook_install;
mod hook_keep;
mod interrupt;
mod invite;
mod join;
mod link_argument;
mod links;
mod local_server;
mod log_line;
mod login;
mod manual;
mod mcp;
mod notify;
mod open;
mod own_links;
mod policy;
mod program_name;
mod proposal_handle;
mod rules;
mod run;
mod run_codex;
mod run_terminal;
mod send;
mod server;
mod session;
mod session_settings;
mod sessions;
mod share;
mod shell_words;
mod status;
mod supervised_ancestor;
mod supervision;
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
    /// Start a server with a session; with --share, print a command that lets another person join.
    Up(up::UpArguments),
    /// Try PVP with a scripted agent whose commands you approve or reject; --tour explains each step.
    Demo(demo::DemoArguments),
    /// Run a server without a session, or maintain its signing key.
    Server(server::ServerCommandArguments),
    /// Run an agent: a model or a script proposes commands, and this machine runs those allowed.
    Agent(Box<agent::AgentArguments>),
    /// Start an agent client that you have, such as claude or codex, under supervision.
    Run(Box<run::RunArguments>),
    /// What agent clients call before and after each of their calls.
    Hook(hook::ClientHookArguments),
    /// Serve an agent client over MCP: what it calls is proposed, approved and run on this machine.
    Mcp(Box<mcp::McpArguments>),
    /// Stand between an editor and its agent: the editor starts `pvp acp -- CMD` in place of CMD.
    Acp(Box<acp::AcpArguments>),

    /// Open a session full screen, to watch the agent, decide on its commands and send prompts.
    Tui(tui::TuiArguments),
    /// List the commands that wait for approval, in every session that your link opens.
    Gates(gates::GatesArguments),
    /// Show one command in full: what it runs, why it was stopped, and who has voted.
    Show(gates::ShowArguments),
    /// Approve a command.
    Approve(gates::ApproveArguments),
    /// Reject a command and tell the agent why.
    Reject(gates::RejectArguments),
    /// Edit a command before it runs; earlier approvals no longer count.
    Amend(gates::AmendArguments),
    /// Withdraw a command that waits, or stop one that runs.
    Cancel(cancel::CancelArguments),

    /// List, add or revoke the rules that let commands run without approval.
    Rules(rules::RulesArguments),

    /// Send the agent a prompt, or send any other message.
    Send(send::SendArguments),
    /// Interrupt an agent and stop its commands.
    Interrupt(interrupt::InterruptArguments),
    /// Run a command of your own where the agent's commands run, and print its output.
    Exec(exec::ExecArguments),
    /// Print the latest events of a session; with --follow, keep printing new ones.
    Tail(tail::TailArguments),
    /// List the commands of a session: their category, who approved them, how they ended.
    History(history::HistoryArguments),
    /// Print the output of a command.
    Output(history::OutputArguments),
    /// List sessions, or archive or delete one.
    Sessions(sessions::SessionsArguments),
    /// Create a session.
    Create(sessions::CreateArguments),
    /// Show or change the settings of a session, such as how many approvals commands need.
    Session(session::SessionArguments),
    /// Exchange messages with a session on standard input and output, one JSON object per line.
    Connect(connect::ConnectArguments),

    /// Print a link that opens the page in a browser, once; --qr for a phone.
    Open(open::OpenArguments),
    /// Join a server with a code or link that somebody sent you, and open the screen.
    Join(join::JoinArguments),
    /// Save a link for this directory.
    Login(login::LoginArguments),
    /// Delete the link saved for this directory.
    Logout(login::LogoutArguments),
    /// Show who you are, on which server, and which link says so.
    Whoami(login::WhoamiArguments),
    /// Invite a person or an agent: print a link, or with --code a command to send them.
    Invite(invite::InviteArguments),
    /// List or revoke tokens.
    Tokens(tokens::TokensArguments),
    /// Be notified of commands that wait for your vote: by webhook, ntfy, Slack, Discord or e-mail.
    Notify(notify::NotifyArguments),

    /// Classify a command without running it; exits with 0 for read, 10 write, 20 destructive,
    /// 30 blocked.
    Check(check::CheckArguments),
    /// Show, test or explain the rules that classify commands.
    Policy(policy::PolicyArguments),
    /// Verify, show or export the log of a server.
    Audit(audit::AuditArguments),
    /// Record in a git repository which approved commands led to a commit, and show it per line.
    Git(git::GitArguments),

    /// Check what this machine can enforce: sandbox, limits, file permissions.
    Doctor(doctor::DoctorArguments),
    /// Print a completion script for a shell; it also completes handles, sessions, agents and rules.
    Completions(completion::CompletionsArguments),
    /// What could come next on a command line; called by the script of `pvp completions`.
    #[command(hide = true)]
    Complete(completion::CompleteArguments),
    /// Print the manual page, or write one for every command.
    Man(manual::ManArguments),
}

/// Runs a command; without one, says what to do next.
pub(crate) fn run(command: Option<CliCommand>) -> anyhow::Result<ExitCode> {
    let Some(command) = command else {
        return status::run();
    };
    supervised_ancestor::check(&command)?;
    match command {
        CliCommand::Up(arguments) => up::run(arguments),
        CliCommand::Demo(arguments) => demo::run(arguments),
        CliCommand::Server(arguments) => server::run(&arguments),
        CliCommand::Agent(arguments) => agent::run(&arguments),
        CliCommand::Run(arguments) => run::run(&arguments),
        CliCommand::Hook(arguments) => hook::run(&arguments),
        CliCommand::Mcp(arguments) => mcp::run(&arguments),
        CliCommand::Acp(arguments) => acp::run(&arguments),
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
        CliCommand::Open(arguments) => open::run(&arguments),
        CliCommand::Invite(arguments) => invite::run(arguments),
        CliCommand::Tokens(arguments) => tokens::run(&arguments),
        CliCommand::Notify(arguments) => notify::run(&arguments),
        CliCommand::Check(arguments) => check::run(arguments),
        CliCommand::Policy(arguments) => policy::run(arguments),
        CliCommand::Audit(arguments) => audit::run(arguments),
        CliCommand::Git(arguments) => git::run(&arguments),
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
