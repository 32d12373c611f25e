//! Renders the items of the timeline as rows of the screen.

use crate::text::narrator;
use pvp_client::narrate;
use std::collections::BTreeSet;

use pvp_client::view::{
    CommandForm, CommandVersion, ProposalState, ProposalView, TimelineEvent, TimelineItem,
    TruncatedText, View,
};
use pvp_protocol::payload::{ClearedBy, GateOutcome};
use pvp_protocol::{MessageId, ParticipantKind, Sender, Timestamp};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::gate_card::COMMAND_GUTTER;
use crate::text::{one_line, sanitize, wrap, wrap_all};
use crate::theme::Theme;
use crate::time_zone::DisplayTimeZone;
use crate::{folded_output, markdown};

/// Columns by which everything below an item's first row is indented.
const INDENT: usize = 2;

/// The most rows of one prompt, thinking or response item; the screen scrolls through them.
const MAX_TEXT_ROWS: usize = 2000;

/// The most rows of a command that the stream shows; its card shows all of it.
const MAX_COMMAND_ROWS: usize = 8;

/// Renders items; holds what the rows depend on besides the item.
pub(crate) struct StreamRenderer<'a> {
    /// The view that the items belong to.
    pub(crate) view: &'a View,
    /// The styles to render with.
    pub(crate) theme: &'a Theme,
    /// The time zone for times of day.
    pub(crate) time_zone: &'a DisplayTimeZone,
    /// The current time, for how long commands have been running.
    pub(crate) now: Timestamp,
    /// Width of the rows.
    pub(crate) columns: usize,
    /// Whether thinking is shown unfolded.
    pub(crate) show_thinking: bool,
    /// Thinking items for which the opposite of `show_thinking` holds.
    pub(crate) toggled_thinking: &'a BTreeSet<MessageId>,
}

