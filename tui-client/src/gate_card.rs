//! Renders a gate card as rows: the command first, then everything else that a decision needs.

use crate::text::narrator;
use pvp_client::narrate;
use pvp_client::view::{
    ClosedGateCard, CommandForm, GateCard, ProposalView, RequestedAction, View,
};
use pvp_protocol::payload::Degree;
use pvp_protocol::{QuorumRule, RunMode, Timestamp};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::call_rows::{CallFold, call_rows};
use crate::text::{clip, one_line, sanitize, wrap, wrap_all};
use crate::theme::Theme;

/// Columns of the label before each row.
const LABEL_COLUMNS: usize = 9;

/// The most parts of a command that a card lists.
const MAX_PARTS: usize = 6;

/// The most columns of a part; the command above shows it completely.
const MAX_PART_COLUMNS: usize = 200;

/// The mark before every row of a command.
pub(crate) const COMMAND_GUTTER: &str = "┃ ";

/// A card as rows, of which the first `command_row_count` are the command.
pub(crate) struct CardRows {
    pub(crate) rows: Vec<Line<'static>>,
    pub(crate) command_row_count: usize,
    /// Lines of a tool call that the card leaves out.
    pub(crate) folded_lines: usize,
}

/// The rows of an open gate.
pub(crate) fn open_gate_rows(
    card: &GateCard,
    view: &View,
    now: Timestamp,
    theme: &Theme,
    columns: usize,
    fold: Option<&CallFold>,
) -> CardRows {
    let (mut rows, folded_lines) = match &card.requested.call {
        Some(call) => {
            let call = call_rows(call, theme, columns, fold);
            (call.rows, call.folded_lines)
        }
        None => (command_rows(&card.requested, theme, columns), 0),
    };
    let command = rows.len();
    let mut builder = CardRowsBuilder {
        rows: &mut rows,
        theme,
        columns,
    };
    builder.add_assessment(card);
    builder.add_execution_context(&card.requested, view.proposal(&card.proposal), view);
    builder.add_parts(&card.requested);
    builder.add_votes(card, view, now);
    CardRows {
        rows,
        command_row_count: command,
        folded_lines,
    }
}

/// The rows of a closed gate: the command, who decided it and how.
pub(crate) fn closed_gate_rows(
    card: &ClosedGateCard,
    at: &str,
    view: &View,
    theme: &Theme,
    columns: usize,
) -> CardRows {
    let line = Line::from(Span::styled(one_line(&card.shown), theme.muted));
    let mut rows = wrap(&line, columns, 0);
    let command = rows.len();
    let decision = format!("{at} {}", narrator(view).resolution_text(&card.resolution));
    let mut builder = CardRowsBuilder {
        rows: &mut rows,
        theme,
        columns,
    };
    builder.add_row("decided", &decision, theme.strong);
    CardRows {
        rows,
        command_row_count: command,
        folded_lines: 0,
    }
}

/// The command verbatim, or all of a tool call, whatever its length. Every row of it has a mark before it, so that no line
/// of a command can be mistaken for a line of the card.
pub(crate) fn command_rows(
    requested: &RequestedAction,
    theme: &Theme,
    columns: usize,
) -> Vec<Line<'static>> {
    if let Some(call) = &requested.call {
        return call_rows(call, theme, columns, None).rows;
    }
    let shown = sanitize(&requested.shown);
    let lines = shown.split('\n');
    let lines = lines.map(|line| Line::from(Span::styled(line.to_owned(), theme.strong)));
    let columns = columns
        .saturating_sub(crate::text::width(COMMAND_GUTTER))
        .max(1);
    let rows = wrap_all(&lines.collect::<Vec<_>>(), columns, 0);
    let marked = rows.into_iter().map(|row| {
        let gutter = Span::styled(COMMAND_GUTTER, theme.muted);
        Line::from([vec![gutter], row.spans].concat())
    });
    marked.collect()
}

struct CardRowsBuilder<'a> {
    rows: &'a mut Vec<Line<'static>>,
    theme: &'a Theme,
    columns: usize,
}

