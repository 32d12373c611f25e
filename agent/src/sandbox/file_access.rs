//! Which files a command may read and write, and that it signals nobody outside, by Landlock.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use pvp_protocol::SandboxProfile;
use rustix::fs::FileType;

use super::Sandbox;

/// The oldest kernel interface that reads are trusted to: files, truncation, TCP.
const REQUIRED_ABI: ABI = ABI::V4;

/// The newest that is used where the kernel has it: devices, signals, abstract sockets.
const PREFERRED_ABI: ABI = ABI::V6;

/// What every program needs to start and to be told about the machine.
const SYSTEM_PATHS: &[&str] = &[
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

/// Entries of /etc that hold keys or passwords, whoever may read them. What not everyone may read
/// is not readable here either; this list is about what lies deeper, and about root.
const SECRET_ETC: &[&str] = &[
    "NetworkManager",
    "ansible",
    "apache2",
    "apt",
    "bind",
    "boto.cfg",
    "ceph",
    "chef",
    "cloud",
    "cloudflared",
    "cni",
    "consul.d",
    "credstore",
    "credstore.encrypted",
    "crypttab",
    "cryptsetup-keys.d",
    "cups",
    "davfs2",
    "docker",
    "dovecot",
    "etcd",
    "exim4",
    "freeradius",
    "fwupd",
    "gitlab",
    "gitlab-runner",
    "grafana",
    "gshadow",
    "gshadow-",
    "haproxy",
    "httpd",
    "ipsec.d",
    "ipsec.secrets",
    "iscsi",
    "iwd",
    "krb5.keytab",
    "kubernetes",
    "ldap",
    "letsencrypt",
    "luks",
    "mosquitto",
    "msmtprc",
    "my.cnf.d",
    "mysql",
    "netplan",
    "nginx",
    "nomad.d",
    "nslcd.conf",
    "openvpn",
    "opendkim",
    "pam_ldap.secret",
    "pgbouncer",
    "pki",
    "polkit-1",
    "postfix",
    "postgresql",
    "postgresql-common",
    "ppp",
    "puppet",
    "puppetlabs",
    "rabbitmq",
    "rancher",
    "redis",
    "salt",
    "samba",
    "security",
    "shadow",
    "shadow-",
    "snmp",
    "ssh",
    "ssl",
    "ssmtp",
    "sssd",
    "strongswan.d",
    "sudoers",
    "sudoers.d",
    "swanctl",
    "tailscale",
    "tor",
    "traefik",
    "vault.d",
    "wireguard",
    "wpa_supplicant",
    "zabbix",
];

/// Parts of those that programs need and that hold no secrets.
const READABLE_ETC: &[&str] = &[
    "apt/apt.conf.d",
    "apt/preferences.d",
    "apt/sources.list",
    "apt/sources.list.d",
    "apt/trusted.gpg.d",
    "nginx/mime.types",
    "security/limits.conf",
    "ssl/certs",
    "ssl/openssl.cnf",
    "ssh/ssh_config",
    "pki/tls/certs",
    "pki/ca-trust",
];

/// Parts of the user's home that programs need and that hold no secrets: what git is told by its
/// user, without which it does not start, and tools that are installed there.
const READABLE_HOME: &[&str] = &[
    ".gitconfig",
    ".gitignore",
    ".config/git/attributes",
    ".config/git/config",
    ".config/git/ignore",
    ".asdf/installs",
    ".asdf/shims",
    ".bun/bin",
    ".cargo/bin",
    ".cargo/git",
    ".cargo/registry",
    ".deno/bin",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/mise/installs",
    ".local/share/mise/shims",
    ".nvm/versions",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".sdkman/candidates",
    ".volta",
    "go/bin",
    "go/pkg",
];

/// Devices that are safe to read and to write.
const SAFE_DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// Whether the kernel enforces enough for reads to run without asking.
pub(super) fn is_supported() -> bool {
    ruleset(SandboxProfile::Read, CompatLevel::HardRequirement)
        .and_then(|ruleset| Ok(ruleset.create()?))
        .is_ok()
}

/// Whether the kernel keeps signals of a confined process from others.
pub(super) fn can_scope_signals() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(Ruleset::create)
        .is_ok()
}

/// The set of everything that is refused unless a rule allows it.
fn ruleset(profile: SandboxProfile, level: CompatLevel) -> anyhow::Result<Ruleset> {
    let ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(REQUIRED_ABI))?;
    let ruleset = match profile {
        SandboxProfile::Read => ruleset.handle_access(AccessNet::from_all(REQUIRED_ABI))?,
        SandboxProfile::None | SandboxProfile::ReadNet | SandboxProfile::Workspace => ruleset,
    };
    // Newer kernels refuse more; older ones go without.
    let ruleset = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(PREFERRED_ABI))?;
    Ok(match profile {
        SandboxProfile::Read => ruleset.scope(Scope::from_all(PREFERRED_ABI))?,
        SandboxProfile::ReadNet => ruleset.scope(Scope::Signal)?,
        SandboxProfile::None | SandboxProfile::Workspace => ruleset,
    })
}

