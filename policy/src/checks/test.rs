//! Checks the operands of `test` and `[`, which some shells evaluate.

use crate::word::ShellWord;

const FILE_TESTS: &[&str] = &[
    "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-b", "-c", "-p", "-S", "-g", "-u", "-k",
    "-O", "-G", "-N",
];

/// Operators that compare numbers, and in `[[` evaluate whatever is not one.
const NUMBER_TESTS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// Checks what follows `test` or `[`.
pub(super) fn check(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    let mut texts = texts(words)?;
    if texts.last() == Some(&Some("]".to_owned())) {
        texts.pop();
    }
    let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
    texts
        .split(|text| matches!(text, Some("-a" | "-o")))
        .try_for_each(check_condition)?;
    Ok(Vec::new())
}

/// Checks what follows `[[`. The operators `&&`, `||`, `<`, `>` and parentheses are not among the
/// words, so that it is not known where a condition ends.
pub(super) fn check_double(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    // Patterns are compared, and not expanded.
    let literal = |word: &ShellWord| match word.is_static() {
        true => ShellWord::literal(&word.text()),
        false => word.clone(),
    };
    let words: Vec<ShellWord> = words.iter().map(literal).collect();
    let texts = texts(&words)?;
    for (at, text) in texts.iter().enumerate() {
        let Some(text) = text.as_deref() else {
            continue;
        };
        let number = |at: Option<usize>| {
            let text = at.and_then(|at| texts.get(at)).and_then(Option::as_deref);
            text.is_some_and(|text| text.parse::<i64>().is_ok())
        };
        let evaluates = matches!(text, "-v" | "-R" | "-t")
            || (NUMBER_TESTS.contains(&text)
                && !(number(at.checked_sub(1)) && number(Some(at + 1))));
        if evaluates {
            return Err(format!("`{text}` may evaluate its operand"));
        }
    }
    Ok(Vec::new())
}

/// The texts of the words, `None` for those that only the shell knows.
fn texts(words: &[ShellWord]) -> Result<Vec<Option<String>>, String> {
    let text = |word: &ShellWord| match word.as_literal() {
        Some(text) => Ok(Some(text)),
        None if word.is_one_computed_word() => Ok(None),
        None => Err(format!("`{}` is not always the same", word.text())),
    };
    words.iter().map(text).collect()
}

fn check_condition(words: &[Option<&str>]) -> Result<(), String> {
    let number = |text: &str| text.parse::<i64>().is_ok();
    let known = match words {
        [Some("!"), rest @ ..] => return check_condition(rest),
        [] | [_] => true,
        [Some(operator), operand] => {
            FILE_TESTS.contains(operator)
                || matches!(*operator, "-z" | "-n")
                || (*operator == "-t" && operand.is_some_and(number))
        }
        [_, Some("=" | "==" | "!=" | "-nt" | "-ot" | "-ef"), _] => true,
        [left, Some(operator), right] if NUMBER_TESTS.contains(operator) => {
            left.is_none_or(number) && right.is_none_or(number)
        }
        [..] => false,
    };
    let shown = || {
        let words = words.iter().map(|word| word.unwrap_or("$(…)"));
        words.collect::<Vec<_>>().join(" ")
    };
    known
        .then_some(())
        .ok_or_else(|| format!("`{}` may be evaluated", shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_that_a_shell_may_evaluate_are_refused() {
        let passes = |line: &str| {
            let words: Vec<ShellWord> = line.split_whitespace().map(ShellWord::literal).collect();
            check(&words).is_ok()
        };
        for line in [
            "-f x",
            "! -d x ]",
            "a = b",
            "1 -lt 2 ]",
            "-f a -a -f b",
            "-z x",
            "a -nt b",
        ] {
            assert!(passes(line), "{line}");
        }
        for line in [
            "-v a[$(x)]",
            "a[$(x)] -eq 1",
            "-R x",
            "1 -eq a[$(x)]",
            "( x )",
            "-o",
        ] {
            assert_eq!(passes(line), line == "-o", "{line}");
        }
    }

    #[test]
    fn double_brackets_evaluate_numbers_and_names() {
        let passes = |line: &str| {
            let words: Vec<ShellWord> = line.split_whitespace().map(ShellWord::literal).collect();
            check_double(&words).is_ok()
        };
        for line in ["-f a -d b ]]", "a == b* ]]", "1 -lt 2 ]]", "a =~ ^b$ ]]"] {
            assert!(passes(line), "{line}");
        }
        for line in [
            "a[$(x)] -eq 1 ]]",
            "1 -eq x ]]",
            "-v a[$(x)] ]]",
            "-eq 1 ]]",
        ] {
            assert!(!passes(line), "{line}");
        }
    }
}
