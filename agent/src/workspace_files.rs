//! Opens and replaces files of the workspace without being led out of it.
//!
//! Every path is resolved by the kernel from one open directory, beneath which it has to stay
//! (`openat2`). What was opened is held open, so that swapping a directory for a link later has no
//! effect.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pvp_client::fresh_id;
use pvp_protocol::Digest;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// Larger files are not replaced or edited, because their content has to be hashed and kept.
pub(crate) const MAX_CHANGED_BYTES: u64 = 64 * 1024 * 1024;

/// Linux opens no longer path.
const MAX_PATH_BYTES: usize = 4096;

/// The kernel asks to try again while somebody renames directories.
const MAX_ATTEMPTS: usize = 32;

/// The permissions of a new file, from which the process's mask takes away.
const NEW_FILE_MODE: u32 = 0o666;

/// The same for a directory.
const NEW_DIRECTORY_MODE: u32 = 0o777;

/// Why a file cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenProblem {
    #[error("there is no file `{0}`")]
    Missing(String),
    #[error("{0}")]
    Unfit(String),
}

/// Whether links are followed that stay in the workspace.
#[derive(Debug, Clone, Copy)]
enum Links {
    Follow,
    Refuse,
}

/// The workspace, held open.
#[derive(Debug)]
pub(crate) struct WorkspaceFiles {
    root: OwnedFd,
    /// The path of the workspace itself, without links.
    real_path: PathBuf,
}

/// A regular file that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    /// Where it really is, from the workspace.
    pub(crate) real_path: PathBuf,
}

impl WorkspaceFiles {
    pub(crate) fn open(workspace: &Path) -> Result<Self, String> {
        let opened = || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let root = rustix::fs::open(workspace, flags, Mode::empty())?;
            let real_path = path_of(root.as_fd())?;
            Ok::<_, std::io::Error>(Self { root, real_path })
        };
        opened().map_err(|error| format!("cannot open {}: {error}", workspace.display()))
    }

    /// The path of the workspace itself, without links.
    pub(crate) fn real_path(&self) -> &Path {
        &self.real_path
    }

    /// Opens a regular file for reading. Links are followed if they stay in the workspace.
    pub(crate) fn open_to_read(&self, path: &str) -> Result<OpenedFile, OpenProblem> {
        check_plain(path).map_err(OpenProblem::Unfit)?;
        let flags = OFlags::PATH;
        let found = open_beneath(self.root.as_fd(), Path::new(path), flags, Links::Follow);
        let found = found.map_err(|errno| open_problem(path, errno))?;
        self.reopen(path, found.as_fd())
    }

    /// Opens for reading what was found. Anything but a regular file is not opened at all: opening
    /// a named pipe waits, and opening a device may do something.
    fn reopen(&self, path: &str, found: BorrowedFd<'_>) -> Result<OpenedFile, OpenProblem> {
        let unfit = |error: std::io::Error| OpenProblem::Unfit(format!("`{path}`: {error}"));
        check_regular(path, found)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(fd_link(found), flags, Mode::empty());
        let file = File::from(file.map_err(|errno| unfit(errno.into()))?);
        let real_path = path_of(file.as_fd()).map_err(unfit)?;
        let metadata = file.metadata().map_err(unfit)?;
        // The path of a deleted file means nothing.
        if metadata.nlink() == 0 {
            return Err(OpenProblem::Missing(path.to_owned()));
        }
        match real_path.strip_prefix(&self.real_path) {
            Ok(real_path) => Ok(OpenedFile {
                real_path: real_path.to_owned(),
                file,
                metadata,
            }),
            Err(_) => Err(OpenProblem::Unfit(format!(
                "`{path}` leads out of the workspace"
            ))),
        }
    }

    /// Looks at a file that is to be created, replaced or edited. Nothing is changed yet.
    pub(crate) fn begin_change(&self, path: &str) -> Result<FileChange<'_>, String> {
        check_plain(path)?;
        let (parent_path, name) = match path.rsplit_once('/') {
            Some((parent, name)) => (parent, name),
            None => (".", path),
        };
        let (parent_path, name) = (PathBuf::from(parent_path), OsString::from(name));
        let parent = match self.open_directory(&parent_path) {
            Ok(parent) => Some(parent),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(open_problem(path, errno).to_string()),
        };
        let present = match &parent {
            Some(parent) => self.read_present(path, parent.as_fd(), &name)?,
            None => None,
        };
        Ok(FileChange {
            files: self,
            path: path.to_owned(),
            parent_path,
            name,
            parent,
            present,
        })
    }

    fn open_directory(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        open_beneath(self.root.as_fd(), path, flags, Links::Refuse)
    }

    /// The file that is there, with its whole content.
    fn read_present(
        &self,
        path: &str,
        parent: BorrowedFd<'_>,
        name: &OsString,
    ) -> Result<Option<PresentFile>, String> {
        let found = match open_beneath(parent, Path::new(name), OFlags::PATH, Links::Refuse) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(open_problem(path, errno).to_string()),
        };
        let opened = match self.reopen(path, found.as_fd()) {
            Ok(opened) => opened,
            Err(OpenProblem::Missing(_)) => return Ok(None),
            Err(problem @ OpenProblem::Unfit(_)) => return Err(problem.to_string()),
        };
        let mut content = Vec::new();
        let mut limited = opened.file.take(MAX_CHANGED_BYTES + 1);
        limited
            .read_to_end(&mut content)
            .map_err(|error| format!("`{path}`: {error}"))?;
        if content.len() as u64 > MAX_CHANGED_BYTES {
            let most = MAX_CHANGED_BYTES / 1024 / 1024;
            return Err(format!(
                "`{path}` has more than {most} MiB, too much to change"
            ));
        }
        Ok(Some(PresentFile {
            digest: Digest::of_content(&content),
            content,
            real_path: opened.real_path,
            names: opened.metadata.nlink(),
            version: FileVersion::new(&opened.metadata),
            rights: FileRights::new(&opened.metadata),
        }))
    }
}

