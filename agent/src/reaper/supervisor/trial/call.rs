//! Judges a system call that the kernel has stopped, by its number, its arguments and the paths that
//! they name.
//!
//! A program with several threads may change a path between this verdict and the call. That can hide
//! a call from the count; it cannot give it an effect, because Landlock decides again in the kernel.
//! Calls that Landlock does not cover are never let pass, whatever their arguments say.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::sandbox::{Sandbox, TrialLimits};

/// The longest path, in bytes, as in the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Characters of a path that are shown.
const MAX_SHOWN_CHARS: usize = 120;

/// Where no rule could hide something that a trial must not read. Programs open hundreds of these.
const PUBLIC_PREFIXES: &[&str] = &["/usr/", "/lib/", "/lib64/", "/bin/"];

/// Sockets of daemons that know the names of users. The C library asks them first, and then looks
/// into the files of the system.
const NAME_SERVICES: &[&str] = &[
    "/var/run/nscd/",
    "/run/nscd/",
    "/run/systemd/userdb/",
    "/var/lib/sss/pipes/",
];

/// What a command that is tried may do.
pub(super) struct CallRules {
    /// Where it may write, without symbolic links.
    writable: Vec<PathBuf>,
    /// What it may read, without symbolic links.
    readable: Vec<PathBuf>,
    /// What of that it may not read.
    private: Vec<PathBuf>,
    /// The most memory in bytes that one process may have.
    memory_bytes: u64,
}

/// Whether a call may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Harmless,
    /// It may not, and fails as if there were nothing. The program does the same without it.
    Missing,
    /// It may not, and this is what it would have done.
    Denied(String),
}

/// A call that a thread is about to make.
struct Call {
    thread: Pid,
    number: i64,
    arguments: [u64; 6],
}

/// A path argument: the directory that it starts from, and its text.
struct PathArgument {
    directory: PathBuf,
    text: PathBuf,
}

/// Whether a call follows a symbolic link at the end of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Followed,
    NotFollowed,
}

impl CallRules {
    pub(super) fn new(sandbox: &Sandbox, limits: TrialLimits) -> Self {
        Self {
            memory_bytes: limits.memory_bytes,
            writable: sandbox.resolved_writable_paths(),
            readable: sandbox.resolved_readable_paths(),
            private: sandbox.resolved_private_paths(),
        }
    }

    /// Judges the call that a thread has stopped at. What cannot be read is denied.
    pub(super) fn judge(&self, thread: Pid) -> Verdict {
        let Some(call) = Call::read(thread) else {
            return Verdict::Denied("a system call that cannot be seen".to_owned());
        };
        self.judge_call(&call)
            .unwrap_or_else(|| Verdict::Denied("a path that cannot be seen".to_owned()))
    }

