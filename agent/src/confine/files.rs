//! Which files a command may read and write, and that it signals nobody outside, by Landlock.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use pvp_protocol::Profile;

use super::Confinement;

/// The oldest kernel interface that reads are trusted to: files, truncation, TCP.
const NEEDED: ABI = ABI::V4;

/// The newest that is used where the kernel has it: devices, signals, abstract sockets.
const WANTED: ABI = ABI::V6;

/// What every program needs to start and to be told about the machine.
const SYSTEM: &[&str] = &[
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices",
    "/sys/fs",
    "/sys/kernel/mm",
    "/sys/module",
    "/var/lib/dpkg",
    "/var/lib/apt",
    "/var/cache/apt",
    "/var/lib/rpm",
    "/run/current-system",
];

/// Entries of /etc that hold keys or passwords, whoever may read them.
const SECRET_ETC: &[&str] = &[
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssl",
    "ssh",
    "krb5.keytab",
    "NetworkManager",
    "wpa_supplicant",
    "ppp",
    "ipsec.secrets",
    "ipsec.d",
    "wireguard",
    "openvpn",
    "letsencrypt",
    "kubernetes",
    "rancher",
    "docker",
    "cni",
    "pki",
    "cups",
    "exim4",
    "postfix",
    "mysql",
    "postgresql",
    "redis",
    "rabbitmq",
    "grafana",
    "vault.d",
    "consul.d",
    "security",
];

/// Parts of those that programs need and that hold no secrets.
const OPEN_ETC: &[&str] = &[
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssh/ssh_config",
    "pki/tls/certs",
    "pki/ca-trust",
];

/// Devices that are safe to read and to write.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Whether the kernel enforces enough for reads to run without asking.
pub(super) fn are_enforceable() -> bool {
    ruleset(Profile::Read, CompatLevel::HardRequirement)
        .and_then(|ruleset| Ok(ruleset.create()?))
        .is_ok()
}

/// The set of everything that is refused unless a rule allows it.
fn ruleset(profile: Profile, level: CompatLevel) -> anyhow::Result<Ruleset> {
    let ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(NEEDED))?;
    let ruleset = match profile {
        Profile::Read => ruleset.handle_access(AccessNet::from_all(NEEDED))?,
        Profile::None | Profile::ReadNet | Profile::Workspace => ruleset,
    };
    // Newer kernels refuse more; older ones go without.
    let ruleset = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(WANTED))?;
    Ok(match profile {
        Profile::Read => ruleset.scope(Scope::from_all(WANTED))?,
        Profile::ReadNet => ruleset.scope(Scope::Signal)?,
        Profile::None | Profile::Workspace => ruleset,
    })
}

/// Confines this process for good.
pub(super) fn confine(confinement: &Confinement) -> anyhow::Result<()> {
    let ruleset = ruleset(confinement.profile, CompatLevel::HardRequirement)?.create()?;
    let read = AccessFs::from_read(WANTED);
    // A device is the same wherever it is made: a disk, for one.
    let everything = AccessFs::from_all(WANTED) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let ruleset = match confinement.profile {
        Profile::None => return Ok(()),
        Profile::Workspace => {
            let ruleset = allow(ruleset, Path::new("/"), read)?;
            allow(ruleset, &confinement.workspace, everything)?
        }
        Profile::Read | Profile::ReadNet => {
            let mut ruleset = allow(ruleset, &confinement.workspace, read)?;
            for path in system() {
                ruleset = allow(ruleset, &path, read)?;
            }
            // Names may be listed where nothing may be read.
            allow(ruleset, Path::new("/etc"), AccessFs::ReadDir.into())?
        }
    };
    let mut ruleset = allow(ruleset, &confinement.temporary, everything)?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    for path in DEVICES {
        ruleset = allow(ruleset, Path::new(path), device)?;
    }
    let status = ruleset.restrict_self().context("Landlock")?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        bail!("the kernel does not enforce it");
    }
    Ok(())
}

fn system() -> impl Iterator<Item = PathBuf> {
    let etc = std::fs::read_dir("/etc").into_iter().flatten();
    let etc = etc
        .filter_map(Result::ok)
        .filter(|entry| !SECRET_ETC.iter().any(|secret| entry.file_name() == *secret))
        .map(|entry| entry.path());
    let open = OPEN_ETC.iter().map(|path| Path::new("/etc").join(path));
    SYSTEM.iter().map(PathBuf::from).chain(open).chain(etc)
}

/// Adds a rule; what is not there needs none.
fn allow(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> anyhow::Result<RulesetCreated> {
    let Ok(metadata) = std::fs::metadata(path) else {
        return Ok(ruleset);
    };
    let Ok(place) = PathFd::new(path) else {
        return Ok(ruleset);
    };
    // Rights about directories mean nothing for a file, and the kernel refuses them.
    let access = match metadata.is_dir() {
        true => access,
        false => access & AccessFs::from_file(WANTED),
    };
    let rule = PathBeneath::new(place, access).set_compatibility(CompatLevel::BestEffort);
    ruleset
        .add_rule(rule)
        .with_context(|| format!("a rule for {}", path.display()))
}
