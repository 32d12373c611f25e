//! `pvp hook`: what agent clients call before and after each of their calls.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use std::os::unix::process::CommandExt;

use clap::{Args, Subcommand};
use pvp_bridge::client_files::{CallStage, ClientFiles};
use pvp_bridge::client_processes::ProcessName;
use pvp_bridge::hooks::{self, HookAnswer, HookClient, HookReply};
use pvp_client::view::escape_invisible;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

use super::hook_identity::{self, HookedClient};
use super::hook_install::{self, HookInstallArguments};
use super::{hook_keep, print_line, server, supervision};

/// Bytes of the longest question that is read.
const MAX_INPUT_BYTES: u64 = 16 * 1024 * 1024;

/// How often a hook looks whether its client is still there.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Args)]
pub(crate) struct ClientHookArguments {
    #[command(subcommand)]
    command: HookCommand,
}

#[derive(Subcommand)]
enum HookCommand {
    /// Answer one question of a client, on standard input and output
    Run {
        /// The client: claude, codex, opencode, gemini or copilot
        #[arg(value_parser = parse_client)]
        client: HookClient,
        /// The directory with what is kept about the client [default: that of the process that calls
        /// the hook, in the session of the directory that it works in]
        #[arg(long, value_name = "DIR")]
        files: Option<PathBuf>,
        /// The event, for clients that do not say it
        #[arg(long, value_name = "NAME", default_value = "")]
        event: String,
    },
    /// Put the hooks of a client into its own settings, so that each of its calls is asked about
    Install(HookInstallArguments),
    /// Take them out again
    Uninstall(HookInstallArguments),
    /// Stay in the session for a client whose hooks are installed
    #[command(hide = true)]
    Keep {
        #[arg(value_parser = parse_client)]
        client: HookClient,
        /// The client's process
        #[arg(long)]
        pid: i32,
        /// When it started, in ticks since the machine did
        #[arg(long)]
        started: u64,
    },
    /// Print in one line what waits for approval, for a client's status line
    Status {
        /// The directory with what is kept about the client
        #[arg(long, value_name = "DIR")]
        files: PathBuf,
    },
}

pub(crate) fn run(arguments: &ClientHookArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        HookCommand::Run {
            client,
            files,
            event,
        } => Ok(answer(*client, files.clone(), event.clone())),
        HookCommand::Install(arguments) => hook_install::install(arguments),
        HookCommand::Uninstall(arguments) => hook_install::uninstall(arguments),
        HookCommand::Keep {
            client,
            pid,
            started,
        } => hook_keep::run(
            *client,
            ProcessName {
                pid: *pid,
                started: *started,
            },
        ),
        HookCommand::Status { files } => {
            print_line(status_line(&ClientFiles::at(files)))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

pub(super) fn parse_client(text: &str) -> Result<HookClient, String> {
    HookClient::from_name(text).ok_or_else(|| {
        let names = HookClient::ALL.map(HookClient::name).join(", ");
        format!("`{text}` is none of the clients that have hooks: {names}")
    })
}

/// Answers a question. Every way out of here that is not an answer denies the call.
fn answer(client: HookClient, files: Option<PathBuf>, event: String) -> ExitCode {
    if files.is_none() && std::env::var_os("HOME").is_none() {
        return with_own_home();
    }
    let input = match read_question() {
        Ok(input) => input,
        Err(why) => {
            let denied = HookAnswer::deny(&format!("Not allowed: {why}."));
            return print_reply(&client.reply(&denied));
        }
    };
    let files = match files {
        Some(files) => files,
        None => match hook_identity::find(client, &input) {
            Ok(HookedClient::Files(files)) => files,
            Ok(HookedClient::SupervisedElsewhere) => {
                return print_reply(&hooks::left_to_others(client, &event, &input));
            }
            Err(why) => {
                return print_reply(&hooks::without_session(client, &event, &input, &why));
            }
        },
    };
    if let Ok(log) = supervision::open_log(&files) {
        server::init_tracing_to_file("warn", log);
    }
    print_reply(&wait_for_answer(client, files, event, input))
}

/// Starts again with the home of this user, for hooks that are installed for everybody.
fn with_own_home() -> ExitCode {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let home = users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        (fields.get(2) == Some(&uid.as_str())).then(|| fields.get(5).map(|it| (*it).to_owned()))?
    });
    if let (Some(home), Ok(program)) = (home, std::env::current_exe()) {
        let error = std::process::Command::new(program)
            .args(std::env::args_os().skip(1))
            .env("HOME", home)
            .exec();
        let _ = writeln!(std::io::stderr(), "pvp: starting again failed: {error}");
    }
    // This exit code denies the call in every client.
    ExitCode::from(2)
}

