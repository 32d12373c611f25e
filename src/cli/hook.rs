//! `pvp hook`: what agent clients call before and after each of their calls.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use std::os::unix::process::CommandExt;

use clap::{Args, Subcommand};
use pvp_bridge::client_files::{CallStage, ClientFiles};
use pvp_bridge::client_processes::ProcessName;
use pvp_bridge::hooks::{self, HookAnswer, HookClient, HookQuestion, HookReply};
use pvp_client::narrate;
use pvp_client::view::escape_invisible;
use pvp_protocol::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{SignalKind, signal};

use super::hook_identity::{self, HookedClient};
use super::hook_install::{self, HookInstallArguments};
use super::{hook_keep, print_line, server, supervision};

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

impl ClientHookArguments {
    /// Whether it changes what a client asks about.
    pub(super) fn changes_settings(&self) -> bool {
        match self.command {
            HookCommand::Install(_) | HookCommand::Uninstall(_) => true,
            HookCommand::Run { .. } | HookCommand::Keep { .. } | HookCommand::Status { .. } => {
                false
            }
        }
    }
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
            print_line(status_line(&ClientFiles::at(files), pvp_clock::now()))?;
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
    let read = HookQuestion::read(std::io::stdin().lock());
    let denied = |why: &str| {
        let denied = HookAnswer::deny(&format!("Not allowed: {why}."));
        print_reply(&client.reply(&denied))
    };
    let (input, is_cut) = match read {
        Ok(HookQuestion::Whole(input)) => (input, false),
        Ok(HookQuestion::Cut(input)) => (input, true),
        Ok(HookQuestion::TooLong) => return denied(hooks::TOO_LONG),
        Err(error) => {
            return denied(&format!("the client's question could not be read: {error}"));
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
    let reply = match is_cut {
        true => hooks::answer_cut(client, &files, &event, &input),
        false => wait_for_answer(client, files, event, input),
    };
    print_reply(&reply)
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
    // Not by the standard library's own handle, which says that all is well if it cannot write there.
    let stdout = std::io::stdout().as_fd().try_clone_to_owned();
    let written = stdout.and_then(|stdout| File::from(stdout).write_all(reply.stdout.as_bytes()));
    let _ = std::io::stderr().write_all(reply.stderr.as_bytes());
    match written {
        Ok(()) => ExitCode::from(reply.exit_code),
        // This exit code denies the call in every client.
        Err(_) => ExitCode::from(2),
    }
}

fn status_line(files: &ClientFiles, now: Timestamp) -> String {
    let Ok(settings) = files.settings() else {
        return "PVP: this client is not supervised".to_owned();
    };
    let calls = files.open_calls();
    let mut waiting = calls
        .iter()
        .filter(|(_, call)| call.stage == CallStage::Waiting)
        .filter_map(|(_, call)| Some((call.waits_for.as_deref()?, call.since)));
    match waiting.next() {
        Some((first, since)) => {
            let waited = narrate::duration(now.millis_since(since));
            let more = waiting.count();
            let more = match more {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            let key = settings.answer_key;
            let here = key
                .map(|key| format!(", or {key} here"))
                .unwrap_or_default();
            let first = escape_invisible(first);
            format!("PVP: {first}{here}; {waited} so far{more}")
        }
        None => {
            let session = settings.session;
            format!("PVP: supervised in session {session}; nothing waits")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_bridge::client_files::{ClientSettings, OpenCall};
    use pvp_protocol::MessageId;
    use serde_json::json;

    #[test]
    fn the_status_line_says_how_long_a_call_has_waited() {
        let directory = tempfile::tempdir().unwrap();
        let files = ClientFiles::at(&directory.path().join("claude"));
        let _lock = files.lock().unwrap();
        let settings: ClientSettings = serde_json::from_value(json!({
            "client": "claude", "workspace": "/srv", "session": "owl", "participant": "claude-1",
            "agent_link": "http://127.0.0.1:1/", "answer_key": "ctrl+]",
        }))
        .unwrap();
        files.begin(&settings).unwrap();
        let now = pvp_clock::now();
        assert!(status_line(&files, now).ends_with("nothing waits"));
        let call: OpenCall = serde_json::from_value(json!({
            "stage": "waiting", "conversation": "c", "tool": "Bash", "input": {}, "since": now,
            "waits_for": "Bash waits for 0 of 1 (ann): pvp approve 2bfd8c@9f8235",
        }))
        .unwrap();
        let id = MessageId::parse("t1").unwrap();
        files.set_call(&id, &call).unwrap();
        assert_eq!(
            status_line(&files, now.plus_seconds(300)),
            "PVP: Bash waits for 0 of 1 (ann): pvp approve 2bfd8c@9f8235, or ctrl+] here; 5 min so far"
        );
    }
}
