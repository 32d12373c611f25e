//! Renders a tool call as rows: its headline, and below it what it changes and its arguments.

use pvp_client::narrate;
use pvp_client::view::{CallLine, CallLineKind, RequestedAction, ToolCallView};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::gate_card::COMMAND_GUTTER;
use crate::text::{one_line, sanitize, width, wrap};
use crate::theme::Theme;

/// Spaces before the continuation rows of a line, so that none can pass for a line of its own.
const INDENT: usize = 4;

/// How much of a call a card shows before it is folded, and the key that opens all of it.
pub(crate) struct CallFold {
    pub(crate) max_rows: usize,
    pub(crate) key: String,
}

/// The rows of a call, and how many of its lines are folded.
pub(crate) struct CallRows {
    pub(crate) rows: Vec<Line<'static>>,
    pub(crate) folded_lines: usize,
}

/// The rows of a call, each with the mark of a command before it.
pub(crate) fn call_rows(
    call: &ToolCallView,
    theme: &Theme,
    columns: usize,
    fold: Option<&CallFold>,
) -> CallRows {
    let columns = columns.saturating_sub(width(COMMAND_GUTTER)).max(1);
    let headline = Line::from(Span::styled(one_line(&call.headline), theme.strong));
    let mut rows = wrap(&headline, columns, INDENT);
    let mut lines = call.lines();
    let first_hunk = lines
        .iter()
        .position(|line| line.kind == CallLineKind::Hunk);
    if let (Some(_), Some(index)) = (fold, first_hunk) {
        // A card has little room, and its first hunk needs no title.
        lines.remove(index);
    }
    let folded_lines = add_lines(&mut rows, &lines, theme, columns, fold);
    if let (Some(fold), true) = (fold, folded_lines > 0) {
        let more = narrate::pluralize(folded_lines as u64, "more line");
        let words = format!("… {more}, {} to open", fold.key);
        rows.push(Line::from(Span::styled(words, theme.warning)));
    }
    let marked = rows.into_iter().map(|row| {
        let gutter = Span::styled(COMMAND_GUTTER, theme.muted);
        Line::from([vec![gutter], row.spans].concat())
    });
    CallRows {
        rows: marked.collect(),
        folded_lines,
    }
}

/// Adds the rows of as many lines as fit; returns how many lines are not shown completely.
fn add_lines(
    rows: &mut Vec<Line<'static>>,
    lines: &[CallLine],
    theme: &Theme,
    columns: usize,
    fold: Option<&CallFold>,
) -> usize {
    let max_rows = fold.map_or(usize::MAX, |fold| fold.max_rows.max(1));
    let numbered = lines.iter().enumerate().flat_map(|(number, line)| {
        let rows = wrap(&call_line(line, theme), columns, INDENT);
        rows.into_iter().map(move |row| (number, row))
    });
    let mut shown: Vec<_> = numbered.take(max_rows.saturating_add(1)).collect();
    // The last row then says how much is folded.
    let folded = (shown.len() > max_rows).then(|| shown.split_off(max_rows - 1));
    let first_folded = folded.and_then(|rows| rows.first().map(|(number, _)| *number));
    rows.extend(shown.into_iter().map(|(_, row)| row));
    first_folded.map_or(0, |number| lines.len() - number)
}

/// The lines of a call on a page, with all hunks and their places.
pub(crate) fn page_lines(call: &ToolCallView, theme: &Theme) -> Vec<Line<'static>> {
    let headline = Line::from(Span::styled(one_line(&call.headline), theme.strong));
    let lines = call.lines();
    let lines = lines.iter().map(|line| call_line(line, theme));
    let lines = std::iter::once(headline).chain(lines);
    lines.map(|line| marked_line(line, theme)).collect()
}

/// The call as it was sent, on a page.
pub(crate) fn sent_lines(requested: &RequestedAction, theme: &Theme) -> Vec<Line<'static>> {
    let text = sanitize(&requested.command);
    let lines = text.split('\n');
    let lines = lines.map(|line| Line::from(Span::styled(line.to_owned(), theme.plain)));
    lines.map(|line| marked_line(line, theme)).collect()
}

/// The mark is a span of its own, and rows that continue the line begin below its text.
fn marked_line(line: Line<'static>, theme: &Theme) -> Line<'static> {
    let gutter = Span::styled(COMMAND_GUTTER, theme.muted);
    Line::from([vec![gutter], line.spans].concat())
}

fn call_line(line: &CallLine, theme: &Theme) -> Line<'static> {
    Line::from(Span::styled(
        sanitize(&line.text),
        line_style(line.kind, theme),
    ))
}

fn line_style(kind: CallLineKind, theme: &Theme) -> Style {
    match kind {
        CallLineKind::Added => theme.success,
        CallLineKind::Removed => theme.error,
        CallLineKind::Context | CallLineKind::Hunk => theme.muted,
        CallLineKind::Note => theme.human,
        CallLineKind::Argument | CallLineKind::Stated => theme.plain,
    }
}
