//! Real commands, run, streamed, bounded and ended with everything that they started.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pvp_agent::confine::{Confinement, Share};
use pvp_agent::reaper::{Errand, Mechanism};
use pvp_agent::run::{Bounds, Finish, Piece, Run, RunError, Stopped};
use pvp_protocol::Profile;
use pvp_protocol::payload::Stream;
use tokio::sync::mpsc;

/// Only to end a test that would hang; no test passes because of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Somewhere to run commands.
struct Bench {
    workspace: tempfile::TempDir,
    temporary: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self {
            workspace: tempfile::tempdir().unwrap(),
            temporary: tempfile::tempdir().unwrap(),
        }
    }

    fn errand(&self, line: &str, profile: Profile) -> Errand {
        let words = ["--noprofile", "--norc", "-c", line];
        Errand {
            program: "/bin/bash".to_owned(),
            arguments: words.map(str::to_owned).into(),
            directory: self.workspace.path().to_owned(),
            environment: vec![
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("MARK".to_owned(), self.mark()),
                (
                    "TMPDIR".to_owned(),
                    self.temporary.path().to_str().unwrap().to_owned(),
                ),
            ],
            confinement: Confinement {
                profile,
                workspace: self.workspace.path().to_owned(),
                temporary: self.temporary.path().to_owned(),
                share: Share::default(),
            },
            grace_ms: 100,
            cgroup: true,
        }
    }

    /// In the environment of every process of this bench.
    fn mark(&self) -> String {
        self.temporary.path().to_str().unwrap().to_owned()
    }

    /// Processes of this bench that are alive.
    fn alive(&self) -> Vec<String> {
        let mark = format!("MARK={}", self.mark());
        let processes = std::fs::read_dir("/proc").unwrap();
        processes
            .filter_map(Result::ok)
            .filter(|process| {
                let environment = std::fs::read(process.path().join("environ"));
                environment.is_ok_and(|it| {
                    it.split(|byte| *byte == 0)
                        .any(|one| one == mark.as_bytes())
                })
            })
            .map(|process| {
                let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).replace('\0', " ")
            })
            .collect()
    }

    async fn run(&self, errand: &Errand, bounds: Bounds) -> (Result<Finish, RunError>, Vec<Piece>) {
        let (run, _stopper) = Run::start(program(), errand).await.unwrap();
        let (sender, mut receiver) = mpsc::channel(16);
        let gather = async {
            let mut pieces = Vec::new();
            while let Some(piece) = receiver.recv().await {
                pieces.push(piece);
            }
            pieces
        };
        let secrets = BTreeMap::new();
        let both = async { tokio::join!(run.finish(bounds, &secrets, sender), gather) };
        tokio::time::timeout(PATIENCE, both).await.expect("it ends")
    }

    async fn line(&self, line: &str, profile: Profile) -> (Finish, String, String) {
        let (finish, pieces) = self.run(&self.errand(line, profile), ample()).await;
        let text = |stream| {
            let pieces = pieces.iter().filter(|piece| piece.stream == stream);
            pieces.map(|piece| piece.text.as_str()).collect()
        };
        (finish.unwrap(), text(Stream::Stdout), text(Stream::Stderr))
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_pvp"))
}

fn ample() -> Bounds {
    Bounds {
        timeout: Some(PATIENCE),
        output_bytes: 10 * 1024 * 1024,
    }
}

#[tokio::test]
async fn what_a_command_prints_and_how_it_ends_is_told() {
    let bench = Bench::new();
    let (finish, out, err) = bench
        .line("echo one; echo two >&2; pwd; exit 3", Profile::None)
        .await;
    let here = bench.workspace.path().canonicalize().unwrap();
    assert_eq!(out, format!("one\n{}\n", here.display()));
    assert_eq!(err, "two\n");
    assert_eq!(
        (finish.code, finish.signal, finish.stopped),
        (Some(3), None, None)
    );
    assert_eq!((finish.stdout.lines, finish.stderr.lines), (2, 1));
    let (finish, ..) = bench.line("kill -9 $$", Profile::None).await;
    assert_eq!((finish.code, finish.signal), (None, Some(9)));
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let bench = Bench::new();
    let mut errand = bench.errand("true", Profile::None);
    errand.program = "/no/such/program".to_owned();
    let (finish, pieces) = bench.run(&errand, ample()).await;
    assert_eq!(finish.unwrap().code, Some(127));
    assert!(
        pieces[0].text.contains("cannot run /no/such/program"),
        "{pieces:?}"
    );
    let mut errand = bench.errand("true", Profile::None);
    errand.directory = PathBuf::from("/no/such/place");
    let (_, pieces) = bench.run(&errand, ample()).await;
    assert!(
        pieces[0].text.contains("cannot work in /no/such/place"),
        "{pieces:?}"
    );
}

