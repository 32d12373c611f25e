//! Restricts by Landlock which files a command may read and write, and whom it may signal.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use pvp_protocol::SandboxProfile;
use rustix::fs::{FileType, Mode, OFlags};

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

/// What /proc says about the machine. What it says about processes is left out, because anybody may
/// read their arguments, which may hold passwords. `self` is the process that becomes the command;
/// those that it starts cannot read about themselves.
const PROC_PATHS: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/buddyinfo",
    "/proc/bus",
    "/proc/cgroups",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/consoles",
    "/proc/cpuinfo",
    "/proc/crypto",
    "/proc/devices",
    "/proc/diskstats",
    "/proc/dma",
    "/proc/driver",
    "/proc/execdomains",
    "/proc/fb",
    "/proc/filesystems",
    "/proc/fs",
    "/proc/interrupts",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/loadavg",
    "/proc/locks",
    "/proc/mdstat",
    "/proc/meminfo",
    "/proc/misc",
    "/proc/modules",
    "/proc/mtrr",
    "/proc/pagetypeinfo",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/schedstat",
    "/proc/scsi",
    "/proc/self",
    "/proc/slabinfo",
    "/proc/softirqs",
    "/proc/stat",
    "/proc/swaps",
    "/proc/sys",
    "/proc/sysvipc",
    "/proc/timer_list",
    "/proc/tty",
    "/proc/uptime",
    "/proc/version",
    "/proc/version_signature",
    "/proc/vmallocinfo",
    "/proc/vmstat",
    "/proc/zoneinfo",
];

