//! Drops root's capabilities, of which a command keeps very few.

use pvp_protocol::SandboxProfile;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// A read may read its workspace, whoever owns the files.
const READ_CAPABILITIES: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

/// A command in its workspace may also own, change and serve files there.
const WORKSPACE_CAPABILITIES: CapabilitySet = READ_CAPABILITIES
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// Drops all other capabilities for good: no program that is started later gains any, because
/// Landlock and seccomp have set `no_new_privs`.
pub(super) fn drop_for_profile(profile: SandboxProfile) -> std::io::Result<()> {
    let kept = match profile {
        SandboxProfile::None => return Ok(()),
        SandboxProfile::Read | SandboxProfile::ReadNet => READ_CAPABILITIES,
        SandboxProfile::Workspace => WORKSPACE_CAPABILITIES,
    };
    let kept = capabilities(None)?.permitted.intersection(kept);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}
