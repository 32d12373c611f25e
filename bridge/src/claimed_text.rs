//! What a client says of itself, in the form in which it is recorded and shown to people.

use pvp_protocol::escape_invisible;

/// Characters that are kept. In UTF-8 they are fewer bytes than a server takes in an `origin`.
const MAX_CHARS: usize = 60;

/// The beginning of a text in visible characters on one line; `None` if nothing of it is left.
/// Nothing that a client calls itself makes a server refuse its calls.
pub(crate) fn claimed_text(text: &str) -> Option<String> {
    let kept: String = text.trim_start().chars().take(MAX_CHARS).collect();
    let line = kept.trim_end().replace(['\n', '\t'], " ");
    let shown: String = escape_invisible(&line).chars().take(MAX_CHARS).collect();
    (!shown.is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_visible_line_of_bounded_length() {
        for (said, kept) in [
            ("cursor-vscode", Some("cursor-vscode")),
            (" Claude\tDesktop\n", Some("Claude Desktop")),
            ("a\u{202e}b\u{1b}[2K", Some(r"a\u{202e}b\u{1b}[2K")),
            ("", None),
            (" \n", None),
        ] {
            assert_eq!(claimed_text(said).as_deref(), kept, "{said:?}");
        }
        for long in ["x", "é", "🦉", "\u{202e}", "\u{e0041}"] {
            let kept = claimed_text(&long.repeat(100_000)).unwrap();
            assert!(kept.len() <= 256, "{} bytes", kept.len());
        }
    }
}
