//! Keeps the Ed25519 keys of a data directory: the secret one that signs checkpoints, and the history.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use pvp_protocol::{Timestamp, hex};
use serde_json::Value;

use super::OpenError;
use super::audit::StatedKeys;
use super::key_history::{KeyHistory, KeyRecord};

const SECRET_KEY_FILE: &str = "server.key";
const PUBLIC_KEY_FILE: &str = "server.pub";
const HISTORY_FILE: &str = "server.keys";

/// What is added to the name of the secret key's file for the key that a rotation leads to. The
/// rotation is finished when it has replaced the secret key.
const NEXT_SECRET_SUFFIX: &str = ".next";

/// An Ed25519 public key.
pub type PublicKey = [u8; 32];

/// Where the keys of a data directory are: the public ones in it, and the secret one in it or in a
/// file elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFiles {
    dir: PathBuf,
    secret: PathBuf,
}

impl KeyFiles {
    /// The secret key is in `key_file`; without one, it is in the directory.
    pub fn new(dir: &Path, key_file: Option<&Path>) -> Self {
        let inside = dir.join(SECRET_KEY_FILE);
        Self {
            dir: dir.to_owned(),
            secret: key_file.map_or(inside, Path::to_owned),
        }
    }

    /// The data directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn public(&self) -> PathBuf {
        self.dir.join(PUBLIC_KEY_FILE)
    }

    fn history(&self) -> PathBuf {
        self.dir.join(HISTORY_FILE)
    }

    /// The next secret key is beside the secret key, so that it can replace it at once.
    fn next_secret(&self) -> PathBuf {
        with_suffix(&self.secret, NEXT_SECRET_SUFFIX)
    }

    /// Checks that no secret key is beside the log if it is to be elsewhere, and that nobody else
    /// can read it there.
    fn check(&self) -> Result<(), OpenError> {
        let inside = self.dir.join(SECRET_KEY_FILE);
        if same_file(&self.secret, &inside) {
            return Ok(());
        }
        let unfinished = with_suffix(&inside, NEXT_SECRET_SUFFIX);
        if unfinished.exists() {
            return Err(key_error(
                &unfinished,
                "a rotation was not finished; start the server without --key-file once, then move the key",
            ));
        }
        match (inside.exists(), self.secret.exists()) {
            (true, false) => {
                let move_it = format!(
                    "there is no such file, but there is a key in the data directory; move it: mv {} {}",
                    inside.display(),
                    self.secret.display()
                );
                Err(key_error(&self.secret, &move_it))
            }
            (true, true) => Err(key_error(
                &inside,
                "it is beside the log, although the key is in another file; remove it, or whoever can \
                 write the log may be able to sign it too",
            )),
            (false, true) => check_private(&self.secret),
            (false, false) => Ok(()),
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|path| real(other) == Some(path))
}

fn check_private(path: &Path) -> Result<(), OpenError> {
    let metadata = fs::metadata(path)
        .map_err(|error| key_error(path, &format!("it cannot be read: {error}")))?;
    if !metadata.is_file() {
        return Err(key_error(path, "it is not a file"));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let why = format!(
            "others may read or write it; run `chmod 600 {}`, and rotate the key if somebody has read it",
            path.display()
        );
        return Err(key_error(path, &why));
    }
    Ok(())
}

/// The keys of a data directory.
pub(super) struct ServerKeys {
    /// The current key.
    pub(super) signing: SigningKey,
    /// All keys up to the current one.
    pub(super) history: KeyHistory,
    pub(super) rotation: RotationState,
}

/// Whether the last rotation has still to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RotationState {
    Finished,
    Begun,
}

/// The steps of a rotation. If the process ends before one of them, the next start of the server
/// goes on; up to and including `PublishHistory`, the rotation has not happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RotationStep {
    SignWithOldKey,
    WriteNextSecret,
    PublishHistory,
    SignWithNewKey,
    OverwriteOldSecret,
    ReplacePublic,
    ReplaceSecret,
}

