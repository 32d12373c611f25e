//! Resolves paths as far as their text allows, and classifies reads of them.

use crate::secret_files::{is_aimed_at_secret, is_secret, may_match_secret};
use crate::word::{ShellWord, WordPart};

/// Where a command would run, as far as its executor has announced it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Workspace {
    /// The executor's working directory, which relative paths start from; `None` if unknown.
    pub directory: Option<String>,
    /// Directories beside it that may be read without a vote, as [`check_read_root`] accepts them.
    pub read_roots: Vec<String>,
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
    /// Below a read root.
    InReadRoot(String),
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
        let inside = path.root == PathRoot::Workspace || self.contains(path);
        let in_read_root = self.is_in_read_root(path);
        if is_secret(path)
            || is_aimed_at_secret(path)
            || (!inside && !in_read_root && may_match_secret(path))
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
        let may_read = |parent: ResolvedPath| match self.classify_read(&parent) {
            PathAccess::Allowed | PathAccess::InReadRoot(_) => true,
            PathAccess::Outside(_) | PathAccess::Secret(_) => false,
        };
        match (near, in_read_root) {
            _ if !dot_glob_parent(path).is_none_or(may_read) => {
                PathAccess::Outside(path.to_string())
            }
            (true, _) => PathAccess::Allowed,
            (false, true) => PathAccess::InReadRoot(path.to_string()),
            (false, false) => PathAccess::Outside(path.to_string()),
        }
    }

    fn is_in_read_root(&self, path: &ResolvedPath) -> bool {
        let absolute = ResolvedPath::new(PathRoot::Absolute);
        path.root == PathRoot::Absolute
            && self
                .read_roots
                .iter()
                .any(|root| path.components.starts_with(&absolute.join(root).components))
    }

    /// Whether a search through all of this path is a search through the workspace or a read root,
    /// although the path lies directly below `/`, such as `/app`.
    pub(crate) fn may_search_all_of(&self, path: &ResolvedPath) -> bool {
        !is_system_path(path)
            && !path.components.is_empty()
            && (self.contains(path) || self.is_in_read_root(path))
    }

    /// Whether the path is in the workspace.
    pub(crate) fn contains(&self, path: &ResolvedPath) -> bool {
        let workspace = self.resolve_cwd(None);
        path.root == workspace.root && path.components.starts_with(&workspace.components)
    }
}

/// Why a directory cannot be a read root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadRootProblem {
    #[error(
        "`{0}` is not an absolute path without `.`, `..`, `//`, a slash at the end, or shell characters"
    )]
    NotNormal(String),
    #[error("`{0}` is too wide; name the directory that is needed")]
    TooWide(String),
    #[error("`{0}` may hold secrets")]
    Secret(String),
}

/// Directories that are never a read root, as whole subtrees: what they hold is not files.
const NEVER_READ_ROOTS: &[&str] = &["proc", "sys", "dev", "run", "boot"];

/// Directories in a home that also hold what PVP and other programs keep for themselves.
const HOME_SETTINGS: &[&[&str]] = &[&[".config"], &[".local"], &[".local", "state"]];

/// The longest path of a read root, in bytes.
const MAX_READ_ROOT_BYTES: usize = 4096;

/// Checks that a directory can be a read root: written so that it means the same to everyone, not
/// the whole machine or a whole home, and not known to hold secrets.
pub fn check_read_root(directory: &str) -> Result<(), ReadRootProblem> {
    let plain = |c: char| !c.is_control() && !"*?[]{}~$`\"'\\".contains(c);
    let path = ResolvedPath::new(PathRoot::Absolute).join(directory);
    let normal = directory.len() <= MAX_READ_ROOT_BYTES
        && directory.chars().all(plain)
        && path.to_string() == directory;
    if !normal {
        return Err(ReadRootProblem::NotNormal(directory.to_owned()));
    }
    if is_secret(&path) {
        return Err(ReadRootProblem::Secret(directory.to_owned()));
    }
    let names: Vec<&str> = path.components.iter().map(String::as_str).collect();
    let too_wide = match names.as_slice() {
        [] | ["home" | "Users"] | ["home" | "Users", _] | ["root"] => true,
        [first, ..] if NEVER_READ_ROOTS.contains(first) => true,
        ["var"] => true,
        ["var", state, ..] if STATE_DIRS.contains(state) => true,
        ["home" | "Users", _, hidden, ..] | ["root", hidden, ..]
            if hidden.starts_with('.') && !TOOL_DIRS.contains(hidden) =>
        {
            true
        }
        names => HOME_SETTINGS.iter().any(|end| names.ends_with(end)),
    };
    match too_wide {
        true => Err(ReadRootProblem::TooWide(directory.to_owned())),
        false => Ok(()),
    }
}

