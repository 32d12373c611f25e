//! Handles the mouse, if the settings enable it: the wheel scrolls and a click moves the focus.
//!
//! The mouse never votes.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

use super::{App, Focus, MainContent};
use crate::keys::KeyAction;

/// Rows that one notch of the wheel moves.
const WHEEL_ROWS: usize = 3;

impl App {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other mouse events do nothing"
    )]
    pub(super) fn on_mouse(&mut self, event: MouseEvent) {
        let at = Position::new(event.column, event.row);
        let areas = crate::draw::areas(self);
        match event.kind {
            MouseEventKind::ScrollUp if areas.card.contains(at) => {
                self.card_state.scroll_rows =
                    self.card_state.scroll_rows.saturating_sub(WHEEL_ROWS);
            }
            MouseEventKind::ScrollDown if areas.card.contains(at) => {
                self.card_state.scroll_rows += WHEEL_ROWS
            }
            MouseEventKind::ScrollUp => self.scroll_main(KeyAction::Up, -(WHEEL_ROWS as isize)),
            MouseEventKind::ScrollDown => self.scroll_main(KeyAction::Down, WHEEL_ROWS as isize),
            MouseEventKind::Down(MouseButton::Left) if self.dialog.is_none() => {
                if areas.card.contains(at) {
                    self.focus_card();
                } else if areas.main.contains(at) {
                    self.focus = Focus::Main;
                } else if areas.input.contains(at) {
                    self.focus = Focus::Composer;
                }
            }
            _ => {}
        }
    }

    fn scroll_main(&mut self, action: KeyAction, rows: isize) {
        match self.main {
            MainContent::Stream => self.scroll_stream(rows),
            MainContent::Page(_) | MainContent::Pager(_) => {
                (0..WHEEL_ROWS).for_each(|_| self.on_page_action(action))
            }
            MainContent::Preflight(_) => self.on_preflight_action(action),
            MainContent::Terminal(_) => {}
        }
    }
}
