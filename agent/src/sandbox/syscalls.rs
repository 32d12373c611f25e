//! Denies by seccomp the system calls that a read has no use for.
//!
//! Landlock covers files.
//! It does not cover modes, owners, times and attributes, nor sockets, nor the many calls that
//! change the machine itself.

use std::collections::BTreeMap;

use anyhow::Context;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

/// Whether sockets may be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkAccess {
    Denied,
    Allowed,
}

/// Whether signals may be sent at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalAccess {
    /// Landlock ensures that they reach no process outside.
    Scoped,
    Denied,
}

/// Whether the kernel supports filters that return an error.
pub(super) fn is_supported() -> bool {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    let errno = actions.is_ok_and(|actions| actions.split_whitespace().any(|one| one == "errno"));
    errno && build_filter(NetworkAccess::Denied, SignalAccess::Denied).is_ok()
}

/// Installs the filter for this process for good.
pub(super) fn install_filter(network: NetworkAccess, signals: SignalAccess) -> anyhow::Result<()> {
    apply_filter(&build_filter(network, signals)?).context("seccomp")
}

fn build_filter(network: NetworkAccess, signals: SignalAccess) -> anyhow::Result<BpfProgram> {
    let refuse = |error: Errno| SeccompAction::Errno(error.raw_os_error().unsigned_abs());
    compile(
        denied_calls(network, signals)?,
        refuse(Errno::PERM),
        refuse(Errno::NOSYS),
    )
}

/// The calls that are denied, each with the arguments that it is denied with; none means any.
pub(super) type DeniedCalls = BTreeMap<i64, Vec<SeccompRule>>;

pub(super) fn denied_calls(
    network: NetworkAccess,
    signals: SignalAccess,
) -> anyhow::Result<DeniedCalls> {
    let mut rules: DeniedCalls = DENIED_SYSCALLS
        .iter()
        .map(|call| (*call, Vec::new()))
        .collect();
    let mut requests = ALLOWED_IOCTLS.to_vec();
    match network {
        NetworkAccess::Denied => {
            rules.extend(NETWORK_SYSCALLS.iter().map(|call| (*call, Vec::new())));
            rules.insert(libc::SYS_socketpair, datagram_pair_rules()?);
        }
        NetworkAccess::Allowed => {
            requests.extend(NETWORK_IOCTLS);
            rules.insert(libc::SYS_socket, vec![not_in(0, SOCKET_FAMILIES)?]);
        }
    }
    if signals == SignalAccess::Denied {
        rules.extend(SIGNAL_SYSCALLS.iter().map(|call| (*call, Vec::new())));
        rules.insert(libc::SYS_fcntl, file_signal_rules()?);
    }
    rules.insert(libc::SYS_ioctl, vec![not_in(1, &requests)?]);
    rules.insert(libc::SYS_clone, namespace_rules()?);
    // These may change only the calling process, which is 0.
    rules.insert(libc::SYS_prlimit64, vec![not_in(0, &[0])?]);
    rules.insert(libc::SYS_sched_setaffinity, vec![not_in(0, &[0])?]);
    for (call, one_process) in [
        (libc::SYS_setpriority, u64::from(libc::PRIO_PROCESS)),
        (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS),
    ] {
        let rules_of_call = vec![not_in(0, &[one_process])?, not_in(1, &[0])?];
        rules.insert(call, rules_of_call);
    }
    Ok(rules)
}

/// A rule that matches if an argument is none of these values.
fn not_in(argument: u8, values: &[u64]) -> anyhow::Result<SeccompRule> {
    let conditions = values
        .iter()
        .map(|value| condition(argument, SeccompCmpOp::Ne, *value));
    Ok(SeccompRule::new(
        conditions.collect::<anyhow::Result<_>>()?,
    )?)
}

/// Denies setting the owner of a file descriptor, to whom the kernel then sends signals.
fn file_signal_rules() -> anyhow::Result<Vec<SeccompRule>> {
    const SET_OWNER_OF_THREADS: i32 = 15;
    [libc::F_SETOWN, SET_OWNER_OF_THREADS]
        .iter()
        .map(|command| {
            let is_command = condition(1, SeccompCmpOp::Eq, u64::from(command.unsigned_abs()))?;
            Ok(SeccompRule::new(vec![is_command])?)
        })
        .collect()
}

/// Denies pairs of datagram sockets: they are not closed, each may send to any socket with a name.
fn datagram_pair_rules() -> anyhow::Result<Vec<SeccompRule>> {
    const KIND: u64 = 0xf;
    // The kernel turns raw sockets into datagram sockets.
    [libc::SOCK_DGRAM, libc::SOCK_RAW]
        .iter()
        .map(|kind| {
            let kind = u64::from(kind.unsigned_abs());
            let is_kind = condition(1, SeccompCmpOp::MaskedEq(KIND), kind)?;
            Ok(SeccompRule::new(vec![is_kind])?)
        })
        .collect()
}

