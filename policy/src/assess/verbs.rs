//! Verbs with which an unknown program is told to destroy something.

use crate::word::ShellWord;

/// Verbs of which every user knows what they do.
const DESTRUCTIVE_VERBS: &[&str] = &[
    "delete",
    "destroy",
    "purge",
    "reset",
    "revoke",
    "drop",
    "terminate",
    "wipe",
    "erase",
    "nuke",
    "truncate",
    "teardown",
    "deprovision",
    "decommission",
    "unpublish",
    "obliterate",
    "shred",
];

/// How many words may come before the verb: a program, its subcommands and some flags.
const MAX_WORDS_BEFORE: usize = 8;

/// The verb among a command's arguments, as a word or a flag by itself: `delete`, `db:drop`,
/// `delete-cluster` or `--purge`.
pub(super) fn destructive_verb(words: &[ShellWord]) -> Option<&'static str> {
    let texts = words.iter().take(MAX_WORDS_BEFORE).map(ShellWord::text);
    let mut after_flag = false;
    for text in texts {
        if text == "--" {
            return None;
        }
        let flag = text.strip_prefix("--");
        if let Some(verb) = verb_in(flag.unwrap_or(&text), flag.is_some(), after_flag) {
            return Some(verb);
        }
        // What follows a flag without `=` may be its value, which is no verb.
        after_flag = flag.is_some_and(|flag| !flag.contains('='));
    }
    None
}

fn verb_in(text: &str, is_flag: bool, after_flag: bool) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let word = lower.split('=').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_lowercase() || c == '-' || c == ':' || c == '_';
    if !word.chars().all(plain) || word.starts_with('-') {
        return None;
    }
    // `apps:destroy`, `delete-node` and `drop_all`, but not `undelete` or `no-reset`.
    let last = word.rsplit(':').next().unwrap_or_default();
    let first = last.split(['-', '_']).next().unwrap_or_default();
    let verb = DESTRUCTIVE_VERBS.iter().find(|verb| **verb == first)?;
    let whole = last == *verb;
    let certain = match is_flag {
        true => !matches!(*verb, "reset" | "drop" | "truncate") || whole,
        false => !after_flag || whole,
    };
    certain.then_some(*verb)
}
