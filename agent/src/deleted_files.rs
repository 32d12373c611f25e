//! Says of the files that a command deletes what is lost, and whether git has it.

use std::path::Path;

use pvp_protocol::payload::{DeletedFile, GitCopy};

use crate::git_index;

/// The largest file whose content is compared with git's.
const MAX_COMPARED_BYTES: u64 = 16 * 1024 * 1024;

/// Describes those of these files that exist, by their path from the workspace.
pub(crate) fn describe(workspace: &Path, paths: &[String]) -> Vec<DeletedFile> {
    if paths.is_empty() {
        return Vec::new();
    }
    let index = git_index::read(workspace);
    let describe = |path: &String| {
        let file = workspace.join(path);
        let metadata = std::fs::symlink_metadata(&file).ok()?;
        if !metadata.is_file() {
            return None;
        }
        let bytes = metadata.len();
        let in_git = match index.as_ref().and_then(|index| index.get(path)) {
            None => GitCopy::None,
            Some(_) if bytes > MAX_COMPARED_BYTES => GitCopy::Older,
            Some(hash) => {
                let content = std::fs::read(&file).ok()?;
                match git_index::content_hash(&content) == *hash {
                    true => GitCopy::Same,
                    false => GitCopy::Older,
                }
            }
        };
        Some(DeletedFile {
            path: path.clone(),
            bytes,
            in_git,
        })
    };
    paths.iter().filter_map(describe).collect()
}
