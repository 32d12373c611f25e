//! What the session shares: context, secrets by name, and allow rules.

use std::collections::BTreeMap;

use pvp_protocol::payload::{
    AllowRuleInfo, Content, ContentRef, ContextAdd, ContextContentType, ContextRemove,
    ContextUpdate, PolicyAllow, PolicyRevoke, SecretRevoke, SecretShare, SecretType,
};
use pvp_protocol::{MessageId, ParticipantId, Sender, Timestamp};
use serde::Serialize;

use super::text::{line, some_line};
use super::timeline::What;
use super::{Told, View, push_newest};

/// Keys of context that are kept; their content is not, so this is some hundred kilobytes.
const KEYS: usize = 2000;

/// Secrets, allow rules and people in a secret's scope that are kept; a session has at most 200.
const FEW: usize = 200;

/// Words of an allow rule that are kept; the server takes at most 32.
const WORDS: usize = 32;

/// The key under which the server tells where commands run.
const WORKING_DIRECTORY: &str = "session:working_directory";

/// One piece of shared context, without its content.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Context {
    pub by: Sender,
    pub at: Timestamp,
    pub content_type: ContextContentType,
    pub bytes: u64,
}

/// A secret that is known by name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Secret {
    pub by: Sender,
    pub at: Timestamp,
    pub scope: Vec<ParticipantId>,
    pub expires_at: Option<Timestamp>,
    pub secret_type: Option<SecretType>,
}

/// A prefix that runs without asking.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    pub rule: MessageId,
    pub by: ParticipantId,
    pub at: Timestamp,
    pub prefix: Vec<String>,
    pub expires_at: Timestamp,
    pub reason: Option<String>,
}

impl Rule {
    /// Whether it still holds.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.expires_at > now
    }
}

impl View {
    pub(super) fn fold_context_add(&mut self, told: &Told<'_>, add: &ContextAdd) {
        let bytes = size(add.content.as_ref(), add.content_ref.as_ref());
        let key = line(&add.key);
        self.note_directory(&add.key, add.content.as_ref());
        let context = Context {
            by: told.who.clone(),
            at: told.at,
            content_type: add.content_type,
            bytes,
        };
        insert_if_room(&mut self.context, key.clone(), context, KEYS);
        self.tell(told, What::ContextAdded { key, bytes });
    }

    fn note_directory(&mut self, key: &str, content: Option<&Content>) {
        if let (WORKING_DIRECTORY, Some(Content::Text(directory))) = (key, content) {
            self.working_directory = Some(line(directory));
        }
    }

    pub(super) fn fold_context_update(&mut self, told: &Told<'_>, update: &ContextUpdate) {
        self.note_directory(&update.key, update.new_content.as_ref());
        let key = line(&update.key);
        let diff = update.diff.as_ref().map_or(0, |diff| diff.len() as u64);
        let replaced = update.new_content.is_some() || update.new_content_ref.is_some();
        let fresh = size(update.new_content.as_ref(), update.new_content_ref.as_ref());
        let known = self.context.get_mut(&key);
        let held = known.as_ref().map_or(0, |context| context.bytes);
        let bytes = if replaced {
            fresh
        } else {
            held.saturating_add(diff)
        };
        if let Some(context) = known {
            (context.by, context.at) = (told.who.clone(), told.at);
            context.bytes = bytes;
        }
        let reason = line(&update.reason);
        self.tell(told, What::ContextUpdated { key, bytes, reason });
    }

    pub(super) fn fold_context_remove(&mut self, told: &Told<'_>, remove: &ContextRemove) {
        let (key, reason) = (line(&remove.key), line(&remove.reason));
        self.context.remove(&key);
        self.tell(told, What::ContextRemoved { key, reason });
    }

    pub(super) fn fold_secret_share(&mut self, told: &Told<'_>, share: &SecretShare) {
        let key = line(&share.key);
        let scope: Vec<_> = share.scope.iter().take(FEW).cloned().collect();
        let secret = Secret {
            by: told.who.clone(),
            at: told.at,
            scope: scope.clone(),
            expires_at: share.expires_at,
            secret_type: share.secret_type,
        };
        insert_if_room(&mut self.secrets, key.clone(), secret, FEW);
        self.tell(told, What::SecretShared { key, scope });
    }

    pub(super) fn fold_secret_revoke(&mut self, told: &Told<'_>, revoke: &SecretRevoke) {
        let (key, reason) = (line(&revoke.key), line(&revoke.reason));
        self.secrets.remove(&key);
        self.tell(told, What::SecretRevoked { key, reason });
    }

    pub(super) fn fold_allow(&mut self, told: &Told<'_>, allow: &PolicyAllow) {
        let prefix: Vec<_> = allow
            .prefix
            .iter()
            .take(WORDS)
            .map(|word| line(word))
            .collect();
        let (expires_at, reason) = (allow.expires_at, some_line(allow.reason.as_ref()));
        // A welcome tells which of the past still stand.
        if let Some(by) = told.by().filter(|_| !told.past) {
            let rule = Rule {
                rule: told.id.clone(),
                by: by.clone(),
                at: told.at,
                prefix: prefix.clone(),
                expires_at,
                reason: reason.clone(),
            };
            self.rules.retain(|rule| rule.is_in_force(told.at));
            push_newest(&mut self.rules, rule, FEW);
        }
        self.tell(
            told,
            What::Allowed {
                prefix,
                expires_at,
                reason,
            },
        );
    }

    /// The rules as a welcome tells them.
    pub(super) fn find_rules(&mut self, standing: &[AllowRuleInfo]) {
        let rule = |told: &AllowRuleInfo| Rule {
            rule: told.rule.clone(),
            by: told.by.clone(),
            at: told.at,
            prefix: told
                .prefix
                .iter()
                .take(WORDS)
                .map(|word| line(word))
                .collect(),
            expires_at: told.expires_at,
            reason: some_line(told.reason.as_ref()),
        };
        self.rules = standing.iter().take(FEW).map(rule).collect();
    }

    pub(super) fn fold_allow_revoke(&mut self, told: &Told<'_>, revoke: &PolicyRevoke) {
        self.rules.retain(|rule| rule.rule != revoke.rule);
        let (rule, reason) = (revoke.rule.clone(), some_line(revoke.reason.as_ref()));
        self.tell(told, What::AllowRevoked { rule, reason });
    }
}

fn size(content: Option<&Content>, elsewhere: Option<&ContentRef>) -> u64 {
    let held = content.map(|content| content.size() as u64);
    held.or(elsewhere.map(|elsewhere| elsewhere.size_bytes))
        .unwrap_or(0)
}

fn insert_if_room<T>(map: &mut BTreeMap<String, T>, key: String, value: T, most: usize) {
    if map.len() < most || map.contains_key(&key) {
        map.insert(key, value);
    }
}
