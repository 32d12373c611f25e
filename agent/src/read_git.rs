//! Git for reads: no setting of a repository makes it run a program.
//!
//! A repository configures programs in many places: a monitor of its files, hooks, filters, diff
//! drivers, signatures, aliases, the settings of its submodules. Settings from the environment win
//! over the repository's. Some helpers are found by names that only the repository knows, or are
//! switched off only by a flag, so a small program named `git` comes first in the path of a read,
//! looks up the names, adds the flags, and becomes git.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The program that stands before git.
const SCRIPT: &str = include_str!("read_git/git.sh");

/// How the directory of that program is named, below the read's own temporary directory.
const DIRECTORY_PREFIX: &str = ".pvp-git-";

/// Settings that win over those of a repository.
const SETTINGS: &[(&str, &str)] = &[
    ("core.fsmonitor", "false"),
    // Otherwise `git diff` writes the index.
    ("diff.autoRefreshIndex", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("core.sshCommand", "false"),
    ("core.askPass", "true"),
    ("credential.helper", ""),
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
    ("log.showSignature", "false"),
    ("gpg.program", "false"),
    ("gpg.openpgp.program", "false"),
    ("gpg.x509.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // A file that is named here is quoted in error messages.
    ("blame.ignoreRevsFile", ""),
];

/// Variables that keep git from writing, and from fetching what a partial clone lacks.
const VARIABLES: &[(&str, &str)] = &[
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    // No transport has an empty name, so this allows none.
    ("GIT_ALLOW_PROTOCOL", ""),
];

/// Writes the program into a read's temporary directory and changes the read's environment so that
/// it comes before git. Where git is not installed, there is nothing to do.
///
/// The caller must have one thread: while a file is open for writing, every process that another
/// thread starts at that moment has it open too, and such a file cannot be executed.
pub(crate) fn prepare(
    temporary: &Path,
    secret_files: &[PathBuf],
    environment: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let path = environment.get("PATH").cloned().unwrap_or_default();
    let Some(git) = find_program("git", &path) else {
        return Ok(());
    };
    let directory = tempfile::Builder::new()
        .prefix(DIRECTORY_PREFIX)
        .tempdir_in(temporary)
        .context("making a directory for git")?
        .keep();
    let attributes = directory.join("attributes");
    std::fs::write(&attributes, attributes_text()).context("writing git's attributes")?;
    let hidden = directory.join("hidden");
    std::fs::write(&hidden, hidden_text(secret_files)).context("writing what git cannot read")?;
    let script = SCRIPT
        .replace("@PROGRAM@", &quoted(&git))
        .replace("@HIDDEN@", &quoted(&hidden));
    let program = directory.join("git");
    std::fs::write(&program, script).context("writing the program before git")?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let attributes = attributes.display().to_string();
    let settings = SETTINGS.iter().copied();
    for (at, (name, value)) in settings
        .chain([("core.attributesFile", attributes.as_str())])
        .enumerate()
    {
        environment.insert(format!("GIT_CONFIG_KEY_{at}"), name.to_owned());
        environment.insert(format!("GIT_CONFIG_VALUE_{at}"), value.to_owned());
    }
    let count = SETTINGS.len() + 1;
    environment.insert("GIT_CONFIG_COUNT".to_owned(), count.to_string());
    for (name, value) in VARIABLES {
        environment.insert((*name).to_owned(), (*value).to_owned());
    }
    environment.insert("PATH".to_owned(), format!("{}:{path}", directory.display()));
    Ok(())
}

/// Marks the files that usually hold secrets as binary, so that git shows that they differ and not
/// how.
fn attributes_text() -> String {
    let secret = pvp_policy::secret_file_patterns().map(|pattern| format!("{pattern} -diff\n"));
    let public = pvp_policy::public_file_patterns().map(|pattern| format!("{pattern} !diff\n"));
    secret.chain(public).collect()
}

/// The files that git cannot read, a line for each. A name of several lines is left out: git then
/// refuses to compare the file.
fn hidden_text(secret_files: &[PathBuf]) -> String {
    let paths = secret_files.iter().filter_map(|path| path.to_str());
    let paths = paths.filter(|path| !path.contains('\n'));
    paths.map(|path| format!("{path}\n")).collect()
}

/// The first program of this name in a list of directories.
fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    let executable = |file: &PathBuf| {
        let metadata = std::fs::metadata(file);
        metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let directories = path.split(':').filter(|it| it.starts_with('/'));
    directories
        .map(|directory| Path::new(directory).join(name))
        .find(executable)
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_is_found_in_absolute_directories_only() {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("it's");
        std::fs::create_dir(&bin).unwrap();
        let git = bin.join("git");
        std::fs::write(&git, "").unwrap();
        let path = format!("relative::{}:/nowhere", bin.display());
        assert_eq!(find_program("git", &path), None);
        std::fs::set_permissions(&git, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_program("git", &path), Some(git.clone()));
        assert_eq!(find_program("git", "relative:"), None);
        assert!(quoted(&git).ends_with(r"/it'\''s/git'"));
    }

    #[test]
    fn a_machine_without_git_is_left_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut environment = BTreeMap::from([("PATH".to_owned(), "/nowhere".to_owned())]);
        prepare(directory.path(), &[], &mut environment).unwrap();
        assert_eq!(environment.len(), 1);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
