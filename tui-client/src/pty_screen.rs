//! Emulates the terminal screens of interactive commands and draws their cells.

use std::num::NonZeroU16;

use crossterm::event::KeyCode;
use pvp_protocol::MessageId;
use pvp_protocol::payload::TerminalSize;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use crate::keys::KeyChord;
use crate::text::escape_invisible;
use crate::theme::Palette;

/// The most screens that are kept, the newest; each holds one screenful of cells.
const MAX_PTY_SCREENS: usize = 8;

/// The most rows of a screen.
const MAX_ROWS: u16 = 300;
/// The most columns of a screen.
const MAX_COLUMNS: u16 = 500;

/// The size of a screen before a resize arrives.
const DEFAULT_SIZE: TerminalSize = TerminalSize {
    columns: 80,
    rows: 24,
};

struct PtyScreen {
    proposal: MessageId,
    parser: vt100::Parser,
}

/// The screens of interactive commands.
#[derive(Default)]
pub(crate) struct PtyScreens(Vec<PtyScreen>);

fn clamped_size(size: TerminalSize) -> (NonZeroU16, NonZeroU16) {
    let rows = NonZeroU16::new(size.rows.clamp(2, MAX_ROWS));
    let columns = NonZeroU16::new(size.columns.clamp(2, MAX_COLUMNS));
    (
        rows.unwrap_or(NonZeroU16::MIN),
        columns.unwrap_or(NonZeroU16::MIN),
    )
}