/// A file as it was found.
#[derive(Debug)]
pub(crate) struct PresentFile {
    /// All of it.
    pub(crate) content: Vec<u8>,
    /// The SHA-256 of the content.
    pub(crate) digest: Digest,
    /// Where it really is, from the workspace.
    pub(crate) real_path: PathBuf,
    /// How many names it has.
    pub(crate) names: u64,
    /// By which a later change is noticed.
    version: FileVersion,
    /// What a file that replaces it gets.
    rights: FileRights,
}

/// Whose file it is, and what others may do with it.
#[derive(Debug, Clone, Copy)]
struct FileRights {
    owner: u32,
    group: u32,
    mode: u32,
}

impl FileRights {
    fn new(metadata: &Metadata) -> Self {
        Self {
            owner: metadata.uid(),
            group: metadata.gid(),
            // Not the bits by which a program gets the rights of its owner.
            mode: metadata.mode() & 0o777,
        }
    }

    /// Gives a file these rights.
    fn give_to(self, file: &File) -> std::io::Result<()> {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (self.owner, self.group) {
            // Only root may give files away; for others, the file becomes their own.
            let _ = std::os::unix::fs::fchown(file, Some(self.owner), Some(self.group));
        }
        Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(self.mode))?)
    }
}

/// Which file it is, and when it was last changed; that time cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    bytes: u64,
    changed_at: (i64, i64),
}

impl FileVersion {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file that is about to be created or replaced.
#[derive(Debug)]
pub(crate) struct FileChange<'a> {
    /// Where it is.
    files: &'a WorkspaceFiles,
    /// Its path from there.
    path: String,
    /// The path of its directory.
    parent_path: PathBuf,
    /// Its name in that directory.
    name: OsString,
    /// Its directory; `None` if that has to be created.
    parent: Option<OwnedFd>,
    /// The file that is there; `None` if there is none.
    pub(crate) present: Option<PresentFile>,
}