/// A program that forks twice, leaves its session, ignores TERM and goes on forking.
const HYDRA: &str = r#"
hydra() { trap '' TERM INT HUP; while :; do ( trap '' TERM; exec sleep 1000 ) & sleep 0.002; disown; done; }
export -f hydra
( setsid bash -c 'trap "" TERM; ( setsid bash -c hydra & ) ; sleep 1000' & )
echo started
"#;

/// Rounds of ending a hydra; `make soak` asks for more.
fn rounds() -> usize {
    std::env::var("PVP_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_a_command_started_ends_with_it() {
    for cgroup in [true, false] {
        for _ in 0..rounds() {
            let bench = Bench::new();
            let mut errand = bench.errand(&format!("{HYDRA} sleep 0.05"), Profile::None);
            errand.cgroup = cgroup;
            let (finish, _) = bench.run(&errand, ample()).await;
            let finish = finish.unwrap();
            assert_eq!(bench.alive(), Vec::<String>::new());
            assert!(finish.left_behind > 0, "it left something behind");
            let mechanism = finish.mechanism.unwrap();
            assert!(cgroup || mechanism == Mechanism::Subreaper);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_whole_tree() {
    let bench = Bench::new();
    let bounds = Bounds {
        timeout: Some(Duration::from_millis(300)),
        ..ample()
    };
    let line = format!("trap '' TERM; {HYDRA} sleep 1000");
    let (finish, _) = bench.run(&bench.errand(&line, Profile::None), bounds).await;
    let finish = finish.unwrap();
    assert_eq!(finish.stopped, Some(Stopped::TimedOut));
    assert_eq!(finish.signal, Some(9));
    assert_eq!(bench.alive(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_is_gone_leaves_nothing_behind() {
    let bench = Bench::new();
    let line = format!("{HYDRA} sleep 1000");
    let (run, _stopper) = Run::start(program(), &bench.errand(&line, Profile::None))
        .await
        .unwrap();
    let begun = std::time::Instant::now();
    while !bench.alive().iter().any(|line| line.contains("hydra")) {
        assert!(begun.elapsed() < PATIENCE, "it starts");
        tokio::task::yield_now().await;
    }
    // The reaper sees the same as when the executor is killed: the end of its socket.
    drop(run);
    while !bench.alive().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", bench.alive());
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_cut_at_exactly_the_cap_and_the_command_is_ended() {
    let bench = Bench::new();
    let bounds = Bounds {
        output_bytes: 1_000_003,
        ..ample()
    };
    let line = "yes out & yes err >&2 & wait";
    let (finish, pieces) = bench.run(&bench.errand(line, Profile::None), bounds).await;
    let finish = finish.unwrap();
    let told: usize = pieces.iter().map(|piece| piece.text.len()).sum();
    assert_eq!(told, 1_000_003);
    assert_eq!(finish.stdout.bytes + finish.stderr.bytes, 1_000_003);
    assert_eq!(finish.stopped, Some(Stopped::PrintedTooMuch));
    assert_eq!(bench.alive(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn someone_may_stop_it() {
    let bench = Bench::new();
    let mut errand = bench.errand(
        "trap 'echo ended nicely; exit 7' TERM; echo ready; while :; do sleep 0.01; done",
        Profile::None,
    );
    // It is given all the time it wants to end nicely.
    errand.grace_ms = 60_000;
    let (run, stopper) = Run::start(program(), &errand).await.unwrap();
    let (sender, mut pieces) = mpsc::channel(16);
    let finish = tokio::spawn(async move {
        let secrets = BTreeMap::new();
        run.finish(ample(), &secrets, sender).await
    });
    assert_eq!(pieces.recv().await.unwrap().text, "ready\n");
    stopper.stop("enough");
    assert_eq!(pieces.recv().await.unwrap().text, "ended nicely\n");
    let finish = tokio::time::timeout(PATIENCE, finish)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(finish.stopped, Some(Stopped::Asked("enough".to_owned())));
    assert_eq!(finish.code, Some(7));
}
