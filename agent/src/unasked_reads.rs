//! Says which files of the workspace nobody reads, and which nobody reads without a vote.

use std::path::{Path, PathBuf};

use pvp_policy::{EntryKind, is_secret_entry, is_secret_path};

use crate::bound_files::ShownFile;
use crate::executor::ExecutorSettings;
use crate::private_paths::private_paths;

/// Checks files by the place where they really are, whatever name they were asked for by.
pub(crate) struct UnaskedReads<'a> {
    settings: &'a ExecutorSettings,
    /// Links, keys and journals, which nobody reads or changes by a file tool.
    private: Vec<PathBuf>,
}

/// A file that was opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundFile<'a> {
    /// The path of the workspace, without links.
    pub(crate) workspace: &'a Path,
    /// Where the file really is, from there.
    pub(crate) real_path: &'a Path,
    /// How many names it has.
    pub(crate) names: u64,
}

impl<'a> UnaskedReads<'a> {
    pub(crate) fn new(settings: &'a ExecutorSettings) -> Self {
        Self {
            settings,
            private: private_paths(settings),
        }
    }

    /// Refuses what belongs to PVP, with and without a vote.
    pub(crate) fn check_not_private(&self, path: &str, real_path: &Path) -> Result<(), String> {
        let is_in = |private: &PathBuf| {
            let real = private.canonicalize();
            real_path.starts_with(private) || real.is_ok_and(|real| real_path.starts_with(real))
        };
        match self.private.iter().any(is_in) {
            true => Err(format!(
                "`{path}` belongs to PVP, which keeps links, keys or journals there"
            )),
            false => Ok(()),
        }
    }

    /// Refuses what may hold secrets. The error says why a vote is needed.
    pub(crate) fn check(&self, path: &str, found: FoundFile<'_>) -> Result<(), String> {
        let real_path = found.workspace.join(found.real_path);
        self.check_not_private(path, &real_path)?;
        if self.is_secret(found.real_path, &real_path)? {
            return Err(format!(
                "`{path}` is `{}`, which may hold secrets; ask people for that name",
                found.real_path.display()
            ));
        }
        // One of the other names may be that of a secret, here or elsewhere.
        match found.names > 1 {
            true => Err(format!(
                "`{path}` has other names (hard links), so it may be a file with secrets; use a \
                 shell command"
            )),
            false => Ok(()),
        }
    }

    /// Whether the content of a file that a command names is sent along with its proposal.
    pub(crate) fn may_show(&self, shown: ShownFile<'_>) -> bool {
        let Ok(workspace) = self.settings.workspace.canonicalize() else {
            return false;
        };
        let Ok(real_path) = shown.real_path.strip_prefix(&workspace) else {
            return false;
        };
        let found = FoundFile {
            workspace: &workspace,
            real_path,
            names: shown.names,
        };
        self.check(shown.path, found).is_ok()
    }

    fn is_secret(&self, relative: &Path, real_path: &Path) -> Result<bool, String> {
        let Some(text) = relative.to_str() else {
            return Err("its real path is not valid UTF-8".to_owned());
        };
        if is_secret_path(text) || has_secret_name(relative) {
            return Ok(true);
        }
        let found = self.settings.secret_files.find(&self.settings.workspace);
        let found = found.map_err(|error| format!("{error}; ask people to read it with `cat`"))?;
        Ok(found.iter().any(|secret| real_path.starts_with(secret)))
    }
}

/// Whether a name on the way to this file is on the list that reads of commands are kept from.
fn has_secret_name(real_path: &Path) -> bool {
    let names: Vec<_> = real_path
        .iter()
        .map(|name| name.to_string_lossy())
        .collect();
    names.iter().enumerate().any(|(number, name)| {
        let parent = number.checked_sub(1).map_or("", |at| names[at].as_ref());
        let kind = match number + 1 == names.len() {
            true => EntryKind::File,
            false => EntryKind::Directory,
        };
        is_secret_entry(parent, name, kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_policy::{FilePresence, NamedFile};
    use std::os::unix::fs::symlink;

    use crate::bound_files;

    #[test]
    fn a_command_shows_no_secret_under_another_name() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let workspace = root.join("workspace");
        std::fs::create_dir_all(workspace.join(".state")).unwrap();
        std::fs::create_dir(workspace.join("srv")).unwrap();
        let put = |path: &str| std::fs::write(workspace.join(path), "KEY=1").unwrap();
        for path in [".env", ".state/journal", "srv/pvp.sqlite3", "srv/a.sh"] {
            put(path);
        }
        put("run.sh");
        put("../outside");
        symlink(".env", workspace.join("link.sh")).unwrap();
        symlink("../outside", workspace.join("out.sh")).unwrap();
        std::fs::hard_link(workspace.join(".env"), workspace.join("hard.sh")).unwrap();
        let names = [
            "run.sh",
            ".env",
            "link.sh",
            "hard.sh",
            "out.sh",
            ".state/journal",
            "srv/a.sh",
        ];
        let named = names.map(|path| NamedFile {
            path: path.to_owned(),
            presence: FilePresence::Expected,
        });
        let settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
        let unasked_reads = UnaskedReads::new(&settings);
        let proposed = bound_files::bind(&workspace, &named, |shown| unasked_reads.may_show(shown));
        let shown: Vec<_> = proposed.shown.contents.iter().map(|it| &it.path).collect();
        assert_eq!(shown, ["run.sh"]);
        assert_eq!(proposed.files.len(), names.len());
    }
}
