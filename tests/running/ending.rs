//! Everything that a command started ends with it.

use pvp_agent::reaper::{KillMechanism, available_controllers};
use pvp_agent::run::{self, RunError, StopReason, SupervisedProcess};
use pvp_protocol::SandboxProfile;
use pvp_protocol::payload::OutputStream;

use crate::executor::Executor;
use crate::place::{Place, Running, ample, parent, reapers, text, until};

/// A program that forks twice, leaves its session, ignores TERM and goes on forking. There is an
/// end to it, for the day that a test fails, after everyone's patience.
const HYDRA: &str = r#"
hydra() { trap '' TERM INT HUP; for n in {1..2000}; do ( trap '' TERM; exec sleep 300 ) & sleep 0.002; disown; done; }
export -f hydra
( setsid bash -c 'trap "" TERM; ( setsid bash -c hydra & ) ; sleep 300' & )
echo started
"#;

/// Waits until the hydra of a place is forking.
async fn hydra_lives(place: &Place) {
    let forks = |line: &String| line.trim() == "bash -c hydra";
    until("it starts", || place.alive().iter().any(forks)).await;
}

/// Rounds of ending a hydra; `make soak` asks for more.
fn rounds() -> usize {
    std::env::var("PVP_ROUNDS").map_or(20, |rounds| rounds.parse().unwrap())
}

