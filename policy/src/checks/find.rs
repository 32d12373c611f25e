//! Checks that a `find` expression only tests and prints.

use super::literals;
use crate::word::ShellWord;

/// Tests and actions without a value.
const TESTS_WITHOUT_VALUE: &[&str] = &[
    "-print",
    "-print0",
    "-ls",
    "-prune",
    "-quit",
    "-depth",
    "-d",
    "-xdev",
    "-mount",
    "-empty",
    "-readable",
    "-writable",
    "-executable",
    "-true",
    "-false",
    "-nouser",
    "-nogroup",
    "-daystart",
    "-follow",
    "-noleaf",
    "-not",
    "!",
    "-a",
    "-and",
    "-o",
    "-or",
    ",",
    "(",
    ")",
    "-ignore_readdir_race",
    "-nowarn",
    "-warn",
];

/// Tests and options with one value.
const TESTS_WITH_VALUE: &[&str] = &[
    "-name",
    "-iname",
    "-path",
    "-ipath",
    "-wholename",
    "-iwholename",
    "-lname",
    "-ilname",
    "-regex",
    "-iregex",
    "-regextype",
    "-type",
    "-xtype",
    "-size",
    "-mtime",
    "-atime",
    "-ctime",
    "-mmin",
    "-amin",
    "-cmin",
    "-maxdepth",
    "-mindepth",
    "-user",
    "-group",
    "-uid",
    "-gid",
    "-perm",
    "-links",
    "-inum",
    "-fstype",
    "-used",
    "-printf",
    "-context",
];

/// Tests whose value is a file that is inspected.
const TESTS_WITH_FILE: &[&str] = &["-newer", "-anewer", "-cnewer", "-samefile"];

pub(super) fn check(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    let flags = words
        .iter()
        .take_while(|word| is_option(&word.text()))
        .count();
    let rest = &words[flags..];
    let roots = rest
        .iter()
        .take_while(|word| !begins_expression(&word.text()))
        .count();
    let mut paths = rest[..roots].to_vec();
    if paths.iter().any(ShellWord::may_begin_with_dash) {
        return Err("a name may be taken as an action".to_owned());
    }
    let expression = literals(&rest[roots..])?;
    let mut tokens = expression.iter().map(String::as_str);
    while let Some(token) = tokens.next() {
        if TESTS_WITHOUT_VALUE.contains(&token) {
            continue;
        }
        let newer = token.len() == 8 && token.starts_with("-newer");
        let file = TESTS_WITH_FILE.contains(&token) || newer;
        if !TESTS_WITH_VALUE.contains(&token) && !file {
            return Err(format!("`{token}` is not known to only read"));
        }
        let value = tokens.next().ok_or(format!("`{token}` has no value"))?;
        if file && !token.ends_with('t') {
            paths.push(ShellWord::literal(value));
        }
    }
    Ok(paths)
}

/// Whether this is a flag that comes before the directories.
pub(crate) fn is_option(text: &str) -> bool {
    matches!(
        text,
        "-H" | "-L" | "-P" | "-O0" | "-O1" | "-O2" | "-O3" | "-E" | "-X" | "-s" | "-x"
    )
}

fn begins_expression(text: &str) -> bool {
    (text.starts_with('-') && text.len() > 1) || matches!(text, "(" | ")" | "!" | ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(line: &str) -> bool {
        let words: Vec<ShellWord> = line.split_whitespace().map(ShellWord::literal).collect();
        check(&words).is_ok()
    }

    #[test]
    fn searches_pass_and_actions_do_not() {
        for line in [
            "",
            ".",
            ". -name *.rs",
            "src tests -type f -size +1M",
            ". ( -name a -o -name b ) -print",
            "-L . -maxdepth 2",
            ". ! -name a -newer b",
            ". -newermt 2020-01-01",
            ". -printf %p",
        ] {
            assert!(passes(line), "{line}");
        }
        for line in [
            ". -delete",
            ". -exec rm {} ;",
            ". -execdir x ;",
            ". -ok x ;",
            ". -fprint x",
            ". -fls x",
            ". -fprintf x y",
            ". -name",
            ". -files0-from x",
            ". -unknown",
            ". -name a -delete",
            ". -fprint0 x",
            ". -okdir x ;",
        ] {
            assert!(!passes(line), "{line}");
        }
    }
}
