//! Variables that hold no secret, and words that may contain them.

use crate::word::{ShellWord, WordPart};

/// Variables whose value is no secret, besides those of the shell itself, such as `$?`.
const PUBLIC_VARIABLES: &[&str] = &[
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "OLDPWD",
    "HOSTNAME",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "EDITOR",
    "PAGER",
    "COLUMNS",
    "LINES",
    "UID",
    "EUID",
    "PPID",
    "RANDOM",
    "SECONDS",
    "BASH_VERSION",
    "BASHPID",
    "SHLVL",
    "OSTYPE",
    "HOSTTYPE",
    "MACHTYPE",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
];

/// Whether printing this variable tells nobody a secret.
pub(crate) fn is_public_variable(name: &str) -> bool {
    let special = name.chars().all(|c| !c.is_ascii_alphabetic() && c != '_');
    special || PUBLIC_VARIABLES.contains(&name)
}

/// The word with variables that hold no secret as values that only the shell knows.
pub(crate) fn with_public_variables(word: &ShellWord) -> ShellWord {
    let part = |part: &WordPart| match part {
        WordPart::Variable { name, quoted: true } if is_public_variable(name) => {
            WordPart::Computed {
                source: format!("${name}"),
                quoted: true,
            }
        }
        WordPart::Variable { .. }
        | WordPart::Text(_)
        | WordPart::Glob(_)
        | WordPart::Computed { .. }
        | WordPart::Opaque(_) => part.clone(),
    };
    ShellWord {
        parts: word.parts.iter().map(part).collect(),
        ..*word
    }
}

/// Checks a word of a command that only prints its words.
pub(crate) fn check_text(word: &ShellWord) -> Result<(), String> {
    for part in &word.parts {
        match part {
            WordPart::Opaque(_) => {
                return Err("uses a value that only the shell knows".to_owned());
            }
            WordPart::Variable { name, .. } if !is_public_variable(name) => {
                return Err(format!("prints `${name}`, which may hold a secret"));
            }
            // What commands print is assessed with those commands.
            WordPart::Variable { .. }
            | WordPart::Computed { .. }
            | WordPart::Text(_)
            | WordPart::Glob(_) => {}
        }
    }
    Ok(())
}
