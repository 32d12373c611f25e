//! Where a path leads, as far as can be told from its text.

use crate::secret::{is_secret, may_be_secret};
use crate::word::{Piece, Word};

/// Where a command would run, as far as its executor has said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The executor's working directory; relative paths are below it.
    pub workspace: Option<String>,
}

/// What a path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Slash,
    Home,
    /// A workspace whose own path is not known.
    Workspace,
    /// Above such a workspace.
    Above,
    /// Anywhere.
    Unknown,
}

/// A path without `.`, `..` or repeated slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) root: Root,
    pub(crate) names: Vec<String>,
}

impl Path {
    pub(crate) fn new(root: Root) -> Self {
        Self {
            root,
            names: Vec::new(),
        }
    }

    /// Where this text leads from here; links are not followed.
    pub(crate) fn join(&self, text: &str) -> Path {
        let mut path = if text.starts_with('/') {
            Path::new(Root::Slash)
        } else {
            self.clone()
        };
        for name in text.split('/') {
            path.step(name);
        }
        path
    }

    fn step(&mut self, name: &str) {
        match name {
            "" | "." => {}
            // Links below /proc lead anywhere, so the way back up is not known.
            ".." if self.root == Root::Slash && self.names.len() > 1 && self.names[0] == "proc" => {
                self.root = Root::Unknown;
            }
            ".." if self.names.pop().is_some() => {}
            ".." => {
                self.root = match self.root {
                    Root::Slash => Root::Slash,
                    Root::Home | Root::Unknown => Root::Unknown,
                    Root::Workspace | Root::Above => Root::Above,
                };
            }
            _ => self.names.push(name.to_owned()),
        }
    }

    pub(crate) fn resolve(&self, word: &Word) -> Path {
        let text = word.text();
        if let Some(rest) = text.strip_prefix("$HOME/") {
            return Path::new(Root::Home).join(rest.trim_start_matches('/'));
        }
        if text == "$HOME" || (word.tilde && text == "~") {
            return Path::new(Root::Home);
        }
        if word.tilde {
            return match text.strip_prefix("~/") {
                Some(rest) => Path::new(Root::Home).join(rest.trim_start_matches('/')),
                None => other_tilde(&text),
            };
        }
        if text == "$PWD" {
            return self.clone();
        }
        if !matches!(word.pieces.first(), Some(Piece::Text(_) | Piece::Glob(_))) {
            return Path::new(Root::Unknown);
        }
        self.join(&text)
    }
}

/// `~root/…`, `~+`, `~-`.
fn other_tilde(text: &str) -> Path {
    match text.split_once('/') {
        Some((name, rest)) if !name.contains(['+', '-']) => Path::new(Root::Home).join(rest),
        None if !text.contains(['+', '-']) => Path::new(Root::Home),
        Some(_) | None => Path::new(Root::Unknown),
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = match self.root {
            Root::Slash => "/",
            Root::Home => "~/",
            Root::Workspace => "",
            Root::Above => "../",
            Root::Unknown => "?/",
        };
        write!(f, "{prefix}{}", self.names.join("/"))
    }
}

/// How a read of a path is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reach {
    /// In the workspace or in a system directory.
    Near,
    /// Somewhere else.
    Outside(String),
    /// It may hold secrets, wherever it is.
    Secret(String),
}

/// Directories that every program reads.
const SYSTEM: &[&str] = &[
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "proc", "sys",
];

const SYSTEM_FILES: &[&str] = &[
    "dev/null",
    "dev/zero",
    "dev/urandom",
    "dev/random",
    "dev/stdin",
    "dev/stdout",
    "dev/stderr",
    "dev/fd",
    "var/log",
];

impl Place {
    /// Where relative paths begin for an action with this working directory.
    pub(crate) fn start(&self, cwd: Option<&str>) -> Path {
        let workspace = match &self.workspace {
            Some(workspace) if workspace.starts_with('/') => Path::new(Root::Slash).join(workspace),
            Some(_) | None => Path::new(Root::Workspace),
        };
        match cwd {
            Some(cwd) if cwd.starts_with('~') => {
                Path::new(Root::Home).join(cwd.trim_start_matches(['~', '/']))
            }
            Some(cwd) => workspace.join(cwd),
            None => workspace,
        }
    }

