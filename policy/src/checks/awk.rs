//! Checks that an `awk` program only prints.

use crate::lex::is_assignment;
use crate::read_rules::CheckedArguments;
use crate::source_text::SourceText;
use crate::word::ShellWord;

/// Words that can access other files or programs.
const FORBIDDEN_WORDS: &[&str] = &[
    "system", "getline", "ARGV", "ARGC", "PROCINFO", "ENVIRON", "SYMTAB", "FUNCTAB",
];

/// The first operand is the program; the others are files or assignments.
pub(super) fn check(checked: &mut CheckedArguments) -> Result<(), String> {
    let program = checked.operands.first().and_then(ShellWord::as_literal);
    let program = program.ok_or("its program is not known")?;
    if !only_prints(&program) {
        return Err("its program may write or run something".to_owned());
    }
    let is_file = |word: &&ShellWord| !is_assignment(&word.text());
    checked.targets.paths = checked.operands[1..]
        .iter()
        .filter(is_file)
        .cloned()
        .collect();
    Ok(())
}

/// What the previous token says about a slash that follows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PreviousToken {
    /// A value, so that a slash divides.
    Value,
    /// An operator or the beginning of a pattern or statement, so that a slash begins a regular
    /// expression.
    Operator,
    /// Versions of awk may differ, so that no slash may follow.
    Unclear,
}

/// Whether a parenthesis was opened by a condition, behind which a statement begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parenthesis {
    Condition,
    Other,
}

/// Words behind which a parenthesis holds a condition.
const CONDITION_WORDS: &[&str] = &["if", "while", "for", "switch"];

/// Words behind which a value may or may not follow.
const UNCLEAR_WORDS: &[&str] = &[
    "print",
    "printf",
    "return",
    "in",
    "else",
    "do",
    "exit",
    "case",
    "default",
    "delete",
    "next",
    "nextfile",
    "break",
    "continue",
    "function",
    "func",
    "BEGIN",
    "END",
    "BEGINFILE",
    "ENDFILE",
    "if",
    "while",
    "for",
    "switch",
    "length",
    "getline",
    "close",
    "fflush",
    "rand",
    "srand",
    "systime",
    "strftime",
    "tolower",
    "toupper",
    "substr",
    "index",
    "match",
    "split",
    "sub",
    "gsub",
    "gensub",
    "sprintf",
    "int",
    "log",
    "exp",
    "sqrt",
    "sin",
    "cos",
    "atan2",
];

/// Whether there is no pipe, and no `>` after any print. This ignores where statements end, so that
/// a line break or a pattern cannot hide a redirection.
fn only_prints(program: &str) -> bool {
    let mut rest = program;
    let mut previous = PreviousToken::Operator;
    let mut last_word = "";
    let mut parentheses: Vec<Parenthesis> = Vec::new();
    let mut printing = false;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        let word = std::mem::take(&mut last_word);
        match c {
            '"' => match quoted_length(rest, '"') {
                Some(end) => {
                    length = end;
                    previous = PreviousToken::Value;
                }
                None => return false,
            },
            '/' => match previous {
                PreviousToken::Unclear => return false,
                PreviousToken::Value => previous = PreviousToken::Unclear,
                PreviousToken::Operator => match quoted_length(rest, '/') {
                    // What looks like a pattern here may be code to some version of awk.
                    Some(end) if !is_ambiguous_pattern(rest.part(..end), printing) => {
                        length = end;
                        previous = PreviousToken::Value;
                    }
                    Some(_) | None => return false,
                },
            },
            '|' if rest.starts_with("||") => {
                length = 2;
                previous = PreviousToken::Operator;
            }
            '|' | '#' | '`' | '\\' | '@' => return false,
            '>' if printing || rest.starts_with(">>") => return false,
            ' ' | '\t' => last_word = word,
            '(' => {
                let condition = CONDITION_WORDS.contains(&word);
                parentheses.push(match condition {
                    true => Parenthesis::Condition,
                    false => Parenthesis::Other,
                });
                previous = PreviousToken::Operator;
            }
            ')' => {
                previous = match parentheses.pop() {
                    Some(Parenthesis::Condition) => PreviousToken::Operator,
                    Some(Parenthesis::Other) => PreviousToken::Value,
                    None => return false,
                };
            }
            ']' => previous = PreviousToken::Value,
            '+' | '-' | '*' | '%' | '^' => previous = PreviousToken::Unclear,
            _ if is_word_char(c) => {
                length = rest.find(|c| !is_word_char(c)).unwrap_or(rest.len());
                last_word = rest.part(..length);
                if FORBIDDEN_WORDS.contains(&last_word) || !is_one_token(last_word) {
                    return false;
                }
                printing |= last_word.starts_with("print");
                previous = if UNCLEAR_WORDS.contains(&last_word) {
                    PreviousToken::Unclear
                } else {
                    PreviousToken::Value
                };
            }
            '{' | '}' | ';' | '\n' | ',' | '!' | '~' | '&' | '?' | ':' | '=' | '<' | '>' => {
                previous = PreviousToken::Operator;
            }
            _ => previous = PreviousToken::Unclear,
        }
        rest = rest.part(length..);
    }
    true
}

