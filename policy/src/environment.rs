//! Environment variables, and which of them can change what a command does.

use pvp_protocol::Risk;

use crate::verdict::CommandVerdict;

/// Variables that only change how output looks.
const HARMLESS_VARIABLES: &[&str] = &[
    "LANG",
    "LANGUAGE",
    "TZ",
    "COLUMNS",
    "LINES",
    "NO_COLOR",
    "FORCE_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "BLOCKSIZE",
    "BLOCK_SIZE",
    "TIME_STYLE",
    "GIT_OPTIONAL_LOCKS",
];

/// Whether this variable with this value cannot change what a command does.
pub(crate) fn is_harmless(name: &str, value: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+.:@ ,".contains(c);
    let zone = |c: char| plain(c) || c == '/';
    let known = HARMLESS_VARIABLES.contains(&name) || (name.starts_with("LC_") && name.len() > 3);
    let value_is_plain = match name {
        "TZ" => value.chars().all(zone) && !value.starts_with(['/', ':']) && !value.contains(".."),
        _ => value.chars().all(plain),
    };
    known && value_is_plain
}

/// The verdict on setting a variable that may change what a command does.
pub(crate) fn variable_verdict(name: &str) -> CommandVerdict {
    let hooks = [
        "LD_", "DYLD_", "GIT_", "BASH_", "PYTHON", "PERL", "RUBY", "NODE_",
    ];
    let known = [
        "PATH", "IFS", "ENV", "PAGER", "EDITOR", "VISUAL", "SHELL", "PS4", "BASH_ENV",
    ];
    if known.contains(&name) || hooks.iter().any(|hook| name.starts_with(hook)) {
        let reason = format!("`{name}` decides which code runs");
        return CommandVerdict::write(Risk::High, "env.code", &reason);
    }
    let reason = format!("`{name}` may change what the command does");
    CommandVerdict::write(Risk::Low, "env.variable", &reason)
}
