//! Gives each session a working directory of its own, below the data directory.

mod git;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use pvp_protocol::{Refusal, SessionId};
use pvp_session::workspace_name;
use tokio::fs::{self, DirBuilder, File};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::config::ServerConfig;
use crate::store::Store;

/// Begins the name of a directory whose session was deleted. No session's directory has such a name.
const DELETED_PREFIX: &str = "deleted-";

/// How many sessions are created at a time, at most.
const LOCKS: usize = 64;

/// The working directories of all sessions.
pub(crate) struct SessionWorkspaces {
    /// The directory that they are in; `None` if sessions have none of their own.
    root: Option<PathBuf>,
    /// The program that makes them repositories; `None` if they are to be empty.
    git: Option<PathBuf>,
    /// Held while a session is created, so that nobody removes a directory that another creator of
    /// the same session uses. Which one depends on the session.
    locks: Vec<Arc<Mutex<()>>>,
}

/// The directory of a session that is being created. It stays, unless it is discarded.
pub(crate) struct NewWorkspace {
    path: PathBuf,
    _lock: OwnedMutexGuard<()>,
}

impl SessionWorkspaces {
    /// Fails if the settings contradict each other, or git is needed and not there.
    pub(crate) fn check(config: &ServerConfig) -> anyhow::Result<()> {
        if config.git_init && config.working_directory.is_some() {
            bail!(
                "`git_init` is for the directory that each session has for itself; leave out `git_init` or `working_directory`"
            );
        }
        if config.git_init && git::find_program().is_none() {
            bail!(
                "`git_init` needs git, and there is none in PATH; install git, or leave out `git_init`"
            );
        }
        if let Some(root) = config.workspaces_directory()
            && root.to_str().is_none()
        {
            bail!(
                "{} is not valid UTF-8, so that sessions cannot be told where they work; choose another data directory, or set `working_directory`",
                root.display()
            );
        }
        Ok(())
    }

    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self {
            root: config.workspaces_directory(),
            git: config.git_init.then(git::find_program).flatten(),
            locks: (0..LOCKS).map(|_| Arc::default()).collect(),
        }
    }

    fn path(&self, session: &SessionId) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(workspace_name(session)))
    }

    fn lock(&self, session: &SessionId) -> Arc<Mutex<()>> {
        let name = workspace_name(session);
        let number = name.bytes().fold(0, |sum: usize, byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        self.locks[number % LOCKS].clone()
    }

    /// Whether this session gets a directory when it is created: it does not exist and never did.
    pub(crate) async fn is_to_be_made(
        &self,
        store: &dyn Store,
        session: &SessionId,
    ) -> Result<bool, Refusal> {
        if self.root.is_none() || store.head(session).await?.is_some() {
            return Ok(false);
        }
        Ok(store.find_tombstone(session).await?.is_none())
    }

    /// Makes the directory of a session that is to be created; `None` if it needs none.
    ///
    /// The directory must be there before anyone is told of it, so this comes before the session is
    /// created. No other creator of the same session goes on until the result is dropped.
    pub(crate) async fn make(
        &self,
        store: &dyn Store,
        session: &SessionId,
    ) -> Result<Option<NewWorkspace>, Refusal> {
        let (Some(root), Some(path)) = (&self.root, self.path(session)) else {
            return Ok(None);
        };
        let lock = self.lock(session).lock_owned().await;
        // Another may have created it meanwhile.
        if !self.is_to_be_made(store, session).await? {
            return Ok(None);
        }
        let failed = |error: String| {
            let path = path.display();
            Refusal::WriteFailed(format!(
                "cannot make the session's working directory {path}: {error}"
            ))
        };
        let made = make_directory(root, &path).await;
        made.map_err(|error| failed(error.to_string()))?;
        let workspace = NewWorkspace {
            path: path.clone(),
            _lock: lock,
        };
        if let Some(git) = &self.git
            && let Err(problem) = git::init_repository(git, &path, session).await
        {
            workspace.discard().await;
            return Err(failed(problem));
        }
        Ok(Some(workspace))
    }

    /// Removes the directory of a session that was deleted.
    pub(crate) async fn remove(&self, session: &SessionId) {
        let Some(root) = &self.root else {
            return;
        };
        if let Err(error) = remove_deleted(root, &workspace_name(session)).await {
            tracing::warn!(%session, %error, "could not remove the working directory of a deleted session; the next start tries again");
        }
    }

    /// Removes what is left of the directories of deleted sessions.
    pub(crate) async fn remove_leftovers(&self) {
        let Some(root) = &self.root else {
            return;
        };
        if let Err(error) = remove_leftovers(root).await {
            tracing::warn!(%error, "could not remove the working directory of a deleted session; remove it by hand");
        }
    }
}

impl NewWorkspace {
    /// Removes the directory, because the session was not created.
    pub(crate) async fn discard(self) {
        if let Err(error) = remove_tree(&self.path).await {
            let path = self.path.display();
            tracing::warn!(%path, %error, "could not remove a working directory that is not needed");
        }
    }
}

/// Makes an empty directory that only its owner may enter.
async fn make_directory(root: &Path, path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    match builder.create(root).await {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => check_directory(root).await?,
    }
    match builder.create(path).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Left by a server that was killed; whatever is in it is not this session's.
            check_directory(path).await?;
            if fs::read_dir(path).await?.next_entry().await?.is_some() {
                let problem = "it exists already and is not empty; move it away";
                return Err(io::Error::other(problem));
            }
        }
        made => made?,
    }
    // The log tells of it, so it must last as long as the log.
    File::open(root).await?.sync_all().await
}

/// Removes the directory with this name. It gets another name first, by which the next start finds
/// what could not be removed.
async fn remove_deleted(root: &Path, name: &str) -> io::Result<()> {
    check_directory(root).await?;
    let deleted = root.join(format!("{DELETED_PREFIX}{name}"));
    match fs::rename(root.join(name), &deleted).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => remove_tree(&deleted).await,
    }
}

async fn remove_leftovers(root: &Path) -> io::Result<()> {
    match check_directory(root).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        checked => checked?,
    }
    let mut entries = fs::read_dir(root).await?;
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name();
        if name
            .as_encoded_bytes()
            .starts_with(DELETED_PREFIX.as_bytes())
        {
            remove_tree(&entry.path()).await?;
        }
    }
    Ok(())
}

/// Refuses what is not a directory itself, such as a symbolic link to one.
async fn check_directory(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path).await?.is_dir() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{} is not a directory",
            path.display()
        ))),
    }
}

/// Removes a directory with everything in it. Symbolic links are removed, not followed, even if
/// somebody exchanges a directory for one meanwhile.
async fn remove_tree(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).await
}

#[cfg(test)]
mod tests;
