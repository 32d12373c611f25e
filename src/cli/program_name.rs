//! How printed instructions call this program, so that they work as they stand.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::shell_words;

const NAME: &str = "pvp";

/// `pvp` if a shell finds this program by that name, and else the path to it.
pub(super) fn program_name() -> String {
    let Ok(program) = std::env::current_exe() else {
        return NAME.to_owned();
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(NAME))
        .find(|file| is_executable(file));
    if found.is_some_and(|found| is_same_file(&found, &program)) {
        return NAME.to_owned();
    }
    shell_words::quote(&near_path(program).to_string_lossy())
}

/// The path from here if the file is below this directory, and else the whole path.
fn near_path(file: PathBuf) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    match file.strip_prefix(&here) {
        Ok(near) => Path::new(".").join(near),
        Err(_) => file,
    }
}

fn is_executable(file: &Path) -> bool {
    let metadata = file.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.metadata(), other.metadata()) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
