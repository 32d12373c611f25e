//! Decides on shared context and secrets.

use std::borrow::Cow;

use pvp_protocol::payload::{
    CONTENT_REF_FIELD, Content, ContentRef, ContentStorage, ContextAdd, ContextContentType,
    ContextRemove, ContextUpdate, SecretRevoke, SecretShare, ToolResult, ToolResultValue,
};
use pvp_protocol::{Capability, Command, Digest, ExtraFields, MessageId, ParticipantId, Refusal};
use serde::Deserialize;
use serde_json::Value;

use super::{AnswerResult, DecisionBuilder};
use crate::authority;
use crate::entry::Audience;
use crate::input::SubmittedMessage;
use crate::proposal::Proposal;
use crate::state::{ContextItem, ContextSlot};

/// The longest key of a context item, in bytes.
const MAX_KEY_BYTES: usize = 256;

/// The most secrets that a session may have at a time.
const MAX_SECRETS: usize = 200;

/// The prefix of keys that only the server may use.
const RESERVED_PREFIX: &str = "session:";

/// The one of them that agents write: the list of what they are doing.
const TASKS_KEY: &str = "session:tasks";

/// The prefix of keys of files.
const FILE_PREFIX: &str = "file:";

/// The tool of the published protocol that writes a file.
const FILE_WRITE_TOOL: &str = "file_write";

/// The most content that the server itself puts into an item of context, in bytes.
const MAX_SHARED_CONTENT_BYTES: usize = 64 * 1024;

