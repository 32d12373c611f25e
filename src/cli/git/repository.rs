//! Runs git in a repository, without the repository's hooks and helpers, and reads what it prints.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The most bytes that are read from one git command.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;

/// The most bytes of an error of git that are shown.
const MAX_ERROR_BYTES: u64 = 2000;

/// Where the decisions behind commits are noted; `git log --notes=pvp` shows them.
const NOTES_REF: &str = "--ref=refs/notes/pvp";

/// What a repository may have configured and what would run programs of its choice.
const WITHOUT_HELPERS: [&str; 4] = [
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
];

/// A git repository, by a directory in it.
pub(super) struct Repository {
    directory: PathBuf,
}

impl Repository {
    /// The repository around a directory; fails if there is none.
    pub(super) fn around(directory: &Path) -> anyhow::Result<Self> {
        let repository = Self {
            directory: directory.to_owned(),
        };
        repository
            .git_line(&["rev-parse", "--git-dir"])
            .with_context(|| format!("{} is in no git repository", directory.display()))?;
        Ok(repository)
    }

    /// Its working tree.
    pub(super) fn top_level(&self) -> anyhow::Result<PathBuf> {
        Ok(self.git_line(&["rev-parse", "--show-toplevel"])?.into())
    }

    /// Where git looks for its hooks: a worktree has those of its repository, and the configuration
    /// may name another directory.
    pub(super) fn hooks_directory(&self) -> anyhow::Result<PathBuf> {
        let mut git = self.command();
        git.args(["rev-parse", "--git-path", "hooks"]);
        let path = text_line(&run(git, &[])?);
        Ok(self.directory.join(path))
    }

    /// The directories that belong to this repository alone: its working tree, if it has one, and
    /// where git keeps its data.
    pub(super) fn own_directories(&self) -> anyhow::Result<Vec<PathBuf>> {
        let common = self.git_line(&["rev-parse", "--git-common-dir"])?;
        let common = self.directory.join(common);
        let all = self.top_level().into_iter().chain([common]);
        all.map(|path| {
            path.canonicalize()
                .with_context(|| format!("finding {}", path.display()))
        })
        .collect()
    }

    /// What git's configuration says; `None` if nothing.
    pub(super) fn config_value(&self, key: &str) -> Option<String> {
        self.git_line(&["config", "--get", key]).ok()
    }

    /// Whether git is in the middle of replaying commits that were made before.
    pub(super) fn is_replaying(&self) -> bool {
        let states = [
            "rebase-merge",
            "rebase-apply",
            "CHERRY_PICK_HEAD",
            "REVERT_HEAD",
        ];
        states.iter().any(|state| {
            let path = self.git_line(&["rev-parse", "--git-path", state]);
            path.is_ok_and(|path| self.directory.join(path).exists())
        })
    }

    /// The commit that a revision names; `None` if there is none.
    pub(super) fn find_commit(&self, revision: &str) -> Option<String> {
        let commit = format!("{revision}^{{commit}}");
        let found = self.git_line(&["rev-parse", "--quiet", "--verify", &commit]);
        found.ok().filter(|commit| is_object_name(commit))
    }

    /// A commit and those before it, at most `limit`.
    pub(super) fn ancestors(&self, commit: &str, limit: usize) -> anyhow::Result<Vec<String>> {
        let max_count = format!("--max-count={limit}");
        let listed = self.git(&["rev-list", &max_count, commit])?;
        let listed = String::from_utf8_lossy(&listed);
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// The content of objects, by name; those that are not there are left out.
    pub(super) fn read_objects(
        &self,
        names: &[String],
    ) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        let input: String = names.iter().map(|name| format!("{name}\n")).collect();
        let output = self.git_with_input(&["cat-file", "--batch"], input.as_bytes())?;
        Ok(parse_objects(&output))
    }

