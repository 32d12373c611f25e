//! Restricts by Landlock which files a command may read and write, and whom it may signal.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use pvp_protocol::SandboxProfile;
use rustix::fs::FileType;

use super::Sandbox;

/// The oldest Landlock interface that is enough for reads: files, truncation, TCP.
const REQUIRED_ABI: ABI = ABI::V4;

/// The newest that is used if the kernel has it: devices, signals, abstract sockets.
const PREFERRED_ABI: ABI = ABI::V6;

/// Paths that programs need to start and to learn about the machine.
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

/// Entries of /etc that hold keys or passwords, whoever may read them. Entries that are not
/// world-readable are not readable here either; this list is for files deeper in a directory, and
/// for root.
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

/// Exceptions to these: files that programs need and that hold no secrets.
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

/// Parts of the user's home that programs need and that hold no secrets: the configuration of git,
/// which does not start without it, and tools that are installed there.
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

/// Whether the kernel enforces enough for reads to run without approval.
pub(super) fn is_supported() -> bool {
    ruleset(SandboxProfile::Read, CompatLevel::HardRequirement)
        .and_then(|ruleset| Ok(ruleset.create()?))
        .is_ok()
}

/// Whether the kernel can keep a sandboxed process from signalling others.
pub(super) fn can_scope_signals() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .and_then(Ruleset::create)
        .is_ok()
}

/// Everything that is denied unless a rule allows it.
fn ruleset(profile: SandboxProfile, level: CompatLevel) -> anyhow::Result<Ruleset> {
    let ruleset = Ruleset::default()
        .set_compatibility(level)
        .handle_access(AccessFs::from_all(REQUIRED_ABI))?;
    let ruleset = match profile {
        SandboxProfile::Read => ruleset.handle_access(AccessNet::from_all(REQUIRED_ABI))?,
        SandboxProfile::None | SandboxProfile::ReadNet | SandboxProfile::Workspace => ruleset,
    };
    // Newer kernels can deny more; older ones do without.
    let ruleset = ruleset
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(PREFERRED_ABI))?;
    Ok(match profile {
        SandboxProfile::Read => ruleset.scope(Scope::from_all(PREFERRED_ABI))?,
        SandboxProfile::ReadNet => ruleset.scope(Scope::Signal)?,
        SandboxProfile::None | SandboxProfile::Workspace => ruleset,
    })
}

/// Restricts this process for good; the files of its own terminal stay accessible.
pub(super) fn restrict(sandbox: &Sandbox, terminal: &[PathBuf]) -> anyhow::Result<()> {
    let ruleset = ruleset(sandbox.profile, CompatLevel::HardRequirement)?.create()?;
    let read = AccessFs::from_read(PREFERRED_ABI);
    // A device node gives access to the same device wherever it is made, such as a disk.
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
            // The names in /etc may be listed even where the files may not be read.
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

/// The entries of /etc that are not known to be secret.
fn etc_paths() -> impl Iterator<Item = PathBuf> {
    let etc = std::fs::read_dir("/etc").into_iter().flatten();
    etc.filter_map(Result::ok)
        .filter(|entry| !SECRET_ETC.iter().any(|secret| entry.file_name() == *secret))
        .map(|entry| entry.path())
}

/// The home of the user that this process runs as, from /etc/passwd. The environment is the
/// command's, and could name a directory whose `.gitconfig` links to any file.
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

/// Adds a rule for a path; a path that does not exist needs none.
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

/// An open file or directory whose mode is read only once: there are hundreds for each command.
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

    /// Whether every user may read it; root is restricted in the same way.
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
        // Rights on directories have no meaning for a file, and the kernel refuses them.
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
