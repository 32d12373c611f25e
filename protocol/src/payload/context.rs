//! What the session knows: shared context, and secrets that are named but never written down.

use crate::{Digest, ExtraFields, JsonObject, ParticipantId, Timestamp};

wire_enums! {
    /// What a piece of context is.
    pub enum ContextContentType {
        Text,
        File,
        Reference,
        Structured,
        Image,
        AudioTranscript,
    }

    /// Where content by reference is kept.
    pub enum ContentStorage {
        Inline,
        Local,
        S3,
        Ipfs,
    }

    /// What a secret opens.
    pub enum SecretType {
        ApiKey,
        DatabaseUrl,
        Token,
        Credential,
        Other,
    }
}

/// Content as published: a string or an object.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Object(#[cfg_attr(feature = "generate", ts(type = "Record<string, unknown>"))] JsonObject),
}

impl Content {
    /// Bytes this content takes of the session's context budget.
    pub fn size(&self) -> usize {
        match self {
            Content::Text(text) => text.len(),
            Content::Object(object) => serde_json::to_string(object).map_or(0, |json| json.len()),
        }
    }
}

wire_structs! {
    /// Content that is kept elsewhere.
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
        pub key: String,
        pub content_type: ContextContentType,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub content: Option<Content>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub content_ref: Option<ContentRef>,
        /// Only these, and whoever added it, see it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub visible_to: Option<Vec<ParticipantId>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub source: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tags: Option<Vec<String>>,
        #[serde(flatten)]
        #[cfg_attr(feature = "generate", ts(skip))]
        pub extra: ExtraFields,
    }

    /// `context.update`
    pub struct ContextUpdate {
        pub key: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub diff: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub new_content: Option<Content>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub new_content_ref: Option<ContentRef>,
        pub reason: String,
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
        pub key: String,
        pub scope: Vec<ParticipantId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<Timestamp>,
        /// Where the value is; a name, not the value.
        pub value_ref: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub secret_type: Option<SecretType>,
        /// The value itself, if the server should hand it to executors in scope. Taken out before
        /// anything is recorded, kept in memory only, and masked in output.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub value: Option<String>,
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
