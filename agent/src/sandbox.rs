//! The sandbox of a command: Landlock for files and sockets, seccomp for the rest, resource limits.
//!
//! The process applies it to itself, just before it becomes the command, and everything that the
//! command starts inherits it.

mod capabilities;
mod file_access;
mod limits;
mod syscalls;
mod trial_filter;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::Context;
use nix::sys::ptrace;
use pvp_protocol::SandboxProfile;
use serde::{Deserialize, Serialize};

pub use limits::{CgroupController, CgroupLimits, ResourceLimits};

/// What a command may access and use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// What kinds of access it has.
    pub profile: SandboxProfile,
    /// The working directory: readable, and writable in the `workspace` profile.
    pub workspace: PathBuf,
    /// Its own temporary directory, writable in every profile.
    pub temporary: PathBuf,
    /// Absolute paths of links, keys and journals. Reads have no access to them; commands in the
    /// `workspace` profile have none to those outside of the workspace.
    pub private: Vec<PathBuf>,
    /// What it may use of the machine.
    pub limits: ResourceLimits,
    /// Whether the command is only tried, and what it may use then; only with the profile `read`.
    pub trial: Option<TrialLimits>,
}

/// What a command that is tried may use, all its processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialLimits {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Processes and threads that it may start.
    pub processes: u32,
}

impl Sandbox {
    /// Applies the sandbox to this process, which keeps access to its own `terminal`.
    ///
    /// After an error the process must exit.
    pub(crate) fn apply(&self, terminal: &[PathBuf]) -> anyhow::Result<()> {
        self.limits.apply().context("setting limits")?;
        file_access::restrict(self, terminal)?;
        capabilities::drop_for_profile(self.profile).context("giving up capabilities")?;
        if self.trial.is_some() {
            anyhow::ensure!(
                self.profile == SandboxProfile::Read,
                "a command is tried only in the profile `read`"
            );
            return trial_filter::install();
        }
        let network = match self.profile {
            SandboxProfile::None | SandboxProfile::Workspace => return Ok(()),
            SandboxProfile::Read => syscalls::NetworkAccess::Denied,
            SandboxProfile::ReadNet => syscalls::NetworkAccess::Allowed,
        };
        // Before Linux 6.12, a command that may signal its own processes may signal any process.
        let signals = match file_access::can_scope_signals() {
            true => syscalls::SignalAccess::Scoped,
            false => syscalls::SignalAccess::Denied,
        };
        syscalls::install_filter(network, signals)
    }
}

impl Sandbox {
    /// What the command may not read, without symbolic links.
    pub(crate) fn resolved_private_paths(&self) -> Vec<PathBuf> {
        file_access::resolved_private_paths(self)
    }

    /// What the command may read, apart from what is private.
    pub(crate) fn resolved_readable_paths(&self) -> Vec<PathBuf> {
        file_access::resolved_readable_paths(self)
    }

    /// Where the command may write: its own temporary directory and harmless devices.
    pub(crate) fn resolved_writable_paths(&self) -> Vec<PathBuf> {
        file_access::resolved_writable_paths(self)
    }
}

/// Whether this machine can count what a sandbox denies: it confines reads, its filters can stop a
/// call for another process to judge, and processes may watch their children.
pub fn can_count_denials() -> bool {
    static CAN_COUNT: OnceLock<bool> = OnceLock::new();
    *CAN_COUNT.get_or_init(|| {
        enforceable_profiles().contains(&SandboxProfile::Read)
            && trial_filter::is_supported()
            && can_watch_child()
    })
}

/// Whether the kernel lets this process watch a child, which containers and settings may forbid.
fn can_watch_child() -> bool {
    let child = Command::new("/bin/bash")
        .args(["--noprofile", "--norc", "-c", "read line"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let watched = ptrace::seize(pid, ptrace::Options::PTRACE_O_EXITKILL).is_ok();
    // It waits for its input and has done nothing; if it is gone, that is just as well.
    let _ = child.kill();
    let _ = child.wait();
    watched
}

/// The profiles that this machine can enforce.
pub fn enforceable_profiles() -> Vec<SandboxProfile> {
    let files_supported = file_access::is_supported();
    let syscalls_supported = syscalls::is_supported();
    let mut profiles = Vec::new();
    if files_supported && syscalls_supported {
        profiles.extend([SandboxProfile::Read, SandboxProfile::ReadNet]);
    }
    if files_supported {
        profiles.push(SandboxProfile::Workspace);
    }
    profiles
}
