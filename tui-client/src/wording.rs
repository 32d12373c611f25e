//! What happened, in words: one line each, the same on the screen and in plain mode.

use pvp_client::view::{
    GateCard, ParticipantView, ProposalState, ProposalView, ResolutionView, RunResultView,
    TimelineEvent, TimelineItem, View,
};
use pvp_protocol::payload::{
    Approval, ClearedBy, GateOutcome, PresenceStatus, ResolutionCause, TimeoutResolution,
};
use pvp_protocol::{ParticipantId, ParticipantKind, Role, Timestamp};
use serde::Serialize;

use crate::text::one_line;

/// A word of the protocol, as it is written there.
pub(crate) fn enum_label(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).unwrap_or_default();
    json.as_str().unwrap_or_default().replace('_', " ")
}

/// How long, as short as it is clear.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..=9 => format!("{}.{} s", seconds, ms % 1000 / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Minutes and seconds that are left.
pub(crate) fn countdown(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

pub(crate) fn byte_size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} KB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

pub(crate) fn pluralize(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

pub(crate) fn role_list(roles: &[Role]) -> String {
    let words: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
    words.join("+")
}

pub(crate) fn name_list<'a>(view: &View, ids: impl Iterator<Item = &'a ParticipantId>) -> String {
    let names: Vec<_> = ids.map(|id| one_line(view.display_name(id))).collect();
    names.join(", ")
}

/// The mark of how present someone is.
pub(crate) fn presence_mark(person: &ParticipantView) -> &'static str {
    match (person.left, person.presence) {
        (true, _) => "✗",
        (false, PresenceStatus::Active) => "●",
        (false, PresenceStatus::Idle) => "○",
        (false, PresenceStatus::Away) => "◌",
        (false, PresenceStatus::Disconnected) => "✗",
    }
}

/// How the vote on a card stands.
pub(crate) fn vote_tally(card: &GateCard, view: &View) -> String {
    let mut text = format!("{} of {}", card.received, card.required);
    if !card.votes.is_empty() {
        text += &format!(" (✓ {})", name_list(view, card.votes.keys()));
    }
    text
}

/// Who decided, how and when.
pub(crate) fn resolution_text(resolution: &ResolutionView, view: &View) -> String {
    let approvers =
        |approvals: &[Approval]| name_list(view, approvals.iter().map(|a| &a.participant));
    let by = resolution
        .by
        .as_ref()
        .map(|by| one_line(view.display_name(by)));
    let by = by.unwrap_or_else(|| approvers(&resolution.approvals));
    let by = match by.as_str() {
        "" => String::new(),
        by => format!(" by {by}"),
    };
    let how = match resolution.how {
        ResolutionCause::Quorum | ResolutionCause::Rejection | ResolutionCause::Cancel => "",
        ResolutionCause::Deadline => " at the deadline",
        ResolutionCause::Clock => " by the clock",
        ResolutionCause::ProposerLeft => " because the agent left",
        ResolutionCause::SessionEnded => " because the session ended",
    };
    let outcome = outcome_text(resolution.outcome);
    let reason = resolution.reason.as_deref().map(one_line);
    let reason = reason.map(|reason| format!(": {reason}"));
    let reason = reason.unwrap_or_default();
    format!("{outcome}{by}{how}{reason}")
}

pub(crate) fn outcome_text(outcome: GateOutcome) -> &'static str {
    match outcome {
        GateOutcome::Approved => "approved",
        GateOutcome::Rejected => "rejected",
        GateOutcome::TimedOut => "timed out",
        GateOutcome::Cancelled => "cancelled",
    }
}

/// How a run ended.
pub(crate) fn finish_text(finish: &RunResultView) -> String {
    let mut text = match (finish.exit_code, &finish.signal) {
        _ if finish.outcome_unknown => "ended, nobody saw how".to_owned(),
        (Some(code), _) => format!("exit {code}"),
        (None, Some(signal)) => format!("ended by signal {}", one_line(signal)),
        (None, None) => "did not run".to_owned(),
    };
    text += &format!(" after {}", duration(finish.duration_ms));
    if let Some(error) = &finish.error {
        text += &format!(": {}", one_line(error));
    }
    if finish.truncated {
        text += " (output was cut)";
    }
    text
}

