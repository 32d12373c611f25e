//! The files of the demo's small project: made at the start, and made again before it starts over.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;

/// Marks a directory that a demo has made, so that no other directory's files are overwritten.
const MARKER: &str = ".pvp-demo";

const OLD_NOTES: &str = "old-notes";

/// Makes a small project for the agent to work on, in a directory that is new, empty, or of an
/// earlier demo.
pub(super) fn create(workspace: &Path) -> anyhow::Result<PathBuf> {
    if holds_other_files(workspace) {
        bail!(
            "{} holds other files, which the demo could overwrite; give --workspace a new directory",
            workspace.display()
        );
    }
    create_in_own_place(workspace)
}

/// Makes the project in a directory that only demos use.
pub(super) fn create_in_own_place(workspace: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(workspace)
        .with_context(|| format!("creating the workspace {}", workspace.display()))?;
    let workspace = workspace
        .canonicalize()
        .with_context(|| format!("finding {}", workspace.display()))?;
    restore(&workspace)?;
    Ok(workspace)
}

fn holds_other_files(workspace: &Path) -> bool {
    let entries = std::fs::read_dir(workspace);
    let occupied = entries.is_ok_and(|mut entries| entries.next().is_some());
    occupied && !workspace.join(MARKER).is_file()
}

/// Writes the project's files as they were at first.
///
/// Commands of the demo may have replaced them by links to files elsewhere, so no link is followed.
pub(super) fn restore(workspace: &Path) -> anyhow::Result<()> {
    let write = || -> Result<(), std::io::Error> {
        let project = open_directory(CWD, workspace)?;
        write_file(project.as_fd(), MARKER, "")?;
        write_file(project.as_fd(), "notes.txt", "milk\nbread\n")?;
        let old = make_directory(project.as_fd(), OLD_NOTES)?;
        write_file(old.as_fd(), "monday.txt", "flour\n")
    };
    write().with_context(|| format!("writing the demo's files in {}", workspace.display()))
}

fn open_directory(parent: BorrowedFd<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, path, flags, Mode::empty())
}

fn make_directory(parent: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    match open_directory(parent, Path::new(name)) {
        Ok(directory) => return Ok(directory),
        Err(Errno::NOENT) => {}
        // A link or a file is in its place.
        Err(Errno::NOTDIR | Errno::LOOP) => unlinkat(parent, name, AtFlags::empty())?,
        Err(error) => return Err(error),
    }
    mkdirat(parent, name, Mode::from(0o755))?;
    open_directory(parent, Path::new(name))
}

fn write_file(directory: BorrowedFd<'_>, name: &str, text: &str) -> Result<(), std::io::Error> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::from(0o644))?;
    std::fs::File::from(file).write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_files_are_as_at_first_after_any_change() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = create(&directory.path().join("demo")).unwrap();
        std::fs::write(workspace.join("notes.txt"), "changed").unwrap();
        std::fs::remove_dir_all(workspace.join("old-notes")).unwrap();
        std::fs::write(workspace.join("own.txt"), "kept").unwrap();
        assert_eq!(create(&workspace).unwrap(), workspace);
        let read = |name: &str| std::fs::read_to_string(workspace.join(name)).unwrap();
        assert_eq!(read("notes.txt"), "milk\nbread\n");
        assert_eq!(read("old-notes/monday.txt"), "flour\n");
        assert_eq!(read("own.txt"), "kept");
    }

    #[test]
    fn links_that_a_command_left_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = create(&directory.path().join("demo")).unwrap();
        let elsewhere = directory.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("profile"), "precious").unwrap();
        std::fs::remove_file(workspace.join("notes.txt")).unwrap();
        symlink(elsewhere.join("profile"), workspace.join("notes.txt")).unwrap();
        std::fs::remove_dir_all(workspace.join("old-notes")).unwrap();
        symlink(&elsewhere, workspace.join("old-notes")).unwrap();
        restore(&workspace).unwrap();
        let profile = std::fs::read_to_string(elsewhere.join("profile")).unwrap();
        assert_eq!(profile, "precious");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 1);
        let notes = std::fs::symlink_metadata(workspace.join("notes.txt")).unwrap();
        assert!(notes.is_file());
        assert!(workspace.join("old-notes/monday.txt").is_file());
    }

    #[test]
    fn a_directory_with_other_files_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let notes = directory.path().join("notes.txt");
        std::fs::write(&notes, "mine").unwrap();
        let refused = create(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("holds other files"), "{refused}");
        assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
    }
}
