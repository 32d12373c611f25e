//! Recognises the files that no agent may touch: what PVP keeps for itself, and the settings that
//! make agent clients ask PVP.

use crate::paths::{PathRoot, ResolvedPath, Workspace};
use crate::secret_files::{glob_matches, is_aimed_at};
use crate::word::ShellWord;

/// Why a path is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Guard {
    /// Settings and hooks of an agent client, which agents may read and not change.
    ClientSettings,
    /// Links, state, settings and data of PVP, which agents may neither read nor change.
    OwnFiles,
}

impl Guard {
    /// The id of the rule that guards such a path.
    pub(crate) fn rule(self) -> &'static str {
        match self {
            Self::ClientSettings => "client.settings",
            Self::OwnFiles => "pvp.own-files",
        }
    }

    /// Whether touching a path in this way is what it is guarded against.
    pub(crate) fn forbids(self, access: Access) -> bool {
        match self {
            Self::OwnFiles => true,
            Self::ClientSettings => access == Access::Write,
        }
    }

    /// Why a path that a command or a call touches is blocked.
    pub(crate) fn reason(self, shown: &str) -> String {
        match self {
            Self::OwnFiles => {
                format!("`{shown}` belongs to PVP itself; no agent may read or change it")
            }
            Self::ClientSettings => {
                format!("changes `{shown}`, which decides what the agent's client asks for")
            }
        }
    }

    /// What people are told where it cannot be seen what happens to the path.
    pub(crate) fn note(self, shown: &str) -> String {
        match self {
            Self::OwnFiles => format!("names files of PVP itself: {shown}"),
            Self::ClientSettings => format!("names settings of an agent client: {shown}"),
        }
    }
}

/// What is done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What PVP keeps, as names that follow each other anywhere in a path, in lower case.
const OWN_FILES: &[&[&str]] = &[
    &[".pvp"],
    &["pvp-data"],
    &["pvp.sqlite3*"],
    &["server.keys"],
    &[".config", "pvp"],
    &["state", "pvp"],
    &["etc", "pvp"],
    &["var", "lib", "pvp"],
    &["run", "pvp"],
    &["run", "user", "*", "pvp"],
    &["$xdg_config_home", "pvp"],
    &["$xdg_state_home", "pvp"],
    &["$xdg_runtime_dir", "pvp"],
];

/// Settings and hooks of agent clients, in the same form; with all that lies below them.
const CLIENT_SETTINGS: &[&[&str]] = &[
    &[".claude", "settings*.json"],
    &[".claude", "hooks"],
    &["$claude_config_dir"],
    &[".claude.json"],
    &[".mcp.json"],
    &["etc", "claude-code"],
    &["application support", "claudecode"],
    &[".codex"],
    &["$codex_home"],
    &["etc", "codex"],
    &["opencode.json"],
    &["opencode.jsonc"],
    &[".opencode"],
    &[".config", "opencode"],
    &["$xdg_config_home", "opencode"],
    &[".gemini", "settings.json"],
    &[".gemini", "hooks"],
    &[".gemini", "extensions"],
    &[".gemini", "policies"],
    &[".gemini", ".env"],
    &["etc", "gemini-cli"],
    &[".copilot"],
    &["$copilot_home"],
    &[".github", "hooks"],
    &[".github", "copilot"],
    &[".qwen"],
    &[".cline*"],
    &[".pi"],
    // The program that their hooks call.
    &["bin", "pvp"],
];

/// Directories with guarded files in them, which go where the directory goes.
const HOLDING_DIRECTORIES: &[&str] = &[".claude", ".gemini"];

/// How much of a hidden name a glob must give before it is aimed at it.
const MIN_AIMED_CHARACTERS: usize = 3;

/// How much of a name in a directory that many programs use.
const MIN_AIMED_BELOW: usize = 2;

/// Every text that names a guarded path has one of these in it, in lower case, unless it is a glob.
const MARKERS: &[&str] = &[
    "pvp",
    "server.keys",
    "claude",
    ".mcp.json",
    "codex",
    "opencode",
    "gemini",
    "copilot",
    ".github/hooks",
    ".qwen",
    ".cline",
    ".pi",
];

/// Which guard stands before a path, if any.
pub(crate) fn guard_of(path: &ResolvedPath, workspace: &Workspace) -> Option<Guard> {
    let names = names_to_judge(path, workspace);
    let named_by = |patterns: &[&[&str]]| patterns.iter().any(|it| is_named(&names, it));
    if named_by(OWN_FILES) || is_own_key(&names) {
        return Some(Guard::OwnFiles);
    }
    let settings = named_by(CLIENT_SETTINGS) || is_below_gemini_in_a_home(path);
    settings.then_some(Guard::ClientSettings)
}

