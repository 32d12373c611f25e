//! Styles Markdown lightly: headings, lists, quotes and code stand out, and no text is lost.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use crate::text::sanitize;
use crate::theme::Theme;

/// The lines of a text in Markdown.
pub(crate) fn styled_lines(text: &str, theme: &Theme) -> Vec<Line<'static>> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for line in sanitize(text).lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            lines.push(Line::from(Span::styled(line.to_owned(), theme.muted)));
        } else if fenced {
            lines.push(Line::from(Span::styled(line.to_owned(), theme.code)));
        } else {
            lines.push(styled_line(line, theme));
        }
    }
    lines
}

/// Styles one line outside of a code block.
fn styled_line(line: &str, theme: &Theme) -> Line<'static> {
    let body = line.trim_start();
    let (indent, _) = line.split_at(line.len() - body.len());
    let hashes = body.bytes().take_while(|&byte| byte == b'#').count();
    if (1..=6).contains(&hashes) && body[hashes..].starts_with(' ') {
        let heading = theme.title.add_modifier(Modifier::UNDERLINED);
        return Line::from(Span::styled(body[hashes + 1..].to_owned(), heading));
    }
    if let Some(quoted) = body.strip_prefix("> ") {
        let mut spans = vec![Span::styled(format!("{indent}▌ "), theme.muted)];
        spans.extend(inline_spans(quoted, theme.muted, theme));
        return Line::from(spans);
    }
    for bullet in ["- ", "* ", "+ "] {
        if let Some(item) = body.strip_prefix(bullet) {
            let mut spans = vec![Span::raw(format!("{indent}• "))];
            spans.extend(inline_spans(item, theme.plain, theme));
            return Line::from(spans);
        }
    }
    let mut spans = vec![Span::raw(indent.to_owned())];
    spans.extend(inline_spans(body, theme.plain, theme));
    Line::from(spans)
}

/// Styles code, bold and italic within a line; a mark without its partner stays as it is.
fn inline_spans(text: &str, base: Style, theme: &Theme) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*']) {
        let (before, marked) = rest.split_at(at);
        let (mark, style) = match marked {
            marked if marked.starts_with('`') => ("`", base.patch(theme.code)),
            marked if marked.starts_with("**") => ("**", base.add_modifier(Modifier::BOLD)),
            _ => ("*", base.add_modifier(Modifier::ITALIC)),
        };
        let inside = &marked[mark.len()..];
        match inside.find(mark) {
            Some(end) if end > 0 && !inside.starts_with(' ') => {
                spans.push(Span::styled(before.to_owned(), base));
                spans.push(Span::styled(inside[..end].to_owned(), style));
                rest = &inside[end + mark.len()..];
            }
            Some(_) | None => {
                spans.push(Span::styled(format!("{before}{mark}"), base));
                rest = inside;
            }
        }
    }
    spans.push(Span::styled(rest.to_owned(), base));
    spans.retain(|span| !span.content.is_empty());
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::line_text;
    use crate::theme::Palette;

    fn rendered(text: &str) -> Vec<String> {
        let theme = Theme::new(Palette::Colour);
        styled_lines(text, &theme).iter().map(line_text).collect()
    }

    #[test]
    fn marks_become_styles_and_the_text_stays() {
        let text = "# Title\nsome `code` and **strong** and *leaning* words\n- item\n  * inner\n> said\n```sh\nls **x**\n```\nend";
        assert_eq!(
            rendered(text),
            [
                "Title",
                "some code and strong and leaning words",
                "• item",
                "  • inner",
                "▌ said",
                "```sh",
                "ls **x**",
                "```",
                "end"
            ]
        );
    }

    #[test]
    fn marks_without_a_partner_are_text() {
        for text in [
            "2 * 3 * 4",
            "a ` b",
            "**",
            "*",
            "#hash",
            "####### seven",
            "x ** y",
        ] {
            assert_eq!(rendered(text), [text]);
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(rendered("`\u{1b}[2J`\u{202e}"), [r"\u{1b}[2J\u{202e}"]);
    }
}
