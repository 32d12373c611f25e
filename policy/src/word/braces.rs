//! Expands braces as bash does, where the word consists of plain characters.

use crate::lex;

/// The most words that one word may expand to.
const MAX_WORDS: usize = 32;

/// What a word with braces expands to, or `None` if that is not certain.
pub(super) fn expand(raw: &str) -> Option<Vec<String>> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+*?,{}~^".contains(c);
    if raw.starts_with('~') || !raw.chars().all(plain) || lex::is_assignment(raw) {
        return None;
    }
    let mut words = vec![String::new()];
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}')?;
        let alternatives = alternatives(inside)?;
        if before.contains('}') || words.len() * alternatives.len() > MAX_WORDS {
            return None;
        }
        let with = |word: &String| {
            let join = |part: &String| format!("{word}{before}{part}");
            alternatives.iter().map(join).collect::<Vec<_>>()
        };
        words = words.iter().flat_map(with).collect();
        rest = after;
    }
    if rest.contains('}') {
        return None;
    }
    for word in &mut words {
        word.push_str(rest);
    }
    // The shell removes words that become empty.
    words.retain(|word| !word.is_empty());
    Some(words)
}

/// The parts of `a,b,c` or of a range such as `1..5`.
fn alternatives(inside: &str) -> Option<Vec<String>> {
    if inside.contains('{') {
        return None;
    }
    if inside.contains(',') {
        return Some(inside.split(',').map(str::to_owned).collect());
    }
    let Some((first, last)) = inside.split_once("..") else {
        // Neither a list nor a range, as in `HEAD@{1}`: the braces stay.
        return (!inside.is_empty()).then(|| vec![format!("{{{inside}}}")]);
    };
    let number = |text: &str| {
        let canonical = !text.is_empty() && (text == "0" || !text.starts_with('0'));
        let digits = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
        if canonical && digits {
            text.parse::<u32>().ok()
        } else {
            None
        }
    };
    let (first, last) = (number(first)?, number(last)?);
    let range: Vec<String> = if first <= last {
        (first..=last).map(|number| number.to_string()).collect()
    } else {
        let down = (last..=first).rev();
        down.map(|number| number.to_string()).collect()
    };
    (range.len() <= MAX_WORDS).then_some(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_expand() {
        for (raw, words) in [
            ("a{b,c}d", "abd acd"),
            ("*.{ts,tsx}", "*.ts *.tsx"),
            ("{a,b}{1,2}", "a1 a2 b1 b2"),
            ("x{1..3}", "x1 x2 x3"),
            ("{3..1}", "3 2 1"),
            ("{,a}b", "b ab"),
            ("HEAD@{1}", "HEAD@{1}"),
            ("stash@{0}", "stash@{0}"),
            ("HEAD~{2,1}", "HEAD~2 HEAD~1"),
            ("{a}{b,c}", "{a}b {a}c"),
            ("--include=*.{c,h}", "--include=*.c --include=*.h"),
        ] {
            let expected: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(expand(raw), Some(expected), "{raw}");
        }
    }

    #[test]
    fn anything_else_is_not_certain() {
        for raw in [
            "{}{a,b}",
            "{a,{b,c}}",
            "a}{b,c}",
            "{a,b}}",
            "{a,b",
            "a,b}",
            "{01..3}",
            "{a..c}",
            "{1..3..2}",
            "{1..1000}",
            "a={b,c}",
            "~{a,b}",
            "{a,b}\\",
            "{-1..2}",
        ] {
            assert_eq!(expand(raw), None, "{raw}");
        }
    }
}
