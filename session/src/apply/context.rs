//! Decides on shared context and secrets.

use pvp_protocol::payload::{ContextAdd, ContextRemove, ContextUpdate, SecretRevoke, SecretShare};
use pvp_protocol::{Capability, ParticipantId, Refusal};

use super::{AnswerResult, DecisionBuilder};
use crate::authority;
use crate::entry::Audience;
use crate::input::SubmittedMessage;
use crate::state::{ContextItem, ContextSlot};

/// The longest key of a context item, in bytes.
const MAX_KEY_BYTES: usize = 256;

/// The most secrets that a session may have at a time.
const MAX_SECRETS: usize = 200;

/// The prefix of keys that only the server may use.
const RESERVED_PREFIX: &str = "session:";

impl DecisionBuilder<'_> {
    pub(super) fn context_add(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        add: ContextAdd,
    ) -> AnswerResult {
        check_context_key(&add.key)?;
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
            && item.by.as_ref() != Some(by)
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
        check_context_key(&update.key)?;
        if update.diff.is_none() && update.new_content.is_none() && update.new_content_ref.is_none()
        {
            let problem = "`context.update` needs `diff`, `new_content` or `new_content_ref`";
            return Err(Refusal::Malformed(problem.to_owned()));
        }
        let item = self.visible_item(by, &update.key)?;
        let audience = item.audience.clone();
        self.check_context_size(item.bytes, item.stored_bytes_after(&update))?;
        Ok(self.relay_to(by, submitted, update, audience))
    }

    pub(super) fn context_remove(
        &mut self,
        by: &ParticipantId,
        submitted: &SubmittedMessage,
        remove: ContextRemove,
    ) -> AnswerResult {
        check_context_key(&remove.key)?;
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

fn check_context_key(key: &str) -> Result<(), Refusal> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) {
        let problem =
            format!("a context key has 1 to {MAX_KEY_BYTES} bytes and no control characters");
        return Err(Refusal::Malformed(problem));
    }
    if key.starts_with(RESERVED_PREFIX) {
        return Err(Refusal::Unauthorized(format!(
            "keys that begin with `{RESERVED_PREFIX}` are reserved for the server"
        )));
    }
    Ok(())
}

pub(super) fn is_variable_name(key: &str) -> bool {
    let mut characters = key.chars();
    characters
        .next()
        .is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && key.len() <= 128
}
