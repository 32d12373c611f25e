//! The header: which session, how the connection is, what waits, who is here.

use pvp_protocol::ParticipantKind;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::row;
use crate::app::{App, Link};
use crate::text::{clip, one_line, plain, width};
use crate::words;

/// Columns that the name of the session always has.
const LEAST: usize = 6;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    row(&first(app, usize::from(area.width)), area, 0, buffer);
    row(&people(app, usize::from(area.width)), area, 1, buffer);
}

fn first(app: &App, columns: usize) -> Line<'static> {
    let theme = &app.theme;
    let session = app.view.session.as_ref().map(ToString::to_string);
    let session = session.unwrap_or_else(|| "…".to_owned());
    let name = app.view.name.as_deref().map(one_line);
    let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
    let mut spans = vec![Span::styled(" PVP ", theme.selected), Span::raw(" ")];
    let mut facts = vec![link(app, Words::All), pending(app)];
    let running = app.view.running().count();
    if running > 0 {
        facts.push(Span::styled(format!("{running} running"), theme.plain));
    }
    if let Some(paused) = &app.view.paused {
        let paused = format!("paused: waits for {}", one_line(paused));
        facts.push(Span::styled(paused, theme.warning));
    }
    if let Some(ended) = &app.view.ended {
        let ended = format!("ended: {}", one_line(&ended.reason));
        facts.push(Span::styled(ended, theme.bad));
    }
    let under_way = app.under_way();
    if under_way > 0 && app.link != Link::Up {
        facts.push(Span::styled(format!("{under_way} to send"), theme.warning));
    }
    let taken = |facts: &[Span<'_>]| -> usize {
        let facts = facts.iter().map(|fact| width(&fact.content) + 3);
        facts.sum::<usize>() + 7
    };
    if taken(&facts) + LEAST > columns {
        facts[0] = link(app, Words::Few);
    }
    let room = columns.saturating_sub(taken(&facts)).max(LEAST);
    spans.push(Span::styled(
        clip(&format!("{session}{name}"), room),
        theme.title,
    ));
    for fact in facts {
        spans.push(Span::styled(" · ", theme.quiet));
        spans.push(fact);
    }
    Line::from(spans)
}

/// How much is said.
#[derive(Clone, Copy)]
enum Words {
    All,
    Few,
}

fn link(app: &App, words: Words) -> Span<'static> {
    match (&app.link, words) {
        (Link::Up, Words::All) => Span::styled("● connected", app.theme.good),
        (Link::Up, Words::Few) => Span::styled("●", app.theme.good),
        (Link::Down { why, since }, words) => {
            let for_so_long = words::duration(app.now.millis_since(*since));
            let why = match words {
                Words::All => format!(" ({})", clip(&one_line(why), 24)),
                Words::Few => String::new(),
            };
            let words = format!("○ lost for {for_so_long}, retrying{why}");
            Span::styled(words, app.theme.bad)
        }
        (Link::Over { why }, _) => {
            Span::styled(format!("✗ over: {}", one_line(why)), app.theme.bad)
        }
    }
}

fn pending(app: &App) -> Span<'static> {
    let mine = app.view.awaiting_my_vote().count();
    match (app.view.open_gate_count(), mine) {
        (0, _) => Span::styled("nothing waits", app.theme.quiet),
        (all, 0) => Span::styled(format!("{all} waiting"), app.theme.warning),
        (all, mine) => Span::styled(format!("{all} waiting, {mine} for you"), app.theme.warning),
    }
}

/// Everyone who is here, with presence, name and roles; as many as fit.
fn people(app: &App, columns: usize) -> Line<'static> {
    let mut line = Line::from(" ");
    let mut left = 0;
    for person in app.view.present() {
        let me = if app.view.is_me(&person.id) {
            " (you)"
        } else {
            ""
        };
        let (style, roles) = match person.kind {
            ParticipantKind::Agent => (app.theme.agent, "agent".to_owned()),
            ParticipantKind::Human => (app.theme.person, words::roles(&person.roles)),
        };
        let name = format!("{}{me}", one_line(&person.name));
        let spans = [
            Span::styled(format!("{} ", words::presence(person)), app.theme.plain),
            Span::styled(clip(&name, 24), style),
            Span::styled(format!(" {roles}  "), app.theme.quiet),
        ];
        let wide: usize = spans.iter().map(|span| width(&span.content)).sum();
        if left == 0 && width(&plain(&line)) + wide + 8 <= columns {
            line.spans.extend(spans);
        } else {
            left += 1;
        }
    }
    if left > 0 {
        line.spans
            .push(Span::styled(format!("+{left} more"), app.theme.quiet));
    }
    line
}
