//! Finds the files in a directory tree that usually hold secrets, for the sandbox to leave out.
//!
//! The search runs before every read, because such files may appear between two reads. What it
//! learned of a directory is kept until that directory changes, so later searches only ask for the
//! times of the directories.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pvp_policy::{EntryKind, is_secret_entry};

/// Files and directories of one tree. A first search through so many takes a few seconds.
const MAX_ENTRIES: usize = 1_000_000;

/// The longest search of one tree; a network file system may be slow.
const MAX_DURATION: Duration = Duration::from_secs(5);

/// Trees that are remembered: the workspace and its read roots.
const MAX_TREES: usize = 32;

/// A directory that changed more recently may change again without its times showing it: clocks of
/// file systems are coarse.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Directories below `.git` in which git chooses all names.
const GIT_STORES: &[&str] = &["objects", "refs", "logs", "lfs"];

/// Why it is not known which files of a tree hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretSearchError {
    #[error(
        "{} has more than {max} files, too many to keep secrets out of a read's sight", .root.display()
    )]
    TooMany { root: PathBuf, max: usize },
    #[error(
        "looking for secrets in {} takes longer than {} seconds", .root.display(), .max.as_secs()
    )]
    TooSlow { root: PathBuf, max: Duration },
    #[error("cannot look for secrets in {}: {problem}", .path.display())]
    Unreadable { path: PathBuf, problem: String },
}

/// Finds secret files, and remembers the directories it has seen.
#[derive(Debug)]
pub struct SecretFileFinder {
    trees: Mutex<BTreeMap<PathBuf, SeenDirectories>>,
    max_entries: usize,
    max_duration: Duration,
}

type SeenDirectories = HashMap<OsString, SeenDirectory>;

impl Default for SecretFileFinder {
    fn default() -> Self {
        Self::with_limits(MAX_ENTRIES, MAX_DURATION)
    }
}

impl SecretFileFinder {
    fn with_limits(max_entries: usize, max_duration: Duration) -> Self {
        Self {
            trees: Mutex::new(BTreeMap::new()),
            max_entries,
            max_duration,
        }
    }

    /// The secret files and directories below a directory, and what secret names in it link to, as
    /// paths without symbolic links. Other links are not followed.
    pub fn find(&self, root: &Path) -> Result<Vec<PathBuf>, SecretSearchError> {
        let root = root
            .canonicalize()
            .map_err(|error| unreadable(root, error))?;
        // A panic leaves a map behind that lacks directories, which are then read again.
        let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = trees.remove(&root).unwrap_or_default();
        let mut search = Search {
            root: &root,
            seen,
            kept: HashMap::new(),
            found: Vec::new(),
            entries: 0,
            started_at: Instant::now(),
            finder: self,
        };
        let result = search.run();
        let (mut kept, found) = (search.kept, search.found);
        if result.is_err() {
            // The next search gets further.
            kept.extend(search.seen);
        }
        while trees.len() >= MAX_TREES {
            trees.pop_first();
        }
        trees.insert(root, kept);
        result.map(|()| found)
    }
}

/// What was in a directory when it had these times.
#[derive(Debug)]
struct SeenDirectory {
    version: DirectoryVersion,
    entries: usize,
    directories: Vec<OsString>,
    secrets: Vec<OsString>,
}

/// Changes whenever an entry is added, removed or renamed, or the directory is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectoryVersion {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl DirectoryVersion {
    fn new(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether a later change is certain to give other times.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_secs());
        i64::try_from(now.saturating_sub(SETTLED_AFTER.as_secs()))
            .is_ok_and(|settled| self.changed.0 < settled)
    }
}

struct Search<'a> {
    /// Where it starts.
    root: &'a Path,
    /// What earlier searches saw and this one has not come to.
    seen: SeenDirectories,
    /// What the next search may rely on.
    kept: SeenDirectories,
    /// The secret files and directories so far.
    found: Vec<PathBuf>,
    /// How many files and directories it has come across.
    entries: usize,
    /// When it started.
    started_at: Instant,
    /// Whose limits hold.
    finder: &'a SecretFileFinder,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), SecretSearchError> {
        let mut waiting = vec![self.root.to_owned()];
        while let Some(directory) = waiting.pop() {
            let Some(seen) = self.look_into(&directory)? else {
                continue;
            };
            self.entries += seen.entries;
            waiting.extend(seen.directories.iter().map(|name| directory.join(name)));
            for name in &seen.secrets {
                self.add_secret(&directory, name)?;
            }
            if seen.version.is_settled() {
                self.kept.insert(directory.into_os_string(), seen);
            }
            self.check_limits()?;
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), SecretSearchError> {
        let root = || self.root.to_owned();
        if self.entries > self.finder.max_entries {
            let max = self.finder.max_entries;
            return Err(SecretSearchError::TooMany { root: root(), max });
        }
        if self.started_at.elapsed() > self.finder.max_duration {
            let max = self.finder.max_duration;
            return Err(SecretSearchError::TooSlow { root: root(), max });
        }
        Ok(())
    }

    /// What is in a directory; `None` if it is gone.
    fn look_into(&mut self, directory: &Path) -> Result<Option<SeenDirectory>, SecretSearchError> {
        let metadata = match std::fs::symlink_metadata(directory) {
            Ok(metadata) if metadata.is_dir() => metadata,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(directory, error)),
        };
        let version = DirectoryVersion::new(&metadata);
        if let Some(seen) = self.seen.remove(directory.as_os_str())
            && seen.version == version
        {
            return Ok(Some(seen));
        }
        match read_directory(directory, version) {
            Ok(seen) => Ok(Some(seen)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            // Its files can be opened by those who know their names, so all of it is left out.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && directory != self.root => {
                self.found.push(directory.to_owned());
                Ok(None)
            }
            Err(error) => Err(unreadable(directory, error)),
        }
    }

    /// Adds an entry and, if it is a link, what it leads to.
    fn add_secret(&mut self, directory: &Path, name: &OsStr) -> Result<(), SecretSearchError> {
        let path = directory.join(name);
        let target = path.canonicalize().ok().filter(|target| *target != path);
        for path in std::iter::once(path).chain(target) {
            // Paths are sent as text. One that is none is left out with its directory.
            let text = path.ancestors().find(|path| path.to_str().is_some());
            match text {
                Some(text) if text != self.root && !self.root.starts_with(text) => {
                    self.found.push(text.to_owned());
                }
                _ => return Err(unreadable(&path, "its name is not valid UTF-8")),
            }
        }
        Ok(())
    }
}

