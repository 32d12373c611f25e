//! Converts a command's output to styled lines: keeps colours and drops all other escape sequences.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use vte::{Params, Parser, Perform};

use crate::text::TAB_COLUMNS;
use crate::text::escape_invisible;
use crate::theme::Palette;

/// The most characters of one line that are shown; the rest is cut off.
pub(crate) const MAX_LINE_CHARS: usize = 4096;

/// The lines that a terminal would show, without anything that could control ours.
pub(crate) fn styled_lines(text: &str, base: Style, palette: Palette) -> Vec<Line<'static>> {
    let mut performer = AnsiPerformer {
        base_style: base,
        palette,
        style: base,
        row: AnsiRow::default(),
        finished_lines: Vec::new(),
    };
    Parser::new().advance(&mut performer, text.as_bytes());
    performer.finish(text.ends_with('\n'))
}

/// One line while it is written; after a carriage return it is overwritten.
#[derive(Default)]
struct AnsiRow {
    cells: Vec<(String, Style)>,
    cursor_column: usize,
    truncated: bool,
}

impl AnsiRow {
    fn write_cell(&mut self, symbol: String, style: Style) {
        if self.cursor_column >= MAX_LINE_CHARS {
            self.truncated = true;
            return;
        }
        match self.cells.get_mut(self.cursor_column) {
            Some(cell) => *cell = (symbol, style),
            None => self.cells.push((symbol, style)),
        }
        self.cursor_column += 1;
    }

    fn into_line(self) -> Line<'static> {
        let mut spans: Vec<Span<'static>> = Vec::new();
        for (symbol, style) in self.cells {
            match spans.last_mut() {
                Some(last) if last.style == style => last.content.to_mut().push_str(&symbol),
                Some(_) | None => spans.push(Span::styled(symbol, style)),
            }
        }
        if self.truncated {
            spans.push(Span::raw("…"));
        }
        Line::from(spans)
    }
}

struct AnsiPerformer {
    base_style: Style,
    palette: Palette,
    style: Style,
    row: AnsiRow,
    finished_lines: Vec<Line<'static>>,
}

impl AnsiPerformer {
    fn end_line(&mut self) {
        self.finished_lines
            .push(std::mem::take(&mut self.row).into_line());
    }

    fn finish(mut self, ended: bool) -> Vec<Line<'static>> {
        if !ended || !self.row.cells.is_empty() {
            self.end_line();
        }
        self.finished_lines
    }

    fn apply_sgr(&mut self, codes: &[u16]) {
        let mut codes = codes.iter().copied();
        while let Some(code) = codes.next() {
            match code {
                0 => self.style = self.base_style,
                1 => self.add_modifier(Modifier::BOLD),
                2 => self.add_modifier(Modifier::DIM),
                3 => self.add_modifier(Modifier::ITALIC),
                4 => self.add_modifier(Modifier::UNDERLINED),
                7 => self.add_modifier(Modifier::REVERSED),
                9 => self.add_modifier(Modifier::CROSSED_OUT),
                22 => self.remove_modifier(Modifier::BOLD | Modifier::DIM),
                23 => self.remove_modifier(Modifier::ITALIC),
                24 => self.remove_modifier(Modifier::UNDERLINED),
                27 => self.remove_modifier(Modifier::REVERSED),
                29 => self.remove_modifier(Modifier::CROSSED_OUT),
                30..=37 => self.set_foreground(indexed_colour(code - 30)),
                90..=97 => self.set_foreground(indexed_colour(code - 90 + 8)),
                38 => {
                    let colour = extended_colour(&mut codes);
                    self.set_foreground(colour);
                }
                39 => self.style.fg = self.base_style.fg,
                // Backgrounds are ignored, so that no text can hide in its own colour.
                48 => drop(extended_colour(&mut codes)),
                _ => {}
            }
        }
    }

    fn add_modifier(&mut self, modifier: Modifier) {
        self.style = self.style.add_modifier(modifier);
    }

    fn remove_modifier(&mut self, modifier: Modifier) {
        self.style = self.style.remove_modifier(modifier);
    }

    fn set_foreground(&mut self, colour: Option<Color>) {
        if self.palette != Palette::None
            && let Some(colour) = colour
        {
            self.style = self.style.fg(colour);
        }
    }
}

