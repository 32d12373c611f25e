//! The stream: each thing that happened as rows of the screen.

use std::collections::BTreeSet;

use pvp_client::view::{
    ProposalState, ProposalView, TimelineEvent, TimelineItem, TruncatedText, View,
};
use pvp_protocol::payload::GateOutcome;
use pvp_protocol::{MessageId, ParticipantKind, Sender, Timestamp};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::card::RAIL;
use crate::clock::Clock;
use crate::text::{one_line, safe, wrap, wrap_all};
use crate::theme::Theme;
use crate::words;
use crate::{markdown, printed};

/// Columns that everything below a first row is set in by.
const INDENT: usize = 2;

/// Rows of one prompt, thought or response that are shown; a screen scrolls through them.
const TEXT_ROWS: usize = 2000;

/// Rows of a command that the stream shows; its card shows all of it.
const COMMAND_ROWS: usize = 8;

/// What the rows are made of besides the item.
pub(crate) struct Ink<'a> {
    pub(crate) view: &'a View,
    pub(crate) theme: &'a Theme,
    pub(crate) clock: &'a Clock,
    pub(crate) now: Timestamp,
    pub(crate) columns: usize,
    /// Whether all thinking is shown.
    pub(crate) thinking: bool,
    /// Thoughts that were opened one by one, or closed again.
    pub(crate) toggled: &'a BTreeSet<MessageId>,
}

