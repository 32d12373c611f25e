//! The reaper that is ready before it is needed.

use std::path::PathBuf;

use pvp_agent::reaper::SpawnSpec;
use pvp_agent::run::ReaperPool;
use pvp_protocol::SandboxProfile;

use crate::place::{Place, Running, ample, is_alive, parent, program, until, write_program};

/// Reapers that are started one ahead, and whose ids are known.
struct Noted {
    place: Place,
    ids: PathBuf,
    reapers: ReaperPool,
}

impl Noted {
    fn new() -> Self {
        let place = Place::new();
        let ids = place.workspace.path().join("ids");
        let script = place.workspace.path().join("noted");
        let (noted, pvp) = (ids.display(), program().display());
        let lines = format!("#!/bin/sh\necho $$ >> {noted}\nexec {pvp} \"$@\"\n");
        write_program(&script, &lines);
        Self {
            place,
            ids,
            reapers: ReaperPool::with_spare(&script),
        }
    }

    fn read(&self, line: &str) -> SpawnSpec {
        let mut errand = self.place.errand(line);
        errand.confinement.profile = SandboxProfile::Read;
        errand
    }

    /// Runs something to its end.
    async fn run(&self, errand: &SpawnSpec) -> Option<i32> {
        let mut running = Running::start_below(&self.reapers, errand, ample()).await;
        running.rest().await;
        running.finish().await.unwrap().exit_code
    }

    /// The reapers that were started so far, once there are as many.
    async fn started(&self, number: usize) -> Vec<u32> {
        let ids = || -> Vec<u32> {
            let ids = std::fs::read_to_string(&self.ids).unwrap_or_default();
            ids.lines().map(|id| id.parse().unwrap()).collect()
        };
        until("that many reapers", || ids().len() >= number).await;
        ids()
    }
}

/// The processes that a process started, however it is called by now.
fn children(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children
        .split_whitespace()
        .map(|id| id.parse().unwrap())
        .collect()
}

#[tokio::test]
async fn the_reaper_of_the_next_read_waits_for_it() {
    let noted = Noted::new();
    assert_eq!(noted.run(&noted.read("true")).await, Some(0));
    let started = noted.started(2).await;
    assert_eq!(started.len(), 2, "of its own and of the next");
    let next = noted.read("echo ready; exec sleep 1000");
    let mut running = Running::start_below(&noted.reapers, &next, ample()).await;
    running.says("ready").await;
    assert_eq!(parent(running.pid), started[1]);
    running.stopper.kill("enough");
    running.finish().await.unwrap();
}

#[tokio::test]
async fn what_people_approved_has_a_reaper_of_its_own_kind() {
    let noted = Noted::new();
    noted.run(&noted.read("true")).await;
    let started = noted.started(2).await;
    let mut errand = noted.place.errand("true");
    errand.cgroup = false;
    assert_eq!(noted.run(&errand).await, Some(0));
    assert_eq!(noted.started(3).await.len(), 3);
    assert!(is_alive(started[1]), "it still waits for a read");
}

#[tokio::test]
async fn a_reaper_that_is_killed_while_it_waits_is_not_missed() {
    let noted = Noted::new();
    for round in 0..3 {
        assert_eq!(noted.run(&noted.read("true")).await, Some(0), "{round}");
        let waiting = *noted.started(2 * round + 2).await.last().unwrap();
        let kill = std::process::Command::new("kill")
            .args(["-9", &waiting.to_string()])
            .status();
        assert!(kill.unwrap().success());
        until("it is gone", || !is_alive(waiting)).await;
    }
}

#[tokio::test]
async fn a_reaper_that_nobody_can_use_any_more_ends() {
    let noted = Noted::new();
    noted.run(&noted.read("true")).await;
    let waiting = noted.started(2).await[1];
    until("it waits", || children(waiting).len() == 1).await;
    let entrance = children(waiting)[0];
    drop(noted.reapers);
    until("both are gone", || {
        ![waiting, entrance].iter().any(|it| is_alive(*it))
    })
    .await;
}