/// Confines this process for good; the files of its own terminal stay open to it.
pub(super) fn restrict(sandbox: &Sandbox, terminal: &[PathBuf]) -> anyhow::Result<()> {
    let ruleset = ruleset(sandbox.profile, CompatLevel::HardRequirement)?.create()?;
    let read = AccessFs::from_read(PREFERRED_ABI);
    // A device is the same wherever it is made: a disk, for one.
    let everything =
        AccessFs::from_all(PREFERRED_ABI) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let ruleset = match sandbox.profile {
        SandboxProfile::None => return Ok(()),
        SandboxProfile::Workspace => {
            let ruleset = allow_path(ruleset, Path::new("/"), read)?;
            allow_path(ruleset, &sandbox.workspace, everything)?
        }
        SandboxProfile::Read | SandboxProfile::ReadNet => {
            let mut ruleset = allow_path(ruleset, &sandbox.workspace, read)?;
            for path in system_paths() {
                ruleset = allow_path(ruleset, &path, read)?;
            }
            for path in etc_paths() {
                if let Some(open_path) = OpenPath::open(&path).filter(OpenPath::is_world_readable) {
                    ruleset = open_path.add_rule(ruleset, &path, read)?;
                }
            }
            // Names may be listed where nothing may be read.
            allow_path(ruleset, Path::new("/etc"), AccessFs::ReadDir.into())?
        }
    };
    let mut ruleset = allow_path(ruleset, &sandbox.temporary, everything)?;
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let terminal = terminal.iter().map(PathBuf::as_path);
    for path in SAFE_DEVICES.iter().map(Path::new).chain(terminal) {
        ruleset = allow_path(ruleset, path, device)?;
    }
    let status = ruleset.restrict_self().context("Landlock")?;
    if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
        bail!("the kernel does not enforce it");
    }
    Ok(())
}

fn system_paths() -> impl Iterator<Item = PathBuf> {
    let open = READABLE_ETC.iter().map(|path| Path::new("/etc").join(path));
    let home = home_directory().into_iter();
    let home = home.flat_map(|home| READABLE_HOME.iter().map(move |path| home.join(path)));
    let system = SYSTEM_PATHS.iter().map(PathBuf::from);
    system.chain(open).chain(home)
}

/// What is in /etc and not known to be secret.
fn etc_paths() -> impl Iterator<Item = PathBuf> {
    let etc = std::fs::read_dir("/etc").into_iter().flatten();
    etc.filter_map(Result::ok)
        .filter(|entry| !SECRET_ETC.iter().any(|secret| entry.file_name() == *secret))
        .map(|entry| entry.path())
}

/// The home of the user that this process runs as, from the system's own list: the environment is
/// the command's, and could name a directory whose `.gitconfig` is a link to anything.
fn home_directory() -> Option<PathBuf> {
    let user = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        match fields[..] {
            [_, _, uid, _, _, home, _] if uid == user => Some(PathBuf::from(home)),
            _ => None,
        }
    })
}

/// Adds a rule; what is not there needs none.
fn allow_path(
    ruleset: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> anyhow::Result<RulesetCreated> {
    match OpenPath::open(path) {
        Some(open_path) => open_path.add_rule(ruleset, path, access),
        None => Ok(ruleset),
    }
}

/// A file or directory that was found, looked at once: there are hundreds for each command.
struct OpenPath {
    fd: PathFd,
    mode: u32,
}

impl OpenPath {
    fn open(path: &Path) -> Option<Self> {
        let fd = PathFd::new(path).ok()?;
        let mode = rustix::fs::fstat(&fd).ok()?.st_mode;
        Some(Self { fd, mode })
    }

    /// Whether an ordinary user may read it; root is held to the same.
    fn is_world_readable(&self) -> bool {
        const READ_BY_OTHERS: u32 = 0o004;
        self.mode & READ_BY_OTHERS != 0
    }

    fn add_rule(
        self,
        ruleset: RulesetCreated,
        path: &Path,
        access: BitFlags<AccessFs>,
    ) -> anyhow::Result<RulesetCreated> {
        // Rights about directories mean nothing for a file, and the kernel refuses them.
        let access = match FileType::from_raw_mode(self.mode).is_dir() {
            true => access,
            false => access & AccessFs::from_file(PREFERRED_ABI),
        };
        let rule = PathBeneath::new(self.fd, access).set_compatibility(CompatLevel::BestEffort);
        ruleset
            .add_rule(rule)
            .with_context(|| format!("a rule for {}", path.display()))
    }
}
