//! Holding a process to what its profile allows: Landlock for files and sockets, seccomp for the
//! rest, limits on what it may use. Applied by the process itself, just before it becomes the
//! command, and inherited by everything it starts.

mod capabilities;
mod file_access;
mod limits;
mod syscalls;

use std::path::PathBuf;

use anyhow::Context;
use pvp_protocol::SandboxProfile;
use serde::{Deserialize, Serialize};

pub use limits::{CgroupController, CgroupLimits, ResourceLimits};

/// What a command is held to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sandbox {
    pub profile: SandboxProfile,
    /// What the command is about: readable, and in profile `workspace` writable.
    pub workspace: PathBuf,
    /// Its own temporary directory, writable in every profile.
    pub temporary: PathBuf,
    pub share: ResourceLimits,
}

impl Sandbox {
    /// Confines this process, which keeps its own `terminal`; an error means that it must not go on.
    pub(crate) fn apply(&self, terminal: &[PathBuf]) -> anyhow::Result<()> {
        self.share.apply().context("setting limits")?;
        file_access::restrict(self, terminal)?;
        capabilities::drop_for_profile(self.profile).context("giving up capabilities")?;
        let network = match self.profile {
            SandboxProfile::None | SandboxProfile::Workspace => return Ok(()),
            SandboxProfile::Read => syscalls::NetworkAccess::Denied,
            SandboxProfile::ReadNet => syscalls::NetworkAccess::Allowed,
        };
        // Before Linux 6.12 a command that may end its own processes may end anyone's.
        let signals = match file_access::can_scope_signals() {
            true => syscalls::SignalAccess::Scoped,
            false => syscalls::SignalAccess::Denied,
        };
        syscalls::install_filter(network, signals)
    }
}

/// Which profiles this machine can enforce.
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
