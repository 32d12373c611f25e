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
mod entrance;
mod tree;
mod vigil;

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

pub use cgroup::{Cgroup, whole_command_bounds};
use entrance::Entrance;
pub use entrance::enter;
pub use tree::Mechanism;
use tree::Tree;
use vigil::Vigil;

use crate::confine::{Confinement, Whole};

/// The hidden name under which the program is a reaper.
pub const REAP: &str = "__reap";

/// The hidden name under which it confines itself and becomes the command.
pub const ENTER: &str = "__enter";

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
        mechanism: Mechanism,
        left_behind: u32,
    },
}

/// Runs as a reaper until nothing is left of its command.
pub fn main() -> ExitCode {
    match reap(Standing::told(std::env::args().nth(2).as_deref())) {
        Ok(()) => ExitCode::SUCCESS,
        // The executor sees the socket close without `Gone`.
        Err(_) => ExitCode::FAILURE,
    }
}

/// What a reaper relies on to end everything, should a command kill it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// On a cgroup if it can be made, else on a keeper.
    Cgroup,
    /// On a keeper.
    Keeper,
    /// It has its keeper already, or needs none.
    Alone,
}

impl Standing {
    /// What an errand needs.
    pub(crate) fn of(errand: &Errand) -> Self {
        let share = errand.confinement.share;
        let can_signal = match errand.confinement.profile {
            SandboxProfile::None | SandboxProfile::Workspace => true,
            SandboxProfile::Read | SandboxProfile::ReadNet => false,
        };
        // Entering a cgroup takes the kernel some 15 ms, which someone who approved a command does
        // not notice. Reads are many and short, and end as surely without.
        match errand.cgroup && (can_signal || share.whole != Whole::default()) {
            true => Self::Cgroup,
            false if can_signal => Self::Keeper,
            false => Self::Alone,
        }
    }

    /// The word that a reaper is started with.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Keeper => "keeper",
            Self::Alone => "alone",
        }
    }

    fn told(word: Option<&str>) -> Self {
        let all = [Self::Cgroup, Self::Alone];
        let told = all.into_iter().find(|it| Some(it.word()) == word);
        told.unwrap_or(Self::Keeper)
    }
}

fn reap(standing: Standing) -> anyhow::Result<()> {
    // A Ctrl-C at the executor's terminal is for the executor.
    let _ = setsid();
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let cgroup = match standing {
        Standing::Cgroup => Cgroup::make(),
        Standing::Keeper | Standing::Alone => None,
    };
    if cgroup.is_none() && standing != Standing::Alone {
        return keep();
    }
    let tree = Tree::new(cgroup);
    // It is begun before its errand is known, while there is nothing else to do.
    let entrance = Entrance::open();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut words = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    words.read_line(&mut line)?;
    let errand: Errand = serde_json::from_str(&line)?;
    let grace = Duration::from_millis(errand.grace_ms);
    let mut vigil = Vigil::new(tree, grace, socket, words);
    match entrance.and_then(|entrance| entrance.start(&errand, vigil.tree())) {
        Ok(child) => vigil.hold(child),
        Err(error) => {
            vigil.tree().end_all();
            let why = format!("{error:#}");
            vigil.tell(&Report::NotStarted { why })
        }
    }
}

/// Starts the reaper, which takes everything from here, and ends what falls to us when it is gone.
fn keep() -> anyhow::Result<()> {
    let mut reaper = Command::new("/proc/self/exe")
        .arg0("pvp")
        .args([REAP, Standing::Alone.word()])
        .spawn()?;
    reaper.wait()?;
    Tree::new(None).end_all();
    Ok(())
}
