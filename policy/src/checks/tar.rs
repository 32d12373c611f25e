//! Checks that `tar` only lists an archive.

use super::literals;
use crate::word::ShellWord;

/// Long flags that neither change the mode nor run a program.
const ALLOWED_LONG_FLAGS: &[&str] = &[
    "--list",
    "--verbose",
    "--gzip",
    "--bzip2",
    "--xz",
    "--zstd",
    "--auto-compress",
    "--wildcards",
    "--no-recursion",
    "--full-time",
    "--numeric-owner",
    "--utc",
    "--block-number",
];

pub(super) fn check(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    let texts = literals(words)?;
    let mut listing = false;
    let mut archives = Vec::new();
    let mut rest = texts.iter().enumerate();
    while let Some((index, text)) = rest.next() {
        let old_style = index == 0 && !text.starts_with('-');
        if let Some(archive) = text.strip_prefix("--file=") {
            archives.push(archive.to_owned());
        } else if text.starts_with("--") {
            if !ALLOWED_LONG_FLAGS.contains(&text.as_str()) {
                return Err(format!("`{text}` is not known to only read"));
            }
            listing |= text == "--list";
        } else if old_style || (text.starts_with('-') && text.len() > 1) {
            let letters = text.trim_start_matches('-');
            if let Some(other) = letters.chars().find(|letter| !"tvzjJfaR".contains(*letter)) {
                return Err(format!("`-{other}` is not known to only read"));
            }
            listing |= letters.contains('t');
            match letters.split_once('f') {
                None => {}
                Some((_, "")) => {
                    let (_, archive) = rest.next().ok_or("`-f` has no value")?;
                    archives.push(archive.clone());
                }
                // In the old style all letters come before the values; otherwise the rest of the
                // word is the value.
                Some(_) => return Err("`-f` is not last".to_owned()),
            }
        }
    }
    if archives.is_empty() {
        return Err("there is no archive to list".to_owned());
    }
    if !listing {
        return Err("it does more than list".to_owned());
    }
    if archives
        .iter()
        .any(|archive| archive.contains(':') || archive.starts_with('-'))
    {
        return Err("the archive may be on another machine".to_owned());
    }
    Ok(archives
        .iter()
        .map(|archive| ShellWord::literal(archive))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_passes_and_nothing_else_does() {
        let passes = |line: &str| {
            let words: Vec<ShellWord> = line.split_whitespace().map(ShellWord::literal).collect();
            check(&words).is_ok()
        };
        for line in [
            "tf a.tar",
            "-tf a.tar",
            "tvzf a.tgz",
            "-t -f a.tar x",
            "--list --file=a.tar",
        ] {
            assert!(passes(line), "{line}");
        }
        for line in [
            "xf a.tar",
            "cf a.tar x",
            "-tf a.tar --to-command=x",
            "-tf host:a.tar",
            "-tI x -f a",
            "tf a --checkpoint-action=exec=x",
            "-tf a --use-compress-program=x",
            "-f a.tar",
            "--list --file=a --rsh-command=x",
            "tfI a x",
            "",
        ] {
            assert!(!passes(line), "{line}");
        }
    }
}
