//! Keeps a data directory out of the repository that it may lie in.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

const IGNORE_FILE: &str = ".gitignore";

/// What git is told about a data directory.
const IGNORE_ALL: &str = "# Private data of a PVP server: logs, keys, hashes of tokens.\n*\n";

/// How the names of what a server keeps in its data directory begin.
const OWN_NAMES: &[&str] = &[
    "pvp.", "server.", "copy-", "archives", "executor", "tls-", "acme",
];

/// Adds a file that makes git ignore the whole directory. A directory that holds anything else,
/// such as a repository's own files, is left alone: git would ignore those too.
pub(super) fn add(dir: &Path) -> io::Result<()> {
    let path = dir.join(IGNORE_FILE);
    if path.symlink_metadata().is_ok() || !holds_only_own_files(dir)? {
        return Ok(());
    }
    match OpenOptions::new().create_new(true).write(true).open(path) {
        Ok(mut file) => file.write_all(IGNORE_ALL.as_bytes()),
        // Another process opens the same directory.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // A directory that cannot be written to is reported where that matters.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

fn holds_only_own_files(dir: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if !OWN_NAMES.iter().any(|own| name.starts_with(own)) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_is_ignored_and_a_repository_is_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("pvp.sqlite3"), "").unwrap();
        add(dir.path()).unwrap();
        let written = std::fs::read_to_string(dir.path().join(IGNORE_FILE)).unwrap();
        assert_eq!(written.lines().last(), Some("*"));
        std::fs::write(dir.path().join(IGNORE_FILE), "mine\n").unwrap();
        add(dir.path()).unwrap();
        let kept = std::fs::read_to_string(dir.path().join(IGNORE_FILE)).unwrap();
        assert_eq!(kept, "mine\n");

        let repository = tempfile::tempdir().unwrap();
        std::fs::create_dir(repository.path().join("src")).unwrap();
        add(repository.path()).unwrap();
        assert!(!repository.path().join(IGNORE_FILE).exists());
    }
}
