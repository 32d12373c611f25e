//! Writes the log of one session to a file of its own.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pvp_protocol::SessionId;

use super::super::LogHead;
use super::super::audit::{AuditError, export, verify_export};
use super::{COPY_PREFIX, create_data_directory};

/// Writes and verifies an archive. It is at its place when all of it is durable.
pub(super) fn write_archive(
    dir: &Path,
    session: &SessionId,
    to: &Path,
) -> Result<LogHead, AuditError> {
    let parent = to.parent().unwrap_or(Path::new("."));
    create_data_directory(parent)?;
    let part = to.with_extension("part");
    match fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        Ok(()) | Err(_) => {}
    }
    let head = write_part(dir, session, &part);
    if head.is_err() {
        // What is left of it would only take room; the error says what matters.
        let _ = fs::remove_file(&part);
    }
    let head = head?;
    fs::rename(&part, to)?;
    File::open(parent)?.sync_all()?;
    Ok(head)
}

/// Removes the copies that a server has left that was killed while it made them.
pub(super) fn remove_copies(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_copy = entry.file_name().to_string_lossy().starts_with(COPY_PREFIX);
        if is_copy && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn write_part(dir: &Path, session: &SessionId, part: &Path) -> Result<LogHead, AuditError> {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(part)?;
    let mut buffered = BufWriter::new(&file);
    export(dir, Some(session), &mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    file.sync_all()?;
    let report = verify_export(&mut BufReader::new(File::open(part)?), &[])?;
    match (report.first_finding(), report.sessions.as_slice()) {
        (Some(finding), _) => Err(AuditError::Damaged(finding.to_string())),
        (None, [one]) if one.session == *session => Ok(LogHead {
            seq: one.entries,
            hash: one.head,
        }),
        (None, _) => Err(AuditError::NoSession(session.clone())),
    }
}
