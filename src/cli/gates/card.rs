//! Formats a gate for the terminal, as one line or as the whole card.

use std::fmt::Write as _;

use pvp_client::narrate;
use pvp_client::view::escape_invisible;
use pvp_protocol::api::{GateDetails, GateListItem, GateStatus};
use pvp_protocol::payload::GateResolve;
use pvp_protocol::{Command, GateTimeoutAction, ParticipantId, Timestamp};

use crate::cli::one_line;

/// Characters of the id that a handle shows.
const HANDLE_ID_CHARS: usize = 6;

/// Characters of the digest that a handle shows.
const HANDLE_DIGEST_CHARS: usize = 6;

/// Characters of a command that a summary line shows.
const MAX_COMMAND_CHARS: usize = 100;

/// A short name that identifies the gate and the action shown: the end of the id, `@`, the
/// beginning of the digest.
pub(crate) fn gate_handle(gate: &GateListItem) -> String {
    let id = gate.open.gate.as_str();
    let digest = gate.open.assessment.digest.to_string();
    format!(
        "{}@{}",
        &id[id.len().saturating_sub(HANDLE_ID_CHARS)..],
        &digest[..HANDLE_DIGEST_CHARS]
    )
}

/// The command as it would run, on one line, with invisible characters escaped.
pub(super) fn command_line(gate: &GateListItem) -> String {
    one_line(&gate.open.action.command.summary())
}

pub(super) fn summary_line(gate: &GateListItem, now: Timestamp) -> String {
    let assessment = &gate.open.assessment;
    let shown = command_line(gate);
    let mut short: String = shown.chars().take(MAX_COMMAND_CHARS).collect();
    if short.len() < shown.len() {
        short.push('…');
    }
    format!(
        "{}  {}  {:<11}  {}/{}  {:>6}  {}{}",
        gate_handle(gate),
        gate.session,
        assessment.category_label(),
        gate.received,
        gate.required,
        time_left(gate, now),
        short,
        added_variables(gate)
    )
}

/// The names of the variables that the command receives; empty if there are none.
fn added_variables(gate: &GateListItem) -> String {
    let action = &gate.open.action;
    let names = action.env.keys().chain(&action.secrets);
    let names: Vec<_> = names.map(|name| one_line(name)).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!("  [with {}]", names.join(", ")),
    }
}

/// The contents of the files that the command binds, for `pvp show --files`.
pub(super) fn file_contents(state: &GateDetails) -> String {
    let Some(gate) = &state.open else {
        return "the gate is closed; `pvp audit show` has what was proposed".to_owned();
    };
    if gate.open.action.files.is_empty() {
        return "the command binds no files".to_owned();
    }
    let mut text = String::new();
    for file in &gate.open.action.files {
        let _ = writeln!(text, "{}", one_line(&narrate::bound_file(file)));
        let mut contents = state.file_contents.iter();
        // What the server sends is shown only if it is what the vote binds.
        let bound = contents
            .find(|it| it.path == file.path && gate.open.action.binds_content(&it.path, &it.text));
        match bound {
            Some(content) => {
                for line in escape_invisible(&content.text).lines() {
                    let _ = writeln!(text, "> {line}");
                }
            }
            None if file.sha256.is_none() => text += "  there must still be none at the start\n",
            None => text += "  its content did not come with the proposal\n",
        }
    }
    text.trim_end().to_owned()
}

fn time_left(gate: &GateListItem, now: Timestamp) -> String {
    match gate.open.request.deadline {
        None => "no end".to_owned(),
        Some(deadline) => {
            let seconds = deadline.millis_since(now) / 1000;
            format!("{}:{:02}", seconds / 60, seconds % 60)
        }
    }
}

/// The votes so far, as text.
pub(super) fn tally_text(gate: &GateListItem) -> String {
    let mut text = format!("{} of {}", gate.received, gate.required);
    let voted: Vec<_> = gate
        .open
        .approvals
        .iter()
        .map(|approval| approval.participant.as_str())
        .collect();
    if !voted.is_empty() {
        let _ = write!(text, " ({})", voted.join(", "));
    }
    for (approver, inviter) in &gate.invited_by {
        let _ = write!(text, ", {approver} was invited by {inviter}");
        if gate.not_counted.contains_key(approver) {
            text += " and does not count";
        }
    }
    if !gate.awaited.is_empty() {
        let awaited: Vec<_> = gate.awaited.iter().map(ParticipantId::as_str).collect();
        let _ = write!(text, ", waiting for {}", awaited.join(", "));
    }
    text
}

