//! Checks the operands of `test` and `[`, which some shells evaluate.

use super::literals;
use crate::word::ShellWord;

const FILE_TESTS: &[&str] = &[
    "-e", "-f", "-d", "-r", "-w", "-x", "-s", "-L", "-h", "-b", "-c", "-p", "-S", "-g", "-u", "-k",
    "-O", "-G", "-N",
];

pub(super) fn check(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    let mut texts = literals(words)?;
    if texts.last().is_some_and(|last| last == "]") {
        texts.pop();
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    texts
        .split(|text| matches!(*text, "-a" | "-o"))
        .try_for_each(check_condition)?;
    Ok(Vec::new())
}

fn check_condition(words: &[&str]) -> Result<(), String> {
    let number = |text: &str| text.parse::<i64>().is_ok();
    let known = match words {
        ["!", rest @ ..] => return check_condition(rest),
        [] | [_] => true,
        [operator, _] => {
            FILE_TESTS.contains(operator)
                || matches!(*operator, "-z" | "-n")
                || (*operator == "-t" && number(words[1]))
        }
        [_, "=" | "==" | "!=" | "-nt" | "-ot" | "-ef", _] => true,
        [left, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge", right] => {
            number(left) && number(right)
        }
        [..] => false,
    };
    known
        .then_some(())
        .ok_or_else(|| format!("`{}` may be evaluated", words.join(" ")))
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
}
