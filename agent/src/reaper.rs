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

use pvp_protocol::Profile;
use rustix::process::{set_child_subreaper, setsid};
use serde::{Deserialize, Serialize};

pub use cgroup::{Cgroup, whole_command_bounds};
pub use entrance::enter;
pub use tree::Mechanism;
use tree::Tree;
use vigil::Vigil;

use crate::confine::{Confinement, Whole};

/// The hidden name under which the program is a reaper.
pub const REAP: &str = "__reap";

/// What a reaper is told that makes a cgroup if it may, and else has a keeper.
const CGROUP: &str = "cgroup";

/// What a reaper is told that has a keeper.
const KEEPER: &str = "keeper";

/// What a reaper is told that stands alone: it has its keeper already, or needs none.
const ALONE: &str = "alone";

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
    match reap(std::env::args().nth(2).as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        // The executor sees the socket close without `Gone`.
        Err(_) => ExitCode::FAILURE,
    }
}

/// What to tell the reaper of this errand.
pub(crate) fn told(errand: &Errand) -> &'static str {
    let share = errand.confinement.share;
    let can_signal = match errand.confinement.profile {
        Profile::None | Profile::Workspace => true,
        Profile::Read | Profile::ReadNet => false,
    };
    // Entering a cgroup takes the kernel some 15 ms, which someone who approved a command does not
    // notice. Reads are many and short, and end as surely without.
    match errand.cgroup && (can_signal || share.whole != Whole::default()) {
        true => CGROUP,
        false if can_signal => KEEPER,
        false => ALONE,
    }
}

fn reap(told: Option<&str>) -> anyhow::Result<()> {
    // A Ctrl-C at the executor's terminal is for the executor.
    let _ = setsid();
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let cgroup = match told {
        Some(CGROUP) => Cgroup::make(),
        Some(_) | None => None,
    };
    if cgroup.is_none() && told != Some(ALONE) {
        return keep();
    }
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut words = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    words.read_line(&mut line)?;
    let errand: Errand = serde_json::from_str(&line)?;
    let grace = Duration::from_millis(errand.grace_ms);
    let mut vigil = Vigil::new(Tree::new(cgroup), grace, socket, words);
    match entrance::start(&errand, vigil.tree()) {
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
        .args([REAP, ALONE])
        .spawn()?;
    reaper.wait()?;
    Tree::new(None).end_all();
    Ok(())
}
