//! Reads the files that a command runs: hashes them for a proposal, and compares them with it when
//! the command starts.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pvp_policy::{FilePresence, NamedFile};
use pvp_protocol::payload::{DeletedFile, FileContent};
use pvp_protocol::{BoundFile, Digest};
use sha2::{Digest as _, Sha256};

/// Larger files are not bound, because hashing them would delay every proposal.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// Larger files are bound without their content, which would stay in the log.
const MAX_CONTENT_BYTES: usize = 16 * 1024;

/// Bytes of contents in one proposal; the server takes 64 KiB.
const MAX_ALL_CONTENT_BYTES: usize = 48 * 1024;

/// The files that a proposal binds, and what people are shown.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ProposedFiles {
    pub(crate) files: Vec<BoundFile>,
    pub(crate) shown: ShownFiles,
}

/// What people are shown of the files that a proposal names.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ShownFiles {
    /// Contents of bound files, to open.
    pub(crate) contents: Vec<FileContent>,
    /// What the command deletes.
    pub(crate) deleted: Vec<DeletedFile>,
}

/// A file whose content could be shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownFile<'a> {
    /// As the command names it.
    pub(crate) path: &'a str,
    /// Where it really is.
    pub(crate) real_path: &'a Path,
    /// How many names it has.
    pub(crate) names: u64,
}

/// Hashes the named files. One that is no regular file, cannot be read or is too large is left out,
/// and the server tells people that it is not bound. `may_show` says of a file whether its content
/// may be sent along.
pub(crate) fn bind(
    workspace: &Path,
    named: &[NamedFile],
    may_show: impl Fn(ShownFile<'_>) -> bool,
) -> ProposedFiles {
    let mut proposed = ProposedFiles::default();
    let mut content_bytes = 0;
    for NamedFile { path, presence } in named {
        match read_file(&workspace.join(path)) {
            Ok(read) => {
                let fits = content_bytes + read.beginning.len() <= MAX_ALL_CONTENT_BYTES;
                let shown = ShownFile {
                    path,
                    real_path: &read.real_path,
                    names: read.metadata.nlink(),
                };
                if let Some(text) = read.whole_text().filter(|_| fits && may_show(shown)) {
                    content_bytes += text.len();
                    let path = path.clone();
                    proposed.shown.contents.push(FileContent { path, text });
                }
                proposed.files.push(BoundFile {
                    path: path.clone(),
                    sha256: Some(read.digest),
                    bytes: read.bytes,
                });
            }
            Err(ReadError::Missing) if *presence == FilePresence::Expected => {
                proposed.files.push(BoundFile {
                    path: path.clone(),
                    sha256: None,
                    bytes: 0,
                });
            }
            Err(ReadError::Missing | ReadError::Unfit(_)) => {}
        }
    }
    proposed
}

/// Which file was found at a path. Writing to it, and moving another one into its place and back,
/// both show here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    path: String,
    device: u64,
    inode: u64,
    /// The time of the last change of content, name or mode, in seconds and nanoseconds; it cannot
    /// be set.
    changed_at: (i64, i64),
}

impl FileIdentity {
    fn new(path: &str, metadata: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Checks that every file is what the proposal binds; the error names the one that is not.
pub(crate) fn check(workspace: &Path, files: &[BoundFile]) -> Result<Vec<FileIdentity>, String> {
    let mut identities = Vec::new();
    for file in files {
        let changed = |how: &str| format!("`{}` changed since it was approved{how}", file.path);
        match (read_file(&workspace.join(&file.path)), file.sha256) {
            (Ok(read), Some(digest)) if read.digest == digest => {
                identities.push(FileIdentity::new(&file.path, &read.metadata));
            }
            (Ok(_), Some(_)) => return Err(changed("")),
            (Err(ReadError::Missing), None) => {}
            (Ok(_) | Err(ReadError::Unfit(_)), None) => {
                return Err(changed(": there was no such file"));
            }
            (Err(ReadError::Missing), Some(_)) => {
                return Err(changed(": it does not exist any more"));
            }
            (Err(ReadError::Unfit(why)), Some(_)) => return Err(changed(&format!(": {why}"))),
        }
    }
    Ok(identities)
}

/// The paths at which something else is found than before.
pub(crate) fn changed_since(workspace: &Path, identities: &[FileIdentity]) -> Vec<String> {
    let is_same = |identity: &FileIdentity| {
        let metadata = std::fs::metadata(workspace.join(&identity.path));
        metadata.is_ok_and(|metadata| FileIdentity::new(&identity.path, &metadata) == *identity)
    };
    let changed = identities.iter().filter(|identity| !is_same(identity));
    changed.map(|identity| identity.path.clone()).collect()
}

struct ReadFile {
    digest: Digest,
    bytes: u64,
    /// The content, up to one byte more than is sent along.
    beginning: Vec<u8>,
    metadata: Metadata,
    /// The path of what was opened, without links.
    real_path: PathBuf,
}

impl ReadFile {
    /// The content, if it is text and short enough to be sent along.
    fn whole_text(&self) -> Option<String> {
        let whole = self.beginning.len() <= MAX_CONTENT_BYTES;
        let text = std::str::from_utf8(&self.beginning).ok();
        text.filter(|text| whole && !text.contains('\0'))
            .map(str::to_owned)
    }
}

#[derive(Debug)]
enum ReadError {
    Missing,
    /// There is something, but it cannot be hashed.
    Unfit(String),
}

impl From<std::io::Error> for ReadError {
    fn from(error: std::io::Error) -> Self {
        let missing = [ErrorKind::NotFound, ErrorKind::NotADirectory];
        match missing.contains(&error.kind()) {
            true => Self::Missing,
            false => Self::Unfit(error.to_string()),
        }
    }
}

/// Hashes a file through one descriptor, so that its size, kind and content belong together.
fn read_file(path: &Path) -> Result<ReadFile, ReadError> {
    // Without waiting: opening a named pipe would wait for someone to write to it.
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::Unfit("it is not a regular file".to_owned()));
    }
    let real_path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let (digest, bytes, beginning) = hash(&mut file)?;
    if bytes > MAX_FILE_BYTES {
        return Err(ReadError::Unfit("it is too large to be hashed".to_owned()));
    }
    Ok(ReadFile {
        digest,
        bytes,
        beginning,
        metadata,
        real_path,
    })
}

