//! Everything that a command started ends with it.

use pvp_agent::reaper::{KillMechanism, available_controllers};
use pvp_agent::run::{self, RunError, StopReason, SupervisedProcess};
use pvp_protocol::SandboxProfile;
use pvp_protocol::payload::OutputStream;

use crate::support::session::wait_until;
use crate::support::skip::skip;

use super::executor_process::ExecutorProcess;
use super::fixture::{CommandFixture, TestRun, generous_limits, parent_pid, reapers, stream_text};

/// A program that forks twice, leaves its session, ignores TERM and keeps forking. It ends by
/// itself at last, in case a test fails.
const FORK_BOMB: &str = r#"
fork_bomb() { trap '' TERM INT HUP; for n in {1..2000}; do ( trap '' TERM; exec sleep 300 ) & sleep 0.002; disown; done; }
export -f fork_bomb
( setsid bash -c 'trap "" TERM; ( setsid bash -c fork_bomb & ) ; sleep 300' & )
echo started
"#;

/// Waits until the fork bomb is forking.
async fn wait_for_fork_bomb(fixture: &CommandFixture) {
    let forks = |line: &String| line.trim() == "bash -c fork_bomb";
    wait_until("it starts", || fixture.live_commands().iter().any(forks)).await;
}

/// Rounds of killing a fork bomb; `make soak` runs more.
fn rounds() -> usize {
    std::env::var("PVP_ROUNDS").map_or(20, |rounds| rounds.parse().unwrap())
}

