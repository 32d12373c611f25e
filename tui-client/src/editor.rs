//! A text editor for one input: a text, a cursor, and the usual moves.

use unicode_segmentation::UnicodeSegmentation;

use crate::text::width;

/// The most bytes that a text can have, so that a prompt fits in one message.
pub(crate) const MAX_TEXT_BYTES: usize = 256 * 1024;

/// A text with a cursor, which is always between two graphemes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Editor {
    text: String,
    cursor: usize,
}

impl Editor {
    /// A text with the cursor at its end.
    pub(crate) fn new(text: &str) -> Self {
        let text = text.to_owned();
        let cursor = text.len();
        Self { text, cursor }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(crate) fn cursor(&self) -> usize {
        self.cursor
    }

    pub(crate) fn before_cursor(&self) -> &str {
        &self.text[..self.cursor]
    }

    pub(crate) fn after_cursor(&self) -> &str {
        &self.text[self.cursor..]
    }

    pub(crate) fn take_text(&mut self) -> String {
        std::mem::take(self).text
    }

    pub(crate) fn insert(&mut self, text: &str) {
        let room = MAX_TEXT_BYTES.saturating_sub(self.text.len());
        let text = &text[..text.floor_char_boundary(room)];
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    /// Replaces the text between the offset `start` and the cursor.
    pub(crate) fn replace_before_cursor(&mut self, start: usize, text: &str) {
        let start = self.text.floor_char_boundary(start.min(self.cursor));
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
        self.insert(text);
    }

    pub(crate) fn backspace(&mut self) {
        let start = self.cursor - last_grapheme_len(self.before_cursor());
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    pub(crate) fn delete(&mut self) {
        let end = self.cursor + first_grapheme_len(self.after_cursor());
        self.text.replace_range(self.cursor..end, "");
    }

    pub(crate) fn move_left(&mut self) {
        self.cursor -= last_grapheme_len(self.before_cursor());
    }

    pub(crate) fn move_right(&mut self) {
        self.cursor += first_grapheme_len(self.after_cursor());
    }

    pub(crate) fn move_word_left(&mut self) {
        self.cursor = self.word_start();
    }

    pub(crate) fn move_word_right(&mut self) {
        let after = self.after_cursor();
        let word = after.trim_start_matches(is_word_separator);
        let end = word.find(is_word_separator).unwrap_or(word.len());
        self.cursor += after.len() - word.len() + end;
    }

    pub(crate) fn delete_word_left(&mut self) {
        let start = self.word_start();
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    fn word_start(&self) -> usize {
        let before = self.before_cursor().trim_end_matches(is_word_separator);
        before.rfind(is_word_separator).map_or(0, |at| {
            at + before[at..].chars().next().map_or(0, char::len_utf8)
        })
    }

    pub(crate) fn move_to_line_start(&mut self) {
        self.cursor = self.line_start();
    }

    pub(crate) fn move_to_line_end(&mut self) {
        self.cursor += self
            .after_cursor()
            .find('\n')
            .unwrap_or(self.after_cursor().len());
    }

    pub(crate) fn delete_to_line_start(&mut self) {
        let start = self.line_start();
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    pub(crate) fn delete_to_line_end(&mut self) {
        let end = self.cursor
            + self
                .after_cursor()
                .find('\n')
                .unwrap_or(self.after_cursor().len());
        self.text.replace_range(self.cursor..end, "");
    }

    fn line_start(&self) -> usize {
        self.before_cursor().rfind('\n').map_or(0, |at| at + 1)
    }

    /// Moves to the line above; false if there is none.
    pub(crate) fn move_up(&mut self) -> bool {
        let start = self.line_start();
        if start == 0 {
            return false;
        }
        let column = width(&self.text[start..self.cursor]);
        let above = self.text[..start - 1].rfind('\n').map_or(0, |at| at + 1);
        self.cursor = offset_at_column(&self.text, above, column);
        true
    }

    /// Moves to the line below; false if there is none.
    pub(crate) fn move_down(&mut self) -> bool {
        let Some(end) = self.after_cursor().find('\n') else {
            return false;
        };
        let column = width(&self.text[self.line_start()..self.cursor]);
        self.cursor = offset_at_column(&self.text, self.cursor + end + 1, column);
        true
    }
}

fn is_word_separator(c: char) -> bool {
    c.is_whitespace() || "/|&;()<>".contains(c)
}

fn last_grapheme_len(text: &str) -> usize {
    text.graphemes(true).next_back().map_or(0, str::len)
}

fn first_grapheme_len(text: &str) -> usize {
    text.graphemes(true).next().map_or(0, str::len)
}

/// The offset of a column on the line that begins at `start`, or of its end if it is shorter.
fn offset_at_column(text: &str, start: usize, column: usize) -> usize {
    let line = text[start..].split('\n').next().unwrap_or_default();
    let mut used = 0;
    let mut offset = start;
    for grapheme in line.graphemes(true) {
        used += width(grapheme);
        if used > column {
            break;
        }
        offset += grapheme.len();
    }
    offset
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text with a bar at the cursor.
    fn text_with_cursor(editor: &Editor) -> String {
        format!("{}|{}", editor.before_cursor(), editor.after_cursor())
    }

    #[test]
    fn words_lines_and_characters_can_be_deleted() {
        let mut editor = Editor::new("git commit -m 'x'");
        editor.delete_word_left();
        assert_eq!(text_with_cursor(&editor), "git commit -m |");
        editor.move_word_left();
        editor.move_word_left();
        assert_eq!(text_with_cursor(&editor), "git |commit -m ");
        editor.move_word_right();
        editor.backspace();
        assert_eq!(text_with_cursor(&editor), "git commi| -m ");
        editor.delete_to_line_end();
        editor.move_to_line_start();
        editor.delete();
        assert_eq!(text_with_cursor(&editor), "|it commi");
        editor.move_to_line_end();
        editor.delete_to_line_start();
        assert_eq!(text_with_cursor(&editor), "|");
    }

    #[test]
    fn the_cursor_moves_between_lines_until_there_is_no_other() {
        let mut editor = Editor::new("one\ntwo three\nx");
        assert!(editor.move_up());
        assert_eq!(text_with_cursor(&editor), "one\nt|wo three\nx");
        editor.move_to_line_end();
        assert!(editor.move_up());
        assert_eq!(text_with_cursor(&editor), "one|\ntwo three\nx");
        assert!(!editor.move_up());
        assert!(editor.move_down() && editor.move_down() && !editor.move_down());
    }

    #[test]
    fn a_grapheme_is_one_step() {
        let mut editor = Editor::new("e\u{301}👨\u{200d}👩");
        editor.backspace();
        assert_eq!(text_with_cursor(&editor), "e\u{301}|");
        editor.move_left();
        assert_eq!(text_with_cursor(&editor), "|e\u{301}");
    }

    #[test]
    fn text_beyond_the_limit_is_cut_off() {
        let mut editor = Editor::new("");
        editor.insert(&"é".repeat(MAX_TEXT_BYTES));
        assert_eq!(editor.text().len(), MAX_TEXT_BYTES);
    }

    proptest! {
        #[test]
        fn whatever_is_typed_the_cursor_stays_in_the_text(text in "\\PC{0,10}(\n\\PC{0,10}){0,3}", moves in proptest::collection::vec(0..13u8, 0..40)) {
            let mut editor = Editor::new(&text);
            for number in moves {
                match number {
                    0 => editor.move_left(),
                    1 => editor.move_right(),
                    2 => editor.move_word_left(),
                    3 => editor.move_word_right(),
                    4 => drop(editor.move_up()),
                    5 => drop(editor.move_down()),
                    6 => editor.backspace(),
                    7 => editor.delete(),
                    8 => editor.delete_word_left(),
                    9 => editor.move_to_line_start(),
                    10 => editor.move_to_line_end(),
                    11 => editor.delete_to_line_start(),
                    _ => editor.insert("é\n"),
                }
                prop_assert!(editor.text().is_char_boundary(editor.cursor()));
            }
        }
    }
}
