//! Runs commands that were assessed as reads and checks that nothing changed.

#![expect(
    clippy::disallowed_methods,
    reason = "this test runs commands and looks at files"
)]
#![expect(
    clippy::unwrap_used,
    reason = "a test stops at what it does not expect"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::skip::skip;
use crate::support::{corpus_cases, explain};
use pvp_protocol::{Category, SandboxProfile};

/// An environment variable that marks processes, to find those that a command left behind.
const PROCESS_MARK: &str = "PVP_DIFFERENTIAL_TEST";

/// Seconds after which a command that follows a file is stopped. Others have ended by then, even on
/// a busy machine.
const COMMAND_TIMEOUT_SECONDS: &str = "5";

/// Ends a test that would hang. No test passes because of it.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn reads_change_nothing_and_leave_no_process() {
    let scratch = ScratchProject::new();
    let mut before = scratch.file_states();
    let (mut ran, mut missing) = (0, Vec::new());
    for line in runnable_reads() {
        if !scratch.run(&line) {
            missing.push(line);
            continue;
        }
        ran += 1;
        let after = scratch.file_states();
        assert_eq!(
            changed_paths(&before, &after),
            Vec::<String>::new(),
            "after {line:?}"
        );
        scratch.assert_no_processes_left(&line);
        before = after;
    }
    println!("{ran} commands ran and changed nothing");
    if !missing.is_empty() {
        println!("not installed: {missing:?}");
        skip("some programs are not installed");
    }
    assert!(ran >= 200, "only {ran} commands could be run here");
}

#[test]
fn a_command_that_writes_would_be_noticed() {
    let scratch = ScratchProject::new();
    let before = scratch.file_states();
    assert!(scratch.run("sort -o a.txt b.txt"));
    assert_ne!(
        changed_paths(&before, &scratch.file_states()),
        Vec::<String>::new()
    );
    assert!(scratch.run("sleep 60 >/dev/null 2>&1 &"));
    let begun = Instant::now();
    // The process has no environment while `sleep` replaces it.
    while scratch.remaining_processes().is_empty() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "it is not noticed");
    }
    scratch.kill_remaining_processes();
}

#[test]
fn no_line_that_is_a_read_runs_a_hidden_command() {
    let scratch = ScratchProject::new();
    let canary = scratch.directory.path().join("tmp/canary");
    let stub = format!("#!/bin/sh\n: > {}\n", canary.display());
    scratch.install("canary", &stub);
    assert!(scratch.run("canary"));
    assert!(canary.exists(), "the canary does not sing");
    let mut rng_state = env_number("PVP_SEED").unwrap_or(42);
    let mut ran = 0;
    for _ in 0..60_000 {
        let line = random_hidden_line(&mut rng_state);
        if explain(&line).assessment.category == Category::Read {
            std::fs::remove_file(&canary).ok();
            scratch.run(&line);
            assert!(!canary.exists(), "{line:?} ran a hidden command");
            ran += 1;
        }
        if ran == 400 {
            break;
        }
    }
    println!("{ran} random lines ran no hidden command");
    assert!(ran >= 200, "only {ran} random lines were reads");
}

/// A blocked command must be found wherever a shell would run it. The program is a stub, and the
/// real one could do nothing either, because there is no such device.
#[test]
fn every_line_that_runs_a_blocked_command_is_blocked() {
    let scratch = ScratchProject::new();
    let canary = scratch.directory.path().join("tmp/canary");
    let stub = format!(
        "#!/bin/sh\n[ \"$(realpath -m \"$1\")\" = /dev/none ] && : > {}\n",
        canary.display()
    );
    scratch.install("mkfs.ext4", &stub);
    assert_eq!(
        explain("mkfs.ext4 /dev/none").assessment.category,
        Category::Blocked
    );
    assert!(scratch.run("mkfs.ext4 /dev/none"));
    assert!(canary.exists(), "the canary does not sing");
    let mut rng_state = env_number("PVP_SEED").unwrap_or(7);
    let rounds = env_number("PVP_ROUNDS").unwrap_or(800);
    let (mut blocked, mut milder) = (0, 0);
    while milder < rounds {
        let line = random_blocked_line(&mut rng_state);
        if explain(&line).assessment.category == Category::Blocked {
            blocked += 1;
            continue;
        }
        std::fs::remove_file(&canary).ok();
        scratch.run(&line);
        scratch.kill_remaining_processes();
        assert!(!canary.exists(), "{line:?} runs what is blocked");
        milder += 1;
    }
    println!("{blocked} blocked, {milder} milder");
    assert!(blocked > 0, "nothing is blocked");
}

