//! Replaces text in a file's content, if it is clear which text is meant.

use crate::workspace_files::MAX_CHANGED_BYTES;

/// A replacement in the content of one file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextEdit<'a> {
    /// The file, for messages.
    pub(crate) path: &'a str,
    pub(crate) old_text: &'a str,
    pub(crate) new_text: &'a str,
    pub(crate) replace_all: bool,
}

impl TextEdit<'_> {
    /// The content after the edit, and how often the text was replaced; or why it is not clear, as a
    /// sentence that whoever wrote the edit can act on.
    pub(crate) fn apply(&self, content: &[u8]) -> Result<(String, usize), String> {
        let Self {
            path,
            old_text,
            new_text,
            replace_all,
        } = *self;
        let Ok(content) = std::str::from_utf8(content) else {
            return Err(format!(
                "`{path}` is not UTF-8 text, so it cannot be edited"
            ));
        };
        if old_text.is_empty() {
            return Err("`old_text` is empty: give the text to replace".to_owned());
        }
        if old_text == new_text {
            return Err("`old_text` and `new_text` are the same".to_owned());
        }
        let count = content.matches(old_text).count();
        if count == 0 {
            return Err(format!(
                "`old_text` does not occur in `{path}`: read the file again, and copy the text \
                 exactly, with its blanks and line breaks"
            ));
        }
        // Occurrences may overlap, so one that is counted may still be two.
        let is_unique = content.find(old_text) == content.rfind(old_text);
        if !is_unique && !replace_all {
            let times = count.max(2);
            return Err(format!(
                "`old_text` occurs {times} times in `{path}`: add lines around it until it occurs \
                 once, or set `replace_all`"
            ));
        }
        let removed = old_text.len() as u64 * count as u64;
        let added = (new_text.len() as u64).saturating_mul(count as u64);
        if (content.len() as u64 - removed).saturating_add(added) > MAX_CHANGED_BYTES {
            return Err(format!("`{path}` would become too large"));
        }
        Ok((content.replace(old_text, new_text), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(
        content: &str,
        old_text: &str,
        new_text: &str,
        replace_all: bool,
    ) -> Result<String, String> {
        let edit = TextEdit {
            path: "a.txt",
            old_text,
            new_text,
            replace_all,
        };
        edit.apply(content.as_bytes()).map(|(text, _)| text)
    }

    #[test]
    fn text_that_occurs_once_is_replaced() {
        assert_eq!(edit("é\r\nb\n", "é\r\n", "", false), Ok("b\n".to_owned()));
        assert_eq!(edit("a a", "a", "aa", true), Ok("aa aa".to_owned()));
    }

    #[test]
    fn what_is_unclear_is_explained() {
        for (content, old, new, all, problem) in [
            ("a", "b", "c", true, "does not occur in `a.txt`"),
            ("a a", "a", "c", false, "occurs 2 times"),
            ("aaa", "aa", "c", false, "occurs 2 times"),
            ("a", "", "c", true, "`old_text` is empty"),
            ("a", "a", "a", false, "are the same"),
        ] {
            let why = edit(content, old, new, all).unwrap_err();
            assert!(why.contains(problem), "{why}");
        }
        let binary = TextEdit {
            path: "a.bin",
            old_text: "a",
            new_text: "b",
            replace_all: false,
        };
        assert!(binary.apply(b"a\xff").unwrap_err().contains("not UTF-8"));
    }

    #[test]
    fn an_edit_that_multiplies_a_file_is_refused_before_it_takes_memory() {
        let content = "a".repeat(1 << 20);
        let why = edit(&content, "a", &"b".repeat(1 << 20), true).unwrap_err();
        assert_eq!(why, "`a.txt` would become too large");
    }
}