/// How far a command has come.
pub(crate) fn state_text(proposal: &ProposalView, now: Timestamp) -> String {
    match (proposal.state, &proposal.finish) {
        (_, Some(ended)) => finish_text(ended),
        (ProposalState::Judged, None) => "judged".to_owned(),
        (ProposalState::Waiting, None) => "waits for approval".to_owned(),
        (ProposalState::Approved, None) => "approved".to_owned(),
        (ProposalState::Running, None) => match proposal.elapsed_ms(now) {
            Some(ms) => format!("running for {}", duration(ms)),
            None => "running".to_owned(),
        },
        (ProposalState::Over, None) => "over".to_owned(),
        (ProposalState::Blocked, None) => "blocked".to_owned(),
        (ProposalState::Rejected, None) => "rejected".to_owned(),
        (ProposalState::TimedOut, None) => "timed out".to_owned(),
        (ProposalState::Cancelled, None) => "cancelled".to_owned(),
        (ProposalState::Finished, None) => "finished".to_owned(),
    }
}

/// Why a run was allowed.
pub(crate) fn clearance_text(proposal: &ProposalView, view: &View) -> Option<String> {
    let run = proposal.run.as_ref()?;
    let on = one_line(view.display_name(&run.executor));
    Some(match run.cleared_by? {
        ClearedBy::Read => format!("a read, run at once on {on}"),
        ClearedBy::Quorum => format!("approved, runs on {on}"),
        ClearedBy::Clock => format!("approved by the clock, runs on {on}"),
        ClearedBy::AllowRule => format!("allowed by a rule, runs on {on}"),
        ClearedBy::Direct => format!("one's own command, runs on {on}"),
    })
}

/// A command, in one line.
pub(crate) fn command_text(view: &View, id: &pvp_protocol::MessageId) -> String {
    match view.proposal(id) {
        Some(proposal) => one_line(&proposal.requested.shown),
        None => format!("command {id}"),
    }
}