impl FileChange<'_> {
    /// Where the file is or will be, without links.
    pub(crate) fn real_path(&self) -> PathBuf {
        self.files.real_path.join(&self.path)
    }

    /// Gives the file this content: all of it or, if anything fails, none. What was there before
    /// must still be there. Other names of the same file keep the old content.
    pub(crate) fn commit(self, content: &[u8]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write `{}`: {error}", self.path);
        let parent = self.open_parent()?;
        let new_file = NewFile::create(parent.as_fd(), self.present.as_ref().map(|it| it.rights));
        let new_file = new_file.map_err(failed)?;
        new_file.write(content).map_err(failed)?;
        self.check_unchanged(parent.as_fd())?;
        let moved = match self.present {
            Some(_) => new_file.replace(&self.name),
            None => new_file.move_to_free(&self.name),
        };
        match moved {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(self.changed(": there was no such file")),
            Err(errno) => return Err(failed(errno.into())),
        }
        rustix::fs::fsync(&parent).map_err(|errno| failed(errno.into()))
    }

    /// Opens the directory again, creating what is missing. It must be the one that was looked at.
    fn open_parent(&self) -> Result<OwnedFd, String> {
        let failed = |errno: Errno| open_problem(&self.path, errno).to_string();
        let Some(before) = &self.parent else {
            return self.create_parent();
        };
        let now = self
            .files
            .open_directory(&self.parent_path)
            .map_err(failed)?;
        let identity = |directory: &OwnedFd| {
            let stat = rustix::fs::fstat(directory).map_err(failed)?;
            Ok::<_, String>((stat.st_dev, stat.st_ino))
        };
        match identity(before)? == identity(&now)? {
            true => Ok(now),
            false => Err(self.changed(": its directory is another")),
        }
    }

    fn create_parent(&self) -> Result<OwnedFd, String> {
        let failed = |errno: Errno| {
            let path = self.parent_path.display();
            format!("cannot create the directory `{path}`: {errno}")
        };
        let mut directory = self.files.open_directory(Path::new(".")).map_err(failed)?;
        for name in self.parent_path.iter() {
            match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(NEW_DIRECTORY_MODE)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed(errno)),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let next = open_beneath(directory.as_fd(), Path::new(name), flags, Links::Refuse);
            directory = next.map_err(|errno| open_problem(&self.path, errno).to_string())?;
        }
        Ok(directory)
    }

    /// Looks once more at what is going to be replaced.
    fn check_unchanged(&self, parent: BorrowedFd<'_>) -> Result<(), String> {
        let now = self.files.read_present(&self.path, parent, &self.name)?;
        match (&self.present, &now) {
            (None, None) => Ok(()),
            (Some(before), Some(now))
                if before.version == now.version && before.digest == now.digest =>
            {
                Ok(())
            }
            (Some(_), Some(_)) => Err(self.changed("")),
            (None, Some(_)) => Err(self.changed(": there was no such file")),
            (Some(_), None) => Err(self.changed(": it does not exist any more")),
        }
    }

    fn changed(&self, how: &str) -> String {
        format!("`{}` changed since it was approved{how}", self.path)
    }
}

/// A file under a name of its own, which is removed unless it is moved to its place.
struct NewFile<'a> {
    directory: BorrowedFd<'a>,
    name: String,
    file: File,
    moved: bool,
}

impl<'a> NewFile<'a> {
    /// Creates it with the rights of the file that it is going to replace.
    fn create(directory: BorrowedFd<'a>, replaced: Option<FileRights>) -> std::io::Result<Self> {
        let name = format!(".pvp-{}.tmp", fresh_id());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = replaced.map_or(NEW_FILE_MODE, |_| 0o600);
        let file = rustix::fs::openat(directory, &name, flags, Mode::from_raw_mode(mode))?;
        let new_file = Self {
            directory,
            name,
            file: file.into(),
            moved: false,
        };
        if let Some(rights) = replaced {
            rights.give_to(&new_file.file)?;
        }
        Ok(new_file)
    }

