//! What the reaper and the read sandbox add to the time of starting a command.
//!
//! Settings: SPAWN_TIMES=200

#![allow(clippy::print_stdout, reason = "it prints its figures")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench that cannot go on ends"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::{self, OverflowAction, ReaperPool, RunLimits, SupervisedProcess};
use pvp_agent::sandbox::{ResourceLimits, Sandbox};
use pvp_protocol::SandboxProfile;
use support::{Latencies, env_number, target_result};
use tokio::process::Command;
use tokio::sync::mpsc;

const SHELL: &str = "/bin/bash";
const SHELL_ARGUMENTS: [&str; 4] = ["--noprofile", "--norc", "-c", "true"];

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let times = env_number("SPAWN_TIMES", 200);
    let directory = tempfile::tempdir().unwrap();
    let workspace = directory.path();
    let pvp = Path::new(env!("CARGO_BIN_EXE_pvp"));
    let alone = ReaperPool::on_demand(&standalone_reaper(workspace, pvp));
    let (ahead, pvp) = (ReaperPool::with_spare(pvp), ReaperPool::on_demand(pvp));
    let [
        mut plain,
        mut read,
        mut next,
        mut cold,
        mut cgroup,
        mut keeper,
        mut none,
        mut held,
    ] = [(); 8].map(|()| Latencies::default());
    let a_read = spawn_spec(workspace, SandboxProfile::Read, true);
    // In turns, so that other load affects all of them.
    for _ in 0..times {
        plain.add(spawn_plain().await);
        read.add(spawn_reaped(&ahead, &a_read).await);
        next.add(spawn_reaped(&ahead, &a_read).await);
        cold.add(spawn_reaped(&pvp, &a_read).await);
        cgroup.add(spawn_reaped(&pvp, &spawn_spec(workspace, SandboxProfile::None, true)).await);
        keeper.add(spawn_reaped(&pvp, &spawn_spec(workspace, SandboxProfile::None, false)).await);
        none.add(spawn_reaped(&alone, &spawn_spec(workspace, SandboxProfile::None, false)).await);
        held.add(spawn_reaped(&alone, &spawn_spec(workspace, SandboxProfile::Read, false)).await);
    }
    println!("`bash -c true`, {times} times             p50 ms   p95 ms   over plain");
    let bare = median(&mut plain);
    report("plain", &mut plain, bare);
    report("a read: reaper and sandbox", &mut read, bare);
    report("a read at once after a read", &mut next, bare);
    report("a read with no reaper ready", &mut cold, bare);
    report("approved: reaper and cgroup", &mut cgroup, bare);
    report("approved: reaper and keeper", &mut keeper, bare);
    let over = median(&mut read) - bare;
    println!(
        "bar: reaper and sandbox ≤ 6 ms over plain: {over:.2} {}",
        target_result(over <= 6.0)
    );
    let sandbox = median(&mut held) - median(&mut none);
    println!(
        "bar: sandbox alone ≤ 1 ms: {sandbox:.2} {}",
        target_result(sandbox <= 1.0)
    );
}

/// A program that starts every reaper standalone, so that only the sandbox makes a difference.
fn standalone_reaper(workspace: &Path, pvp: &Path) -> PathBuf {
    let program = workspace.join("alone");
    let lines = format!("#!/bin/sh\nexec {} \"$1\" alone\n", pvp.display());
    std::fs::write(&program, lines).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program
}

fn median(latencies: &mut Latencies) -> f64 {
    latencies.percentile(50.0)
}

fn report(name: &str, latencies: &mut Latencies, bare: f64) {
    let (p50, p95) = (latencies.percentile(50.0), latencies.percentile(95.0));
    println!("{name:<34} {p50:>8.2} {p95:>8.2} {:>12.2}", p50 - bare);
}

async fn spawn_plain() -> Duration {
    let begun = Instant::now();
    let output = Command::new(SHELL)
        .args(SHELL_ARGUMENTS)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    begun.elapsed()
}

fn spawn_spec(workspace: &Path, profile: SandboxProfile, cgroup: bool) -> SpawnSpec {
    SpawnSpec {
        program: SHELL.to_owned(),
        arguments: SHELL_ARGUMENTS.map(str::to_owned).into(),
        directory: workspace.to_owned(),
        directory_identity: None,
        files: Vec::new(),
        environment: vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())],
        sandbox: Sandbox {
            profile,
            workspace: workspace.to_owned(),
            temporary: workspace.to_owned(),
            private: Vec::new(),
            secret_files: Vec::new(),
            read_roots: Vec::new(),
            limits: ResourceLimits::default(),
            trial: None,
        },
        grace_ms: 100,
        cgroup,
        terminal: None,
    }
}

async fn spawn_reaped(reapers: &ReaperPool, spawn_spec: &SpawnSpec) -> Duration {
    let bounds = RunLimits {
        timeout: None,
        output_bytes: 1024,
        on_overflow: OverflowAction::Kill,
    };
    let begun = Instant::now();
    let (_stop_sender, stop_receiver) = run::stop_channel();
    let run = SupervisedProcess::start(reapers, spawn_spec, stop_receiver)
        .await
        .unwrap();
    let (sender, _chunks) = mpsc::channel(16);
    let finish = run
        .stream_to_end(bounds, &std::collections::BTreeMap::new(), sender)
        .await
        .unwrap();
    assert_eq!(finish.exit_code, Some(0), "{finish:?}");
    begun.elapsed()
}