impl CardRowsBuilder<'_> {
    fn add_row(&mut self, label: &str, text: &str, style: Style) {
        self.add_spans(label, vec![Span::styled(one_line(text), style)]);
    }

    fn add_spans(&mut self, label: &str, spans: Vec<Span<'static>>) {
        let label = Span::styled(format!("{label:<LABEL_COLUMNS$}"), self.theme.muted);
        let line = Line::from([vec![label], spans].concat());
        self.rows.extend(wrap(&line, self.columns, LABEL_COLUMNS));
    }

    fn add_assessment(&mut self, card: &GateCard) {
        let style = self.theme.category(card.category);
        let category = Span::styled(card.category_label().to_uppercase(), style);
        match &card.requested.assessment {
            Some(assessment) => {
                let risk = narrate::label(assessment.risk.as_str());
                let reason = one_line(&assessment.reason);
                let rule = one_line(&assessment.rule);
                let rest = Span::raw(format!(", {risk} risk: {reason} [{rule}]"));
                self.add_spans("verdict", vec![category, rest]);
            }
            None => self.add_spans("verdict", vec![category]),
        }
        if card.requested.hidden > 0 {
            let hidden = narrate::pluralize(card.requested.hidden as u64, "character");
            let are = if card.requested.hidden == 1 {
                "is"
            } else {
                "are"
            };
            let warning = format!("{hidden} that would be invisible {are} escaped above");
            self.add_row("careful", &warning, self.theme.error);
        }
        if card.requested.cut_bytes > 0 {
            let cut = narrate::byte_size(card.requested.cut_bytes);
            self.add_row(
                "careful",
                &format!("{cut} of the command are not shown"),
                self.theme.error,
            );
        }
        for note in card.requested.assessment.iter().flat_map(|it| &it.notes) {
            self.add_row("note", note, self.theme.warning);
        }
    }

    fn add_execution_context(
        &mut self,
        requested: &RequestedAction,
        proposal: Option<&ProposalView>,
        view: &View,
    ) {
        let proposer = requested.proposer.as_ref();
        let agent = proposer.map_or("someone", |id| view.display_name(id));
        let directory = requested
            .cwd
            .as_deref()
            .or(view.working_directory.as_deref());
        let directory = directory.map(|directory| format!("  in {}", one_line(directory)));
        let agent = format!("{}{}", one_line(agent), directory.unwrap_or_default());
        self.add_row("agent", &agent, self.theme.plain);
        if !requested.purpose.is_empty() {
            self.add_row("purpose", &requested.purpose, self.theme.plain);
        }
        if let Some(by) = &requested.edited_by {
            let by = format!("by {}", view.display_name(by));
            let edits = proposal.map_or(&[][..], |proposal| &proposal.earlier);
            let edit = edits.last().map(|edit| narrator(view).replaced_text(edit));
            let edit = edit.map_or(by.clone(), |edit| format!("{by}; {edit}"));
            self.add_row("edited", &edit, self.theme.warning);
        }
        self.add_row(
            "runs",
            &execution_summary(requested, view),
            self.theme.plain,
        );
        let style = match requested.degree {
            None | Some(Degree::Executed) => self.theme.plain,
            Some(Degree::Held | Degree::Hooked) => self.theme.warning,
        };
        let degree = narrate::degree_text(requested.degree, requested.client.as_ref());
        self.add_row("degree", &degree, style);
        if let Some(text) = narrate::fails_open_text(requested.client.as_ref()) {
            self.add_row("fails", text, self.theme.warning);
        }
        for (name, value) in &requested.env {
            self.add_row("env", &format!("{name}={value}"), self.theme.warning);
        }
        if !requested.secrets.is_empty() {
            let names = requested.secrets.join(", ");
            let text = format!("{names} (shared; the values are not shown)");
            self.add_row("secrets", &text, self.theme.warning);
        }
        for file in &requested.files {
            let text = narrate::bound_file(file);
            self.add_row("file", &text, self.theme.plain);
        }
    }

    fn add_parts(&mut self, requested: &RequestedAction) {
        let parts = requested.assessment.iter().flat_map(|it| &it.parts);
        let parts: Vec<_> = parts.collect();
        if parts.len() < 2 {
            return;
        }
        // A long program must not push the votes and the deadline off the card: of very many parts
        // only the worst are listed, and `explain` lists all.
        let worst = parts.iter().map(|part| part.category).max();
        let many = parts.len() > MAX_PARTS;
        let shown_parts = parts
            .iter()
            .filter(|part| !many || Some(part.category) == worst)
            .take(MAX_PARTS);
        let mut hidden_count = parts.len();
        for part in shown_parts {
            hidden_count -= 1;
            let category = Span::styled(
                format!("{:<12}", part.category_label()),
                self.theme.category(part.category),
            );
            let text = Span::raw(clip(&one_line(&part.text), MAX_PART_COLUMNS));
            self.add_spans("part", vec![category, text]);
        }
        if hidden_count > 0 {
            let parts = narrate::pluralize(hidden_count as u64, "more part");
            self.add_row("", &format!("{parts}, none more severe"), self.theme.muted);
        }
    }

    fn add_votes(&mut self, card: &GateCard, view: &View, now: Timestamp) {
        let mut votes = narrator(view).vote_tally(card);
        let waits: Vec<_> = card.awaited.iter().collect();
        if !waits.is_empty() {
            votes += &format!(
                ", waiting for {}",
                narrator(view).name_list(waits.into_iter())
            );
        } else if card.received < card.required {
            votes += &match card.undecided.is_empty() {
                true => ", nobody here may approve it".to_owned(),
                false => {
                    let names = narrator(view).name_list(card.undecided.iter());
                    format!(", may approve: {names}")
                }
            };
        }
        match card.quorum {
            // The tally says it all.
            QuorumRule::Any { .. } => {}
            QuorumRule::All
            | QuorumRule::Majority
            | QuorumRule::Role { .. }
            | QuorumRule::Specific { .. } => {
                self.add_row("needs", &card.quorum_words, self.theme.plain);
            }
        }
        self.add_row("votes", &votes, self.theme.plain);
        for vote in card.votes.values() {
            if let Some(comment) = &vote.comment {
                let comment = format!("{}: {comment}", view.display_name(&vote.participant));
                self.add_row("", &comment, self.theme.muted);
            }
        }
        let time_left = card.remaining_ms(now).map(narrate::countdown);
        let time_left = time_left
            .map(|left| format!("in {left}, "))
            .unwrap_or_default();
        let style = match card.remaining_ms(now) {
            Some(ms) if ms < 60_000 => self.theme.warning,
            Some(_) | None => self.theme.plain,
        };
        self.add_row(
            "deadline",
            &format!("{time_left}{}", card.at_deadline),
            style,
        );
        let style = if card.standing.may_vote() {
            self.theme.success
        } else {
            self.theme.warning
        };
        self.add_row("you", card.standing.description(), style);
    }
}

