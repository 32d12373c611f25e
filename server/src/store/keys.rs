//! Keeps the Ed25519 key that signs checkpoints, as hex in the data directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use pvp_protocol::hex;

use super::OpenError;

const SECRET_KEY_FILE: &str = "server.key";
const PUBLIC_KEY_FILE: &str = "server.pub";

/// An Ed25519 public key.
pub type PublicKey = [u8; 32];

/// Loads the signing key, or creates one if this directory never had one.
pub(super) fn load_or_create(dir: &Path) -> Result<SigningKey, OpenError> {
    let secret = dir.join(SECRET_KEY_FILE);
    let public = dir.join(PUBLIC_KEY_FILE);
    let key = match read_key_file(&secret)? {
        Some(seed) => SigningKey::from_bytes(&seed),
        None if public.exists() => {
            return Err(key_error(
                &secret,
                "it is missing although server.pub is there; restore it from a backup, or remove server.pub \
                 to begin with another key, which older checkpoints will not match",
            ));
        }
        None => create_key(&secret)?,
    };
    let own: PublicKey = key.verifying_key().to_bytes();
    match read_key_file(&public)? {
        Some(found) if found == own => {}
        Some(_) => return Err(key_error(&public, "it does not belong to server.key")),
        None => write_new_file(&public, &own, 0o644)?,
    }
    Ok(key)
}

/// Reads the public key of a data directory, without the secret key.
pub(super) fn read_public(dir: &Path) -> Result<PublicKey, OpenError> {
    let public = dir.join(PUBLIC_KEY_FILE);
    read_key_file(&public)?.ok_or_else(|| key_error(&public, "there is no such file"))
}

fn create_key(path: &Path) -> Result<SigningKey, OpenError> {
    let seed = pvp_clock::try_random_bytes()
        .map_err(|error| key_error(path, &format!("no randomness to make it from: {error}")))?;
    write_new_file(path, &seed, 0o600)?;
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
fn write_new_file(path: &Path, bytes: &[u8; 32], mode: u32) -> Result<(), OpenError> {
    let unfinished = path.with_extension("unfinished");
    let written = (|| {
        remove_if_exists(&unfinished)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&unfinished)?;
        writeln!(file, "{}", hex::encode(bytes))?;
        file.sync_all()?;
        fs::hard_link(&unfinished, path)?;
        fs::remove_file(&unfinished)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    })();
    written.map_err(|error| key_error(path, &format!("it cannot be written: {error}")))
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let made = load_or_create(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join(SECRET_KEY_FILE))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert_eq!(load_or_create(dir.path()).unwrap(), made);
        assert_eq!(
            read_public(dir.path()).unwrap(),
            made.verifying_key().to_bytes()
        );
    }

    #[test]
    fn a_damaged_key_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SECRET_KEY_FILE);
        fs::write(&path, "not a key").unwrap();
        let error = load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("server.key"), "{error}");
        assert!(error.contains("not 64 hex digits"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "not a key");
    }

    #[test]
    fn a_lost_key_is_not_silently_replaced() {
        let dir = tempfile::tempdir().unwrap();
        load_or_create(dir.path()).unwrap();
        fs::remove_file(dir.path().join(SECRET_KEY_FILE)).unwrap();
        let error = load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("restore it"), "{error}");
        assert!(!dir.path().join(SECRET_KEY_FILE).exists());
    }

    #[test]
    fn a_public_key_that_does_not_match_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        load_or_create(dir.path()).unwrap();
        fs::write(dir.path().join(PUBLIC_KEY_FILE), hex::encode(&[9; 32])).unwrap();
        let error = load_or_create(dir.path()).unwrap_err().to_string();
        assert!(error.contains("does not belong"), "{error}");
    }
}
