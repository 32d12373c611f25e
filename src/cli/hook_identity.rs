//! Finds who the client of an installed hook is: a process that nobody started with `pvp run`.
//!
//! Each process of a client is an agent of its own. The first hook of a process starts a keeper,
//! which takes an identity for it, is present in the session, renews its leases, and lives as long
//! as the process does.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pvp_bridge::client_files::ClientFiles;
use pvp_bridge::client_processes::ProcessName;
use pvp_bridge::hooks::HookClient;
use pvp_client::user_directories::{create_private_directory, state_directory};
use pvp_tui::client_terminal::LEADER_SUBCOMMAND;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a keeper may take to join.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause between two looks whether another hook has finished starting the keeper.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Where in the state it is noted which processes are clients.
const ENTRIES: &str = "bridges/processes";

/// What a keeper says when it has joined, or why it could not.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeeperSaid {
    Files(PathBuf),
    Failed(String),
}

/// Who a hook answers for.
pub(super) enum HookedClient {
    /// `pvp run` started the client and gave it hooks of its own, or `pvp agent --client` did, which
    /// is asked about each of its calls.
    SupervisedElsewhere,
    /// The files of the client.
    Files(PathBuf),
}

/// Finds the client whose hook this process is. The error says why nobody can be asked.
pub(super) fn find(client: HookClient, input: &[u8]) -> Result<HookedClient, String> {
    let process = client_process(client).ok_or("the client's process could not be found")?;
    if is_started_by_run(client, process) {
        return Ok(HookedClient::SupervisedElsewhere);
    }
    let directory = directory_of(input)?;
    let entries = entries_directory()?;
    let name = entry_name(client, process);
    let _starting = lock(&entries.join(format!("{name}.lock")))?;
    let entry = entries.join(&name);
    if let Some(files) = known_files(&entry) {
        return Ok(HookedClient::Files(files));
    }
    forget_old(&entries);
    let files = start_keeper(client, process, &directory)?;
    write_entry(&entry, &files).map_err(|error| format!("it could not be noted: {error}"))?;
    Ok(HookedClient::Files(files))
}

fn entry_name(client: HookClient, process: ProcessName) -> String {
    format!("{}-{}-{}", client.name(), process.pid, process.started)
}

/// Whether a process is a client whose installed hooks have asked something.
pub(super) fn is_hooked(pid: i32) -> bool {
    let (Some(process), Ok(state)) = (ProcessName::of(pid), state_directory()) else {
        return false;
    };
    let entries = state.join(ENTRIES);
    let mut clients = HookClient::ALL.into_iter();
    clients.any(|client| entries.join(entry_name(client, process)).exists())
}

/// The directory that the client says it works in.
fn directory_of(input: &[u8]) -> Result<PathBuf, String> {
    let input: Value = serde_json::from_slice(input)
        .map_err(|error| format!("what the client said is not JSON: {error}"))?;
    let said = input["cwd"].as_str().or(input["directory"].as_str());
    let path = PathBuf::from(said.ok_or("the client does not say in which directory it works")?);
    match path.is_absolute() && path.is_dir() {
        true => Ok(path),
        false => Err(format!("{} is not a directory here", path.display())),
    }
}

fn entries_directory() -> Result<PathBuf, String> {
    let state = state_directory().map_err(|error| error.to_string())?;
    let entries = state.join(ENTRIES);
    create_private_directory(&entries).map_err(|error| error.to_string())?;
    Ok(entries)
}

/// The process that the client is: the nearest one above that is not the shell of this hook.
fn client_process(client: HookClient) -> Option<ProcessName> {
    let said = format!("hook run {}", client.name());
    ProcessName::ancestors().find(|process| !is_shell_with(&process.words(), &said))
}

/// Whether these words start a shell that runs this. A client may have it among its settings.
fn is_shell_with(words: &[String], text: &str) -> bool {
    let program = words.first().map(Path::new).and_then(Path::file_name);
    let is_shell = program.is_some_and(|name| name.to_string_lossy().ends_with("sh"));
    let runs = |pair: &[String]| {
        let is_flag = pair[0].starts_with('-') && pair[0].ends_with('c');
        is_flag && pair[1].contains(text)
    };
    is_shell && words.windows(2).any(runs)
}