impl Perform for AnsiPerformer {
    fn print(&mut self, c: char) {
        let mut buffer = [0; 4];
        let symbol = escape_invisible(c.encode_utf8(&mut buffer));
        self.row.write_cell(symbol, self.style);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => self.end_line(),
            b'\r' => self.row.cursor_column = 0,
            b'\t' => {
                let spaces = TAB_COLUMNS - self.row.cursor_column % TAB_COLUMNS;
                (0..spaces).for_each(|_| self.row.write_cell(" ".to_owned(), self.style));
            }
            0x08 => self.row.cursor_column = self.row.cursor_column.saturating_sub(1),
            other => {
                let symbol = escape_invisible(&char::from(other).to_string());
                self.row.write_cell(symbol, self.style);
            }
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if action != 'm' || ignore || !intermediates.is_empty() {
            return;
        }
        let codes: Vec<u16> = params.iter().flatten().copied().collect();
        self.apply_sgr(&codes);
    }
}

fn indexed_colour(number: u16) -> Option<Color> {
    Some(match number {
        // Black would be invisible on most terminals.
        0 | 8 => Color::DarkGray,
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        7 => Color::Gray,
        9 => Color::LightRed,
        10 => Color::LightGreen,
        11 => Color::LightYellow,
        12 => Color::LightBlue,
        13 => Color::LightMagenta,
        14 => Color::LightCyan,
        15 => Color::White,
        other => Color::Indexed(u8::try_from(other).ok()?),
    })
}

/// The colour of `38;5;n` or `38;2;r;g;b`; `None` for one that is nearly black.
fn extended_colour(codes: &mut impl Iterator<Item = u16>) -> Option<Color> {
    let byte = |code: Option<u16>| code.and_then(|code| u8::try_from(code).ok());
    match codes.next()? {
        5 => indexed_colour(u16::from(byte(codes.next())?)),
        2 => {
            let (red, green, blue) = (codes.next(), codes.next(), codes.next());
            let (red, green, blue) = (byte(red)?, byte(green)?, byte(blue)?);
            let bright = red.max(green).max(blue) >= 64;
            bright.then_some(Color::Rgb(red, green, blue))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::line_text;
    use proptest::prelude::*;

    fn rendered(text: &str) -> Vec<String> {
        let lines = styled_lines(text, Style::new(), Palette::Colour);
        lines.iter().map(line_text).collect()
    }

    #[test]
    fn colours_become_styles() {
        let lines = styled_lines("a\u{1b}[1;31mb\u{1b}[0mc", Style::new(), Palette::Colour);
        let red = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let spans = vec![Span::raw("a"), Span::styled("b", red), Span::raw("c")];
        assert_eq!(lines, [Line::from(spans)]);
    }

    #[test]
    fn without_colours_only_modifiers_are_left() {
        let lines = styled_lines(
            "\u{1b}[1;31mb\u{1b}[38;5;200mc",
            Style::new(),
            Palette::None,
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        assert_eq!(lines, [Line::from(Span::styled("bc", bold))]);
    }

    #[test]
    fn every_other_escape_sequence_is_dropped() {
        for (text, shown) in [
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]52;c;ZXZpbA==\u{1b}\\b", "ab"),
            ("a\u{1b}[2J\u{1b}[Hb", "ab"),
            ("a\u{1b}Pq#0\u{1b}\\b", "ab"),
            ("a\u{1b}cb", "ab"),
            ("a\u{1b}[6nb", "ab"),
            ("a\u{1b}[?1049hb", "ab"),
            ("\u{7}a", r"\u{7}a"),
            ("a\u{202e}b", r"a\u{202e}b"),
            ("\u{9b}31mx", r"\u{9b}31mx"),
        ] {
            assert_eq!(rendered(text), [shown], "{text:?}");
        }
    }

    #[test]
    fn a_carriage_return_writes_over_the_line() {
        assert_eq!(rendered("10%\r20%\r100%\n"), ["100%"]);
        assert_eq!(rendered("a\r\nb\r\n"), ["a", "b"]);
        assert_eq!(rendered("ab\u{8}c\n\n"), ["ac", ""]);
    }

    #[test]
    fn a_very_long_line_is_cut() {
        let lines = rendered(&"x".repeat(100_000));
        assert_eq!(lines[0].chars().count(), MAX_LINE_CHARS + 1);
    }

    proptest! {
        #[test]
        fn any_output_yields_only_visible_characters(text in "(\\PC|[\u{0}-\u{ff}]|\u{1b}\\[[0-9;]{0,6}[a-zA-Z]|\u{1b}\\]|\u{202e}|\n){0,60}") {
            for line in rendered(&text) {
                prop_assert_eq!(escape_invisible(&line), line.clone());
                prop_assert!(!line.contains(['\n', '\t']));
            }
        }
    }
}
