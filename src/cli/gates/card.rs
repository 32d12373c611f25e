//! Formats a gate for the terminal, as one line or as the whole card.

use std::fmt::Write as _;
use std::io::IsTerminal;

use pvp_client::narrate;
use pvp_client::view::{CallLineKind, ToolCallView, command_headline, escape_invisible};
use pvp_protocol::api::{CommandRecord, GateDetails, GateListItem, GateStatus};
use pvp_protocol::payload::{ClientOrigin, GateResolve};
use pvp_protocol::{Command, GateTimeoutAction, ParticipantId, Timestamp};

use crate::cli::{history, one_line, print_bytes};

/// Characters of a command that a summary line shows.
const MAX_COMMAND_CHARS: usize = 100;

/// The command as it would run, or the headline of a tool call, on one line, with invisible
/// characters escaped.
pub(super) fn command_line(gate: &GateListItem) -> String {
    one_line(&command_headline(&gate.open.action.command))
}

/// The tool call that waits or waited at a gate; `None` if it is a command.
pub(super) fn gate_call(state: &GateDetails) -> Option<ToolCallView> {
    match (&state.open, &state.command) {
        (Some(gate), _) => ToolCallView::of_action(&gate.open.action, &state.file_contents, None),
        (None, Some(record)) => record_call(record),
        (None, None) => None,
    }
}

/// The tool call of a record; `None` if it is a command. What it was compared with is not recorded.
pub(super) fn record_call(record: &CommandRecord) -> Option<ToolCallView> {
    let action = history::tool_action(record, &record.command)?;
    ToolCallView::of_action(&action, &[], None)
}

/// One line for each gate, in columns.
pub(super) fn summary_lines(gates: &[GateListItem], now: Timestamp) -> Vec<String> {
    let longest = |column: fn(&GateListItem) -> usize| gates.iter().map(column).max().unwrap_or(0);
    let handles = longest(|gate| gate.open.handle().len());
    let sessions = longest(|gate| gate.session.as_str().len());
    let categories = longest(|gate| gate.open.assessment.category_label().len()).max(11);
    let line = |gate: &GateListItem| {
        format!(
            "{:<handles$}  {:<sessions$}  {:<categories$}  {}/{}  {:>7}  {}{}{}",
            gate.open.handle(),
            gate.session.as_str(),
            gate.open.assessment.category_label(),
            gate.received,
            gate.required,
            time_left(gate, now).unwrap_or_else(|| "-".to_owned()),
            narrate::shorten(&command_line(gate), MAX_COMMAND_CHARS),
            added_variables(gate),
            cut_text(gate)
        )
    };
    gates.iter().map(line).collect()
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

/// That the list does not have all of the command; empty if it has.
fn cut_text(gate: &GateListItem) -> String {
    gate.cut_bytes.map_or_else(String::new, |bytes| {
        let short = gate.open.request.action_ref.short();
        format!("  [{bytes} bytes cut; see `pvp show {short}`]")
    })
}

/// The contents of the files that the command binds, for `pvp show --files`.
pub(super) fn file_contents(state: &GateDetails) -> String {
    let Some(gate) = &state.open else {
        return "the gate is closed; see `pvp audit show` for the files".to_owned();
    };
    if gate.open.action.files.is_empty() {
        return "the command runs no files".to_owned();
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
            None if file.sha256.is_none() => {
                text += "  the command does not start if this file exists by then\n";
            }
            None => text += "  the proposal does not include the content of this file\n",
        }
    }
    text.trim_end().to_owned()
}

/// The time until the deadline, in minutes and seconds; `None` if there is no deadline.
fn time_left(gate: &GateListItem, now: Timestamp) -> Option<String> {
    let deadline = gate.open.request.deadline?;
    Some(narrate::countdown(deadline.millis_since(now)))
}

