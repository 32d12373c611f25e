//! The directory that a command runs in, resolved once and held open.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// Which directory was opened, whatever its path leads to later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    device: u64,
    inode: u64,
}

/// An opened directory. While it is open, no other directory can have its identity.
#[derive(Debug)]
pub(crate) struct WorkingDirectory {
    path: PathBuf,
    directory: File,
    identity: DirectoryIdentity,
}

impl WorkingDirectory {
    /// Opens the directory of a command: its `cwd` from the workspace, or the workspace itself.
    pub(crate) fn open(cwd: Option<&str>, workspace: &Path) -> Result<Self, String> {
        let path = cwd.map_or_else(|| workspace.to_owned(), |cwd| workspace.join(cwd));
        Self::open_path(&path).map_err(|error| match std::fs::metadata(&path) {
            Ok(metadata) if !metadata.is_dir() => {
                let path = path.display();
                format!("cannot work in {path}: it is not a directory")
            }
            Ok(_) | Err(_) => format!("cannot work in {}: {error}", path.display()),
        })
    }

    /// Opens a directory by its path.
    pub(crate) fn open_path(path: &Path) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = directory.metadata()?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self {
            path: path.to_owned(),
            directory,
            identity: DirectoryIdentity { device, inode },
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn identity(&self) -> DirectoryIdentity {
        self.identity
    }

    /// The path of the directory itself, without symbolic links and `..`.
    pub(crate) fn resolved_path(&self) -> std::io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }

    /// Makes it the working directory of this process.
    pub(crate) fn enter(&self) -> std::io::Result<()> {
        Ok(rustix::process::fchdir(&self.directory)?)
    }
}
