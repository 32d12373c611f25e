//! The seccomp filter of a command that is tried: it stops every call that could have an effect, and
//! leaves the verdict to the reaper.
//!
//! Landlock stays in force below, so a call on a path that the reaper lets pass can still not leave
//! the temporary directory. All other calls here are never let pass. Without a reaper that watches,
//! the kernel answers each of them as unknown.

use anyhow::Context;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule,
    apply_filter,
};

use super::syscalls::{self, DeniedCalls, NetworkAccess, SignalAccess, condition};

/// The smallest mapping that is looked at, in bytes; the C library gives larger blocks one of their
/// own.
const MIN_COUNTED_BYTES: u64 = 128 * 1024;

/// Whether the kernel and this processor support the filter.
pub(super) fn is_supported() -> bool {
    let actions = std::fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail");
    let trace = actions.is_ok_and(|actions| actions.split_whitespace().any(|one| one == "trace"));
    trace && build_filter().is_ok()
}

/// Installs the filter for this process for good.
pub(super) fn install() -> anyhow::Result<()> {
    apply_filter(&build_filter()?).context("seccomp")
}

fn build_filter() -> anyhow::Result<BpfProgram> {
    let stop = SeccompAction::Trace(0);
    let mut calls = syscalls::denied_calls(NetworkAccess::Denied, SignalAccess::Denied)?;
    for call in PATH_SYSCALLS.iter().chain(USER_SYSCALLS) {
        calls.insert(*call, Vec::new());
    }
    calls.insert(libc::SYS_socket, socket_rules()?);
    add_ways_around(&mut calls)?;
    add_memory_calls(&mut calls)?;
    syscalls::compile(calls, stop.clone(), stop)
}

/// A local stream socket has no effect until it is connected, which is judged then: the C library
/// asks daemons for the names of users through one.
fn socket_rules() -> anyhow::Result<Vec<SeccompRule>> {
    const KIND: u64 = 0xf;
    const LOCAL: u64 = libc::AF_UNIX.unsigned_abs() as u64;
    const STREAM: u64 = libc::SOCK_STREAM.unsigned_abs() as u64;
    let mut rules = vec![SeccompRule::new(vec![condition(
        0,
        SeccompCmpOp::Ne,
        LOCAL,
    )?])?];
    for kind in (0..=KIND).filter(|kind| *kind != STREAM) {
        let is_kind = condition(1, SeccompCmpOp::MaskedEq(KIND), kind)?;
        rules.push(SeccompRule::new(vec![is_kind])?);
    }
    Ok(rules)
}

/// Ways to escape the reaper's watch: a child that it is not told of, and a filter of the command's
/// own, which could answer calls before this one does.
fn add_ways_around(calls: &mut DeniedCalls) -> anyhow::Result<()> {
    let unwatched = u64::from(libc::CLONE_UNTRACED.unsigned_abs());
    let unwatched = condition(0, SeccompCmpOp::MaskedEq(unwatched), unwatched)?;
    let clone = calls.entry(libc::SYS_clone).or_default();
    clone.push(SeccompRule::new(vec![unwatched])?);
    let own_filter = u64::from(libc::PR_SET_SECCOMP.unsigned_abs());
    let own_filter = condition(0, SeccompCmpOp::Eq, own_filter)?;
    calls.insert(libc::SYS_prctl, vec![SeccompRule::new(vec![own_filter])?]);
    calls.insert(libc::SYS_seccomp, Vec::new());
    Ok(())
}

/// Calls by which a process gets more memory. Mappings that are only reserved do not count, and small
/// ones are too many to look at each.
fn add_memory_calls(calls: &mut DeniedCalls) -> anyhow::Result<()> {
    const WRITABLE: u64 = libc::PROT_WRITE.unsigned_abs() as u64;
    let large = || {
        let is_large = SeccompCondition::new(
            1,
            SeccompCmpArgLen::Qword,
            SeccompCmpOp::Ge,
            MIN_COUNTED_BYTES,
        )?;
        let is_writable = condition(2, SeccompCmpOp::MaskedEq(WRITABLE), WRITABLE)?;
        anyhow::Ok(SeccompRule::new(vec![is_large, is_writable])?)
    };
    calls.insert(libc::SYS_mmap, vec![large()?]);
    calls.insert(libc::SYS_mprotect, vec![large()?]);
    calls.insert(libc::SYS_mremap, Vec::new());
    calls.insert(libc::SYS_brk, Vec::new());
    Ok(())
}

/// Calls on a path, which are harmless in the temporary directory.
const PATH_SYSCALLS: &[i64] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_openat,
    libc::SYS_openat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    libc::SYS_linkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_truncate,
];

/// Becoming another user, which the kernel refuses without the capabilities.
const USER_SYSCALLS: &[i64] = &[
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
];