impl Ink<'_> {
    /// The rows of one item.
    pub(crate) fn rows(&self, item: &TimelineItem) -> Vec<Line<'static>> {
        let mut rows = self.first(item);
        if let Some(proposal) = output_of(self.view, item) {
            rows.extend(self.run(proposal));
        }
        rows
    }

    fn first(&self, item: &TimelineItem) -> Vec<Line<'static>> {
        match &item.event {
            TimelineEvent::Prompt { text, to, .. } => {
                let to = format!(" → {}", one_line(self.view.display_name(to)));
                self.spoken(item, &to, text, Voice::Plain)
            }
            TimelineEvent::PromptAmended { text, .. } => {
                self.spoken(item, " asks differently", text, Voice::Plain)
            }
            TimelineEvent::Response { text, open, .. } => {
                let more = if *open { " …" } else { "" };
                self.spoken(item, more, text, Voice::Markdown)
            }
            TimelineEvent::Thinking {
                text,
                open,
                summary,
                duration_ms,
                ..
            } => {
                let took = duration_ms.map(|ms| format!(" for {}", words::duration(ms)));
                let word = if *open { "is thinking" } else { "thought" };
                let title = format!(" {word}{}", took.unwrap_or_default());
                self.thought(item, &title, text, summary.as_deref())
            }
            TimelineEvent::Proposed { proposal } => self.proposed(item, "proposes", proposal),
            TimelineEvent::Executed { proposal } => self.proposed(item, "runs", proposal),
            TimelineEvent::Approved { .. } => self.line(item, "✓", self.theme.good),
            TimelineEvent::Rejected { .. } => self.line(item, "✗", self.theme.bad),
            TimelineEvent::Resolved { outcome, .. } => match outcome {
                GateOutcome::Approved => self.line(item, "▶", self.theme.good),
                GateOutcome::Rejected | GateOutcome::TimedOut | GateOutcome::Cancelled => {
                    self.line(item, "■", self.theme.bad)
                }
            },
            TimelineEvent::Error { .. }
            | TimelineEvent::Interrupted { .. }
            | TimelineEvent::DeadlinePassed { .. } => self.line(item, "!", self.theme.warning),
            TimelineEvent::Edited { .. }
            | TimelineEvent::CancelAsked { .. }
            | TimelineEvent::Allowed { .. } => self.line(item, "~", self.theme.warning),
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
            | TimelineEvent::AllowRevoked { .. } => self.line(item, "·", self.theme.quiet),
        }
    }

    fn name_style(&self, who: &Sender) -> Style {
        match who {
            Sender::System => self.theme.quiet,
            Sender::Participant(id) => {
                let person = self.view.people.get(id);
                match person.map(|person| person.kind) {
                    Some(ParticipantKind::Agent) => self.theme.agent,
                    Some(ParticipantKind::Human) | None => self.theme.person,
                }
            }
        }
    }

    fn heading(&self, item: &TimelineItem) -> Vec<Span<'static>> {
        let name = one_line(self.view.sender_name(&item.who));
        vec![
            Span::styled(format!("{} ", self.clock.time(item.at)), self.theme.quiet),
            Span::styled(name, self.name_style(&item.who)),
        ]
    }

    /// Something that one line tells.
    fn line(&self, item: &TimelineItem, mark: &'static str, style: Style) -> Vec<Line<'static>> {
        let mut spans = self.heading(item);
        spans.push(Span::styled(format!(" {mark} "), style));
        let quiet = style == self.theme.quiet;
        let words = if quiet {
            self.theme.quiet
        } else {
            self.theme.plain
        };
        spans.push(Span::styled(words::what(self.view, item), words));
        wrap(&Line::from(spans), self.columns, INDENT)
    }

    fn spoken(
        &self,
        item: &TimelineItem,
        title: &str,
        text: &TruncatedText,
        voice: Voice,
    ) -> Vec<Line<'static>> {
        let mut spans = self.heading(item);
        spans.push(Span::styled(title.to_owned(), self.theme.quiet));
        let mut rows = wrap(&Line::from(spans), self.columns, INDENT);
        rows.extend(self.body(text, voice));
        rows
    }

    fn body(&self, text: &TruncatedText, voice: Voice) -> Vec<Line<'static>> {
        let lines = match voice {
            Voice::Markdown => markdown::lines(&text.text, self.theme),
            Voice::Plain => plain_lines(&text.text, self.theme.plain),
            Voice::Quiet => plain_lines(&text.text, self.theme.quiet),
        };
        let mut rows = wrap_all(&lines, self.columns.saturating_sub(INDENT), 0);
        rows.truncate(TEXT_ROWS);
        if text.cut_bytes > 0 {
            let cut = format!("[{} more are not kept]", words::size(text.cut_bytes));
            rows.push(Line::from(Span::styled(cut, self.theme.quiet)));
        }
        rows.into_iter().map(indented).collect()
    }

    fn thought(
        &self,
        item: &TimelineItem,
        title: &str,
        text: &TruncatedText,
        summary: Option<&str>,
    ) -> Vec<Line<'static>> {
        let shown = self.thinking != self.toggled.contains(&item.id);
        let lines = text.text.lines().count() as u64;
        let size = words::count(lines, "line");
        let mark = if shown { "▾" } else { "▸" };
        let mut spans = self.heading(item);
        let title = format!("{title} {mark} {size}");
        spans.push(Span::styled(title, self.theme.quiet));
        if let (false, Some(summary)) = (shown, summary) {
            let summary = format!(": {}", one_line(summary));
            spans.push(Span::styled(summary, self.theme.quiet));
        }
        let mut rows = wrap(&Line::from(spans), self.columns, INDENT);
        if shown {
            rows.extend(self.body(text, Voice::Quiet));
        }
        rows
    }

    fn proposed(&self, item: &TimelineItem, verb: &str, id: &MessageId) -> Vec<Line<'static>> {
        let Some(proposal) = self.view.proposal(id) else {
            return self.line(item, "$", self.theme.quiet);
        };
        let asked = &proposal.requested;
        let mut spans = self.heading(item);
        spans.push(Span::styled(format!(" {verb} "), self.theme.quiet));
        if let Some(assessment) = &asked.assessment {
            let verdict = format!("[{}] ", assessment.category);
            spans.push(Span::styled(
                verdict,
                self.theme.category(assessment.category),
            ));
        }
        let mut rows = wrap(&Line::from(spans), self.columns, INDENT);
        let command: Vec<_> = plain_lines(&asked.shown, self.theme.strong);
        let columns = self.columns.saturating_sub(INDENT + 2);
        let command = wrap_all(&command, columns, 0);
        let more = command.len().saturating_sub(COMMAND_ROWS);
        for (number, row) in command.into_iter().take(COMMAND_ROWS).enumerate() {
            let prompt = if number == 0 { "$ " } else { RAIL };
            let mut spans = vec![Span::raw("  "), Span::styled(prompt, self.theme.quiet)];
            spans.extend(row.spans);
            rows.push(Line::from(spans));
        }
        if more > 0 {
            let words = format!("… {} more", words::count(more as u64, "row"));
            rows.extend(self.below(&words, self.theme.quiet));
        }
        if proposal.state == ProposalState::Blocked {
            let reason = asked.assessment.as_ref().map(|it| one_line(&it.reason));
            let words = format!("blocked: {}", reason.unwrap_or_default());
            rows.extend(self.below(&words, self.theme.bad));
        }
        rows
    }

    /// What a command printed and how it ended.
    fn run(&self, proposal: &ProposalView) -> Vec<Line<'static>> {
        let mut rows = Vec::new();
        let columns = self.columns.saturating_sub(INDENT);
        for line in printed::folded(&proposal.output, self.theme) {
            match line {
                Some(line) => rows.extend(wrap(&line, columns, 5).into_iter().map(indented)),
                None => rows.extend(self.below(&folded_away(proposal), self.theme.quiet)),
            }
        }
        let state = words::state(proposal, self.now);
        let style = match &proposal.finish {
            Some(finish) if finish.success => self.theme.good,
            Some(_) => self.theme.bad,
            None => self.theme.quiet,
        };
        let cleared = words::cleared(proposal, self.view).filter(|_| proposal.finish.is_none());
        let told = cleared.map_or(state.clone(), |cleared| format!("{state} ({cleared})"));
        rows.extend(self.below(&format!("⟶ {told}"), style));
        rows
    }

    fn below(&self, text: &str, style: Style) -> Vec<Line<'static>> {
        let line = Line::from(Span::styled(text.to_owned(), style));
        let columns = self.columns.saturating_sub(INDENT);
        wrap(&line, columns, INDENT)
            .into_iter()
            .map(indented)
            .collect()
    }
}

