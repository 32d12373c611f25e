//! A home directory for the client with settings of its own; everything else leads to the user's.

use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pvp_client::user_directories::create_private_directory;
use serde_json::{Map, Value};

/// Makes the home directory below the client's files.
pub(super) fn make(
    files: &Path,
    real_home: &Path,
    settings: &Map<String, Value>,
) -> io::Result<PathBuf> {
    let home = files.join("gemini-home");
    let directory = home.join(".gemini");
    create_private_directory(&home)?;
    create_private_directory(&directory)?;
    forget_links(&directory)?;
    link_entries(&real_home.join(".gemini"), &directory)?;
    let text = Value::Object(settings.clone()).to_string();
    super::super::write_private(&directory.join("settings.json"), &text)?;
    Ok(home)
}

/// Removes the links of an earlier start; what they led to may be gone.
fn forget_links(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_symlink() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Links everything but the settings. What the client put in a link's place stays if it is newer.
fn link_entries(from: &Path, to: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(from) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == "settings.json" {
            continue;
        }
        let link = to.join(entry.file_name());
        if let Ok(own) = std::fs::symlink_metadata(&link) {
            let real = entry.metadata()?;
            let is_newer = own.is_dir() || own.modified()? >= real.modified()?;
            if is_newer {
                continue;
            }
            std::fs::remove_file(&link)?;
        }
        symlink(entry.path(), link)?;
    }
    Ok(())
}