/// How a command that may have a cgroup is ended on this machine.
fn mechanism(cgroup: bool) -> KillMechanism {
    match cgroup && available_controllers().is_some() {
        true => KillMechanism::Cgroup,
        false => KillMechanism::Subreaper,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_command_started_ends_with_it() {
    for round in 0..rounds() {
        let cgroup = round % 2 == 0;
        let place = Place::new();
        let mut errand = place.errand(&format!("{HYDRA} sleep 0.05"));
        errand.cgroup = cgroup;
        let (finish, _) = place.run(&errand, ample()).await;
        let finish = finish.unwrap();
        assert_eq!(place.alive(), Vec::<String>::new(), "round {round}");
        assert!(finish.left_behind > 0, "it left something behind");
        assert_eq!(finish.kill_mechanism, Some(mechanism(cgroup)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_is_killed_leaves_nothing_behind() {
    for cgroup in [true, false] {
        let place = Place::new();
        let mut errand = place.errand(&format!("{HYDRA} sleep 1000"));
        errand.cgroup = cgroup;
        let mut executor = Executor::start(&errand, ample());
        hydra_lives(&place).await;
        executor.kill().await;
        place.is_quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_tree() {
    let place = Place::new();
    let line = format!("trap '' TERM; {HYDRA} touch begun; sleep 1000");
    let running = Running::start_until(&place.errand(&line), "begun").await;
    let finish = running.finish().await.unwrap();
    assert_eq!(finish.stop_reason, Some(StopReason::TimedOut));
    assert_eq!(finish.signal, Some(9));
    assert_eq!(place.alive(), Vec::<String>::new());
}

/// As when a task of an executor is ended, and the executor goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_dropped_leaves_nothing_behind() {
    let place = Place::new();
    let (_stopper, asked) = run::stop_channel();
    let line = format!("{HYDRA} sleep 1000");
    let run = SupervisedProcess::start(&reapers(), &place.errand(&line), asked).await;
    hydra_lives(&place).await;
    drop(run);
    place.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_is_asked_before_it_is_ended() {
    let place = Place::new();
    // The shell is not to say that what it waits for was ended.
    let line = "exec 2>/dev/null; trap 'echo asked; exit 7' TERM; touch begun; \
                while :; do sleep 0.01; done";
    let mut errand = place.errand(line);
    // It is given all the time it wants to say so.
    errand.grace_ms = 180_000;
    let mut running = Running::start_until(&errand, "begun").await;
    assert_eq!(running.says("\n").await, "asked\n");
    let finish = running.finish().await.unwrap();
    assert_eq!(finish.stop_reason, Some(StopReason::TimedOut));
    assert_eq!(finish.exit_code, Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grandchild_that_holds_the_pipes_open_holds_up_nothing() {
    let place = Place::new();
    let (finish, out, _) = place.line("(setsid sleep 1000 &); echo done").await;
    assert_eq!((finish.exit_code, out.as_str()), (Some(0), "done\n"));
    assert_eq!(finish.left_behind, 1);
    assert_eq!(place.alive(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_no_text_hides_nobody() {
    let place = Place::new();
    let line = r"cp /bin/sleep $'\xff) Z'; (setsid ./$'\xff) Z' 1000 &); echo done";
    let mut errand = place.errand(line);
    errand.cgroup = false;
    let (finish, pieces) = place.run(&errand, ample()).await;
    assert_eq!(text(&pieces, OutputStream::Stdout), "done\n");
    assert_eq!(finish.unwrap().left_behind, 1);
    assert_eq!(place.alive(), Vec::<String>::new());
}

/// A program outside the command's tree may have been given its pipe.
#[tokio::test(flavor = "multi_thread")]
async fn someone_else_who_holds_the_pipe_open_holds_up_nothing() {
    let place = Place::new();
    let line = "echo ready; until [ -e go ]; do sleep 0.01; done; echo done";
    let mut running = Running::start(&place.errand(line), ample()).await;
    running.says("ready\n").await;
    let pipe = format!("/proc/{}/fd/1", running.pid);
    let held = std::fs::OpenOptions::new().write(true).open(pipe).unwrap();
    std::fs::write(place.workspace.path().join("go"), "").unwrap();
    running.says("done\n").await;
    assert_eq!(running.finish().await.unwrap().exit_code, Some(0));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn someone_may_stop_it() {
    let place = Place::new();
    // The shell is not to say that what it waits for was ended.
    let line = "exec 2>/dev/null; trap 'echo ended nicely; exit 7' TERM; echo ready; \
                while :; do sleep 0.01; done";
    let mut errand = place.errand(line);
    // It is given all the time it wants to end nicely.
    errand.grace_ms = 180_000;
    let mut running = Running::start(&errand, ample()).await;
    assert_eq!(running.says("\n").await, "ready\n");
    running.stopper.stop("enough");
    assert_eq!(running.says("\n").await, "ended nicely\n");
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
        let place = Place::new();
        let mut errand = place.errand(&format!("{HYDRA} sleep 0.05; kill -9 $PPID; sleep 1000"));
        errand.cgroup = cgroup;
        let (finish, pieces) = place.run(&errand, ample()).await;
        assert!(matches!(finish, Err(RunError::Lost(_))), "{finish:?}");
        assert_eq!(pieces[0].text, "started\n");
        assert_eq!(place.alive(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn only_a_command_that_could_kill_its_reaper_has_a_keeper() {
    let place = Place::new();
    for (profile, cgroup, above) in [
        (SandboxProfile::None, false, 2),
        (SandboxProfile::Workspace, false, 2),
        (SandboxProfile::Read, false, 1),
        (SandboxProfile::Read, true, 1),
        (SandboxProfile::ReadNet, true, 1),
    ] {
        let mut errand = place.errand("echo ready; exec sleep 1000");
        errand.confinement.profile = profile;
        errand.cgroup = cgroup;
        let mut running = Running::start(&errand, ample()).await;
        running.says("ready").await;
        let mut ancestor = running.pid;
        for _ in 0..above {
            ancestor = parent(ancestor);
        }
        assert_eq!(parent(ancestor), std::process::id(), "{profile:?}");
        running.stopper.kill("enough");
        let finish = running.finish().await.unwrap();
        assert_eq!(
            finish.kill_mechanism,
            Some(KillMechanism::Subreaper),
            "{profile:?}"
        );
    }
}

/// A read has no cgroup unless it is to be bounded by one.
#[tokio::test]
async fn a_read_that_is_bounded_as_a_whole_has_a_cgroup() {
    let place = Place::new();
    let mut errand = place.errand("true");
    errand.confinement.profile = SandboxProfile::Read;
    errand.confinement.share.whole.processes = Some(1000);
    let (finish, _) = place.run(&errand, ample()).await;
    assert_eq!(finish.unwrap().kill_mechanism, Some(mechanism(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hydra_that_is_held_to_reading_ends_too() {
    let place = Place::new();
    let mut errand = place.errand(&format!("{HYDRA} sleep 0.05"));
    errand.confinement.profile = SandboxProfile::Read;
    let (finish, _) = place.run(&errand, ample()).await;
    assert!(finish.unwrap().left_behind > 0, "it left something behind");
    assert_eq!(place.alive(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_kills_all_above_it_dies_with_them() {
    let place = Place::new();
    let mut errand = place.errand(
        "keeper=$(ps -o ppid= -p $PPID); touch begun; kill -9 $keeper $PPID; while :; do :; done",
    );
    errand.cgroup = false;
    let (finish, _) = place.run(&errand, ample()).await;
    assert!(matches!(finish, Err(RunError::Lost(_))), "{finish:?}");
    assert!(place.workspace.path().join("begun").exists());
    place.is_quiet().await;
}
