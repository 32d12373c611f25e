//! Tells which directories have files of PVP somewhere below them, so that whoever reads or copies
//! the whole directory gets those too.

use crate::paths::{PathRoot, ResolvedPath, Workspace};
use crate::secret_files::glob_matches;

/// What a path leads to if everything below it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A pattern in it may find files of PVP by itself.
    Pattern,
    /// One of the few directories that PVP's own are in.
    NearOwnFiles,
    /// A whole home, or all homes.
    Home,
    /// A directory of the system in which PVP may keep something, or with everything in it.
    System,
}

/// Where PVP keeps files below a home, in lower case.
const IN_HOMES: &[&[&str]] = &[&[".local", "state", "pvp"], &[".config", "pvp"]];

/// Where it does so in what is not known to be a home. A `.config` is in many projects.
const ANYWHERE: &[&[&str]] = &[&[".local", "state", "pvp"]];

/// Where it keeps files of the whole machine.
const IN_SYSTEM: &[&[&str]] = &[
    &["etc", "pvp"],
    &["var", "lib", "pvp"],
    &["run", "pvp"],
    &["run", "user", "*", "pvp"],
];

/// Variables that name a directory which holds PVP's own.
const VARIABLES: &[&str] = &["$xdg_state_home", "$xdg_config_home", "$xdg_runtime_dir"];

/// What is reached below a path.
pub(crate) fn reach(path: &ResolvedPath, workspace: &Workspace) -> Option<Reach> {
    let plain = |name: &String| name.replace(['{', '}', '"', '\''], "").to_ascii_lowercase();
    let names: Vec<String> = path.components.iter().map(plain).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match path.root {
        PathRoot::Home => reach_in_home(&names),
        PathRoot::Absolute => match names.as_slice() {
            ["home" | "users"] => Some(Reach::Home),
            [] => Some(Reach::System),
            ["home" | "users", _, rest @ ..] | ["root", rest @ ..] => {
                reach_in_home(rest).or_else(|| reach_in_workspace(&names, path, workspace))
            }
            names if workspace.contains(path) => reach_in_workspace(names, path, workspace),
            names => {
                held(names, ANYWHERE).or_else(|| held(names, IN_SYSTEM).map(|_| Reach::System))
            }
        },
        PathRoot::Workspace => held(&names, IN_HOMES),
        PathRoot::AboveWorkspace => held(&names, ANYWHERE),
        PathRoot::Unknown => reach_below_variable(&names),
    }
}

/// A workspace may be a home, wherever it is.
fn reach_in_workspace(names: &[&str], path: &ResolvedPath, workspace: &Workspace) -> Option<Reach> {
    let skipped = workspace.resolve_cwd(None).components.len();
    let inside = names.get(skipped..).filter(|_| workspace.contains(path));
    held(inside?, ANYWHERE)
}

fn reach_in_home(names: &[&str]) -> Option<Reach> {
    match names {
        [] => Some(Reach::Home),
        ["**", ..] => Some(Reach::Home),
        names => held(names, IN_HOMES),
    }
}

/// What a path is that begins with a variable, or with one that has another value if it is not set.
fn reach_below_variable(names: &[&str]) -> Option<Reach> {
    let is_held = |name: &&str| VARIABLES.contains(name);
    match names {
        [name] if is_held(name) => Some(Reach::NearOwnFiles),
        [first, .., ".local"] | [first, .., ".local", "state"] | [first, .., ".config"]
            if first.starts_with('$') =>
        {
            Some(Reach::NearOwnFiles)
        }
        [first, rest @ ..] if first.starts_with('$') => held(rest, ANYWHERE),
        _ => None,
    }
}

