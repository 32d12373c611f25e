//! Draws the header: the session, the connection, what waits, and the participants.

use pvp_client::narrate;
use pvp_protocol::ParticipantKind;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::draw_row;
use crate::app::{App, ConnectionState};
use crate::text::{clip, line_text, one_line, width, wrap};

/// Columns that the session's name always has.
const MIN_NAME_COLUMNS: usize = 6;

/// Rows that a warning about the log may take.
const MAX_WARNING_ROWS: u16 = 6;

/// How many rows the warning about the log takes.
pub(super) fn warning_rows(app: &App) -> u16 {
    let rows = u16::try_from(warning_lines(app, app.size.width).len()).unwrap_or(u16::MAX);
    rows.min(MAX_WARNING_ROWS).min(app.size.height / 3)
}

/// The warning that the log is not the one that was seen before.
fn warning_lines(app: &App, columns: u16) -> Vec<Line<'static>> {
    let Some(warning) = &app.record_warning else {
        return Vec::new();
    };
    let text = Line::styled(one_line(&warning.to_string()), app.theme.error);
    wrap(&text, usize::from(columns), 0)
}

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let rows = warning_rows(app).min(area.height);
    let warning = warning_lines(app, area.width);
    for (y, line) in (0..rows).zip(&warning) {
        draw_row(line, area, y, buffer);
    }
    let area = Rect {
        y: area.y + rows,
        height: area.height - rows,
        ..area
    };
    draw_row(&status_line(app, usize::from(area.width)), area, 0, buffer);
    draw_row(
        &participants_line(app, usize::from(area.width)),
        area,
        1,
        buffer,
    );
}

fn status_line(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let session = app.view.session.as_ref().map(ToString::to_string);
    let session = session.unwrap_or_else(|| "…".to_owned());
    let name = app.view.name.as_deref().map(one_line);
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    let mut spans = vec![Span::styled(" PVP ", theme.selected), Span::raw(" ")];
    let mut facts = vec![
        connection_status(app, HeaderVerbosity::Full),
        pending_status(app),
    ];
    let running = app.view.running().count();
    if running > 0 {
        facts.push(Span::styled(format!("{running} running"), theme.plain));
    }
    if let Some(paused) = &app.view.paused {
        let paused = format!("paused: waiting for {}", one_line(paused));
        facts.push(Span::styled(paused, theme.warning));
    }
    if let Some(ended) = &app.view.ended {
        let ended = format!("ended: {}", one_line(&ended.reason));
        facts.push(Span::styled(ended, theme.error));
    }
    let under_way = app.unsent_count();
    if under_way > 0 && app.connection != ConnectionState::Connected {
        facts.push(Span::styled(format!("{under_way} to send"), theme.warning));
    }
    let taken = |facts: &[Span<'_>]| -> usize {
        let facts = facts.iter().map(|fact| width(&fact.content) + 3);
        facts.sum::<usize>() + 7
    };
    if taken(&facts) + MIN_NAME_COLUMNS > columns {
        facts[0] = connection_status(app, HeaderVerbosity::Short);
    }
    let room = columns.saturating_sub(taken(&facts)).max(MIN_NAME_COLUMNS);
    spans.push(Span::styled(
        clip(&format!("{session}{name}"), room),
        theme.title,
    ));
    for fact in facts {
        spans.push(Span::styled(" · ", theme.muted));
        spans.push(fact);
    }
    Line::from(spans)
}

/// How much detail the header shows.
#[derive(Clone, Copy)]
enum HeaderVerbosity {
    Full,
    Short,
}

fn connection_status(app: &App, verbosity: HeaderVerbosity) -> Span<'static> {
    match (&app.connection, verbosity) {
        (ConnectionState::Connected, HeaderVerbosity::Full) => {
            Span::styled("● connected", app.theme.success)
        }
        (ConnectionState::Connected, HeaderVerbosity::Short) => {
            Span::styled("●", app.theme.success)
        }
        (ConnectionState::Reconnecting { reason, since }, verbosity) => {
            let outage = narrate::duration(app.now.millis_since(*since));
            let reason = match verbosity {
                HeaderVerbosity::Full => format!(" ({})", clip(&one_line(reason), 24)),
                HeaderVerbosity::Short => String::new(),
            };
            let words = format!("○ lost for {outage}, retrying{reason}");
            Span::styled(words, app.theme.error)
        }
        (ConnectionState::Closed { reason }, _) => {
            Span::styled(format!("✗ over: {}", one_line(reason)), app.theme.error)
        }
    }
}

fn pending_status(app: &App) -> Span<'static> {
    let mine = app.awaiting_my_vote().count();
    match (app.waiting_cards().count(), mine) {
        (0, _) => Span::styled("nothing waiting", app.theme.muted),
        (all, 0) => Span::styled(format!("{all} waiting"), app.theme.warning),
        (all, mine) => Span::styled(format!("{all} waiting, {mine} for you"), app.theme.warning),
    }
}

/// The participants with presence, name and roles; as many as fit.
fn participants_line(app: &App, columns: usize) -> Line<'static> {
    let mut line = Line::from(" ");
    let mut left = 0;
    for participant in app.view.present() {
        let me = if app.view.is_me(&participant.id) {
            " (you)"
        } else {
            ""
        };
        let (style, roles) = match participant.kind {
            ParticipantKind::Agent => (app.theme.agent, "agent".to_owned()),
            ParticipantKind::Human => (app.theme.human, narrate::role_list(&participant.roles)),
        };
        let name = format!("{}{me}", one_line(&participant.name));
        let spans = [
            Span::styled(
                format!("{} ", narrate::presence_mark(participant)),
                app.theme.plain,
            ),
            Span::styled(clip(&name, 24), style),
            Span::styled(format!(" {roles}  "), app.theme.muted),
        ];
        let wide: usize = spans.iter().map(|span| width(&span.content)).sum();
        if left == 0 && width(&line_text(&line)) + wide + 8 <= columns {
            line.spans.extend(spans);
        } else {
            left += 1;
        }
    }
    if left > 0 {
        line.spans
            .push(Span::styled(format!("+{left} more"), app.theme.muted));
    }
    line
}
