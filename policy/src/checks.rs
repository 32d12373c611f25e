//! Argument checks for commands whose arguments are a language of their own.

mod awk;
mod find;
mod sed;
mod tar;
mod test;

use crate::read_rules::CheckedArguments;
use crate::word::ShellWord;

/// A function that checks a command's arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ArgumentCheck {
    /// Takes the arguments as written and returns the paths that would be read.
    Raw(fn(&[ShellWord]) -> Result<Vec<ShellWord>, String>),
    /// Takes arguments that were parsed by the rule's flag lists.
    Parsed(fn(&mut CheckedArguments) -> Result<(), String>),
}

/// The check that a rule file names.
pub(crate) fn by_name(name: &str) -> Option<ArgumentCheck> {
    Some(match name {
        "awk" => ArgumentCheck::Parsed(awk::check),
        "find" => ArgumentCheck::Raw(find::check),
        "printf" => ArgumentCheck::Raw(check_printf),
        "sed" => ArgumentCheck::Parsed(sed::check),
        "tar" => ArgumentCheck::Raw(tar::check),
        "test" => ArgumentCheck::Raw(test::check),
        "yq" => ArgumentCheck::Parsed(check_yq),
        "not-secrets" => ArgumentCheck::Parsed(check_not_secrets),
        _ => return None,
    })
}

/// The words as strings; each must be one that a shell would not change.
fn literals(words: &[ShellWord]) -> Result<Vec<String>, String> {
    words
        .iter()
        .map(|word| {
            word.as_literal()
                .ok_or(format!("`{}` is not always the same", word.text()))
        })
        .collect()
}

/// Refuses `printf -v`, which assigns, and `%n`, which stores through a name that may contain
/// commands.
fn check_printf(words: &[ShellWord]) -> Result<Vec<ShellWord>, String> {
    let format = match words.first().map(ShellWord::text).as_deref() {
        Some("--") => words.get(1),
        Some(_) | None => words.first(),
    };
    let Some(format) = format.and_then(ShellWord::as_literal) else {
        return Err("its format is not known".to_owned());
    };
    if format.starts_with('-') {
        return Err("`-v` assigns a variable".to_owned());
    }
    let mut conversions = format.split('%').skip(1);
    let stores = |conversion: &str| {
        let letter = conversion
            .trim_start_matches(|c: char| c.is_ascii_digit() || "#+- .*'hlLqjzt".contains(c))
            .chars()
            .next();
        letter == Some('n')
    };
    if conversions.any(stores) {
        return Err("`%n` assigns a variable".to_owned());
    }
    Ok(Vec::new())
}

/// Refuses `yq` expressions that may load other files or, in some builds, run commands.
fn check_yq(checked: &mut CheckedArguments) -> Result<(), String> {
    let expression = |text: &str| {
        ["load", "system", "input", "strload", "@sh"]
            .iter()
            .any(|word| text.contains(word))
    };
    if checked.operands.iter().any(|word| expression(&word.text())) {
        return Err("its expression can reach other files".to_owned());
    }
    Ok(())
}

/// Refuses to show a cluster's secrets, because everyone in the session sees the output.
fn check_not_secrets(checked: &mut CheckedArguments) -> Result<(), String> {
    let secret = |word: &ShellWord| word.text().to_ascii_lowercase().contains("secret");
    if checked.operands.iter().any(secret) {
        return Err("shows secrets".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printf_that_assigns_is_refused() {
        let passes = |words: &[&str]| {
            let words: Vec<ShellWord> = words.iter().map(|text| ShellWord::literal(text)).collect();
            check_printf(&words).is_ok()
        };
        assert!(passes(&["%s\\n", "a", "-v"]));
        assert!(passes(&["100%% done"]));
        assert!(passes(&["--", "%d", "1"]));
        assert!(!passes(&["-v", "a[$(x)]", "b"]));
        assert!(!passes(&["%n", "a[$(x)]"]));
        assert!(!passes(&["%10n", "a"]));
        assert!(!passes(&[]));
    }
}
