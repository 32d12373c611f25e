//! One file of a client's settings, changed as a whole or not at all.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pvp_client::user_directories::create_private_directory;
use pvp_protocol::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{InstallError, InstallScope, SettingsChange};
use crate::json_text::{JsonText, JsonTextError};

/// Bytes of the longest file that is changed.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

pub(super) struct SettingsFile {
    path: PathBuf,
    scope: InstallScope,
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The client's settings, to which something of ours is added.
    Shared,
    /// A file that only PVP writes.
    Ours,
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
    /// The file at a path. In a project, which somebody else may have made, no link leads out of it;
    /// and no link leads to a file that is wholly ours.
    pub(super) fn at(
        path: PathBuf,
        scope: InstallScope,
        ownership: Ownership,
        project: &Path,
    ) -> Result<Self, InstallError> {
        let is_link = path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_symlink());
        // What people keep elsewhere and link to is changed there.
        let real = path.canonicalize().unwrap_or_else(|_| real_parent(&path));
        let file = Self { path: real, scope };
        let real_project = project
            .canonicalize()
            .unwrap_or_else(|_| project.to_owned());
        let leads_out = scope == InstallScope::Project && !file.path.starts_with(real_project);
        match is_link && ownership == Ownership::Ours || leads_out {
            true => Err(InstallError::NotPossible(format!(
                "{} is a link, or in a directory that is one, and leads to {}; it is left alone",
                path.display(),
                file.path.display()
            ))),
            false => Ok(file),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes out of the settings what an earlier change has added, adds it again, and keeps what was
    /// there without it.
    pub(super) fn change(
        &self,
        records: &Path,
        remove: impl Fn(&mut JsonText) -> Result<(), JsonTextError>,
        add: impl Fn(&mut JsonText) -> Result<(), JsonTextError>,
    ) -> Result<SettingsChange, InstallError> {
        let current = self.read()?;
        let record = self.record(records);
        let record = record.filter(|record| current.as_ref() == Some(&record.after));
        let before = match record {
            Some(record) => record.before,
            None => current.clone(),
        };
        let parsed = self.parse(before.as_deref())?;
        let mut text = parsed.clone();
        remove(&mut text).map_err(|why| self.unreadable(why))?;
        let before = match text == parsed {
            true => before,
            false => Some(text.as_str().to_owned()),
        };
        add(&mut text).map_err(|why| self.unreadable(why))?;
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
        self.write(&after, current.as_deref())?;
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
                self.write(&text, Some(&current))?;
                SettingsChange::Written(self.path.clone())
            }
            None => self.delete()?,
        };
        self.forget_record(records);
        Ok(done)
    }

    /// The settings, without their comments.
    pub(super) fn value(&self) -> Result<Value, InstallError> {
        let text = self.parse(self.read()?.as_deref())?;
        text.value().map_err(|why| self.unreadable(why))
    }

    /// Refuses a file that should be wholly ours and is not.
    pub(super) fn check(&self, is_ours: impl Fn(&str) -> bool) -> Result<(), InstallError> {
        match self.read()? {
            Some(current) if !is_ours(&current) => Err(self.not_ours()),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes a file that is wholly ours, which what is there must be too.
    pub(super) fn replace(
        &self,
        text: &str,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<SettingsChange, InstallError> {
        self.check(is_ours)?;
        let current = self.read()?;
        if current.as_deref() == Some(text) {
            return Ok(SettingsChange::Unchanged(self.path.clone()));
        }
        self.write(text, current.as_deref())?;
        Ok(SettingsChange::Written(self.path.clone()))
    }

    /// Removes a file that is wholly ours, which what is there must be.
    pub(super) fn remove(
        &self,
        is_ours: impl Fn(&str) -> bool,
    ) -> Result<SettingsChange, InstallError> {
        self.check(is_ours)?;
        self.delete()
    }

    fn delete(&self) -> Result<SettingsChange, InstallError> {
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
            Ok(metadata) if !metadata.is_file() => {
                return Err(self.failed(io::Error::other("it is not a file")));
            }
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

    /// Writes the file, if it is still what was read.
    fn write(&self, text: &str, before: Option<&str>) -> Result<(), InstallError> {
        let parent = self.path.parent().unwrap_or(Path::new("."));
        let mode = self.mode_to_write(parent).map_err(|why| self.failed(why))?;
        self.make_directory(parent)
            .map_err(|why| self.failed(why))?;
        let unchanged = || match self.read() {
            Ok(now) if now.as_deref() == before => Ok(()),
            Ok(_) | Err(_) => Err(io::Error::other(
                "it was changed at the same time; try again",
            )),
        };
        self.try_write(parent, mode, text, unchanged)
            .map_err(|why| self.failed(why))
    }

    /// The mode that the file is written with, if it may be written: it must belong to whoever runs
    /// this, or the client could not read it any more.
    fn mode_to_write(&self, parent: &Path) -> io::Result<u32> {
        let existing = parent.ancestors().find(|directory| directory.exists());
        let owner = rustix::process::geteuid().as_raw();
        let is_foreign = |path: &Path| path.metadata().is_ok_and(|it| it.uid() != owner);
        let foreign = is_foreign(&self.path) || existing.is_some_and(is_foreign);
        if foreign && self.scope != InstallScope::Managed {
            return Err(io::Error::other(
                "it, or its directory, belongs to another user; run this as that user",
            ));
        }
        match self.path.metadata() {
            Ok(metadata) if metadata.permissions().mode() & 0o200 == 0 => Err(io::Error::other(
                "it is read-only; make it writable if PVP may change it",
            )),
            Ok(metadata) => Ok(metadata.permissions().mode() & 0o7777),
            Err(_) => Ok(match self.scope {
                InstallScope::User => 0o600,
                InstallScope::Project | InstallScope::Managed => 0o644,
            }),
        }
    }

    /// Makes the directory of the file. For the whole machine everybody must be able to read it,
    /// whatever the mask of the administrator is.
    fn make_directory(&self, parent: &Path) -> io::Result<()> {
        let missing = parent.ancestors().take_while(|it| !it.exists());
        let missing: Vec<_> = missing.map(Path::to_owned).collect();
        std::fs::create_dir_all(parent)?;
        match self.scope {
            InstallScope::User | InstallScope::Project => Ok(()),
            InstallScope::Managed => missing
                .iter()
                .try_for_each(|made| std::fs::set_permissions(made, Permissions::from_mode(0o755))),
        }
    }

    /// Writes the file so that a reader sees all of it or what was there before.
    fn try_write(
        &self,
        parent: &Path,
        mode: u32,
        text: &str,
        check: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = parent.join(format!(".{name}.pvp-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(mode);
        let write = || {
            let mut file = options.open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.sync_all()?;
            check()?;
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

    fn not_ours(&self) -> InstallError {
        let why = io::Error::other("it is not PVP's; move it away and try again");
        self.failed(why)
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

/// A path with its directory as it really is, for a file that is not there.
fn real_parent(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        if let Ok(real) = existing.canonicalize() {
            return missing
                .iter()
                .rev()
                .fold(real, |real, name| real.join(name));
        }
        match (existing.file_name(), existing.parent()) {
            (Some(name), Some(parent)) => {
                missing.push(name.to_owned());
                existing = parent;
            }
            (Some(_), None) | (None, _) => return path.to_owned(),
        }
    }
}