/// How the command would run: form, mode, driver, timeout and runner.
fn execution_summary(requested: &RequestedAction, view: &View) -> String {
    let form = match requested.form {
        CommandForm::Shell if requested.degree.is_some() => {
            "with the client's own shell".to_owned()
        }
        CommandForm::Shell => "executed with bash".to_owned(),
        CommandForm::Argv => "executed without a shell".to_owned(),
        CommandForm::LoginShell => "in a login shell, typed by a person".to_owned(),
        CommandForm::Tool => {
            let tool = requested.tool.as_deref().unwrap_or_default();
            let call = requested.call.as_ref();
            let stated = call.and_then(|call| call.stated_category);
            let stated = stated.map(|it| format!(" (stated: `{}`)", it.as_str()));
            let stated = stated.unwrap_or_default();
            let how = match requested.degree {
                Some(_) => "as",
                None => "executed as",
            };
            format!("{how} the tool `{}`{stated}", one_line(tool))
        }
    };
    let mode = match requested.mode {
        RunMode::Normal => "",
        RunMode::Slow => ", long-running",
        RunMode::Background => ", in the background",
        RunMode::Pty => ", interactive",
    };
    let driver = requested.driver.as_ref();
    let driver = driver.map(|id| format!(", keys from {}", one_line(view.display_name(id))));
    let timeout = requested
        .timeout_seconds
        .map(|seconds| format!(", at most {seconds} s"));
    let executor = requested
        .proposer
        .as_ref()
        .and_then(|id| view.people.get(id));
    let runner = executor.and_then(|person| person.executor.as_ref());
    let runner = runner.filter(|ability| !ability.runner.is_empty());
    let runner =
        runner.map(|ability| format!(", wrapped by `{}`", one_line(&ability.runner.join(" "))));
    format!(
        "{form}{mode}{}{}{}",
        driver.unwrap_or_default(),
        timeout.unwrap_or_default(),
        runner.unwrap_or_default()
    )
}
