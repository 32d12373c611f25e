//! What is kept on this machine about one supervised client: who it is in which session, which of
//! its calls wait or run, and what people want of it.
//!
//! Each hook is a process of its own that lives as long as one question, so what they know of each
//! other is in these files. They lie in the user's state directory, which no agent may touch.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pvp_client::Link;
use pvp_client::user_directories::create_private_directory;
use pvp_protocol::{JsonObject, MessageId, ParticipantId, SessionId, Timestamp};
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hooks::HooksFrom;

/// Bytes of the longest file that is read.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// Prompts that wait for the client; later ones are not kept.
const MAX_PROMPTS: usize = 64;

const SETTINGS: &str = "client.json";
const LOCK: &str = "lock";
const STOP: &str = "stop";
const TURN: &str = "turn";
const LEAVING: &str = "leaving";
const CALLS: &str = "calls";
const PROMPTS: &str = "prompts";
const PASSED_ON: &str = "passed-on";

/// Who a client is, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSettings {
    /// The client's name, such as `claude`.
    pub client: String,
    /// Its version, if it is known.
    pub version: Option<String>,
    /// The directory that it works in, as an absolute path without links.
    pub workspace: PathBuf,
    /// The session that it is supervised in.
    pub session: SessionId,
    /// Who the agent is there.
    pub participant: ParticipantId,
    /// The agent's link, with its token.
    pub agent_link: String,
    /// The person at the client's terminal, if they have a link here.
    pub person: Option<PersonAtClient>,
    /// The file that the server holds a lock on while it runs, if it is one of this user's. Without
    /// the lock, whoever answers at its address is somebody else.
    #[serde(default)]
    pub server_lock: Option<PathBuf>,
    /// Seconds after which a call that waits ends the client, to be resumed later; `None` waits on.
    pub defer_after_seconds: Option<u64>,
    /// The key with which the person at the client's terminal answers there, if they can.
    #[serde(default)]
    pub answer_key: Option<String>,
    /// How it came to its hooks, if it has any.
    #[serde(default)]
    pub hooks_from: HooksFrom,
}

impl ClientSettings {
    pub fn agent_link(&self) -> Result<Link, String> {
        Link::parse(&self.agent_link).map_err(|error| error.to_string())
    }
}

/// The person at a client's terminal, in whose name their prompts are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersonAtClient {
    pub participant: ParticipantId,
    /// Their link, with its token.
    pub link: String,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallStage {
    /// A hook waits for its decision.
    Waiting,
    /// It was allowed, and the client has not said how it ended.
    Running,
    /// It goes on in the background of the client, and its end is not known.
    Background,
    /// It waits without a hook, for the client to come back.
    Deferred,
}

/// A call of the client that is not over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// How far it has come.
    pub stage: CallStage,
    /// The client's conversation.
    pub conversation: String,
    /// The client's name of the tool.
    pub tool: String,
    /// The input that the client was told to run.
    pub input: JsonObject,
    /// The line that says what it waits for, for the client's status line.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// When it came to this stage.
    pub since: Timestamp,
}

/// What a person says to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingPrompt {
    /// The name of the person.
    pub by: String,
    pub text: String,
}

/// The files of one supervised client.
#[derive(Debug, Clone)]
pub struct ClientFiles {
    directory: PathBuf,
}

/// That no other process supervises a client with the same identity, for as long as this lives.
#[derive(Debug)]
pub struct IdentityLock {
    file: File,
}

impl IdentityLock {
    /// Lets the processes that this one starts hold the identity too, so that it stays taken as long
    /// as the client lives.
    pub fn keep_with_children(&self) -> io::Result<()> {
        rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty())?;
        Ok(())
    }
}

