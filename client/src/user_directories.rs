//! Where a user's links, state and server data are kept: outside of every workspace.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pvp_protocol::Digest;

/// There is no place for a user's files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("HOME is not set to an absolute path; set {variable}")]
pub struct NoUserDirectory {
    variable: &'static str,
}

/// This user's directory for links, journals and the data of servers.
pub fn state_directory() -> Result<PathBuf, NoUserDirectory> {
    user_directory("XDG_STATE_HOME", ".local/state")
}

/// This user's directory for settings, and for the link that applies everywhere.
pub fn config_directory() -> Result<PathBuf, NoUserDirectory> {
    user_directory("XDG_CONFIG_HOME", ".config")
}

/// This user's directory for files that are not private, such as the demo's workspace.
pub fn share_directory() -> Result<PathBuf, NoUserDirectory> {
    user_directory("XDG_DATA_HOME", ".local/share")
}

/// The `pvp` directory below the base directory that a variable names, or below `$HOME/{default}`
/// if it is not set. A relative path does not count: it would lead into the workspace.
fn user_directory(variable: &'static str, default: &str) -> Result<PathBuf, NoUserDirectory> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(default)));
    Ok(base.ok_or(NoUserDirectory { variable })?.join("pvp"))
}

/// A name for what belongs to a directory: its last part, for people, and a digest of its path.
pub fn directory_key(directory: &Path) -> String {
    let last = directory.file_name().unwrap_or(OsStr::new("root"));
    let readable: String = last
        .to_string_lossy()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "-_".contains(*c))
        .take(40)
        .collect();
    let digest = Digest::of(&[directory.as_os_str().as_bytes()]).to_string();
    format!("{readable}-{}", &digest[..16])
}

/// Notes that a server keeps its data in this directory, so that executors on this machine keep
/// reads out of it.
pub fn record_data_directory(data: &Path) -> io::Result<()> {
    let data = data.canonicalize()?;
    let state = state_directory().map_err(io::Error::other)?;
    let servers = state.join("servers");
    create_private_directory(&servers)?;
    for (file, known) in read_data_directories(&servers) {
        if !known.exists() {
            // Another server may be doing the same.
            let _ = std::fs::remove_file(file);
        }
    }
    std::fs::write(
        servers.join(directory_key(&data)),
        data.as_os_str().as_bytes(),
    )
}

/// The data directories that servers of this user were started with.
pub fn recorded_data_directories() -> Vec<PathBuf> {
    let Ok(state) = state_directory() else {
        return Vec::new();
    };
    let known = read_data_directories(&state.join("servers"));
    known.into_iter().map(|(_, data)| data).collect()
}

/// The files in which data directories are noted, and what they say.
fn read_data_directories(servers: &Path) -> Vec<(PathBuf, PathBuf)> {
    let files = std::fs::read_dir(servers).into_iter().flatten();
    files
        .filter_map(|entry| {
            let file = entry.ok()?.path();
            let data = OsString::from_vec(std::fs::read(&file).ok()?);
            Some((file, PathBuf::from(data)))
        })
        .filter(|(_, data)| data.is_absolute())
        .collect()
}

/// Everything of this user's that holds tokens, keys or journals: no read may see it.
pub fn private_paths() -> Vec<PathBuf> {
    let own = [state_directory(), config_directory()];
    let mut paths: Vec<_> = own.into_iter().filter_map(Result::ok).collect();
    paths.extend(recorded_data_directories());
    paths
}

/// Creates a directory, and those above it, that only its owner may enter, and that no repository
/// takes in.
pub fn create_private_directory(directory: &Path) -> io::Result<()> {
    let is_new = !directory.exists();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let own = |base: Result<PathBuf, NoUserDirectory>| {
        base.ok().filter(|base| directory.starts_with(base))
    };
    if let Some(state) = own(state_directory()) {
        return add_ignore_file(&state, IGNORE_ALL);
    }
    match own(config_directory()) {
        // Settings may be kept in a repository; links may not.
        Some(config) => add_ignore_file(&config, IGNORE_LINKS),
        None if is_new => add_ignore_file(directory, IGNORE_ALL),
        None => Ok(()),
    }
}

/// What git is told about a directory of private files.
const IGNORE_ALL: &str = "# Private files of PVP: links, journals, keys.\n*\n";

/// What git is told about the directory of the settings.
const IGNORE_LINKS: &str = "# Links of PVP hold tokens.\n/link\n/agent-link\n/*.new\n/.gitignore\n";

/// Writes a `.gitignore`, unless there is one.
fn add_ignore_file(directory: &Path, content: &str) -> io::Result<()> {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(directory.join(".gitignore"));
    match file {
        Ok(mut file) => file.write_all(content.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_has_a_name_of_its_own_that_people_recognise() {
        let key = |path: &str| directory_key(Path::new(path));
        assert!(key("/home/ann/my project").starts_with("myproject-"));
        assert!(key("/").starts_with("root-"));
        assert_ne!(key("/a/b"), key("/ab"));
        assert_ne!(key("/a/b"), key("/c/b"));
        assert_eq!(key("/a/b"), key("/a/b"));
        assert!(key(&format!("/{}", "x".repeat(255))).len() < 64);
    }
}
