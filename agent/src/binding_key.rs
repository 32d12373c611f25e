//! Binds a change to the content of a secret file without telling anybody its hash.

use std::fmt;

use pvp_client::fresh_id;
use pvp_protocol::Digest;

/// A random key that never leaves this process. From the plain hash of a short secret file, its
/// content can be guessed.
#[derive(Clone, PartialEq, Eq)]
pub struct BindingKey(Digest);

impl BindingKey {
    /// A key that nobody else has.
    pub fn random() -> Self {
        let (one, other) = (fresh_id(), fresh_id());
        Self(Digest::of(&[
            one.as_str().as_bytes(),
            other.as_str().as_bytes(),
        ]))
    }

    /// What stands for this content of this file in a proposal. It belongs to one path, so that
    /// writing guesses to other files tells nothing about this one.
    pub(crate) fn bind(&self, path: &str, content: &[u8]) -> Digest {
        Digest::of(&[self.0.as_bytes(), path.as_bytes(), content])
    }
}

impl fmt::Debug for BindingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("BindingKey")
    }
}
