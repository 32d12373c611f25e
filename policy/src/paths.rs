//! Resolves paths as far as their text allows, and classifies reads of them.

use crate::secret_files::{is_aimed_at_secret, is_secret, may_match_secret};
use crate::word::{ShellWord, WordPart};

/// Where a command would run, as far as its executor has announced it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workspace {
    /// The executor's working directory, which relative paths start from; `None` if unknown.
    pub directory: Option<String>,
}

/// What a path is relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathRoot {
    Absolute,
    Home,
    /// A workspace whose own path is unknown.
    Workspace,
    /// Above such a workspace.
    AboveWorkspace,
    /// It may be anywhere.
    Unknown,
}

/// A path without `.`, `..` or repeated slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedPath {
    pub(crate) root: PathRoot,
    pub(crate) components: Vec<String>,
}

impl ResolvedPath {
    pub(crate) fn new(root: PathRoot) -> Self {
        Self {
            root,
            components: Vec::new(),
        }
    }

    /// Resolves a path relative to this one, without following symbolic links.
    pub(crate) fn join(&self, text: &str) -> ResolvedPath {
        let mut path = if text.starts_with('/') {
            ResolvedPath::new(PathRoot::Absolute)
        } else {
            self.clone()
        };
        for name in text.split('/') {
            path.push_component(name);
        }
        path
    }

    fn push_component(&mut self, name: &str) {
        match name {
            "" | "." => {}
            // Links below /proc may lead anywhere, so their parent directory is unknown.
            ".." if self.root == PathRoot::Absolute
                && self.components.len() > 1
                && self.components[0] == "proc" =>
            {
                self.root = PathRoot::Unknown;
            }
            ".." if self.components.pop().is_some() => {}
            ".." => {
                self.root = match self.root {
                    PathRoot::Absolute => PathRoot::Absolute,
                    PathRoot::Home | PathRoot::Unknown => PathRoot::Unknown,
                    PathRoot::Workspace | PathRoot::AboveWorkspace => PathRoot::AboveWorkspace,
                };
            }
            _ => self.components.push(name.to_owned()),
        }
    }

    pub(crate) fn resolve(&self, word: &ShellWord) -> ResolvedPath {
        let text = word.text();
        if let Some(rest) = text.strip_prefix("$HOME/") {
            return ResolvedPath::new(PathRoot::Home).join(rest.trim_start_matches('/'));
        }
        if text == "$HOME" || (word.leading_tilde && text == "~") {
            return ResolvedPath::new(PathRoot::Home);
        }
        if word.leading_tilde {
            return match text.strip_prefix("~/") {
                Some(rest) => ResolvedPath::new(PathRoot::Home).join(rest.trim_start_matches('/')),
                None => resolve_user_tilde(&text),
            };
        }
        if text == "$PWD" {
            return self.clone();
        }
        if !matches!(
            word.parts.first(),
            Some(WordPart::Text(_) | WordPart::Glob(_))
        ) {
            return ResolvedPath::new(PathRoot::Unknown);
        }
        self.join(&text)
    }
}

/// Resolves `~root/…`, `~+` and `~-`.
fn resolve_user_tilde(text: &str) -> ResolvedPath {
    match text.split_once('/') {
        Some((name, rest)) if !name.contains(['+', '-']) => {
            ResolvedPath::new(PathRoot::Home).join(rest)
        }
        None if !text.contains(['+', '-']) => ResolvedPath::new(PathRoot::Home),
        Some(_) | None => ResolvedPath::new(PathRoot::Unknown),
    }
}

impl std::fmt::Display for ResolvedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = match self.root {
            PathRoot::Absolute => "/",
            PathRoot::Home => "~/",
            PathRoot::Workspace => "",
            PathRoot::AboveWorkspace => "../",
            PathRoot::Unknown => "?/",
        };
        write!(f, "{prefix}{}", self.components.join("/"))
    }
}

/// Whether a path may be read without a vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathAccess {
    /// In the workspace or in a system directory.
    Allowed,
    /// Outside of them.
    Outside(String),
    /// A file that may hold secrets, wherever it is.
    Secret(String),
}

