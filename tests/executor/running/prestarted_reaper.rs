//! The prestarted reaper.

use std::path::PathBuf;

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::ReaperPool;
use pvp_protocol::SandboxProfile;

use crate::support::program::write_program;
use crate::support::session::wait_until;

use super::fixture::{CommandFixture, TestRun, generous_limits, is_alive, parent_pid, pvp_path};

/// A pool with a prestarted reaper whose process ids are recorded.
struct RecordedReapers {
    fixture: CommandFixture,
    pid_file: PathBuf,
    reapers: ReaperPool,
}

impl RecordedReapers {
    fn new() -> Self {
        let fixture = CommandFixture::new();
        let pid_file = fixture.workspace.path().join("ids");
        let script = fixture.workspace.path().join("noted");
        let (noted, pvp) = (pid_file.display(), pvp_path().display());
        let lines = format!("#!/bin/sh\necho $$ >> {noted}\nexec {pvp} \"$@\"\n");
        write_program(&script, &lines);
        Self {
            fixture,
            pid_file,
            reapers: ReaperPool::with_spare(&script),
        }
    }

    fn read_spec(&self, line: &str) -> SpawnSpec {
        let mut spawn_spec = self.fixture.spawn_spec(line);
        spawn_spec.sandbox.profile = SandboxProfile::Read;
        spawn_spec
    }

    /// Runs a command to its end; returns its exit code.
    async fn run(&self, spawn_spec: &SpawnSpec) -> Option<i32> {
        let mut running =
            TestRun::start_with_reapers(&self.reapers, spawn_spec, generous_limits()).await;
        running.remaining_chunks().await;
        running.finish().await.unwrap().exit_code
    }

    /// Waits until this many reapers were started; returns their process ids.
    async fn started_pids(&self, number: usize) -> Vec<u32> {
        let ids = || -> Vec<u32> {
            let ids = std::fs::read_to_string(&self.pid_file).unwrap_or_default();
            ids.lines().map(|id| id.parse().unwrap()).collect()
        };
        wait_until("that many reapers", || ids().len() >= number).await;
        ids()
    }
}

/// The children of a process.
fn child_pids(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children
        .split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

#[tokio::test]
async fn a_reaper_is_prestarted_for_the_next_read() {
    let noted = RecordedReapers::new();
    assert_eq!(noted.run(&noted.read_spec("true")).await, Some(0));
    let started = noted.started_pids(2).await;
    assert_eq!(started.len(), 2, "of its own and of the next");
    let next = noted.read_spec("echo ready; exec sleep 1000");
    let mut running = TestRun::start_with_reapers(&noted.reapers, &next, generous_limits()).await;
    running.wait_for_text("ready").await;
    assert_eq!(parent_pid(running.pid), started[1]);
    running.stop_sender.kill("enough");
    running.finish().await.unwrap();
}

#[tokio::test]
async fn an_approved_command_does_not_use_the_prestarted_reaper() {
    let noted = RecordedReapers::new();
    noted.run(&noted.read_spec("true")).await;
    let started = noted.started_pids(2).await;
    let mut spawn_spec = noted.fixture.spawn_spec("true");
    spawn_spec.cgroup = false;
    assert_eq!(noted.run(&spawn_spec).await, Some(0));
    assert_eq!(noted.started_pids(3).await.len(), 3);
    assert!(is_alive(started[1]), "it still waits for a read");
}

#[tokio::test]
async fn a_prestarted_reaper_that_is_killed_is_replaced() {
    let noted = RecordedReapers::new();
    for round in 0..3 {
        assert_eq!(
            noted.run(&noted.read_spec("true")).await,
            Some(0),
            "{round}"
        );
        let waiting = *noted.started_pids(2 * round + 2).await.last().unwrap();
        let kill = std::process::Command::new("kill")
            .args(["-9", &waiting.to_string()])
            .status();
        assert!(kill.unwrap().success());
        wait_until("it is gone", || !is_alive(waiting)).await;
    }
}

/// A reaper with two threads would be half dead for a while when it is killed, and its command's
/// parent-death signal would follow one of them.
#[tokio::test]
async fn a_reaper_and_its_exec_step_have_one_thread() {
    let noted = RecordedReapers::new();
    noted.run(&noted.read_spec("true")).await;
    let waiting = noted.started_pids(2).await[1];
    wait_until("it waits", || child_pids(waiting).len() == 1).await;
    let next = noted.read_spec("echo ready; exec sleep 1000");
    for pid in [waiting, child_pids(waiting)[0]] {
        assert_eq!(thread_count(pid), 1);
    }
    let mut running = TestRun::start_with_reapers(&noted.reapers, &next, generous_limits()).await;
    running.wait_for_text("ready").await;
    assert_eq!(thread_count(waiting), 1, "also while it supervises");
    running.stop_sender.kill("enough");
    running.finish().await.unwrap();
}

fn thread_count(pid: u32) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.count()
}

#[tokio::test]
async fn a_prestarted_reaper_ends_with_its_pool() {
    let noted = RecordedReapers::new();
    noted.run(&noted.read_spec("true")).await;
    let waiting = noted.started_pids(2).await[1];
    wait_until("it waits", || child_pids(waiting).len() == 1).await;
    let exec_step = child_pids(waiting)[0];
    drop(noted.reapers);
    wait_until("both are gone", || {
        ![waiting, exec_step].iter().any(|it| is_alive(*it))
    })
    .await;
}