/// The votes so far, as text.
pub(super) fn tally_text(gate: &GateListItem) -> String {
    let needed = narrate::pluralize(u64::from(gate.required), "approval");
    let mut text = format!("{} of {needed}", gate.received);
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
        return "waiting".to_owned();
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
        let rule = resolve.rule.as_ref().map_or("", |_| "an allow rule of ");
        let _ = write!(text, " by {rule}{}", who.join(", "));
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

/// A row of a card: its label and its text.
type Row = (&'static str, String);

/// Everything that a voter should see, the most important first.
pub(super) fn full_card(state: &GateDetails, now: Timestamp) -> Vec<CardLine> {
    let Some(gate) = &state.open else {
        return closed_card(state);
    };
    let open = &gate.open;
    let mut rows: Vec<Row> = Vec::new();
    rows.push(("handle", open.handle()));
    add_verdict(&mut rows, gate);
    rows.push(("session", gate.session.to_string()));
    rows.push(("agent", open.proposer.to_string()));
    rows.push(("purpose", one_line(&open.description)));
    let degree = narrate::degree_text(open.degree, open.origin.as_ref());
    rows.push(("runs", one_line(&degree)));
    add_fails_open(&mut rows, open.origin.as_ref());
    add_edits(&mut rows, state.command.as_ref());
    add_execution(&mut rows, gate);
    rows.push(("needs", open.request.quorum.to_string()));
    rows.push(("votes", tally_text(gate)));
    rows.push(("deadline", deadline_text(gate, now)));
    rows.push(("you", eligibility_text(gate).to_owned()));
    rows.push(("id", open.request.action_ref.to_string()));
    rows.push(("gate", open.gate.to_string()));
    format_card(&open.action.command.summary(), gate_call(state), rows)
}

fn add_verdict(rows: &mut Vec<Row>, gate: &GateListItem) {
    let assessment = &gate.open.assessment;
    let verdict = format!(
        "{}, {} risk: {} [{}]",
        assessment.category_label(),
        assessment.risk,
        one_line(&assessment.reason),
        assessment.rule
    );
    rows.push(("verdict", verdict));
    rows.extend(assessment.notes.iter().map(|note| ("note", one_line(note))));
    rows.extend(assessment.parts.iter().map(|part| {
        let category = part.category_label();
        let text = format!("{category:<11} {}  ({})", part.text, part.reason);
        ("part", one_line(&text))
    }));
}

/// What the command was before it was edited, and the votes that the edits made void.
fn add_edits(rows: &mut Vec<Row>, record: Option<&CommandRecord>) {
    let Some(record) = record else { return };
    for earlier in &record.earlier {
        rows.push(("edited", history::edit_text(record, earlier)));
    }
}

fn add_fails_open(rows: &mut Vec<Row>, origin: Option<&ClientOrigin>) {
    if let Some(text) = narrate::fails_open_text(origin) {
        rows.push(("fails", text.to_owned()));
    }
}

fn add_execution(rows: &mut Vec<Row>, gate: &GateListItem) {
    let action = &gate.open.action;
    if let Some(cwd) = &action.cwd {
        rows.push(("cwd", one_line(cwd)));
    }
    let env = action.env.iter();
    rows.extend(env.map(|(key, value)| ("env", one_line(&format!("{key}={value}")))));
    let secrets = action.secrets.iter();
    rows.extend(secrets.map(|name| {
        let text = format!("{} (the value is not shown)", one_line(name));
        ("secret", text)
    }));
    let files = action.files.iter();
    rows.extend(files.map(|file| ("file", one_line(&narrate::bound_file(file)))));
    match &action.command {
        Command::Argv { .. } => rows.push(("form", "words, run without a shell".to_owned())),
        Command::Tool { name, .. } => rows.push(("tool", one_line(name))),
        Command::Shell { .. } | Command::LoginShell { .. } => {}
    }
}

/// A gate that is closed: the command, who decided it and how, and what it was before edits.
fn closed_card(state: &GateDetails) -> Vec<CardLine> {
    match &state.command {
        Some(record) => command_card(record),
        None => {
            let lines = [state.tool_proposal.to_string(), resolution_text(state)];
            lines.map(CardLine::plain).into()
        }
    }
}

/// A command that is not waiting, with what is known about it.
pub(super) fn command_card(record: &CommandRecord) -> Vec<CardLine> {
    let mut rows: Vec<Row> = Vec::new();
    let verdict = format!(
        "{}, {} risk [{}]",
        record.category, record.risk, record.rule
    );
    rows.push(("status", history::outcome_text(record)));
    rows.push(("verdict", verdict));
    rows.push(("agent", record.proposer.to_string()));
    rows.push(("purpose", one_line(&record.description)));
    let degree = narrate::degree_text(record.degree, record.origin.as_ref());
    rows.push(("runs", one_line(&degree)));
    add_fails_open(&mut rows, record.origin.as_ref());
    add_edits(&mut rows, Some(record));
    if let Some(decision) = history::decision_text(record) {
        rows.push(("decided", decision));
    }
    if let Some(cwd) = &record.cwd {
        rows.push(("cwd", one_line(cwd)));
    }
    if let Some(executor) = &record.executor {
        rows.push(("ran on", executor.to_string()));
    }
    if let Some(tool) = &record.tool {
        rows.push(("tool", one_line(tool)));
    }
    rows.push(("proposed", record.at.to_string()));
    rows.push(("id", record.tool_proposal.to_string()));
    format_card(&record.command, record_call(record), rows)
}

/// A line of a card, and what it is if it belongs to a tool call.
pub(super) struct CardLine {
    text: String,
    kind: Option<CallLineKind>,
}

impl CardLine {
    fn plain(text: String) -> Self {
        Self { text, kind: None }
    }
}

/// Further lines of the command are marked, so that none can pass for a row of the card.
fn format_card(command: &str, call: Option<ToolCallView>, rows: Vec<Row>) -> Vec<CardLine> {
    let mut lines = match call {
        Some(call) => call_lines(&call),
        None => {
            let text = escape_invisible(command).replace('\n', "\n> ");
            vec![CardLine::plain(text)]
        }
    };
    lines.push(CardLine::plain(String::new()));
    let rows = rows.into_iter();
    lines.extend(rows.map(|(name, value)| CardLine::plain(format!("{name:<9} {value}"))));
    lines
}

fn call_lines(call: &ToolCallView) -> Vec<CardLine> {
    let headline = CardLine::plain(one_line(&call.headline));
    let lines = call.lines().into_iter().map(|line| CardLine {
        text: format!("> {}", line.text),
        kind: Some(line.kind),
    });
    std::iter::once(headline).chain(lines).collect()
}

/// Prints a card, in colours on a terminal.
pub(super) fn print_card(lines: &[CardLine]) -> anyhow::Result<()> {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let in_colours = std::io::stdout().is_terminal() && !no_color;
    let text: String = lines
        .iter()
        .map(|line| styled_line(line, in_colours))
        .collect();
    print_bytes(text.as_bytes())
}

/// A line with its line feed. Whatever would not show in its text is escaped.
fn styled_line(line: &CardLine, in_colours: bool) -> String {
    let text = escape_invisible(&line.text);
    match line.kind.and_then(colour).filter(|_| in_colours) {
        Some(colour) => format!("\x1b[{colour}m{text}\x1b[0m\n"),
        None => format!("{text}\n"),
    }
}

/// The code of the colour that a line of a call has. Only what is computed has one.
fn colour(kind: CallLineKind) -> Option<u8> {
    match kind {
        CallLineKind::Added => Some(32),
        CallLineKind::Removed => Some(31),
        CallLineKind::Context | CallLineKind::Hunk => Some(2),
        CallLineKind::Note => Some(34),
        CallLineKind::Argument | CallLineKind::Stated => None,
    }
}

fn deadline_text(gate: &GateListItem, now: Timestamp) -> String {
    let Some(left) = time_left(gate, now) else {
        return "none".to_owned();
    };
    let request = &gate.open.request;
    let then = match request
        .on_timeout
        .for_gate(request.category, gate.open.escalated)
    {
        GateTimeoutAction::Reject => "then it is rejected",
        GateTimeoutAction::Escalate => "then the admins decide",
        GateTimeoutAction::AutoApprove => "then it is approved automatically",
    };
    format!("in {left}, {then}")
}

fn eligibility_text(gate: &GateListItem) -> &'static str {
    if gate.may_vote {
        "you may vote"
    } else {
        "you may not vote"
    }
}

#[cfg(test)]
mod tests {
    use pvp_protocol::Action;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_computed_change_is_coloured_and_no_text_brings_codes_of_its_own() {
        let arguments = json!({
            "path": "a", "old_text": "x", "new_text": "\u{1b}[31my", "diff": "+\u{1b}[32mz",
        });
        let arguments = arguments.as_object().unwrap();
        let action = Action::from_arguments("file_edit", arguments).unwrap();
        let call = ToolCallView::of_action(&action, &[], None).unwrap();
        let text = |in_colours| -> String {
            let lines = call_lines(&call);
            lines
                .iter()
                .map(|line| styled_line(line, in_colours))
                .collect()
        };
        let coloured = text(true);
        for line in [
            "\u{1b}[31m> -x\u{1b}[0m\n",
            "\u{1b}[32m> +\\u{1b}[31my\u{1b}[0m\n",
            "\n> │ +\\u{1b}[32mz\n",
        ] {
            assert!(coloured.contains(line), "{line:?} in {coloured:?}");
        }
        assert!(!text(false).contains('\u{1b}'));
    }
}