    /// The note of each commit that has one, by the names of commit and note.
    pub(super) fn notes(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let listed = self.git(&["notes", NOTES_REF, "list"])?;
        let listed = String::from_utf8_lossy(&listed);
        let pairs = listed.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs
            .filter(|(note, commit)| is_object_name(note) && is_object_name(commit))
            .map(|(note, commit)| (commit.to_owned(), note.to_owned()))
            .collect())
    }

    /// The name of the note of one commit.
    pub(super) fn note_of(&self, commit: &str) -> Option<String> {
        let note = self.git_line(&["notes", NOTES_REF, "list", commit]);
        note.ok().filter(|note| is_object_name(note))
    }

    /// Adds text to the note of a commit.
    pub(super) fn append_note(&self, commit: &str, text: &str) -> anyhow::Result<()> {
        let append = ["notes", NOTES_REF, "append", "-F", "-", commit];
        self.git_with_input(&append, text.as_bytes()).map(drop)
    }

    /// Adds trailers to the message in a file, except those that it has.
    pub(super) fn add_trailers(&self, message: &Path, trailers: &[String]) -> anyhow::Result<()> {
        let mut git = self.command_without_helpers();
        git.args(["-c", "trailer.separators=:", "interpret-trailers"]);
        git.args([
            "--in-place",
            "--no-divider",
            "--if-exists",
            "addIfDifferent",
        ]);
        for trailer in trailers {
            git.arg("--trailer").arg(trailer);
        }
        run(git.arg("--").arg(message), &[]).map(drop)
    }

    /// A message as git would keep it: without comments.
    pub(super) fn without_comments(&self, message: &[u8]) -> anyhow::Result<Vec<u8>> {
        self.git_with_input(&["stripspace", "--strip-comments"], message)
    }

    /// Runs git and returns what it prints.
    pub(super) fn git(&self, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        self.git_with_input(arguments, &[])
    }

    /// The same, without the programs that convert files of the working tree for the repository.
    pub(super) fn git_without_filters(&self, arguments: &[&str]) -> anyhow::Result<Vec<u8>> {
        let keys = self.git(&["config", "-z", "--name-only", "--list"])?;
        let keys = String::from_utf8(keys).context("a key of git's configuration is not UTF-8")?;
        let drivers = keys.split('\0').filter_map(|key| {
            let (driver, _) = key.rsplit_once('.')?;
            driver.starts_with("filter.").then_some(driver)
        });
        let drivers: BTreeSet<_> = drivers.collect();
        let settings = drivers.iter().flat_map(|driver| {
            let unset = [("clean", ""), ("process", ""), ("required", "false")];
            unset.map(|(name, value)| (format!("{driver}.{name}"), value))
        });
        let mut git = self.command_without_helpers();
        // By the environment, because the name of a driver may contain `=`.
        let set_before = std::env::var("GIT_CONFIG_COUNT").ok();
        let mut count: usize = set_before.and_then(|it| it.parse().ok()).unwrap_or(0);
        for (key, value) in settings {
            git.env(format!("GIT_CONFIG_KEY_{count}"), key)
                .env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        git.env("GIT_CONFIG_COUNT", count.to_string());
        run(git.args(arguments), &[])
    }

    fn git_line(&self, arguments: &[&str]) -> anyhow::Result<String> {
        Ok(text_line(&self.git(arguments)?))
    }

    fn git_with_input(&self, arguments: &[&str], input: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut git = self.command_without_helpers();
        git.args(arguments);
        run(git, input)
    }

    fn command_without_helpers(&self) -> Command {
        let mut git = self.command();
        git.args(WITHOUT_HELPERS);
        git
    }

    fn command(&self) -> Command {
        let mut git = Command::new("git");
        git.current_dir(&self.directory)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("LC_ALL", "C.UTF-8")
            // A link is a secret, and git and what it starts have no use for it.
            .env_remove("PVP_LINK");
        git
    }
}

/// Runs a command with this input; fails with what it says if it fails.
fn run(mut command: impl std::borrow::BorrowMut<Command>, input: &[u8]) -> anyhow::Result<Vec<u8>> {
    let command = command.borrow_mut();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting git; is it installed?")?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (output, problem) = std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(mut stdin) = stdin {
                // Git may end without reading all of it, and then says why.
                let _ = stdin.write_all(input);
            }
        });
        let problem = scope.spawn(|| read_bounded(stderr, MAX_ERROR_BYTES));
        let output = read_bounded(stdout, MAX_OUTPUT_BYTES + 1);
        (output, problem.join().unwrap_or_default())
    });
    let status = child.wait().context("waiting for git")?;
    if output.len() as u64 > MAX_OUTPUT_BYTES {
        bail!("git prints more than {MAX_OUTPUT_BYTES} bytes");
    }
    if !status.success() {
        bail!("{}", String::from_utf8_lossy(&problem).trim());
    }
    Ok(output)
}

/// The beginning of what a pipe holds. Its writer then finds it closed.
fn read_bounded(pipe: Option<impl Read>, limit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        // What was read before an error is worth as much as nothing: git's status tells.
        let _ = pipe.take(limit).read_to_end(&mut bytes);
    }
    bytes
}

fn text_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    text.trim_end_matches(['\n', '\r']).to_owned()
}

/// Whether a text is the name of an object: a SHA-1 or SHA-256 in hex.
pub(super) fn is_object_name(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Parses what `git cat-file --batch` prints: for each object a line with its name, type and size,
/// and its content.
fn parse_objects(mut output: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut objects = BTreeMap::new();
    while let Some(end) = output.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = output.split_at(end);
        let line = String::from_utf8_lossy(line).into_owned();
        let words: Vec<_> = line.split(' ').collect();
        let size = words.get(2).and_then(|size| size.parse::<usize>().ok());
        output = &rest[1..];
        if let (Some(name), Some(size)) = (words.first(), size) {
            let Some((content, rest)) = output.split_at_checked(size) else {
                break;
            };
            objects.insert((*name).to_owned(), content.to_vec());
            output = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_apart_by_their_size_whatever_they_hold() {
        let output = b"aa blob 9\nbb blob 3\nbb missing\ncc commit 2\n\xff\n\n";
        let objects = parse_objects(output);
        assert_eq!(objects.len(), 2, "{objects:?}");
        assert_eq!(objects["aa"], b"bb blob 3");
        assert_eq!(objects["cc"], b"\xff\n");
        for bad in [&b"aa blob 99\nx"[..], b"aa blob x\n", b"\n\n\n", b"aa", b""] {
            assert!(parse_objects(bad).is_empty(), "{bad:?}");
        }
    }
}
