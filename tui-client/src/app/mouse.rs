//! The mouse, where it is wanted: the wheel reads, a click moves the focus. It never decides.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::{App, Focus, Main};
use crate::keys::Act;

/// Rows that one notch of the wheel moves.
const NOTCH: usize = 3;

impl App {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a mouse may learn to do more"
    )]
    pub(super) fn mouse(&mut self, event: MouseEvent) {
        let at = Position::new(event.column, event.row);
        let areas = crate::draw::areas(self);
        match event.kind {
            MouseEventKind::ScrollUp if areas.card.contains(at) => {
                self.cards.scroll = self.cards.scroll.saturating_sub(NOTCH);
            }
            MouseEventKind::ScrollDown if areas.card.contains(at) => self.cards.scroll += NOTCH,
            MouseEventKind::ScrollUp => self.roll(Act::Up, -(NOTCH as isize)),
            MouseEventKind::ScrollDown => self.roll(Act::Down, NOTCH as isize),
            MouseEventKind::Down(MouseButton::Left) if self.dialog.is_none() => {
                if areas.card.contains(at) {
                    self.focus_card();
                } else if areas.main.contains(at) {
                    self.focus = Focus::Main;
                } else if areas.bottom.contains(at) {
                    self.focus = Focus::Composer;
                }
            }
            _ => {}
        }
    }

    fn roll(&mut self, act: Act, rows: isize) {
        match self.main {
            Main::Stream => self.scroll_stream(rows),
            Main::Page(_) | Main::Pager(_) => (0..NOTCH).for_each(|_| self.act_page(act)),
            Main::Preflight(_) => self.act_preflight(act),
            Main::Terminal(_) => {}
        }
    }
}