fn read_directory(directory: &Path, version: DirectoryVersion) -> std::io::Result<SeenDirectory> {
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let parent = name(directory);
    let in_git = directory.iter().any(|name| name == ".git");
    let mut seen = SeenDirectory {
        version,
        entries: 0,
        directories: Vec::new(),
        secrets: Vec::new(),
    };
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        seen.entries += 1;
        let is_directory = entry.file_type()?.is_dir();
        let kind = match is_directory {
            true => EntryKind::Directory,
            false => EntryKind::File,
        };
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if is_secret_entry(&parent, &text, kind) {
            seen.secrets.push(name);
        } else if is_directory && !(in_git && GIT_STORES.contains(&text.as_ref())) {
            seen.directories.push(name);
        }
    }
    Ok(seen)
}

fn unreadable(path: &Path, problem: impl ToString) -> SecretSearchError {
    SecretSearchError::Unreadable {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        root
    }

    fn found(finder: &SecretFileFinder, root: &Path) -> Vec<String> {
        let real_root = root.canonicalize().unwrap();
        let found = finder.find(root).unwrap().into_iter();
        let mut found: Vec<_> = found
            .map(|path| path.strip_prefix(&real_root).unwrap().display().to_string())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn secret_files_are_found_wherever_they_are() {
        let root = tree(&[
            "README.md",
            ".env",
            "deploy/prod.env",
            "deploy/prod.env.example",
            "a/b/c/server.key",
            ".git/config",
            ".git/objects/ab/x.pem",
            "home/.ssh/known_hosts",
            "credentials/code.rs",
        ]);
        symlink("deploy", root.path().join("linked")).unwrap();
        symlink("README.md", root.path().join("secrets.yaml")).unwrap();
        let finder = SecretFileFinder::default();
        let expected = [
            ".env",
            "README.md",
            "a/b/c/server.key",
            "deploy/prod.env",
            "home/.ssh",
            "secrets.yaml",
        ];
        assert_eq!(found(&finder, root.path()), expected);
    }

    #[test]
    fn what_appears_and_disappears_between_searches_is_noticed() {
        let root = tree(&["a/b/x", "c/y"]);
        let finder = SecretFileFinder::default();
        assert_eq!(found(&finder, root.path()), Vec::<String>::new());
        std::fs::write(root.path().join("a/b/prod.env"), "").unwrap();
        assert_eq!(found(&finder, root.path()), ["a/b/prod.env"]);
        std::fs::rename(root.path().join("a"), root.path().join("d")).unwrap();
        assert_eq!(found(&finder, root.path()), ["d/b/prod.env"]);
        std::fs::remove_file(root.path().join("d/b/prod.env")).unwrap();
        assert_eq!(found(&finder, root.path()), Vec::<String>::new());
    }

    #[test]
    fn a_directory_that_has_not_changed_for_long_is_not_read_again() {
        let root = tree(&["a/.env"]);
        let finder = SecretFileFinder::default();
        let directory = root.path().canonicalize().unwrap().join("a");
        let seen = |finder: &SecretFileFinder| {
            let trees = finder.trees.lock().unwrap();
            trees
                .values()
                .any(|seen| seen.contains_key(directory.as_os_str()))
        };
        assert_eq!(found(&finder, root.path()), ["a/.env"]);
        assert!(
            !seen(&finder),
            "its times may still be those of the next change"
        );
        std::thread::sleep(SETTLED_AFTER + Duration::from_secs(1));
        assert_eq!(found(&finder, root.path()), ["a/.env"]);
        assert!(seen(&finder));
        std::fs::write(directory.join("secrets.yml"), "").unwrap();
        assert_eq!(found(&finder, root.path()), ["a/.env", "a/secrets.yml"]);
        assert!(!seen(&finder));
    }

    #[test]
    fn a_tree_that_is_too_large_is_an_error() {
        let root = tree(&["a", "b", "c/d"]);
        let finder = SecretFileFinder::with_limits(3, MAX_DURATION);
        let refused = finder.find(root.path()).unwrap_err();
        assert!(matches!(refused, SecretSearchError::TooMany { max: 3, .. }));
        let finder = SecretFileFinder::with_limits(MAX_ENTRIES, Duration::ZERO);
        let refused = finder.find(root.path()).unwrap_err();
        assert!(matches!(refused, SecretSearchError::TooSlow { .. }));
    }

    #[test]
    fn a_secret_whose_name_is_no_text_is_left_out_with_its_directory() {
        let root = tree(&["a/b/x"]);
        let name = OsStr::from_bytes(b"caf\xe9.pem");
        std::fs::write(root.path().join("a/b").join(name), "").unwrap();
        assert_eq!(found(&SecretFileFinder::default(), root.path()), ["a/b"]);
        std::fs::write(root.path().join(name), "").unwrap();
        assert!(SecretFileFinder::default().find(root.path()).is_err());
    }
}
