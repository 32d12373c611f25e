//! What a client remembers of each session's log, so that it notices a server that offers less than
//! before, or something else.
//!
//! One file for each session, in the user's own directory, says where the log ended when it was last
//! seen, and whose it was: a server is known by its key, so another server at the same address is not
//! mistaken for a forger.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pvp_protocol::api::SessionHead;
use pvp_protocol::{SessionId, Timestamp, hex};
use serde::{Deserialize, Serialize};

use crate::api::{ApiClient, ApiError};
use crate::user_directories::create_private_directory;

/// Sessions that are remembered; above this, those that were not seen for longest are forgotten.
const MAX_SESSIONS: usize = 1024;

/// Servers that are remembered for one session.
const MAX_SERVERS: usize = 16;

/// The most bytes that are read of a file.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Where a log ended when it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RememberedHead {
    /// The server's key, in hex.
    key: String,
    /// The address that it was reached by.
    address: String,
    /// The last entry whose hash is known.
    seq: u64,
    /// The hash of that entry, in hex.
    hash: String,
    /// The last entry that was received, whose hash may not be known.
    received: u64,
    /// The server's clock at that time.
    at: Timestamp,
}

/// A log that is not the one that was seen before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFault {
    /// The session.
    pub session: SessionId,
    /// The last entry that the server has.
    pub offered: u64,
    /// The last entry that was seen here.
    pub seen: u64,
    /// The last entry whose hash is known here.
    pub seq: u64,
    /// Its hash, in hex.
    pub hash: String,
    /// Where that is remembered.
    pub file: PathBuf,
}

impl RecordFault {
    /// What to do about it.
    fn advice(&self) -> String {
        format!(
            "Do not trust what the server shows. Ask its operator to run `pvp audit verify --since \
             {}:{}:{}`, and `pvp server restored` if the log was restored from a backup. To forget what \
             was seen here, remove {}",
            self.session,
            self.seq,
            self.hash,
            self.file.display()
        )
    }
}

/// What is odd about the log that a server offers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordWarning {
    #[error(
        "WARNING: the log of session `{}` was cut: it ends at entry {}, but entry {} was seen here before. {}",
        .0.session, .0.offered, .0.seen, .0.advice()
    )]
    Cut(Box<RecordFault>),
    #[error(
        "WARNING: the log of session `{}` was rewritten: entry {} is not the one that was seen here before. {}",
        .0.session, .0.seq, .0.advice()
    )]
    Rewritten(Box<RecordFault>),
    #[error(
        "the log of session `{session}` was restored from a backup, as the operator declared at {at}; what was seen here up to entry {seen} may be missing or different"
    )]
    Restored {
        session: SessionId,
        at: Timestamp,
        seen: u64,
    },
    #[error(
        "the server at {address} has another key than before ({key}, not {before}): it is another server, or its key was replaced; ask its operator which"
    )]
    OtherServer {
        address: String,
        key: String,
        before: String,
    },
    #[error("cannot remember where the log of session `{session}` ends: {why}")]
    NotRemembered { session: SessionId, why: String },
}

impl RecordWarning {
    /// Whether the log is not the one that was seen before, and nobody has said why.
    pub fn is_grave(&self) -> bool {
        match self {
            RecordWarning::Cut(_) | RecordWarning::Rewritten(_) => true,
            RecordWarning::Restored { .. }
            | RecordWarning::OtherServer { .. }
            | RecordWarning::NotRemembered { .. } => false,
        }
    }
}

/// The directory in which the ends of logs are remembered.
#[derive(Debug, Clone)]
pub struct RecordMemory {
    directory: PathBuf,
}