/// Directories in `/var` in which services and users keep what is theirs.
const STATE_DIRS: &[&str] = &["backups", "cache", "db", "lib", "mail", "run", "spool"];

/// Hidden directories in a home that hold code of tools. The others hold mail, wallets and cookies.
const TOOL_DIRS: &[&str] = &[
    ".cargo", ".rustup", ".nvm", ".pyenv", ".npm", ".m2", ".gradle",
];

/// The directory to offer as a read root for a path outside of the workspace: the path itself, or
/// its parent if its name looks like a file's.
pub(crate) fn read_root_for(path: &ResolvedPath) -> Option<String> {
    let glob = |name: &String| name.contains(['*', '?', '[']);
    // `Makefile` and `LICENSE` are files too.
    let looks_like_a_file = |name: &String| {
        name.trim_start_matches('.').contains('.')
            || name.contains(|c: char| c.is_ascii_uppercase())
    };
    let mut directory = path.clone();
    if let Some(at) = directory.components.iter().position(glob) {
        directory.components.truncate(at);
    } else if directory.components.last().is_some_and(looks_like_a_file) {
        directory.components.pop();
    }
    let directory = (directory.root == PathRoot::Absolute).then(|| directory.to_string())?;
    check_read_root(&directory).is_ok().then_some(directory)
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
            ..Workspace::default()
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

    fn access_with_root(text: &str) -> PathAccess {
        let workspace = Workspace {
            directory: Some("/work/app".to_owned()),
            read_roots: vec!["/data/sets".to_owned()],
        };
        let word = scan_word(text, 0, ScanUntil::End).word;
        workspace.classify_read(&workspace.resolve_cwd(None).resolve(&word))
    }

    #[test]
    fn a_read_root_and_all_below_it_may_be_read_except_for_secrets() {
        for text in ["/data/sets", "/data/sets/a", "/data/x/../sets/*.csv"] {
            let access = access_with_root(text);
            assert!(matches!(access, PathAccess::InReadRoot(_)), "{text}");
        }
        for text in [
            "/data",
            "/data/setstwo",
            "/data/sets/..",
            "/data/sets/../x",
            "/data/sets/.*",
            "~/data/sets",
        ] {
            let access = access_with_root(text);
            assert!(matches!(access, PathAccess::Outside(_)), "{text}");
        }
        for text in ["/data/sets/.env", "/data/sets/prod.env", "/data/sets/.e*"] {
            let access = access_with_root(text);
            assert!(matches!(access, PathAccess::Secret(_)), "{text}");
        }
        assert_eq!(access_with_root("/work/app/a"), PathAccess::Allowed);
    }

    #[test]
    fn a_read_root_is_a_plain_directory_that_is_not_too_wide_and_not_secret() {
        for root in [
            "/data",
            "/srv/sets",
            "/home/ann/other",
            "/root/other",
            "/opt/a b",
        ] {
            assert_eq!(check_read_root(root), Ok(()), "{root}");
        }
        for root in [
            "",
            "data",
            "/data/",
            "/data//x",
            "/data/../x",
            "/data/./x",
            "/data/*",
            "~/x",
            "/a$b",
            "/a\nb",
        ] {
            let problem = ReadRootProblem::NotNormal(root.to_owned());
            assert_eq!(check_read_root(root), Err(problem));
        }
        for root in [
            "/",
            "/home",
            "/home/ann",
            "/root",
            "/Users/ann",
            "/proc",
            "/proc/1/root",
            "/dev",
            "/run/user/1000",
            "/home/ann/.config",
            "/home/ann/.local/state",
        ] {
            let problem = ReadRootProblem::TooWide(root.to_owned());
            assert_eq!(check_read_root(root), Err(problem));
        }
        for root in [
            "/home/ann/.ssh",
            "/home/ann/.config/pvp",
            "/home/ann/.local/state/pvp/x",
            "/srv/pvp-data",
        ] {
            let problem = ReadRootProblem::Secret(root.to_owned());
            assert_eq!(check_read_root(root), Err(problem));
        }
    }
}