impl ClientFiles {
    /// The files in this directory, which are made when they are needed.
    pub fn at(directory: &Path) -> Self {
        let directory = directory.to_owned();
        Self { directory }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Takes the identity that these files are of; `None` if another client has it.
    pub fn lock(&self) -> io::Result<Option<IdentityLock>> {
        create_private_directory(&self.directory)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(self.directory.join(LOCK))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(IdentityLock { file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins with a client: what an earlier one left is forgotten, except calls that wait for its
    /// return.
    pub fn begin(&self, settings: &ClientSettings) -> io::Result<()> {
        create_private_directory(&self.directory)?;
        create_private_directory(&self.directory.join(CALLS))?;
        create_private_directory(&self.directory.join(PROMPTS))?;
        for (id, call) in self.open_calls() {
            if call.stage != CallStage::Deferred {
                self.end_call(&id);
            }
        }
        self.clear_stop();
        self.stay();
        self.end_turn();
        self.take_prompts();
        let _ = std::fs::remove_file(self.directory.join(PASSED_ON));
        self.write(&self.directory.join(SETTINGS), settings)
    }

    pub fn settings(&self) -> Result<ClientSettings, String> {
        let path = self.directory.join(SETTINGS);
        read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    /// Notes that a hook waits for the decision about a call. False if somebody decides or runs the
    /// same call already: each call is decided once.
    pub fn begin_call(&self, id: &MessageId, call: &OpenCall) -> io::Result<bool> {
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        match options.open(self.call_path(id)) {
            Ok(mut file) => {
                let written = file.write_all(&serde_json::to_vec(call)?);
                // Half of it would keep the call from being asked about again.
                written.inspect_err(|_| self.end_call(id))?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes a call that waits for its client's return; false if it does not.
    pub fn take_deferred(&self, id: &MessageId) -> bool {
        let is_deferred = self
            .call(id)
            .is_some_and(|call| call.stage == CallStage::Deferred);
        // Of several that try, one can rename it.
        let taken = hidden(&self.call_path(id), "taken");
        is_deferred && std::fs::rename(self.call_path(id), &taken).is_ok() && {
            let _ = std::fs::remove_file(taken);
            true
        }
    }

    /// Notes how far a call has come.
    pub fn set_call(&self, id: &MessageId, call: &OpenCall) -> io::Result<()> {
        self.write(&self.call_path(id), call)
    }

    pub fn call(&self, id: &MessageId) -> Option<OpenCall> {
        read(&self.call_path(id)).ok()
    }

    /// Forgets a call that is over.
    pub fn end_call(&self, id: &MessageId) {
        let _ = std::fs::remove_file(self.call_path(id));
    }

    /// The calls that are not over, the oldest first.
    pub fn open_calls(&self) -> Vec<(MessageId, OpenCall)> {
        let mut calls: Vec<_> = self
            .files_in(CALLS)
            .into_iter()
            .filter_map(|path| {
                let id = MessageId::parse(path.file_name()?.to_str()?).ok()?;
                Some((id, read(&path).ok()?))
            })
            .collect();
        calls.sort_by_key(|(_, call): &(_, OpenCall)| call.since);
        calls
    }

    /// Says that people want the agent to stop, until somebody has told it.
    pub fn request_stop(&self, reason: &str) -> io::Result<()> {
        self.write(&self.directory.join(STOP), &reason)
    }

    /// Why the agent must stop, if it must.
    pub fn stop_requested(&self) -> Option<String> {
        let path = self.directory.join(STOP);
        let written = path.symlink_metadata().is_ok();
        // A reason that cannot be read is a reason to stop nevertheless.
        written.then(|| read(&path).unwrap_or_else(|_| "people interrupted it".to_owned()))
    }

    pub fn clear_stop(&self) {
        let _ = std::fs::remove_file(self.directory.join(STOP));
    }

    /// Notes that the client is about to leave, and that one call waits for its return. False if
    /// another call does already: the client comes back only to one.
    pub fn leave(&self) -> io::Result<bool> {
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        match options.open(self.directory.join(LEAVING)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes that the client does not leave.
    pub fn stay(&self) {
        let _ = std::fs::remove_file(self.directory.join(LEAVING));
    }

    /// Whether the client is about to leave.
    pub fn is_leaving(&self) -> bool {
        self.directory.join(LEAVING).exists()
    }

    /// Notes that the agent works on a prompt.
    pub fn begin_turn(&self) -> io::Result<()> {
        self.write(&self.directory.join(TURN), &pvp_clock::now())
    }

    pub fn end_turn(&self) {
        let _ = std::fs::remove_file(self.directory.join(TURN));
    }

    /// Whether the agent works on a prompt.
    pub fn is_in_turn(&self) -> bool {
        self.directory.join(TURN).exists()
    }

    /// Keeps a prompt until the client takes one. False if too many wait.
    pub fn queue_prompt(&self, id: &MessageId, prompt: &WaitingPrompt) -> io::Result<bool> {
        if self.files_in(PROMPTS).len() >= MAX_PROMPTS {
            return Ok(false);
        }
        self.write(&self.directory.join(PROMPTS).join(id.as_str()), prompt)?;
        Ok(true)
    }

    /// Takes the prompts that wait, the oldest first.
    pub fn take_prompts(&self) -> Vec<WaitingPrompt> {
        let mut files = self.files_in(PROMPTS);
        files.sort_by_key(|path| path.metadata().and_then(|it| it.modified()).ok());
        let taken = files.into_iter().filter_map(|path| {
            let prompt = read(&path).ok();
            std::fs::remove_file(path).ok().and(prompt)
        });
        taken.collect()
    }

    /// Notes what the agent is told of what people said elsewhere.
    pub fn note_passed_on(&self, text: &str) -> io::Result<()> {
        self.write(&self.directory.join(PASSED_ON), &text)
    }

    /// Whether this is what the agent was told so, of which some clients say then that it was typed.
    pub fn take_passed_on(&self, text: &str) -> bool {
        let path = self.directory.join(PASSED_ON);
        let passed_on = read::<String>(&path);
        let is_same = passed_on.is_ok_and(|passed_on| passed_on.trim() == text.trim());
        is_same && std::fs::remove_file(path).is_ok()
    }

    fn call_path(&self, id: &MessageId) -> PathBuf {
        // This is safe as a path: an id has no slash and does not begin with a dot.
        self.directory.join(CALLS).join(id.as_str())
    }

    fn files_in(&self, name: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory.join(name));
        let paths = entries.into_iter().flatten().filter_map(Result::ok);
        paths
            .map(|entry| entry.path())
            .filter(|path| !is_hidden(path))
            .collect()
    }

    /// Writes a file so that readers see all of it or what was there before.
    fn write(&self, path: &Path, content: &impl Serialize) -> io::Result<()> {
        let temporary = hidden(path, &format!("new{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let write = || {
            let mut file = options.open(&temporary)?;
            file.write_all(&serde_json::to_vec(content)?)?;
            std::fs::rename(&temporary, path)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
    }
}

/// Whether a process holds the lock of a server's data, so that the server runs.
pub fn is_locked(lock_file: &Path) -> bool {
    let Ok(file) = File::open(lock_file) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Another name in the same directory, which is none of the files there.
fn hidden(path: &Path, ending: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{ending}"))
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_none_or(|name| name.starts_with('.'))
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_runs_while_it_holds_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pvp.lock");
        assert!(!is_locked(&path));
        let file = File::create(&path).unwrap();
        assert!(!is_locked(&path));
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(is_locked(&path));
        drop(file);
        assert!(!is_locked(&path));
    }

    #[test]
    fn a_prompt_whose_id_has_a_dot_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let files = ClientFiles::at(directory.path());
        create_private_directory(&directory.path().join(PROMPTS)).unwrap();
        let prompt = WaitingPrompt {
            by: "ann".to_owned(),
            text: "go on".to_owned(),
        };
        let id = MessageId::parse("a.b").unwrap();
        assert!(files.queue_prompt(&id, &prompt).unwrap());
        assert_eq!(files.take_prompts(), [prompt]);
        assert_eq!(files.take_prompts(), []);
    }
}
