//! Argument checks for commands whose arguments are a language of their own.

mod awk;
mod find;
mod sed;
mod tar;
mod test;

use crate::reads::Checked;
use crate::word::Word;

/// How a command's arguments are looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Check {
    /// All arguments as they stand; answers with the paths that would be read.
    Whole(fn(&[Word]) -> Result<Vec<Word>, String>),
    /// What the flag lists have taken apart already.
    After(fn(&mut Checked) -> Result<(), String>),
}

/// The check that a rule file names.
pub(crate) fn by_name(name: &str) -> Option<Check> {
    Some(match name {
        "awk" => Check::After(awk::check),
        "find" => Check::Whole(find::check),
        "printf" => Check::Whole(printf),
        "sed" => Check::After(sed::check),
        "tar" => Check::Whole(tar::check),
        "test" => Check::Whole(test::check),
        "yq" => Check::After(yq),
        "not-secrets" => Check::After(not_secrets),
        _ => return None,
    })
}

/// The words, each of which must always be the same string.
fn literals(words: &[Word]) -> Result<Vec<String>, String> {
    words
        .iter()
        .map(|word| {
            word.as_literal()
                .ok_or(format!("`{}` is not always the same", word.text()))
        })
        .collect()
}

/// `printf -v` assigns, and `%n` stores through a name that may hold commands.
fn printf(words: &[Word]) -> Result<Vec<Word>, String> {
    let format = match words.first().map(Word::text).as_deref() {
        Some("--") => words.get(1),
        Some(_) | None => words.first(),
    };
    let Some(format) = format.and_then(Word::as_literal) else {
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

/// Expressions of yq may load other files, and some builds run commands.
fn yq(checked: &mut Checked) -> Result<(), String> {
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

/// Secrets of a cluster are not for everyone's screen.
fn not_secrets(checked: &mut Checked) -> Result<(), String> {
    let secret = |word: &Word| word.text().to_ascii_lowercase().contains("secret");
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
            let words: Vec<Word> = words.iter().map(|text| Word::literal(text)).collect();
            printf(&words).is_ok()
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