/// Directories that every program reads.
const SYSTEM_DIRS: &[&str] = &[
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

impl Workspace {
    /// The directory that relative paths of an action with this `cwd` start from.
    pub(crate) fn resolve_cwd(&self, cwd: Option<&str>) -> ResolvedPath {
        let workspace = match &self.directory {
            Some(workspace) if workspace.starts_with('/') => {
                ResolvedPath::new(PathRoot::Absolute).join(workspace)
            }
            Some(_) | None => ResolvedPath::new(PathRoot::Workspace),
        };
        match cwd {
            Some(cwd) if cwd.starts_with('~') => {
                ResolvedPath::new(PathRoot::Home).join(cwd.trim_start_matches(['~', '/']))
            }
            Some(cwd) => workspace.join(cwd),
            None => workspace,
        }
    }

    /// Whether two values of `cwd` certainly name the same directory. A `..` may lead through a
    /// link to anywhere, so nothing is certain about it.
    pub fn is_same_directory(&self, one: Option<&str>, other: Option<&str>) -> bool {
        let certain = |cwd: Option<&str>| {
            cwd.is_none_or(|cwd| !cwd.starts_with('~') && cwd.split('/').all(|name| name != ".."))
        };
        certain(one) && certain(other) && self.resolve_cwd(one) == self.resolve_cwd(other)
    }

    /// Whether this path may be read without a vote.
    pub(crate) fn classify_read(&self, path: &ResolvedPath) -> PathAccess {
        let outside_workspace = path.root != PathRoot::Workspace && !self.contains(path);
        if is_secret(path)
            || is_aimed_at_secret(path)
            || (outside_workspace && may_match_secret(path))
        {
            return PathAccess::Secret(path.to_string());
        }
        let near = match path.root {
            PathRoot::Workspace => true,
            // Without a known workspace there is no inside or outside.
            PathRoot::AboveWorkspace => self.directory.is_none(),
            PathRoot::Absolute => {
                self.directory.is_none() || self.contains(path) || is_system_path(path)
            }
            PathRoot::Home | PathRoot::Unknown => false,
        };
        if near
            && dot_glob_parent(path)
                .is_none_or(|parent| self.classify_read(&parent) == PathAccess::Allowed)
        {
            PathAccess::Allowed
        } else {
            PathAccess::Outside(path.to_string())
        }
    }

    /// Whether the path is in the workspace.
    pub(crate) fn contains(&self, path: &ResolvedPath) -> bool {
        let workspace = self.resolve_cwd(None);
        path.root == workspace.root && path.components.starts_with(&workspace.components)
    }
}

/// The path if `.*` matches `..`, as it does in many shells.
fn dot_glob_parent(path: &ResolvedPath) -> Option<ResolvedPath> {
    let hidden = |name: &String| name.starts_with('.') && name.contains(['*', '?', '[']);
    let at = path.components.iter().position(hidden)?;
    let mut parent = ResolvedPath {
        root: path.root,
        components: path.components[..at].to_vec(),
    };
    parent.push_component("..");
    Some(parent)
}

pub(crate) fn is_system_path(path: &ResolvedPath) -> bool {
    let Some(first) = path.components.first() else {
        return false;
    };
    let joined = path.components.join("/");
    // Below these, links in /proc lead to anywhere on the machine.
    let escape_links = ["root", "cwd", "fd", "task", "map_files"];
    if first == "proc"
        && path
            .components
            .iter()
            .any(|name| escape_links.contains(&name.as_str()))
    {
        return false;
    }
    SYSTEM_DIRS.contains(&first.as_str())
        || SYSTEM_FILES.iter().any(|file| {
            joined
                .strip_prefix(file)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::{ScanUntil, scan_word};

    fn access_to(workspace: Option<&str>, text: &str) -> PathAccess {
        let workspace = Workspace {
            directory: workspace.map(str::to_owned),
        };
        let word = scan_word(text, 0, ScanUntil::End).word;
        workspace.classify_read(&workspace.resolve_cwd(None).resolve(&word))
    }

    #[test]
    fn paths_in_the_workspace_and_the_system_may_be_read() {
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
            assert_eq!(
                access_to(Some("/work/app"), text),
                PathAccess::Allowed,
                "{text}"
            );
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
                matches!(access_to(Some("/work/app"), text), PathAccess::Outside(_)),
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
            ".e*",
            "config/.en?",
            "cred*",
            ".git/config",
            ".git/modules/sub/config",
        ] {
            assert!(
                matches!(access_to(None, text), PathAccess::Secret(_)),
                "{text}"
            );
        }
    }
}
