//! Shared context, and secrets, whose values are never stored.

use crate::{Digest, ExtraFields, JsonObject, ParticipantId, Timestamp};

wire_enums! {
    /// The kind of a context item.
    pub enum ContextContentType {
        Text,
        File,
        Reference,
        Structured,
        Image,
        AudioTranscript,
    }

    /// Where referenced content is stored.
    pub enum ContentStorage {
        Inline,
        Local,
        S3,
        Ipfs,
    }

    /// What a secret is.
    pub enum SecretType {
        ApiKey,
        DatabaseUrl,
        Token,
        Credential,
        Other,
    }
}

/// Content in the form of the published protocol: a string or an object.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Object(#[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))] JsonObject),
}

impl Content {
    /// How many bytes of the session's context limit this content uses.
    pub fn size(&self) -> usize {
        match self {
            Content::Text(text) => text.len(),
            Content::Object(object) => serde_json::to_string(object).map_or(0, |json| json.len()),
        }
    }
}

/// The field of an object that stands for a long text and says by which reference to read it.
pub const CONTENT_REF_FIELD: &str = "content_ref";

wire_structs! {
    /// A reference to content that is stored elsewhere.
    pub struct ContentRef {
        pub hash: Digest,
        pub size_bytes: u64,
        pub mime_type: String,
        pub storage: ContentStorage,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub uri: Option<String>,
    }

    /// `context.add`
    pub struct ContextAdd {
        /// The key that names the item in the session.
        pub key: String,
        /// The kind of content.
        pub content_type: ContextContentType,
        /// The content; required unless `content_ref` is given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub content: Option<Content>,
        /// Where the content is stored; required unless `content` is given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub content_ref: Option<ContentRef>,
        /// The only people who see it, besides its sender; everyone if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub visible_to: Option<Vec<ParticipantId>>,
        /// Where it comes from.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub source: Option<String>,
        /// Labels for finding it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tags: Option<Vec<String>>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `context.update`
    pub struct ContextUpdate {
        /// The key of the item.
        pub key: String,
        /// The change as a diff; one of `diff`, `new_content` and `new_content_ref` is given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub diff: Option<String>,
        /// The new content.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub new_content: Option<Content>,
        /// Where the new content is stored.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub new_content_ref: Option<ContentRef>,
        /// Why it changes.
        pub reason: String,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `context.remove`
    pub struct ContextRemove {
        pub key: String,
        pub reason: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `secret.share`
    pub struct SecretShare {
        /// The key that names the secret in the session.
        pub key: String,
        /// The participants it is shared with.
        pub scope: Vec<ParticipantId>,
        /// When the server revokes it; never if not given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<Timestamp>,
        /// Where the value is stored: a name, not the value.
        pub value_ref: String,
        /// What the secret is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub secret_type: Option<SecretType>,
        /// The value itself, if the server should pass it to executors in `scope`. It is removed
        /// before anything is recorded, kept in memory only, and masked in output.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub value: Option<String>,
        /// Fields this version does not know.
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `secret.revoke`
    pub struct SecretRevoke {
        pub key: String,
        pub reason: String,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }
}