/// Where PVP keeps links, journals and data below a home, unless the environment says otherwise.
const PRIVATE_HOME: &[&str] = &[".config/pvp", ".local/state/pvp"];

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
    let private = PrivatePaths::new(sandbox);
    let read = AccessFs::from_read(PREFERRED_ABI);
    // A device node gives access to the same device wherever it is made, such as a disk.
    let everything =
        AccessFs::from_all(PREFERRED_ABI) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let ruleset = match sandbox.profile {
        SandboxProfile::None => return Ok(()),
        SandboxProfile::Workspace => {
            // What is private and lies in the workspace stays accessible: without a rule for the
            // workspace as a whole, no file could be created in it.
            let private = private.outside(&sandbox.workspace);
            let ruleset = private.allow_beside(ruleset, OpenPath::open(Path::new("/")), read)?;
            allow_path(ruleset, &sandbox.workspace, everything)?
        }
        SandboxProfile::Read | SandboxProfile::ReadNet => {
            let workspace = OpenPath::open(&sandbox.workspace);
            let mut ruleset = private.allow_workspace(ruleset, workspace, read)?;
            for root in &sandbox.read_roots {
                // Whoever accepted it has looked at exactly this path.
                let open_path = OpenPath::open(root);
                let open_path = open_path.filter(|it| it.real_path().is_ok_and(|it| it == *root));
                ruleset = private.allow_beside(ruleset, open_path, read)?;
            }
            for path in system_paths() {
                ruleset = private.allow_beside(ruleset, OpenPath::open(&path), read)?;
            }
            for path in etc_paths() {
                let open_path = OpenPath::open(&path).filter(OpenPath::is_world_readable);
                ruleset = private.allow_beside(ruleset, open_path, read)?;
            }
            // Names may be listed even where the files may not be read.
            let ruleset = allow_path(ruleset, Path::new("/etc"), AccessFs::ReadDir.into())?;
            allow_path(ruleset, Path::new("/proc"), AccessFs::ReadDir.into())?
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

/// What a sandboxed command may not read, without symbolic links.
pub(super) fn resolved_private_paths(sandbox: &Sandbox) -> Vec<PathBuf> {
    PrivatePaths::new(sandbox).0.into_iter().collect()
}

/// What a read may read, without symbolic links and apart from what is private.
pub(super) fn resolved_readable_paths(sandbox: &Sandbox) -> Vec<PathBuf> {
    let is_public = |path: &PathBuf| OpenPath::open(path).is_some_and(|it| it.is_world_readable());
    let own = [sandbox.workspace.clone(), sandbox.temporary.clone()];
    let devices = SAFE_DEVICES.iter().map(PathBuf::from);
    // What `/proc/self` is depends on who looks.
    let system = system_paths().filter(|path| path != Path::new("/proc/self"));
    let paths = system.chain(etc_paths().filter(is_public));
    let paths = paths.chain(own).chain(devices);
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

/// Where a read may write, without symbolic links.
pub(super) fn resolved_writable_paths(sandbox: &Sandbox) -> Vec<PathBuf> {
    let devices = SAFE_DEVICES.iter().map(PathBuf::from);
    devices
        .chain([resolve_existing(&sandbox.temporary)])
        .collect()
}

fn system_paths() -> impl Iterator<Item = PathBuf> {
    let open = READABLE_ETC.iter().map(|path| Path::new("/etc").join(path));
    let home = home_directory().into_iter();
    let home = home.flat_map(|home| READABLE_HOME.iter().map(move |path| home.join(path)));
    let system = SYSTEM_PATHS.iter().chain(PROC_PATHS).map(PathBuf::from);
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

/// What must not be read even where a rule allows what surrounds it. The order of the set puts what
/// lies in a directory right after it.
struct PrivatePaths(BTreeSet<PathBuf>);

impl PrivatePaths {
    fn new(sandbox: &Sandbox) -> Self {
        let home = home_directory().into_iter();
        let home = home.flat_map(|home| PRIVATE_HOME.iter().map(move |path| home.join(path)));
        let paths = sandbox.private.iter().cloned().chain(home);
        let paths = paths.map(|path| resolve_existing(&path));
        let secret_files = match sandbox.profile {
            SandboxProfile::Read | SandboxProfile::ReadNet => sandbox.secret_files.as_slice(),
            SandboxProfile::None | SandboxProfile::Workspace => &[],
        };
        Self(paths.chain(secret_files.iter().cloned()).collect())
    }

    /// Whether something in this directory, or the path itself, is private.
    fn has_some_in(&self, path: &Path) -> bool {
        let mut from_here = self
            .0
            .range::<Path, _>((Bound::Included(path), Bound::Unbounded));
        from_here.next().is_some_and(|it| it.starts_with(path))
    }

    /// Whether the path is private, or lies in what is.
    fn has_all_of(&self, path: &Path) -> bool {
        path.ancestors().any(|ancestor| self.0.contains(ancestor))
    }

    /// Those that do not lie in the workspace.
    fn outside(self, workspace: &Path) -> Self {
        let workspace = resolve_existing(workspace);
        let Self(mut paths) = self;
        paths.retain(|path| !path.starts_with(&workspace));
        Self(paths)
    }

    /// Allows access to a path, unless it is private or lies in what is, and except to what is
    /// private below it.
    fn allow_beside(
        &self,
        ruleset: RulesetCreated,
        open_path: Option<OpenPath>,
        access: BitFlags<AccessFs>,
    ) -> anyhow::Result<RulesetCreated> {
        let Some(open_path) = open_path else {
            return Ok(ruleset);
        };
        let path = open_path.real_path()?;
        match self.has_all_of(&path) {
            true => Ok(ruleset),
            false => self.allow_open_path(ruleset, open_path, &path, access),
        }
    }

    /// Allows access to the workspace, which may lie in what is private, such as a data directory.
    fn allow_workspace(
        &self,
        ruleset: RulesetCreated,
        workspace: Option<OpenPath>,
        access: BitFlags<AccessFs>,
    ) -> anyhow::Result<RulesetCreated> {
        let Some(workspace) = workspace else {
            return Ok(ruleset);
        };
        let path = workspace.real_path()?;
        match self.0.contains(&path) {
            true => Ok(ruleset),
            false => self.allow_open_path(ruleset, workspace, &path, access),
        }
    }

    /// Allows access to a path, except to what is private below it.
    ///
    /// Landlock rules can only allow, and hold for everything below. So if something below is
    /// private, each entry beside it gets a rule, and so on down to it. The directories on the way
    /// can be listed, and so can what is private: its names show, its content does not.
    fn allow_open_path(
        &self,
        mut ruleset: RulesetCreated,
        open_path: OpenPath,
        real_path: &Path,
        access: BitFlags<AccessFs>,
    ) -> anyhow::Result<RulesetCreated> {
        if !self.has_some_in(real_path) {
            return open_path.add_rule(ruleset, real_path, access);
        }
        let listed = access & AccessFs::ReadDir;
        ruleset = open_path.add_rule(ruleset, real_path, listed)?;
        let entries = std::fs::read_dir(real_path).into_iter().flatten();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            // A symbolic link gives no access to what it leads to.
            let entry = OpenPath::open_entry(&path).filter(|entry| !entry.is_symlink());
            if let Some(entry) = entry.filter(|_| !self.0.contains(&path)) {
                ruleset = self.allow_open_path(ruleset, entry, &path, access)?;
            }
        }
        Ok(ruleset)
    }
}

/// The path without symbolic links, as far as it exists.
fn resolve_existing(path: &Path) -> PathBuf {
    let resolved = path.ancestors().find_map(|ancestor| {
        let real_path = ancestor.canonicalize().ok()?;
        Some(real_path.join(path.strip_prefix(ancestor).ok()?))
    });
    // Joining an empty rest leaves a slash at the end, which the components do not have.
    resolved.map_or_else(|| path.to_owned(), |path| path.components().collect())
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
    fd: OwnedFd,
    mode: u32,
}

impl OpenPath {
    /// Opens what a path leads to.
    fn open(path: &Path) -> Option<Self> {
        Self::open_with(path, OFlags::empty())
    }

    /// Opens an entry of a directory, also if it is a symbolic link.
    fn open_entry(path: &Path) -> Option<Self> {
        Self::open_with(path, OFlags::NOFOLLOW)
    }

    fn open_with(path: &Path, flags: OFlags) -> Option<Self> {
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let mode = rustix::fs::fstat(&fd).ok()?.st_mode;
        Some(Self { fd, mode })
    }

    /// Where it is, without symbolic links.
    fn real_path(&self) -> anyhow::Result<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        std::fs::read_link(link).context("finding where a path leads")
    }

    fn is_symlink(&self) -> bool {
        FileType::from_raw_mode(self.mode).is_symlink()
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
