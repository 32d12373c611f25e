//! Normalises a command's arguments for the patterns: single blanks between words, and names for
//! important locations.

use crate::paths::{PathRoot, ResolvedPath};
use crate::source_text::SourceText;
use crate::word::ShellWord;

/// Replaces a blank inside a word, so that patterns can tell where words end.
pub(crate) const INNER_SPACE: char = '\u{1f}';

/// The arguments in the form that patterns match, such as ` -rf <root> `: once for every directory
/// that the command may run in, once with only the locations that do not depend on the directory,
/// and once without any locations, because a word such as `stop` is not a path for every command.
pub(crate) fn argument_forms(words: &[ShellWord], directories: &[ResolvedPath]) -> Vec<String> {
    let any_directory = ResolvedPath::new(PathRoot::Unknown);
    let directories = directories.iter().chain([&any_directory]).map(Some);
    let mut forms: Vec<String> = Vec::new();
    for directory in directories.chain([None]) {
        let form = normalized_arguments(words, directory);
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

fn normalized_arguments(words: &[ShellWord], directory: Option<&ResolvedPath>) -> String {
    let mut text = String::from(" ");
    for word in words {
        text.push_str(&normalized_argument(word, directory));
        text.push(' ');
    }
    text
}

fn normalized_argument(word: &ShellWord, directory: Option<&ResolvedPath>) -> String {
    let text = word.text();
    let named = directory.and_then(|directory| with_location_name(word, &text, directory));
    let shown = named.unwrap_or(if text.is_empty() { "''".into() } else { text });
    shown.replace(char::is_whitespace, &INNER_SPACE.to_string())
}

/// The word with an important location in it replaced by the location's name.
fn with_location_name(word: &ShellWord, text: &str, directory: &ResolvedPath) -> Option<String> {
    if let Some((key, value)) = text.split_once('=')
        && !key.contains('/')
    {
        let inner = ShellWord::literal(value);
        return location_name(&directory.resolve(&inner)).map(|name| format!("{key}={name}"));
    }
    if text.starts_with('-') {
        return None;
    }
    location_name(&directory.resolve(word)).map(str::to_owned)
}

/// Directories whose loss breaks the machine.
const CRITICAL_DIRS: &[&str] = &[
    "bin",
    "boot",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "usr",
    "var",
    "home",
    "Users",
    "System",
    "Library",
    "Applications",
    "Windows",
];

const DISK_DEVICE_PREFIXES: &[&str] = &[
    "sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "loop", "dm-", "md", "mapper",
    "mem", "kmem", "port", "sr", "st", "nbd", "ram",
];

const AUTH_FILES: &[&str] = &[
    "etc/passwd",
    "etc/shadow",
    "etc/group",
    "etc/gshadow",
    "etc/sudoers",
    "etc/sudoers.d",
    "etc/pam.d",
    "etc/pam.conf",
    "etc/ssh/sshd_config",
    "etc/fstab",
    "etc/crypttab",
    "etc/ld.so.preload",
    "etc/nsswitch.conf",
    "etc/security",
    "etc/login.defs",
    "etc/securetty",
];

/// The name of a location that rules mention.
pub(crate) fn location_name(path: &ResolvedPath) -> Option<&'static str> {
    match path.root {
        PathRoot::Absolute => absolute_location_name(&path.components),
        PathRoot::Home => match path.components.as_slice() {
            [] => Some("<home>"),
            [one] if matches_everything(one) => Some("<home>"),
            [ssh, ..] if ssh == ".ssh" => Some("<keys>"),
            [..] => None,
        },
        PathRoot::Workspace | PathRoot::AboveWorkspace | PathRoot::Unknown => None,
    }
}

fn absolute_location_name(names: &[String]) -> Option<&'static str> {
    let (last, parents) = match names.split_last() {
        None => return Some("<root>"),
        Some((last, parents)) if matches_everything(last) => (None, parents),
        Some((last, parents)) => (Some(last.as_str()), parents),
    };
    let names: Vec<&str> = parents.iter().map(String::as_str).chain(last).collect();
    let joined = names.join("/");
    let below = |prefix: &str| {
        joined
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match names.as_slice() {
        [] => Some("<root>"),
        ["dev", disk, ..]
            if DISK_DEVICE_PREFIXES
                .iter()
                .any(|start| disk.starts_with(start)) =>
        {
            Some("<device>")
        }
        ["boot" | "efi", _, ..] => Some("<boot>"),
        ["home" | "Users"] | ["root"] | ["home" | "Users", _] => Some("<home>"),
        [vital] if CRITICAL_DIRS.contains(vital) => Some("<system>"),
        ["root", ".ssh", ..] | ["home" | "Users", _, ".ssh", ..] => Some("<keys>"),
        ["proc", "sysrq-trigger"] => Some("<sysrq>"),
        ["usr", part] if ["bin", "lib", "lib64", "sbin", "local", "share"].contains(part) => {
            Some("<system>")
        }
        ["var", "lib" | "log"] => Some("<system>"),
        _ if AUTH_FILES.iter().any(|file| below(file)) => Some("<auth>"),
        _ => None,
    }
}

/// `*`, `.*`, `?*` and the like.
fn matches_everything(name: &str) -> bool {
    let plain = name.contains('*') && name.chars().all(|c| "*.?".contains(c));
    plain || matches!(name, "[a-z]*" | "[a-zA-Z]*" | "[!.]*" | ".[!.]*" | "??*")
}

/// The words that braces in a word expand to, at most 64.
pub(crate) fn expand_braces(text: &str) -> Vec<String> {
    let mut done = Vec::new();
    let mut open = vec![text.to_owned()];
    while let Some(word) = open.pop() {
        match expand_last_open_brace(&word) {
            Some(parts) if done.len() + open.len() + parts.len() <= 64 => {
                open.extend(parts.into_iter().rev());
            }
            Some(_) | None => done.push(word),
        }
    }
    done
}

fn expand_last_open_brace(word: &str) -> Option<Vec<String>> {
    let close = word.find('}')?;
    let start = word.part(..close).rfind('{')?;
    let inner = word.part(start + 1..close);
    if !inner.contains(',') {
        return None;
    }
    let (before, after) = (word.part(..start), word.part(close + 1..));
    let join = |part: &str| format!("{before}{part}{after}");
    Some(inner.split(',').map(join).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{ScanUntil, scan_word};

    fn normalized(cwd: &str, line: &[&str]) -> String {
        let words: Vec<ShellWord> = line
            .iter()
            .map(|text| scan_word(text, 0, ScanUntil::End).word)
            .collect();
        normalized_arguments(
            &words,
            Some(&ResolvedPath::new(PathRoot::Absolute).join(cwd)),
        )
    }

    #[test]
    fn words_are_seen_in_every_directory_and_in_none() {
        let words = ["/", "rm", "*"].map(|text| scan_word(text, 0, ScanUntil::End).word);
        let root = ResolvedPath::new(PathRoot::Absolute);
        let keys = ResolvedPath::new(PathRoot::Home).join(".ssh");
        let forms = argument_forms(&words, &[keys, root]);
        let expected = [
            " <root> <keys> <keys> ",
            " <root> rm <root> ",
            " <root> rm * ",
            " / rm * ",
        ];
        assert_eq!(forms, expected);
        assert_eq!(argument_forms(&words[1..2], &[]), [" rm "]);
    }

    #[test]
    fn well_known_locations_are_named_in_all_their_spellings() {
        for (text, name) in [
            ("/", "<root>"),
            ("//", "<root>"),
            ("/.", "<root>"),
            ("/*", "<root>"),
            ("/home/..", "<root>"),
            ("/.*", "<root>"),
            ("'/'", "<root>"),
            ("/etc/", "<system>"),
            ("/usr/*", "<system>"),
            ("~", "<home>"),
            ("~/", "<home>"),
            ("~/*", "<home>"),
            ("$HOME", "<home>"),
            ("\"$HOME\"/*", "<home>"),
            ("${HOME}", "<home>"),
            ("~root", "<home>"),
            ("/home/ann", "<home>"),
            ("/home/*", "<home>"),
            ("/dev/sda1", "<device>"),
            ("of=/dev/nvme0n1", "of=<device>"),
            ("/boot/vmlinuz", "<boot>"),
            ("/etc/sudoers.d/x", "<auth>"),
            ("~/.ssh/authorized_keys", "<keys>"),
            ("../../..", "<root>"),
            ("/work/x", "/work/x"),
            ("a b", "a\u{1f}b"),
        ] {
            assert_eq!(
                normalized("/work/app", &[text]),
                format!(" {name} "),
                "{text}"
            );
        }
        assert_eq!(normalized("/", &["*"]), " <root> ");
        assert_eq!(normalized("/", &["etc"]), " <system> ");
        assert_eq!(normalized("/work", &["*"]), " * ");
    }

    #[test]
    fn braces_become_words() {
        assert_eq!(expand_braces("{rm,-rf,/}"), ["rm", "-rf", "/"]);
        assert_eq!(expand_braces("a{b,c}d"), ["abd", "acd"]);
        assert_eq!(expand_braces("{}"), ["{}"]);
    }
}