/// Which guard stands before something in this directory, so that it must not be moved, deleted or
/// replaced as a whole.
pub(crate) fn guard_in(path: &ResolvedPath, workspace: &Workspace) -> Option<Guard> {
    let names = names_to_judge(path, workspace);
    let holds = names.last().is_some_and(|last| {
        let mut directories = HOLDING_DIRECTORIES.iter();
        directories.any(|directory| is_first_name(last, directory, 1))
    });
    guard_of(path, workspace).or(holds.then_some(Guard::ClientSettings))
}

/// Whether a text may name a guarded path at all; a quick look before a search.
pub(crate) fn may_name_guarded(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    MARKERS.iter().any(|marker| text.contains(marker))
}

/// Every path that a word may stand for in this directory, with variables left in as names.
pub(crate) fn possible_paths(word: &ShellWord, directory: &ResolvedPath) -> Vec<ResolvedPath> {
    let text = word.text();
    let texts = match word.has_braces && text.len() < 1024 {
        true => crate::normalize::expand_braces(&text),
        false => vec![text],
    };
    let tilde = word.leading_tilde;
    texts
        .iter()
        .map(|text| path_of_text(text, tilde, directory))
        .collect()
}

/// The path that a text stands for, as a shell would see it.
pub(crate) fn path_of_text(text: &str, tilde: bool, directory: &ResolvedPath) -> ResolvedPath {
    let (first, rest) = text.split_once('/').unwrap_or((text, ""));
    match first {
        "~+" | "$PWD" | "${PWD}" if tilde || first.starts_with('$') => {
            directory.join(rest_of(rest))
        }
        "$HOME" | "${HOME}" => ResolvedPath::new(PathRoot::Home).join(rest_of(rest)),
        _ if tilde => ResolvedPath::new(PathRoot::Home).join(rest_of(rest)),
        _ if first.starts_with('$') => ResolvedPath::new(PathRoot::Unknown).join(text),
        _ => directory.join(text),
    }
}

fn rest_of(rest: &str) -> &str {
    rest.trim_start_matches('/')
}

/// The names in a path, in lower case, without those of the workspace that it is in: a workspace may
/// be anywhere.
fn names_to_judge(path: &ResolvedPath, workspace: &Workspace) -> Vec<String> {
    let skipped = match workspace.contains(path) {
        true => workspace.resolve_cwd(None).components.len(),
        false => 0,
    };
    let plain = |name: &String| name.replace(['{', '}', '"', '\''], "").to_ascii_lowercase();
    path.components.iter().skip(skipped).map(plain).collect()
}

fn is_named(names: &[String], pattern: &[&str]) -> bool {
    names.windows(pattern.len()).any(|window| {
        let mut pairs = window.iter().zip(pattern).enumerate();
        pairs.all(|(at, (name, expected))| match at {
            0 => is_first_name(name, expected, pattern.len()),
            // Any glob in a client's own directory finds its settings; `/etc/*` finds ours by chance.
            _ => {
                let in_holding = HOLDING_DIRECTORIES.contains(&pattern[at - 1]);
                let by_chance = glob_head(name).is_some_and(|head| head < MIN_AIMED_BELOW);
                is_name(name, expected) && (in_holding || expected == &"*" || !by_chance)
            }
        })
    })
}

/// Whether a name is this one of a guarded path with so many names. A glob for the first name must be
/// aimed at it, because `*` would be any name.
fn is_first_name(name: &str, expected: &str, length: usize) -> bool {
    let Some(head) = glob_head(name) else {
        return is_name(name, expected);
    };
    let long_enough = length > 1 || head >= MIN_AIMED_CHARACTERS;
    long_enough && samples(expected).any(|sample| is_aimed_at(name, &sample))
}

fn is_name(name: &str, expected: &str) -> bool {
    if glob_head(name).is_some() {
        let pattern: Vec<char> = name.chars().collect();
        return samples(expected).any(|sample| glob_matches(&pattern, &sample));
    }
    match expected.split_once('*') {
        Some((start, end)) => {
            let rest = name.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
        }
        None => name == expected,
    }
}

/// How many characters a glob begins with before its first special one; `None` if it is none.
fn glob_head(name: &str) -> Option<usize> {
    name.find(['*', '?', '['])
}

/// Names that an expected one stands for.
fn samples(expected: &str) -> impl Iterator<Item = String> {
    ["", ".local"]
        .into_iter()
        .map(|middle| expected.replace('*', middle))
        .take(1 + usize::from(expected.contains('*')))
}

/// A `server.key` is PVP's own if a directory above it says so; others are keys of some server.
fn is_own_key(names: &[String]) -> bool {
    let Some((last, parents)) = names.split_last() else {
        return false;
    };
    last.starts_with("server.key") && parents.iter().any(|name| name.contains("pvp"))
}

