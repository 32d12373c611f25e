//! Identifiers: opaque strings that are validated once and cheap to clone.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// The longest identifier, in characters.
pub const MAX_ID_LENGTH: usize = 128;

/// How many characters of a proposal's id people read and type.
pub const SHORT_ID_LENGTH: usize = 6;

/// How many characters of a digest a handle has.
const HANDLE_DIGEST_LENGTH: usize = 6;

/// How many characters of a digest the handle of an edited command has. Whoever edits a command can
/// try edits until the first few characters are those that others have seen, but not so many.
pub const EDITED_HANDLE_DIGEST_LENGTH: usize = 16;

/// Why a string is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The string is empty.
    #[error("an id is empty; use 1 to {MAX_ID_LENGTH} characters of A-Z a-z 0-9 _ . : -")]
    Empty,
    /// More than [`MAX_ID_LENGTH`] characters.
    #[error("an id has {0} characters; at most {MAX_ID_LENGTH} are allowed")]
    TooLong(usize),
    /// A character outside the allowed set, or a first character that is not a letter or digit.
    #[error(
        "an id has {0:?} at position {1}; use A-Z a-z 0-9 _ . : - and begin with a letter or digit"
    )]
    BadCharacter(char, usize),
}

fn validate(text: &str) -> Result<(), IdError> {
    let Some(first) = text.chars().next() else {
        return Err(IdError::Empty);
    };
    if text.len() > MAX_ID_LENGTH {
        return Err(IdError::TooLong(text.chars().count()));
    }
    if !first.is_ascii_alphanumeric() {
        return Err(IdError::BadCharacter(first, 0));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '-');
    match text.chars().enumerate().find(|&(_, c)| !allowed(c)) {
        Some((at, c)) => Err(IdError::BadCharacter(c, at)),
        None => Ok(()),
    }
}

macro_rules! id_types {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[cfg_attr(feature = "generate", derive(ts_rs::TS))]
        #[cfg_attr(feature = "generate", ts(type = "string"))]
        pub struct $name(Arc<str>);

        impl $name {
            /// Validates an id: 1 to 128 characters of `[A-Za-z0-9_.:-]`, the first alphanumeric.
            /// There is no other way to make one.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                validate(text)?;
                Ok(Self(text.into()))
            }

            /// The identifier as it is on the wire.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "generate")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$"
                })
            }
        }
    )*};
}

id_types! {
    /// A session, which is one ordered log.
    SessionId
    /// A person or an agent, on however many devices.
    ParticipantId
    /// A message. A proposal, gate or prompt has the id of the message that created it.
    MessageId
    /// A fork: a history beside the main one.
    ForkId
}

impl MessageId {
    /// A UUIDv7 for this time; the caller supplies the entropy.
    pub fn new_v7(at: crate::Timestamp, entropy: [u8; 10]) -> Self {
        let uuid = uuid::Builder::from_unix_timestamp_millis(at.as_millis(), &entropy).into_uuid();
        Self(uuid.hyphenated().to_string().into())
    }

    /// The end of the id, by which people refer to a proposal: its last [`SHORT_ID_LENGTH`]
    /// characters, or all of it if it is shorter.
    ///
    /// Proposers choose the ids of their proposals, so two of them may have the same short id.
    ///
    /// It begins with a letter or a digit, as the whole id does, and is longer if it has to be: a
    /// command line takes `-` for a flag.
    pub fn short(&self) -> &str {
        // An id is ASCII, so every position is the start of a character.
        let end = self.0.len().saturating_sub(SHORT_ID_LENGTH);
        let is_plain = |at: &usize| self.0.as_bytes()[*at].is_ascii_alphanumeric();
        let start = (0..=end).rev().find(is_plain).unwrap_or(0);
        &self.0[start..]
    }

    /// Whether this text names a message with this id: it is the whole id, or an end of it that is
    /// at least as long as the short id.
    pub fn is_named_by(&self, text: &str) -> bool {
        self.as_str() == text || (text.len() >= SHORT_ID_LENGTH && self.0.ends_with(text))
    }

    /// A proposal together with the version of its command that was shown: the short id, `@`, and
    /// the beginning of the digest.
    pub fn handle(&self, digest: crate::Digest) -> String {
        self.handle_with(digest, HANDLE_DIGEST_LENGTH)
    }

    /// As [`handle`](Self::handle), for a command that was edited.
    pub fn edited_handle(&self, digest: crate::Digest) -> String {
        self.handle_with(digest, EDITED_HANDLE_DIGEST_LENGTH)
    }

    fn handle_with(&self, digest: crate::Digest, length: usize) -> String {
        let digest: String = digest.to_string().chars().take(length).collect();
        format!("{}@{digest}", self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_plain_words_that_can_never_be_paths() {
        for good in [
            "a",
            "A9",
            "01JABC",
            "blue-owl",
            "a_b.c:d-e",
            "0190a5b0-7c1e-7000-8000-000000000000",
        ] {
            assert_eq!(MessageId::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "..",
            ".a",
            "-a",
            "_a",
            ":a",
            "a/b",
            "a\\b",
            "a b",
            "a\0",
            "é",
            "a\n",
            "../../etc/passwd",
        ] {
            assert!(
                matches!(MessageId::parse(bad), Err(IdError::BadCharacter(..))),
                "{bad:?}"
            );
        }
        assert_eq!(MessageId::parse(""), Err(IdError::Empty));
        assert!(MessageId::parse(&"x".repeat(128)).is_ok());
        assert_eq!(
            MessageId::parse(&"x".repeat(129)),
            Err(IdError::TooLong(129))
        );
    }

    #[test]
    fn a_short_id_is_the_end_of_an_id() {
        let short = |text: &str| MessageId::parse(text).unwrap().short().to_owned();
        assert_eq!(short("0190a5b0-7c1e-7000-8000-0000004a3f77"), "4a3f77");
        assert_eq!(short("toolu_01ABCdef"), "ABCdef");
        assert_eq!(short("123456"), "123456");
        assert_eq!(short("p1"), "p1");
        // Nobody chooses an id whose end is taken for a flag.
        assert_eq!(short("call-12345"), "l-12345");
        assert_eq!(short("a--help"), "a--help");
    }

    /// `short` cuts at a byte, which is safe as long as no id has a character of several bytes.
    #[test]
    fn no_id_has_a_character_of_several_bytes() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let accepted = MessageId::parse(&format!("a{c}bcdef")).is_ok();
            assert!(!accepted || c.is_ascii(), "{c:?}");
        }
    }

    #[test]
    fn an_end_shorter_than_the_short_id_names_only_a_whole_id() {
        let id = MessageId::parse("0190a5b0-4a3f77").unwrap();
        for (text, named) in [
            ("4a3f77", true),
            ("-4a3f77", true),
            ("0190a5b0-4a3f77", true),
            ("a3f77", false),
            ("0190a5", false),
            ("x0190a5b0-4a3f77", false),
            ("", false),
        ] {
            assert_eq!(id.is_named_by(text), named, "{text}");
        }
        let short = MessageId::parse("p1").unwrap();
        assert!(short.is_named_by("p1") && !short.is_named_by("1"));
    }

    #[test]
    fn deserialising_validates_too() {
        assert!(serde_json::from_str::<SessionId>("\"ok\"").is_ok());
        assert!(serde_json::from_str::<SessionId>("\"a\\u002fb\"").is_err());
        assert!(serde_json::from_str::<SessionId>("7").is_err());
    }
}
