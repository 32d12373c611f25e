//! Runs lines one after another, in a namespace of their own and as an unprivileged user.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "it runs commands and looks at files"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::hostile;
use crate::scratch::{ScratchProject, is_root};

/// What stands in the place of programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Programs {
    /// Nothing is found in `PATH`, and the shell records the words of what it would have started.
    Recorded,
    /// The programs that are installed.
    Installed,
}

/// What keeps a line from filling the disk or the processor: bytes are in blocks of 1024.
const LIMITS: &str = "ulimit -f 20480 -t 20";

/// Seconds after which a line that does not end is stopped.
const TIMEOUT: &str = "4";

/// The exit code of a line that was stopped.
const STOPPED: i32 = 124;

/// How a line ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnding {
    ByItself,
    Stopped,
}

/// A scratch project and a process that runs lines in it, so that lines need no setup of their own.
pub(super) struct LineRunner {
    pub(super) scratch: ScratchProject,
    programs: Programs,
    driver: Child,
    lines: Option<ChildStdin>,
    replies: BufReader<ChildStdout>,
}

impl LineRunner {
    pub(super) fn new(programs: Programs) -> Self {
        let scratch = ScratchProject::new();
        std::fs::create_dir(scratch.directory.path().join("received")).unwrap();
        hostile::add_files(&scratch);
        let mut driver = driver_command(&scratch, programs).spawn().unwrap();
        let lines = driver.stdin.take();
        let replies = BufReader::new(driver.stdout.take().unwrap());
        Self {
            scratch,
            programs,
            driver,
            lines,
            replies,
        }
    }

    /// Runs a line and waits for its end. Where programs are only recorded, each of them ends with
    /// this status.
    pub(super) fn run(&mut self, line: &str, status: u8) -> LineEnding {
        let lines = self.lines.as_mut().unwrap();
        write!(lines, "{status}\0{line}\0").unwrap();
        lines.flush().unwrap();
        let mut reply = String::new();
        self.replies.read_line(&mut reply).unwrap();
        let code = reply.strip_prefix("done ").map(str::trim);
        let code: i32 = code.unwrap().parse().unwrap();
        if code == STOPPED {
            LineEnding::Stopped
        } else {
            LineEnding::ByItself
        }
    }

    /// The words of every program that the line would have started.
    pub(super) fn received(&self) -> Vec<Vec<String>> {
        assert!(self.programs == Programs::Recorded);
        let mut received = Vec::new();
        for record in std::fs::read_dir(self.path("received")).unwrap() {
            let record = record.unwrap().path();
            let text = std::fs::read_to_string(&record).unwrap();
            std::fs::remove_file(record).unwrap();
            let words = text.split_terminator('\0').map(str::to_owned);
            received.push(words.collect());
        }
        received
    }

    /// What the line wrote to its output and error streams.
    pub(super) fn output(&self) -> String {
        let bytes = std::fs::read(self.path("output")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The connections that were attempted since the last call; none if nobody watches.
    pub(super) fn connections(&self) -> Vec<String> {
        let trace = self.path("trace");
        let text = std::fs::read(&trace).unwrap_or_default();
        if text.is_empty() {
            return Vec::new();
        }
        let file = std::fs::OpenOptions::new().write(true).open(trace);
        file.unwrap().set_len(0).unwrap();
        // Programs ask the cache of names who a file's owner is, and find no cache.
        let outside = |line: &&str| line.contains("AF_INET") || line.contains("AF_UNIX");
        String::from_utf8_lossy(&text)
            .lines()
            .filter(outside)
            .filter(|line| !line.contains("/nscd/"))
            .map(str::to_owned)
            .collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.directory.path().join(name)
    }
}

impl Drop for LineRunner {
    fn drop(&mut self) {
        // The driver ends when there are no more lines.
        self.lines = None;
        self.driver.wait().ok();
    }
}

/// Whether programs can run in namespaces of their own here.
pub(super) fn has_namespaces() -> bool {
    let mut command = unprivileged_command("/");
    command.args(NAMESPACES).arg("true");
    command.env("PATH", SYSTEM_PATH);
    command.output().is_ok_and(|output| output.status.success())
}

/// Whether attempts to connect can be watched here.
pub(super) fn has_strace() -> bool {
    let mut command = unprivileged_command("/");
    command.args(STRACE).args(["/dev/null", "true"]);
    command.env("PATH", SYSTEM_PATH);
    command.output().is_ok_and(|output| output.status.success())
}

pub(super) const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

const NAMESPACES: [&str; 8] = [
    "unshare",
    "--user",
    "--map-current-user",
    "--mount",
    "--net",
    "--pid",
    "--fork",
    "--kill-child",
];

const STRACE: [&str; 6] = [
    "strace",
    "-f",
    "-qq",
    "--seccomp-bpf",
    "--trace=connect,sendto,sendmsg",
    "-o",
];

fn unprivileged_command(directory: impl Into<PathBuf>) -> Command {
    let mut command = Command::new("/usr/bin/env");
    if is_root() {
        command.args([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ]);
    }
    command.current_dir(directory.into()).env_clear();
    command
}

fn driver_command(scratch: &ScratchProject, programs: Programs) -> Command {
    let root = scratch.directory.path();
    let mut command = unprivileged_command(root.join("tree"));
    if has_namespaces() {
        command.args(NAMESPACES);
    }
    if programs == Programs::Installed && has_strace() {
        command.args(STRACE).arg(root.join("trace"));
    }
    let driver = match programs {
        Programs::Recorded => recording_driver(),
        Programs::Installed => installed_driver(&root.join("output")),
    };
    // A shell calls this function for every program that it does not find, in the process that
    // would have become that program.
    let record = format!(
        r#"() {{ printf '%s\0' "$@" >{}/$BASHPID; return "$PVP_STATUS"; }}"#,
        root.join("received").display()
    );
    if programs == Programs::Recorded {
        command.env("BASH_FUNC_command_not_found_handle%%", record);
    }
    command
        .args(["/bin/bash", "--noprofile", "--norc", "-c", &driver])
        .env("PATH", SYSTEM_PATH)
        .env("HOME", root.join("home"))
        .env("TMPDIR", root.join("tmp"))
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_PAGER", "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

// What `<(…)` starts may go on after the line has ended. It holds descriptor 9, and the driver
// waits until that is closed.

fn recording_driver() -> String {
    format!(
        r#"{LIMITS}
        while IFS= read -r -d '' status && IFS= read -r -d '' line; do
            reply=$(PVP_STATUS=$status PATH=/nonexistent \
                /bin/bash --noprofile --norc -c "$line" </dev/null 9>&1 >/dev/null 2>&1
                printf 'done %d' "$?")
            printf '%s\n' "$reply"
        done"#
    )
}

fn installed_driver(output: &std::path::Path) -> String {
    let output = output.display();
    format!(
        r#"{LIMITS}
        while IFS= read -r -d '' status && IFS= read -r -d '' line; do
            reply=$(timeout -k 1 {TIMEOUT} \
                /bin/bash --noprofile --norc -c "$line" </dev/null 9>&1 >{output} 2>&1
                printf 'done %d' "$?")
            printf '%s\n' "$reply"
        done"#
    )
}
