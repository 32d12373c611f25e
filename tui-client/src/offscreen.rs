//! Runs the app without a terminal and draws into memory, for benchmarks and tests.

use crossterm::event::KeyEvent;
use pvp_protocol::{Envelope, Timestamp};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Size;

use crate::app::{App, AppInput};
use crate::config::TuiConfig;
use crate::{draw, text};

/// An app that is drawn into memory. Its effects are discarded.
pub struct OffscreenApp {
    app: App,
    terminal: Terminal<TestBackend>,
}

impl OffscreenApp {
    pub fn new(config: TuiConfig, columns: u16, rows: u16, now: Timestamp) -> Self {
        let size = Size {
            width: columns,
            height: rows,
        };
        let Ok(terminal) = Terminal::new(TestBackend::new(columns, rows));
        Self {
            app: App::new(config, size, now),
            terminal,
        }
    }

    pub fn receive(&mut self, now: Timestamp, envelope: Box<Envelope>) {
        self.app.update(now, AppInput::Message(envelope));
    }

    pub fn press_key(&mut self, now: Timestamp, key: KeyEvent) {
        self.app.update(now, AppInput::Key(key));
    }

    /// Draws a frame.
    pub fn draw(&mut self) {
        let mut drawn = Default::default();
        let app = &self.app;
        let Ok(_) = self.terminal.draw(|frame| drawn = draw::draw(app, frame));
        self.app.record_drawn(drawn);
    }

    /// The last frame as text, one line per row.
    pub fn screen_text(&self) -> String {
        buffer_text(self.terminal.backend().buffer())
    }
}

/// The content of a screen as text, one line per row.
pub(crate) fn buffer_text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content.chunks(width).map(|cells| {
        let mut row = String::new();
        let mut covered = 0;
        for cell in cells {
            if covered == 0 {
                row.push_str(cell.symbol());
                covered = text::width(cell.symbol()).max(1);
            }
            covered -= 1;
        }
        row.trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n")
}
