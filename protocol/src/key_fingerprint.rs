//! The fingerprint of a server's TLS key, by which a client knows a server whose certificate nobody
//! has signed.

use std::fmt;

use data_encoding::BASE64URL_NOPAD;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a public key as it is in a certificate (its `SubjectPublicKeyInfo`), which stays the
/// same when the certificate is renewed. Links carry it as 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyFingerprint([u8; 32]);

/// The text is not 43 characters of base64url.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a key's fingerprint is 43 characters of base64url")]
pub struct KeyFingerprintError;

impl KeyFingerprint {
    /// The fingerprint of a public key in DER.
    pub fn of_public_key(public_key_info: &[u8]) -> Self {
        Self(Sha256::digest(public_key_info).into())
    }

    /// Reads 43 characters of base64url.
    pub fn parse(text: &str) -> Result<Self, KeyFingerprintError> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes());
        let bytes = bytes.ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(KeyFingerprintError)
    }
}

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_survives_being_written_and_anything_else_is_refused() {
        let fingerprint = KeyFingerprint::of_public_key(b"key");
        let text = fingerprint.to_string();
        assert_eq!(text.len(), 43);
        assert_eq!(KeyFingerprint::parse(&text), Ok(fingerprint));
        for bad in [
            "",
            &text[1..],
            &format!("{text}A"),
            &format!("+{}", &text[1..]),
            "é",
        ] {
            assert_eq!(
                KeyFingerprint::parse(bad),
                Err(KeyFingerprintError),
                "{bad}"
            );
        }
    }
}