fn hash(file: &mut File) -> std::io::Result<(Digest, u64, Vec<u8>)> {
    let mut hasher = Sha256::new();
    let (mut bytes, mut beginning) = (0, Vec::new());
    let mut buffer = vec![0; 64 * 1024];
    while bytes <= MAX_FILE_BYTES {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&buffer[..count]);
        bytes += count as u64;
        let room = (MAX_CONTENT_BYTES + 1).saturating_sub(beginning.len());
        beginning.extend_from_slice(&buffer[..count.min(room)]);
    }
    Ok((Digest::new(hasher.finalize().into()), bytes, beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, presence: FilePresence) -> NamedFile {
        let path = path.to_owned();
        NamedFile { path, presence }
    }

    #[test]
    fn what_is_bound_is_checked_and_every_change_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path();
        std::fs::write(workspace.join("run.sh"), "echo good\n").unwrap();
        let names = [
            named("run.sh", FilePresence::Expected),
            named("later.sh", FilePresence::Expected),
            named("argument", FilePresence::Possible),
            named(".", FilePresence::Expected),
        ];
        let proposed = bind(workspace, &names, |_| true);
        let paths: Vec<_> = proposed.files.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(paths, ["run.sh", "later.sh"]);
        assert_eq!(
            proposed.files[0].sha256,
            Some(Digest::of_content(b"echo good\n"))
        );
        assert_eq!(proposed.shown.contents[0].text, "echo good\n");
        let found = check(workspace, &proposed.files).unwrap();
        assert_eq!(changed_since(workspace, &found), Vec::<String>::new());

        // Another file was there for a moment.
        std::fs::rename(workspace.join("run.sh"), workspace.join("aside")).unwrap();
        std::fs::rename(workspace.join("aside"), workspace.join("run.sh")).unwrap();
        assert_eq!(changed_since(workspace, &found), ["run.sh"]);
        assert!(check(workspace, &proposed.files).is_ok());

        std::fs::write(workspace.join("later.sh"), "").unwrap();
        let why = check(workspace, &proposed.files).unwrap_err();
        assert_eq!(
            why,
            "`later.sh` changed since it was approved: there was no such file"
        );
        std::fs::remove_file(workspace.join("later.sh")).unwrap();
        std::fs::write(workspace.join("run.sh"), "echo evil\n").unwrap();
        let why = check(workspace, &proposed.files).unwrap_err();
        assert_eq!(why, "`run.sh` changed since it was approved");
        std::fs::remove_file(workspace.join("run.sh")).unwrap();
        let why = check(workspace, &proposed.files).unwrap_err();
        assert_eq!(
            why,
            "`run.sh` changed since it was approved: it does not exist any more"
        );
    }

    #[test]
    fn a_named_pipe_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let names = [named("pipe", FilePresence::Expected)];
        let proposed = bind(directory.path(), &names, |_| true);
        assert_eq!(proposed, ProposedFiles::default());
    }

    #[test]
    fn long_binary_and_secret_contents_are_bound_and_not_sent() {
        let directory = tempfile::tempdir().unwrap();
        let long = "x".repeat(MAX_CONTENT_BYTES + 1);
        for (name, content) in [
            ("long", long.as_bytes()),
            ("binary", b"\xff\0"),
            ("hidden", b"a"),
        ] {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        let names = ["long", "binary", "hidden"].map(|name| named(name, FilePresence::Expected));
        let proposed = bind(directory.path(), &names, |shown| shown.path != "hidden");
        assert_eq!(proposed.files.len(), 3);
        assert_eq!(proposed.shown.contents, []);
    }
}
