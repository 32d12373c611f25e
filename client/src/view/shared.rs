//! Folds the messages about shared things: context, secrets by name, and allow rules.

use std::collections::BTreeMap;

use pvp_protocol::payload::{
    AllowRuleInfo, Content, ContentRef, ContextAdd, ContextContentType, ContextRemove,
    ContextUpdate, PolicyAllow, PolicyRevoke, SecretInfo, SecretRevoke, SecretShare, SecretType,
};
use pvp_protocol::{MessageId, ParticipantId, Sender, Timestamp};
use serde::Serialize;

use super::text::{truncate_line, truncate_optional_line};
use super::timeline::TimelineEvent;
use super::{MessageMeta, View, push_bounded};

/// Maximum number of context keys kept. Their content is not kept, so this is a few hundred
/// kilobytes.
const MAX_CONTEXT_ITEMS: usize = 2000;

/// Maximum number of secrets, of allow rules, and of participants in a secret's scope; a session
/// has at most 200 of each.
const MAX_SHARED_ITEMS: usize = 200;

/// Maximum number of words kept of an allow rule; the server accepts at most 32.
pub(super) const MAX_RULE_WORDS: usize = 32;

/// The context key under which the server publishes where commands run.
const WORKING_DIRECTORY_KEY: &str = "session:working_directory";

/// One item of shared context, without its content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextView {
    pub by: Sender,
    pub at: Timestamp,
    pub content_type: ContextContentType,
    pub bytes: u64,
}

/// A shared secret, without its value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SecretView {
    pub by: Sender,
    /// When it was shared; `None` if that was before the messages received.
    pub at: Option<Timestamp>,
    pub scope: Vec<ParticipantId>,
    pub expires_at: Option<Timestamp>,
    pub secret_type: Option<SecretType>,
}

/// A command prefix that runs without a vote, or a directory that may be read without one, until
/// the rule expires.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AllowRuleView {
    /// The rule's id.
    pub rule: MessageId,
    /// Who made it.
    pub by: ParticipantId,
    /// When it was made.
    pub at: Timestamp,
    /// The words that a command must begin with; empty if the rule allows reading.
    pub prefix: Vec<String>,
    /// The directory that may be read, if the rule allows that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_root: Option<String>,
    /// Where it must run: the executor's own directory if `None`, anywhere if `*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The reason given, if any.
    pub reason: Option<String>,
}

impl AllowRuleView {
    /// Whether the rule has not expired.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }
}

impl View {
    pub(super) fn fold_context_add(&mut self, meta: &MessageMeta<'_>, add: &ContextAdd) {
        let bytes = content_size(add.content.as_ref(), add.content_ref.as_ref());
        let key = truncate_line(&add.key);
        self.update_working_directory(&add.key, add.content.as_ref());
        let context = ContextView {
            by: meta.sender.clone(),
            at: meta.at,
            content_type: add.content_type,
            bytes,
        };
        insert_if_room(&mut self.context, key.clone(), context, MAX_CONTEXT_ITEMS);
        self.push_logged_item(meta, TimelineEvent::ContextAdded { key, bytes });
    }

    fn update_working_directory(&mut self, key: &str, content: Option<&Content>) {
        if let (WORKING_DIRECTORY_KEY, Some(Content::Text(directory))) = (key, content) {
            self.working_directory = Some(truncate_line(directory));
        }
    }

    pub(super) fn fold_context_update(&mut self, meta: &MessageMeta<'_>, update: &ContextUpdate) {
        self.update_working_directory(&update.key, update.new_content.as_ref());
        let key = truncate_line(&update.key);
        let diff = update.diff.as_ref().map_or(0, |diff| diff.len() as u64);
        let replaced = update.new_content.is_some() || update.new_content_ref.is_some();
        let new_bytes = content_size(update.new_content.as_ref(), update.new_content_ref.as_ref());
        let known = self.context.get_mut(&key);
        let old_bytes = known.as_ref().map_or(0, |context| context.bytes);
        let bytes = if replaced {
            new_bytes
        } else {
            old_bytes.saturating_add(diff)
        };
        if let Some(context) = known {
            (context.by, context.at) = (meta.sender.clone(), meta.at);
            context.bytes = bytes;
        }
        let reason = truncate_line(&update.reason);
        self.push_logged_item(meta, TimelineEvent::ContextUpdated { key, bytes, reason });
    }

    pub(super) fn fold_context_remove(&mut self, meta: &MessageMeta<'_>, remove: &ContextRemove) {
        let (key, reason) = (truncate_line(&remove.key), truncate_line(&remove.reason));
        self.context.remove(&key);
        self.push_logged_item(meta, TimelineEvent::ContextRemoved { key, reason });
    }

