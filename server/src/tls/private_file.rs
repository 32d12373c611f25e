//! Writes and reads files that nobody else may read.

use std::io;
use std::path::Path;

use tokio::fs::{self, OpenOptions};
use tokio::io::AsyncWriteExt;

/// Replaces a file in one step, so that whoever reads it finds the old content or the new one.
pub(super) async fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) | Ok(()) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&temporary).await?;
    file.write_all(content).await?;
    file.sync_all().await?;
    fs::rename(&temporary, path).await
}

/// The content of a file; `None` if there is none.
pub(super) async fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path).await {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
