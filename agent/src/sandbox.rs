//! The sandbox of a command: Landlock for files and sockets, seccomp for the rest, resource limits.
//!
//! The process applies it to itself, just before it becomes the command, and everything that the
//! command starts inherits it.

mod capabilities;
mod file_access;
mod limits;
mod syscalls;

use std::path::PathBuf;

use anyhow::Context;
use pvp_protocol::SandboxProfile;
use serde::{Deserialize, Serialize};

pub use limits::{CgroupController, CgroupLimits, ResourceLimits};

/// What a command may access and use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    /// What kind of access it gives.
    pub profile: SandboxProfile,
    /// The working directory: readable, and writable in the `workspace` profile.
    pub workspace: PathBuf,
    /// Directories beside it that a read may see, as paths without symbolic links.
    pub read_roots: Vec<PathBuf>,
    /// Its own temporary directory, writable in every profile.
    pub temporary: PathBuf,
    /// Absolute paths of links, keys and journals. Reads have no access to them; commands in the
    /// `workspace` profile have none to those outside of the workspace.
    pub private: Vec<PathBuf>,
    /// Files and directories with secrets, below what may be read, as paths without symbolic
    /// links. Reads have no access to them.
    pub secret_files: Vec<PathBuf>,
    /// How much of the machine it may use.
    pub limits: ResourceLimits,
}

impl Sandbox {
    /// Applies the sandbox to this process, which keeps access to its own `terminal`.
    ///
    /// After an error the process must exit.
    pub(crate) fn apply(&self, terminal: &[PathBuf]) -> anyhow::Result<()> {
        self.limits.apply().context("setting limits")?;
        file_access::restrict(self, terminal)?;
        capabilities::drop_for_profile(self.profile).context("giving up capabilities")?;
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