/// How a command is killed on this machine, if it may or may not have a cgroup.
fn expected_mechanism(cgroup: bool) -> KillMechanism {
    if !cgroup {
        return KillMechanism::Subreaper;
    }
    if available_controllers().is_none() {
        skip("no cgroup can be created here");
        return KillMechanism::Subreaper;
    }
    KillMechanism::Cgroup
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_command_started_ends_with_it() {
    for round in 0..rounds() {
        let cgroup = round % 2 == 0;
        let fixture = CommandFixture::new();
        let mut spawn_spec = fixture.spawn_spec(&format!("{FORK_BOMB} sleep 0.05"));
        spawn_spec.cgroup = cgroup;
        let (finish, _) = fixture.run(&spawn_spec, generous_limits()).await;
        let finish = finish.unwrap();
        assert_eq!(
            fixture.live_commands(),
            Vec::<String>::new(),
            "round {round}"
        );
        assert!(finish.left_behind > 0, "it left something behind");
        assert_eq!(finish.kill_mechanism, Some(expected_mechanism(cgroup)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_is_killed_leaves_nothing_behind() {
    for cgroup in [true, false] {
        let fixture = CommandFixture::new();
        let mut spawn_spec = fixture.spawn_spec(&format!("{FORK_BOMB} sleep 1000"));
        spawn_spec.cgroup = cgroup;
        let mut executor = ExecutorProcess::start(&spawn_spec, generous_limits());
        wait_for_fork_bomb(&fixture).await;
        executor.kill().await;
        fixture.wait_until_empty().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_tree() {
    let fixture = CommandFixture::new();
    let line = format!("trap '' TERM; {FORK_BOMB} touch begun; sleep 1000");
    let running = TestRun::start_until_file(&fixture.spawn_spec(&line), "begun").await;
    let finish = running.finish().await.unwrap();
    assert_eq!(finish.stop_reason, Some(StopReason::TimedOut));
    assert_eq!(finish.signal, Some(9));
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

/// As when a task of an executor is aborted while the executor keeps running.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_leaves_nothing_behind() {
    let fixture = CommandFixture::new();
    let (_stop_sender, stop_receiver) = run::stop_channel();
    let line = format!("{FORK_BOMB} sleep 1000");
    let run = SupervisedProcess::start(&reapers(), &fixture.spawn_spec(&line), stop_receiver).await;
    wait_for_fork_bomb(&fixture).await;
    drop(run);
    fixture.wait_until_empty().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_command_gets_sigterm_before_it_is_killed() {
    let fixture = CommandFixture::new();
    // Keeps the shell from reporting that its child was killed.
    let line = "exec 2>/dev/null; trap 'echo asked; exit 7' TERM; touch begun; \
                while :; do sleep 0.01; done";
    let mut spawn_spec = fixture.spawn_spec(line);
    // Enough time to print it on any machine.
    spawn_spec.grace_ms = 180_000;
    let mut running = TestRun::start_until_file(&spawn_spec, "begun").await;
    assert_eq!(running.wait_for_text("\n").await, "asked\n");
    let finish = running.finish().await.unwrap();
    assert_eq!(finish.stop_reason, Some(StopReason::TimedOut));
    assert_eq!(finish.exit_code, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grandchild_that_holds_the_pipes_open_delays_nothing() {
    let fixture = CommandFixture::new();
    let (finish, out, _) = fixture.run_line("(setsid sleep 1000 &); echo done").await;
    assert_eq!((finish.exit_code, out.as_str()), (Some(0), "done\n"));
    assert_eq!(finish.left_behind, 1);
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_name_that_is_not_utf8_hides_no_process() {
    let fixture = CommandFixture::new();
    let line = r"cp /bin/sleep $'\xff) Z'; (setsid ./$'\xff) Z' 1000 &); echo done";
    let mut spawn_spec = fixture.spawn_spec(line);
    spawn_spec.cgroup = false;
    let (finish, chunks) = fixture.run(&spawn_spec, generous_limits()).await;
    assert_eq!(stream_text(&chunks, OutputStream::Stdout), "done\n");
    assert_eq!(finish.unwrap().left_behind, 1);
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

/// A program outside the command's process tree may hold its pipe.
#[tokio::test(flavor = "multi_thread")]
async fn an_outside_process_that_holds_the_pipe_open_delays_nothing() {
    let fixture = CommandFixture::new();
    let line = "echo ready; until [ -e go ]; do sleep 0.01; done; echo done";
    let mut running = TestRun::start(&fixture.spawn_spec(line), generous_limits()).await;
    running.wait_for_text("ready\n").await;
    let pipe = format!("/proc/{}/fd/1", running.pid);
    let held = std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
    std::fs::write(fixture.workspace.path().join("go"), "").unwrap();
    running.wait_for_text("done\n").await;
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_stopped() {
    let fixture = CommandFixture::new();
    // Keeps the shell from reporting that its child was killed.
    let line = "exec 2>/dev/null; trap 'echo ended nicely; exit 7' TERM; echo ready; \
                while :; do sleep 0.01; done";
    let mut spawn_spec = fixture.spawn_spec(line);
    // Enough time to exit gracefully on any machine.
    spawn_spec.grace_ms = 180_000;
    let mut running = TestRun::start(&spawn_spec, generous_limits()).await;
    assert_eq!(running.wait_for_text("\n").await, "ready\n");
    running.stop_sender.stop("enough");
    assert_eq!(running.wait_for_text("\n").await, "ended nicely\n");
    let finish = running.finish().await.unwrap();
    assert_eq!(
        finish.stop_reason,
        Some(StopReason::Requested("enough".to_owned()))
    );
    assert_eq!(finish.exit_code, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_kills_its_reaper_is_lost_and_ended() {
    for cgroup in [true, false] {
        let fixture = CommandFixture::new();
        let mut spawn_spec = fixture.spawn_spec(&format!(
            "{FORK_BOMB} sleep 0.05; kill -9 $PPID; sleep 1000"
        ));
        spawn_spec.cgroup = cgroup;
        let (finish, chunks) = fixture.run(&spawn_spec, generous_limits()).await;
        assert!(matches!(finish, Err(RunError::Lost(_))), "{finish:?}");
        assert_eq!(chunks[0].text, "started\n");
        assert_eq!(fixture.live_commands(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn only_a_command_that_could_kill_its_reaper_has_an_outer_reaper() {
    let fixture = CommandFixture::new();
    for (profile, cgroup, above) in [
        (SandboxProfile::None, false, 2),
        (SandboxProfile::Workspace, false, 2),
        (SandboxProfile::Read, false, 1),
        (SandboxProfile::Read, true, 1),
        (SandboxProfile::ReadNet, true, 1),
    ] {
        let mut spawn_spec = fixture.spawn_spec("echo ready; exec sleep 1000");
        spawn_spec.sandbox.profile = profile;
        spawn_spec.cgroup = cgroup;
        let mut running = TestRun::start(&spawn_spec, generous_limits()).await;
        running.wait_for_text("ready").await;
        let mut ancestor = running.pid;
        for _ in 0..above {
            ancestor = parent_pid(ancestor);
        }
        assert_eq!(parent_pid(ancestor), std::process::id(), "{profile:?}");
        running.stop_sender.kill("enough");
        let finish = running.finish().await.unwrap();
        assert_eq!(
            finish.kill_mechanism,
            Some(KillMechanism::Subreaper),
            "{profile:?}"
        );
    }
}

/// A read gets no cgroup unless a limit needs one.
#[tokio::test]
async fn a_read_that_is_bounded_as_a_whole_has_a_cgroup() {
    let fixture = CommandFixture::new();
    let mut spawn_spec = fixture.spawn_spec("true");
    spawn_spec.sandbox.profile = SandboxProfile::Read;
    spawn_spec.sandbox.limits.cgroup.processes = Some(1000);
    let (finish, _) = fixture.run(&spawn_spec, generous_limits()).await;
    assert_eq!(
        finish.unwrap().kill_mechanism,
        Some(expected_mechanism(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_in_the_read_sandbox_ends_too() {
    let fixture = CommandFixture::new();
    let mut spawn_spec = fixture.spawn_spec(&format!("{FORK_BOMB} sleep 0.05"));
    spawn_spec.sandbox.profile = SandboxProfile::Read;
    let (finish, _) = fixture.run(&spawn_spec, generous_limits()).await;
    assert!(finish.unwrap().left_behind > 0, "it left something behind");
    assert_eq!(fixture.live_commands(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_kills_its_reapers_dies_with_them() {
    let fixture = CommandFixture::new();
    let mut spawn_spec = fixture.spawn_spec(
        "keeper=$(ps -o ppid= -p $PPID); touch begun; kill -9 $keeper $PPID; while :; do :; done",
    );
    spawn_spec.cgroup = false;
    let (finish, _) = fixture.run(&spawn_spec, generous_limits()).await;
    assert!(matches!(finish, Err(RunError::Lost(_))), "{finish:?}");
    assert!(fixture.workspace.path().join("begun").exists());
    fixture.wait_until_empty().await;
}
