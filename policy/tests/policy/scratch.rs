//! A small project in a temporary directory, in which tests really run commands.

#![expect(
    clippy::disallowed_methods,
    reason = "this fixture runs commands and looks at files"
)]
#![expect(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test stops at what it does not expect"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// An environment variable that marks processes, to find those that a command left behind.
const PROCESS_MARK: &str = "PVP_DIFFERENTIAL_TEST";

/// Seconds after which a command that follows a file is stopped. Others have ended by then, even on
/// a busy machine.
const COMMAND_TIMEOUT_SECONDS: &str = "5";

/// Ends a test that would hang. No test passes because of it.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(60);

pub struct ScratchProject {
    pub directory: tempfile::TempDir,
}

impl ScratchProject {
    /// A small project with history, owned by whoever runs the commands.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scratch = Self { directory };
        let setup = "mkdir -p tree/src tree/a/b tree/sub home tmp && cd tree && git init -q . && \
            for f in a.txt b.txt a b c a.log a.csv a.json b.json package.json Cargo.toml README.md \
            src/main.rs a.yaml a.conf a.bin sums.txt 'a b.txt' 'file with spaces.txt' .env.example; do \
            printf '1 foo\\n2 bar\\n10 foo\\n' > \"$f\"; done; \
            printf '{\"name\": \"x\", \"dependencies\": {}}' | tee a.json package.json >/dev/null; \
            tar cf a.tar a.txt; tar czf a.tgz a.txt; gzip -k a.txt; \
            find . -type f -exec touch -d '1 hour ago' {} +; \
            git -c user.name=t -c user.email=t@t add -A && \
            git -c user.name=t -c user.email=t@t commit -qm first; cd .. && chmod -R a+rwX .";
        let setup = Command::new("bash")
            .args(["-c", setup])
            .current_dir(scratch.directory.path())
            .env("HOME", scratch.directory.path())
            .output()
            .unwrap();
        assert!(
            setup.status.success() || !setup.stdout.is_empty(),
            "{setup:?}"
        );
        if is_root() {
            let owner = ["-R", "65534:65534"];
            let path = scratch.directory.path();
            Command::new("chown")
                .args(owner)
                .arg(path)
                .status()
                .unwrap();
        }
        // Git updates owners and times in its index on its first run, which is not of interest.
        assert!(scratch.run("git update-index -q --refresh"));
        scratch
    }

    /// Installs a script in a directory of the `PATH`.
    pub fn install(&self, name: &str, script: &str) {
        let program = self.directory.path().join(name);
        // Another process writes the file: if this one had it open, a process that another test
        // starts at that moment would too, and a file that is open for writing cannot be executed.
        let write = r#"printf %s "$2" >"$1" && chmod 755 "$1""#;
        let path = program.to_str().unwrap();
        let written = Command::new("/bin/sh")
            .args(["-c", write, "sh", path, script])
            .status();
        assert!(written.unwrap().success());
    }

    /// Runs a line as an executor would; false if one of its programs is not installed.
    pub fn run(&self, line: &str) -> bool {
        let root = self.directory.path();
        let mut command = Command::new("timeout");
        command.args(["-k", "1", COMMAND_TIMEOUT_SECONDS]);
        if is_root() {
            command.args([
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ]);
        }
        let output = command
            .args(["/bin/bash", "--noprofile", "--norc", "-c", line])
            .current_dir(root.join("tree"))
            .env_clear()
            .env(
                "PATH",
                format!("/usr/local/bin:/usr/bin:/bin:{}", root.display()),
            )
            .env("HOME", root.join("home"))
            .env("TMPDIR", root.join("tmp"))
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_PAGER", "cat")
            .env(PROCESS_MARK, root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        output.code() != Some(127)
    }

    /// Waits until a command's processes have ended, because a shell does not wait for all of them.
    pub fn assert_no_processes_left(&self, line: &str) {
        let left = self.wait_for_processes(HANG_TIMEOUT);
        assert!(left.is_empty(), "{left:?} after {line:?}");
    }

    /// Waits a while for the processes that a command left behind, and then kills them.
    pub fn kill_remaining_processes(&self) {
        let begun = Instant::now();
        while !self.wait_for_processes(Duration::from_secs(2)).is_empty() {
            assert!(begun.elapsed() < HANG_TIMEOUT, "it cannot be ended");
            for (pid, _) in self.remaining_processes() {
                // It may have ended already.
                let _ = Command::new("kill").args(["-9", &pid]).output();
            }
        }
    }

    fn wait_for_processes(&self, patience: Duration) -> Vec<(String, String)> {
        let begun = Instant::now();
        loop {
            let left = self.remaining_processes();
            if left.is_empty() || begun.elapsed() > patience {
                return left;
            }
        }
    }

    /// Processes with this project's mark, and what they run.
    pub fn remaining_processes(&self) -> Vec<(String, String)> {
        let mark = format!("{PROCESS_MARK}={}", self.directory.path().display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            if variables.any(|variable| variable == mark.as_bytes()) {
                let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let pid = entry.file_name().to_string_lossy().into_owned();
                found.push((pid, String::from_utf8_lossy(&command).into_owned()));
            }
        }
        found
    }

    /// Every file, with the attributes that a write would change.
    pub fn file_states(&self) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        record_file_state(&self.directory.path().join("tree"), &mut state);
        state
    }

    /// The same with the home directory and the one for temporary files, of which only those that
    /// are left are of interest.
    pub fn all_file_states(&self) -> BTreeMap<String, String> {
        let mut state = self.file_states();
        let [home, temporary] = ["home", "tmp"].map(|name| self.directory.path().join(name));
        record_file_state(&home, &mut state);
        record_file_state(&temporary, &mut state);
        state.remove(&temporary.display().to_string());
        state
    }
}

fn record_file_state(path: &Path, state: &mut BTreeMap<String, String>) {
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let facts = format!(
        "mode {:o}, owner {}, {} bytes, changed {}.{:09}, {} links",
        metadata.mode(),
        metadata.uid(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.nlink()
    );
    state.insert(path.display().to_string(), facts);
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            record_file_state(&entry.unwrap().path(), state);
        }
    }
}

pub fn changed_paths(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    let paths = before.keys().chain(after.keys());
    let mut changed: Vec<String> = paths
        .filter(|path| before.get(*path) != after.get(*path))
        .cloned()
        .collect();
    changed.dedup();
    changed
}

pub fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").unwrap();
    own.uid() == 0
}