impl StreamRenderer<'_> {
    /// The rows of one item.
    pub(crate) fn item_rows(&self, item: &TimelineItem) -> Vec<Line<'static>> {
        let mut rows = self.description_rows(item);
        if let Some(proposal) = proposal_with_output(self.view, item) {
            rows.extend(self.run_rows(proposal));
        }
        rows
    }

    fn description_rows(&self, item: &TimelineItem) -> Vec<Line<'static>> {
        match &item.event {
            TimelineEvent::Prompt { text, to, .. } => {
                let to = format!(" → {}", one_line(self.view.display_name(to)));
                self.message_rows(item, &to, text, TextFormat::Plain)
            }
            TimelineEvent::PromptAmended { text, .. } => {
                self.message_rows(item, " edits the prompt", text, TextFormat::Plain)
            }
            TimelineEvent::Response { text, open, .. } => {
                let more = if *open { " …" } else { "" };
                self.message_rows(item, more, text, TextFormat::Markdown)
            }
            TimelineEvent::Thinking {
                text,
                open,
                summary,
                duration_ms,
                ..
            } => {
                let took = duration_ms.map(|ms| format!(" for {}", narrate::duration(ms)));
                let word = if *open { "is thinking" } else { "thought" };
                let title = format!(" {word}{}", took.unwrap_or_default());
                self.thinking_rows(item, &title, text, summary.as_deref())
            }
            TimelineEvent::Proposed { proposal, command } => {
                self.proposal_rows(item, "proposes", proposal, command)
            }
            TimelineEvent::Executed { proposal, command } => {
                self.proposal_rows(item, "runs", proposal, command)
            }
            TimelineEvent::Approved { .. } => self.event_rows(item, "✓", self.theme.success),
            TimelineEvent::Rejected { .. } => self.event_rows(item, "✗", self.theme.error),
            TimelineEvent::Resolved { outcome, .. } => match outcome {
                GateOutcome::Approved => self.event_rows(item, "▶", self.theme.success),
                GateOutcome::Rejected | GateOutcome::TimedOut | GateOutcome::Cancelled => {
                    self.event_rows(item, "■", self.theme.error)
                }
            },
            TimelineEvent::Error { .. }
            | TimelineEvent::Interrupted { .. }
            | TimelineEvent::DeadlinePassed { .. } => {
                self.event_rows(item, "!", self.theme.warning)
            }
            TimelineEvent::Edited { .. }
            | TimelineEvent::TrialDiscarded { .. }
            | TimelineEvent::CancelAsked { .. }
            | TimelineEvent::Allowed { .. } => self.event_rows(item, "~", self.theme.warning),
            TimelineEvent::Created { .. }
            | TimelineEvent::Joined { .. }
            | TimelineEvent::Left { .. }
            | TimelineEvent::RolesChanged { .. }
            | TimelineEvent::Attendance { .. }
            | TimelineEvent::Configured { .. }
            | TimelineEvent::Ended { .. }
            | TimelineEvent::Acknowledged { .. }
            | TimelineEvent::ContextAdded { .. }
            | TimelineEvent::ContextUpdated { .. }
            | TimelineEvent::ContextRemoved { .. }
            | TimelineEvent::SecretShared { .. }
            | TimelineEvent::SecretRevoked { .. }
            | TimelineEvent::AllowRevoked { .. } => self.event_rows(item, "·", self.theme.muted),
        }
    }

    fn name_style(&self, who: &Sender) -> Style {
        match who {
            Sender::System => self.theme.muted,
            Sender::Participant(id) => {
                let person = self.view.people.get(id);
                match person.map(|person| person.kind) {
                    Some(ParticipantKind::Agent) => self.theme.agent,
                    Some(ParticipantKind::Human) | None => self.theme.human,
                }
            }
        }
    }

    fn heading(&self, item: &TimelineItem) -> Vec<Span<'static>> {
        let name = one_line(self.view.sender_name(&item.who));
        vec![
            Span::styled(
                format!("{} ", self.time_zone.time_of_day(item.at)),
                self.theme.muted,
            ),
            Span::styled(name, self.name_style(&item.who)),
        ]
    }

    /// The rows of an event that one line describes.
    fn event_rows(
        &self,
        item: &TimelineItem,
        mark: &'static str,
        style: Style,
    ) -> Vec<Line<'static>> {
        let mut spans = self.heading(item);
        spans.push(Span::styled(format!(" {mark} "), style));
        let is_muted = style == self.theme.muted;
        let text_style = if is_muted {
            self.theme.muted
        } else {
            self.theme.plain
        };
        spans.push(Span::styled(
            narrator(self.view).item_text(item),
            text_style,
        ));
        wrap(&Line::from(spans), self.columns, INDENT)
    }

    fn message_rows(
        &self,
        item: &TimelineItem,
        title: &str,
        text: &TruncatedText,
        format: TextFormat,
    ) -> Vec<Line<'static>> {
        let mut spans = self.heading(item);
        spans.push(Span::styled(title.to_owned(), self.theme.muted));
        let mut rows = wrap(&Line::from(spans), self.columns, INDENT);
        rows.extend(self.text_rows(text, format));
        rows
    }

    fn text_rows(&self, text: &TruncatedText, format: TextFormat) -> Vec<Line<'static>> {
        let lines = match format {
            TextFormat::Markdown => markdown::styled_lines(&text.text, self.theme),
            TextFormat::Plain => plain_lines(&text.text, self.theme.plain),
            TextFormat::Muted => plain_lines(&text.text, self.theme.muted),
        };
        let mut rows = wrap_all(&lines, self.columns.saturating_sub(INDENT), 0);
        rows.truncate(MAX_TEXT_ROWS);
        if text.cut_bytes > 0 {
            let cut = format!("[{} more not kept]", narrate::byte_size(text.cut_bytes));
            rows.push(Line::from(Span::styled(cut, self.theme.muted)));
        }
        rows.into_iter().map(indent).collect()
    }

    fn thinking_rows(
        &self,
        item: &TimelineItem,
        title: &str,
        text: &TruncatedText,
        summary: Option<&str>,
    ) -> Vec<Line<'static>> {
        let shown = self.show_thinking != self.toggled_thinking.contains(&item.id);
        let lines = text.text.lines().count() as u64;
        let size = narrate::pluralize(lines, "line");
        let mark = if shown { "▾" } else { "▸" };
        let mut spans = self.heading(item);
        let title = format!("{title} {mark} {size}");
        spans.push(Span::styled(title, self.theme.muted));
        if let (false, Some(summary)) = (shown, summary) {
            let summary = format!(": {}", one_line(summary));
            spans.push(Span::styled(summary, self.theme.muted));
        }
        let mut rows = wrap(&Line::from(spans), self.columns, INDENT);
        if shown {
            rows.extend(self.text_rows(text, TextFormat::Muted));
        }
        rows
    }

    fn proposal_rows(
        &self,
        item: &TimelineItem,
        verb: &str,
        id: &MessageId,
        version: &CommandVersion,
    ) -> Vec<Line<'static>> {
        let Some(proposal) = self.view.proposal(id) else {
            return self.event_rows(item, "$", self.theme.muted);
        };
        let requested = &proposal.requested;
        let mut spans = self.heading(item);
        let verb = format!(" {verb} {} ", id.short());
        spans.push(Span::styled(verb, self.theme.muted));
        if let Some(category) = version.category {
            let label = format!("[{}] ", category.label(version.sensitive_read));
            spans.push(Span::styled(label, self.theme.category(category)));
        }
        let mut rows = wrap(&Line::from(spans), self.columns, INDENT);
        // A version is kept only in part; what it is still, is known in full.
        let shown = match version.is_version_of(requested) {
            true => &requested.shown,
            false => &*version.shown,
        };
        let command: Vec<_> = plain_lines(shown, self.theme.strong);
        let columns = self.columns.saturating_sub(INDENT + 2);
        let command = wrap_all(&command, columns, 0);
        let more = command.len().saturating_sub(MAX_COMMAND_ROWS);
        for (number, row) in command.into_iter().take(MAX_COMMAND_ROWS).enumerate() {
            let prompt = match (number, requested.form) {
                (0, CommandForm::Tool) => "› ",
                (0, CommandForm::Shell | CommandForm::Argv | CommandForm::LoginShell) => "$ ",
                _ => COMMAND_GUTTER,
            };
            let mut spans = vec![Span::raw("  "), Span::styled(prompt, self.theme.muted)];
            spans.extend(row.spans);
            rows.push(Line::from(spans));
        }
        if more > 0 {
            let words = format!("… {} more", narrate::pluralize(more as u64, "row"));
            rows.extend(self.detail_rows(&words, self.theme.muted));
        }
        if proposal.state == ProposalState::Blocked {
            let reason = requested.assessment.as_ref().map(|it| one_line(&it.reason));
            let words = format!("blocked: {}", reason.unwrap_or_default());
            rows.extend(self.detail_rows(&words, self.theme.error));
        }
        rows
    }

    /// The rows for a command's output and how it ended.
    fn run_rows(&self, proposal: &ProposalView) -> Vec<Line<'static>> {
        let mut rows = Vec::new();
        let columns = self.columns.saturating_sub(INDENT);
        for line in folded_output::folded_lines(&proposal.output, self.theme) {
            match line {
                Some(line) => rows.extend(wrap(&line, columns, 5).into_iter().map(indent)),
                None => rows.extend(self.detail_rows(&folded_summary(proposal), self.theme.muted)),
            }
        }
        let state = narrator(self.view).state_text(proposal, self.now);
        let style = match &proposal.finish {
            Some(finish) if finish.success => self.theme.success,
            Some(_) => self.theme.error,
            None => self.theme.muted,
        };
        let run = proposal.run.as_ref();
        // Whoever reads it later must see that nobody was asked, and why.
        let by_rule = run.is_some_and(|run| run.cleared_by == Some(ClearedBy::AllowRule));
        let cleared = narrator(self.view)
            .clearance_text(proposal)
            .filter(|_| proposal.finish.is_none() || by_rule);
        let status = cleared.map_or(state.clone(), |cleared| format!("{state} ({cleared})"));
        rows.extend(self.detail_rows(&format!("⟶ {status}"), style));
        rows
    }

    fn detail_rows(&self, text: &str, style: Style) -> Vec<Line<'static>> {
        let line = Line::from(Span::styled(text.to_owned(), style));
        let columns = self.columns.saturating_sub(INDENT);
        wrap(&line, columns, INDENT)
            .into_iter()
            .map(indent)
            .collect()
    }
}