/// Called before each step of a rotation; an error stops it there, as a crash would.
pub(super) type BeforeStep<'a> = &'a mut dyn FnMut(RotationStep) -> Result<(), OpenError>;

impl ServerKeys {
    pub(super) fn public(&self) -> PublicKey {
        self.signing.verifying_key().to_bytes()
    }

    /// The record of the current key.
    pub(super) fn current(&self) -> Option<&KeyRecord> {
        self.history.records().last()
    }

    /// The record of the key before the current one.
    pub(super) fn previous(&self) -> Option<&KeyRecord> {
        self.history.records().iter().rev().nth(1)
    }
}

/// Loads the keys, or creates one if this directory never had one.
pub(super) fn load_or_create(files: &KeyFiles) -> Result<ServerKeys, OpenError> {
    files.check()?;
    if let Some(keys) = load_begun_rotation(files)? {
        return Ok(keys);
    }
    let (secret, public, history) = (&files.secret, files.public(), files.history());
    let (signing, is_new) = match read_key_file(secret)? {
        Some(seed) => (SigningKey::from_bytes(&seed), false),
        None if public.exists() || history.exists() => {
            return Err(key_error(
                secret,
                "it is missing although server.pub or server.keys is there; if the key is elsewhere, \
                 name it with --key-file, or else restore it from a backup. Without the key, remove both \
                 to begin with another one, which will not work on the sessions that are there",
            ));
        }
        None => (create_key(secret)?, true),
    };
    let own: PublicKey = signing.verifying_key().to_bytes();
    match read_key_file(&public)? {
        Some(found) if found == own => {}
        Some(_) => {
            let why = format!("it does not belong to the key in {}", secret.display());
            return Err(key_error(&public, &why));
        }
        None => write_new_file(&public, &key_line(&own), 0o644)?,
    }
    if is_new {
        let single = KeyHistory::single(own, Some(pvp_clock::now()));
        write_new_file(&history, &history_lines(&single)?, 0o644)?;
    }
    Ok(ServerKeys {
        signing,
        history: load_history(&files.dir, &own)?,
        rotation: RotationState::Finished,
    })
}

/// Reads the public keys of a data directory, without the secret key.
pub(super) fn read_stated(dir: &Path) -> Result<StatedKeys, OpenError> {
    let public = dir.join(PUBLIC_KEY_FILE);
    let current =
        read_key_file(&public)?.ok_or_else(|| key_error(&public, "there is no such file"))?;
    read_history(dir, current)
}

/// Whether the directory has a history of keys; those of earlier builds have none.
pub(super) fn has_history(dir: &Path) -> bool {
    dir.join(HISTORY_FILE).exists()
}

/// The error for a history that is missing although the logs were signed with several keys.
pub(super) fn missing_history(dir: &Path) -> OpenError {
    key_error(
        &dir.join(HISTORY_FILE),
        "it is missing, although logs were signed with another key before; restore it from a backup",
    )
}

/// Whether the directory states its current key.
pub(super) fn has_public(dir: &Path) -> bool {
    dir.join(PUBLIC_KEY_FILE).exists()
}

/// Whether a rotation is under way, or was interrupted, if the key is in the directory.
pub(super) fn is_rotation_begun(dir: &Path) -> bool {
    KeyFiles::new(dir, None).next_secret().exists()
}

/// Makes the next key and publishes it. From then on it is the current one.
pub(super) fn begin_rotation(
    files: &KeyFiles,
    keys: &ServerKeys,
    at: Timestamp,
    before: BeforeStep<'_>,
) -> Result<ServerKeys, OpenError> {
    before(RotationStep::WriteNextSecret)?;
    let signing = create_key(&files.next_secret())?;
    let history = keys.history.rotated(&keys.signing, &signing, at);
    before(RotationStep::PublishHistory)?;
    replace_file(&files.history(), &history_lines(&history)?)?;
    Ok(ServerKeys {
        signing,
        history,
        rotation: RotationState::Begun,
    })
}

