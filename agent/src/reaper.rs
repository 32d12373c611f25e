//! The reaper: the small process above each command, which ends everything that the command
//! started.
//!
//! It is this program again, started with a hidden subcommand and with one thread. It outlives the
//! executor just long enough to kill what the command started. Its standard input is a socket to
//! the executor: the spec and commands come in, reports go out, and end of file means that the
//! executor is gone. Its standard output and error are the command's.
//!
//! A command can kill its reaper, unless its sandbox profile allows only reading and no signals. If
//! the command has a cgroup, the executor then kills what is in it. If it has none, there is an
//! outer reaper above the first one, which inherits the orphans when the first is gone.

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

use pvp_protocol::{BoundFile, SandboxProfile};
use rustix::process::{set_child_subreaper, setsid};
use serde::{Deserialize, Serialize};

pub use cgroup::{Cgroup, available_controllers};
use exec_step::ExecStep;
pub use exec_step::exec_step_main;
pub use process_tree::KillMechanism;
use process_tree::ProcessTree;
use supervisor::{CommandSupervisor, Tracer};

use crate::sandbox::{CgroupLimits, Sandbox};
pub use crate::working_directory::DirectoryIdentity;

/// The hidden subcommand that runs a reaper.
pub const REAP_SUBCOMMAND: &str = "__reap";

/// The hidden subcommand that applies the sandbox and then executes the command.
pub const EXEC_STEP_SUBCOMMAND: &str = "__exec_step";

/// What a reaper runs, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpawnSpec {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: String,
    /// Its arguments, without its own name.
    pub arguments: Vec<String>,
    /// The working directory.
    pub directory: PathBuf,
    /// Which directory that must be; `None` if it does not matter.
    pub directory_identity: Option<DirectoryIdentity>,
    /// Files in the workspace that must be as they were proposed.
    pub files: Vec<BoundFile>,
    /// The complete environment.
    pub environment: Vec<(String, String)>,
    /// The sandbox and the resource limits.
    pub sandbox: Sandbox,
    /// Time between asking the processes to end and killing them, in milliseconds.
    pub grace_ms: u64,
    /// Whether the reaper may create a cgroup for the command.
    pub cgroup: bool,
    /// The initial size of the command's terminal; `None` if it has none. With a terminal, standard
    /// output and error are that terminal, and it becomes the controlling one.
    pub terminal: Option<PtySize>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtySize {
    pub columns: u16,
    pub rows: u16,
}

/// What the executor sends to the reaper while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReaperCommand {
    /// Ask all processes to end, and kill them after the grace period.
    Stop,
    /// Kill all processes at once.
    Kill,
}

/// What the reaper reports to the executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReaperReport {
    Started {
        pid: u32,
        /// The cgroup of the command, if it has one.
        cgroup: Option<Cgroup>,
    },
    /// It could not be started, and nothing ran.
    NotStarted { why: String },
    /// A command that is tried was denied this, and was killed.
    Denied { what: String },
    /// The command itself has ended; what it left behind is being killed.
    Ended {
        code: Option<i32>,
        signal: Option<i32>,
    },
    /// No process of the command is left.
    Gone {
        mechanism: KillMechanism,
        left_behind: u32,
    },
}

/// Runs as a reaper until no process of its command is left.
pub fn main() -> ExitCode {
    match run_reaper(ReaperBackup::from_argument(
        std::env::args().nth(2).as_deref(),
    )) {
        Ok(()) => ExitCode::SUCCESS,
        // The executor sees the socket close without `Gone`.
        Err(_) => ExitCode::FAILURE,
    }
}

/// What ends a command's processes if the command kills its reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReaperBackup {
    /// A cgroup if one can be created, else an outer reaper.
    Cgroup,
    /// An outer reaper.
    OuterReaper,
    /// There is an outer reaper already, or none is needed.
    NotNeeded,
}

impl ReaperBackup {
    /// The backup that a spec needs.
    pub(crate) fn for_spec(spawn_spec: &SpawnSpec) -> Self {
        let limits = spawn_spec.sandbox.limits;
        let can_signal = match spawn_spec.sandbox.profile {
            SandboxProfile::None | SandboxProfile::Workspace => true,
            SandboxProfile::Read | SandboxProfile::ReadNet => false,
        };
        // Entering a cgroup takes the kernel some 15 ms. Nobody notices that after approving a
        // command, but reads are many and short, and can be ended as reliably without one.
        match spawn_spec.cgroup && (can_signal || limits.cgroup != CgroupLimits::default()) {
            true => Self::Cgroup,
            false if can_signal => Self::OuterReaper,
            false => Self::NotNeeded,
        }
    }

    /// The argument that a reaper is started with.
    pub(crate) fn as_argument(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::OuterReaper => "keeper",
            Self::NotNeeded => "alone",
        }
    }

    fn from_argument(argument: Option<&str>) -> Self {
        let all = [Self::Cgroup, Self::NotNeeded];
        let found = all
            .into_iter()
            .find(|backup| Some(backup.as_argument()) == argument);
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
    // Started before the spec arrives, while there is nothing else to do.
    let exec_step = ExecStep::spawn();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut commands = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    commands.read_line(&mut line)?;
    let spawn_spec: SpawnSpec = serde_json::from_str(&line)?;
    let grace = Duration::from_millis(spawn_spec.grace_ms);
    let mut supervisor = CommandSupervisor::new(tree, grace, socket, commands);
    let started = exec_step.and_then(|exec_step| {
        let tracer = attach_tracer(&exec_step, &spawn_spec)?;
        let child = exec_step.start(&spawn_spec, supervisor.tree())?;
        Ok((child, tracer))
    });
    match started {
        Ok((child, None)) => supervisor.supervise(child),
        Ok((child, Some(tracer))) => supervisor.supervise_trial(&child, tracer),
        Err(error) => {
            supervisor.tree().kill_all();
            let why = format!("{error:#}");
            supervisor.send_report(&ReaperReport::NotStarted { why })
        }
    }
}

/// Watches a command that is only tried, from before its first instruction.
fn attach_tracer(exec_step: &ExecStep, spawn_spec: &SpawnSpec) -> anyhow::Result<Option<Tracer>> {
    let sandbox = &spawn_spec.sandbox;
    let attach = |limits| Tracer::attach(exec_step.pid(), sandbox, limits);
    sandbox.trial.map(attach).transpose()
}

/// Starts the actual reaper, which inherits the socket, and kills the orphans that are left when it
/// is gone.
fn run_outer_reaper() -> anyhow::Result<()> {
    let mut reaper = Command::new("/proc/self/exe")
        .arg0("pvp")
        .args([REAP_SUBCOMMAND, ReaperBackup::NotNeeded.as_argument()])
        .spawn()?;
    reaper.wait()?;
    ProcessTree::new(None).kill_all();
    Ok(())
}