    pub(super) fn fold_secret_share(&mut self, meta: &MessageMeta<'_>, share: &SecretShare) {
        let key = truncate_line(&share.key);
        let scope: Vec<_> = share.scope.iter().take(MAX_SHARED_ITEMS).cloned().collect();
        let secret = SecretView {
            by: meta.sender.clone(),
            at: Some(meta.at),
            scope: scope.clone(),
            expires_at: share.expires_at,
            secret_type: share.secret_type,
        };
        insert_if_room(&mut self.secrets, key.clone(), secret, MAX_SHARED_ITEMS);
        self.push_logged_item(meta, TimelineEvent::SecretShared { key, scope });
    }

    pub(super) fn fold_secret_revoke(&mut self, meta: &MessageMeta<'_>, revoke: &SecretRevoke) {
        let (key, reason) = (truncate_line(&revoke.key), truncate_line(&revoke.reason));
        self.secrets.remove(&key);
        self.push_logged_item(meta, TimelineEvent::SecretRevoked { key, reason });
    }

    pub(super) fn fold_allow(&mut self, meta: &MessageMeta<'_>, allow: &PolicyAllow) {
        let prefix: Vec<_> = allow
            .prefix
            .iter()
            .take(MAX_RULE_WORDS)
            .map(|word| truncate_line(word))
            .collect();
        let directory = truncate_optional_line(allow.directory.as_ref());
        let read_root = truncate_optional_line(allow.read_root.as_ref());
        let (expires_at, reason) = (
            allow.expires_at,
            truncate_optional_line(allow.reason.as_ref()),
        );
        // For history, the welcome has already listed the rules that still hold.
        if let Some(by) = meta.participant().filter(|_| !meta.is_history) {
            let rule = AllowRuleView {
                rule: meta.id.clone(),
                by: by.clone(),
                at: meta.at,
                prefix: prefix.clone(),
                read_root: read_root.clone(),
                directory: directory.clone(),
                expires_at,
                reason: reason.clone(),
            };
            self.rules.retain(|rule| rule.is_active(meta.at));
            push_bounded(&mut self.rules, rule, MAX_SHARED_ITEMS);
        }
        self.push_logged_item(
            meta,
            TimelineEvent::Allowed {
                prefix,
                read_root,
                directory,
                expires_at,
                reason,
            },
        );
    }

    /// Replaces the secrets with those of a welcome, and keeps what it leaves out about them.
    pub(super) fn set_secrets(&mut self, secrets: &[SecretInfo]) {
        let mut known = std::mem::take(&mut self.secrets);
        for info in secrets.iter().take(MAX_SHARED_ITEMS) {
            let key = truncate_line(&info.key);
            let known = known.remove(&key);
            let secret = SecretView {
                by: Sender::Participant(info.by.clone()),
                at: known.as_ref().and_then(|secret| secret.at),
                scope: info.scope.iter().take(MAX_SHARED_ITEMS).cloned().collect(),
                expires_at: info.expires_at,
                secret_type: known.and_then(|secret| secret.secret_type),
            };
            self.secrets.insert(key, secret);
        }
    }

    /// Replaces the rules with those of a welcome.
    pub(super) fn set_rules(&mut self, rules: &[AllowRuleInfo]) {
        let rule = |standing_rule: &AllowRuleInfo| AllowRuleView {
            rule: standing_rule.rule.clone(),
            by: standing_rule.by.clone(),
            at: standing_rule.at,
            prefix: standing_rule
                .prefix
                .iter()
                .take(MAX_RULE_WORDS)
                .map(|word| truncate_line(word))
                .collect(),
            read_root: truncate_optional_line(standing_rule.read_root.as_ref()),
            directory: truncate_optional_line(standing_rule.directory.as_ref()),
            expires_at: standing_rule.expires_at,
            reason: truncate_optional_line(standing_rule.reason.as_ref()),
        };
        self.rules = rules.iter().take(MAX_SHARED_ITEMS).map(rule).collect();
    }

    pub(super) fn fold_allow_revoke(&mut self, meta: &MessageMeta<'_>, revoke: &PolicyRevoke) {
        self.rules.retain(|rule| rule.rule != revoke.rule);
        let (rule, reason) = (
            revoke.rule.clone(),
            truncate_optional_line(revoke.reason.as_ref()),
        );
        self.push_logged_item(meta, TimelineEvent::AllowRevoked { rule, reason });
    }
}

fn content_size(content: Option<&Content>, reference: Option<&ContentRef>) -> u64 {
    let inline = content.map(|content| content.size() as u64);
    inline
        .or(reference.map(|reference| reference.size_bytes))
        .unwrap_or(0)
}

fn insert_if_room<T>(map: &mut BTreeMap<String, T>, key: String, value: T, max: usize) {
    if map.len() < max || map.contains_key(&key) {
        map.insert(key, value);
    }
}