/// Destroys the old secret key and puts the current key in its place.
pub(super) fn finish_rotation(
    files: &KeyFiles,
    keys: &mut ServerKeys,
    before: BeforeStep<'_>,
) -> Result<(), OpenError> {
    let secret = &files.secret;
    before(RotationStep::OverwriteOldSecret)?;
    overwrite(secret)?;
    before(RotationStep::ReplacePublic)?;
    replace_file(&files.public(), &key_line(&keys.public()))?;
    before(RotationStep::ReplaceSecret)?;
    fs::rename(files.next_secret(), secret)
        .and_then(|()| sync_parent(secret))
        .map_err(|error| key_error(secret, &format!("it cannot be replaced: {error}")))?;
    keys.rotation = RotationState::Finished;
    Ok(())
}

/// The keys of a rotation that was interrupted after its new key was published. What is left of one
/// that was interrupted earlier is removed.
fn load_begun_rotation(files: &KeyFiles) -> Result<Option<ServerKeys>, OpenError> {
    let (dir, next) = (&files.dir, files.next_secret());
    let Some(seed) = read_key_file(&next)? else {
        return Ok(None);
    };
    let signing = SigningKey::from_bytes(&seed);
    let own = signing.verifying_key().to_bytes();
    let StatedKeys {
        history, finding, ..
    } = read_history(dir, own)?;
    // Without a history file, any key would be the only one of its history.
    if finding.is_none() && history.records().len() > 1 {
        return Ok(Some(ServerKeys {
            signing,
            history,
            rotation: RotationState::Begun,
        }));
    }
    // The only secret key must not be lost, whatever happened to the history.
    match read_key_file(&files.secret)? {
        Some(seed) => {
            let old = SigningKey::from_bytes(&seed).verifying_key().to_bytes();
            load_history(dir, &old)?;
        }
        None => {
            return Err(key_error(
                &next,
                "server.keys does not name its public half",
            ));
        }
    }
    overwrite(&next)?;
    remove_if_exists(&next)
        .map_err(|error| key_error(&next, &format!("it cannot be removed: {error}")))?;
    Ok(None)
}

/// Reads the history that ends with this key.
fn load_history(dir: &Path, current: &PublicKey) -> Result<KeyHistory, OpenError> {
    let stated = read_history(dir, *current)?;
    match stated.finding {
        None => Ok(stated.history),
        Some(finding) => Err(key_error(
            &dir.join(HISTORY_FILE),
            &format!("{finding}; restore it from a backup"),
        )),
    }
}

/// Reads the history. A directory from an earlier build has none.
fn read_history(dir: &Path, current: PublicKey) -> Result<StatedKeys, OpenError> {
    let path = dir.join(HISTORY_FILE);
    let records = match fs::read(&path) {
        Ok(bytes) => {
            let lines = bytes.split(|byte| *byte == b'\n');
            let lines = lines.filter(|line| !line.is_empty());
            Some(lines.map(history_value).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(key_error(&path, &format!("it cannot be read: {error}"))),
    };
    Ok(StatedKeys::new(current, records))
}

/// A line as JSON, or as a string if it is none, which no record is.
fn history_value(line: &[u8]) -> Value {
    serde_json::from_slice(line)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(line).into_owned()))
}

fn history_lines(history: &KeyHistory) -> Result<String, OpenError> {
    let mut text = String::new();
    for record in history.records() {
        let line = serde_json::to_string(record)
            .map_err(|error| key_error(Path::new(HISTORY_FILE), &error.to_string()))?;
        text += &line;
        text.push('\n');
    }
    Ok(text)
}

fn key_line(bytes: &[u8; 32]) -> String {
    format!("{}\n", hex::encode(bytes))
}

fn create_key(path: &Path) -> Result<SigningKey, OpenError> {
    let seed = pvp_clock::try_random_bytes()
        .map_err(|error| key_error(path, &format!("no randomness to make it from: {error}")))?;
    write_new_file(path, &key_line(&seed), 0o600)?;
    Ok(SigningKey::from_bytes(&seed))
}

