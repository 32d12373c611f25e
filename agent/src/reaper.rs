//! The small process above each command: it outlives the executor just long enough to kill
//! everything that the command started.
//!
//! It is this program again, under a hidden name, with one thread. Its standard input is a socket
//! to the executor: the errand comes in, reports go out, and its end means that the executor is
//! gone. Its standard output and error are the command's.
//!
//! A command may kill its reaper, unless it is held to reading and can signal nobody. What has a
//! cgroup is then ended by the executor. What has none has a keeper: a second reaper above the
//! first, to which orphans fall when the first is gone.

mod cgroup;
mod exec_step;
mod process_tree;
mod supervisor;

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use pvp_protocol::SandboxProfile;
use rustix::process::{set_child_subreaper, setsid};
use serde::{Deserialize, Serialize};

pub use cgroup::{Cgroup, available_controllers};
use exec_step::ExecStep;
pub use exec_step::exec_step_main;
pub use process_tree::KillMechanism;
use process_tree::ProcessTree;
use supervisor::Supervisor;

use crate::sandbox::{CgroupLimits, Sandbox};

/// The hidden name under which the program is a reaper.
pub const REAP_SUBCOMMAND: &str = "__reap";

/// The hidden name under which it confines itself and becomes the command.
pub const EXEC_STEP_SUBCOMMAND: &str = "__enter";

/// What the reaper is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpawnSpec {
    pub program: String,
    pub arguments: Vec<String>,
    pub directory: PathBuf,
    pub environment: Vec<(String, String)>,
    pub confinement: Sandbox,
    /// Between asking a tree to end and ending it, in milliseconds.
    pub grace_ms: u64,
    /// Whether a cgroup may be made for it.
    pub cgroup: bool,
    /// Whether it has a terminal, and of what size at first. Then standard output and error are
    /// that terminal, and it becomes the command's own.
    pub terminal: Option<PtySize>,
}

/// How much a terminal shows, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    pub columns: u16,
    pub rows: u16,
}

/// What the executor says while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReaperCommand {
    /// Ask everything to end, and after the grace end it.
    Stop,
    /// End everything at once.
    Kill,
}

/// What the reaper says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReaperReport {
    Started {
        pid: u32,
        /// Where everything that it starts is, if it has a cgroup.
        cgroup: Option<Cgroup>,
    },
    /// It could not be started, and nothing ran.
    NotStarted { why: String },
    /// The command itself has ended; what it left behind is being ended.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// Nothing of it is left.
    Gone {
        mechanism: KillMechanism,
        left_behind: u32,
    },
}

/// Runs as a reaper until nothing is left of its command.
pub fn main() -> ExitCode {
    match run_reaper(ReaperBackup::from_argument(
        std::env::args().nth(2).as_deref(),
    )) {
        Ok(()) => ExitCode::SUCCESS,
        // The executor sees the socket close without `Gone`.
        Err(_) => ExitCode::FAILURE,
    }
}

/// What a reaper relies on to end everything, should a command kill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReaperBackup {
    /// On a cgroup if it can be made, else on a keeper.
    Cgroup,
    /// On a keeper.
    OuterReaper,
    /// It has its keeper already, or needs none.
    NotNeeded,
}

impl ReaperBackup {
    /// What an errand needs.
    pub(crate) fn for_spec(spawn_spec: &SpawnSpec) -> Self {
        let share = spawn_spec.confinement.share;
        let can_signal = match spawn_spec.confinement.profile {
            SandboxProfile::None | SandboxProfile::Workspace => true,
            SandboxProfile::Read | SandboxProfile::ReadNet => false,
        };
        // Entering a cgroup takes the kernel some 15 ms, which someone who approved a command does
        // not notice. Reads are many and short, and end as surely without.
        match spawn_spec.cgroup && (can_signal || share.whole != CgroupLimits::default()) {
            true => Self::Cgroup,
            false if can_signal => Self::OuterReaper,
            false => Self::NotNeeded,
        }
    }

    /// The word that a reaper is started with.
    pub(crate) fn as_argument(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::OuterReaper => "keeper",
            Self::NotNeeded => "alone",
        }
    }

    fn from_argument(word: Option<&str>) -> Self {
        let all = [Self::Cgroup, Self::NotNeeded];
        let found = all.into_iter().find(|it| Some(it.as_argument()) == word);
        found.unwrap_or(Self::OuterReaper)
    }
}

fn run_reaper(backup: ReaperBackup) -> anyhow::Result<()> {
    // A Ctrl-C at the executor's terminal is for the executor.
    let _ = setsid();
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let cgroup = match backup {
        ReaperBackup::Cgroup => Cgroup::create(),
        ReaperBackup::OuterReaper | ReaperBackup::NotNeeded => None,
    };
    if cgroup.is_none() && backup != ReaperBackup::NotNeeded {
        return run_outer_reaper();
    }
    let tree = ProcessTree::new(cgroup);
    // It is begun before its errand is known, while there is nothing else to do.
    let exec_step = ExecStep::spawn();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut commands = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    commands.read_line(&mut line)?;
    let spawn_spec: SpawnSpec = serde_json::from_str(&line)?;
    let grace = Duration::from_millis(spawn_spec.grace_ms);
    let mut supervisor = Supervisor::new(tree, grace, socket, commands);
    match exec_step.and_then(|entrance| entrance.start(&spawn_spec, supervisor.tree())) {
        Ok(child) => supervisor.supervise(child),
        Err(error) => {
            supervisor.tree().kill_all();
            let why = format!("{error:#}");
            supervisor.send_report(&ReaperReport::NotStarted { why })
        }
    }
}

/// Starts the reaper, which takes everything from here, and ends what falls to us when it is gone.
fn run_outer_reaper() -> anyhow::Result<()> {
    let mut reaper = Command::new("/proc/self/exe")
        .arg0("pvp")
        .args([REAP_SUBCOMMAND, ReaperBackup::NotNeeded.as_argument()])
        .spawn()?;
    reaper.wait()?;
    ProcessTree::new(None).kill_all();
    Ok(())
}