impl DecisionBuilder<'_> {
    pub(super) fn context_add(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        add: ContextAdd,
    ) -> AnswerResult {
        self.check_context_key(&add.key)?;
        if add.content.is_none() && add.content_ref.is_none() {
            let problem = "`context.add` needs `content` or `content_ref`";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        let (audience, slot) = match &add.visible_to {
            None => (Audience::everyone(), ContextSlot::Public),
            Some(people) => (
                Audience::only(people.iter().chain([by]).cloned()),
                ContextSlot::Private(by.clone()),
            ),
        };
        // Only keys that everyone sees can be taken. A refusal would tell of the others.
        if slot == ContextSlot::Public
            && let Some(item) = self.session.context.get(&add.key)
            && !self.may_replace(by, &add.key, item)
        {
            let problem = format!(
                "the key `{}` is taken; use another, or `context.update`",
                add.key
            );
            return Err(Refusal::InvalidState(problem));
        }
        let bytes = ContextItem::stored_bytes(&add, &audience);
        self.check_context_size(self.bytes_replaced_by(by, &add.key), bytes)?;
        Ok(self.relay_to(by, submitted, add, audience))
    }

    pub(super) fn context_update(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        update: ContextUpdate,
    ) -> AnswerResult {
        self.check_context_key(&update.key)?;
        if update.diff.is_none() && update.new_content.is_none() && update.new_content_ref.is_none()
        {
            let problem = "`context.update` needs `diff`, `new_content` or `new_content_ref`";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        let (audience, before, after) = match self.visible_item(by, &update.key) {
            Ok(item) => (
                item.audience.clone(),
                item.bytes,
                item.stored_bytes_after(&update),
            ),
            // Published agents update what they have not added.
            Err(_) if self.decision_context.settings.open_mode => {
                let content = update.new_content.as_ref().map_or(0, Content::size);
                let diff = update.diff.as_ref().map_or(0, String::len);
                let bytes = update.key.len() + content.max(diff);
                (Audience::everyone(), 0, bytes)
            }
            Err(refusal) => return Err(refusal),
        };
        self.check_context_size(before, after)?;
        Ok(self.relay_to(by, submitted, update, audience))
    }

    /// Whether this participant may add a key that everyone sees and that somebody has added: their
    /// own, the tasks that agents share, or a file that the server told of.
    fn may_replace(&self, by: &ParticipantId, key: &str, item: &ContextItem) -> bool {
        let told_file = item.by.is_none() && key.starts_with(FILE_PREFIX);
        item.by.as_ref() == Some(by) || key == TASKS_KEY || told_file
    }

    fn check_context_key(&self, key: &str) -> Result<(), Refusal> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) {
            let problem =
                format!("a context key has 1 to {MAX_KEY_BYTES} bytes and no control characters");
            return Err(Refusal::Malformed(problem));
        }
        let is_agent = self.sender().is_ok_and(|sender| !sender.is_human());
        if key.starts_with(RESERVED_PREFIX) && !(key == TASKS_KEY && is_agent) {
            return Err(Refusal::Unauthorized(format!(
                "keys that begin with `{RESERVED_PREFIX}` are reserved for the server"
            )));
        }
        Ok(())
    }

    /// Tells of content as an item of context, whole if it is short and fits, else by its hash.
    pub(super) fn share_context(&mut self, key: String, content: SharedContent, about: MessageId) {
        let SharedContent {
            content,
            reference,
            source,
        } = content;
        let whole = |content: &Content| content.size() <= MAX_SHARED_CONTENT_BYTES;
        let reference = reference.or_else(|| content.as_ref().map(reference_to));
        let mut add = ContextAdd {
            key,
            content_type: match &reference {
                Some(reference) if reference.uri.is_some() => ContextContentType::File,
                Some(_) | None => ContextContentType::Text,
            },
            content: content.filter(whole),
            content_ref: reference,
            visible_to: None,
            source,
            tags: None,
            extra: ExtraFields::new(),
        };
        let replaced = self
            .session
            .context
            .get(&add.key)
            .map_or(0, |item| item.bytes);
        let fits = |add: &ContextAdd| {
            let bytes = ContextItem::stored_bytes(add, &Audience::everyone());
            self.check_context_size(replaced, bytes).is_ok()
        };
        if !fits(&add) {
            add.content = None;
        }
        let has_content = add.content.is_some() || add.content_ref.is_some();
        let owner = self.session.context.get(&add.key).map(|item| &item.by);
        let somebody_elses = owner.is_some_and(|by| {
            let source = add.source.as_deref();
            by.as_ref().is_some_and(|by| source != Some(by.as_str()))
        });
        if has_content && !somebody_elses && add.key.len() <= MAX_KEY_BYTES && fits(&add) {
            self.append_system(add, Some(about));
        }
    }

    /// Tells everyone of a file that an agent has written.
    pub(super) fn share_written_file(&mut self, file: WrittenFile) {
        let WrittenFile {
            path,
            content,
            proposal,
            agent,
        } = file;
        if path.chars().any(char::is_control) {
            return;
        }
        let reference = match &content {
            Some(content @ Content::Text(_)) => Some(ContentRef {
                storage: ContentStorage::Local,
                uri: Some(path.clone()),
                ..reference_to(content)
            }),
            Some(Content::Object(object)) => object
                .get(CONTENT_REF_FIELD)
                .and_then(|reference| ContentRef::deserialize(reference).ok()),
            None => None,
        };
        let content = SharedContent {
            content: content.filter(|content| matches!(content, Content::Text(_))),
            reference,
            source: Some(agent.to_string()),
        };
        self.share_context(format!("{FILE_PREFIX}{path}"), content, proposal);
    }

    pub(super) fn context_remove(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        remove: ContextRemove,
    ) -> AnswerResult {
        self.check_context_key(&remove.key)?;
        let audience = self.visible_item(by, &remove.key)?.audience.clone();
        Ok(self.relay_to(by, submitted, remove, audience))
    }

    /// The item with this key. One that the sender may not see is treated as missing.
    fn visible_item(&self, by: &ParticipantId, key: &str) -> Result<&ContextItem, Refusal> {
        let slot = self.session.context_slot(by, key);
        slot.and_then(|slot| self.session.context_item(key, &slot))
            .ok_or_else(|| Refusal::InvalidState(format!("there is no context `{key}`")))
    }

    /// How many bytes are freed if this participant adds this key: those of their own items.
    fn bytes_replaced_by(&self, by: &ParticipantId, key: &str) -> usize {
        let public = self.session.context.get(key);
        let public = public.filter(|item| item.by.as_ref() == Some(by));
        let private = ContextSlot::Private(by.clone());
        let private = self.session.context_item(key, &private);
        let items = public.into_iter().chain(private);
        items.map(|item| item.bytes).sum()
    }

    /// Checks that the context stays within its limit if `bytes` take the place of `replaced`.
    fn check_context_size(&self, replaced: usize, bytes: usize) -> Result<(), Refusal> {
        let limit = self.decision_context.settings.limits.context_bytes;
        let would_be = self.session.context_bytes() - replaced + bytes;
        if would_be > limit {
            return Err(Refusal::ContextTooLarge { would_be, limit });
        }
        Ok(())
    }

    pub(super) fn secret_share(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        mut share: SecretShare,
    ) -> AnswerResult {
        if !is_variable_name(&share.key) {
            let problem = "a secret's `key` is a variable name: letters, digits and _, at most 128";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        if pvp_policy::changes_meaning(&share.key) {
            let problem = format!(
                "a secret may not be called `{}`, because variables of that name decide which \
                 code a command runs; share it under another name",
                share.key
            );
            return Err(Refusal::Malformed(problem));
        }
        if share.value_ref.len() > MAX_KEY_BYTES {
            let problem = "`value_ref` says where the value is; it is at most 256 bytes";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        if share.expires_at.is_some_and(|expires| expires <= self.at) {
            return Err(Refusal::Malformed("`expires_at` is in the past".to_owned()));
        }
        for participant in &share.scope {
            if !self.session.members.contains_key(participant) {
                return Err(Refusal::NoSuchParticipant(participant.clone()));
            }
        }
        match self.session.secrets.get(&share.key) {
            Some(secret) if secret.by != *by => {
                return Err(Refusal::InvalidState(format!(
                    "the key `{}` is taken",
                    share.key
                )));
            }
            None if self.session.secrets.len() >= MAX_SECRETS => {
                return Err(Refusal::TooMany {
                    what: "secrets",
                    limit: MAX_SECRETS as u64,
                });
            }
            Some(_) | None => {}
        }
        share.value = None;
        // Everyone hears which variables commands may receive; the value is in no message.
        Ok(self.relay(by, submitted, share))
    }

    pub(super) fn secret_revoke(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        revoke: SecretRevoke,
    ) -> AnswerResult {
        let unknown = || Refusal::InvalidState(format!("there is no secret `{}`", revoke.key));
        let secret = self.session.secrets.get(&revoke.key).ok_or_else(unknown)?;
        if secret.by != *by {
            authority::require_capability(self.sender()?, Capability::ManageParticipants)
                .map_err(|_| unknown())?;
        }
        Ok(self.relay(by, submitted, revoke))
    }
}

/// A file that a tool has written, as its result says.
pub(super) struct WrittenFile {
    path: String,
    content: Option<Content>,
    proposal: MessageId,
    agent: ParticipantId,
}

/// Content that the server tells of as an item of context.
pub(super) struct SharedContent {
    pub(super) content: Option<Content>,
    pub(super) reference: Option<ContentRef>,
    pub(super) source: Option<String>,
}

/// A reference to content that another message of the log has whole.
fn reference_to(content: &Content) -> ContentRef {
    let (text, mime_type) = match content {
        Content::Text(text) => (Cow::Borrowed(text.as_str()), "text/plain"),
        Content::Object(object) => {
            let text = Value::Object(object.clone()).to_string();
            (Cow::Owned(text), "application/json")
        }
    };
    ContentRef {
        hash: Digest::of_content(text.as_bytes()),
        size_bytes: text.len() as u64,
        mime_type: mime_type.to_owned(),
        storage: ContentStorage::Inline,
        uri: None,
    }
}

/// The file that a granted `file_write` has written, if its result names it.
pub(super) fn written_file(proposal: &Proposal, result: &ToolResult) -> Option<WrittenFile> {
    let Command::Tool { name, arguments } = &proposal.action.command else {
        return None;
    };
    if name != FILE_WRITE_TOOL || !result.success {
        return None;
    }
    let text = |names: &[&str]| names.iter().find_map(|name| arguments.get(*name));
    let path = text(&["path", "file_path", "filename", "file"])?.as_str()?;
    let named = match result.result.as_ref()? {
        ToolResultValue::Command(body) => body.stdout.contains(path),
        ToolResultValue::Other(value) => names_path(value, path),
    };
    let content = text(&["content", "contents", "text"]);
    named.then(|| WrittenFile {
        path: path.to_owned(),
        content: content.and_then(|content| Content::deserialize(content).ok()),
        proposal: proposal.id.clone(),
        agent: proposal.executor.clone(),
    })
}

/// Whether a result names a path: as a text, or in one of its fields.
fn names_path(value: &Value, path: &str) -> bool {
    match value {
        Value::String(text) => text.contains(path),
        Value::Object(fields) => {
            let mut texts = fields.values().filter_map(Value::as_str);
            texts.any(|text| text.contains(path))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

pub(super) fn is_variable_name(key: &str) -> bool {
    let mut characters = key.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && key.len() <= 128
}