/// All that Gemini CLI keeps in a home decides what it asks for; in a project only some of it does.
fn is_below_gemini_in_a_home(path: &ResolvedPath) -> bool {
    let names: Vec<&str> = path.components.iter().map(String::as_str).collect();
    let first = match (path.root, names.as_slice()) {
        (PathRoot::Home, [first, ..])
        | (PathRoot::Absolute, ["home" | "Users", _, first, ..] | ["root", first, ..]) => first,
        _ => return false,
    };
    is_first_name(&first.to_ascii_lowercase(), ".gemini", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{ScanUntil, scan_word};

    fn guard(text: &str) -> Option<Guard> {
        let workspace = Workspace {
            directory: Some("/srv/.pvp/app".to_owned()),
            ..Workspace::default()
        };
        let word = scan_word(text, 0, ScanUntil::End).word;
        let paths = possible_paths(&word, &workspace.resolve_cwd(None));
        paths
            .iter()
            .filter_map(|path| guard_of(path, &workspace))
            .max()
    }

    #[test]
    fn what_pvp_keeps_is_guarded_in_every_spelling() {
        for text in [
            ".pvp",
            "./.pvp/link",
            "a/../.PVP/link",
            "pvp-data/pvp.sqlite3-wal",
            "/srv/pvp/server.key",
            "server.keys",
            "~/.config/pvp/link",
            "~/.local/state/pvp",
            "$HOME/.config/pvp",
            "${HOME}/.config/pvp",
            "$XDG_STATE_HOME/pvp/x",
            "\"${XDG_CONFIG_HOME:-$HOME/.config}/pvp\"",
            "/run/user/1000/pvp/socket",
            "/run/user/*/pvp",
            "/home/ann/.config/pvp",
            "/home/ann/.conf*/pvp",
            ".pv?/link",
            ".{pvp,git}/x",
            "'.p'vp",
            "~+/.pvp",
            "$PWD/.pvp",
        ] {
            assert_eq!(guard(text), Some(Guard::OwnFiles), "{text}");
        }
    }

    #[test]
    fn settings_of_clients_are_guarded_in_every_spelling() {
        for text in [
            ".claude/settings.json",
            ".claude/settings.local.json",
            "sub/.claude/hooks/a.sh",
            "~/.claude.json",
            ".mcp.json",
            "/etc/claude-code/managed-settings.json",
            "~/.codex/config.toml",
            ".codex",
            "opencode.jsonc",
            ".opencode/plugin/x.ts",
            "~/.config/opencode/opencode.json",
            ".gemini/settings.json",
            "~/.gemini/anything",
            "/root/.gemini/anything",
            ".github/hooks/x.json",
            ".github/copilot/x",
            "~/.copilot/config.json",
            ".qwen/settings.json",
            ".clinerules",
            ".pi/x",
            "$CODEX_HOME/config.toml",
            ".cl*/settings.json",
            ".claude/*",
            ".claude/s*",
            ".claude/{settings,a}.json",
            ".CLAUDE/Settings.json",
            "~ann/.codex/x",
            "/usr/bin/pvp",
            "~/.local/bin/pvp",
        ] {
            assert_eq!(guard(text), Some(Guard::ClientSettings), "{text}");
        }
    }

    #[test]
    fn other_files_are_not_guarded() {
        for text in [
            "src/main.rs",
            "certs/server.key",
            ".claude/commands/a.md",
            ".claude/worktrees/a/src/main.rs",
            ".claude",
            ".gemini/commands/a.toml",
            ".github/workflows/ci.yml",
            "*",
            "*.json",
            ".*",
            ".c*",
            "**/settings.json",
            "docs/opencode.md",
            ".config/other",
            "pvp",
            "/usr/bin/pvpx",
            ".piper",
            "/etc/*",
            "/etc/p*",
            "~/.config/*",
            "~/.local/share/pvp/demo",
            "",
        ] {
            assert_eq!(guard(text), None, "{text}");
        }
    }

    #[test]
    fn a_directory_that_holds_guarded_files_is_guarded_as_a_whole() {
        let workspace = Workspace::default();
        let directory = workspace.resolve_cwd(None);
        for (text, expected) in [
            (".claude", Some(Guard::ClientSettings)),
            ("a/.gemini/", Some(Guard::ClientSettings)),
            (".cla*", Some(Guard::ClientSettings)),
            (".claude/commands", None),
            (".github", None),
            ("*", None),
        ] {
            let found = guard_in(&path_of_text(text, false, &directory), &workspace);
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn the_quick_look_finds_all_that_is_guarded() {
        for pattern in OWN_FILES.iter().chain(CLIENT_SETTINGS) {
            let text = pattern.join("/").replace('*', "a");
            assert!(may_name_guarded(&text), "{text}");
        }
    }
}