    fn write(&self, content: &[u8]) -> std::io::Result<()> {
        (&self.file).write_all(content)?;
        self.file.sync_all()
    }

    /// Moves it over the file of this name, whatever that is by then; a link is replaced itself.
    fn replace(mut self, name: &OsString) -> Result<(), Errno> {
        rustix::fs::renameat(self.directory, &self.name, self.directory, name)?;
        self.moved = true;
        Ok(())
    }

    /// Moves it to a name that must be free.
    fn move_to_free(mut self, name: &OsString) -> Result<(), Errno> {
        let (directory, flags) = (self.directory, RenameFlags::NOREPLACE);
        match rustix::fs::renameat_with(directory, &self.name, directory, name, flags) {
            Ok(()) => {
                self.moved = true;
                Ok(())
            }
            // Some file systems cannot do this. A second name is refused as well if it is taken;
            // the first one is then removed.
            Err(Errno::INVAL) => {
                rustix::fs::linkat(directory, &self.name, directory, name, AtFlags::empty())
            }
            Err(errno) => Err(errno),
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if !self.moved
            && let Err(error) = rustix::fs::unlinkat(self.directory, &self.name, AtFlags::empty())
        {
            tracing::warn!(%error, name = self.name, "could not remove a temporary file");
        }
    }
}

/// Refuses a path that is not written plainly from the workspace.
pub(crate) fn check_plain(path: &str) -> Result<(), String> {
    let bad = |why: &str| Err(format!("`{path}` {why}"));
    if path.is_empty() || path.len() > MAX_PATH_BYTES {
        return Err("a path has 1 to 4096 bytes".to_owned());
    }
    if path.chars().any(char::is_control) {
        return Err(format!("{path:?} contains control characters"));
    }
    if path.starts_with('/') || path.starts_with('~') {
        return bad("is not a path from the workspace");
    }
    match path.split('/').any(|name| ["", ".", ".."].contains(&name)) {
        true => bad("has an empty name, `.` or `..` in it; write the path plainly"),
        false => Ok(()),
    }
}

fn open_beneath(
    directory: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    links: Links,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let resolve = match links {
        Links::Follow => resolve,
        Links::Refuse => resolve | ResolveFlags::NO_SYMLINKS,
    };
    for _ in 0..MAX_ATTEMPTS {
        let flags = flags | OFlags::CLOEXEC;
        match rustix::fs::openat2(directory, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

fn check_regular(path: &str, found: BorrowedFd<'_>) -> Result<(), OpenProblem> {
    let stat = rustix::fs::fstat(found).map_err(|errno| open_problem(path, errno))?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "no regular file",
    };
    Err(OpenProblem::Unfit(format!(
        "`{path}` is {kind}, not a file"
    )))
}

fn open_problem(path: &str, errno: Errno) -> OpenProblem {
    match errno {
        Errno::NOENT => OpenProblem::Missing(path.to_owned()),
        Errno::LOOP => OpenProblem::Unfit(format!(
            "`{path}` is a symbolic link or leads through one; name the file that it leads to"
        )),
        Errno::XDEV => OpenProblem::Unfit(format!("`{path}` leads out of the workspace")),
        Errno::NOTDIR => OpenProblem::Unfit(format!("`{path}` leads through a file")),
        Errno::NOSYS => OpenProblem::Unfit(
            "this machine cannot open files safely, because its kernel has no `openat2`".to_owned(),
        ),
        errno => OpenProblem::Unfit(format!("`{path}`: {errno}")),
    }
}

/// The link by which this process finds what it has open.
fn fd_link(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn path_of(fd: BorrowedFd<'_>) -> std::io::Result<PathBuf> {
    std::fs::read_link(fd_link(fd))
}

#[cfg(test)]
mod tests;
