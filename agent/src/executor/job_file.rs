//! The local file that stores a background job's output; its last line says how the job ended.

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use pvp_protocol::MessageId;
use tokio::io::AsyncWriteExt;

use super::ExecutorSettings;

/// Bytes of output that are kept, counted from the end.
const KEPT_BYTES: u64 = 8 * 1024 * 1024;

/// Job files that are kept across restarts; the oldest are removed.
const MAX_FILES: usize = 64;

/// How the last line begins.
const LAST_LINE_PREFIX: &str = "[background process ";

/// Bytes at the end of a file that are searched for its last line.
const TAIL_BYTES: u64 = 4096;

pub(super) struct JobFile {
    path: PathBuf,
    written_bytes: u64,
    /// Whether the next byte starts a line.
    at_line_start: bool,
}

impl JobFile {
    pub(super) fn for_proposal(settings: &ExecutorSettings, proposal: &MessageId) -> Self {
        Self {
            path: job_file_path(settings, proposal),
            written_bytes: 0,
            at_line_start: true,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends output, and drops the beginning when the file has grown to twice its size.
    pub(super) async fn append(&mut self, text: &str) {
        let kept = self.try_append(text).await;
        self.log_error(kept);
    }

    async fn try_append(&mut self, text: &str) -> std::io::Result<()> {
        self.written_bytes += text.len() as u64;
        if self.written_bytes > 2 * KEPT_BYTES {
            truncate_to_tail(&self.path).await?;
            self.written_bytes = KEPT_BYTES;
        }
        append(&self.path, text).await?;
        self.at_line_start = text.ends_with('\n');
        Ok(())
    }

    /// Writes the last line: `completed`, or `failed` and why.
    pub(super) async fn close(&mut self, how: &str) {
        let line = last_line(self.at_line_start, how);
        let closed = append(&self.path, &line).await;
        self.log_error(closed);
    }

    fn log_error(&self, kept: std::io::Result<()>) {
        if let Err(error) = kept {
            tracing::warn!(%error, path = %self.path.display(), "could not keep output");
        }
    }
}

/// Writes the last line of a job whose executor ended before it could.
pub(super) fn close_orphan(settings: &ExecutorSettings, proposal: &MessageId) {
    let path = job_file_path(settings, proposal);
    match try_close_orphan(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "could not close the file of a job");
        }
    }
}

fn try_close_orphan(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .append(true)
        .mode(0o600)
        .open(path)?;
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let tail = String::from_utf8_lossy(&tail);
    if tail
        .lines()
        .last()
        .is_some_and(|line| line.starts_with(LAST_LINE_PREFIX))
    {
        return Ok(());
    }
    let at_line_start = tail.is_empty() || tail.ends_with('\n');
    let how = "failed: its executor was restarted, and it was ended";
    file.write_all(last_line(at_line_start, how).as_bytes())
}

/// Removes the oldest job files, so that an agent that is restarted again and again does not fill
/// the disk. It is called before anything runs, so none of the files is being written to.
pub(super) fn remove_oldest(settings: &ExecutorSettings) {
    let entries = std::fs::read_dir(&settings.state_directory)
        .into_iter()
        .flatten();
    let mut files: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    files.sort();
    let excess = files.len().saturating_sub(MAX_FILES);
    for (_, path) in &files[..excess] {
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "could not remove an old file of a job");
        }
    }
}

fn last_line(at_line_start: bool, how: &str) -> String {
    let before = if at_line_start { "" } else { "\n" };
    format!("{before}{LAST_LINE_PREFIX}{how}]\n")
}

fn job_file_path(settings: &ExecutorSettings, proposal: &MessageId) -> PathBuf {
    // An id has no slash and does not begin with a dot.
    settings.state_directory.join(format!("{proposal}.log"))
}

/// Keeps only the end of a file.
async fn truncate_to_tail(path: &Path) -> std::io::Result<()> {
    let bytes = tokio::fs::read(path).await?;
    let kept = usize::try_from(KEPT_BYTES).unwrap_or(usize::MAX);
    tokio::fs::write(path, &bytes[bytes.len().saturating_sub(kept)..]).await
}

/// Appends to a file that only its owner can read.
async fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = tokio::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .await?;
    file.write_all(text.as_bytes()).await?;
    file.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_newest_files_of_jobs_are_kept_and_nothing_else_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        for number in 0..MAX_FILES + 3 {
            let file = std::fs::File::create(state.join(format!("job-{number}.log"))).unwrap();
            let age = Duration::from_secs(10_000 - number as u64);
            file.set_modified(SystemTime::now() - age).unwrap();
        }
        std::fs::write(state.join("grants.journal"), "").unwrap();
        remove_oldest(&ExecutorSettings::new(state.to_owned(), state.to_owned()));
        let there = |name: &str| state.join(name).exists();
        assert!(!there("job-0.log") && !there("job-2.log") && there("job-3.log"));
        assert!(there("grants.journal"));
        assert_eq!(std::fs::read_dir(state).unwrap().count(), MAX_FILES + 1);
    }
}
