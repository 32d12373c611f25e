//! Runs the parser with a limit on its steps rather than on time, so that every machine gives the
//! same verdict.

use std::cell::RefCell;
use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, Parser, Tree};

/// How many progress reports the parser may make before it is stopped, one about every hundred
/// steps. A line of 8 KiB takes about a hundred reports, and this many take a few milliseconds.
const MAX_PROGRESS_REPORTS: u32 = 400;

/// The longest text that is parsed; a longer one is never a read.
const MAX_SOURCE_BYTES: usize = 8 * 1024;

/// The most special characters in one text. On some errors the parser takes time that is quadratic
/// in their number between two progress reports.
const MAX_SPECIAL_CHARS: usize = 400;

thread_local! {
    // A parser carries no state from line to line: it is reset before each.
    static PARSER: RefCell<Option<Parser>> = RefCell::new(new_parser());
}

fn new_parser() -> Option<Parser> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .is_ok()
        .then_some(parser)
}

/// The syntax tree, unless the text is too long or took too many steps, and the steps it took.
pub(crate) fn parse(source: &str) -> (Option<Tree>, u32) {
    if source.len() > MAX_SOURCE_BYTES || count_special_chars(source) > MAX_SPECIAL_CHARS {
        return (None, 0);
    }
    let masked = mask_non_ascii(source);
    let mut steps = 0;
    let tree = PARSER.with_borrow_mut(|parser| {
        let parser = parser.as_mut()?;
        parser.reset();
        let mut progress = |_: &tree_sitter::ParseState| {
            steps += 1;
            if steps > MAX_PROGRESS_REPORTS {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let options = ParseOptions::new().progress_callback(&mut progress);
        let bytes = masked.as_slice();
        let mut chunk = |at: usize, _| bytes.get(at..).unwrap_or_default();
        parser.parse_with_options(&mut chunk, None, Some(options))
    });
    (tree, steps)
}

/// The same text with every byte of a non-ASCII character replaced by a letter, which is how a
/// shell treats it. The scanner of tree-sitter-bash passes whatever follows a `{` to C's `isdigit`,
/// which then reads outside its table: `ls {` and a character from the end of Unicode crashed the
/// process.
fn mask_non_ascii(source: &str) -> Vec<u8> {
    let mask = |byte: u8| if byte.is_ascii() { byte } else { b'x' };
    source.bytes().map(mask).collect()
}

fn count_special_chars(source: &str) -> usize {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b" -_./,:@%+".contains(byte);
    let ascii = source.bytes().filter(u8::is_ascii);
    ascii.filter(|byte| !plain(byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_beyond_ascii_are_kept_from_the_parser() {
        assert_eq!(mask_non_ascii("a é{\u{10ffff}1"), b"a xx{xxxx1");
        for c in ['\u{80}', 'é', '日', '\u{1f642}', '\u{10ffff}'] {
            for before in ["ls {", "ls {1", "ls {1..", "echo ${a", "cat <<", "[[ a =~ "] {
                assert!(parse(&format!("{before}{c}")).0.is_some());
            }
        }
    }

    #[test]
    fn a_plain_line_is_within_the_budget_and_an_endless_one_is_not() {
        assert!(parse("ls -la | wc -l").0.is_some());
        assert!(parse(&"a".repeat(MAX_SOURCE_BYTES + 1)).0.is_none());
        assert!(parse(&">".repeat(MAX_SPECIAL_CHARS + 1)).0.is_none());
    }
}
