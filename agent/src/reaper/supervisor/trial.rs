//! Supervises a command that is only tried: the kernel stops every call that could have an effect,
//! and the first one that is not harmless ends the trial.
//!
//! The reaper watches all processes of the command as a debugger does (`ptrace`). That needs no
//! second thread, and it kills them if the reaper ends.

mod call;

use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::ptrace;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal as WatchedSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};

use super::CommandSupervisor;
use crate::reaper::{ReaperCommand, ReaperReport};
use crate::sandbox::{Sandbox, TrialLimits};
use call::{CallRules, Verdict};

/// How often the memory of a trial is measured.
const MEMORY_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// From the kernel's linux/wait.h: also wait for threads and for children of children.
const WAIT_FOR_ALL: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);

/// Watches the processes of a command that is tried.
pub(in crate::reaper) struct Tracer {
    /// Which calls are harmless.
    rules: CallRules,
    /// What all processes together may use.
    limits: TrialLimits,
    /// The command's own process.
    command: Pid,
    /// Processes and threads that it has started.
    started: u32,
    /// What ended the trial; `None` while it goes on.
    denied: Option<String>,
    /// Whether the processes were killed by the reaper.
    killed: bool,
    /// Readable when a process has stopped or ended.
    child_events: SignalFd,
}

impl Tracer {
    /// Begins to watch a process that will become the command, and everything that it starts.
    pub(in crate::reaper) fn attach(
        process: Pid,
        sandbox: &Sandbox,
        limits: TrialLimits,
    ) -> anyhow::Result<Self> {
        let mut child_signal = SigSet::empty();
        child_signal.add(WatchedSignal::SIGCHLD);
        child_signal.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let child_events = SignalFd::with_flags(&child_signal, flags)?;
        let options = ptrace::Options::PTRACE_O_EXITKILL
            | ptrace::Options::PTRACE_O_TRACESECCOMP
            | ptrace::Options::PTRACE_O_TRACEFORK
            | ptrace::Options::PTRACE_O_TRACEVFORK
            | ptrace::Options::PTRACE_O_TRACECLONE;
        ptrace::seize(watched(process), options)
            .context("this machine does not let a process watch another")?;
        Ok(Self {
            rules: CallRules::new(sandbox, limits),
            limits,
            command: process,
            started: 0,
            denied: None,
            killed: false,
            child_events,
        })
    }