/// What happened, without who and when; texts of many lines are on one.
pub(crate) fn item_text(view: &View, item: &TimelineItem) -> String {
    let name = |id: &ParticipantId| one_line(view.display_name(id));
    let because = |reason: &Option<String>| match reason.as_deref() {
        None | Some("") => String::new(),
        Some(reason) => format!(": {}", one_line(reason)),
    };
    match &item.event {
        TimelineEvent::Created { .. } => "made the session".to_owned(),
        TimelineEvent::Joined {
            participant_kind,
            roles: held,
            ..
        } => match participant_kind {
            ParticipantKind::Agent => "joined as an agent".to_owned(),
            ParticipantKind::Human => format!("joined as {}", role_list(held)),
        },
        TimelineEvent::Left { reason } => format!("left{}", because(reason)),
        TimelineEvent::RolesChanged {
            participant,
            new_roles,
            reason,
            ..
        } => {
            let roles = role_list(new_roles);
            format!("made {} {roles}{}", name(participant), because(reason))
        }
        TimelineEvent::Attendance {
            participant,
            status,
        } => {
            format!("{} is {}", name(participant), enum_label(status))
        }
        TimelineEvent::Configured { changes, reason } => {
            let changes = one_line(&changes.to_string());
            format!("changed the settings {changes}: {}", one_line(reason))
        }
        TimelineEvent::Ended { reason, .. } => format!("ended the session: {}", one_line(reason)),
        TimelineEvent::Prompt { text, to, .. } => {
            format!("asks {}: {}", name(to), one_line(&text.text))
        }
        TimelineEvent::PromptAmended { text, .. } => {
            format!("asks differently: {}", one_line(&text.text))
        }
        TimelineEvent::Thinking { text, .. } => format!("thinks: {}", one_line(&text.text)),
        TimelineEvent::Response { text, .. } => format!("says: {}", one_line(&text.text)),
        TimelineEvent::Proposed { proposal } => {
            format!("proposes: {}", command_text(view, proposal))
        }
        TimelineEvent::Executed { proposal } => format!("runs: {}", command_text(view, proposal)),
        TimelineEvent::Approved { proposal, comment } => {
            format!(
                "approves {}{}",
                command_text(view, proposal),
                because(comment)
            )
        }
        TimelineEvent::Rejected {
            proposal, reason, ..
        } => {
            format!(
                "rejects {}: {}",
                command_text(view, proposal),
                one_line(reason)
            )
        }
        TimelineEvent::Edited { shown, reason, .. } => {
            format!("edits it to {}{}", one_line(shown), because(reason))
        }
        TimelineEvent::DeadlinePassed {
            proposal,
            resolution,
            ..
        } => {
            let what = match resolution {
                TimeoutResolution::Rejected => "rejected",
                TimeoutResolution::AutoApproved => "approved by the clock",
                TimeoutResolution::Escalated => "now for the admins to decide",
            };
            format!(
                "the deadline has passed: {} is {what}",
                command_text(view, proposal)
            )
        }
        TimelineEvent::Resolved {
            proposal,
            outcome: how,
            by,
            reason,
            ..
        } => {
            let by = by.as_ref().map(|by| format!(" by {}", name(by)));
            let by = by.unwrap_or_default();
            let command = command_text(view, proposal);
            format!("{}{by}: {command}{}", outcome_text(*how), because(reason))
        }
        TimelineEvent::CancelAsked { proposal, reason } => {
            format!(
                "cancels {}{}",
                command_text(view, proposal),
                because(reason)
            )
        }
        TimelineEvent::Interrupted {
            target,
            urgency,
            message,
        } => {
            let whom = target.as_ref().map_or("every agent".to_owned(), name);
            format!(
                "interrupts {whom} ({}): {}",
                enum_label(urgency),
                one_line(message)
            )
        }
        TimelineEvent::Acknowledged {
            action_taken,
            reason,
            ..
        } => {
            format!(
                "answers the interrupt: {}{}",
                enum_label(action_taken),
                because(reason)
            )
        }
        TimelineEvent::ContextAdded { key, bytes } => {
            format!("shares {} ({})", one_line(key), byte_size(*bytes))
        }
        TimelineEvent::ContextUpdated { key, reason, .. } => {
            format!("updates {}: {}", one_line(key), one_line(reason))
        }
        TimelineEvent::ContextRemoved { key, reason } => {
            format!("removes {}: {}", one_line(key), one_line(reason))
        }
        TimelineEvent::SecretShared { key, scope } => {
            let with = name_list(view, scope.iter());
            format!("shares the secret {} with {with}", one_line(key))
        }
        TimelineEvent::SecretRevoked { key, reason } => {
            format!("revokes the secret {}: {}", one_line(key), one_line(reason))
        }
        TimelineEvent::Allowed {
            prefix,
            expires_at,
            reason,
        } => {
            let prefix = one_line(&prefix.join(" "));
            let life = duration(expires_at.millis_since(item.at));
            format!("allows `{prefix} …` for {life}{}", because(reason))
        }
        TimelineEvent::AllowRevoked { reason, .. } => {
            format!("takes a rule back{}", because(reason))
        }
        TimelineEvent::Error { code, message, .. } => {
            format!("{}: {}", enum_label(code), one_line(message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_and_clear() {
        let said: Vec<_> = [40, 1_250, 61_000, 200_000, 8_000_000].map(duration).into();
        assert_eq!(said, ["0.0 s", "1.2 s", "61 s", "3 min", "2 h"]);
        assert_eq!(
            [0, 59_001, 300_000].map(countdown),
            ["0:00", "1:00", "5:00"]
        );
    }
}