fn read_key_file(path: &Path) -> Result<Option<[u8; 32]>, OpenError> {
    match fs::read_to_string(path) {
        Ok(text) => hex::decode(text.trim_end())
            .map(Some)
            .ok_or_else(|| key_error(path, "it is not 64 hex digits; it was left as it is")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(key_error(path, &format!("it cannot be read: {error}"))),
    }
}

/// Writes a temporary file and links it into place, so that the file is complete or absent, and an
/// existing one is never replaced.
fn write_new_file(path: &Path, text: &str, mode: u32) -> Result<(), OpenError> {
    let written = write_unfinished(path, text, mode).and_then(|unfinished| {
        fs::hard_link(&unfinished, path)?;
        fs::remove_file(&unfinished)?;
        sync_parent(path)
    });
    written.map_err(|error| key_error(path, &format!("it cannot be written: {error}")))
}

/// Writes a temporary file and renames it, so that the file has the old or the new text.
fn replace_file(path: &Path, text: &str) -> Result<(), OpenError> {
    let written = write_unfinished(path, text, 0o644).and_then(|unfinished| {
        fs::rename(&unfinished, path)?;
        sync_parent(path)
    });
    written.map_err(|error| key_error(path, &format!("it cannot be written: {error}")))
}

fn write_unfinished(path: &Path, text: &str, mode: u32) -> io::Result<PathBuf> {
    let unfinished = with_suffix(path, ".unfinished");
    remove_if_exists(&unfinished)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(unfinished)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Overwrites a secret key where it is on the disk.
fn overwrite(path: &Path) -> Result<(), OpenError> {
    let overwritten = (|| {
        let mut file = match OpenOptions::new().write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        file.write_all(&[b'-'; 64])?;
        file.sync_all()
    })();
    overwritten.map_err(|error| key_error(path, &format!("it cannot be overwritten: {error}")))
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn key_error(path: &Path, why: &str) -> OpenError {
    OpenError::Key {
        path: PathBuf::from(path),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_error(dir: &Path) -> String {
        load_or_create(&KeyFiles::new(dir, None))
            .err()
            .unwrap()
            .to_string()
    }

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let made = load_or_create(&KeyFiles::new(dir.path(), None)).unwrap();
        let mode = fs::metadata(dir.path().join(SECRET_KEY_FILE))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let again = load_or_create(&KeyFiles::new(dir.path(), None)).unwrap();
        assert_eq!(again.signing, made.signing);
        let stated = read_stated(dir.path()).unwrap();
        assert_eq!(stated.current, made.public());
        assert_eq!((stated.history, stated.finding), (made.history, None));
    }

    #[test]
    fn a_damaged_key_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SECRET_KEY_FILE);
        fs::write(&path, "not a key").unwrap();
        let error = load_error(dir.path());
        assert!(error.contains("server.key"), "{error}");
        assert!(error.contains("not 64 hex digits"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "not a key");
    }

    #[test]
    fn a_lost_key_is_not_silently_replaced() {
        let dir = tempfile::tempdir().unwrap();
        load_or_create(&KeyFiles::new(dir.path(), None)).unwrap();
        fs::remove_file(dir.path().join(SECRET_KEY_FILE)).unwrap();
        let error = load_error(dir.path());
        assert!(error.contains("restore it"), "{error}");
        assert!(!dir.path().join(SECRET_KEY_FILE).exists());
        fs::remove_file(dir.path().join(PUBLIC_KEY_FILE)).unwrap();
        let error = load_error(dir.path());
        assert!(error.contains("restore it"), "{error}");
    }

    #[test]
    fn a_public_key_that_does_not_match_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        load_or_create(&KeyFiles::new(dir.path(), None)).unwrap();
        fs::write(dir.path().join(PUBLIC_KEY_FILE), hex::encode(&[9; 32])).unwrap();
        let error = load_error(dir.path());
        assert!(error.contains("does not belong"), "{error}");
    }
}
