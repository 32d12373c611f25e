//! Holding a process to what its profile allows: Landlock for files and sockets, seccomp for the
//! rest, limits on what it may use. Applied by the process itself, just before it becomes the
//! command, and inherited by everything it starts.

mod capabilities;
mod files;
mod limits;
mod syscalls;

use std::path::PathBuf;

use anyhow::Context;
use pvp_protocol::SandboxProfile;
use serde::{Deserialize, Serialize};

pub use limits::{Controller, Share, Whole};

/// What a command is held to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confinement {
    pub profile: SandboxProfile,
    /// What the command is about: readable, and in profile `workspace` writable.
    pub workspace: PathBuf,
    /// Its own temporary directory, writable in every profile.
    pub temporary: PathBuf,
    pub share: Share,
}

impl Confinement {
    /// Confines this process, which keeps its own `terminal`; an error means that it must not go on.
    pub(crate) fn apply(&self, terminal: &[PathBuf]) -> anyhow::Result<()> {
        self.share.apply().context("setting limits")?;
        files::confine(self, terminal)?;
        capabilities::drop(self.profile).context("giving up capabilities")?;
        let network = match self.profile {
            SandboxProfile::None | SandboxProfile::Workspace => return Ok(()),
            SandboxProfile::Read => syscalls::Network::Refused,
            SandboxProfile::ReadNet => syscalls::Network::Allowed,
        };
        // Before Linux 6.12 a command that may end its own processes may end anyone's.
        let signals = match files::scope_signals() {
            true => syscalls::Signals::Scoped,
            false => syscalls::Signals::Refused,
        };
        syscalls::filter(network, signals)
    }
}

/// Which profiles this machine can enforce.
pub fn enforceable() -> Vec<SandboxProfile> {
    let files = files::are_enforceable();
    let calls = syscalls::are_enforceable();
    let mut profiles = Vec::new();
    if files && calls {
        profiles.extend([SandboxProfile::Read, SandboxProfile::ReadNet]);
    }
    if files {
        profiles.push(SandboxProfile::Workspace);
    }
    profiles
}
