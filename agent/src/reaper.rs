//! The small process above each command: it outlives the executor just long enough to kill
//! everything that the command started.
//!
//! It is this program again, under a hidden name, with one thread. Its standard input is a socket
//! to the executor: the errand comes in, reports go out, and its end means that the executor is
//! gone. Its standard output and error are the command's.

mod tree;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, ioctl_tiocsctty, pidfd_open, set_child_subreaper, setsid,
};
use serde::{Deserialize, Serialize};

pub use tree::Mechanism;

use crate::confine::Confinement;

/// The hidden name under which the program is a reaper.
pub const REAP: &str = "__reap";

/// The hidden name under which it confines itself and becomes the command.
pub const ENTER: &str = "__enter";

/// How often a quiet reaper looks for orphans that have ended.
const LOOK: Duration = Duration::from_secs(1);

/// What the reaper is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    pub program: String,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    pub environment: Vec<(String, String)>,
    pub confinement: Confinement,
    /// Between asking a tree to end and ending it, in milliseconds.
    pub grace_ms: u64,
    /// Whether a cgroup may be made for it.
    pub cgroup: bool,
    /// Whether it has a terminal, and of what size at first. Then standard output and error are
    /// that terminal, and it becomes the command's own.
    pub terminal: Option<Size>,
}

/// How much a terminal shows, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// What the executor says while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// Ask everything to end, and after the grace end it.
    Stop,
    /// End everything at once.
    Kill,
}

/// What the reaper says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    Started {
        pid: u32,
    },
    /// It could not be started, and nothing ran.
    NotStarted {
        why: String,
    },
    /// The command itself has ended; what it left behind is being ended.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// Nothing of it is left.
    Gone {
        mechanism: Mechanism,
        left_behind: u32,
    },
}

/// Runs as a reaper until nothing is left of its command.
pub fn main() -> ExitCode {
    match reap() {
        Ok(()) => ExitCode::SUCCESS,
        // The executor sees the socket close without `Gone`.
        Err(_) => ExitCode::FAILURE,
    }
}

fn reap() -> anyhow::Result<()> {
    // A Ctrl-C at the executor's terminal is for the executor.
    let _ = setsid();
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut words = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    words.read_line(&mut line)?;
    let errand: Errand = serde_json::from_str(&line)?;
    let mut reaper = Reaper {
        tree: tree::Tree::new(errand.cgroup),
        grace: Duration::from_millis(errand.grace_ms),
        socket,
        kill_at: None,
    };
    match start(&errand, &reaper.tree) {
        Ok(child) => reaper.follow(child, words),
        Err(error) => reaper.tell(&Report::NotStarted {
            why: error.to_string(),
        }),
    }
}

/// Starts the command below this process: confined by its own hand, then itself.
fn start(errand: &Errand, tree: &tree::Tree) -> anyhow::Result<Child> {
    // The command's environment may hold what a loader acts on, and secrets that arguments would
    // show to everyone on the machine. So it goes through a pipe, and this step starts clean.
    let mut child = entrance()?.env_clear().stdin(Stdio::piped()).spawn()?;
    let entering = Entering {
        errand: errand.clone(),
        cgroup: tree.cgroup(),
    };
    let mut stdin = child.stdin.take().expect("a pipe was asked for");
    stdin.write_all(&serde_json::to_vec(&entering)?)?;
    Ok(child)
}

/// The last step before the command, with no open files but the standard three.
fn entrance() -> anyhow::Result<Command> {
    let inherited = inherited()?;
    if inherited.is_empty() {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("pvp").arg(ENTER);
        return Ok(command);
    }
    // Closing files by number is something that a shell does safely.
    let close: String = inherited.iter().map(|file| format!(" {file}>&-")).collect();
    let become_entrance = format!("exec{close}; exec -a pvp /proc/$PPID/exe {ENTER}");
    let mut command = Command::new("/bin/bash");
    command.args(["--noprofile", "--norc", "-c", &become_entrance]);
    Ok(command)
}

/// Open files that whoever started the executor left to it, and that a program would inherit.
fn inherited() -> anyhow::Result<Vec<u32>> {
    const CLOSED_ON_EXEC: u32 = 0o2_000_000;
    let mut inherited = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(file) = entry?.file_name().to_str().and_then(|it| it.parse().ok()) else {
            continue;
        };
        // The directory that is being read is among them, and may be closed by the time.
        let Ok(info) = std::fs::read_to_string(format!("/proc/self/fdinfo/{file}")) else {
            continue;
        };
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        if file > 2 && flags.is_none_or(|flags| flags & CLOSED_ON_EXEC == 0) {
            inherited.push(file);
        }
    }
    Ok(inherited)
}

