//! The files that a patch changes, as they are when people are asked, so that what they decided on is
//! what is there when it is applied.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use pvp_policy::patched_paths;
use pvp_protocol::{Digest, JsonObject};
use serde_json::Value;

/// Bytes of the longest file whose content is compared; a longer one by its size and its time.
const MAX_COMPARED_BYTES: u64 = 64 * 1024 * 1024;

/// Files of one patch that are compared.
const MAX_FILES: usize = 1000;

/// The files that a patch names, as they were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PatchedFiles(Vec<(PathBuf, FileState)>);

/// What a file is, as far as a patch of it depends on that.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FileState {
    Missing,
    Content(Digest),
    /// It is long, no file, or cannot be read.
    Other(Option<(u64, std::time::SystemTime)>),
}

impl PatchedFiles {
    /// Looks at the files that the patches in a call name, which are found from this directory.
    pub(crate) fn find(arguments: &JsonObject, directory: &Path) -> Self {
        let texts = arguments.values().filter_map(Value::as_str);
        let texts = texts.filter(|text| text.contains('\n'));
        let paths = texts.flat_map(patched_paths).chain(listed_paths(arguments));
        let files = paths.take(MAX_FILES).map(|path| {
            let path = directory.join(path);
            let state = FileState::of(&path);
            (path, state)
        });
        Self(files.collect())
    }

    /// The error names a file that is not what it was.
    pub(crate) fn check_unchanged(&self) -> Result<(), String> {
        let changed = self
            .0
            .iter()
            .find(|(path, state)| FileState::of(path) != *state);
        match changed {
            Some((path, _)) => Err(format!(
                "`{}` has changed since it was approved; read it again",
                path.display()
            )),
            None => Ok(()),
        }
    }
}

/// The paths of changes that are given one by one.
fn listed_paths(arguments: &JsonObject) -> impl Iterator<Item = &str> {
    let changes = arguments.get("changes").and_then(Value::as_array);
    let changes = changes.into_iter().flatten();
    changes.filter_map(|change| change.get("path")?.as_str())
}

impl FileState {
    fn of(path: &Path) -> Self {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::Missing,
            Err(_) => return Self::Other(None),
        };
        let other = || Self::Other(metadata.modified().ok().map(|time| (metadata.len(), time)));
        if !metadata.is_file() || metadata.len() > MAX_COMPARED_BYTES {
            return other();
        }
        let mut content = Vec::new();
        let read = File::open(path)
            .and_then(|file| file.take(MAX_COMPARED_BYTES).read_to_end(&mut content));
        match read {
            Ok(_) => Self::Content(Digest::of_content(&content)),
            Err(_) => other(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_that_a_patch_names_is_not_changed_unnoticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("a"), "one\ntwo\n").unwrap();
        let patch =
            "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-two\n+2\n*** End Patch";
        let arguments = json!({ "patch": patch });
        let arguments = arguments.as_object().unwrap();
        let find = || PatchedFiles::find(arguments, directory.path());
        let before = find();
        assert_eq!(before.check_unchanged(), Ok(()));
        // The patch would still fit.
        std::fs::write(path("a"), "zero\ntwo\n").unwrap();
        assert!(
            before
                .check_unchanged()
                .unwrap_err()
                .contains("/a` has changed")
        );
        let before = find();
        std::fs::write(path("b"), "").unwrap();
        assert!(
            before
                .check_unchanged()
                .unwrap_err()
                .contains("/b` has changed")
        );
        let before = find();
        std::fs::remove_file(path("a")).unwrap();
        assert!(before.check_unchanged().is_err());
        let listed = json!({ "changes": [{ "path": "b", "new_text": "x" }] });
        let before = PatchedFiles::find(listed.as_object().unwrap(), directory.path());
        std::fs::remove_file(path("b")).unwrap();
        assert!(before.check_unchanged().is_err());
        let none = json!({ "text": "no\npatch" });
        assert_eq!(
            PatchedFiles::find(none.as_object().unwrap(), directory.path()),
            PatchedFiles(Vec::new())
        );
    }
}