enum Voice {
    Plain,
    Quiet,
    Markdown,
}

fn plain_lines(text: &str, style: Style) -> Vec<Line<'static>> {
    let lines = safe(text);
    let lines = lines.lines();
    lines
        .map(|line| Line::from(Span::styled(line.to_owned(), style)))
        .collect()
}

fn indented(line: Line<'static>) -> Line<'static> {
    let mut spans = vec![Span::raw(" ".repeat(INDENT))];
    spans.extend(line.spans);
    Line::from(spans)
}

fn folded_away(proposal: &ProposalView) -> String {
    let output = &proposal.output;
    let lines = output.stdout.lines + output.stderr.lines;
    let shown = (printed::HEAD_LINES + printed::TAIL_LINES) as u64;
    let folded = words::count(lines.saturating_sub(shown), "line");
    let size = words::size(output.stdout.bytes + output.stderr.bytes);
    format!("… {folded} of {size} folded; select it and press enter to read all …")
}

/// The command whose output is shown below this item: where it was cleared to run.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only these can be where a command was cleared"
)]
pub(crate) fn output_of<'a>(view: &'a View, item: &TimelineItem) -> Option<&'a ProposalView> {
    let proposal = match &item.event {
        TimelineEvent::Proposed { proposal } | TimelineEvent::Executed { proposal } => {
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

/// The command that an item is about.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others are about no command"
)]
pub(crate) fn command_of<'a>(view: &'a View, item: &TimelineItem) -> Option<&'a ProposalView> {
    match &item.event {
        TimelineEvent::Proposed { proposal }
        | TimelineEvent::Executed { proposal }
        | TimelineEvent::Approved { proposal, .. }
        | TimelineEvent::Rejected { proposal, .. }
        | TimelineEvent::Edited { proposal, .. }
        | TimelineEvent::DeadlinePassed { proposal, .. }
        | TimelineEvent::Resolved { proposal, .. }
        | TimelineEvent::CancelAsked { proposal, .. } => view.proposal(proposal),
        _ => None,
    }
}

/// What a search looks at: the words of an item and what its command printed.
pub(crate) fn searched(view: &View, item: &TimelineItem) -> String {
    let mut text = format!(
        "{} {}",
        view.sender_name(&item.who),
        words::what(view, item)
    );
    if let Some(proposal) = output_of(view, item) {
        for piece in proposal.output.chunks() {
            text.push_str(&piece.text);
        }
    }
    text
}
