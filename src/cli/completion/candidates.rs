//! Asks the server for the values that a word may become.

use std::collections::BTreeSet;
use std::time::Duration;

use pvp_client::{ApiClient, now};
use pvp_protocol::{ParticipantKind, SessionId};

use super::command_line::{CompletionRequest, ValueKind};
use crate::cli::links::LinkArguments;

/// More than this is no help to anybody.
const MAX_CANDIDATES: usize = 100;

/// Characters of the longest candidate.
const MAX_LENGTH: usize = 128;

/// The values, or none if anything goes wrong. Only words that every shell takes literally are
/// among them: agents choose ids, and the server may lie.
pub(super) fn fetch(request: &CompletionRequest, timeout: Duration) -> BTreeSet<String> {
    let values = try_fetch(request, timeout).unwrap_or_default();
    let harmless = values.into_iter().filter(|value| is_harmless(value));
    harmless.take(MAX_CANDIDATES).collect()
}

/// Whether a shell takes the word literally, and a command does not take it for an option.
fn is_harmless(value: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_.:@-".contains(c);
    value.len() <= MAX_LENGTH
        && value.chars().all(harmless)
        && value.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn try_fetch(request: &CompletionRequest, timeout: Duration) -> anyhow::Result<Vec<String>> {
    let arguments = LinkArguments::for_completion(request.link_file.clone());
    let (link, _) = arguments.resolve_link()?;
    let api = ApiClient::with_timeout(link, timeout);
    match request.kind {
        ValueKind::Gate => gate_handles(&api, request.session.as_ref()),
        ValueKind::Session => session_ids(&api),
        ValueKind::Agent => participants(&api, request, |kind| kind == ParticipantKind::Agent),
        ValueKind::Participant => participants(&api, request, |_| true),
        ValueKind::Rule => rule_ids(&api, request),
    }
}

fn gate_handles(api: &ApiClient, session: Option<&SessionId>) -> anyhow::Result<Vec<String>> {
    let mut gates = api.list_gates(None, Duration::ZERO)?.gates;
    gates.retain(|gate| session.is_none_or(|session| *session == gate.session));
    Ok(gates.iter().map(|gate| gate.open.handle()).collect())
}

fn session_ids(api: &ApiClient) -> anyhow::Result<Vec<String>> {
    let query = [("limit", Some(MAX_CANDIDATES.to_string()))];
    let sessions = api.list_sessions(&query)?.sessions.into_iter();
    Ok(sessions.map(|one| one.session.to_string()).collect())
}

fn participants(
    api: &ApiClient,
    request: &CompletionRequest,
    wanted: impl Fn(ParticipantKind) -> bool,
) -> anyhow::Result<Vec<String>> {
    let people = api.session(&session(api, request)?)?.people.into_iter();
    let wanted = people.filter(|person| wanted(person.announce.kind));
    Ok(wanted
        .map(|person| person.announce.id.to_string())
        .collect())
}

fn rule_ids(api: &ApiClient, request: &CompletionRequest) -> anyhow::Result<Vec<String>> {
    let mut rules = api.session(&session(api, request)?)?.rules;
    rules.retain(|rule| rule.expires_at > now());
    Ok(rules.iter().map(|rule| rule.rule.to_string()).collect())
}

/// The session that the line is about.
fn session(api: &ApiClient, request: &CompletionRequest) -> anyhow::Result<SessionId> {
    match &request.session {
        Some(session) => Ok(session.clone()),
        None => LinkArguments::default().resolve_session(api),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_every_shell_takes_literally_are_offered() {
        for word in ["a1b2c3@d4e5f6", "blue-owl", "dee-0f", "x", "9.a:b"] {
            assert!(is_harmless(word), "{word}");
        }
        let long = "a".repeat(MAX_LENGTH + 1);
        for word in [
            "",
            "-rf",
            "--comment",
            ".hidden",
            "@a",
            "a b",
            "a;b",
            "$(id)",
            "`id`",
            "a|b",
            "a&b",
            "a>b",
            "a*",
            "a?",
            "[a]",
            "{a,b}",
            "a'b",
            "a\"b",
            "a\\b",
            "~a",
            "a!b",
            "#a",
            "a\nb",
            "a\u{1b}[2J",
            "a\u{202e}b",
            "é",
            "a/b",
            "a=b",
            &long,
        ] {
            assert!(!is_harmless(word), "{word:?}");
        }
    }
}