    fn judge_call(&self, call: &Call) -> Option<Verdict> {
        use LastLink::{Followed, NotFollowed};
        let change = |what: &str, paths: Vec<(Option<PathArgument>, LastLink)>| {
            let mut verdict = Verdict::Harmless;
            for (path, last_link) in paths {
                let path = path?;
                if !self.is_writable(call.thread, &path, last_link) {
                    verdict = Verdict::Denied(format!("{what} {}", path.shown()));
                }
            }
            Some(verdict)
        };
        match call.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => self.judge_open(call, call.path(0)?, call.arguments[1]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => change("write", vec![(call.path(0), Followed)]),
            libc::SYS_openat => self.judge_open(call, call.path_at(0)?, call.arguments[2]),
            libc::SYS_openat2 => {
                let flags = call.read_number(call.arguments[2])?;
                self.judge_open(call, call.path_at(0)?, flags)
            }
            libc::SYS_truncate => change("truncate", vec![(call.path(0), Followed)]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink | libc::SYS_rmdir => {
                change("delete", vec![(call.path(0), NotFollowed)])
            }
            libc::SYS_unlinkat => change("delete", vec![(call.path_at(0), NotFollowed)]),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mknod if is_device(call.arguments[1]) => Some(Verdict::Denied(DEVICE.into())),
            libc::SYS_mknodat if is_device(call.arguments[2]) => {
                Some(Verdict::Denied(DEVICE.into()))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_mkdir | libc::SYS_mknod => {
                change("create", vec![(call.path(0), NotFollowed)])
            }
            libc::SYS_mkdirat | libc::SYS_mknodat => {
                change("create", vec![(call.path_at(0), NotFollowed)])
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => change(
                "rename",
                vec![(call.path(0), NotFollowed), (call.path(1), NotFollowed)],
            ),
            libc::SYS_renameat | libc::SYS_renameat2 => change(
                "rename",
                vec![
                    (call.path_at(0), NotFollowed),
                    (call.path_at(2), NotFollowed),
                ],
            ),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => change(
                "link",
                vec![(call.path(0), NotFollowed), (call.path(1), NotFollowed)],
            ),
            libc::SYS_linkat => change(
                "link",
                vec![(call.path_at(0), Followed), (call.path_at(2), NotFollowed)],
            ),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => change("create", vec![(call.path(1), NotFollowed)]),
            libc::SYS_symlinkat => change("create", vec![(call.path_at(1), NotFollowed)]),
            libc::SYS_kill | libc::SYS_tgkill | libc::SYS_rt_sigqueueinfo => {
                Some(judge_signal(call))
            }
            libc::SYS_connect => Some(judge_connect(call)),
            libc::SYS_brk => Some(self.judge_memory(call, 0)),
            libc::SYS_mmap | libc::SYS_mprotect => Some(self.judge_memory(call, call.arguments[1])),
            libc::SYS_mremap => {
                let more = call.arguments[2].saturating_sub(call.arguments[1]);
                Some(self.judge_memory(call, more))
            }
            number => Some(Verdict::Denied(call_name(number))),
        }
    }

    fn judge_open(&self, call: &Call, path: PathArgument, flags: u64) -> Option<Verdict> {
        const WRITING: u64 = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;
        if flags & WRITING != 0 {
            let writable = self.is_writable(call.thread, &path, LastLink::Followed);
            return Some(match writable {
                true => Verdict::Harmless,
                false => Verdict::Denied(format!("write {}", path.shown())),
            });
        }
        Some(
            match flags & libc::O_PATH as u64 == 0 && !self.is_readable(call.thread, &path, flags) {
                true => Verdict::Denied(format!("read {}", path.shown())),
                false => Verdict::Harmless,
            },
        )
    }

    /// Whether a process may have this many more bytes. Otherwise the kernel would refuse them, and
    /// the program could hide it.
    fn judge_memory(&self, call: &Call, more: u64) -> Verdict {
        let current = call.data_bytes().unwrap_or(u64::MAX);
        match current.saturating_add(more) > self.memory_bytes {
            true => Verdict::Denied(memory_text(self.memory_bytes)),
            false => Verdict::Harmless,
        }
    }

    /// Whether Landlock lets a thread read a path. What does not exist cannot be read either way.
    fn is_readable(&self, thread: Pid, path: &PathArgument, flags: u64) -> bool {
        let text = path.text.as_os_str().as_bytes();
        let is_public = |prefix: &&str| text.starts_with(prefix.as_bytes());
        if PUBLIC_PREFIXES.iter().any(is_public) && !text.windows(2).any(|it| it == b"..") {
            return true;
        }
        let Some(real) = real_path(&own_links(thread, path.full())) else {
            return true;
        };
        let is_in = |paths: &[PathBuf]| paths.iter().any(|one| real.starts_with(one));
        // The names of what is private may be listed.
        let names_only = flags & libc::O_DIRECTORY as u64 != 0;
        let is_own =
            !real.is_absolute() || real == Path::new("/dev/tty") || is_about(thread, &real);
        is_own || (is_in(&self.readable) && (names_only || !is_in(&self.private)))
    }

    fn is_writable(&self, thread: Pid, path: &PathArgument, last_link: LastLink) -> bool {
        let full = own_links(thread, path.full());
        let Some(target) = written_path(&full, last_link) else {
            return false;
        };
        // Pipes and files in memory have no place in the file system, and a command that is tried has
        // no terminal, so that opening it fails.
        let is_nowhere = target.starts_with("/memfd:") || !target.is_absolute();
        let is_terminal = target == Path::new("/dev/tty");
        let allowed = |one: &PathBuf| target.starts_with(one);
        is_nowhere || is_terminal || self.writable.iter().any(allowed)
    }
}

impl Call {
    fn read(thread: Pid) -> Option<Self> {
        let path = format!("/proc/{}/syscall", thread.as_raw_nonzero());
        let line = std::fs::read_to_string(path).ok()?;
        let mut words = line.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        Some(Self {
            thread,
            number,
            arguments,
        })
    }

    /// The private, writable memory of the process.
    fn data_bytes(&self) -> Option<u64> {
        let line = status_line(self.thread, "VmData:")?;
        let kibibytes: u64 = line.strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024)
    }

    /// The path in this argument, relative to the working directory.
    fn path(&self, argument: usize) -> Option<PathArgument> {
        Some(PathArgument {
            directory: format!("/proc/{}/cwd", self.thread.as_raw_nonzero()).into(),
            text: self.read_path(self.arguments[argument])?,
        })
    }

    /// The path in the argument after this one, relative to the open directory in this one.
    fn path_at(&self, argument: usize) -> Option<PathArgument> {
        let path = self.path(argument + 1)?;
        #[expect(clippy::cast_possible_truncation, reason = "the kernel takes an int")]
        let directory = self.arguments[argument] as u32 as i32;
        if directory == libc::AT_FDCWD || path.text.is_absolute() {
            return Some(path);
        }
        Some(PathArgument {
            directory: format!("/proc/{}/fd/{directory}", self.thread.as_raw_nonzero()).into(),
            ..path
        })
    }

    fn read_path(&self, address: u64) -> Option<PathBuf> {
        let mut bytes = self.read_memory(address, MAX_PATH_BYTES)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        bytes.truncate(end);
        Some(PathBuf::from(OsString::from_vec(bytes)))
    }

    fn read_number(&self, address: u64) -> Option<u64> {
        let bytes = self.read_memory(address, 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// As many of these bytes as are mapped.
    fn read_memory(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let memory = File::open(format!("/proc/{}/mem", self.thread.as_raw_nonzero())).ok()?;
        let mut read = vec![0; bytes];
        // A read stops where the next page is not mapped.
        let count = memory.read_at(&mut read, address).ok()?;
        read.truncate(count);
        Some(read)
    }
}

impl PathArgument {
    /// The path as this process can open it.
    fn full(&self) -> PathBuf {
        match self.text.as_os_str().is_empty() {
            true => self.directory.clone(),
            false => self.directory.join(&self.text),
        }
    }

    fn shown(&self) -> String {
        let text: String = self.text.to_string_lossy().escape_debug().collect();
        match text.char_indices().nth(MAX_SHOWN_CHARS) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }
}

/// What making a device is called.
const DEVICE: &str = "create a device";

/// Whether a mode is that of a device, which gives access to the machine wherever it is made.
fn is_device(mode: u64) -> bool {
    let kind = mode & u64::from(libc::S_IFMT);
    kind == u64::from(libc::S_IFCHR) || kind == u64::from(libc::S_IFBLK)
}

/// A signal is harmless if a process sends it to itself, as `abort` does.
fn judge_signal(call: &Call) -> Verdict {
    let own = status_line(call.thread, "Tgid:").and_then(|own| own.parse().ok());
    match own == Some(call.arguments[0]) {
        true => Verdict::Harmless,
        false => Verdict::Denied("signal to a process".to_owned()),
    }
}

/// What the kernel says about a thread under this name.
fn status_line(thread: Pid, name: &str) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", thread.as_raw_nonzero()));
    let status = status.ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// Says that a trial wanted more memory than it may have.
pub(super) fn memory_text(most_bytes: u64) -> String {
    let most = most_bytes / (1024 * 1024);
    format!("use of more than {most} MiB of memory")
}

fn judge_connect(call: &Call) -> Verdict {
    const FAMILY_BYTES: usize = 2;
    let address = call.read_memory(call.arguments[1], FAMILY_BYTES + 108);
    let address = address.unwrap_or_default();
    let path = address.get(FAMILY_BYTES..).unwrap_or_default();
    let is_name_service = NAME_SERVICES
        .iter()
        .any(|service| path.starts_with(service.as_bytes()));
    // The call is not made in either case, so it does not matter if the address changes meanwhile.
    match is_name_service {
        true => Verdict::Missing,
        false => Verdict::Denied("connect".to_owned()),
    }
}

/// Whether a path is what the kernel says about this thread or its process. A process that is not the
/// first of its command cannot read that, and programs get by without.
fn is_about(thread: Pid, path: &Path) -> bool {
    let Ok(rest) = path.strip_prefix("/proc") else {
        return false;
    };
    let number = rest.components().next().map(|it| it.as_os_str().to_owned());
    let is_thread = number == Some(thread.as_raw_nonzero().to_string().into());
    is_thread || number == status_line(thread, "Tgid:").map(OsString::from)
}

/// What a path of the form `/proc/self/…` or `/dev/stdout` means to this thread.
fn own_links(thread: Pid, path: PathBuf) -> PathBuf {
    let own = PathBuf::from(format!("/proc/{}", thread.as_raw_nonzero()));
    for (prefix, meaning) in [
        ("/proc/self", own.clone()),
        ("/proc/thread-self", own.clone()),
        ("/dev/fd", own.join("fd")),
        ("/dev/stdin", own.join("fd/0")),
        ("/dev/stdout", own.join("fd/1")),
        ("/dev/stderr", own.join("fd/2")),
    ] {
        if let Ok(rest) = path.strip_prefix(prefix) {
            return match rest.as_os_str().is_empty() {
                true => meaning,
                false => meaning.join(rest),
            };
        }
    }
    path
}

/// The path of what a call would write to, delete or create, without symbolic links.
fn written_path(path: &Path, last_link: LastLink) -> Option<PathBuf> {
    if last_link == LastLink::Followed
        && let Some(real) = real_path(path)
    {
        return Some(real);
    }
    let name = path.file_name()?;
    let directory = real_path(path.parent()?)?;
    let entry = directory.join(name);
    // A link that leads nowhere would be followed to where it leads.
    let dangling = last_link == LastLink::Followed && entry.is_symlink();
    (!dangling).then_some(entry)
}

/// Where an existing path leads; this opens nothing for reading or writing.
fn real_path(path: &Path) -> Option<PathBuf> {
    let open = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", open.as_raw_fd())).ok()
}

/// What a call that is always denied would do, in a word.
fn call_name(number: i64) -> String {
    let name = match number {
        libc::SYS_socket
        | libc::SYS_connect
        | libc::SYS_bind
        | libc::SYS_listen
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_socketpair => "connect",
        libc::SYS_tkill
        | libc::SYS_rt_tgsigqueueinfo
        | libc::SYS_pidfd_send_signal
        | libc::SYS_fcntl => "signal to a process",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_chmod | libc::SYS_chown | libc::SYS_lchown => "change of mode or owner",
        libc::SYS_fchmod
        | libc::SYS_fchmodat
        | libc::SYS_fchmodat2
        | libc::SYS_fchown
        | libc::SYS_fchownat => "change of mode or owner",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_utime | libc::SYS_utimes | libc::SYS_futimesat => "change of times",
        libc::SYS_utimensat => "change of times",
        libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_fsetxattr
        | libc::SYS_removexattr
        | libc::SYS_lremovexattr
        | libc::SYS_fremovexattr => "change of attributes",
        libc::SYS_ptrace | libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => {
            "access to a process"
        }
        libc::SYS_mount | libc::SYS_umount2 => "mount",
        libc::SYS_clone | libc::SYS_unshare | libc::SYS_setns => "another namespace",
        libc::SYS_ioctl => "control of a device",
        libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setgroups
        | libc::SYS_capset => "change of user",
        number => return format!("system call {number}"),
    };
    name.to_owned()
}