fn is_ambiguous_pattern(pattern: &str, printing: bool) -> bool {
    printing && pattern.contains(['>', '|'])
}

/// Whether this is a name or a number. To awk, `1system` is both.
fn is_one_token(word: &str) -> bool {
    let begins_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let has_letter = word.contains(|c: char| c.is_ascii_alphabetic() || c == '_');
    !(begins_number && has_letter) && (begins_number || !word.contains('.'))
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

/// The length of a string or regular expression with its delimiters. Versions of awk differ on a
/// slash in brackets, so brackets may not contain one.
fn quoted_length(text: &str, end: char) -> Option<usize> {
    let mut escaped = false;
    let mut bracket = false;
    let mut class_end = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\n' => return None,
            '[' if end == '/' => {
                let inner = text.part(at + 1..).trim_start_matches('^');
                if inner.starts_with([']', '.', '=']) {
                    return None;
                }
                bracket |= !inner.starts_with(':');
            }
            ':' if bracket && text.part(at..).starts_with(":]") => class_end = true,
            ']' if class_end => class_end = false,
            ']' => bracket = false,
            _ if c == end && bracket => return None,
            _ if c == end => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(program: &str) -> bool {
        let mut checked = CheckedArguments {
            operands: vec![ShellWord::literal(program)],
            ..CheckedArguments::default()
        };
        check(&mut checked).is_ok()
    }

    #[test]
    fn printing_programs_pass() {
        for program in [
            "{print $1}",
            "{print $1, $NF}",
            "/x/",
            "/a|b/ {print}",
            "$3 > 10",
            "$3 > 10 {print $1}",
            "NR==1",
            "NR>1 && NR<5 {print}",
            "{sum += $1} END {print sum}",
            "{print $1/2}",
            "BEGIN{FS=\":\"} {print $1}",
            "!seen[$0]++",
            "{printf \"%s\\n\", $1}",
            "a || b",
            "{ if ($1 > 5) print $2 }",
            "BEGIN {FS=\",\"} NR>1 {print $1}",
            "{print length($0)}",
            "/^[[:space:]]*x/",
            "/[^a-z]/",
            "{print \"a > b | c\"}",
            "/\"name\"/ {print $2}",
            "/system/",
            "{print \"system(x)\"}",
            "{if ($1 ~ /x/) print}",
            "{if ($0) /x/}",
            "{print ($1+$2)/2}",
            "{print NR/2, a[1]/3}",
            "!/^#/",
            "/a/ && !/b/ {print; exit}",
            "/a/,/b/",
            "{a=$1; sub(/x/, \"y\"); print a}",
        ] {
            assert!(passes(program), "{program}");
        }
    }

    #[test]
    fn programs_that_write_or_run_do_not() {
        for program in [
            "{print > \"f\"}",
            "{print $1 > $2}",
            "{print >> \"f\"}",
            "{print | \"sh\"}",
            "BEGIN{system(\"x\")}",
            "BEGIN{\"date\" | getline d}",
            "{printf \"x\" > \"f\"}",
            "{print $1 \"a\" > \"f\"}",
            "@load \"x\"",
            "BEGIN{while((getline l < \"/etc/x\")>0) print l}",
            "{print $1 |& \"x\"}",
            "/\"/ {print > \"f\"} /\"/",
            "BEGIN { ARGV[1] = \"/etc/x\" }",
            "{ print /[/]/ > \"f\" }",
            "/[]/]/ { print > \"f\" }",
            "{print (1>2)}",
            "{print $1,\n$2 > \"f\"}",
            "{print length /;/ > f /1}",
            "# \" \n{print | \"sh\"}",
            "{do /\\\"/; while(0); print | \"sh\" /x/ }",
            "BEGIN{exit /\"/ + system(1) /\"/}",
            "{if (1) /a/ ; x = 1 / 2; print > \"f\" /2/}",
            "{i++ / 2; print \"/\" | \"sh\" }",
            "{i++ /\"/; print \"x\"}",
            "{(1)) /x/",
            "BEGIN{x=1system(\"id\")}",
            "{1print > \"f\"}",
            "BEGIN{print 1ENVIRON[\"A\"]}",
            "BEGIN{print SYMTAB[\"ENVIRON\"]}",
            "{length /x/ 1}",
            "{switch(x) {case /\"/: print | \"sh\" ; case /\"/: x}}",
            "{x = 1 - /a\"/ 2}",
        ] {
            assert!(!passes(program), "{program}");
        }
    }
}