impl PtyScreens {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn get_or_create(&mut self, proposal: &MessageId) -> &mut PtyScreen {
        let index = self
            .0
            .iter()
            .position(|pty_screen| pty_screen.proposal == *proposal);
        let index = index.unwrap_or_else(|| {
            if self.0.len() >= MAX_PTY_SCREENS {
                self.0.remove(0);
            }
            let (rows, columns) = clamped_size(DEFAULT_SIZE);
            self.0.push(PtyScreen {
                proposal: proposal.clone(),
                parser: vt100::Parser::new(rows, columns, 0),
            });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    pub(crate) fn feed(&mut self, proposal: &MessageId, text: &str) {
        self.get_or_create(proposal).parser.process(text.as_bytes());
    }

    pub(crate) fn resize(&mut self, proposal: &MessageId, size: TerminalSize) {
        let (rows, columns) = clamped_size(size);
        self.get_or_create(proposal).parser.set_size(rows, columns);
    }

    fn screen(&self, proposal: &MessageId) -> Option<&vt100::Screen> {
        let pty_screen = self
            .0
            .iter()
            .find(|pty_screen| pty_screen.proposal == *proposal);
        pty_screen.map(|pty_screen| pty_screen.parser.screen())
    }

    /// Whether the command has asked for bracketed paste.
    pub(crate) fn uses_bracketed_paste(&self, proposal: &MessageId) -> bool {
        self.screen(proposal)
            .is_some_and(vt100::Screen::bracketed_paste)
    }

    /// Row and column of the cursor, if the command shows one.
    pub(crate) fn cursor(&self, proposal: &MessageId) -> Option<(u16, u16)> {
        let screen = self.screen(proposal).filter(|screen| !screen.hide_cursor());
        screen.map(vt100::Screen::cursor_position)
    }

    /// Draws the cells of a screen, and nothing that could control our terminal.
    pub(crate) fn draw(
        &self,
        proposal: &MessageId,
        area: Rect,
        buffer: &mut Buffer,
        palette: Palette,
    ) {
        let Some(screen) = self.screen(proposal) else {
            return;
        };
        let area = area.intersection(buffer.area);
        for row in 0..area.height {
            let mut column = 0;
            while column < area.width {
                let Some(cell) = screen.cell(row, column) else {
                    break;
                };
                let style = cell_style(cell, palette);
                let (x, y) = (area.x + column, area.y + row);
                let contents = cell.contents();
                let escaped = escape_invisible(contents);
                let symbol = match contents {
                    "" => " ",
                    // An escaped character does not fit a cell.
                    contents if escaped != contents => "\u{fffd}",
                    contents => contents,
                };
                let room = usize::from(area.width - column);
                buffer.set_stringn(x, y, symbol, room, style);
                column += if cell.is_wide() { 2 } else { 1 };
            }
        }
    }
}

impl PartialEq for PtyScreens {
    fn eq(&self, other: &Self) -> bool {
        let ids = |pty_screens: &Self| -> Vec<MessageId> {
            pty_screens
                .0
                .iter()
                .map(|pty_screen| pty_screen.proposal.clone())
                .collect()
        };
        ids(self) == ids(other)
    }
}

fn cell_style(cell: &vt100::Cell, palette: Palette) -> Style {
    let mut style = Style::new();
    for (on, modifier) in [
        (cell.bold(), Modifier::BOLD),
        (cell.dim(), Modifier::DIM),
        (cell.italic(), Modifier::ITALIC),
        (cell.underline(), Modifier::UNDERLINED),
        (cell.inverse(), Modifier::REVERSED),
    ] {
        if on {
            style = style.add_modifier(modifier);
        }
    }
    if palette == Palette::None {
        return style;
    }
    if let Some(colour) = ratatui_colour(cell.fgcolor()) {
        style = style.fg(colour);
    }
    match ratatui_colour(cell.bgcolor()) {
        Some(colour) => style.bg(colour),
        None => style,
    }
}

fn ratatui_colour(colour: vt100::Color) -> Option<Color> {
    match colour {
        vt100::Color::Default => None,
        vt100::Color::Idx(index) => Some(Color::Indexed(index)),
        vt100::Color::Rgb(red, green, blue) => Some(Color::Rgb(red, green, blue)),
    }
}

/// The characters that a terminal sends for a key.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "no other key sends anything"
)]
pub(crate) fn encode_key(chord: KeyChord) -> Option<String> {
    let alt = if chord.has_alt() { "\u{1b}" } else { "" };
    let keys = match chord.code() {
        KeyCode::Char(c) if chord.has_ctrl() => {
            let c = c.to_ascii_uppercase();
            let code = u8::try_from(u32::from(c)).ok()?;
            let control = match code {
                b'@'..=b'_' => code - b'@',
                b' ' => 0,
                b'?' => 0x7f,
                _ => return None,
            };
            char::from(control).to_string()
        }
        KeyCode::Char(c) => c.to_string(),
        KeyCode::Enter => "\r".to_owned(),
        KeyCode::Tab if chord.has_shift() => "\u{1b}[Z".to_owned(),
        KeyCode::Tab => "\t".to_owned(),
        KeyCode::Backspace => "\u{7f}".to_owned(),
        KeyCode::Esc => "\u{1b}".to_owned(),
        KeyCode::Up => "\u{1b}[A".to_owned(),
        KeyCode::Down => "\u{1b}[B".to_owned(),
        KeyCode::Right => "\u{1b}[C".to_owned(),
        KeyCode::Left => "\u{1b}[D".to_owned(),
        KeyCode::Home => "\u{1b}[H".to_owned(),
        KeyCode::End => "\u{1b}[F".to_owned(),
        KeyCode::Delete => "\u{1b}[3~".to_owned(),
        KeyCode::PageUp => "\u{1b}[5~".to_owned(),
        KeyCode::PageDown => "\u{1b}[6~".to_owned(),
        _ => return None,
    };
    Some(format!("{alt}{keys}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(name: &str) -> MessageId {
        MessageId::parse(name).unwrap()
    }

    fn drawn_rows(pty_screens: &PtyScreens) -> Vec<String> {
        let area = Rect::new(0, 0, 20, 3);
        let mut buffer = Buffer::empty(area);
        pty_screens.draw(&id("p"), area, &mut buffer, Palette::Colour);
        let row = |y| (0..20).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..3)
            .map(row)
            .map(|row| row.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_screen_shows_what_a_terminal_would_show() {
        let mut pty_screens = PtyScreens::default();
        pty_screens.feed(
            &id("p"),
            "one\r\ntwo\u{1b}[1;1Hx\u{1b}]0;title\u{7}\u{1b}[3;3H世界",
        );
        assert_eq!(drawn_rows(&pty_screens), ["xne", "two", "  世 界"]);
        assert_eq!(pty_screens.cursor(&id("p")), Some((2, 6)));
    }

    #[test]
    fn few_screens_are_kept_and_none_is_too_large() {
        let mut pty_screens = PtyScreens::default();
        for number in 0..100 {
            let size = TerminalSize {
                columns: u16::MAX,
                rows: 0,
            };
            pty_screens.resize(&id(&format!("p{number}")), size);
        }
        assert_eq!(pty_screens.0.len(), MAX_PTY_SCREENS);
        let size = pty_screens.0[0].parser.screen().size();
        assert_eq!((size.0.get(), size.1.get()), (2, MAX_COLUMNS));
    }

    #[test]
    fn keys_are_sent_as_a_terminal_sends_them() {
        for (key, sent) in [
            ("a", "a"),
            ("ctrl+c", "\u{3}"),
            ("alt+x", "\u{1b}x"),
            ("up", "\u{1b}[A"),
            ("enter", "\r"),
            ("shift+tab", "\u{1b}[Z"),
            ("backspace", "\u{7f}"),
        ] {
            assert_eq!(
                encode_key(KeyChord::parse(key).unwrap()).as_deref(),
                Some(sent),
                "{key}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_a_command_prints_nothing_panics_and_no_control_is_drawn(
            texts in proptest::collection::vec("(\\PC|[\u{0}-\u{ff}]|\u{1b}\\[[?0-9;]{0,8}[a-zA-Z@]|\u{1b}[a-zA-Z0-9()#]|世|\u{202e}){0,60}", 0..8),
            sizes in proptest::collection::vec((0..30u16, 0..30u16), 0..8),
        ) {
            let mut pty_screens = PtyScreens::default();
            for (text, (rows, columns)) in texts.iter().zip(sizes.iter().cycle()) {
                pty_screens.feed(&id("p"), text);
                pty_screens.resize(&id("p"), TerminalSize { rows: *rows, columns: *columns });
                for row in drawn_rows(&pty_screens) {
                    prop_assert_eq!(escape_invisible(&row), row);
                }
            }
        }
    }
}
