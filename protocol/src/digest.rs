//! SHA-256 digests.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::hex;

/// A SHA-256, 64 hexadecimal digits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// Wraps a SHA-256.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The SHA-256 of the parts, each after its length, so that no two lists of parts collide.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The SHA-256 of a file's content, as `sha256sum` prints it.
    pub fn of_content(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        hex::decode(text).map(Self).ok_or(DigestError)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

string_types! {
    Digest { "type": "string", "pattern": "^[0-9a-fA-F]{64}$" }
}
