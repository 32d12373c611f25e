//! Numbers, sizes, times and names of the protocol as words.

use pvp_protocol::payload::{ClientOrigin, Degree, GateOutcome, PresenceStatus};
use pvp_protocol::{BoundFile, Role};

use crate::view::{ParticipantView, escape_invisible};

/// The beginning of a text that is longer than so many characters.
pub fn shorten(text: &str, max_chars: usize) -> String {
    let mut shown: String = text.chars().take(max_chars + 1).collect();
    if shown.chars().count() > max_chars {
        shown.pop();
        shown.push('…');
    }
    shown
}

/// A protocol name such as `timed_out` with spaces instead of underscores.
pub fn label(name: &str) -> String {
    name.replace('_', " ")
}

/// A duration in a short form, such as `1.2 s` or `3 min`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// The time left, in minutes and seconds.
pub fn countdown(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

pub fn byte_size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} KB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

pub fn pluralize(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

pub fn role_list(roles: &[Role]) -> String {
    let words: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    words.join("+")
}

/// The mark that shows a participant's presence.
pub fn presence_mark(participant: &ParticipantView) -> &'static str {
    match (participant.left, participant.presence) {
        (true, _) => "✗",
        (false, PresenceStatus::Active) => "●",
        (false, PresenceStatus::Idle) => "○",
        (false, PresenceStatus::Away) => "◌",
        (false, PresenceStatus::Disconnected) => "✗",
    }
}

pub fn outcome_text(outcome: GateOutcome) -> &'static str {
    match outcome {
        GateOutcome::Approved => "approved",
        GateOutcome::Rejected => "rejected",
        GateOutcome::TimedOut => "timed out",
        GateOutcome::Cancelled => "cancelled",
    }
}

/// Who runs a call, and how sure it is that what is approved is what runs.
pub fn degree_text(degree: Option<Degree>, client: Option<&ClientOrigin>) -> String {
    let degree = degree.unwrap_or(Degree::Executed);
    let client = client.map(|client| {
        let version = client.version.as_ref();
        let version = version
            .map(|version| format!(" {version}"))
            .unwrap_or_default();
        let subagent = client.subagent.as_ref();
        let subagent = subagent.map(|name| format!(", subagent {name}"));
        format!(
            " ({}{version}{})",
            client.client,
            subagent.unwrap_or_default()
        )
    });
    let client = client.unwrap_or_default();
    format!("{degree}{client}: {}", degree.explanation())
}

/// What to know about a client that does not wait for an answer that never comes; `None` if it does.
pub fn fails_open_text(client: Option<&ClientOrigin>) -> Option<&'static str> {
    client
        .is_some_and(|client| client.fails_open)
        .then_some("open: if what asks PVP crashes, this client runs the call unasked")
}

/// A file that a command binds, in one line.
pub fn bound_file(file: &BoundFile) -> String {
    let path = escape_invisible(&file.path);
    match file.sha256 {
        Some(digest) => format!("{path}, {}, SHA-256 {digest}", byte_size(file.bytes)),
        None => format!("{path} does not exist"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_clear() {
        let texts: Vec<_> = [40, 1_250, 61_000, 200_000, 8_000_000].map(duration).into();
        assert_eq!(texts, ["0.0 s", "1.2 s", "61 s", "3 min", "2 h"]);
        assert_eq!(
            [0, 59_001, 300_000].map(countdown),
            ["0:00", "1:00", "5:00"]
        );
    }
}