/// What the last step before the command knows.
#[derive(Serialize, Deserialize)]
struct Entering {
    errand: Errand,
    cgroup: Option<PathBuf>,
}

/// Exit code of a step that could not become the command; shells use it too.
const NOT_FOUND: u8 = 127;

/// Confines this process and becomes the command; only a failure returns.
pub fn enter() -> ExitCode {
    let problem = match serde_json::from_reader::<_, Entering>(std::io::stdin()) {
        Ok(entering) => become_command(&entering),
        Err(error) => error.into(),
    };
    // Standard error is the command's; there is nowhere else to say it.
    let _ = writeln!(std::io::stderr(), "pvp: {problem:#}");
    ExitCode::from(NOT_FOUND)
}

fn become_command(entering: &Entering) -> anyhow::Error {
    let _ = setsid();
    if let Some(cgroup) = &entering.cgroup
        && let Err(error) = std::fs::write(cgroup.join("cgroup.procs"), "0")
    {
        return anyhow::Error::new(error).context("entering the command's cgroup");
    }
    let errand = &entering.errand;
    if let Err(error) = std::env::set_current_dir(&errand.directory) {
        let place = errand.directory.display();
        return anyhow::Error::new(error).context(format!("cannot work in {place}"));
    }
    let stdin = match errand.terminal {
        Some(_) => match own_terminal() {
            Ok(terminal) => Stdio::from(terminal),
            Err(error) => return anyhow::Error::new(error).context("taking the terminal"),
        },
        None => Stdio::null(),
    };
    let mut command = Command::new(&errand.program);
    command
        .args(&errand.arguments)
        .env_clear()
        .envs(errand.environment.iter().map(|(key, value)| (key, value)))
        .stdin(stdin);
    if let Err(error) = errand.confinement.apply() {
        return error.context("cannot confine the command, so it does not run");
    }
    let error = command.exec();
    anyhow::Error::new(error).context(format!("cannot run {}", errand.program))
}

/// Makes the terminal that standard output is the one of this session; keys such as Ctrl-C then
/// signal what runs in its foreground.
fn own_terminal() -> std::io::Result<OwnedFd> {
    let terminal = std::io::stdout().as_fd().try_clone_to_owned()?;
    ioctl_tiocsctty(&terminal)?;
    Ok(terminal)
}

struct Reaper {
    tree: tree::Tree,
    grace: Duration,
    socket: UnixStream,
    /// When asking has taken long enough.
    kill_at: Option<Instant>,
}

/// What woke the reaper.
enum Woken {
    Word(Option<Word>),
    Ended,
    Time,
}

impl Reaper {
    fn tell(&mut self, report: &Report) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        // An executor that is gone hears nothing, and what is to be done is the same.
        let _ = self.socket.write_all(&line);
        Ok(())
    }

    fn follow(&mut self, mut child: Child, mut words: BufReader<UnixStream>) -> anyhow::Result<()> {
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty())?;
        self.tell(&Report::Started { pid: child.id() })?;
        loop {
            match self.wait(&ended, &mut words)? {
                Woken::Ended => break,
                Woken::Word(Some(Word::Stop)) => {
                    self.tree.signal(Signal::TERM);
                    self.kill_at.get_or_insert(Instant::now() + self.grace);
                }
                Woken::Word(Some(Word::Kill) | None) => self.tree.signal(Signal::KILL),
                Woken::Time => {
                    if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                        self.tree.signal(Signal::KILL);
                    }
                    self.tree.collect(Some(pid));
                }
            }
        }
        let status = child.wait()?;
        self.tell(&Report::Ended {
            code: status.code(),
            signal: status.signal(),
        })?;
        let left_behind = self.tree.end_all();
        self.tell(&Report::Gone {
            mechanism: self.tree.mechanism(),
            left_behind,
        })
    }

    fn wait(&self, ended: &OwnedFd, words: &mut BufReader<UnixStream>) -> anyhow::Result<Woken> {
        let now = Instant::now();
        let until = self
            .kill_at
            .map_or(LOOK, |at| at.saturating_duration_since(now).min(LOOK));
        let timeout = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: until.subsec_nanos().into(),
        };
        let mut ready = [
            PollFd::new(ended, PollFlags::IN),
            PollFd::new(words.get_ref(), PollFlags::IN),
        ];
        match poll(&mut ready, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (is_ended, has_word) = (
            !ready[0].revents().is_empty(),
            !ready[1].revents().is_empty(),
        );
        if is_ended {
            return Ok(Woken::Ended);
        }
        if has_word {
            let mut line = String::new();
            let word = match words.read_line(&mut line) {
                Ok(1..) => serde_json::from_str(&line).ok(),
                Ok(0) | Err(_) => None,
            };
            return Ok(Woken::Word(word));
        }
        Ok(Woken::Time)
    }
}
