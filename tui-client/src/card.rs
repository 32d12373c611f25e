//! A gate card as rows: the command first, then everything else that a decision needs.

use pvp_client::view::{ClosedGateCard, CommandForm, GateCard, RequestedAction, View};
use pvp_protocol::{RunMode, Timestamp};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::text::{clip, one_line, safe, wrap, wrap_all};
use crate::theme::Theme;
use crate::words::{self, word};

/// Columns of the word before each row.
const LABEL: usize = 9;

/// Parts of a command that a card tells.
const PARTS: usize = 6;

/// Columns of a part; the command above has it whole.
const PART_COLUMNS: usize = 200;

/// What stands before every row of a command.
pub(crate) const RAIL: &str = "┃ ";

/// A card as rows, of which the first so many are the command.
pub(crate) struct CardRows {
    pub(crate) rows: Vec<Line<'static>>,
    pub(crate) command: usize,
}

/// The rows of an open gate.
pub(crate) fn open(
    card: &GateCard,
    view: &View,
    now: Timestamp,
    theme: &Theme,
    columns: usize,
) -> CardRows {
    let mut rows = command(&card.requested, theme, columns);
    let command = rows.len();
    let mut page = Rows {
        rows: &mut rows,
        theme,
        columns,
    };
    page.verdict(card);
    page.surroundings(&card.requested, view);
    page.parts(&card.requested);
    page.votes(card, view, now);
    CardRows { rows, command }
}

/// The rows of a gate that is closed: who decided and how, and that its keys are dead.
pub(crate) fn closed(
    card: &ClosedGateCard,
    at: &str,
    view: &View,
    theme: &Theme,
    columns: usize,
) -> CardRows {
    let line = Line::from(Span::styled(one_line(&card.shown), theme.quiet));
    let mut rows = wrap(&line, columns, 0);
    let command = rows.len();
    let decided = format!("{at} {}", words::resolution(&card.resolution, view));
    let mut page = Rows {
        rows: &mut rows,
        theme,
        columns,
    };
    page.row("decided", &decided, theme.strong);
    CardRows { rows, command }
}

/// The command verbatim, whatever its length. Every row of it is behind a rail, so that no line of
/// a command can be taken for a line of the card.
pub(crate) fn command(
    asked: &RequestedAction,
    theme: &Theme,
    columns: usize,
) -> Vec<Line<'static>> {
    let shown = safe(&asked.shown);
    let lines = shown.split('\n');
    let lines = lines.map(|line| Line::from(Span::styled(line.to_owned(), theme.strong)));
    let columns = columns.saturating_sub(crate::text::width(RAIL)).max(1);
    let rows = wrap_all(&lines.collect::<Vec<_>>(), columns, 0);
    let railed = rows.into_iter().map(|row| {
        let rail = Span::styled(RAIL, theme.quiet);
        Line::from([vec![rail], row.spans].concat())
    });
    railed.collect()
}

struct Rows<'a> {
    rows: &'a mut Vec<Line<'static>>,
    theme: &'a Theme,
    columns: usize,
}