fn read_question() -> Result<Vec<u8>, String> {
    let mut input = Vec::new();
    let read = std::io::stdin()
        .lock()
        .take(MAX_INPUT_BYTES + 1)
        .read_to_end(&mut input);
    read.map_err(|error| format!("the client's question could not be read: {error}"))?;
    match input.len() as u64 > MAX_INPUT_BYTES {
        true => Err(format!("the call has more than {MAX_INPUT_BYTES} bytes")),
        false => Ok(input),
    }
}

/// Waits for the answer, as long as the client waits for it.
fn wait_for_answer(client: HookClient, files: PathBuf, event: String, input: Vec<u8>) -> HookReply {
    let failed = |why: &str| client.reply(&HookAnswer::deny(&format!("Not allowed: {why}.")));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    else {
        return failed("the hook could not start");
    };
    let (asked_files, asked_event, asked_input) = (files.clone(), event.clone(), input.clone());
    let reply = runtime.block_on(async {
        let answered = tokio::task::spawn_blocking(move || {
            hooks::answer(client, &asked_files, &asked_event, &asked_input)
        });
        tokio::select! {
            reply = answered => reply.ok(),
            () = client_gone() => {
                let withdrawn = tokio::task::spawn_blocking(move || {
                    hooks::withdraw(client, &files, &event, &input);
                });
                let _ = withdrawn.await;
                None
            }
        }
    });
    // The thread that waits for the server is of no use any more.
    runtime.shutdown_background();
    reply.unwrap_or_else(|| failed("the hook was stopped"))
}

/// Waits until the client ends the hook, or nobody reads its answer any more.
async fn client_gone() {
    let (Ok(mut terminated), Ok(mut interrupted)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return;
    };
    loop {
        tokio::select! {
            _ = terminated.recv() => return,
            _ = interrupted.recv() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {
                if nobody_reads() {
                    return;
                }
            }
        }
    }
}

fn nobody_reads() -> bool {
    let stdout = std::io::stdout();
    let mut descriptors = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let polled = poll(&mut descriptors, Some(&at_once));
    // A pipe without a reader is an error; some clients use a socket, which hangs up.
    let gone = PollFlags::ERR | PollFlags::HUP;
    polled.is_ok() && descriptors[0].revents().intersects(gone)
}

fn print_reply(reply: &HookReply) -> ExitCode {
    let mut stdout = std::io::stdout();
    let written = stdout
        .write_all(reply.stdout.as_bytes())
        .and_then(|()| stdout.flush());
    let _ = std::io::stderr().write_all(reply.stderr.as_bytes());
    match written {
        Ok(()) => ExitCode::from(reply.exit_code),
        // This exit code denies the call in every client.
        Err(_) => ExitCode::from(2),
    }
}

fn status_line(files: &ClientFiles) -> String {
    let session = files.settings().map(|settings| settings.session);
    let Ok(session) = session else {
        return "PVP: this client is not supervised".to_owned();
    };
    let calls = files.open_calls();
    let mut waiting = calls
        .iter()
        .filter(|(_, call)| call.stage == CallStage::Waiting)
        .filter_map(|(_, call)| call.waits_for.as_deref());
    match waiting.next() {
        Some(first) => {
            let more = waiting.count();
            let more = match more {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            format!("PVP: {}{more}", escape_invisible(first))
        }
        None => format!("PVP: supervised in session {session}; nothing waits"),
    }
}