impl RecordMemory {
    /// Remembers in a directory of its own below the user's directory for state.
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("heads"),
        }
    }

    /// Compares the log that a server offers with what was seen of it, and remembers it unless it is
    /// less or other. `received` is the last entry that the caller received; 0 if it does not know.
    /// Blocks, as requests do.
    ///
    /// For a session that does not exist, and with a server that does not know this request, there
    /// is nothing to compare.
    pub fn check(
        &self,
        api: &ApiClient,
        session: &SessionId,
        received: u64,
    ) -> Result<Option<RecordWarning>, ApiError> {
        let Some(mut offered) = fetch_head(api, session, None)? else {
            return Ok(None);
        };
        let heads = match self.load(session) {
            Ok(heads) => heads,
            Err(error) => return Ok(Some(not_remembered(session, &error))),
        };
        let known = find_known(&heads, &offered).cloned();
        if let Some(known) = known.as_ref().filter(|one| one.seq <= offered.head.seq) {
            match fetch_head(api, session, Some(known.seq))? {
                Some(again) => offered = again,
                None => return Ok(None),
            }
        }
        let address = api.link().base_url();
        let warning = match &known {
            Some(known) => compare(known, &offered, received, self.path(session)),
            None => other_server(&heads, &offered, address),
        };
        if warning.as_ref().is_some_and(RecordWarning::is_grave) {
            return Ok(warning);
        }
        let current = RememberedHead {
            key: offered.key.clone(),
            address: address.to_owned(),
            seq: offered.head.seq,
            hash: offered.head.hash.clone(),
            received: received.min(offered.head.seq),
            at: offered.now,
        };
        let saved = self.save(session, &with_head(heads, &offered, current));
        Ok(warning.or_else(|| saved.err().map(|error| not_remembered(session, &error))))
    }

    /// An id is a safe name of a file: it begins with a letter or a digit and has no slash.
    fn path(&self, session: &SessionId) -> PathBuf {
        self.directory.join(format!("{session}.json"))
    }

    fn load(&self, session: &SessionId) -> io::Result<Vec<RememberedHead>> {
        let path = self.path(session);
        let file = match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
        serde_json::from_str(&text).map_err(|error| {
            io::Error::other(format!(
                "{} is damaged ({error}); remove it",
                path.display()
            ))
        })
    }

    /// Replaces the file of a session at once, so that no other process reads a part of it.
    fn save(&self, session: &SessionId, heads: &[RememberedHead]) -> io::Result<()> {
        let path = self.path(session);
        create_private_directory(&self.directory)?;
        if !path.exists() {
            self.forget_oldest()?;
        }
        let temporary = format!(".{}.{}", pvp_clock::fresh_id(), std::process::id());
        let temporary = self.directory.join(temporary);
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec(heads)?)?;
        fs::rename(&temporary, &path)
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for file in fs::read_dir(&self.directory)? {
            let file = file?;
            // Another process may have removed it by now.
            if let Ok(modified) = file.metadata().and_then(|it| it.modified()) {
                files.push((modified, file.path()));
            }
        }
        files.sort();
        let too_many = (files.len() + 1).saturating_sub(MAX_SESSIONS);
        for (_, path) in files.iter().take(too_many) {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Where the log ends; `None` if there is no such session, or the server does not know the request.
fn fetch_head(
    api: &ApiClient,
    session: &SessionId,
    at: Option<u64>,
) -> Result<Option<SessionHead>, ApiError> {
    match api.session_head(session, at) {
        Ok(head) => Ok(Some(head)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(None),
    }
}

/// What is remembered of the log of this server, which may have had another key.
fn find_known<'a>(
    heads: &'a [RememberedHead],
    offered: &SessionHead,
) -> Option<&'a RememberedHead> {
    let known = heads.iter().filter(|head| is_of_server(head, offered));
    known.max_by_key(|head| head.at)
}

fn is_of_server(head: &RememberedHead, offered: &SessionHead) -> bool {
    head.key == offered.key || offered.earlier_keys.contains(&head.key)
}

/// What is odd about a log of which something is remembered.
fn compare(
    known: &RememberedHead,
    offered: &SessionHead,
    received: u64,
    file: PathBuf,
) -> Option<RecordWarning> {
    let seen = known.seq.max(known.received).max(received);
    let entry = offered.entry.as_ref();
    let is_same = entry.is_some_and(|entry| (entry.seq, &entry.hash) == (known.seq, &known.hash));
    if offered.head.seq >= seen && is_same {
        return None;
    }
    let session = offered.session.clone();
    if let Some(at) = offered.restored_at.filter(|at| *at > known.at) {
        return Some(RecordWarning::Restored { session, at, seen });
    }
    let fault = Box::new(RecordFault {
        session,
        offered: offered.head.seq,
        seen,
        seq: known.seq,
        hash: known.hash.clone(),
        file,
    });
    Some(match offered.head.seq < seen {
        true => RecordWarning::Cut(fault),
        false => RecordWarning::Rewritten(fault),
    })
}

fn other_server(
    heads: &[RememberedHead],
    offered: &SessionHead,
    address: &str,
) -> Option<RecordWarning> {
    let before = heads.iter().filter(|head| head.address == address);
    let before = before.max_by_key(|head| head.at)?;
    Some(RecordWarning::OtherServer {
        address: address.to_owned(),
        key: offered.key.clone(),
        before: before.key.clone(),
    })
}

/// The heads with this one in the place of what was remembered of the same server.
fn with_head(
    mut heads: Vec<RememberedHead>,
    offered: &SessionHead,
    current: RememberedHead,
) -> Vec<RememberedHead> {
    heads.retain(|head| !is_of_server(head, offered));
    heads.push(current);
    heads.sort_by_key(|head| head.at);
    heads.split_off(heads.len().saturating_sub(MAX_SERVERS))
}

fn not_remembered(session: &SessionId, error: &io::Error) -> RecordWarning {
    RecordWarning::NotRemembered {
        session: session.clone(),
        why: error.to_string(),
    }
}