enum TextFormat {
    Plain,
    Muted,
    Markdown,
}

fn plain_lines(text: &str, style: Style) -> Vec<Line<'static>> {
    let lines = sanitize(text);
    let lines = lines.lines();
    lines
        .map(|line| Line::from(Span::styled(line.to_owned(), style)))
        .collect()
}

fn indent(line: Line<'static>) -> Line<'static> {
    let mut spans = vec![Span::raw(" ".repeat(INDENT))];
    spans.extend(line.spans);
    Line::from(spans)
}

fn folded_summary(proposal: &ProposalView) -> String {
    let output = &proposal.output;
    let lines = output.stdout.lines + output.stderr.lines;
    let shown = (folded_output::HEAD_LINES + folded_output::TAIL_LINES) as u64;
    let folded = narrate::pluralize(lines.saturating_sub(shown), "line");
    let size = narrate::byte_size(output.stdout.bytes + output.stderr.bytes);
    format!("… {folded} folded ({size} in total); select it and press enter to read all …")
}

/// The command whose output is shown below this item, which is where it was cleared to run.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only these events can clear a command"
)]
pub(crate) fn proposal_with_output<'a>(
    view: &'a View,
    item: &TimelineItem,
) -> Option<&'a ProposalView> {
    let proposal = match &item.event {
        TimelineEvent::Proposed { proposal, .. } | TimelineEvent::Executed { proposal, .. } => {
            view.proposal(proposal).filter(|it| it.gate.is_none())
        }
        TimelineEvent::Resolved {
            proposal,
            outcome: GateOutcome::Approved,
            ..
        } => view.proposal(proposal),
        _ => None,
    };
    proposal.filter(|proposal| proposal.run.is_some() || proposal.finish.is_some())
}

/// The command that an item is about, if it is about one.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other events are not about a command"
)]
pub(crate) fn proposal_of<'a>(view: &'a View, item: &TimelineItem) -> Option<&'a ProposalView> {
    match &item.event {
        TimelineEvent::Proposed { proposal, .. }
        | TimelineEvent::Executed { proposal, .. }
        | TimelineEvent::Approved { proposal, .. }
        | TimelineEvent::Rejected { proposal, .. }
        | TimelineEvent::Edited { proposal, .. }
        | TimelineEvent::DeadlinePassed { proposal, .. }
        | TimelineEvent::Resolved { proposal, .. }
        | TimelineEvent::TrialDiscarded { proposal, .. }
        | TimelineEvent::CancelAsked { proposal, .. } => view.proposal(proposal),
        _ => None,
    }
}

/// The text that a search covers: an item's text and its command's output.
pub(crate) fn searchable_text(view: &View, item: &TimelineItem) -> String {
    let mut text = format!(
        "{} {}",
        view.sender_name(&item.who),
        narrator(view).item_text(item)
    );
    if let Some(proposal) = proposal_with_output(view, item) {
        for chunk in proposal.output.chunks() {
            text.push_str(&chunk.text);
        }
    }
    text
}