pub(super) fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> anyhow::Result<SeccompCondition> {
    Ok(SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        operator,
        value,
    )?)
}

/// Denies creating namespaces: a process could mount something over paths that it may not read.
fn namespace_rules() -> anyhow::Result<Vec<SeccompRule>> {
    let flags = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    flags
        .iter()
        .map(|flag| {
            let flag = u64::from(flag.unsigned_abs());
            Ok(SeccompRule::new(vec![condition(
                0,
                SeccompCmpOp::MaskedEq(flag),
                flag,
            )?])?)
        })
        .collect()
}

/// The program that answers denied calls and unknown ones in these ways, and allows all others.
pub(super) fn compile(
    denied: DeniedCalls,
    on_denied: SeccompAction,
    on_unknown: SeccompAction,
) -> anyhow::Result<BpfProgram> {
    let architecture: TargetArch = std::env::consts::ARCH
        .try_into()
        .context("this processor has no filters")?;
    let filter = SeccompFilter::new(denied, SeccompAction::Allow, on_denied, architecture)?;
    let mut program: BpfProgram = filter.try_into()?;
    program.splice(0..0, unknown_syscall_filter(on_unknown.into()));
    Ok(program)
}

/// The first system call that did not exist when the lists below were made.
const FIRST_UNKNOWN_SYSCALL: u32 = 463;

/// Answers `clone3`, and the calls that are newer than these lists, like a kernel that does not know
/// them, or in another way. A deny list does not cover newer calls, some
/// of which do what denied ones do. Nor does it cover the second numbers that x86-64 has for its
/// calls (x32), which are higher still. And `clone3` hides its flags from filters. Programs fall
/// back to the older calls.
fn unknown_syscall_filter(on_unknown: u32) -> Vec<sock_filter> {
    const LOAD_NUMBER: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RETURN_ERRNO: u32 = 0x0005_0000;
    const CLONE3: u32 = libc::SYS_clone3 as u32;
    let no_such_call = RETURN_ERRNO | Errno::NOSYS.raw_os_error().unsigned_abs();
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD_NUMBER, 0, 0, 0),
        step(JUMP_IF_EQUAL, 0, 1, CLONE3),
        step(RETURN, 0, 0, no_such_call),
        step(JUMP_IF_AT_LEAST, 0, 1, FIRST_UNKNOWN_SYSCALL),
        step(RETURN, 0, 0, on_unknown),
    ]
}

/// The requests that are allowed on an open file; those that set something (flags, labels, terminal
/// input, snapshots) are not among them. Every file system and device has requests of its own, so
/// this is an allow list.
const ALLOWED_IOCTLS: &[u64] = &[
    libc::TCGETS,
    0x802c_542a, // TCGETS2
    libc::TIOCGWINSZ,
    libc::TIOCGPGRP,
    libc::TIOCGSID,
    libc::TIOCOUTQ,
    libc::FIONREAD,
    libc::FIONBIO,
    libc::FIOCLEX,
    libc::FIONCLEX,
    0x8008_6601, // FS_IOC_GETFLAGS
    0x8008_7601, // FS_IOC_GETVERSION
    0x801c_581f, // FS_IOC_FSGETXATTR
    0xc020_660b, // FS_IOC_FIEMAP
    0x0000_0002, // FIGETBSZ
];

/// Additional requests where sockets are allowed: names, addresses and state of interfaces.
const NETWORK_IOCTLS: &[u64] = &[
    libc::SIOCGIFNAME,
    libc::SIOCGIFCONF,
    libc::SIOCGIFFLAGS,
    libc::SIOCGIFADDR,
    libc::SIOCGIFNETMASK,
    libc::SIOCGIFMTU,
    libc::SIOCGIFHWADDR,
    libc::SIOCGIFINDEX,
];

/// The socket families that programs use to communicate; netlink lists the addresses.
const SOCKET_FAMILIES: &[u64] = &[
    libc::AF_UNIX.unsigned_abs() as u64,
    libc::AF_INET.unsigned_abs() as u64,
    libc::AF_INET6.unsigned_abs() as u64,
    libc::AF_NETLINK.unsigned_abs() as u64,
];

/// From the kernel's linux/ioprio.h.
const IOPRIO_WHO_PROCESS: u64 = 1;

const NETWORK_SYSCALLS: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
];

const SIGNAL_SYSCALLS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];

const DENIED_SYSCALLS: &[i64] = &[
    // Modes, owners, times, attributes.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_mrelease,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    // Ways around a system call filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    // Memory and messages shared by name.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // Keys.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine itself.
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_vhangup,
    libc::SYS_syslog,
    libc::SYS_fanotify_init,
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];