/// Whether `pvp run` started this client, and not something that a client of its runs.
fn is_started_by_run(client: HookClient, process: ProcessName) -> bool {
    // These start themselves again.
    let between = match client {
        HookClient::Gemini | HookClient::Copilot => 1,
        HookClient::Claude | HookClient::Codex | HookClient::OpenCode => 0,
    };
    let own = std::env::current_exe().ok();
    let is_own = |above: &ProcessName, word: &str| {
        let is_word = above.words().get(1).is_some_and(|it| it == word);
        is_word && own.is_some() && above.program() == own
    };
    let above = ProcessName::ancestors().skip_while(|above| *above != process);
    // What leads the client's terminal stands between, and supervises nothing by itself.
    let above = above.filter(|above| !is_own(above, LEADER_SUBCOMMAND));
    let mut above = above.skip(1).take(between + 1);
    above.any(|above| {
        is_own(&above, "run") || is_own(&above, "agent") && drives_client(&above.words())
    })
}

/// Whether these words start `pvp agent` in a client's own protocol. What an agent that speaks ACP
/// asks about is less than what its hooks ask about.
fn drives_client(words: &[String]) -> bool {
    let flag = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
    let mut flags = words.iter().map(flag);
    // What follows either of them belongs to the program that is started.
    let first = flags.find(|flag| ["--client", "--acp"].contains(&flag.as_str()));
    first.as_deref() == Some("--client")
}

/// Waits until no other hook of the same client starts its keeper.
fn lock(path: &Path) -> Result<File, String> {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let file = options.open(path).map_err(|error| error.to_string())?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The files of a client whose keeper lives.
fn known_files(entry: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(entry).ok()?;
    let files: PathBuf = serde_json::from_str(&text).ok()?;
    // The keeper holds the identity as long as it lives.
    let is_kept = matches!(ClientFiles::at(&files).lock(), Ok(None));
    is_kept.then_some(files)
}

fn write_entry(entry: &Path, files: &Path) -> std::io::Result<()> {
    let temporary = entry.with_extension("new");
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true).mode(0o600);
    options
        .open(&temporary)?
        .write_all(serde_json::to_string(files)?.as_bytes())?;
    std::fs::rename(temporary, entry)
}

/// Removes what is noted about processes that have ended.
fn forget_old(entries: &Path) {
    let found = std::fs::read_dir(entries).into_iter().flatten();
    for path in found.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_stem().and_then(|name| name.to_str());
        let mut parts = name.unwrap_or_default().rsplit('-');
        let started = parts.next().and_then(|part| part.parse().ok());
        let pid = parts.next().and_then(|part| part.parse().ok());
        if let (Some(pid), Some(started)) = (pid, started)
            && !(ProcessName { pid, started }).is_alive()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts a keeper that stays when this hook ends.
fn start_keeper(
    client: HookClient,
    process: ProcessName,
    directory: &Path,
) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .args(["hook", "keep", client.name(), "--pid"])
        .arg(process.pid.to_string())
        .arg("--started")
        .arg(process.started.to_string())
        .current_dir(directory)
        .env_remove("PVP_LINK")
        .env_remove("PVP_AGENT_LINK")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // The client waits until nobody holds what the hook prints to.
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("its keeper could not be started: {error}"))?;
    let stdout = child.stdout.take();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        if let Some(stdout) = stdout {
            const MAX_LINE_BYTES: u64 = 64 * 1024;
            let _ = BufReader::new(stdout.take(MAX_LINE_BYTES)).read_line(&mut line);
        }
        // Nobody listens any more if it took too long.
        let _ = sender.send(line);
    });
    let line = receiver.recv_timeout(START_TIMEOUT).unwrap_or_default();
    match serde_json::from_str(&line) {
        Ok(KeeperSaid::Files(files)) => Ok(files),
        Ok(KeeperSaid::Failed(why)) => Err(why),
        Err(_) => {
            // It must not take the identity later, when nobody waits for it.
            let _ = child.kill();
            let _ = child.wait();
            Err("its keeper did not start".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_speaks_acp_is_told_apart_from_a_client_that_is_driven() {
        let drives = |words: &str| {
            let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
            drives_client(&words)
        };
        assert!(drives("pvp agent --once --client claude --acp"));
        assert!(drives("pvp agent --client=codex"));
        assert!(!drives("pvp agent --acp claude-agent-acp --client"));
        assert!(!drives("pvp agent --script x"));
    }

    #[test]
    fn the_shell_of_a_hook_is_told_apart_from_the_client() {
        let is_shell = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            is_shell_with(&words, "hook run claude")
        };
        assert!(is_shell(&[
            "/bin/sh",
            "-c",
            "'/usr/bin/pvp' hook run claude"
        ]));
        assert!(is_shell(&["bash", "-lc", "pvp hook run claude --event x"]));
        assert!(!is_shell(&[
            "claude",
            "--settings",
            "{\"pvp hook run claude\"}"
        ]));
        assert!(!is_shell(&[
            "/bin/bash",
            "/bin/claude",
            "--settings",
            "pvp hook run claude"
        ]));
        assert!(!is_shell(&["bash", "-c", "claude"]));
        assert!(!is_shell(&[]));
    }
}