/// Whether a head has the form of one; a server may answer anything.
pub(crate) fn is_well_formed(head: &SessionHead) -> bool {
    let is_hash = |text: &String| hex::decode::<32>(text).is_some();
    let entries = [Some(&head.head), head.entry.as_ref()];
    let mut hashes = entries.into_iter().flatten().map(|entry| &entry.hash);
    hashes.all(is_hash) && is_hash(&head.key) && head.earlier_keys.iter().all(is_hash)
}

#[cfg(test)]
mod tests {
    use pvp_protocol::api::EntryHash;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn hash(byte: u8) -> String {
        hex::encode(&[byte; 32])
    }

    fn known(key: u8, seq: u64, received: u64) -> RememberedHead {
        RememberedHead {
            key: hash(key),
            address: "http://127.0.0.1:1".to_owned(),
            seq,
            hash: hash(7),
            received,
            at: at(100),
        }
    }

    fn offered(seq: u64, entry: Option<(u64, u8)>) -> SessionHead {
        SessionHead {
            session: SessionId::parse("owl").unwrap(),
            head: EntryHash { seq, hash: hash(9) },
            entry: entry.map(|(seq, byte)| EntryHash {
                seq,
                hash: hash(byte),
            }),
            key: hash(1),
            earlier_keys: vec![hash(2)],
            restored_at: None,
            now: at(200),
        }
    }

    fn verdict(known: &RememberedHead, offered: &SessionHead, received: u64) -> &'static str {
        match compare(known, offered, received, PathBuf::new()) {
            None => "same",
            Some(RecordWarning::Cut(_)) => "cut",
            Some(RecordWarning::Rewritten(_)) => "rewritten",
            Some(RecordWarning::Restored { .. }) => "restored",
            Some(RecordWarning::OtherServer { .. } | RecordWarning::NotRemembered { .. }) => "else",
        }
    }

    #[test]
    fn a_log_that_is_shorter_or_other_is_told_from_one_that_has_grown() {
        let head = known(1, 5, 6);
        assert_eq!(verdict(&head, &offered(6, Some((5, 7))), 0), "same");
        assert_eq!(verdict(&head, &offered(9, Some((5, 7))), 9), "same");
        assert_eq!(verdict(&head, &offered(4, None), 0), "cut");
        assert_eq!(verdict(&head, &offered(5, Some((5, 7))), 0), "cut");
        assert_eq!(verdict(&head, &offered(9, Some((5, 7))), 10), "cut");
        assert_eq!(verdict(&head, &offered(9, Some((5, 8))), 0), "rewritten");
        assert_eq!(verdict(&head, &offered(9, Some((4, 7))), 0), "rewritten");
        assert_eq!(verdict(&head, &offered(9, None), 0), "rewritten");
    }

    #[test]
    fn a_declared_restore_excuses_only_what_was_seen_before_it() {
        let mut shorter = offered(4, None);
        shorter.restored_at = Some(at(101));
        assert_eq!(verdict(&known(1, 5, 5), &shorter, 0), "restored");
        shorter.restored_at = Some(at(100));
        assert_eq!(verdict(&known(1, 5, 5), &shorter, 0), "cut");
    }

    #[test]
    fn a_server_is_known_by_any_key_that_it_has_had() {
        let heads = [known(3, 5, 5), known(2, 4, 4)];
        assert_eq!(find_known(&heads, &offered(9, None)), Some(&heads[1]));
        assert_eq!(find_known(&heads[..1], &offered(9, None)), None);
        let told = other_server(&heads[..1], &offered(9, None), "http://127.0.0.1:1");
        assert!(told.is_some_and(|told| !told.is_grave()));
        assert_eq!(
            other_server(&heads, &offered(9, None), "http://other"),
            None
        );
        let kept = with_head(heads.to_vec(), &offered(9, None), known(1, 9, 9));
        assert_eq!(kept, [known(3, 5, 5), known(1, 9, 9)]);
    }

    #[test]
    fn what_is_remembered_is_bounded_private_and_found_again() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(pvp_clock::fresh_id().as_str());
        let memory = RecordMemory::new(&directory);
        let session = |number: usize| SessionId::parse(&format!("s{number}")).unwrap();
        for number in 0..MAX_SESSIONS + 3 {
            memory.save(&session(number), &[known(1, 5, 5)]).unwrap();
        }
        let count = fs::read_dir(&memory.directory).unwrap().count();
        let last = session(MAX_SESSIONS + 2);
        let mode = fs::metadata(memory.path(&last)).unwrap().permissions();
        let loaded = memory.load(&last).unwrap();
        fs::write(memory.path(&last), "half").unwrap();
        let damaged = memory.load(&last).unwrap_err().to_string();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!((count, mode.mode() & 0o777), (MAX_SESSIONS, 0o600));
        assert_eq!(loaded, [known(1, 5, 5)]);
        assert!(damaged.contains("remove it"), "{damaged}");
    }
}