/// Fragments of lines around a blocked command. None of them computes a value, so everything that a
/// line runs is written in it.
const BLOCKED_FRAGMENTS: &[&str] = &[
    "mk''fs.ext4 /dev/none",
    "mk''fs.ext4 /dev/none",
    "mk''fs.ext4 /dev/none\n",
    "mk''fs.ext4",
    " /dev/none",
    "\\mk''fs.ext4 /dev/none",
    "mk\\\nfs.ext4 /dev/none",
    "'mkfs.ext4' /dev/none",
    "mk\"fs\".ext4 /dev/none",
    "cd /dev && mk''fs.ext4 none",
    "cd /dev; mk''fs.ext4 none",
    "cd /dev",
    "mk''fs.ext4 none",
    "\\\n",
    "\n",
    "\n\\",
    "\\",
    " ",
    " ",
    "\t",
    ";",
    "; ",
    " && ",
    " || ",
    " | ",
    " & ",
    "|&",
    "# ",
    " # x\n",
    "#\\\n",
    "'",
    "\"",
    "a",
    "ls",
    "ls | true | cat",
    " | cat\n",
    "true",
    "false",
    "-x",
    "! ",
    "( ",
    " )",
    "{ ",
    "; }",
    " >/dev/null",
    " 2>&1",
    " </dev/null",
    " <<E\nx\nE\n",
    " <<'E'\nx\\\nE\n",
    " <<< a",
    "if true; then ",
    "; fi",
    "; else ",
    "for f in 1; do ",
    "while true; do ",
    "; break; done",
    "; done",
    "case a in a) ",
    ";; esac",
    "f() { ",
    "; }; f",
    "A=1 ",
    "A=1\n",
    "a[0]=1 ",
    "B=(1 2)\n",
    "time ",
    "export A\n",
    "[ a ]",
    "[[ a ]]",
    "(( 1 ))",
    "((1))\n",
    "$((1))",
    "$'a'",
    "é",
    "\r",
    "*",
    "~",
    "{a,b}",
    "coproc ",
    "exec ",
    "command ",
];

fn random_blocked_line(rng_state: &mut u64) -> String {
    let mut line = String::new();
    for _ in 0..2 + random_below(rng_state, 8) {
        line.push_str(BLOCKED_FRAGMENTS[random_below(rng_state, BLOCKED_FRAGMENTS.len())]);
    }
    line
}

/// Fragments that mean something to shells, around a command that must not run.
const HIDDEN_FRAGMENTS: &[&str] = &[
    "a",
    "canary",
    " canary ",
    "$(canary)",
    "`canary`",
    "\"",
    "'",
    "\\",
    "$",
    "{",
    "}",
    "(",
    ")",
    "|",
    "||",
    "&&",
    ";",
    "&",
    "\n",
    " ",
    " ",
    " ",
    "<",
    ">",
    "<<",
    "<<<",
    "E",
    "#",
    "!",
    "~",
    "*",
    "?",
    "[a]",
    "${x}",
    "$x",
    "${x:=",
    "${x[",
    "]}",
    "$((",
    "))",
    "$'",
    "\\x60",
    "$\"",
    "[[",
    "]]",
    " -v ",
    "'a[$(canary)]'",
    " -eq ",
    "for f in ",
    " do ",
    "done",
    "if ",
    "then ",
    "fi",
    "case x in ",
    "esac",
    "while ",
    "time ",
    "function ",
    "canary()",
    "=",
    "x=",
    "PATH=.. ",
    " -e ",
    " -- ",
    "2>&1",
    "&>",
    "<(",
    ">(",
    "|&",
    "coproc ",
    "\t",
    "{a,b}",
    "@(",
    "eval ",
    "command ",
    "-v ",
    "\"`canary`\"",
    "\"${x:=`canary`}\"",
    "\"$(canary)\"",
    "'$(canary)'",
    "\\$(canary)",
    "\\`canary\\`",
    "\\\n",
    "%n",
    " 2>/dev/null ",
    " >/dev/null",
    "| cat | cat",
    "\ncat a.txt",
];

const LINE_STARTS: &[&str] = &[
    "echo ",
    "cat ",
    "ls ",
    "test ",
    "[ ",
    "printf ",
    "true ",
    "grep a ",
    "sort ",
    "cd src && ",
    ": ",
    "wc <<< ",
    "sed ",
    "awk ",
    "find ",
    "env ",
    "type ",
    "! echo ",
    "(echo ",
    "{ echo ",
    "LC_ALL=",
];

fn random_hidden_line(rng_state: &mut u64) -> String {
    let mut line = LINE_STARTS[random_below(rng_state, LINE_STARTS.len())].to_owned();
    for _ in 0..1 + random_below(rng_state, 6) {
        line.push_str(HIDDEN_FRAGMENTS[random_below(rng_state, HIDDEN_FRAGMENTS.len())]);
    }
    line
}

fn env_number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn random_below(rng_state: &mut u64, count: usize) -> usize {
    *rng_state = rng_state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*rng_state >> 33) as usize % count
}

/// Every corpus line that is assessed as a read and needs no daemon, network or keyboard.
fn runnable_reads() -> Vec<String> {
    let is_read = |line: &str| {
        let assessment = explain(line).assessment;
        assessment.category == Category::Read && assessment.profile == SandboxProfile::Read
    };
    let slow = [
        "lsof",
        "sleep",
        "journalctl -f",
        "apt",
        "npm",
        "gem",
        "pip",
        "brew",
        "dmesg",
    ];
    corpus_cases()
        .into_iter()
        .map(|case| case.line)
        .filter(|line| is_read(line) && !slow.iter().any(|word| line.starts_with(word)))
        .collect()
}

struct ScratchProject {
    directory: tempfile::TempDir,
}

impl ScratchProject {
    /// A small project with history, owned by whoever runs the commands.
    fn new() -> Self {
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
    fn install(&self, name: &str, script: &str) {
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
    fn run(&self, line: &str) -> bool {
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
    fn assert_no_processes_left(&self, line: &str) {
        let left = self.wait_for_processes(HANG_TIMEOUT);
        assert!(left.is_empty(), "{left:?} after {line:?}");
    }

    /// Waits a while for the processes that a command left behind, and then kills them.
    fn kill_remaining_processes(&self) {
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
    fn remaining_processes(&self) -> Vec<(String, String)> {
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
    fn file_states(&self) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        record_file_state(&self.directory.path().join("tree"), &mut state);
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

fn changed_paths(
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

fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").unwrap();
    own.uid() == 0
}