/// How names from a home, or from the root, compare with those of what PVP keeps there.
fn held(names: &[&str], places: &[&[&str]]) -> Option<Reach> {
    let is_pattern = |name: &&str| name.contains(['*', '?', '[']);
    let fits = |place: &&&[&str]| {
        let mut pairs = names.iter().zip(place.iter());
        !names.is_empty() && pairs.all(|(name, expected)| may_be(name, expected))
    };
    let place = places.iter().find(fits)?;
    let pattern = names.iter().any(is_pattern) && names.len() > place.len();
    match names.len() <= place.len() {
        true => Some(Reach::NearOwnFiles),
        false => pattern.then_some(Reach::Pattern),
    }
}

fn may_be(name: &str, expected: &str) -> bool {
    // A shell's `*` leaves out hidden names.
    let hidden = expected.starts_with('.') && name.starts_with(['*', '?']) && name != "**";
    let pattern: Vec<char> = name.chars().collect();
    name == expected || expected == "*" || !hidden && glob_matches(&pattern, expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guarded_paths::path_of_text;

    fn found(directory: Option<&str>, text: &str) -> Option<Reach> {
        let workspace = Workspace {
            directory: directory.map(str::to_owned),
            ..Workspace::default()
        };
        let path = path_of_text(text, text.starts_with('~'), &workspace.resolve_cwd(None));
        reach(&path, &workspace)
    }

    #[test]
    fn directories_above_what_pvp_keeps_are_known_by_their_names() {
        for (text, expected) in [
            ("~", Reach::Home),
            ("$HOME/", Reach::Home),
            ("/home/ann", Reach::Home),
            ("/home", Reach::Home),
            ("/root", Reach::Home),
            ("/", Reach::System),
            ("/etc", Reach::System),
            ("/var/lib", Reach::System),
            ("/run/user/1000", Reach::System),
            ("~/.local", Reach::NearOwnFiles),
            ("~/.local/state/", Reach::NearOwnFiles),
            ("~/.local/state/*", Reach::NearOwnFiles),
            ("~/.config", Reach::NearOwnFiles),
            ("~/.LOCAL", Reach::NearOwnFiles),
            ("~ann/.local", Reach::NearOwnFiles),
            ("~/.l*", Reach::NearOwnFiles),
            ("~/.l*/st*/p*/links/x", Reach::Pattern),
            ("~/.local/state/*/links/*/link", Reach::Pattern),
            ("~/.config/*/x", Reach::Pattern),
            ("/home/ann/.local", Reach::NearOwnFiles),
            (".local/state", Reach::NearOwnFiles),
            (".local/state/*/links/x", Reach::Pattern),
            ("$XDG_STATE_HOME", Reach::NearOwnFiles),
            ("${XDG_STATE_HOME:-$HOME/.local/state}", Reach::NearOwnFiles),
        ] {
            assert_eq!(found(Some("/work/app"), text), Some(expected), "{text}");
        }
        for (text, expected) in [
            (".", Reach::Home),
            (".config", Reach::NearOwnFiles),
            (".local/state/*/links/x", Reach::Pattern),
            ("..", Reach::Home),
        ] {
            assert_eq!(found(Some("/home/ann"), text), Some(expected), "{text}");
        }
        assert_eq!(found(None, ".local"), Some(Reach::NearOwnFiles));
        let below_a_home = found(Some("/home/ann/app"), ".local/state");
        assert_eq!(below_a_home, Some(Reach::NearOwnFiles));
    }

    #[test]
    fn other_directories_hold_none_of_it() {
        for text in [
            ".",
            "src",
            ".config",
            ".config/*/x",
            "*",
            "*/*/*/x",
            "~/.local/share",
            "~/.local/bin/*",
            "~/code",
            "~/.config/nvim",
            "/etc/nginx",
            "/usr/share",
            "/opt",
            "$X/src",
            "state",
        ] {
            assert_eq!(found(Some("/work/app"), text), None, "{text}");
        }
        assert_eq!(found(None, "."), None);
        assert_eq!(found(Some("/home/ann/app"), "."), None);
        assert_eq!(found(Some("/home/ann/app"), ".config"), None);
    }
}