    /// Handles what has happened to the processes; returns the command's status if it has ended.
    fn handle_events(&mut self) -> Option<WaitStatus> {
        while let Ok(Some(_)) = self.child_events.read_signal() {}
        loop {
            match wait(WaitOptions::NOHANG | WAIT_FOR_ALL) {
                Ok(Some((process, status))) if status.stopped() => self.on_stop(process, status),
                Ok(Some((process, status))) => {
                    self.on_end(status);
                    if process == self.command {
                        return Some(status);
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn on_stop(&mut self, process: Pid, status: WaitStatus) {
        let event = status.as_raw() >> 16;
        let mut delivered = None;
        match event {
            libc::PTRACE_EVENT_SECCOMP => match self.rules.judge(process) {
                Verdict::Harmless => {}
                Verdict::Missing => {
                    if skip_call(process).is_err() {
                        self.deny("connect".to_owned());
                    }
                }
                Verdict::Denied(what) => self.deny(what),
            },
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE => {
                self.started += 1;
                if self.started > self.limits.processes {
                    let most = self.limits.processes;
                    self.deny(format!("start of more than {most} processes"));
                }
            }
            0 => delivered = self.signal_to_deliver(status),
            // It has just been started, or was told to pause, which a trial does not do.
            _ => {}
        }
        match self.denied {
            // The call that it stopped at is not made.
            Some(_) => kill(process),
            None => {
                // A process that was killed meanwhile cannot be resumed.
                let _ = ptrace::cont(watched(process), delivered);
            }
        }
    }

    /// The signal that a process has received, which is passed on.
    fn signal_to_deliver(&mut self, status: WaitStatus) -> Option<WatchedSignal> {
        let number = status.stopping_signal().unwrap_or(0);
        match WatchedSignal::try_from(number) {
            Ok(WatchedSignal::SIGXCPU) => self.deny("more processor time".to_owned()),
            Ok(WatchedSignal::SIGXFSZ) => self.deny("a larger file".to_owned()),
            Ok(signal) => return Some(signal),
            Err(_) => self.deny(format!("signal {number}")),
        }
        None
    }

    /// A process that the kernel killed has made a call of another architecture, or has used up what
    /// it may.
    fn on_end(&mut self, status: WaitStatus) {
        match status.terminating_signal() {
            Some(libc::SIGSYS) => self.deny("a system call of another architecture".to_owned()),
            Some(libc::SIGKILL | libc::SIGXCPU) if !self.killed => {
                self.deny("more processor time or memory".to_owned());
            }
            Some(_) | None => {}
        }
    }

    fn deny(&mut self, what: String) {
        self.denied.get_or_insert(what);
    }

    fn deny_memory(&mut self) {
        self.deny(call::memory_text(self.limits.memory_bytes));
    }

    /// Whether a process that has ended used more memory than the trial may.
    fn check_peak_memory(&mut self) {
        let peak = getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |usage| usage.max_rss());
        if u64::try_from(peak).unwrap_or(0).saturating_mul(1024) > self.limits.memory_bytes {
            self.deny_memory();
        }
    }
}

impl CommandSupervisor {
    /// Waits until the command has ended or was denied something, and then kills what is left.
    pub(in crate::reaper) fn supervise_trial(
        &mut self,
        child: &Child,
        mut tracer: Tracer,
    ) -> anyhow::Result<()> {
        self.send_report(&ReaperReport::Started {
            pid: child.id(),
            cgroup: self.tree.cgroup().cloned(),
        })?;
        let status = loop {
            if let Some(status) = tracer.handle_events() {
                break status;
            }
            if tracer.denied.is_some() && !tracer.killed {
                tracer.killed = true;
                self.tree.signal(Signal::KILL);
            }
            self.wait_for_trial(&mut tracer)?;
        };
        let left_behind = self.tree.kill_all();
        tracer.check_peak_memory();
        if let Some(what) = tracer.denied.take() {
            self.send_report(&ReaperReport::Denied { what })?;
        }
        self.send_report(&ReaperReport::Ended {
            code: status.exit_status(),
            signal: status.terminating_signal(),
        })?;
        self.send_report(&ReaperReport::Gone {
            mechanism: self.tree.mechanism(),
            left_behind,
        })
    }

    /// Waits for events of the processes and for commands of the executor, which is what a stop asks
    /// for too: nobody needs the output of a trial that was stopped.
    fn wait_for_trial(&mut self, tracer: &mut Tracer) -> anyhow::Result<()> {
        let started = Instant::now();
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: MEMORY_POLL_INTERVAL.subsec_nanos().into(),
        };
        let mut ready = [
            PollFd::new(&tracer.child_events, PollFlags::IN),
            PollFd::new(self.commands.get_ref(), PollFlags::IN),
        ];
        match poll(&mut ready, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let has_command = !ready[1].revents().is_empty();
        if has_command || !self.commands.buffer().is_empty() {
            match self.next_command() {
                Some(ReaperCommand::Stop | ReaperCommand::Kill) | None => {
                    tracer.killed = true;
                    self.tree.signal(Signal::KILL);
                }
            }
        }
        if started.elapsed() >= MEMORY_POLL_INTERVAL
            && self.tree.private_memory_bytes() > tracer.limits.memory_bytes
        {
            tracer.deny_memory();
        }
        Ok(())
    }
}

/// Has the call that a thread has stopped at fail as if there were nothing to connect to.
#[cfg(target_arch = "x86_64")]
fn skip_call(thread: Pid) -> nix::Result<()> {
    const NO_CALL: u64 = u64::MAX;
    let thread = watched(thread);
    let mut registers = ptrace::getregs(thread)?;
    registers.orig_rax = NO_CALL;
    registers.rax = i64::from(-libc::ENOENT).cast_unsigned();
    ptrace::setregs(thread, registers)
}

#[cfg(not(target_arch = "x86_64"))]
fn skip_call(_thread: Pid) -> nix::Result<()> {
    Err(nix::Error::ENOSYS)
}

fn kill(process: Pid) {
    // It may have ended meanwhile. A thread's id stands for its process.
    let _ = rustix::process::kill_process(process, Signal::KILL);
}

fn watched(process: Pid) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(process.as_raw_nonzero().get())
}