/// How a gate closed, as text.
pub(super) fn resolution_text(state: &GateDetails) -> String {
    let Some(resolve) = &state.resolution else {
        return "it waits".to_owned();
    };
    let status = match state.status {
        GateStatus::Open => "open",
        GateStatus::Approved => "approved",
        GateStatus::Rejected => "rejected",
        GateStatus::TimedOut => "timed out",
        GateStatus::Cancelled => "cancelled",
    };
    let mut text = status.to_owned();
    let who = deciders(resolve);
    if !who.is_empty() {
        let _ = write!(text, " by {}", who.join(", "));
    }
    if let Some(reason) = &resolve.reason {
        let _ = write!(text, ": {}", one_line(reason));
    }
    text
}

fn deciders(resolve: &GateResolve) -> Vec<&str> {
    match &resolve.by {
        Some(by) => vec![by.as_str()],
        None => resolve
            .approvals
            .iter()
            .map(|approval| approval.participant.as_str())
            .collect(),
    }
}

/// Everything that a voter should see, the most important first.
pub(super) fn full_card(state: &GateDetails, now: Timestamp) -> String {
    let Some(gate) = &state.open else {
        return format!("{}\n{}", state.tool_proposal, resolution_text(state));
    };
    let (open, assessment) = (&gate.open, &gate.open.assessment);
    let mut rows: Vec<(&str, String)> = Vec::new();
    rows.push(("gate", format!("{}  ({})", gate_handle(gate), open.gate)));
    rows.push((
        "verdict",
        format!(
            "{}, {} risk: {} [{}]",
            assessment.category_label(),
            assessment.risk,
            one_line(&assessment.reason),
            assessment.rule
        ),
    ));
    rows.extend(assessment.notes.iter().map(|note| ("note", one_line(note))));
    rows.extend(assessment.parts.iter().map(|part| {
        let category = part.category_label();
        let text = format!("{category:<11} {}  ({})", part.text, part.reason);
        ("part", one_line(&text))
    }));
    rows.push(("session", gate.session.to_string()));
    rows.push(("agent", open.proposer.to_string()));
    rows.push(("purpose", one_line(&open.description)));
    if let Some(cwd) = &open.action.cwd {
        rows.push(("cwd", one_line(cwd)));
    }
    rows.extend(
        open.action
            .env
            .iter()
            .map(|(key, value)| ("env", one_line(&format!("{key}={value}")))),
    );
    rows.extend(open.action.secrets.iter().map(|name| {
        (
            "secret",
            format!("{} (the value is not shown)", one_line(name)),
        )
    }));
    rows.extend(
        open.action
            .files
            .iter()
            .map(|file| ("file", one_line(&narrate::bound_file(file)))),
    );
    if let Command::Argv { .. } = open.action.command {
        rows.push(("form", "words, without a shell".to_owned()));
    }
    rows.push(("needs", open.request.quorum.to_string()));
    rows.push(("votes", tally_text(gate)));
    rows.push(("deadline", deadline_text(gate, now)));
    rows.push(("you", eligibility_text(gate).to_owned()));
    // Further lines of the command are marked, so that none can pass for a row of the card.
    let summary = escape_invisible(&open.action.command.summary());
    let mut text = format!("{}\n", summary.replace('\n', "\n> "));
    for (name, value) in rows {
        let _ = write!(text, "\n{name:<9} {value}");
    }
    text
}

fn deadline_text(gate: &GateListItem, now: Timestamp) -> String {
    if gate.open.request.deadline.is_none() {
        return "none: it waits for ever".to_owned();
    }
    let request = &gate.open.request;
    let then = match request
        .on_timeout
        .for_gate(request.category, gate.open.escalated)
    {
        GateTimeoutAction::Reject => "then it is rejected",
        GateTimeoutAction::Escalate => "then the admins decide",
        GateTimeoutAction::AutoApprove => "then the clock approves it",
    };
    format!("{} left, {then}", time_left(gate, now))
}

fn eligibility_text(gate: &GateListItem) -> &'static str {
    if gate.may_vote {
        "may vote on it"
    } else {
        "may not vote on it"
    }
}