    /// Whether this path may be read without asking.
    pub(crate) fn reach(&self, path: &Path) -> Reach {
        let elsewhere = path.root != Root::Workspace && !self.contains(path);
        if is_secret(path) || (elsewhere && may_be_secret(path)) {
            return Reach::Secret(path.to_string());
        }
        let near = match path.root {
            Root::Workspace => true,
            // Without a known workspace, nothing tells inside from outside.
            Root::Above => self.workspace.is_none(),
            Root::Slash => self.workspace.is_none() || self.contains(path) || is_system(path),
            Root::Home | Root::Unknown => false,
        };
        if near && hidden_parent(path).is_none_or(|parent| self.reach(&parent) == Reach::Near) {
            Reach::Near
        } else {
            Reach::Outside(path.to_string())
        }
    }

    fn contains(&self, path: &Path) -> bool {
        let workspace = self.start(None);
        path.root == workspace.root && path.names.starts_with(&workspace.names)
    }
}

/// Where `.*` leads when it stands for `..`, as it does in many shells.
fn hidden_parent(path: &Path) -> Option<Path> {
    let hidden = |name: &String| name.starts_with('.') && name.contains(['*', '?', '[']);
    let at = path.names.iter().position(hidden)?;
    let mut parent = Path {
        root: path.root,
        names: path.names[..at].to_vec(),
    };
    parent.step("..");
    Some(parent)
}

pub(crate) fn is_system(path: &Path) -> bool {
    let Some(first) = path.names.first() else {
        return false;
    };
    let joined = path.names.join("/");
    // Below these, /proc leads to any place of the machine.
    let doors = ["root", "cwd", "fd", "task", "map_files"];
    if first == "proc" && path.names.iter().any(|name| doors.contains(&name.as_str())) {
        return false;
    }
    SYSTEM.contains(&first.as_str())
        || SYSTEM_FILES.iter().any(|file| {
            joined
                .strip_prefix(file)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{Until, scan};

    fn reach(workspace: Option<&str>, text: &str) -> Reach {
        let place = Place {
            workspace: workspace.map(str::to_owned),
        };
        let word = scan(text, 0, Until::End).word;
        place.reach(&place.start(None).resolve(&word))
    }

    #[test]
    fn paths_in_the_workspace_and_the_system_are_near() {
        for text in [
            "a",
            "a/../b",
            "./x/y",
            "/work/app/a",
            "/usr/share/x",
            "/etc/hosts",
            "/work/../usr/a",
            "/dev/null",
            "../app/x",
            ".env.example",
            "id_rsa.pub",
        ] {
            assert_eq!(reach(Some("/work/app"), text), Reach::Near, "{text}");
        }
    }

    #[test]
    fn paths_elsewhere_are_outside() {
        for text in [
            "..",
            "a/../../b",
            "/home/ann/x",
            "~",
            "~/x",
            "~bob/x",
            "$HOME/x",
            "/",
            "/tmp/x",
            "/work/application",
            ".*",
            "/work/app/../other",
            "$X/y",
            "/proc/self/root/home/ann/x",
            "/proc/1/cwd/x",
        ] {
            assert!(
                matches!(reach(Some("/work/app"), text), Reach::Outside(_)),
                "{text}"
            );
        }
    }

    #[test]
    fn secrets_are_secret_anywhere() {
        for text in [
            "/etc/shadow",
            "~/.ssh/id_rsa",
            ".env",
            "a/.env.production",
            "x.pem",
            "/proc/1/environ",
            "certs/server.key",
            "~/.aws/credentials",
            "/dev/sda",
            "*.pem",
            "/etc/shado?",
            ".ENV",
            "/etc/s*w",
            "/etc/*",
            "/etc/[s]hadow",
            "/proc/1/envi*",
        ] {
            assert!(matches!(reach(None, text), Reach::Secret(_)), "{text}");
        }
    }
}
