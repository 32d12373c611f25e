//! One file of a client's settings, changed as a whole or not at all.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pvp_client::user_directories::create_private_directory;
use pvp_protocol::Digest;
use serde::{Deserialize, Serialize};

use super::{InstallError, InstallScope, SettingsChange};
use crate::json_text::{JsonText, JsonTextError};

/// Bytes of the longest file that is changed.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

pub(super) struct SettingsFile {
    path: PathBuf,
    scope: InstallScope,
}

/// What was there before, to give back exactly that.
#[derive(Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    /// `None` if there was no file.
    before: Option<String>,
    after: String,
}

impl SettingsFile {
    pub(super) fn at(path: PathBuf, scope: InstallScope) -> Self {
        // What people keep elsewhere and link to is changed there.
        let path = path.canonicalize().unwrap_or(path);
        Self { path, scope }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the settings, and keeps what was there before.
    pub(super) fn change(
        &self,
        records: &Path,
        change: impl Fn(&mut JsonText) -> Result<(), JsonTextError>,
    ) -> Result<SettingsChange, InstallError> {
        let current = self.read()?;
        let record = self.record(records);
        let record = record.filter(|record| current.as_ref() == Some(&record.after));
        let before = match record {
            Some(record) => record.before,
            None => current.clone(),
        };
        let mut text = self.parse(before.as_deref())?;
        change(&mut text).map_err(|why| self.unreadable(why))?;
        let after = text.as_str().to_owned();
        if current.as_ref() == Some(&after) {
            return Ok(SettingsChange::Unchanged(self.path.clone()));
        }
        let record = Record {
            path: self.path.clone(),
            before,
            after: after.clone(),
        };
        self.write_record(records, &record)
            .map_err(|why| self.failed(why))?;
        self.write(&after)?;
        Ok(SettingsChange::Written(self.path.clone()))
    }

    /// Gives back what was there before a change, if nobody changed the file since; else changes
    /// only what is named.
    pub(super) fn restore(
        &self,
        records: &Path,
        change: impl Fn(&mut JsonText) -> Result<(), JsonTextError>,
    ) -> Result<SettingsChange, InstallError> {
        let record = self.record(records);
        let Some(current) = self.read()? else {
            self.forget_record(records);
            return Ok(SettingsChange::Unchanged(self.path.clone()));
        };
        let restored = match record.filter(|record| record.after == current) {
            Some(record) => record.before,
            None => {
                let parsed = self.parse(Some(&current))?;
                let mut text = parsed.clone();
                change(&mut text).map_err(|why| self.unreadable(why))?;
                match text == parsed {
                    true => Some(current.clone()),
                    false => Some(text.as_str().to_owned()),
                }
            }
        };
        let done = match restored {
            Some(text) if text == current => SettingsChange::Unchanged(self.path.clone()),
            Some(text) => {
                self.write(&text)?;
                SettingsChange::Written(self.path.clone())
            }
            None => self.remove()?,
        };
        self.forget_record(records);
        Ok(done)
    }

    /// Writes a file that is wholly ours.
    pub(super) fn replace(&self, text: &str) -> Result<SettingsChange, InstallError> {
        if self.read()?.as_deref() == Some(text) {
            return Ok(SettingsChange::Unchanged(self.path.clone()));
        }
        self.write(text)?;
        Ok(SettingsChange::Written(self.path.clone()))
    }

    pub(super) fn remove(&self) -> Result<SettingsChange, InstallError> {
        match std::fs::remove_file(&self.path) {
            Ok(()) => Ok(SettingsChange::Removed(self.path.clone())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(SettingsChange::Unchanged(self.path.clone()))
            }
            Err(error) => Err(self.failed(error)),
        }
    }

    pub(super) fn read(&self) -> Result<Option<String>, InstallError> {
        match std::fs::metadata(&self.path) {
            Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
                return Err(self.failed(io::Error::other("the file is too long")));
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        }
        let text = std::fs::read_to_string(&self.path);
        text.map(Some).map_err(|why| self.failed(why))
    }

    fn parse(&self, text: Option<&str>) -> Result<JsonText, InstallError> {
        JsonText::parse(text.unwrap_or_default()).map_err(|why| self.unreadable(why))
    }

    fn write(&self, text: &str) -> Result<(), InstallError> {
        self.try_write(text).map_err(|why| self.failed(why))
    }

    /// Writes the file so that a reader sees all of it or what was there before.
    fn try_write(&self, text: &str) -> io::Result<()> {
        let parent = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent)?;
        let mode = match std::fs::metadata(&self.path) {
            Ok(metadata) => metadata.permissions().mode() & 0o7777,
            Err(_) => match self.scope {
                InstallScope::User => 0o600,
                InstallScope::Project | InstallScope::Managed => 0o644,
            },
        };
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = parent.join(format!(".{name}.pvp-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(mode);
        let write = || {
            let mut file = options.open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
            std::fs::rename(&temporary, &self.path)
        };
        write().inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
    }

    fn record_path(&self, records: &Path) -> PathBuf {
        let digest = Digest::of(&[self.path.as_os_str().as_encoded_bytes()]).to_string();
        let name: String = digest
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(32)
            .collect();
        records.join(format!("{name}.json"))
    }

    fn record(&self, records: &Path) -> Option<Record> {
        let text = std::fs::read_to_string(self.record_path(records)).ok()?;
        let record: Record = serde_json::from_str(&text).ok()?;
        (record.path == self.path).then_some(record)
    }

    fn write_record(&self, records: &Path, record: &Record) -> io::Result<()> {
        create_private_directory(records)?;
        let text = serde_json::to_string(record)?;
        crate::launch::write_private(&self.record_path(records), &text)
    }

    fn forget_record(&self, records: &Path) {
        let _ = std::fs::remove_file(self.record_path(records));
    }

    fn unreadable(&self, why: JsonTextError) -> InstallError {
        let path = self.path.clone();
        InstallError::Unreadable { path, why }
    }

    fn failed(&self, why: io::Error) -> InstallError {
        let path = self.path.clone();
        InstallError::Io { path, why }
    }
}
