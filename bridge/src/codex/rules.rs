//! Finds the files that let Codex run commands without asking: what a `.rules` file allows is not
//! asked about under any approval policy, and no setting switches these files off.

use std::path::{Path, PathBuf};

/// Bytes of a rules file that are looked at; a longer one counts as having rules.
const MAX_BYTES: u64 = 1024 * 1024;

/// Files that are looked at in one directory; more count as having rules.
const MAX_FILES: usize = 256;

/// The first file with rules that Codex would follow in this directory.
pub fn find_rules(codex_home: Option<&Path>, directory: &Path) -> Option<PathBuf> {
    let system = PathBuf::from("/etc/codex/rules");
    let home = codex_home.map(|home| home.join("rules"));
    let projects = directory
        .ancestors()
        .map(|parent| parent.join(".codex/rules"));
    let mut directories = std::iter::once(system).chain(home).chain(projects);
    directories.find_map(|directory| rules_in(&directory))
}

/// Why Codex is not started with such a file.
pub fn refusal(file: &Path) -> String {
    let shown = file.display();
    format!(
        "`{shown}` has rules by which Codex runs commands without asking anybody; move it away \
         (`mv '{shown}' '{shown}.off'`) and start again"
    )
}

/// The directory of Codex's own files.
pub fn codex_home() -> Option<PathBuf> {
    let named = std::env::var_os("CODEX_HOME").filter(|home| !home.is_empty());
    let named = named.map(PathBuf::from);
    named.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".codex")))
}

fn rules_in(directory: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?;
    let mut files = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut looked_at = 0;
    files.find(|file| {
        looked_at += 1;
        let is_rules = file.extension().is_some_and(|it| it == "rules");
        looked_at > MAX_FILES || is_rules && has_rules(file)
    })
}

/// Whether a file has anything but comments. Rules are programs, so what they allow is not guessed.
fn has_rules(file: &Path) -> bool {
    let is_long = file.metadata().is_ok_and(|it| it.len() > MAX_BYTES);
    let Ok(text) = std::fs::read_to_string(file) else {
        return true;
    };
    let mut lines = text.lines().map(str::trim);
    is_long || lines.any(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_the_user_and_of_every_directory_above_are_found() {
        let root = tempfile::tempdir().unwrap();
        let (home, work) = (root.path().join("home"), root.path().join("a/b"));
        std::fs::create_dir_all(home.join("rules")).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        let users = home.join("rules/default.rules");
        std::fs::write(&users, "# nothing\n\n").unwrap();
        std::fs::write(home.join("rules/x.txt"), "prefix_rule()").unwrap();
        assert_eq!(find_rules(Some(&home), &work), None);
        std::fs::write(&users, "prefix_rule(pattern=[\"touch\"])\n").unwrap();
        assert_eq!(find_rules(Some(&home), &work), Some(users.clone()));
        std::fs::remove_file(&users).unwrap();
        let project = root.path().join("a/.codex/rules");
        std::fs::create_dir_all(&project).unwrap();
        std::fs::write(project.join("x.rules"), [0xff]).unwrap();
        assert_eq!(
            find_rules(Some(&home), &work),
            Some(project.join("x.rules"))
        );
    }
}
