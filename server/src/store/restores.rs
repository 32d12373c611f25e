//! The operator's declarations that the logs of a data directory were restored from a backup.
//!
//! Whoever remembers a longer log would otherwise take a restored one for a forgery. A declaration is
//! signed, so that someone who can only write the data directory cannot excuse a forgery with one.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ed25519_dalek::{Signature, Signer, VerifyingKey};
use pvp_protocol::{Timestamp, hex};
use serde::{Deserialize, Serialize};

use super::keys::{PublicKey, ServerKeys};

const RESTORES_FILE: &str = "server.restores";

const SIGNING_CONTEXT: &[u8] = b"pvp.restored.v1\0";

/// A line of `server.restores`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RestoreLine {
    /// When it was declared.
    at: Timestamp,
    /// The key that signed it, in hex.
    key: String,
    /// The Ed25519 signature over the time, in hex.
    signature: String,
}

impl RestoreLine {
    /// The time, if one of these keys has signed it.
    fn verified_at(&self, keys: &[PublicKey]) -> Option<Timestamp> {
        let key = hex::decode(&self.key).filter(|key| keys.contains(key))?;
        let signature = Signature::from_bytes(&hex::decode(&self.signature)?);
        let key = VerifyingKey::from_bytes(&key).ok()?;
        let is_signed = key
            .verify_strict(&signed_message(self.at), &signature)
            .is_ok();
        is_signed.then_some(self.at)
    }
}

fn signed_message(at: Timestamp) -> Vec<u8> {
    [SIGNING_CONTEXT, &at.as_millis().to_le_bytes()].concat()
}

/// Adds a declaration.
pub(super) fn declare(dir: &Path, keys: &ServerKeys, at: Timestamp) -> io::Result<()> {
    let line = RestoreLine {
        at,
        key: hex::encode(&keys.public()),
        signature: hex::encode(&keys.signing.sign(&signed_message(at)).to_bytes()),
    };
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o644)
        .open(dir.join(RESTORES_FILE))?;
    // A line break first, in case an earlier write was cut short.
    file.write_all(format!("\n{}\n", serde_json::to_string(&line)?).as_bytes())?;
    file.sync_all()
}

/// When the last good declaration was made. Lines that nobody signed are ignored.
pub(super) fn last_declared(dir: &Path, keys: &[PublicKey]) -> io::Result<Option<Timestamp>> {
    let bytes = match fs::read(dir.join(RESTORES_FILE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let lines = bytes.split(|byte| *byte == b'\n');
    let lines = lines.filter_map(|line| serde_json::from_slice::<RestoreLine>(line).ok());
    Ok(lines.filter_map(|line| line.verified_at(keys)).max())
}

#[cfg(test)]
mod tests {
    use super::super::keys::{KeyFiles, load_or_create};
    use super::*;

    #[test]
    fn only_a_declaration_that_the_key_has_signed_counts() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let keys = load_or_create(&KeyFiles::new(dir.path(), None)).unwrap();
        let stranger = load_or_create(&KeyFiles::new(other.path(), None)).unwrap();
        let own = [keys.public()];
        assert_eq!(last_declared(dir.path(), &own).unwrap(), None);
        declare(dir.path(), &keys, Timestamp::from_millis(5)).unwrap();
        declare(dir.path(), &stranger, Timestamp::from_millis(9)).unwrap();
        let declared = Some(Timestamp::from_millis(5));
        assert_eq!(last_declared(dir.path(), &own).unwrap(), declared);
        let path = dir.path().join(RESTORES_FILE);
        let moved = fs::read_to_string(&path)
            .unwrap()
            .replace("00.005Z", "00.008Z");
        fs::write(&path, format!("{moved}half a li")).unwrap();
        assert_eq!(last_declared(dir.path(), &own).unwrap(), None);
    }
}