impl Rows<'_> {
    fn row(&mut self, label: &str, text: &str, style: Style) {
        self.spans(label, vec![Span::styled(one_line(text), style)]);
    }

    fn spans(&mut self, label: &str, spans: Vec<Span<'static>>) {
        let label = Span::styled(format!("{label:<LABEL$}"), self.theme.quiet);
        let line = Line::from([vec![label], spans].concat());
        self.rows.extend(wrap(&line, self.columns, LABEL));
    }

    fn verdict(&mut self, card: &GateCard) {
        let style = self.theme.category(card.category);
        let category = Span::styled(card.category.as_str().to_uppercase(), style);
        match &card.requested.assessment {
            Some(assessment) => {
                let risk = word(&assessment.risk);
                let reason = one_line(&assessment.reason);
                let rule = one_line(&assessment.rule);
                let rest = Span::raw(format!(", {risk} risk: {reason} [{rule}]"));
                self.spans("verdict", vec![category, rest]);
            }
            None => self.spans("verdict", vec![category]),
        }
        if card.requested.hidden > 0 {
            let hidden = words::count(card.requested.hidden as u64, "character");
            let warning = format!("{hidden} that no eye would see are written out above");
            self.row("careful", &warning, self.theme.bad);
        }
        if card.requested.cut_bytes > 0 {
            let cut = words::size(card.requested.cut_bytes);
            self.row(
                "careful",
                &format!("{cut} of it are not shown"),
                self.theme.bad,
            );
        }
        for note in card.requested.assessment.iter().flat_map(|it| &it.notes) {
            self.row("note", note, self.theme.warning);
        }
    }

    fn surroundings(&mut self, asked: &RequestedAction, view: &View) {
        let proposer = asked.proposer.as_ref();
        let agent = proposer.map_or("someone", |id| view.display_name(id));
        let place = asked.cwd.as_deref().or(view.working_directory.as_deref());
        let place = place.map(|place| format!("  in {}", one_line(place)));
        let agent = format!("{}{}", one_line(agent), place.unwrap_or_default());
        self.row("agent", &agent, self.theme.plain);
        if !asked.purpose.is_empty() {
            self.row("purpose", &asked.purpose, self.theme.plain);
        }
        if let Some(by) = &asked.edited_by {
            self.row(
                "edited",
                &format!("by {}", view.display_name(by)),
                self.theme.warning,
            );
        }
        self.row("runs", &manner(asked, view), self.theme.plain);
        for (name, value) in &asked.env {
            self.row("env", &format!("{name}={value}"), self.theme.warning);
        }
    }

    fn parts(&mut self, asked: &RequestedAction) {
        let parts = asked.assessment.iter().flat_map(|it| &it.parts);
        let parts: Vec<_> = parts.collect();
        if parts.len() < 2 {
            return;
        }
        // Who decides, and until when, is not pushed off the card by a long program: of very many
        // parts the worst are told, and `explain` tells all.
        let worst = parts.iter().map(|part| part.category).max();
        let many = parts.len() > PARTS;
        let told = parts
            .iter()
            .filter(|part| !many || Some(part.category) == worst)
            .take(PARTS);
        let mut left = parts.len();
        for part in told {
            left -= 1;
            let category = Span::styled(
                format!("{:<12}", part.category.as_str()),
                self.theme.category(part.category),
            );
            let text = Span::raw(clip(&one_line(&part.text), PART_COLUMNS));
            self.spans("part", vec![category, text]);
        }
        if left > 0 {
            let parts = words::count(left as u64, "more part");
            self.row(
                "",
                &format!("{parts}, none of them worse"),
                self.theme.quiet,
            );
        }
    }

    fn votes(&mut self, card: &GateCard, view: &View, now: Timestamp) {
        let mut votes = words::tally(card, view);
        let waits: Vec<_> = card.awaited.iter().collect();
        if !waits.is_empty() {
            votes += &format!(", awaits {}", words::names(view, waits.into_iter()));
        } else if card.received < card.required {
            let nobody = card.undecided.is_empty();
            votes += if nobody {
                ", nobody here can decide it yet"
            } else {
                ""
            };
            if !nobody {
                votes += &format!(
                    ", from any of {}",
                    words::names(view, card.undecided.iter())
                );
            }
        }
        self.row(
            "votes",
            &format!("{votes} · {}", card.quorum_words),
            self.theme.plain,
        );
        for vote in card.votes.values() {
            if let Some(comment) = &vote.comment {
                let said = format!("{}: {comment}", view.display_name(&vote.participant));
                self.row("", &said, self.theme.quiet);
            }
        }
        let left = card.remaining_ms(now).map(words::countdown);
        let left = left
            .map(|left| format!("{left} left, "))
            .unwrap_or_default();
        let style = match card.remaining_ms(now) {
            Some(ms) if ms < 60_000 => self.theme.warning,
            Some(_) | None => self.theme.plain,
        };
        self.row("until", &format!("{left}{}", card.at_deadline), style);
        let style = if card.standing.may_vote() {
            self.theme.good
        } else {
            self.theme.warning
        };
        self.row("you", card.standing.description(), style);
    }
}

/// How it would run, where that is not the usual way.
fn manner(asked: &RequestedAction, view: &View) -> String {
    let form = match asked.form {
        CommandForm::Shell => "by bash",
        CommandForm::Argv => "without a shell",
        CommandForm::LoginShell => "in a login shell, typed by a person",
        CommandForm::Tool => "as a tool",
    };
    let mode = match asked.mode {
        RunMode::Normal => "",
        RunMode::Slow => ", may take long",
        RunMode::Background => ", in the background",
        RunMode::Pty => ", interactive",
    };
    let driver = asked.driver.as_ref();
    let driver = driver.map(|id| format!(", keys from {}", one_line(view.display_name(id))));
    let timeout = asked
        .timeout_seconds
        .map(|seconds| format!(", at most {seconds} s"));
    let executor = asked.proposer.as_ref().and_then(|id| view.people.get(id));
    let runner = executor.and_then(|person| person.executor.as_ref());
    let runner = runner.filter(|ability| !ability.runner.is_empty());
    let runner =
        runner.map(|ability| format!(", behind `{}`", one_line(&ability.runner.join(" "))));
    format!(
        "{form}{mode}{}{}{}",
        driver.unwrap_or_default(),
        timeout.unwrap_or_default(),
        runner.unwrap_or_default()
    )
}
